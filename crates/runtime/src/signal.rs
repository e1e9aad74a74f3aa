//! Shutdown on SIGINT and SIGTERM.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Shutdown;

/// Installs handlers for SIGINT and SIGTERM. Spawn the returned future outside of any [`Supervisor`](crate::Supervisor): it
/// requests shutdown at the first signal, and exits the process at the second one with the shell's exit code for that signal, 130
/// or 143.
pub fn handle_signals(shutdown: Shutdown) -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut signals = Signals::listen()?;
    Ok(async move {
        let first = signals.next().await;
        tracing::info!(signal = first.as_raw_value(), "shutting down; a second signal exits immediately");
        shutdown.request();
        let second = signals.next().await;
        tracing::warn!(signal = second.as_raw_value(), "exiting before the shutdown is complete");
        std::process::exit(128 + second.as_raw_value());
    })
}

impl Shutdown {
    /// A shutdown that SIGINT and SIGTERM request; a second signal ends the process at once. To be called within a runtime.
    pub fn on_signals() -> io::Result<Shutdown> {
        let shutdown = Shutdown::new();
        tokio::spawn(handle_signals(shutdown.clone())?);
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
