//! Lease object, and the changes that an election makes to it.
//!
//! The object is kept as received, with labels, annotations and unknown fields of later API versions. Only the fields of the
//! election are read and changed.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Identity, LeaseOptions};
use crate::events::ObjectRef;

pub(super) const API_VERSION: &str = "coordination.k8s.io/v1";

/// Lease object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lease(Value);

impl Lease {
    /// Wraps an object from the API server.
    pub(super) fn received(object: Value) -> Lease {
        Lease(object)
    }

    /// Creates a Lease held by `identity`.
    pub(super) fn new(options: &LeaseOptions, identity: &Identity, now: Timestamp) -> Lease {
        let LeaseOptions { namespace, name, .. } = options;
        let empty = json!({
            "apiVersion": API_VERSION,
            "kind": "Lease",
            "metadata": { "name": name, "namespace": namespace },
            "spec": {},
        });
        Lease(empty).with(json!({
            "holderIdentity": identity.as_str(),
            "leaseDurationSeconds": options.whole_seconds(),
            "acquireTime": micro_time(now),
            "renewTime": micro_time(now),
            "leaseTransitions": 0,
        }))
    }

    /// Returns the Lease held by `identity` as of now: renewed if it is the holder, acquired if not (LE-1).
    ///
    /// upstream: acquiring a released lease also counts as a transition.
    pub(super) fn held_by(&self, identity: &Identity, options: &LeaseOptions, now: Timestamp) -> Lease {
        let renewed = json!({
            "holderIdentity": identity.as_str(),
            "leaseDurationSeconds": options.whole_seconds(),
            "renewTime": micro_time(now),
        });
        if self.is_held_by(identity) {
            return self.clone().with(renewed);
        }
        let acquired =
            json!({ "acquireTime": micro_time(now), "leaseTransitions": self.transitions().saturating_add(1).max(1) });
        self.clone().with(renewed).with(acquired)
    }

    /// Returns the Lease without a holder (LE-7).
    pub(super) fn released(&self, now: Timestamp) -> Lease {
        self.clone().with(json!({
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": micro_time(now),
            "renewTime": micro_time(now),
        }))
    }

    fn with(mut self, changes: Value) -> Lease {
        // Only a manual edit leaves a Lease without a spec.
        if !self.spec().is_object()
            && let Some(object) = self.0.as_object_mut()
        {
            object.insert("spec".to_owned(), json!({}));
        }
        if let (Some(Value::Object(spec)), Value::Object(changes)) = (self.0.get_mut("spec"), changes) {
            spec.extend(changes);
        }
        self
    }

    /// Serializes the object.
    pub(super) fn to_json(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }

    pub(super) fn is_free(&self) -> bool {
        self.holder().is_empty()
    }

    pub(super) fn is_held_by(&self, identity: &Identity) -> bool {
        self.holder() == identity.as_str()
    }

    pub(super) fn holder(&self) -> &str {
        self.text("/spec/holderIdentity")
    }

    pub(super) fn acquired(&self) -> &str {
        self.text("/spec/acquireTime")
    }

    pub(super) fn renewed(&self) -> &str {
        self.text("/spec/renewTime")
    }

    pub(super) fn transitions(&self) -> i64 {
        self.0.pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or_default()
    }

    /// `leaseDurationSeconds`.
    fn duration(&self) -> Duration {
        let seconds = self.0.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64);
        // The API server accepts positive 32-bit numbers only; the limit keeps an `Instant` from overflowing.
        Duration::from_secs(seconds.unwrap_or_default().min(u64::from(u32::MAX)))
    }

    pub(super) fn reference(&self) -> ObjectRef {
        ObjectRef {
            api_version: API_VERSION.to_owned(),
            kind: "Lease".to_owned(),
            namespace: Some(self.text("/metadata/namespace").to_owned()),
            name: self.text("/metadata/name").to_owned(),
            uid: self.text("/metadata/uid").to_owned(),
            resource_version: Some(self.text("/metadata/resourceVersion").to_owned()),
        }
    }

    fn spec(&self) -> &Value {
        self.0.get("spec").unwrap_or(&Value::Null)
    }

    fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Formats a `MicroTime`, always with six fractional digits.
fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Lease, with the time at which this process observed its current record first (LE-3).
#[derive(Debug, Clone)]
pub(super) struct ObservedLease {
    pub(super) lease: Lease,
    since: Instant,
}

impl ObservedLease {
    pub(super) fn new(lease: Lease, now: Instant) -> ObservedLease {
        ObservedLease { lease, since: now }
    }

    /// Records the current state of the Lease.
    pub(super) fn update(&mut self, lease: Lease, now: Instant) {
        if self.lease.spec() != lease.spec() {
            self.since = now;
        }
        self.lease = lease;
    }

