//! `--feature-gates`: switches that the Go managers have, by their names there.

use std::collections::BTreeMap;

use bowline_config::{ConfigError, ConfigErrors, nearest};

use crate::flags::go_bool;

/// Routes are seen to when a Node changes, and not every few seconds.
// upstream: an alpha gate, off. A listing of all routes every ten seconds is a quota spent on nothing.
const WATCH_ROUTES: &str = "CloudControllerManagerWatchBasedRoutesReconciliation";

/// The providers' admission webhooks may be served (HOOK-1).
const WEBHOOKS: &str = "CloudControllerManagerWebhook";

/// Lines of the log may go to two streams.
const LOGGING_ALPHA: &str = "LoggingAlphaOptions";

/// A front proxy may give the UID of a user.
const UID_HEADERS: &str = "RemoteRequestHeaderUID";

/// The lease is given back when the manager ends (LE-7).
// upstream: known there, and honoured by the kube-controller-manager only.
const RELEASE_LEASE: &str = "ControllerManagerReleaseLeaderElectionLockOnExit";

/// All gates in their alpha stage, or in their beta stage, that are not named themselves.
const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

/// The gates that something here depends on.
const WITH_EFFECT: [&str; 7] = [WATCH_ROUTES, WEBHOOKS, LOGGING_ALPHA, UID_HEADERS, RELEASE_LEASE, ALL_ALPHA, ALL_BETA];

/// Gates that the Go managers know. Here they are taken and have no effect: what they switch is either not there, or works
/// without them.
// upstream: a manager knows the gates of the API server's library, too, of which nothing is about it.
const WITHOUT_EFFECT: [&str; 40] = [
    "ContextualLogging",
    "LoggingBetaOptions",
    "NativeHistograms",
    "APIResponseCompression",
    "APIServerIdentity",
    "APIServerWebhookAuthenticationToken",
    "APIServingWithRoutine",
    "AggregatedDiscoveryRemoveBetaType",
    "AllowParsingUserUIDFromCertAuth",
    "AllowUnsafeMalformedObjectDeletion",
    "CBORServingAndStorage",
    "ConcurrentWatchObjectDecode",
    "ConsistentListFromCacheSkipTimeoutFallback",
    "ConstrainedImpersonation",
    "CoordinatedLeaderElection",
    "DeclarativeValidation",
    "DeclarativeValidationBeta",
    "DeclarativeValidationTakeover",
    "DetectCacheInconsistency",
    "EtcdRangeStream",
    "ExcludeAdmissionWebhookVirtualResources",
    "KMSv1",
    "ListFromCacheSnapshot",
    "ManifestBasedAdmissionControlConfig",
    "MutatingAdmissionPolicy",
    "OpenAPIEnums",
    "SeparateCacheWatchRPC",
    "ShardedListAndWatch",
    "SizeBasedListCostEstimate",
    "StorageVersionAPI",
    "StorageVersionHash",
    "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics",
    "TokenRequestServiceAccountUIDValidation",
    "UnauthenticatedHTTP2DOSMitigation",
    "UnknownVersionInteroperabilityProxy",
    "WatchCacheInitializationPostStartHook",
    "WatchList",
    "WatchListCompression",
    "WebhookRoundTripLoadBalancing",
];

/// Gates that the Go managers knew once, and that still stand in manifests. What they switched on is how things are now.
// upstream: a gate that is gone is an error, which stops a manager whose image is all that was changed.
const FORMER: [&str; 24] = [
    "APIListChunking",
    "AllowServiceLBStatusOnNonLB",
    "CSIMigration",
    "CSIMigrationAWS",
    "CSIMigrationAzureDisk",
    "CSIMigrationAzureFile",
    "CSIMigrationGCE",
    "CSIMigrationOpenStack",
    "CSIMigrationvSphere",
    "CloudDualStackNodeIPs",
    "ControllerManagerLeaderMigration",
    "DisableCloudProviders",
    "DisableKubeletCloudCredentialProviders",
    "IPv6DualStack",
    "LegacyNodeRoleBehavior",
    "LoadBalancerIPMode",
    "MixedProtocolLBService",
    "ServiceLBNodePortControl",
    "ServiceLoadBalancerClass",
    "ServiceLoadBalancerFinalizer",
    "ServiceNodeExclusion",
    "StableLoadBalancerNodeSet",
    "TaintNodesByCondition",
    "TokenRequest",
];

