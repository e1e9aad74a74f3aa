//! Shutdown on SIGINT and SIGTERM.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Shutdown;

impl Shutdown {
    /// Returns a shutdown that SIGINT and SIGTERM request. A second signal exits the process with the shell's exit code for it, 130 or
    /// 143. Must be called in a Tokio runtime; the task that waits for signals is in no [`Supervisor`](crate::Supervisor), so that it
    /// outlives the shutdown.
    pub fn on_signals() -> io::Result<Shutdown> {
        let (shutdown, mut signals) = (Shutdown::new(), Signals::listen()?);
        let requested = shutdown.clone();
        tokio::spawn(async move {
            let first = signals.next().await;
            tracing::info!(signal = first.as_raw_value(), "shutting down; a second signal exits immediately");
            requested.request();
            let second = signals.next().await;
            tracing::warn!(signal = second.as_raw_value(), "exiting before the shutdown is complete");
            std::process::exit(128 + second.as_raw_value());
        });
        Ok(shutdown)
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            Some(()) = self.interrupt.recv() => SignalKind::interrupt(),
            Some(()) = self.terminate.recv() => SignalKind::terminate(),
            // Both streams last as long as the runtime, so this is never polled afterwards.
            else => std::future::pending().await,
        }
    }
}
