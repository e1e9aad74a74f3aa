//! One vCenter: its session, its calls, and the machines in its datacenters.
//!
//! ```text
//!  Vcenter ──► call(method) ──► session: cookie, login if there is none ──► POST /sdk
//!     ├─ datacenters: containers in which machines are searched
//!     ├─ inventory:   list, read and search machines
//!     └─ tagging:     tags of objects
//! ```
//!
//! Every call only reads, or changes nothing but the session, so a standby may make it as well.

mod cache;
mod datacenters;
mod health;
mod inventory;
mod login_history;
mod machine;
mod opened;
mod rest;
mod saml;
mod session;
mod shared_session;
#[cfg(test)]
mod suite;
mod tag_names;
mod tagging;
mod tree;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bowline_cloud::{Calls, Effect, Error, ErrorKind, Result, Retry};
use bowline_http::{Api, ApiResponse, Client};
use http::{HeaderName, HeaderValue, Method, header};

use crate::config::VcenterConfig;
use crate::credentials::Credentials;
use crate::metrics::Metrics;
use crate::soap::properties::ObjectContent;
use crate::soap::{self, Element, Faults, ManagedObject, code, is_fault};
use health::Health;
pub(crate) use inventory::{Criterion, Listing, Reading, Readings};
pub(crate) use login_history::LoginHistory;
pub(crate) use machine::{Brief, Machine, Nic, Power};
use session::{Apis, SessionCookie};
pub(crate) use session::{ServiceContent, Session};
pub(crate) use tagging::{Tag, Tagged, Tagging};
pub(crate) use tree::Tree;

/// Timeout of a call, from connecting to the last byte of the response.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit of a check. A start is repeated after 30 seconds.
pub(crate) const CHECK_LIMIT: Duration = Duration::from_secs(20);

/// Time limit of one page of a response.
const PAGE_LIMIT: Duration = Duration::from_secs(20);

/// Time limit of a listing. Each page has its own; this one ends a listing that never does.
pub(crate) const LISTING_LIMIT: Duration = Duration::from_secs(600);

const READ_PROPERTIES: &str = "read properties";

/// Maximum number of objects on one page of a response: a thousand machines with their hosts, folders and resource pools.
const PAGE: usize = 2000;

/// One vCenter. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Vcenter {
    pub(crate) config: Arc<VcenterConfig>,
    pub(crate) session: Session,
    pub(crate) tagging: Tagging,
    /// Held by a lookup that lists all machines.
    pub(crate) listing_turn: Arc<tokio::sync::Mutex<()>>,
    health: Arc<Health>,
    /// Health of the tagging service, which is another process of the vCenter.
    tagging_health: Arc<Health>,
    soap: Api,
    /// UUID of the server. It is kept while there is no session.
    server: Arc<OnceLock<String>>,
    pub(crate) metrics: Metrics,
}

/// What all vCenters of a provider share.
pub(crate) struct Common<'a> {
    pub(crate) calls: &'a Calls,
    pub(crate) credentials: &'a Arc<Credentials>,
    pub(crate) logins: &'a LoginHistory,
    /// HTTP client of session managers.
    pub(crate) session_managers: &'a Client,
    pub(crate) agent: &'a HeaderValue,
    pub(crate) metrics: &'a Metrics,
}

impl Vcenter {
    /// Creates the client of a vCenter. Makes no call.
    pub(crate) fn new(config: VcenterConfig, http: &Client, common: &Common<'_>) -> Vcenter {
        let (config, metrics) = (Arc::new(config), common.metrics);
        let api = |attempts: u32| {
            let calls = common.calls.with_max_attempts(attempts);
            let api = Api::new(http.clone(), &calls, service_name(&config.name)).base(&base_url(&config));
            api.header(header::USER_AGENT, common.agent.clone())
        };
        let soap = |api: &Api| api.clone().errors(Faults).header(SOAP_ACTION, HeaderValue::from_static(soap::ACTION));
        let (api, logins) = (api(config.round_trips), api(1));
        let apis = Apis { reads: soap(&api), logins: soap(&logins) };
        let (credentials, session_managers) = (common.credentials.clone(), common.session_managers.clone());
        let history = common.logins.clone();
        let session = Session::new(config.clone(), apis.clone(), session_managers, credentials, history);
        let tagging = Tagging::new(api, logins, &session, metrics);
        let soap = apis.reads.authorize(SessionCookie(session.clone()));
        Vcenter {
            config,
            session,
            tagging,
            listing_turn: Arc::default(),
            health: Arc::default(),
            tagging_health: Arc::default(),
            soap,
            server: Arc::default(),
            metrics: metrics.clone(),
        }
    }

