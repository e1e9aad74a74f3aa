//! OpenStack in trouble, as those see it who run the manager: Events, the log, and what is left in the cloud.
//!
//! The manager and the API server are processes of their own; the cloud is the simulator, over HTTP. That all is well again
//! without a restart is part of every story.

mod access;
mod crowds;
mod limits;
mod looking;
mod machines;
mod octavia;
mod scene;
