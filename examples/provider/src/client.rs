//! The cloud's API. One method makes one call; limits, retries and time limits are those of the gate that the program gives.

use std::time::Duration;

use bowline_cloud::{BuildContext, Error, ErrorKind, Result};
use bowline_config::{Problem, Problems};
use bowline_http::{Api, Bearer, ErrorDecoder, Refusal};
use http::Method;
use serde::Deserialize;

use crate::Config;

/// How many servers a page has.
pub(crate) const PAGE: usize = 50;

/// Longest time that a call may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Calls the cloud.
pub(crate) struct Client {
    api: Api,
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

/// The body of an error.
#[derive(Deserialize)]
struct ErrorBody {
    code: String,
}

/// Reads the cloud's errors.
struct Errors;

impl ErrorDecoder for Errors {
    fn decode(&self, refusal: &Refusal<'_>) -> Error {
        // A proxy, or a wrong endpoint, says 404 as well. Only the cloud knows this word.
        match refusal.json() {
            Some(ErrorBody { code }) if code == "server_not_found" => refusal.to_error_of(ErrorKind::NotFound),
            _ if refusal.status() == 404 => refusal.to_error_of(ErrorKind::Unexpected),
            _ => refusal.to_error(),
        }
    }
}

impl Client {
    pub(crate) fn new(config: &Config, context: &BuildContext<'_>) -> std::result::Result<Client, Problems> {
        let http = bowline_http::Client::from_environment(context.environment, TIMEOUT)?;
        let token = Bearer::new(&config.token);
        let token = token.map_err(|error| Problem::flag("cloud-config", error.to_string()))?;
        let api = Api::new(http, context.calls, "servers").base(&config.endpoint).authorize(token).errors(Errors);
        Ok(Client { api })
    }

    /// The server of this ID; `None` if the cloud says that it has none.
    pub(crate) async fn server(&self, id: &str) -> Result<Option<Server>> {
        match self.api.call("server_get", Method::GET, &["servers", id]).send().await {
            Err(error) if error.is_not_found() => Ok(None),
            answer => answer?.json().map(Some),
        }
    }

    /// A page of servers; by `name`, `after` an ID.
    pub(crate) async fn servers(&self, query: &[(&str, &str)]) -> Result<Servers> {
        self.api.call("server_list", Method::GET, &["servers"]).query(query).send().await?.json()
    }
}
