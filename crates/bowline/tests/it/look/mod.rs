//! The commands that read a cluster and its clouds, and `--dry-run`, with API server and cloud in separate processes.

mod check;
mod credentials;
mod explain;
mod loops;
mod orphans;
mod plan;
mod progress;
mod world;
