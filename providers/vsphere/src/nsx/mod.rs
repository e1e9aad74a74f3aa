//! Client of the NSX policy API: one method for each kind of call, and the objects that it sends and receives.
//!
//! ```text
//!  call ──auth: Basic, Remote, access token or TLS certificate; a new vapi-ctx-opid for every attempt──► NSX manager
//!    │                                                                                                    │
//!    └── record: objects as NSX stores them, with unknown fields ◄──errors: error_code decides the kind───┘
//! ```
//!
//! Lists are read to their end by cursor. An object is written as a whole with the revision that was read, so NSX rejects a write
//! that is based on an older state.

pub(crate) mod advice;
mod auth;
mod collection;
mod diagnose;
mod errors;
mod features;
mod realization;
mod record;
#[cfg(test)]
mod suite;

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Calls, Error, ErrorKind, Result};
use bowline_config::{ConfigError, ConfigErrors, Environment};
use bowline_http::{Api, ApiResponse, Client, Options, Page, Proxies, Tls, TlsFiles, all_pages, user_agent};
use http::{Method, header};
use serde::Deserialize;
use serde_json::Value;

use crate::config::nsx::{NsxConfig, NsxCredentials};

use auth::Login;
pub(crate) use auth::SecretLogin;
pub(crate) use collection::{Collection, MONITORS, POOLS, SERVICES, VIRTUAL_SERVERS};
use errors::Errors;
pub(crate) use errors::{IN_USE, INVALID_PATH, is_stale, with_advice};
pub(crate) use features::NsxFeatures;
pub(crate) use realization::Realization;
pub(crate) use record::{Record, Tags, tag_list};

/// Name of the API in the call layer.
const SERVICE: &str = "nsx";

/// Timeout of one call.
// upstream: none.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum number of calls per second, below the limit of NSX for one user, which is 100.
const RATE: f64 = 80.0;

/// Burst size of the rate limit: NSX accepts 40 open requests of one user.
const BURST: u32 = 40;

/// User agent.
const USER_AGENT: &str = concat!("vsphere-cloud-controller-manager bowline/", env!("CARGO_PKG_VERSION"));

/// Client of an NSX manager. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Nsx {
    api: Api,
}

/// HTTP clients of an NSX manager and of the server that issues its access tokens.
pub(crate) struct Clients {
    pub manager: Client,
    pub tokens: Client,
}

/// Objects of a list.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub objects: Vec<Record>,
    /// Objects that NSX is deleting.
    pub deleted: Vec<Record>,
}

/// One page of a list. NSX leaves out empty lists.
#[derive(Deserialize)]
struct ListPage<T> {
    results: Option<Vec<T>>,
    result_count: Option<u64>,
    cursor: Option<String>,
}

impl Clients {
    /// Creates the clients from the TLS settings and the proxies of the environment.
    pub(crate) fn connect(config: &NsxConfig, environment: &Environment) -> std::result::Result<Clients, ConfigErrors> {
        let proxies = Proxies::from_environment(environment).map_err(|error| ConfigError::new(error.to_string()))?;
        let client = |tls| {
            let options = Options { tls, proxies: proxies.clone(), timeout: TIMEOUT };
            Client::new(options).map_err(|error| ConfigError::new(error.to_string()).field("nsxt"))
        };
        // upstream: the server of the access tokens is a public one, to which the CA of the manager does not apply.
        Ok(Clients { manager: client(tls(config)?)?, tokens: client(Tls::default())? })
    }
}

/// Reads the files of the TLS settings.
fn tls(config: &NsxConfig) -> std::result::Result<Tls, ConfigErrors> {
    let client = match &config.credentials {
        NsxCredentials::Certificate { certificate, key } => Some((certificate.clone(), key.clone())),
        _ => None,
    };
    let files = TlsFiles { ca_file: config.ca_file.clone(), ca_text: None, insecure: config.insecure, client };
    files.load().map_err(|errors| {
        let mut all = ConfigErrors::new();
        errors.into_iter().for_each(|error| all.push(ConfigError::new(error.message).field("nsxt").hint(error.hint)));
        all
    })
}

impl Nsx {
    /// Creates a client. Makes no call. `secret` returns user and password from the Secret, if the credentials are in one.
    pub(crate) fn new(
        config: &NsxConfig,
        clients: Clients,
        secret: SecretLogin,
        calls: &Calls,
        user_agents: &[String],
    ) -> std::result::Result<Nsx, ConfigError> {
        let agent = user_agent(user_agents, USER_AGENT)?;
        let base = format!("https://{}/policy/api/v1", config.host);
        let api = Api::new(clients.manager, &calls.with_rate(RATE, BURST), SERVICE).base(&base);
        let api = api.header(header::USER_AGENT, agent);
        let probe = api.clone().errors(Errors { token: None });
        let login = Login::new(config, clients.tokens, probe, secret, calls)?;
        let has_token = matches!(config.credentials, NsxCredentials::Vmc { .. });
        let errors = Errors { token: has_token.then(|| login.renewed()) };
        Ok(Nsx { api: api.errors(errors).authorize(login) })
    }