/// The value of the flag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FeatureGates(BTreeMap<String, bool>);

impl FeatureGates {
    /// Reads `name=bool,name=bool`, given once or in parts, of which the last counts.
    pub(crate) fn new(parts: &[String], errors: &mut ConfigErrors) -> FeatureGates {
        let mut gates = FeatureGates::default();
        for item in parts.iter().flat_map(|part| part.split(',')).filter(|item| !item.is_empty()) {
            match read(item) {
                Ok((name, value)) => drop(gates.0.insert(name.to_owned(), value)),
                Err(problem) => errors.push(problem),
            }
        }
        gates
    }

    /// Routes are seen to when a Node changes. On unless switched off, by its own name or with its group.
    pub(crate) fn watches_routes(&self) -> bool {
        self.switched(WATCH_ROUTES, ALL_ALPHA).unwrap_or(true)
    }

    /// The providers' webhooks may be served.
    pub(crate) fn webhooks(&self) -> bool {
        self.switched(WEBHOOKS, ALL_ALPHA).unwrap_or(false)
    }

    /// The flags about logs that are there for a trial may be given.
    pub(crate) fn logging_alpha(&self) -> bool {
        self.switched(LOGGING_ALPHA, ALL_ALPHA).unwrap_or(false)
    }

    /// A front proxy may give the UID of a user.
    pub(crate) fn uid_headers(&self) -> bool {
        self.switched(UID_HEADERS, ALL_BETA).unwrap_or(true)
    }

    /// The lease is given back at a clean end. On unless it is switched off by its own name: its group is about what may
    /// not be sound yet, and this is.
    // upstream: an alpha gate, off, so that a successor waits for the whole lease.
    pub(crate) fn releases_lease(&self) -> bool {
        self.0.get(RELEASE_LEASE).copied().unwrap_or(true)
    }

    /// What is said about a gate, by its own name or with its group.
    fn switched(&self, gate: &str, group: &str) -> Option<bool> {
        self.0.get(gate).or_else(|| self.0.get(group)).copied()
    }

    /// What a person should know about it when the manager starts.
    pub(crate) fn remarks(&self) -> Vec<String> {
        self.0.keys().filter_map(|name| remark(name)).collect()
    }
}

fn remark(name: &str) -> Option<String> {
    let reason = match name {
        name if WITHOUT_EFFECT.contains(&name) => "this version does not act on it",
        name if FORMER.contains(&name) => "the Go managers no longer have it, either",
        _ => return None,
    };
    Some(format!("the feature gate {name} has no effect: {reason}"))
}

fn all() -> impl Iterator<Item = &'static str> {
    WITH_EFFECT.into_iter().chain(WITHOUT_EFFECT).chain(FORMER)
}

/// One gate with its value.
// upstream: the words of what is wrong, which people look for.
fn read(item: &str) -> Result<(&str, bool), ConfigError> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (item.trim(), None),
    };
    if !all().any(|known| known == name) {
        return Err(unknown(name));
    }
    let wrong = |message: String| {
        ConfigError::flag("feature-gates", message).hint(format!("write {name}=true or {name}=false"))
    };
    let value = value.ok_or_else(|| wrong(format!("missing bool value for {name}")))?;
    let on = go_bool(value).map_err(|_| wrong(format!("invalid value of {name}={value}")))?;
    Ok((name, on))
}

