//! Label and field selectors.

use std::collections::BTreeMap;

use crate::resources::Resource;
use crate::status::ApiResult;
use crate::store::Stored;

/// A parsed label selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {}

impl LabelSelector {
    /// Parses the `labelSelector` parameter.
    pub(crate) fn parse(_text: &str) -> ApiResult<LabelSelector> {
        Ok(LabelSelector {})
    }

    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn matches(&self, _labels: &BTreeMap<String, String>) -> bool {
        true
    }
}

/// A parsed field selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {}

impl FieldSelector {
    /// Parses the `fieldSelector` parameter for one resource.
    pub(crate) fn parse(_resource: &Resource, _text: &str) -> ApiResult<FieldSelector> {
        Ok(FieldSelector {})
    }

    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn matches(&self, _object: &Stored) -> bool {
        true
    }

    /// The one name `metadata.name=X` asks for.
    pub(crate) fn exact_name(&self) -> Option<&str> {
        None
    }
}
