//! Plain HTTP endpoints that the configuration of a cloud requests ([`Endpoint`]), in addition to those of the manager.
//!
//! A server that cannot listen is logged and does not affect the manager: these endpoints are optional.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bowline_cloud::{Cloud, Clouds, Endpoint, EndpointPurpose};
use bowline_runtime::Shutdown;
use bowline_serving::answer::{self, Answer};
use bowline_serving::{ANY, AccessControl, Router, Server};
use futures::future::join_all;
use http::{Response, StatusCode};
use prometheus::Registry;

use crate::servers::metrics_router;

/// Timeout of a health check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);

/// Grace period for requests in flight at shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves the endpoints of all clouds until shutdown is requested.
pub(crate) async fn serve(clouds: Clouds, metrics: Registry, shutdown: Shutdown) -> Result<(), Infallible> {
    let endpoints = clouds.iter().flat_map(|cloud| cloud.layers().endpoints().into_iter().map(move |one| (cloud, one)));
    join_all(endpoints.map(|(cloud, endpoint)| serve_one(cloud, endpoint, &metrics, &shutdown))).await;
    shutdown.requested().await;
    Ok(())
}

async fn serve_one(cloud: &Cloud, Endpoint { address, purpose }: Endpoint, metrics: &Registry, shutdown: &Shutdown) {
    let router = match purpose {
        EndpointPurpose::Health => health_router(cloud),
        EndpointPurpose::Metrics => metrics_router(metrics),
    };
    match bind(&address).await {
        Ok(server) => {
            tracing::info!(cloud = &**cloud.name(), ?purpose, address = %server.address(), "serving an endpoint of the cloud");
            let Ok(()) = server.drain(DRAIN).serve(router, AccessControl::open(), shutdown.clone()).await;
        }
        // upstream: the messages of DigitalOcean's manager, the only one with such endpoints.
        Err(error) => match purpose {
            EndpointPurpose::Health => tracing::error!(cloud = &**cloud.name(), "Debug server failed: {error:#}"),
            EndpointPurpose::Metrics => {
                tracing::warn!(cloud = &**cloud.name(), "Metrics server has not been configured: {error:#}");
            }
        },
    }
}

/// Binds `HOST:PORT`. As in Go, an empty host means all interfaces.
async fn bind(address: &str) -> anyhow::Result<Server> {
    let resolved = match address.strip_prefix(':') {
        Some(port) => resolve(&format!("0.0.0.0:{port}")).await,
        None => resolve(address).await,
    };
    let resolved = resolved.map_err(|error| anyhow::anyhow!("cannot listen on {address:?}: {error}"))?;
    Ok(Server::bind_plain(resolved)?)
}

/// Resolves the address, with preference for IPv4, as in Go.
async fn resolve(address: &str) -> io::Result<SocketAddr> {
    let found: Vec<_> = tokio::net::lookup_host(address).await?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| io::Error::other("the host has no address"))
}

/// Router with the health check of a cloud.
fn health_router(cloud: &Cloud) -> Router {
    let cloud = cloud.clone();
    Router::new().at("/healthz", ANY, move |_| {
        let cloud = cloud.clone();
        async move { health(&cloud).await }
    })
}

async fn health(cloud: &Cloud) -> Answer {
    let failure = match tokio::time::timeout(CHECK_TIMEOUT, cloud.layers().check()).await {
        Ok(Ok(())) => return Response::default(),
        // upstream: the response of the API alone, without the name of our call.
        Ok(Err(error)) => error.message().to_owned(),
        Err(_) => format!("the cloud did not answer within {} s", CHECK_TIMEOUT.as_secs()),
    };
    tracing::warn!(cloud = &**cloud.name(), "health check failed: {failure}");
    answer::failure(StatusCode::INTERNAL_SERVER_ERROR, &format!("health check failed: {failure}"))
}

#[cfg(test)]
mod tests;