fn unknown(name: &str) -> ConfigError {
    let hint = match nearest(name, all()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("leave it out; those that have an effect are {}", WITH_EFFECT.join(", ")),
    };
    ConfigError::flag("feature-gates", format!("unrecognized feature gate: {name}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(parts: &[&str]) -> (FeatureGates, Vec<String>) {
        let mut errors = ConfigErrors::new();
        let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
        let gates = FeatureGates::new(&parts, &mut errors);
        (gates, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn routes_are_watched_unless_the_gate_or_its_group_says_otherwise() {
        const GATE: &str = "CloudControllerManagerWatchBasedRoutesReconciliation";
        let own = |value: &str| format!("{GATE}={value}");
        let cases: [(&[String], bool); 9] = [
            (&[], true),
            (&[String::new()], true),
            (&[own("true")], true),
            (&[own("false")], false),
            (&[own("f"), own("T")], true),
            (&[format!(" {GATE} = 0 ,")], false),
            (&["AllAlpha=false".to_owned()], false),
            (&[format!("AllAlpha=false,{GATE}=true")], true),
            (&[format!("{GATE}=false,AllAlpha=true")], false),
        ];
        for (parts, expected) in cases {
            let parts: Vec<_> = parts.iter().map(String::as_str).collect();
            let (gates, errors) = gates(&parts);
            assert_eq!((gates.watches_routes(), errors), (expected, vec![]), "{parts:?}");
        }
    }

    #[test]
    fn a_gate_that_only_the_go_managers_act_on_is_taken_and_told() {
        let (gates, errors) = gates(&["ContextualLogging=true,WatchList=false", "NativeHistograms=1"]);
        assert_eq!(errors, [""; 0]);
        let names = ["ContextualLogging", "NativeHistograms", "WatchList"];
        let remarks =
            names.map(|name| format!("the feature gate {name} has no effect: this version does not act on it"));
        assert_eq!(gates.remarks(), remarks);
    }

    #[test]
    fn a_gate_of_old_is_taken_and_told() {
        let (gates, errors) = gates(&["ServiceNodeExclusion=true,LegacyNodeRoleBehavior=false"]);
        assert_eq!(errors, [""; 0]);
        let names = ["LegacyNodeRoleBehavior", "ServiceNodeExclusion"];
        let remarks = names
            .map(|name| format!("the feature gate {name} has no effect: the Go managers no longer have it, either"));
        assert_eq!(gates.remarks(), remarks);
    }

    #[test]
    fn a_gate_follows_its_group_unless_it_is_named() {
        let cases = [
            ("", [false, false, true, true]),
            ("AllAlpha=true", [true, true, true, true]),
            ("AllAlpha=true,CloudControllerManagerWebhook=false", [false, true, true, true]),
            ("LoggingAlphaOptions=true", [false, true, true, true]),
            ("AllBeta=false", [false, false, false, true]),
            ("AllAlpha=false,AllBeta=true", [false, false, true, true]),
            ("ControllerManagerReleaseLeaderElectionLockOnExit=false", [false, false, true, false]),
        ];
        for (text, expected) in cases {
            let (gates, errors) = gates(&[text]);
            let found = [gates.webhooks(), gates.logging_alpha(), gates.uid_headers(), gates.releases_lease()];
            assert_eq!((found, errors), (expected, vec![]), "{text}");
        }
    }

    #[test]
    fn no_gate_stands_in_two_lists() {
        let names: std::collections::BTreeSet<_> = all().collect();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn what_is_no_gate_and_what_is_no_boolean_is_told_all_at_once() {
        let (_, errors) = gates(&["Knots=true,ContextualLoging=true,AllBeta,AllAlpha=maybe", "=true"]);
        let expected = [
            "--feature-gates: unrecognized feature gate: Knots; leave it out; those that have an effect are Cloud",
            "--feature-gates: unrecognized feature gate: ContextualLoging; did you mean ContextualLogging?",
            "--feature-gates: missing bool value for AllBeta; write AllBeta=true or AllBeta=false",
            "--feature-gates: invalid value of AllAlpha=maybe; write AllAlpha=true or AllAlpha=false",
            "--feature-gates: unrecognized feature gate: ; leave it out; ",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (problem, expected) in errors.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
