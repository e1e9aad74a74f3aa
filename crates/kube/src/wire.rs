//! Objects as they come over the wire, as far as we read them: a tenth of each.
//!
//! The rest (managed fields, images, conditions of others, …) is skipped while parsing and never allocated, which is what
//! keeps the list of a large cluster small. A field of an unexpected shape reads as if it were missing: one odd object
//! must not end the watch of all the others, which is what a parse error in the middle of a list would do.

/// What kube asks of a kind of the core group whose metadata are in the field `metadata`.
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

/// A kind as it comes over the wire, which turns into a value of the domain.
pub(crate) trait Wire:
    kube::Resource<DynamicType = ()> + DeserializeOwned + Clone + fmt::Debug + Send + 'static
{
    /// What is kept of it.
    type Kept: Stored;

    /// What is kept of it; `None` if it has no name, which nothing that was ever stored lacks.
    fn kept(self) -> Option<Self::Kept>;
}
