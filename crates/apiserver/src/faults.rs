//! Fault injection: errors, delays and closed connections, for tests of clients.
//!
//! A [`FaultRule`] selects requests and defines an effect, its probability and how often it applies. Rules are evaluated in
//! the order they were added: delays add up, and the first effect that ends the request stops the evaluation. The random
//! number generator is seeded, so the same requests in the same order fail in the same way.
//!
//! Rules are added in code ([`Faults::add`]) or, if debug endpoints are enabled, as JSON with `POST /debug/faults`:
//!
//! ```json
//! {"verb": "update", "resource": "leases", "effect": {"status": {"code": 500}}, "probability": 0.1}
//! {"resource": "nodes", "name": "node-1", "effect": {"latencyMilliseconds": 250}}
//! {"effect": {"status": {"code": 429, "message": "slow down", "retryAfterSeconds": 1}}, "times": 3}
//! {"verb": "watch", "effect": "partialWatchLine", "times": 1}
//! ```

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};

/// Effect of a fault on a request.
///
/// # Example
///
/// ```
/// use std::time::Duration;
/// use bowline_apiserver::Effect;
///
/// let effect = Effect::Latency(Duration::from_millis(250));
/// assert_eq!(serde_json::to_string(&effect)?, r#"{"latencyMilliseconds":250}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// The server returns this error without processing the request.
    #[serde(rename_all = "camelCase")]
    Status {
        /// The HTTP status code, 400 to 599.
        #[serde(with = "code")]
        code: StatusCode,
        /// The message of the `Status` object.
        #[serde(default)]
        message: String,
        /// The `Retry-After` header in seconds.
        #[serde(default, rename = "retryAfterSeconds", skip_serializing_if = "Option::is_none")]
        retry_after: Option<u32>,
    },
    /// The server delays the request by this duration, then processes it.
    #[serde(rename = "latencyMilliseconds", with = "milliseconds")]
    Latency(Duration),
    /// The server closes the connection without processing the request.
    Reset,
    /// The server processes the request, then closes the connection without sending the response.
    AnswerLost,
    /// The server processes the request immediately and delays the response by this duration.
    #[serde(rename = "answerLateMilliseconds", with = "milliseconds")]
    AnswerLate(Duration),
    /// The watch is closed in the middle of an event's line. Other verbs are not affected.
    PartialWatchLine,
}

impl Effect {
    /// Whether the effect ends the request before it is processed.
    fn ends_request(&self) -> bool {
        matches!(self, Effect::Status { .. } | Effect::Reset)
    }
}

