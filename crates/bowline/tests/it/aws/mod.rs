//! AWS as operators see it: Nodes, Services, Events, printed output, and what is left in the account.
//!
//! Manager and API server are separate processes; the cloud is the simulator, over HTTP. The manager runs outside AWS, with the
//! configuration file of the Go manager.

mod access;
mod adoption;
mod commands;
mod failures;
mod machines;
pub(crate) mod scene;
mod story;
