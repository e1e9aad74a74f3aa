//! Nova records and calls. Fields that are null or missing are empty.

use std::collections::BTreeMap;

use bowline_cloud::Error;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::{nullable, nullable_values, record, text};
use crate::session::{Service, Session};

/// A server.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
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
    /// By network name.
    #[serde(deserialize_with = "nullable_values")]
    pub(crate) addresses: BTreeMap<String, Vec<ServerAddress>>,
    #[serde(deserialize_with = "nullable_values")]
    pub(crate) metadata: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) flavor: FlavorRef,
    #[serde(rename = "OS-EXT-AZ:availability_zone", deserialize_with = "nullable")]
    pub(crate) availability_zone: String,
}

record! {
    /// An address of a server.
    ServerAddress {
        addr: String,
        kind: String = "OS-EXT-IPS:type",
    }
}

/// Flavor of a server: its ID or, if a later microversion is the default, its name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FlavorRef {
    #[serde(deserialize_with = "text")]
    pub(crate) id: String,
    #[serde(deserialize_with = "text")]
    pub(crate) original_name: String,
}

/// A flavor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Flavor {
    #[serde(deserialize_with = "text")]
    pub(crate) id: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
}

/// Lists the servers of the project that match.
pub(crate) async fn servers(session: &Session, query: &[(&str, &str)]) -> Result<Vec<Server>, Error> {
    session
        .call("server_list", Service::Compute, Method::GET, &["servers", "detail"])
        .query(query)
        .list("servers")
        .await
}

/// One page of servers.
#[derive(Debug, Default)]
pub(crate) struct ServerPage {
    pub(crate) servers: Vec<Server>,
    /// Number of further servers that could not be parsed; one of them must not fail the others.
    pub(crate) unread: usize,
    /// Query of the next page; `None` after the last.
    pub(crate) next: Option<String>,
}

/// Reads a page of the servers of the project that match; `after` is `next` of the page before it.
pub(crate) async fn servers_page(
    session: &Session,
    query: &[(&str, &str)],
    after: Option<&str>,
) -> Result<ServerPage, Error> {
    let call = session.call("server_list", Service::Compute, Method::GET, &["servers", "detail"]);
    let call = match after {
        Some(next) => call.raw_query(next),
        None => call.query(query),
    };
    let page = call.page::<Value>("servers").await?;
    let listed = page.items.len();
    let servers: Vec<_> = page.items.iter().filter_map(read).collect();
    Ok(ServerPage { unread: listed - servers.len(), servers, next: page.next })
}

/// Parses a server; `None` if it has no ID or is invalid.
fn read(item: &Value) -> Option<Server> {
    let unread = |error: &dyn std::fmt::Display| {
        let id = item.get("id").and_then(Value::as_str).unwrap_or_default();
        tracing::warn!(server = id, %error, "Nova lists a server that cannot be parsed; it is read by ID if a Node refers to it");
    };
    match Server::deserialize(item) {
        Ok(server) if server.id.is_empty() => unread(&"it has no ID"),
        Ok(server) => return Some(server),
        Err(error) => unread(&error),
    }
    None
}

/// Reads a server.
pub(crate) async fn server(session: &Session, id: &str) -> Result<Server, Error> {
    session.call("server_get", Service::Compute, Method::GET, &["servers", id]).read("server").await
}

/// Reads a flavor.
pub(crate) async fn flavor(session: &Session, id: &str) -> Result<Flavor, Error> {
    session.call("flavor_get", Service::Compute, Method::GET, &["flavors", id]).read("flavor").await
}

/// Lists the flavors that the project may use.
pub(crate) async fn flavors(session: &Session) -> Result<Vec<Flavor>, Error> {
    session.call("flavor_list", Service::Compute, Method::GET, &["flavors"]).list("flavors").await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nulls_and_numbers_instead_of_texts_are_accepted() {
        let server = json!({
            "id": "a", "metadata": { "hostname": null, "x": "y" }, "addresses": { "net": null, "b": [] },
            "flavor": { "id": 7, "original_name": 4 },
        });
        let server = read(&server).unwrap();
        assert_eq!(server.metadata.get("hostname").map(String::as_str), Some(""));
        assert_eq!((server.addresses.len(), server.addresses["net"].as_slice()), (2, [].as_slice()));
        assert_eq!((server.flavor.id.as_str(), server.flavor.original_name.as_str()), ("7", "4"));
        for odd in [json!({ "name": "x" }), json!({ "id": "a", "addresses": [] }), json!("a"), json!(null)] {
            assert_eq!(read(&odd), None, "{odd}");
        }
    }
}