    /// Time from which `identity` may acquire the Lease.
    pub(super) fn may_be_acquired_at(&self, identity: &Identity) -> Instant {
        if self.lease.is_free() || self.lease.is_held_by(identity) {
            return self.since;
        }
        self.since + self.lease.duration()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(spec: Value) -> Lease {
        Lease::received(json!({
            "metadata": { "name": "l", "labels": { "mine": "1" }, "resourceVersion": "7", "later": [1] },
            "spec": spec,
            "future": true,
        }))
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn le1_a_new_lease_has_whole_seconds_microseconds_and_no_transition() {
        let options = LeaseOptions { lease_duration: Duration::from_millis(14_001), ..LeaseOptions::default() };
        let identity = Identity::new("host");
        let Lease(made) = Lease::new(&options, &identity, at("2024-02-29T12:00:00.5Z"));
        let expected = json!({
            "holderIdentity": identity.as_str(),
            "leaseDurationSeconds": 15,
            "acquireTime": "2024-02-29T12:00:00.500000Z",
            "renewTime": "2024-02-29T12:00:00.500000Z",
            "leaseTransitions": 0,
        });
        assert_eq!(made["spec"], expected);
        assert_eq!(made["metadata"], json!({ "name": "cloud-controller-manager", "namespace": "kube-system" }));
    }

    #[test]
    fn le1_acquiring_increments_transitions_and_renewing_does_not() {
        let (options, me) = (LeaseOptions::default(), Identity::new("host"));
        let now = at("2024-02-29T12:00:00Z");
        let cases = [
            (json!({ "holderIdentity": "other", "leaseTransitions": 3 }), 4),
            (json!({ "holderIdentity": "", "leaseTransitions": 3 }), 4),
            (json!({ "holderIdentity": "other" }), 1),
            (json!({}), 1),
            (Value::Null, 1),
            (json!({ "holderIdentity": me.as_str(), "leaseTransitions": 3 }), 3),
        ];
        for (spec, transitions) in cases {
            let held = lease(spec.clone()).held_by(&me, &options, now);
            assert_eq!((held.holder(), held.transitions()), (me.as_str(), transitions), "{spec}");
        }
        let mine = lease(json!({ "holderIdentity": me.as_str(), "acquireTime": "then" }));
        assert_eq!(mine.held_by(&me, &options, now).acquired(), "then");
        let other = lease(json!({ "holderIdentity": "other", "acquireTime": "then" }));
        assert_eq!(other.held_by(&me, &options, now).acquired(), "2024-02-29T12:00:00.000000Z");
    }

    #[test]
    fn unknown_fields_of_a_lease_are_preserved() {
        let (me, now) = (Identity::new("host"), at("2024-02-29T12:00:00Z"));
        let spec = json!({ "holderIdentity": "other", "strategy": "OldestEmulationVersion", "new": { "a": 1 } });
        let held = lease(spec).held_by(&me, &LeaseOptions::default(), now);
        for Lease(object) in [held.clone(), held.released(now)] {
            assert_eq!(object["metadata"]["labels"], json!({ "mine": "1" }));
            assert_eq!((&object["metadata"]["later"], &object["future"]), (&json!([1]), &json!(true)));
            assert_eq!(object["spec"]["strategy"], "OldestEmulationVersion");
            assert_eq!(object["spec"]["new"], json!({ "a": 1 }));
        }
    }

    #[test]
    fn le7_a_released_lease_has_no_holder_and_lasts_one_second() {
        let released =
            lease(json!({ "holderIdentity": "me", "leaseTransitions": 2 })).released(at("2024-02-29T12:00:00Z"));
        let now = "2024-02-29T12:00:00.000000Z";
        let expected = json!({
            "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now, "leaseTransitions": 2,
        });
        assert_eq!(released.spec(), &expected);
    }

    #[tokio::test(start_paused = true)]
    async fn le3_only_a_change_of_the_record_extends_a_lease() {
        let me = Identity::new("host");
        let held = |renewed: &str| {
            lease(json!({ "holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": renewed }))
        };
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut observed = ObservedLease::new(held("1970-01-01T00:00:00.000000Z"), start);
        assert_eq!(observed.may_be_acquired_at(&me), start + 15 * second, "its timestamps are ignored");
        observed.update(held("1970-01-01T00:00:00.000000Z"), start + 5 * second);
        assert_eq!(observed.may_be_acquired_at(&me), start + 15 * second);
        observed.update(held("2999-01-01T00:00:00.000000Z"), start + 6 * second);
        assert_eq!(observed.may_be_acquired_at(&me), start + 21 * second);
        observed.update(lease(json!({ "holderIdentity": "", "leaseDurationSeconds": 15 })), start + 7 * second);
        assert_eq!(observed.may_be_acquired_at(&me), start + 7 * second, "free at once");
        observed.update(lease(json!({ "holderIdentity": "x", "leaseDurationSeconds": u64::MAX })), start);
        assert!(observed.may_be_acquired_at(&me) > start + 15 * second, "the largest duration does not overflow");
    }
}
