//! What control loops run on. Nothing here knows Kubernetes or a cloud.
//!
//! * [`Queue`]: keys that need work, each at most once, never twice at a time, later and later after failures.
//! * [`PrioritySemaphore`]: permits that go to waiters of high priority first.
//! * [`TokenBucket`]: a rate.
//! * [`Clock`]: the time, which a test can stop.
//! * [`Shutdown`]: the wish to end; [`signals`]: those who express it from outside.
//! * [`Fence`]: what keeps a process that no longer leads from changing anything.
//! * [`StatusBoard`]: where every part of the process can be looked at.
//! * [`Heartbeat`] and [`ControllerHealth`]: whether a control loop gets on.
//! * [`Metric`]: a metric, declared once for those who count and those who read.
//! * [`Reloader`]: credentials that are read again when their files change.
//! * [`Supervisor`]: the tasks of the process, of which none may end on its own.
//!
//! All waiting is done with `tokio::time`, so a paused runtime makes every test of this instant and exact.

// A panic ends the request, the pass or the task that it happens in, and is reported; with "abort" it would end the manager.
#[cfg(panic = "abort")]
compile_error!("Bowline isolates panics: build it with panic = \"unwind\", the default");

mod backoff;
mod board;
mod bucket;
mod clock;
mod fence;
mod heartbeat;
mod metric;
mod once_map;
mod priority_semaphore;
mod queue;
mod renewal;
mod shutdown;
mod signal;
mod supervisor;
#[cfg(feature = "testing")]
pub mod testing;

pub use backoff::Backoff;
pub use board::{Entry, Kind, Part, StatusBoard};
pub use bucket::TokenBucket;
pub use clock::Clock;
pub use fence::{Fence, Fenced, Term};
pub use heartbeat::{ControllerHealth, Heartbeat};
pub use metric::{Bounds, Instrument, Metric, Shape, Stability};
pub use once_map::OnceMap;
pub use priority_semaphore::{PriorityPermit, PrioritySemaphore};
pub use queue::{METRICS as QUEUE_METRICS, Priority, Queue, QueueMetrics, Work};
pub use renewal::{Fingerprint, METRICS as RENEWAL_METRICS, Reloadable, Reloader};
pub use shutdown::Shutdown;
pub use signal::signals;
pub use supervisor::{Supervisor, TaskFailure};