/// Selects requests and injects a fault into them.
///
/// Fields that are `None` match everything. The default rule matches every request and returns status 500.
///
/// # Example
///
/// ```
/// use bowline_apiserver::{Effect, FaultRule};
///
/// let rule: FaultRule = serde_json::from_str(r#"{"verb": "watch", "effect": "reset", "times": 1}"#)?;
/// assert_eq!(rule, FaultRule {
///     verb: Some("watch".into()),
///     effect: Effect::Reset,
///     times: Some(1),
///     ..FaultRule::default()
/// });
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FaultRule {
    /// The verb as in authorization: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// The plural name of the resource: `nodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The subresource, such as `status`; the empty string matches requests for the object itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// The namespace; the empty string matches cluster-scoped requests and requests for all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the object; the empty string matches requests for a collection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The effect on matching requests.
    pub effect: Effect,
    /// The probability of the effect on a matching request, from 0 to 1. Default: 1.
    #[serde(default = "always")]
    pub probability: f64,
    /// The number of times the effect still applies. Default: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

fn always() -> f64 {
    1.0
}

impl Default for FaultRule {
    fn default() -> FaultRule {
        FaultRule {
            verb: None,
            resource: None,
            subresource: None,
            namespace: None,
            name: None,
            effect: Effect::Status {
                code: StatusCode::INTERNAL_SERVER_ERROR,
                message: "injected fault".to_owned(),
                retry_after: None,
            },
            probability: always(),
            times: None,
        }
    }
}

/// The attributes of a request that rules match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultTarget<'a> {
    pub(crate) verb: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

impl FaultRule {
    fn matches(&self, request: FaultTarget<'_>) -> bool {
        let pairs = [
            (&self.verb, request.verb),
            (&self.resource, request.resource),
            (&self.subresource, request.subresource),
            (&self.namespace, request.namespace),
            (&self.name, request.name),
        ];
        let applies = self.effect != Effect::PartialWatchLine || request.verb == "watch";
        applies && pairs.iter().all(|(wanted, found)| wanted.as_deref().is_none_or(|wanted| wanted == *found))
    }
}

/// The active fault rules of a server.
///
/// # Example
///
/// ```
/// use bowline_apiserver::{Effect, FaultRule, Faults};
///
/// let faults = Faults::default();
/// faults.seed(7);
/// faults.add(FaultRule { resource: Some("leases".into()), effect: Effect::Reset, ..FaultRule::default() });
/// assert_eq!(faults.list().len(), 1);
/// faults.clear();
/// assert!(faults.list().is_empty());
/// ```
#[derive(Debug, Default)]
pub struct Faults {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    rules: Vec<FaultRule>,
    rng: Rng,
}

impl Faults {
    /// Appends a rule.
    pub fn add(&self, rule: FaultRule) {
        self.lock().rules.push(rule);
    }

    /// Removes all rules. The random number generator keeps its state.
    pub fn clear(&self) {
        self.lock().rules.clear();
    }

    /// The active rules in evaluation order, each with its remaining number of times.
    pub fn list(&self) -> Vec<FaultRule> {
        self.lock().rules.clone()
    }

    /// Seeds the random number generator for rules with a probability below 1.
    pub fn seed(&self, seed: u64) {
        self.lock().rng = Rng(seed);
    }

    /// Returns the effects on a request, in order. Call it once per request: it consumes [`FaultRule::times`].
    pub(crate) fn decide(&self, request: FaultTarget<'_>) -> Vec<Effect> {
        let mut inner = self.lock();
        let Inner { rules, rng } = &mut *inner;
        let mut effects: Vec<Effect> = Vec::new();
        for rule in rules.iter_mut().filter(|rule| rule.matches(request)) {
            if !rng.chance(rule.probability) {
                continue;
            }
            rule.times = rule.times.map(|left| left.saturating_sub(1));
            effects.push(rule.effect.clone());
            if rule.effect.ends_request() {
                break;
            }
        }
        if !effects.is_empty() {
            rules.retain(|rule| rule.times != Some(0));
        }
        effects
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under the lock leaves it in an inconsistent state.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A small random number generator (SplitMix64): the same seed gives the same sequence on every platform.
#[derive(Debug, Default)]
struct Rng(u64);

impl Rng {
    /// Returns true with this probability. Probabilities 0 and 1 do not advance the generator.
    fn chance(&mut self, probability: f64) -> bool {
        if probability >= 1.0 {
            return true;
        }
        probability > 0.0 && self.next_fraction() < probability
    }

    /// A number from 0 (inclusive) to 1 (exclusive).
    fn next_fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Serializes a status code as a number.
mod code {
    use http::StatusCode;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(code: &StatusCode, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u16(code.as_u16())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<StatusCode, D::Error> {
        let number = u16::deserialize(from)?;
        match StatusCode::from_u16(number) {
            Ok(code) if code.is_client_error() || code.is_server_error() => Ok(code),
            _ => Err(de::Error::custom(format!("{number} is not an HTTP error status (400 to 599)"))),
        }
    }
}

/// Serializes a duration as whole milliseconds.
mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target<'a>(verb: &'a str, resource: &'a str, namespace: &'a str, name: &'a str) -> FaultTarget<'a> {
        FaultTarget { verb, resource, subresource: "", namespace, name }
    }
    use serde_json::json;

    fn faults(rules: impl IntoIterator<Item = FaultRule>) -> Faults {
        let faults = Faults::default();
        rules.into_iter().for_each(|rule| faults.add(rule));
        faults
    }

    fn latency(milliseconds: u64) -> FaultRule {
        FaultRule { effect: Effect::Latency(Duration::from_millis(milliseconds)), ..FaultRule::default() }
    }

    #[test]
    fn a_rule_affects_only_matching_requests() {
        let rule = FaultRule {
            verb: Some("update".into()),
            resource: Some("leases".into()),
            namespace: Some("ns".into()),
            name: Some("l".into()),
            effect: Effect::Reset,
            ..FaultRule::default()
        };
        let faults = faults([rule]);
        assert_eq!(faults.decide(target("update", "leases", "ns", "l")), [Effect::Reset]);
        for (verb, resource, namespace, name) in [
            ("get", "leases", "ns", "l"),
            ("update", "nodes", "ns", "l"),
            ("update", "leases", "other", "l"),
            ("update", "leases", "ns", "m"),
        ] {
            assert!(faults.decide(target(verb, resource, namespace, name)).is_empty());
        }
    }

    #[test]
    fn delays_add_up_until_a_rule_ends_the_request() {
        let reset = FaultRule { effect: Effect::Reset, ..FaultRule::default() };
        let faults = faults([latency(1), latency(2), reset, latency(3)]);
        let want = [latency(1).effect, latency(2).effect, Effect::Reset];
        assert_eq!(faults.decide(target("get", "nodes", "", "n")), want);
    }

    #[test]
    fn a_rule_is_removed_once_its_times_are_used_up() {
        let faults = faults([FaultRule { times: Some(2), ..latency(1) }]);
        assert_eq!(faults.decide(target("get", "nodes", "", "a")).len(), 1);
        assert_eq!(faults.list().first().and_then(|rule| rule.times), Some(1));
        assert_eq!(faults.decide(target("get", "nodes", "", "a")).len(), 1);
        assert!(faults.list().is_empty());
        assert!(faults.decide(target("get", "nodes", "", "a")).is_empty());
    }

    #[test]
    fn partial_lines_affect_only_watches() {
        let faults = faults([FaultRule { effect: Effect::PartialWatchLine, times: Some(1), ..FaultRule::default() }]);
        assert!(faults.decide(target("list", "nodes", "", "")).is_empty());
        assert_eq!(faults.decide(target("watch", "nodes", "", "")), [Effect::PartialWatchLine]);
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        let run = |seed| {
            let faults = faults([FaultRule { probability: 0.3, ..latency(1) }]);
            faults.seed(seed);
            (0..1000).map(|_| faults.decide(target("get", "nodes", "", "a")).len()).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        let hits: usize = run(7).iter().sum();
        assert!((250..350).contains(&hits), "{hits} of 1000 with a probability of 0.3");
    }

    #[test]
    fn rules_round_trip_through_json() {
        let rule = FaultRule {
            resource: Some("nodes".into()),
            effect: Effect::Status {
                code: StatusCode::TOO_MANY_REQUESTS,
                message: "slow down".into(),
                retry_after: Some(1),
            },
            probability: 0.5,
            times: Some(3),
            ..FaultRule::default()
        };
        let written = serde_json::to_value(&rule).unwrap();
        let status = json!({"status": {"code": 429, "message": "slow down", "retryAfterSeconds": 1}});
        assert_eq!(written, json!({"resource": "nodes", "effect": status, "probability": 0.5, "times": 3}));
        assert_eq!(serde_json::from_value::<FaultRule>(written).unwrap(), rule);
        let short: FaultRule = serde_json::from_value(json!({"effect": {"latencyMilliseconds": 250}})).unwrap();
        assert_eq!(short, latency(250));
        let torn: FaultRule = serde_json::from_value(json!({"effect": "partialWatchLine"})).unwrap();
        assert_eq!(torn.effect, Effect::PartialWatchLine);
        let lost: FaultRule = serde_json::from_value(json!({"effect": "answerLost"})).unwrap();
        assert_eq!(lost.effect, Effect::AnswerLost);
        let late: FaultRule = serde_json::from_value(json!({"effect": {"answerLateMilliseconds": 5}})).unwrap();
        assert_eq!(late.effect, Effect::AnswerLate(Duration::from_millis(5)));
    }

    #[test]
    fn invalid_json_rules_are_rejected() {
        let error = |rule| serde_json::from_value::<FaultRule>(rule).unwrap_err().to_string();
        let bad_code = error(json!({"effect": {"status": {"code": 200}}}));
        assert!(bad_code.contains("200 is not an HTTP error status"), "{bad_code}");
        assert!(error(json!({"verb": "get"})).contains("missing field `effect`"));
        assert!(error(json!({"effect": "reset", "probabilty": 1})).contains("unknown field `probabilty`"));
    }

    #[test]
    fn a_rule_may_select_a_subresource_or_only_the_object() {
        for (wanted, hits_status, hits_object) in
            [(None, true, true), (Some("status"), true, false), (Some(""), false, true)]
        {
            let faults = Faults::default();
            faults.add(FaultRule {
                subresource: wanted.map(str::to_owned),
                effect: Effect::Reset,
                ..FaultRule::default()
            });
            let object = target("patch", "nodes", "", "n");
            let status = FaultTarget { subresource: "status", ..object };
            assert_eq!(!faults.decide(status).is_empty(), hits_status, "{wanted:?}");
            assert_eq!(!faults.decide(object).is_empty(), hits_object, "{wanted:?}");
        }
    }
}
