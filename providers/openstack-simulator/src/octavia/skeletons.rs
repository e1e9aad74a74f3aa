//! New records of Octavia.

use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::skeletons::fields;

/// Fields and the minor version that brought them.
const SINCE: [(&str, u32); 9] = [
    ("timeout_client_data", 1),
    ("timeout_member_connect", 1),
    ("timeout_member_data", 1),
    ("timeout_tcp_inspect", 1),
    ("tags", 5),
    ("flavor_id", 6),
    ("allowed_cidrs", 12),
    ("availability_zone", 14),
    ("additional_vips", 26),
];

/// A new record, on which Octavia is at work.
pub(super) fn new(state: &mut State, kind: Kind) -> Record {
    let mut record = of(state, kind);
    record.set("id", state.ids.uuid());
    record.set("provisioning_status", "PENDING_CREATE");
    record.set("created_at", state.without_zone());
    for field in ["project_id", "tenant_id"] {
        record.set(field, state.fixture.project.clone());
    }
    record
}

/// The fields of this kind in the version that is simulated.
pub(super) fn of(state: &State, kind: Kind) -> Record {
    let mut record = fields("octavia", kind);
    record.retain(|field, _| is_known(state, field));
    record
}

/// Whether this version has the field.
pub(super) fn is_known(state: &State, field: &str) -> bool {
    SINCE.iter().all(|(gated, since)| *gated != field || state.options.octavia_minor >= *since)
}
