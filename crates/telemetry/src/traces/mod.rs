//! Traces in OTLP over HTTP. Disabled unless the environment names a collector.
//!
//! ```text
//! tracing ──► Recorder: spans of our own crates, sampled at their root
//!                └── bounded buffer, full: dropped and counted ──► Exporter: batches ──► encode ──► Collector
//! ```
//!
//! The environment variables are those of OpenTelemetry. Tracing must not slow down or stop the manager: recording never blocks,
//! spans are dropped when the buffer is full, an unavailable collector is logged once a minute, and the flush at shutdown has a
//! timeout.

mod collector;
mod encode;
mod exporter;
mod layer;
mod protobuf;
mod settings;
mod span;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::mpsc;

pub use exporter::Exporter;
pub use layer::Recorder;

use settings::Settings;

/// Recorder and exporter of spans.
pub struct Traces {
    /// Layer of the subscriber that records spans.
    pub recorder: Recorder,
    /// Task that sends them to the collector.
    pub exporter: Exporter,
}

impl Traces {
    /// Configures tracing from the environment, and returns warnings about invalid variables.
    pub fn from_environment() -> (Option<Traces>, Vec<String>) {
        let (settings, mut warnings) = Settings::read(|name| std::env::var(name).ok());
        let traces = settings.and_then(|settings| match Traces::new(settings) {
            Ok(traces) => Some(traces),
            Err(error) => {
                warnings.push(format!("tracing is disabled: {error}"));
                None
            }
        });
        (traces, warnings)
    }

    fn new(settings: Settings) -> Result<Traces, collector::BadCollector> {
        let (sender, receiver) = mpsc::channel(settings.batch.queue);
        let dropped = Arc::new(AtomicU64::new(0));
        let recorder = Recorder::new(settings.sampler, sender, dropped.clone());
        Ok(Traces { recorder, exporter: Exporter::new(settings, receiver, dropped)? })
    }
}
