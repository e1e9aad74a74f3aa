//! New records: which fields there are, and what they are before anything is known of them.

use std::sync::LazyLock;

use crate::records::{Kind, Record};

/// Fields by kind; `neutron` and `octavia` have those of all kinds of a service.
static SKELETONS: LazyLock<Record> =
    LazyLock::new(|| serde_json::from_str(include_str!("skeletons.json")).unwrap_or_default());

/// The fields of this kind in this service.
pub(crate) fn fields(service: &str, kind: Kind) -> Record {
    let of = |name: &str| SKELETONS.get(name).and_then(|fields| fields.as_object()).into_iter().flatten();
    of(&format!("{kind:?}")).chain(of(service)).map(|(field, value)| (field.clone(), value.clone())).collect()
}
