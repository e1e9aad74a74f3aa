//! Tests against the embedded API server, in one test binary to save link time.

mod accounts;
mod client;
mod cluster;
mod dry_run;
mod events;
mod fence;
mod fixture;
mod lease;
mod list;
mod lost_answers;
mod network;
mod renewal;
mod services;
mod watch;
mod wire_fence;