    /// Makes the smallest call that verifies host and credentials.
    pub(crate) async fn check(&self) -> Result<()> {
        let call = self.api.call(MONITORS.list, Method::GET, &MONITORS.all()).query(&[("page_size", "1")]);
        call.send().await?.json::<ListPage<Value>>()?;
        Ok(())
    }

    /// Reads all objects of a collection.
    pub(crate) async fn list_all(&self, collection: &Collection) -> Result<Listing> {
        self.list(collection.list, &collection.all()).await
    }

    /// Reads all objects of a list, with those that NSX is deleting: their IDs cannot be used again before it has, which takes minutes.
    pub(crate) async fn list(&self, name: &'static str, path: &[&str]) -> Result<Listing> {
        let path: Arc<[String]> = path.iter().map(|segment| (*segment).to_owned()).collect();
        let read = all_pages(name, |cursor| self.page(name, path.clone(), cursor)).await?;
        if read.iter().any(|record| record.id().is_empty()) {
            return Err(Error::new(ErrorKind::Unexpected, name, "invalid response: an object has no ID"));
        }
        let (deleted, objects) = read.into_iter().partition(|record| record.flag("marked_for_delete"));
        Ok(Listing { objects, deleted })
    }

    async fn page(&self, name: &'static str, path: Arc<[String]>, cursor: Option<String>) -> Result<Page<Record>> {
        let path: Vec<_> = path.iter().map(String::as_str).collect();
        let mut call = self.api.call(name, Method::GET, &path).query(&[("include_mark_for_delete_objects", "true")]);
        if let Some(cursor) = &cursor {
            // A blank in a query is %20 for NSX, not +.
            call = call.query(&[("cursor", cursor)]);
            let query = call.encoded_query().replace('+', "%20");
            call = call.raw_query(&query);
        }
        let response = call.send().await?;
        let page: ListPage<Record> = response.json()?;
        let is_empty = page.result_count == Some(0) || cursor.is_some();
        let items = page.results.or(is_empty.then(Vec::new)).ok_or("missing field `results`");
        let items = response.decoded(items)?;
        // Some answers have a cursor on the last page, too.
        let next = page.cursor.filter(|next| !next.is_empty() && !items.is_empty() && Some(next) != cursor.as_ref());
        Ok(Page { items, next })
    }

    /// Reads one object; `None` if there is none.
    pub(crate) async fn find(&self, name: &'static str, path: &[&str]) -> Result<Option<Record>> {
        let found = self.api.call(name, Method::GET, path).find().await?;
        let Some(response) = found else { return Ok(None) };
        let record: Record = response.json()?;
        response.decoded(if record.id().is_empty() { Err("the object has no ID") } else { Ok(()) })?;
        Ok(Some(record).filter(|record| !record.flag("marked_for_delete")))
    }

    /// Creates an object, or replaces that of the revision in the record.
    pub(crate) async fn put(&self, name: &'static str, path: &[&str], record: &Record) -> Result<()> {
        finish(&self.api.call(name, Method::PUT, path).json(record).send().await?)
    }

    /// Creates or changes an object, whatever its revision is.
    pub(crate) async fn patch(&self, name: &'static str, path: &[&str], body: &Value) -> Result<()> {
        let call = self.api.call(name, Method::PATCH, path).effect(bowline_cloud::Effect::IdempotentWrite);
        finish(&call.json(body).send().await?)
    }

    /// Deletes an object. Succeeds if there is none.
    pub(crate) async fn delete(&self, name: &'static str, path: &[&str]) -> Result<()> {
        // upstream: an object that is gone already is an error.
        match self.api.call(name, Method::DELETE, path).find().await? {
            Some(response) => finish(&response),
            None => Ok(()),
        }
    }

    /// Reads how far NSX has realised the object at a policy path, which may be in a project.
    pub(crate) async fn realization(&self, path: &str) -> Result<Realization> {
        let (root, _) = path.split_once("/infra/").unwrap_or_default();
        let root = root.split('/').filter(|segment| !segment.is_empty());
        let segments: Vec<_> = root.chain(["infra", "realized-state", "realized-entities"]).collect();
        let call = self.api.call("get_realized_state", Method::GET, &segments).query(&[("intent_path", path)]);
        let response = call.send().await?;
        let page: ListPage<realization::Entity> = response.json()?;
        Ok(Realization::of(path, &page.results.unwrap_or_default()))
    }
}

/// Checks the response to a write, which has the object or no body at all.
fn finish(response: &ApiResponse) -> Result<()> {
    if response.body().is_empty() { Ok(()) } else { response.without_result() }
}
