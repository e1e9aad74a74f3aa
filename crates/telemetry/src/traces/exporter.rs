//! Exports spans in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_runtime::Shutdown;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::collector::{BadCollector, Collector, ExportError};
use super::encode;
use super::settings::{Batch, Protocol, Settings};
use super::span::Span;

/// Minimum interval between two warnings about a collector.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Timeout of the last export at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Sends recorded spans to the collector.
pub struct Exporter {
    collector: Collector,
    is_json: bool,
    resource: Vec<(String, String)>,
    batch: Batch,
    receiver: mpsc::Receiver<Span>,
    /// Spans that were taken from the buffer and are not exported yet.
    pending: Vec<Span>,
    /// Number of spans dropped by the recorder and the exporter.
    dropped: Arc<AtomicU64>,
    warned: Option<Instant>,
}

/// Handle of a running exporter.
pub struct RunningExporter {
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl RunningExporter {
    /// Exports the remaining spans, with a timeout.
    pub async fn finish(self) {
        self.shutdown.request();
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.task).await;
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
            warned: None,
        })
    }

    #[cfg(test)]
    pub(super) fn dropped(&self) -> Arc<AtomicU64> {
        self.dropped.clone()
    }

    /// Starts the exporter.
    pub fn start(self, runtime: &Runtime) -> RunningExporter {
        let shutdown = Shutdown::new();
        RunningExporter { task: runtime.spawn(self.run(shutdown.clone())), shutdown }
    }

    /// Exports batches until shutdown is requested, and then the remaining spans.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        while shutdown.or(self.collect_batch()).await.is_some() {
            if !self.export().await {
                // The batch is kept for a retry, and new spans wait in the bounded buffer.
                shutdown.or(tokio::time::sleep(self.batch.delay)).await;
            }
        }
        self.flush().await;
    }

    /// Waits for a full batch, or until the delay has passed.
    async fn collect_batch(&mut self) {
        if self.pending.is_empty() {
            // The delay starts with the first span, so that an idle exporter does not wake up.
            let capacity = self.batch.size;
            self.receiver.recv_many(&mut self.pending, capacity).await;
        }
        let deadline = Instant::now() + self.batch.delay;
        while self.pending.len() < self.batch.size {
            let capacity = self.batch.size - self.pending.len();
            match tokio::time::timeout_at(deadline, self.receiver.recv_many(&mut self.pending, capacity)).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Exports the batch; `false` if it has to be retried.
    async fn export(&mut self) -> bool {
        if self.pending.is_empty() {
            return true;
        }
        let body = if self.is_json { encode::json } else { encode::protobuf };
        match self.collector.export(body(&self.resource, &self.pending)).await {
            Ok(()) => {
                self.pending.clear();
                true
            }
            Err(error @ ExportError::Retryable(_)) => {
                self.warn(&error);
                false
            }
            Err(error @ ExportError::Permanent(_)) => {
                self.dropped.fetch_add(self.pending.len() as u64, Ordering::Relaxed);
                self.pending.clear();
                self.warn(&error);
                true
            }
        }
    }

    /// Exports all remaining spans without retries.
    async fn flush(&mut self) {
        loop {
            let capacity = self.batch.size.saturating_sub(self.pending.len());
            let left = std::iter::from_fn(|| self.receiver.try_recv().ok());
            self.pending.extend(left.take(capacity));
            if self.pending.is_empty() || !self.export().await {
                return;
            }
        }
    }

    /// Logs a failed export, at most once per interval.
    fn warn(&mut self, error: &ExportError) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        if self.warned.is_some_and(|last| last.elapsed() < WARNING_INTERVAL) {
            return tracing::debug!(%error, dropped, "cannot export traces");
        }
        self.warned = Some(Instant::now());
        tracing::warn!(%error, dropped, "cannot export traces; controllers are not affected");
    }
}
