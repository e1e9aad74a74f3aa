//! Traces by OTLP: what was done, how long it took and how it ended, sent to a collector. Off unless the environment names one.
//!
//! ```text
//! tracing ──► Recorder: spans of our own crates, sampled at their root
//!                └── bounded buffer, full: dropped and counted ──► Exporter: batches ──► encode ──► Collector
//! ```
//!
//! The environment variables are those of OpenTelemetry. Nothing here may slow or stop the manager: recording never waits,
//! what has no room is dropped, a collector that is away is spoken of once a minute, and at the end there is a bound on waiting.

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

/// What records, and what sends it away.
pub struct Traces {
    /// Layer of the subscriber that records spans.
    pub recorder: Recorder,
    /// Task that sends them to the collector.
    pub exporter: Exporter,
}

impl Traces {
    /// What the environment asks for, if it does, and what it asks for in vain.
    pub fn from_environment() -> (Option<Traces>, Vec<String>) {
        let (settings, mut remarks) = Settings::read(|name| std::env::var(name).ok());
        let traces = settings.and_then(|settings| match Traces::new(settings) {
            Ok(traces) => Some(traces),
            Err(error) => {
                remarks.push(format!("no traces are sent: {error}"));
                None
            }
        });
        (traces, remarks)
    }

    fn new(settings: Settings) -> Result<Traces, collector::BadCollector> {
        let (sender, receiver) = mpsc::channel(settings.batch.queue);
        let dropped = Arc::new(AtomicU64::new(0));
        let recorder = Recorder::new(settings.sampler, sender, dropped.clone());
        Ok(Traces { recorder, exporter: Exporter::new(settings, receiver, dropped)? })
    }
}
