//! What is wrong with what was seen. Pure: the same view has the same findings.

mod nodes;
mod rivals;

use bowline_cloud::ErrorKind;
use bowline_kube::{ConnectFailure, Permission, ReadError, Scope, Server};

use super::finding::{Finding, Kind};
use super::observed::{Observed, Review, SeenCloud};

/// The minor versions of the API server that this version is tried with; the last one is that of the embedded API server.
pub(super) const TRIED: std::ops::RangeInclusive<u32> = 30..=38;
/// The last one in which other components had cloud controllers of their own.
const LAST_IN_TREE: u32 = 30;
/// How many minor versions a kubelet may be behind.
const KUBELET_BEHIND: u32 = 3;

/// All findings, the worst first; those of one kind together.
pub(super) fn decide(observed: &Observed) -> Vec<Finding> {
    let mut findings = Vec::new();
    let errors = observed.errors.iter().map(|problem| Finding::new(Kind::Configuration, "", problem.to_string()));
    findings.extend(errors);
    findings.extend(observed.server.iter().map(server));
    findings.extend(versions(observed));
    findings.extend(permissions(&observed.reviews));
    findings.extend(observed.clouds.iter().flat_map(cloud));
    findings.extend(nodes::decide(observed));
    findings.extend(rivals::decide(observed));
    merged(findings)
}

/// One finding of each kind, with all that it is about.
fn merged(findings: Vec<Finding>) -> Vec<Finding> {
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
    let unreached = match server {
        Ok(server) if server.user.as_deref() == Some("system:anonymous") => {
            return Finding::new(Kind::ApiAnonymous, &server.address, "it answers, but knows no user");
        }
        Ok(Server { address, version, user }) => {
            let user = user.as_deref().map(|user| format!(", which takes us for {user}")).unwrap_or_default();
            return Finding::new(Kind::ApiReached, address, format!("version {version}{user}"));
        }
        Err(unreached) => unreached,
    };
    let (kind, address, why) = match unreached {
        ConnectFailure::Name { address, why } => (Kind::ApiName, address, why),
        ConnectFailure::Connection { address, why } => (Kind::ApiConnection, address, why),
        ConnectFailure::Conversation { address, why } => (Kind::ApiConversation, address, why),
        ConnectFailure::Unauthenticated { address, why } => (Kind::ApiCredentials, address, why),
        ConnectFailure::NotReady { address, why } => (Kind::ApiUnwell, address, why),
    };
    Finding::new(kind, address, why)
}

/// The server's version against ours, and the kubelets' against the server's.
fn versions(observed: &Observed) -> Vec<Finding> {
    let Some(Ok(server)) = &observed.server else { return Vec::new() };
    let Some(minor) = minor(&server.version) else { return Vec::new() };
    let tried = format!("version {}; tried are 1.{} to 1.{}", server.version, TRIED.start(), TRIED.end());
    let of_server = |kind| Finding::new(kind, &server.address, tried.clone());
    let old = (minor < *TRIED.start()).then(|| of_server(Kind::ServerOld));
    let new = (minor > *TRIED.end()).then(|| of_server(Kind::ServerNew));
    let in_tree = (minor <= LAST_IN_TREE)
        .then(|| Finding::new(Kind::InTreeClouds, &server.address, format!("version {}", server.version)));
    let nodes = observed.nodes.iter().flatten().flatten().map(|(node, _)| node);
    let skewed = nodes.filter(|node| self::minor(&node.kubelet).is_some_and(|kubelet| is_skewed(kubelet, minor)));
    let skewed = skewed.map(|node| Finding::new(Kind::KubeletSkew, &node.name, format!("kubelet {}", node.kubelet)));
    old.into_iter().chain(new).chain(in_tree).chain(skewed).collect()
}

fn is_skewed(kubelet: u32, server: u32) -> bool {
    kubelet > server || kubelet + KUBELET_BEHIND < server
}

/// 36 of `v1.36.2-rc.1+build`; `None` if that is no version.
fn minor(version: &str) -> Option<u32> {
    let mut parts = version.trim_start_matches('v').split('.');
    (parts.next()? == "1").then_some(())?;
    let digits: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn permissions(reviews: &[Review]) -> Vec<Finding> {
    let troubles: Vec<_> = reviews.iter().filter_map(review).collect();
    match reviews.is_empty() || !troubles.is_empty() {
        true => troubles,
        false => vec![Finding::new(Kind::RightsComplete, "", format!("{} rights", reviews.len()))],
    }
}

fn review(review: &Review) -> Option<Finding> {
    let who = review.who.map(|who| format!(" (as kube-system:{who})")).unwrap_or_default();
    let about = format!("{} {}{who}", review.verb, place(&review.permission));
    match &review.allowed {
        Ok(true) => None,
        Ok(false) => Some(match review.permission.without {
            Some(without) => Finding::new(Kind::RightDispensable, about, without),
            None => Finding::new(Kind::RightMissing, about, review.permission.why),
        }),
        Err(ReadError::Forbidden(why) | ReadError::Failed(why)) => Some(Finding::new(Kind::RightUnknown, about, why)),
    }
}

/// `leases.coordination.k8s.io cloud-controller-manager in kube-system`.
fn place(permission: &Permission) -> String {
    let group = if permission.group.is_empty() { String::new() } else { format!(".{}", permission.group) };
    let resource = format!("{}{group}", permission.resource);
    match &permission.scope {
        Scope::Cluster => resource,
        Scope::Namespace(namespace) => format!("{resource} in {namespace}"),
        Scope::Named(namespace, name) if namespace.is_empty() => format!("{resource} {name}"),
        Scope::Named(namespace, name) => format!("{resource} {name} in {namespace}"),
    }
}

fn cloud(cloud: &SeenCloud) -> Vec<Finding> {
    let mut findings: Vec<_> = cloud.findings.iter().map(|finding| in_cloud(&cloud.name, finding)).collect();
    match &cloud.quotas {
        Ok(quotas) => findings.extend(quotas.iter().filter_map(|quota| self::quota(&cloud.name, quota))),
        Err(error) if cloud.findings.iter().all(|finding| finding.outcome.is_ok()) => {
            findings.push(Finding::new(Kind::ReadError, format!("the quotas of {}", cloud.name), error.to_string()));
        }
        // What keeps the quotas from being seen is told already.
        Err(_) => {}
    }
    findings
}

/// What a cloud says of itself, or of one thing that its configuration names.
fn in_cloud(cloud: &str, finding: &bowline_cloud::Finding) -> Finding {
    let about = format!("{cloud}: {}", finding.what);
    let error = match &finding.outcome {
        Ok(detail) => return Finding::new(Kind::CloudReached, about, detail),
        Err(error) => error,
    };
    let kind = match error.kind() {
        ErrorKind::Unauthenticated => Kind::CloudCredentials,
        ErrorKind::PermissionDenied => Kind::CloudRights,
        ErrorKind::InvalidConfig | ErrorKind::NotFound => Kind::CloudConfiguration,
        ErrorKind::Unsupported => Kind::CloudLacks,
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
    Some(Finding::new(kind, format!("{cloud}: {}", quota.what), format!("{} of {} used", quota.used, quota.limit)))
}
