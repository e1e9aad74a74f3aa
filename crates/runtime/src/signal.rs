//! The wish to end, from outside the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Shutdown;

/// From the moment this returns, SIGINT and SIGTERM no longer end the process. The future, which is to be spawned outside
/// of any [`Supervisor`](crate::Supervisor), requests shutdown at the first of them and ends the process at the second,
/// with the code that the shell gives for that signal: 130 or 143.
pub fn signals(shutdown: Shutdown) -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut signals = Signals::listen()?;
    Ok(async move {
        let first = signals.next().await;
        tracing::info!(signal = first.as_raw_value(), "shutting down; a second signal ends the process at once");
        shutdown.request();
        let second = signals.next().await;
        tracing::warn!(signal = second.as_raw_value(), "not waiting for the shutdown to complete");
        std::process::exit(128 + second.as_raw_value());
    })
}

impl Shutdown {
    /// A shutdown that SIGINT and SIGTERM request; a second signal ends the process at once. To be called within a runtime.
    pub fn on_signals() -> io::Result<Shutdown> {
        let shutdown = Shutdown::new();
        tokio::spawn(signals(shutdown.clone())?);
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
            // Both streams last as long as the runtime; after that nobody polls this.
            else => std::future::pending().await,
        }
    }
}
