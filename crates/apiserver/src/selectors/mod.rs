//! Label and field selectors: parsing with upstream's error messages, and matching.

mod fields;
mod labels;

pub(crate) use fields::FieldSelector;
pub(crate) use labels::LabelSelector;
