//! Nodes and Services as the API server sends them, with only the fields that the manager reads, about a tenth of each object.
//!
//! The other fields (managed fields, images, other conditions, …) are skipped during parsing and never allocated, which keeps
//! the list of a large cluster small. A field of an unexpected type counts as missing: a parse error in one object would fail the
//! list or watch of all objects.

mod node;
mod service;
mod shapes;

pub use node::NodeObject;
pub use service::ServiceObject;