    /// Calls a method of a managed object.
    pub(crate) async fn call(
        &self,
        name: &'static str,
        this: &ManagedObject,
        arguments: impl IntoIterator<Item = Element>,
    ) -> Result<Element> {
        let body = soap::method(name, this, arguments);
        self.metrics.request(name, send(&self.soap, name, None, body)).await
    }

    /// Reads the properties that a filter selects, page by page, and converts each object. If the session ends meanwhile, begins
    /// again once: the pages belong to the session.
    pub(crate) async fn retrieve<T>(
        &self,
        filter: &Element,
        convert: impl Fn(&ObjectContent) -> T + Sync,
    ) -> Result<Vec<T>> {
        match self.retrieve_pages(filter, &convert).await {
            Err(error) if is_lost_session(&error) => self.retrieve_pages(filter, &convert).await,
            outcome => outcome,
        }
    }

    async fn retrieve_pages<T>(
        &self,
        filter: &Element,
        convert: &(impl Fn(&ObjectContent) -> T + Sync),
    ) -> Result<Vec<T>> {
        let live = self.limited(PAGE_LIMIT, self.session.get()).await?;
        self.server.get_or_init(|| live.content.instance_uuid.clone());
        let collector = &live.content.property_collector;
        let options = Element::new("options").with(Element::leaf("maxObjects", PAGE.to_string()));
        let first = soap::method("RetrievePropertiesEx", collector, [filter.clone(), options]);
        let mut page = self.page("RetrievePropertiesEx", first, convert).await?;
        let mut converted = Vec::new();
        loop {
            // vCenter reports an ended session in this place as well, with a successful response.
            if page.has_lost_session {
                self.limited(PAGE_LIMIT, self.session.renew(&live)).await?;
                let error = self.error(ErrorKind::Unauthenticated, READ_PROPERTIES, "the session has ended");
                return Err(error.with_code(code::NOT_AUTHENTICATED));
            }
            let is_empty = page.objects.is_empty();
            converted.append(&mut page.objects);
            let Some(token) = page.token else { return Ok(converted) };
            if is_empty {
                return Err(self.bad_page("a page is empty, but not the last one"));
            }
            let next = soap::method("ContinueRetrievePropertiesEx", collector, [Element::leaf("token", token)]);
            page = self.page("ContinueRetrievePropertiesEx", next, convert).await?;
            if !page.has_result {
                return Err(self.bad_page("a page is missing"));
            }
        }
    }

    /// Reads one page. Each has a time limit of its own, because nothing limits their number.
    async fn page<T>(
        &self,
        name: &'static str,
        body: Element,
        convert: &(impl Fn(&ObjectContent) -> T + Sync),
    ) -> Result<Page<T>> {
        let (mut objects, mut has_lost_session, mut is_broken) = (Vec::new(), false, false);
        let add = |object: Element| match ObjectContent::of(object) {
            Some(content) => {
                has_lost_session |= content.is_missing_with(code::NOT_AUTHENTICATED);
                objects.push(convert(&content));
            }
            None => is_broken = true,
        };
        let read = async { soap::page(name, &post(&self.soap, name, None, body).await?, add) };
        let response = self.limited(PAGE_LIMIT, Box::pin(self.metrics.request(name, read))).await?;
        if is_broken {
            return Err(self.bad_page("an object on a page has no reference"));
        }
        let returned = response.child("returnval");
        let token = returned.and_then(|returned| returned.child_text("token")).map(str::to_owned);
        Ok(Page { objects, token, has_lost_session, has_result: returned.is_some() })
    }

    fn bad_page(&self, message: &str) -> Error {
        self.error(ErrorKind::Unexpected, READ_PROPERTIES, message)
    }

    /// Makes reads within a time limit, unless the vCenter hung a short while ago.
    pub(crate) async fn guarded<T>(&self, limit: Duration, reads: impl Future<Output = Result<T>>) -> Result<T> {
        // On the heap, because the futures of a lookup are nested deeply.
        let reads = self.limited(limit, Box::pin(reads));
        self.health.guard(self.session.probe(), reads).await.map_err(|error| self.named(error))
    }

    /// Does the same with reads of tags.
    pub(crate) async fn guarded_tags<T>(&self, limit: Duration, reads: impl Future<Output = Result<T>>) -> Result<T> {
        let reads = self.limited(limit, reads);
        self.tagging_health.guard(self.tagging.probe(), reads).await.map_err(|error| self.named(error))
    }

