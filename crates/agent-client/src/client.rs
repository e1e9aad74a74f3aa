//! Calls of the API.

use bowline_cloud::{Effect, Result};
use bowline_http::{Api, CallBuilder};
use http::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::messages::{ChangeRequest, FindBalancersReply, FindBalancersRequest, OwnersReply, OwnersRequest};
use crate::observation::Observation;

/// Reads the resources of these Services.
pub async fn find_balancers(api: &Api, request: &FindBalancersRequest) -> Result<FindBalancersReply> {
    query(api, "balancers_find", &["v1", "balancers", "find"], request).await
}

/// Lists the owners of load balancers and addresses.
pub async fn owners(api: &Api, request: &OwnersRequest) -> Result<OwnersReply> {
    query(api, "balancers_owners", &["v1", "balancers", "owners"], request).await
}

/// Changes one resource and returns the resulting resources of the Service.
pub async fn change(api: &Api, request: &ChangeRequest) -> Result<Observation> {
    write(api, "balancers_change", &["v1", "balancers", "change"], request).await
}

/// Sends a POST request that only reads.
pub async fn query<T: DeserializeOwned>(
    api: &Api,
    name: &'static str,
    path: &[&str],
    body: &impl Serialize,
) -> Result<T> {
    read(api.call(name, Method::POST, path).effect(Effect::Read).json(body)).await
}

/// Sends an idempotent POST request that writes.
pub async fn write<T: DeserializeOwned>(
    api: &Api,
    name: &'static str,
    path: &[&str],
    body: &impl Serialize,
) -> Result<T> {
    read(api.call(name, Method::POST, path).effect(Effect::IdempotentWrite).json(body)).await
}

/// Sends a request and parses the response.
pub async fn read<T: DeserializeOwned>(call: CallBuilder<'_>) -> Result<T> {
    call.send().await?.json()
}
