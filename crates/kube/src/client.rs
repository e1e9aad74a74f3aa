//! Connecting to the API server.
//!
//! Requests run side by side over pooled HTTP/1.1 connections, as many as are needed: kube's connector speaks no HTTP/2.
//! That client's own repetition of requests is off: it stays away for up to a quarter of an hour without a word, and
//! whoever sends a request here knows better when to send it again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_core::with_causes;
use bowline_runtime::TokenBucket;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::Instant;
use tower::{BoxError, Service};

use crate::rest::{Counted, Meter, RestMetrics};

/// The longest that the API server may take to begin an answer, be it a page of a list; writes have less time.
const ANSWER_BEGINS_WITHIN: Duration = Duration::from_secs(60);
/// The longest silence within an answer. Longer than a watch goes without being renewed, as nothing may happen in one.
const LONGEST_SILENCE: Duration = Duration::from_secs(330);

/// How to reach the API server, and how hard.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// `--kubeconfig`; without it and `master`, the pod's own service account, else the usual kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: overrides the server's address.
    pub master: Option<String>,
    /// `--kube-api-qps` and `--kube-api-burst`; `None` leaves flow control to the server.
    pub rate: Option<(f64, u32)>,
    /// The end of the user agent: which controller this is.
    pub user: String,
    /// Where requests are counted, if they are.
    pub metrics: Option<RestMetrics>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("{0}")]
    Config(String),
    /// The client cannot be built.
    #[error("cannot build a client for the API server: {0}")]
    Client(#[source] kube::Error),
}

/// A client for the API server. Connects when it is first used.
pub async fn connect(options: &ClientOptions) -> Result<Client, ConnectError> {
    let mut config = config(options).await?;
    config.default_retry = false;
    config.disable_compression = true;
    config.read_timeout = Some(LONGEST_SILENCE);
    config.reset_reader_on_write = true;
    config.headers.push((USER_AGENT, user_agent(&options.user)?));
    let bucket = options.rate.map(|(rate, burst)| Arc::new(TokenBucket::new(rate, burst)));
    let meter = Meter::new(options.metrics.clone(), &config.cluster_url);
    let counted = tower::layer::layer_fn(|inner| Counted { inner, meter: meter.clone() });
    let gate = tower::layer::layer_fn(|inner| Gate { inner, bucket: bucket.clone(), meter: meter.clone() });
    let client = ClientBuilder::try_from(config).map_err(ConnectError::Client)?;
    // The gate is outside: a request that waits for its turn is not under way.
    Ok(client.with_layer(&counted).with_layer(&gate).build())
}

/// CL-1.
async fn config(options: &ClientOptions) -> Result<Config, ConnectError> {
    let master = options.master.as_deref().filter(|master| !master.is_empty()).map(address).transpose()?;
    let kubeconfig = options.kubeconfig.as_deref().filter(|path| !path.as_os_str().is_empty());
    let mut config = match (kubeconfig, &master) {
        (Some(path), _) => from_file(path).await?,
        (None, Some(master)) => Config::new(master.clone()),
        (None, None) => from_surroundings().await?,
    };
    config.cluster_url = master.unwrap_or(config.cluster_url);
    Ok(config)
}

fn address(master: &str) -> Result<http::Uri, ConnectError> {
    // A bare HOST:PORT would parse, but leave open how to speak to it; upstream takes it for plain HTTP.
    let whole = if master.contains("://") { master.to_owned() } else { format!("http://{master}") };
    whole.parse().map_err(|error| {
        let form = "give it as https://HOST:PORT, or leave it out to use the kubeconfig's";
        ConnectError::Config(format!("--master: {master:?} is not an address ({error}): {form}"))
    })
}

async fn from_file(path: &Path) -> Result<Config, ConnectError> {
    let unusable = |error: &dyn std::error::Error| {
        let (path, causes) = (path.display(), with_causes(error));
        ConnectError::Config(format!(
            "--kubeconfig: {path} cannot be used: {causes}; `kubectl --kubeconfig {path} version` must work"
        ))
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| unusable(&error))?;
    from_kubeconfig(kubeconfig).await.map_err(|error| unusable(&error))
}

/// The pod's service account, or else what `kubectl` would use.
async fn from_surroundings() -> Result<Config, ConnectError> {
    let no_pod = match Config::incluster() {
        Ok(config) => return Ok(config),
        Err(error) => with_causes(&error),
    };
    let found = match Kubeconfig::read() {
        Ok(kubeconfig) => from_kubeconfig(kubeconfig).await,
        Err(error) => Err(error),
    };
    found.map_err(|error| {
        ConnectError::Config(format!(
            "no way to reach an API server: there is no service account of a pod ({no_pod}), and no kubeconfig ({}); \
             give one with --kubeconfig",
            with_causes(&error)
        ))
    })
}

async fn from_kubeconfig(kubeconfig: Kubeconfig) -> Result<Config, kube::config::KubeconfigError> {
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
}

/// CL-3.
fn user_agent(user: &str) -> Result<HeaderValue, ConnectError> {
    let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    let text = format!("bowline/{version} ({os}/{arch}) {user}");
    HeaderValue::from_str(text.trim_end())
        .map_err(|_| ConnectError::Config(format!("{user:?} cannot stand in a user agent: plain ASCII is needed")))
}

/// Holds requests back if there is a rate, and lets none wait for an answer for ever.
#[derive(Clone)]
struct Gate<S> {
    inner: S,
    bucket: Option<Arc<TokenBucket>>,
    meter: Meter,
}

impl<S, B> Service<Request<Body>> for Gate<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let waiting = self.meter.of(&request);
        // Nothing is sent before this is polled.
        let answer = self.inner.call(request);
        let bucket = self.bucket.clone();
        async move {
            let asked = Instant::now();
            if let Some(bucket) = bucket {
                bucket.take().await;
            }
            if let Some((metrics, tags)) = waiting {
                metrics.waited(&tags, asked.elapsed());
            }
            match tokio::time::timeout(ANSWER_BEGINS_WITHIN, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(format!("no answer from the API server within {ANSWER_BEGINS_WITHIN:?}").into()),
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn master(master: &str) -> ClientOptions {
        ClientOptions { master: Some(master.into()), ..ClientOptions::default() }
    }

    #[tokio::test]
    async fn cl1_a_master_alone_is_used_without_credentials() {
        for (given, wanted) in [("https://api:6443", "https://api:6443/"), ("127.0.0.1:8080", "http://127.0.0.1:8080/")]
        {
            assert_eq!(config(&master(given)).await.unwrap().cluster_url.to_string(), wanted);
        }
    }

    #[tokio::test]
    async fn cl1_a_bad_master_is_named_with_what_to_do() {
        let error = config(&master("https://")).await.unwrap_err().to_string();
        assert!(error.starts_with("--master: \"https://\" is not an address"), "{error}");
        assert!(error.contains("https://HOST:PORT"), "{error}");
    }

    #[tokio::test]
    async fn cl1_a_kubeconfig_that_cannot_be_read_is_named() {
        let options = ClientOptions { kubeconfig: Some("/nowhere/config".into()), ..ClientOptions::default() };
        let error = config(&options).await.unwrap_err().to_string();
        assert!(error.starts_with("--kubeconfig: /nowhere/config cannot be used"), "{error}");
    }

    #[test]
    fn cl3_the_user_agent_names_program_platform_and_user() {
        let agent = user_agent("node-controller").unwrap();
        let agent = agent.to_str().unwrap();
        assert!(agent.starts_with("bowline/") && agent.ends_with(") node-controller"), "{agent}");
        assert!(user_agent("two\nlines").is_err());
    }
}