    async fn limited<T>(&self, limit: Duration, reads: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::time::timeout(limit, reads).await.unwrap_or_else(|_| {
            let message = format!("vCenter {} did not answer within {} s", self.config.name, limit.as_secs());
            Err(Error::new(ErrorKind::Unavailable, "read from vCenter", message))
        })
    }

    /// Returns the server that this is, which two entries of the configuration may share.
    pub(crate) fn identity(&self) -> String {
        let current = || self.session.current().map(|live| live.content.instance_uuid.clone());
        let known = self.server.get().cloned().or_else(current);
        known.filter(|uuid| !uuid.is_empty()).unwrap_or_else(|| base_url(&self.config))
    }

    /// Verifies login and permissions: reads the names of the datacenters, and finds those of the configuration.
    pub(crate) async fn check(&self) -> Result<()> {
        let reads = async {
            match self.containers().await?.errors.into_iter().next() {
                Some(error) => Err(error),
                None if self.datacenters().await?.is_empty() => Err(self.sees_nothing()),
                None => Ok(()),
            }
        };
        self.guarded(CHECK_LIMIT, reads).await
    }

    /// Returns the error for an account without any permission.
    fn sees_nothing(&self) -> Error {
        let message = "the account sees no datacenter; fix: give it the role Read-only, with propagation to children";
        self.error(ErrorKind::PermissionDenied, "read the datacenters", message).retry(Retry::Backoff)
    }

    /// Logs out.
    pub(crate) async fn close(&self) {
        tokio::join!(self.tagging.close(), self.session.close());
    }

    /// Adds the name of this vCenter to an error.
    fn named(&self, error: Error) -> Error {
        match error.context_value("vcenter") {
            Some(_) => error,
            None => error.context("vcenter", self.config.name.as_str()),
        }
    }

    /// Returns an error that names this vCenter.
    pub(crate) fn error(&self, kind: ErrorKind, operation: &str, message: impl Into<String>) -> Error {
        Error::new(kind, operation, message).context("vcenter", self.config.name.as_str())
    }
}

/// Objects of one response, and the token of the next.
struct Page<T> {
    objects: Vec<T>,
    token: Option<String>,
    has_lost_session: bool,
    /// Without a result, nothing is known about the objects; only the first page may lack it, if there are none.
    has_result: bool,
}

/// Name of the header with the version of the API.
const SOAP_ACTION: HeaderName = HeaderName::from_static("soapaction");

/// Sends a message and returns the element with the result.
async fn send(api: &Api, name: &'static str, header: Option<Element>, body: Element) -> Result<Element> {
    soap::response(name, &post(api, name, header, body).await?)
}

/// Sends a message and returns the response.
async fn post(api: &Api, name: &'static str, header: Option<Element>, body: Element) -> Result<ApiResponse> {
    let call = api.call(name, Method::POST, &["sdk"]).effect(Effect::Read);
    call.body(soap::CONTENT_TYPE, soap::envelope(header, body)).send().await
}

/// Returns whether a session ended while pages were read: their token belongs to the session.
fn is_lost_session(error: &Error) -> bool {
    let is_token_lost = error.operation() == "ContinueRetrievePropertiesEx" && is_fault(error, code::INVALID_ARGUMENT);
    is_token_lost || is_fault(error, code::NOT_AUTHENTICATED)
}

/// Returns the URL of a vCenter without a path.
fn base_url(config: &VcenterConfig) -> String {
    let VcenterConfig { server, port, .. } = config;
    match server.contains(':') {
        true => format!("https://[{server}]:{port}"),
        false => format!("https://{server}:{port}"),
    }
}

/// Returns the name of a vCenter as a service, which is paused and measured on its own. Each name is stored once for the life of the
/// process; their number is limited by the configuration.
fn service_name(name: &str) -> &'static str {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let new: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(new);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_has_brackets_in_the_url() {
        let url = |server: &str| {
            base_url(&VcenterConfig { server: server.to_owned(), port: 443, ..VcenterConfig::default() })
        };
        assert_eq!(url("vc.example.com"), "https://vc.example.com:443");
        assert_eq!(url("fd00::1"), "https://[fd00::1]:443");
    }

    #[test]
    fn a_service_name_is_stored_once() {
        assert!(std::ptr::eq(service_name("vc-1"), service_name("vc-1")));
        assert_ne!(service_name("vc-1"), service_name("vc-2"));
    }
}
