//! vSphere as operators see it: Nodes, Services, Events, printed output, and what is left in vCenter and NSX.
//!
//! Manager and API server are separate processes; two vCenters and an NSX manager are simulators, over HTTPS. The manager reads the
//! configuration file of the Go manager.

mod commands;
mod credentials;
mod failures;
mod machines;
pub(crate) mod scene;
mod several_clouds;
mod story;
