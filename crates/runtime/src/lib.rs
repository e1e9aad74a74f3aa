//! Building blocks of control loops. Nothing here depends on Kubernetes or a cloud.
//!
//! * [`Queue`]: work queue with deduplication, priorities, fairness and exponential back-off.
//! * [`PrioritySemaphore`]: semaphore that serves waiters of high priority first.
//! * [`TokenBucket`]: rate limiter.
//! * [`Clock`]: clock that a test can stop.
//! * [`Shutdown`]: graceful shutdown, on SIGINT and SIGTERM with [`Shutdown::on_signals`].
//! * [`Fence`]: rejects writes unless the process holds its lease.
//! * [`StatusBoard`]: registry of all components with a status.
//! * [`Heartbeat`] and [`ControllerHealth`]: watchdog of the control loops.
//! * [`Metric`]: declaration of a metric, for registration and for the reference page.
//! * [`Reloader`]: reloads credentials when their files change.
//! * [`Supervisor`]: runs the long-lived tasks of the process.
//!
//! All timers use `tokio::time`, so tests with paused time are instant and exact.

// A panic ends only the request, sync or task in which it occurs, and is reported. With "abort" it would end the manager.
#[cfg(panic = "abort")]
compile_error!("Bowline isolates panics: build it with panic = \"unwind\", the default");

mod backoff;
mod board;
mod bucket;
mod clock;
mod fence;
mod heartbeat;
mod metric;
mod metric_table;
mod once_map;
mod priority_semaphore;
mod queue;
mod reload;
mod shutdown;
mod signal;
mod supervisor;
#[cfg(feature = "testing")]
pub mod testing;

pub use backoff::Backoff;
pub use board::{Component, Entry, Kind, StatusBoard};
pub use bucket::TokenBucket;
pub use clock::{Anchor, Clock, Timeline};
pub use fence::{Fence, Fenced, Term};
pub use heartbeat::{ControllerHealth, Heartbeat, LoopStatus};
pub use metric::{Buckets, Instrument, Metric, Shape, Stability};
pub use metric_table::metric_table;
pub use once_map::OnceMap;
pub use priority_semaphore::{PriorityPermit, PrioritySemaphore};
pub use queue::{
    KeyState, KeyStatus, LastResult, METRICS as QUEUE_METRICS, Priority, Queue, QueueMetrics, QueueStatus, Work,
};
pub use reload::{Fingerprint, METRICS as RELOAD_METRICS, Reloadable, Reloader};
pub use shutdown::Shutdown;
pub use supervisor::{Supervisor, TaskFailure};
