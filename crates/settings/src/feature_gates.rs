//! `--feature-gates`: the feature gates of the Go managers.

use std::collections::BTreeMap;

use bowline_config::{ConfigError, ConfigErrors, nearest};

use crate::flags::go_bool;

/// Routes are reconciled when a Node changes instead of periodically.
// upstream: an alpha gate, off. Listing all routes every ten seconds only uses up API quota.
const WATCH_ROUTES: &str = "CloudControllerManagerWatchBasedRoutesReconciliation";

/// Admission webhooks of providers are served (HOOK-1).
const WEBHOOKS: &str = "CloudControllerManagerWebhook";

/// Alpha logging flags are enabled, such as split streams.
const LOGGING_ALPHA: &str = "LoggingAlphaOptions";

/// Front proxies may set the UID of a user.
const UID_HEADERS: &str = "RemoteRequestHeaderUID";

/// The Lease is released at shutdown (LE-7).
// upstream: has an effect in the kube-controller-manager only.
const RELEASE_LEASE: &str = "ControllerManagerReleaseLeaderElectionLockOnExit";

/// All alpha or beta gates that are not set explicitly.
const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

/// Gates with an effect.
const WITH_EFFECT: [&str; 7] = [WATCH_ROUTES, WEBHOOKS, LOGGING_ALPHA, UID_HEADERS, RELEASE_LEASE, ALL_ALPHA, ALL_BETA];

/// Gates of the Go managers that are accepted without effect: their feature either does not exist here or is always on.
// upstream: a manager also accepts the gates of the API server library, which do not affect it.
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

/// Gates that the Go managers removed and that manifests still set. Their features are always on.
// upstream: a removed gate is an error, so that a manager does not start after an image update.
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

/// Value of `--feature-gates`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FeatureGates(BTreeMap<String, bool>);

impl FeatureGates {
    /// Parses `name=bool,name=bool`; the flag may be repeated, and the last value of a gate wins.
    pub(crate) fn new(parts: &[String], errors: &mut ConfigErrors) -> FeatureGates {
        let mut gates = FeatureGates::default();
        for item in parts.iter().flat_map(|part| part.split(',')).filter(|item| !item.is_empty()) {
            match read(item) {
                Ok((name, value)) => drop(gates.0.insert(name.to_owned(), value)),
                Err(error) => errors.push(error),
            }
        }
        gates
    }

    /// Whether routes are reconciled when a Node changes. Default: true.
    pub(crate) fn watches_routes(&self) -> bool {
        self.switched(WATCH_ROUTES, ALL_ALPHA).unwrap_or(true)
    }

    /// Whether admission webhooks of providers are served.
    pub(crate) fn webhooks(&self) -> bool {
        self.switched(WEBHOOKS, ALL_ALPHA).unwrap_or(false)
    }

    /// Whether alpha logging flags are enabled.
    pub(crate) fn logging_alpha(&self) -> bool {
        self.switched(LOGGING_ALPHA, ALL_ALPHA).unwrap_or(false)
    }

    /// Whether front proxies may set the UID of a user.
    pub(crate) fn uid_headers(&self) -> bool {
        self.switched(UID_HEADERS, ALL_BETA).unwrap_or(true)
    }

    /// Whether the Lease is released at a clean shutdown. Default: true. AllAlpha does not affect it, because it is stable here.
    // upstream: an alpha gate, off, so that the next leader waits until the Lease expires.
    pub(crate) fn releases_lease(&self) -> bool {
        self.0.get(RELEASE_LEASE).copied().unwrap_or(true)
    }

    /// Returns the value of a gate, set by its own name or by its group.
    fn switched(&self, gate: &str, group: &str) -> Option<bool> {
        self.0.get(gate).or_else(|| self.0.get(group)).copied()
    }

    /// Returns the warnings about gates without effect.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.0.keys().filter_map(|name| warning(name)).collect()
    }
}

fn warning(name: &str) -> Option<String> {
    let reason = match name {
        name if WITHOUT_EFFECT.contains(&name) => "this manager does not use it",
        name if FORMER.contains(&name) => "it was removed upstream",
        _ => return None,
    };
    Some(format!("the feature gate {name} has no effect: {reason}"))
}

fn all() -> impl Iterator<Item = &'static str> {
    WITH_EFFECT.into_iter().chain(WITHOUT_EFFECT).chain(FORMER)
}

/// Parses one gate with its value.
// upstream: these error messages, which users search for.
fn read(item: &str) -> Result<(&str, bool), ConfigError> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (item.trim(), None),
    };
    if !all().any(|known| known == name) {
        return Err(unknown(name));
    }
    let invalid =
        |message: String| ConfigError::flag("feature-gates", message).hint(format!("use {name}=true or {name}=false"));
    let value = value.ok_or_else(|| invalid(format!("missing bool value for {name}")))?;
    let on = go_bool(value).map_err(|_| invalid(format!("invalid value of {name}={value}")))?;
    Ok((name, on))
}

fn unknown(name: &str) -> ConfigError {
    let hint = match nearest(name, all()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("remove it; gates with an effect: {}", WITH_EFFECT.join(", ")),
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
    fn routes_are_watched_unless_the_gate_or_its_group_is_off() {
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
    fn a_gate_without_effect_is_accepted_with_a_warning() {
        let (gates, errors) = gates(&["ContextualLogging=true,WatchList=false", "NativeHistograms=1"]);
        assert_eq!(errors, [""; 0]);
        let names = ["ContextualLogging", "NativeHistograms", "WatchList"];
        let warnings = names.map(|name| format!("the feature gate {name} has no effect: this manager does not use it"));
        assert_eq!(gates.warnings(), warnings);
    }

    #[test]
    fn a_removed_gate_is_accepted_with_a_warning() {
        let (gates, errors) = gates(&["ServiceNodeExclusion=true,LegacyNodeRoleBehavior=false"]);
        assert_eq!(errors, [""; 0]);
        let names = ["LegacyNodeRoleBehavior", "ServiceNodeExclusion"];
        let warnings = names.map(|name| format!("the feature gate {name} has no effect: it was removed upstream"));
        assert_eq!(gates.warnings(), warnings);
    }

    #[test]
    fn a_gate_follows_its_group_unless_it_is_set() {
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
    fn no_gate_is_in_two_lists() {
        let names: std::collections::BTreeSet<_> = all().collect();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn unknown_gates_and_invalid_values_are_reported_at_once() {
        let (_, errors) = gates(&["Knots=true,ContextualLoging=true,AllBeta,AllAlpha=maybe", "=true"]);
        let expected = [
            "--feature-gates: unrecognized feature gate: Knots; remove it; gates with an effect: Cloud",
            "--feature-gates: unrecognized feature gate: ContextualLoging; did you mean ContextualLogging?",
            "--feature-gates: missing bool value for AllBeta; use AllBeta=true or AllBeta=false",
            "--feature-gates: invalid value of AllAlpha=maybe; use AllAlpha=true or AllAlpha=false",
            "--feature-gates: unrecognized feature gate: ; remove it; ",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, expected) in errors.iter().zip(expected) {
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
