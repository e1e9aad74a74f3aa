//! Label and field selectors: parsing with the API's words for what is wrong, and matching.

mod fields;
mod labels;

pub(crate) use fields::FieldSelector;
pub(crate) use labels::LabelSelector;
