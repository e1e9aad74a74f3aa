//! Default fields of new records.

use std::sync::LazyLock;

use crate::records::{Kind, Record};

/// Fields by kind; `neutron` and `octavia` hold the fields that all kinds of the service share.
static SKELETONS: LazyLock<Record> =
    LazyLock::new(|| serde_json::from_str(include_str!("skeletons.json")).unwrap_or_default());

/// Default fields of this kind in this service.
pub(crate) fn fields(service: &str, kind: Kind) -> Record {
    let of = |name: &str| SKELETONS.get(name).and_then(|fields| fields.as_object()).into_iter().flatten();
    of(&format!("{kind:?}")).chain(of(service)).map(|(field, value)| (field.clone(), value.clone())).collect()
}
