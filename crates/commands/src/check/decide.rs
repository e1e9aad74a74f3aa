//! Derives findings from the observed state. Pure: the same input always has the same findings.

mod nodes;
mod rivals;

use bowline_cloud::ErrorKind;
use bowline_kube::{ConnectFailure, Permission, ReadError, Scope, Server};

use super::finding::{Finding, Kind};
use super::observed::{Observed, ObservedCloud, Review};

/// Minor versions of the API server that this version is tested with; the last one is that of the embedded API server.
pub(super) const TESTED: std::ops::RangeInclusive<u32> = 30..=38;
/// Last minor version with cloud controllers in kube-controller-manager.
const LAST_IN_TREE: u32 = 30;
/// Number of minor versions that a kubelet may be older than the API server.
const MAX_KUBELET_SKEW: u32 = 3;

/// Returns all findings, grouped by kind, the most severe first.
pub(super) fn decide(observed: &Observed) -> Vec<Finding> {
    let mut findings = Vec::new();
    let errors = observed.errors.iter().map(|error| Finding::new(Kind::Configuration, "", error.to_string()));
    findings.extend(errors);
    findings.extend(observed.server.iter().map(server));
    findings.extend(versions(observed));
    findings.extend(permissions(&observed.reviews));
    findings.extend(observed.clouds.iter().flat_map(cloud));
    findings.extend(nodes::decide(observed));
    findings.extend(rivals::decide(observed));
    merge(findings)
}

/// Merges findings of the same kind into one with all their subjects.
fn merge(findings: Vec<Finding>) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    for finding in findings {
        match merged.iter_mut().find(|known| known.kind == finding.kind) {
            Some(known) => known.about.extend(finding.about),
            None => merged.push(finding),
        }
    }
    merged.sort_by_key(|finding| (finding.kind.severity(), finding.kind));
    merged
}

fn server(server: &Result<Server, ConnectFailure>) -> Finding {
    let failure = match server {
        Ok(server) if server.user.as_deref() == Some("system:anonymous") => {
            return Finding::new(
                Kind::ApiAnonymous,
                &server.address,
                "the server responds, and does not authenticate the client",
            );
        }
        Ok(Server { address, version, user }) => {
            let user = user.as_deref().map(|user| format!(", authenticated as {user}")).unwrap_or_default();
            return Finding::new(Kind::ApiReached, address, format!("version {version}{user}"));
        }
        Err(failure) => failure,
    };
    let (kind, address, why) = match failure {
        ConnectFailure::Dns { address, why } => (Kind::ApiDns, address, why),
        ConnectFailure::Connection { address, why } => (Kind::ApiConnection, address, why),
        ConnectFailure::Handshake { address, why } => (Kind::ApiHandshake, address, why),
        ConnectFailure::Unauthenticated { address, why } => (Kind::ApiCredentials, address, why),
        ConnectFailure::NotReady { address, why } => (Kind::ApiUnhealthy, address, why),
    };
    Finding::new(kind, address, why)
}

/// Compares the API server's version with ours, and the kubelets' versions with the API server's.
fn versions(observed: &Observed) -> Vec<Finding> {
    let Some(Ok(server)) = &observed.server else { return Vec::new() };
    let Some(minor) = minor(&server.version) else { return Vec::new() };
    let detail = format!("version {}; tested: 1.{} to 1.{}", server.version, TESTED.start(), TESTED.end());
    let of_server = |kind| Finding::new(kind, &server.address, detail.clone());
    let old = (minor < *TESTED.start()).then(|| of_server(Kind::ServerOld));
    let new = (minor > *TESTED.end()).then(|| of_server(Kind::ServerNew));
    let in_tree = (minor <= LAST_IN_TREE)
        .then(|| Finding::new(Kind::InTreeClouds, &server.address, format!("version {}", server.version)));
    let nodes = observed.nodes.iter().flatten().flatten().map(|(node, _)| node);
    let skewed = nodes.filter(|node| self::minor(&node.kubelet).is_some_and(|kubelet| is_skewed(kubelet, minor)));
    let skewed = skewed.map(|node| Finding::new(Kind::KubeletSkew, &node.name, format!("kubelet {}", node.kubelet)));
    old.into_iter().chain(new).chain(in_tree).chain(skewed).collect()
}

