//! OpenStack failures as operators see them: Events, logs, and leftover cloud resources.
//!
//! Manager and API server are separate processes; the cloud is the simulator, over HTTP. Every test includes the recovery without a
//! restart.

mod access;
mod concurrency;
mod limits;
mod looking;
mod machines;
mod octavia;
mod scene;
