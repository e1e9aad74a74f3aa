//! Collects spans and sends them in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_runtime::Shutdown;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::collector::{BadCollector, Collector, Undelivered};
use super::encode;
use super::settings::{Batch, Protocol, Settings};
use super::span::Span;

/// The pause between two complaints about a collector.
const QUIET: Duration = Duration::from_secs(60);

/// What the end of the process may wait for the last spans.
const FAREWELL: Duration = Duration::from_secs(2);

/// Sends what was recorded.
pub struct Exporter {
    collector: Collector,
    is_json: bool,
    resource: Vec<(String, String)>,
    batch: Batch,
    receiver: mpsc::Receiver<Span>,
    /// Taken from the buffer and not delivered.
    pending: Vec<Span>,
    /// By whoever recorded them, and here.
    dropped: Arc<AtomicU64>,
    complained: Option<Instant>,
}

/// An exporter that runs.
pub struct Sending {
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl Sending {
    /// Sends what is left, if that takes no longer than the end of the process may.
    pub async fn finish(self) {
        self.shutdown.request();
        let _ = tokio::time::timeout(FAREWELL, self.task).await;
    }
}

impl Exporter {
    pub(super) fn new(
        settings: Settings,
        receiver: mpsc::Receiver<Span>,
        dropped: Arc<AtomicU64>,
    ) -> Result<Exporter, BadCollector> {
        Ok(Exporter {
            collector: Collector::new(&settings)?,
            is_json: settings.protocol == Protocol::HttpJson,
            resource: settings.resource,
            batch: settings.batch,
            receiver,
            pending: Vec::new(),
            dropped,
            complained: None,
        })
    }

    #[cfg(test)]
    pub(super) fn dropped(&self) -> Arc<AtomicU64> {
        self.dropped.clone()
    }

    /// Begins to send.
    pub fn start(self, runtime: &Runtime) -> Sending {
        let shutdown = Shutdown::new();
        Sending { task: runtime.spawn(self.run(shutdown.clone())), shutdown }
    }

    /// Sends batches until shutdown is requested, and then what is left.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        while shutdown.or(self.gather()).await.is_some() {
            if !self.deliver().await {
                // The batch is kept, and what comes meanwhile waits in the buffer, which has a bound.
                shutdown.or(tokio::time::sleep(self.batch.delay)).await;
            }
        }
        self.finish().await;
    }

    /// Waits for a full batch, or for a while.
    async fn gather(&mut self) {
        if self.pending.is_empty() {
            // Nothing has ended yet: there is no hurry, and no reason to wake up.
            let room = self.batch.size;
            self.receiver.recv_many(&mut self.pending, room).await;
        }
        let deadline = Instant::now() + self.batch.delay;
        while self.pending.len() < self.batch.size {
            let room = self.batch.size - self.pending.len();
            match tokio::time::timeout_at(deadline, self.receiver.recv_many(&mut self.pending, room)).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Whether the batch is off our hands.
    async fn deliver(&mut self) -> bool {
        if self.pending.is_empty() {
            return true;
        }
        let body = if self.is_json { encode::json } else { encode::protobuf };
        match self.collector.deliver(body(&self.resource, &self.pending)).await {
            Ok(()) => {
                self.pending.clear();
                true
            }
            Err(error @ Undelivered::Later(_)) => {
                self.complain(&error);
                false
            }
            Err(error @ Undelivered::Never(_)) => {
                self.dropped.fetch_add(self.pending.len() as u64, Ordering::Relaxed);
                self.pending.clear();
                self.complain(&error);
                true
            }
        }
    }

    /// Everything that is left, once.
    async fn finish(&mut self) {
        loop {
            let room = self.batch.size.saturating_sub(self.pending.len());
            let left = std::iter::from_fn(|| self.receiver.try_recv().ok());
            self.pending.extend(left.take(room));
            if self.pending.is_empty() || !self.deliver().await {
                return;
            }
        }
    }

    /// Tells that traces are lost or late, now and then.
    fn complain(&mut self, error: &Undelivered) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if self.complained.is_some_and(|last| last.elapsed() < QUIET) {
            return tracing::debug!(%error, dropped, "traces cannot be delivered");
        }
        self.complained = Some(Instant::now());
        tracing::warn!(%error, dropped, "traces cannot be delivered; the manager goes on without");
    }
}
