//! The cloud's API. One method makes one call and returns what came of it; it neither waits nor tries again.

use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::{Client as Http, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Config;

/// How many servers a page has.
pub(crate) const PAGE: usize = 50;

/// The most that is read of a reply.
const LARGEST: usize = 4 << 20;

/// Asks the cloud.
pub(crate) struct Client {
    config: Config,
    http: Http<HttpConnector, Empty<Bytes>>,
}

/// A server, as the cloud tells of it. What we cannot do without has no default: a reply that lacks it makes no sense.
#[derive(Deserialize)]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) size: String,
    #[serde(default)]
    pub(crate) private_ips: Vec<String>,
    #[serde(default)]
    pub(crate) public_ips: Vec<String>,
}

/// A status that is not known here is not known to be off.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Off,
    #[serde(other)]
    Other,
}

/// A page of servers, in the order of their IDs; `next` is the last ID of this one.
#[derive(Deserialize)]
pub(crate) struct Servers {
    pub(crate) servers: Vec<Server>,
    pub(crate) next: Option<String>,
}

#[derive(Default, Deserialize)]
struct Refusal {
    code: String,
}

impl Client {
    pub(crate) fn new(config: Config) -> Client {
        Client { config, http: Http::builder(TokioExecutor::new()).build_http() }
    }

    /// The server of this ID; `None` if the cloud says that it has none.
    pub(crate) async fn server(&self, id: &str) -> Result<Option<Server>> {
        let reply = self.get("get server", &format!("/servers/{id}")).await?;
        // A proxy, or a wrong endpoint, says 404 as well. Only the cloud knows this word.
        if reply.status == 404 && reply.code() == "server_not_found" {
            return Ok(None);
        }
        reply.read().map(Some)
    }

    /// A page of servers; by `name`, `after` an ID.
    pub(crate) async fn servers(&self, query: &[(&str, &str)]) -> Result<Servers> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        self.get("list servers", &format!("/servers?{query}")).await?.read()
    }

    async fn get(&self, operation: &'static str, path: &str) -> Result<Reply> {
        let unreachable =
            |error: &dyn std::fmt::Display| Error::new(ErrorKind::Unavailable, operation, error.to_string());
        let request = Request::get(format!("{}{path}", self.config.endpoint))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.config.token))
            .body(Empty::new())
            .map_err(|error| Error::new(ErrorKind::InvalidConfig, operation, error.to_string()))?;
        let (head, body) = self.http.request(request).await.map_err(|error| unreachable(&error))?.into_parts();
        let body = Limited::new(body, LARGEST).collect().await.map_err(|error| unreachable(&error))?.to_bytes();
        let seconds = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Reply { operation, status: head.status.as_u16(), retry_after: seconds.map(Duration::from_secs), body })
    }
}

struct Reply {
    operation: &'static str,
    status: u16,
    retry_after: Option<Duration>,
    body: Bytes,
}

impl Reply {
    fn code(&self) -> String {
        serde_json::from_slice::<Refusal>(&self.body).unwrap_or_default().code
    }

    /// What it says; a refusal is the error that its status stands for.
    fn read<T: DeserializeOwned>(&self) -> Result<T> {
        if self.status != 200 {
            let body = String::from_utf8_lossy(&self.body);
            return Err(Error::from_status(self.operation, self.status, &body, self.retry_after));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            Error::new(ErrorKind::Unexpected, self.operation, format!("the reply makes no sense: {error}"))
        })
    }
}
