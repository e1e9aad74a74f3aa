//! `--feature-gates`: switches that the Go managers have, by their names there.

use std::collections::BTreeMap;

use bowline_config::{Problem, Problems, nearest};

use crate::flags::go_bool;

/// Routes are seen to when a Node changes, and not every few seconds.
// upstream: an alpha gate, off. A listing of all routes every ten seconds is a quota spent on nothing.
const WATCH_ROUTES: &str = "CloudControllerManagerWatchBasedRoutesReconciliation";

/// All gates in their alpha stage that are not named themselves, [`WATCH_ROUTES`] among them.
const ALL_ALPHA: &str = "AllAlpha";

/// Gates that the Go managers know. Here they are taken and have no effect: what they switch is either not there, or works
/// without them.
// upstream: a manager knows the gates of the API server's library, too, of which nothing is about it.
const WITHOUT_EFFECT: [&str; 45] = [
    "AllBeta",
    "CloudControllerManagerWebhook",
    "ContextualLogging",
    "ControllerManagerReleaseLeaderElectionLockOnExit",
    "LoggingAlphaOptions",
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
    "RemoteRequestHeaderUID",
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

/// The value of the flag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FeatureGates(BTreeMap<String, bool>);

impl FeatureGates {
    /// Reads `name=bool,name=bool`, given once or in parts, of which the last counts.
    pub(crate) fn new(parts: &[String], problems: &mut Problems) -> FeatureGates {
        let mut gates = FeatureGates::default();
        for item in parts.iter().flat_map(|part| part.split(',')).filter(|item| !item.is_empty()) {
            match read(item) {
                Ok((name, value)) => drop(gates.0.insert(name.to_owned(), value)),
                Err(problem) => problems.push(problem),
            }
        }
        gates
    }

    /// Routes are seen to when a Node changes. On unless switched off, by its own name or with its group.
    pub(crate) fn watches_routes(&self) -> bool {
        let value = self.0.get(WATCH_ROUTES).or_else(|| self.0.get(ALL_ALPHA));
        value.copied().unwrap_or(true)
    }

    /// What a person should know about it when the manager starts.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let idle = self.0.keys().filter(|name| WITHOUT_EFFECT.contains(&name.as_str()));
        idle.map(|name| format!("the feature gate {name} has no effect: this version does not act on it")).collect()
    }
}

/// One gate with its value.
// upstream: the words of what is wrong, which people look for.
fn read(item: &str) -> Result<(&str, bool), Problem> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (item.trim(), None),
    };
    if ![WATCH_ROUTES, ALL_ALPHA].contains(&name) && !WITHOUT_EFFECT.contains(&name) {
        return Err(unknown(name));
    }
    let wrong =
        |message: String| Problem::flag("feature-gates", message).hint(format!("write {name}=true or {name}=false"));
    let value = value.ok_or_else(|| wrong(format!("missing bool value for {name}")))?;
    let on = go_bool(value).map_err(|_| wrong(format!("invalid value of {name}={value}")))?;
    Ok((name, on))
}

fn unknown(name: &str) -> Problem {
    let known = [WATCH_ROUTES, ALL_ALPHA].into_iter().chain(WITHOUT_EFFECT);
    let hint = match nearest(name, known) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("leave it out; the one that has an effect is {WATCH_ROUTES}"),
    };
    Problem::flag("feature-gates", format!("unrecognized feature gate: {name}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(parts: &[&str]) -> (FeatureGates, Vec<String>) {
        let mut problems = Problems::new();
        let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
        let gates = FeatureGates::new(&parts, &mut problems);
        (gates, problems.iter().map(ToString::to_string).collect())
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
            let (gates, problems) = gates(&parts);
            assert_eq!((gates.watches_routes(), problems), (expected, vec![]), "{parts:?}");
        }
    }

    #[test]
    fn a_gate_that_only_the_go_managers_act_on_is_taken_and_told() {
        let (gates, problems) = gates(&["ContextualLogging=true,WatchList=false", "AllBeta=1"]);
        assert_eq!(problems, [""; 0]);
        let names = ["AllBeta", "ContextualLogging", "WatchList"];
        let remarks =
            names.map(|name| format!("the feature gate {name} has no effect: this version does not act on it"));
        assert_eq!(gates.remarks(), remarks);
    }

    #[test]
    fn what_is_no_gate_and_what_is_no_boolean_is_told_all_at_once() {
        let (_, problems) = gates(&["Knots=true,ContextualLoging=true,AllBeta,AllAlpha=maybe", "=true"]);
        let expected = [
            "--feature-gates: unrecognized feature gate: Knots; leave it out; the one that has an effect is Cloud",
            "--feature-gates: unrecognized feature gate: ContextualLoging; did you mean ContextualLogging?",
            "--feature-gates: missing bool value for AllBeta; write AllBeta=true or AllBeta=false",
            "--feature-gates: invalid value of AllAlpha=maybe; write AllAlpha=true or AllAlpha=false",
            "--feature-gates: unrecognized feature gate: ; leave it out; ",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
