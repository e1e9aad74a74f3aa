//! DigitalOcean as operators see it: Nodes, Services, Events, printed output, and what is left in the account.
//!
//! Manager and API server are separate processes; the cloud is the simulator, over HTTP. The manager is configured as the Go
//! manager: with environment variables.

mod access;
mod adoption;
mod commands;
mod endpoints;
mod failures;
mod machines;
mod scene;
mod story;
