//! New Neutron records.

use crate::records::{Fields, Kind, Record};
use crate::simulator::State;
use crate::skeletons::fields;

/// New record of the project.
pub(crate) fn new(state: &mut State, kind: Kind) -> Record {
    let mut record = of(kind);
    let date = state.with_zone();
    record.set("id", state.ids.uuid());
    for field in ["tenant_id", "project_id"] {
        record.set(field, state.fixture.project.clone());
    }
    for field in ["created_at", "updated_at"] {
        record.set(field, date.clone());
    }
    record
}

/// Fields of this kind.
pub(crate) fn of(kind: Kind) -> Record {
    fields("neutron", kind)
}
