//! What Nova says. Everything may be null or missing, and is then empty.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};

use super::{nullable, text};
use crate::session::{CallError, Page, Service, Session};

/// A server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Server {
    #[serde(deserialize_with = "nullable")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) status: String,
    #[serde(rename = "accessIPv4", deserialize_with = "nullable")]
    pub(crate) access_ipv4: String,
    #[serde(rename = "accessIPv6", deserialize_with = "nullable")]
    pub(crate) access_ipv6: String,
    /// By the name of the network.
    #[serde(deserialize_with = "nullable")]
    pub(crate) addresses: BTreeMap<String, Vec<ServerAddress>>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) flavor: FlavorRef,
    #[serde(rename = "OS-EXT-AZ:availability_zone", deserialize_with = "nullable")]
    pub(crate) availability_zone: String,
}

/// An address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerAddress {
    #[serde(deserialize_with = "nullable")]
    pub(crate) addr: String,
    #[serde(rename = "OS-EXT-IPS:type", deserialize_with = "nullable")]
    pub(crate) kind: String,
}

/// What a server says of its flavor: its ID, or, where a microversion is the default, its name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FlavorRef {
    #[serde(deserialize_with = "text")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) original_name: String,
}

/// A flavor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Flavor {
    #[serde(deserialize_with = "text")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
}

/// All servers of the project that fit.
pub(crate) async fn servers(session: &Session, query: &[(&str, &str)]) -> Result<Vec<Server>, CallError> {
    session
        .call("server_list", Service::Compute, Method::GET, &["servers", "detail"])
        .query(query)
        .list("servers")
        .await
}

/// A page of the servers of the project that fit; `after` is what the page before it calls the next.
pub(crate) async fn servers_page(
    session: &Session,
    query: &[(&str, &str)],
    after: Option<&str>,
) -> Result<Page<Server>, CallError> {
    let call = session.call("server_list", Service::Compute, Method::GET, &["servers", "detail"]);
    let call = match after {
        Some(next) => call.raw_query(next),
        None => call.query(query),
    };
    call.page("servers").await
}

/// One server.
pub(crate) async fn server(session: &Session, id: &str) -> Result<Server, CallError> {
    session.call("server_get", Service::Compute, Method::GET, &["servers", id]).read("server").await
}

/// One flavor.
pub(crate) async fn flavor(session: &Session, id: &str) -> Result<Flavor, CallError> {
    session.call("flavor_get", Service::Compute, Method::GET, &["flavors", id]).read("flavor").await
}

/// All flavors that the project may use.
pub(crate) async fn flavors(session: &Session) -> Result<Vec<Flavor>, CallError> {
    session.call("flavor_list", Service::Compute, Method::GET, &["flavors"]).list("flavors").await
}

/// Whether Nova answers us at all.
pub(crate) async fn answers(session: &Session) -> Result<(), CallError> {
    let call = session.call("server_list", Service::Compute, Method::GET, &["servers", "detail"]);
    call.query(&[("limit", "1")]).done().await
}
