//! Wire types with only the fields that the manager reads, about a tenth of each object.
//!
//! The other fields (managed fields, images, other conditions, …) are skipped during parsing and never allocated, which keeps
//! the list of a large cluster small. A field of an unexpected type counts as missing: a parse error in one object would fail the
//! list or watch of all objects.

/// Implements `kube::Resource` for a kind of the core group with a field `metadata`.
macro_rules! core_resource {
    ($wire:ty, $kind:literal, $plural:literal, $scope:ty) => {
        impl kube::Resource for $wire {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                "".into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                "v1".into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use core_resource;

mod node;
mod service;
mod shapes;

use std::fmt;

use serde::de::DeserializeOwned;

use crate::store::Stored;

pub(crate) use node::WireNode;
pub(crate) use service::WireService;

/// Wire type that converts to a domain type.
pub(crate) trait Wire:
    kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + fmt::Debug + Send + 'static
{
    /// Domain type.
    type Domain: Stored;

    /// Converts to the domain type; `None` if the object has no name, which no stored object lacks.
    fn into_domain(self) -> Option<Self::Domain>;
}