fn is_skewed(kubelet: u32, server: u32) -> bool {
    kubelet > server || kubelet + MAX_KUBELET_SKEW < server
}

/// Returns 36 for `v1.36.2-rc.1+build`; `None` if the text is not a version.
fn minor(version: &str) -> Option<u32> {
    let mut parts = version.trim_start_matches('v').split('.');
    (parts.next()? == "1").then_some(())?;
    let digits: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn permissions(reviews: &[Review]) -> Vec<Finding> {
    let findings: Vec<_> = reviews.iter().filter_map(review).collect();
    match reviews.is_empty() || !findings.is_empty() {
        true => findings,
        false => vec![Finding::new(Kind::PermissionsComplete, "", format!("{} permissions", reviews.len()))],
    }
}

fn review(review: &Review) -> Option<Finding> {
    let account = review.account.map(|account| format!(" (as kube-system:{account})")).unwrap_or_default();
    let about = format!("{} {}{account}", review.verb, resource(&review.permission));
    match &review.allowed {
        Ok(true) => None,
        Ok(false) => Some(match review.permission.without {
            Some(without) => Finding::new(Kind::PermissionOptional, about, without),
            None => Finding::new(Kind::PermissionMissing, about, review.permission.why),
        }),
        Err(ReadError::Forbidden(why) | ReadError::Failed(why)) => {
            Some(Finding::new(Kind::PermissionUnknown, about, why))
        }
    }
}

/// Formats the resource, such as `leases.coordination.k8s.io cloud-controller-manager in kube-system`.
fn resource(permission: &Permission) -> String {
    let group = if permission.group.is_empty() { String::new() } else { format!(".{}", permission.group) };
    let resource = format!("{}{group}", permission.resource);
    match &permission.scope {
        Scope::Cluster => resource,
        Scope::Namespace(namespace) => format!("{resource} in {namespace}"),
        Scope::Named(namespace, name) if namespace.is_empty() => format!("{resource} {name}"),
        Scope::Named(namespace, name) => format!("{resource} {name} in {namespace}"),
    }
}

fn cloud(cloud: &ObservedCloud) -> Vec<Finding> {
    let mut findings: Vec<_> = cloud.results.iter().map(|result| check_result(&cloud.name, result)).collect();
    match &cloud.quotas {
        Ok(quotas) => findings.extend(quotas.iter().filter_map(|quota| self::quota(&cloud.name, quota))),
        Err(error) if cloud.results.iter().all(|result| result.outcome.is_ok()) => {
            findings.push(Finding::new(Kind::ReadError, format!("quotas of {}", cloud.name), error.to_string()));
        }
        // A failed check result already reports why the quotas cannot be read.
        Err(_) => {}
    }
    findings
}

/// Converts one check of a cloud, or of a resource that its configuration names.
fn check_result(cloud: &str, result: &bowline_cloud::CheckResult) -> Finding {
    let about = format!("{cloud}: {}", result.subject);
    let error = match &result.outcome {
        Ok(detail) => return Finding::new(Kind::CloudReached, about, detail),
        Err(error) => error,
    };
    let kind = match error.kind() {
        ErrorKind::Unauthenticated => Kind::CloudCredentials,
        ErrorKind::PermissionDenied => Kind::CloudPermissions,
        ErrorKind::InvalidConfig | ErrorKind::NotFound => Kind::CloudConfiguration,
        ErrorKind::Unsupported => Kind::CloudUnsupported,
        _ => Kind::CloudUnreachable,
    };
    Finding::new(kind, about, error.to_string())
}

fn quota(cloud: &str, quota: &bowline_cloud::Quota) -> Option<Finding> {
    let kind = match (quota.used, quota.limit) {
        (used, limit) if used >= limit => Kind::QuotaExhausted,
        (used, limit) if used.saturating_mul(5) >= limit.saturating_mul(4) => Kind::QuotaLow,
        _ => return None,
    };
    Some(Finding::new(kind, format!("{cloud}: {}", quota.resource), format!("{} of {} used", quota.used, quota.limit)))
}
