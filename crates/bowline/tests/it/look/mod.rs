//! The commands that look at a cluster and its clouds, and `--dry-run`, beside an API server and a cloud that are processes,
//! too.

mod check;
mod credentials;
mod explain;
mod orphans;
mod plan;
mod world;
