//! The console: what a manager does, and why, as one document that people and programs can follow.
//!
//! ```text
//!  controllers, clouds, queues ──fill──► Document ──► Publisher ──► Changes since revision N ──► page, `bowline top`, programs
//!       (Source)                         (value)      (what changed)      (JSON)
//! ```
//!
//! * [`Document`] is a value: all objects as of one moment. Nothing in it is updated in place.
//! * A [`Source`] fills in what it knows. Sources are read only when a client asks, so a manager that is not watched does no work.
//! * A client applies the changes to its own copy (module `client`, with the feature of this name).
//! * [`Publisher`] compares the document with the last one and sends only the items that differ ([`Changes`]).
//!
//! Timestamps are absolute, so that an item does not change as time passes. Clients compute "12 s ago".

pub mod access;
mod changes;
#[cfg(feature = "client")]
pub mod client;
pub mod document;
#[cfg(feature = "page")]
pub mod page;
mod publisher;
mod reference;
mod sources;

pub use changes::{Changes, Position};
pub use document::Document;
pub use publisher::Publisher;
pub use reference::reference;
pub use sources::{Source, Sources};
