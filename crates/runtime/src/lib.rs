//! What control loops run on. Nothing here knows Kubernetes or a cloud.
//!
//! * [`Queue`]: keys that need work, each at most once, never twice at a time, later and later after failures.
//! * [`TokenBucket`]: a rate.
//! * [`Clock`]: the time, which a test can stop.
//! * [`Shutdown`]: the wish to end; [`signals`]: those who express it from outside.
//! * [`Supervisor`]: the tasks of the process, of which none may end on its own.
//!
//! All waiting is done with `tokio::time`, so a paused runtime makes every test of this instant and exact.

mod backoff;
mod bucket;
mod clock;
mod queue;
mod shutdown;
mod signal;
mod supervisor;

pub use backoff::Backoff;
pub use bucket::TokenBucket;
pub use clock::Clock;
pub use queue::{Priority, Queue, QueueMetrics, Work};
pub use shutdown::Shutdown;
pub use signal::signals;
pub use supervisor::{Supervisor, TaskFailure};
