//! New Octavia records.

use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::skeletons::fields;

/// Fields with the minor version that introduced them.
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

/// New record in status PENDING_CREATE.
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

/// Fields of this kind in the simulated version.
pub(super) fn of(state: &State, kind: Kind) -> Record {
    let mut record = fields("octavia", kind);
    record.retain(|field, _| is_known(state, field));
    record
}

/// Whether the simulated version has the field.
pub(super) fn is_known(state: &State, field: &str) -> bool {
    SINCE.iter().all(|(gated, since)| *gated != field || state.options.octavia_minor >= *since)
}
