//! Login sessions of a vCenter.
//!
//! ```text
//!  get ──► current session? ──no──► log in: one login at a time, shared by all callers
//!  call answered NotAuthenticated ──► renew: a new login, and the call is repeated once
//!  login failed ──► LoginHistory: a pause, in which the same login is not sent
//! ```
//!
//! vCenter locks an account after a few rejected logins, and limits the number of sessions. So there is never more than one session per
//! vCenter, each login is sent once, and the session is closed at the end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{Effect, Error, ErrorKind, Result};
use bowline_config::Secret;
use bowline_http::{Api, Authorize, Client, IssuedToken, Rejection, TokenSource};
use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderName, HeaderValue, Method, Request, header};
use tokio::time::timeout;

use super::login_history::LoginHistory;
use super::opened::{CLOSE_LIMIT, Opened, closed};
use super::{base_url, saml, send, shared_session};
use crate::config::VcenterConfig;
use crate::credentials::{Credentials, Login};
use crate::soap::{self, Element, ManagedObject, code, is_fault};

/// Name of the cookie with the session.
const COOKIE: &str = "vmware_soap_session=";

/// Period in which a session is used at least once. vCenter ends a session that was idle for half an hour.
const KEEP_ALIVE: Duration = Duration::from_secs(600);

pub(super) const LOG_IN: &str = "log in to vCenter";

/// Session of a vCenter. Clones share it.
#[derive(Clone)]
pub(crate) struct Session(Arc<Shared>);

struct Shared {
    source: TokenSource<Live>,
    login: Arc<LoginFlow>,
}

/// An open session.
#[derive(Debug)]
pub(crate) struct Live {
    /// Value of the header `Cookie`.
    cookie: HeaderValue,
    /// Login that opened it.
    pub(crate) login: Login,
    pub(crate) content: ServiceContent,
    /// View of the inventory, which ends with the session.
    pub(crate) view: tokio::sync::Mutex<Option<ManagedObject>>,
}

/// Entry points of the API.
#[derive(Debug, Clone)]
pub(crate) struct ServiceContent {
    pub root_folder: ManagedObject,
    pub property_collector: ManagedObject,
    pub view_manager: ManagedObject,
    pub search_index: ManagedObject,
    pub session_manager: ManagedObject,
    /// Product and version, for operators.
    pub product: String,
    /// Version of the API, such as `8.0.2.0`.
    pub api_version: String,
    /// UUID of the vCenter: the same if two entries of the configuration mean one server.
    pub instance_uuid: String,
}

/// Opens sessions.
struct LoginFlow {
    config: Arc<VcenterConfig>,
    apis: Apis,
    /// HTTP client of session managers.
    shared: Client,
    credentials: Arc<Credentials>,
    history: LoginHistory,
    /// Entry points from the start, which the first login uses.
    content: Mutex<Option<ServiceContent>>,
    /// Login that vCenter accepted last.
    accepted: Mutex<Option<Login>>,
    /// Cookie and session manager of the open session.
    opened: Opened<(HeaderValue, ManagedObject)>,
}

/// The SOAP API without a session.
#[derive(Clone)]
pub(super) struct Apis {
    pub(super) reads: Api,
    /// Makes one attempt for each call: every one may open a session, or count as a rejected login.
    pub(super) logins: Api,
}

/// Adds the session to requests.
pub(super) struct SessionCookie(pub(super) Session);

// ---- Session

impl Session {
    pub(super) fn new(
        config: Arc<VcenterConfig>,
        apis: Apis,
        shared: Client,
        credentials: Arc<Credentials>,
        history: LoginHistory,
    ) -> Session {
        let (accepted, opened) = Default::default();
        let content = Mutex::default();
        let login = Arc::new(LoginFlow { config, apis, shared, credentials, history, content, accepted, opened });
        Session(Arc::new_cyclic(|session: &Weak<Shared>| {
            let (flow, session) = (login.clone(), session.clone());
            let issue = move || {
                let (flow, session) = (flow.clone(), session.clone());
                async move {
                    let token = flow.open().await?;
                    tokio::spawn(keep_alive(session, token.cookie.clone()));
                    Ok(IssuedToken { token, lifetime: None })
                }
                .boxed()
            };
            Shared { source: TokenSource::new(issue), login }
        }))
    }

    /// Returns the open session; logs in if there is none.
    pub(crate) async fn get(&self) -> Result<Arc<Live>> {
        self.0.source.get().await
    }

    /// Returns the open session, if there is one. Makes no call.
    pub(crate) fn current(&self) -> Option<Arc<Live>> {
        self.0.source.current()
    }

    /// Replaces a session that has ended, unless that was done already.
    pub(crate) async fn renew(&self, ended: &Live) -> Result<Arc<Live>> {
        self.0.source.renew(|live| live.cookie == ended.cookie).await
    }

    /// Replaces an open session with one of the current credentials, and closes it.
    pub(super) async fn replace(&self, old: &Live) -> Result<Arc<Live>> {
        let live = self.renew(old).await?;
        self.0.login.log_out(&old.cookie, &old.content.session_manager).await;
        Ok(live)
    }

    /// Closes the session, if one is open, and lets no further one open.
    pub(crate) async fn close(&self) {
        let flow = &self.0.login;
        let open = flow.opened.close();
        self.0.source.take();
        if let Some((cookie, manager)) = open {
            flow.log_out(&cookie, &manager).await;
        }
        // Joins a login in progress, which closes its session itself. Without one, this fails at once.
        let _ = timeout(CLOSE_LIMIT, self.0.source.get()).await;
    }

    /// Returns the current credentials, the last accepted ones first.
    pub(super) fn logins(&self) -> Result<Vec<Login>> {
        self.0.login.logins()
    }

    /// Logs in to the REST API with `attempt`, unless this login has to pause there.
    pub(super) async fn attempt_rest<T>(&self, login: &Login, attempt: impl Future<Output = Result<T>>) -> Result<T> {
        let attempt = async {
            attempt.await.map_err(|error| match error.status() {
                Some(401) => self.0.login.explain(login, &error),
                _ => error,
            })
        };
        self.0.login.history.attempt(&self.0.login.place("REST"), login, attempt).await
    }

    /// Returns the headers of a REST login with a certificate to this path.
    pub(super) async fn sign_rest_login(
        &self,
        certificate: &str,
        key: &Secret,
        path: &str,
    ) -> Result<[(HeaderName, HeaderValue); 2]> {
        let token = self.0.login.token(certificate, key).await?;
        token.rest_headers(&base_url(&self.0.login.config), &Method::POST, path)
    }

    /// Makes the smallest call, without a session, to see whether vCenter answers.
    pub(super) async fn probe(&self) -> Result<()> {
        self.content().await.map(drop)
    }

    /// Reads product and version, without a session.
    pub(crate) async fn content(&self) -> Result<ServiceContent> {
        let content = service_content(&self.0.login.apis.reads).await?;
        *self.0.login.content() = Some(content.clone());
        Ok(content)
    }

    /// Fails if there are no credentials, or if vCenter rejected them a short while ago. Makes no call.
    pub(crate) fn check_logins(&self) -> Result<()> {
        self.0.login.check_pauses(&self.logins()?)
    }
}

/// Uses a session from time to time, so that vCenter does not end it as idle, until it is replaced or closed.
async fn keep_alive(session: Weak<Shared>, cookie: HeaderValue) {
    loop {
        tokio::time::sleep(KEEP_ALIVE).await;
        let Some(shared) = session.upgrade() else { return };
        if shared.source.current().is_none_or(|live| live.cookie != cookie) {
            return;
        }
        let soap = shared.login.apis.reads.clone().header(header::COOKIE, cookie.clone());
        drop(shared);
        // After a failure, the next lookup finds out whether the session has ended.
        let _ = send(&soap, "CurrentTime", None, soap::method("CurrentTime", &service_instance(), [])).await;
    }
}

#[async_trait]
impl Authorize for SessionCookie {
    async fn authorize(&self, request: &mut Request<Bytes>) -> Result<()> {
        let live = self.0.get().await?;
        request.headers_mut().insert(header::COOKIE, live.cookie.clone());
        Ok(())
    }

    async fn renew(&self, rejection: &Rejection<'_>) -> Result<bool> {
        let cookie = rejection.request.headers().get(header::COOKIE);
        self.0.0.source.renew(|live| Some(&live.cookie) == cookie).await?;
        Ok(true)
    }
}

impl Live {
    /// Returns the ID of the session.
    pub(crate) fn id(&self) -> &str {
        let value = self.cookie.to_str().unwrap_or_default();
        value.trim_start_matches(COOKIE).trim_matches('"')
    }
}

// ---- login

impl LoginFlow {
    /// Tries the known credentials in order.
    async fn open(&self) -> Result<Live> {
        self.opened.check()?;
        let logins = self.logins()?;
        self.check_pauses(&logins)?;
        let known = self.content().take();
        let content = match known {
            Some(content) => content,
            None => service_content(&self.apis.reads).await?,
        };
        let (place, mut rejected) = (self.place("SOAP"), None);
        for login in &logins {
            match self.history.attempt(&place, login, self.log_in(&content, login)).await {
                Ok(cookie) => return self.accept(login, content, cookie).await,
                Err(error) if is_fault(&error, code::INVALID_LOGIN) => rejected = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(rejected.unwrap_or_else(no_login))
    }

    fn content(&self) -> MutexGuard<'_, Option<ServiceContent>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current credentials, the last accepted ones first.
    fn logins(&self) -> Result<Vec<Login>> {
        let mut logins = self.credentials.candidates(&self.config)?;
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        logins.sort_by_key(|login| accepted.as_ref() != Some(login));
        Ok(logins)
    }

    /// Fails while all credentials have to pause.
    fn check_pauses(&self, logins: &[Login]) -> Result<()> {
        let (place, mut outcome) = (self.place("SOAP"), Err(no_login()));
        for login in logins {
            outcome = self.history.check(&place, login);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Returns an API of this server as a place of logins. Several entries of the configuration may have the same server.
    fn place(&self, api: &str) -> String {
        format!("{api} {}", base_url(&self.config))
    }

    async fn accept(&self, login: &Login, content: ServiceContent, cookie: HeaderValue) -> Result<Live> {
        if let Err((cookie, manager)) = self.opened.record((cookie.clone(), content.session_manager.clone())) {
            self.log_out(&cookie, &manager).await;
            return Err(closed());
        }
        *self.accepted.lock().unwrap_or_else(PoisonError::into_inner) = Some(login.clone());
        tracing::info!(vcenter = self.config.name, product = content.product, "logged in");
        Ok(Live { cookie, login: login.clone(), content, view: tokio::sync::Mutex::default() })
    }

    /// Closes a session.
    async fn log_out(&self, cookie: &HeaderValue, manager: &ManagedObject) {
        let soap = self.apis.logins.clone().header(header::COOKIE, cookie.clone());
        let logout = send(&soap, "Logout", None, soap::method("Logout", manager, []));
        let vcenter = &self.config.name;
        match timeout(CLOSE_LIMIT, logout).await {
            Ok(Ok(_)) => tracing::info!(vcenter, "logged out"),
            Ok(Err(error)) if is_fault(&error, code::NOT_AUTHENTICATED) => {}
            Ok(Err(error)) => tracing::warn!(vcenter, %error, "cannot log out; the session ends when it is idle"),
            Err(_) => tracing::warn!(vcenter, "cannot log out in time; the session ends when it is idle"),
        }
    }

    /// Returns the error of a rejected login.
    fn explain(&self, login: &Login, fault: &Error) -> Error {
        let message = format!(
            "vCenter {} rejected the login of {}: {}; fix: correct the credentials, or unlock the account; they are retried after a \
             back-off",
            self.config.name,
            login.subject(),
            fault.message()
        );
        tracing::warn!("{message}");
        Error::new(ErrorKind::Unauthenticated, LOG_IN, message).with_code(code::INVALID_LOGIN)
    }

    /// Logs in and returns the cookie of the session.
    async fn log_in(&self, content: &ServiceContent, login: &Login) -> Result<HeaderValue> {
        self.send_login(content, login).await.map_err(|error| match is_fault(&error, code::INVALID_LOGIN) {
            true => self.explain(login, &error),
            false => error,
        })
    }

    async fn send_login(&self, content: &ServiceContent, login: &Login) -> Result<HeaderValue> {
        let manager = &content.session_manager;
        match login {
            Login::Password { user, password } => {
                let arguments = [("userName", user.as_str()), ("password", password.reveal()), ("locale", "en_US")];
                let arguments = arguments.map(|(name, value)| Element::leaf(name, value));
                self.request("Login", soap::envelope(None, soap::method("Login", manager, arguments))).await
            }
            Login::SharedSession { url, token } => {
                let ticket = shared_session::clone_ticket(&self.shared, url, token.as_ref()).await?;
                let ticket = Element::leaf("cloneTicket", ticket.reveal());
                self.request("CloneSession", soap::envelope(None, soap::method("CloneSession", manager, [ticket])))
                    .await
            }
            Login::Certificate { certificate, key } => {
                let token = self.token(certificate, key).await?;
                self.request("LoginByToken", token.login(manager)?).await
            }
        }
    }

    /// Requests a token for a login with a certificate.
    async fn token(&self, certificate: &str, key: &Secret) -> Result<saml::Token> {
        saml::issue(&self.apis.logins, &base_url(&self.config), certificate, key).await
    }

    async fn request(&self, name: &'static str, message: Bytes) -> Result<HeaderValue> {
        let call = self.apis.logins.call(name, Method::POST, &["sdk"]).effect(Effect::Read);
        let response = call.body(soap::CONTENT_TYPE, message).send().await?;
        soap::response(name, &response)?;
        response.decoded(cookie_of(response.headers()).ok_or("no session cookie"))
    }
}

fn no_login() -> Error {
    Error::new(ErrorKind::Unauthenticated, LOG_IN, "Credentials not found")
}

/// Returns the session cookie without its attributes.
fn cookie_of(headers: &http::HeaderMap) -> Option<HeaderValue> {
    let cookies = headers.get_all(header::SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookie = cookies.filter_map(|text| text.split(';').next()).find(|text| text.starts_with(COOKIE))?;
    let mut cookie = HeaderValue::try_from(cookie).ok()?;
    cookie.set_sensitive(true);
    Some(cookie)
}

pub(super) fn service_instance() -> ManagedObject {
    ManagedObject::new("ServiceInstance", "ServiceInstance")
}

/// Reads the entry points, which needs no session.
async fn service_content(soap: &Api) -> Result<ServiceContent> {
    const NAME: &str = "RetrieveServiceContent";
    let response = send(soap, NAME, None, soap::method(NAME, &service_instance(), [])).await?;
    let content = response.child("returnval");
    let missing = |name: &str| Error::new(ErrorKind::Unexpected, NAME, format!("the response has no {name}"));
    let object = |name: &'static str| {
        content.and_then(|content| ManagedObject::of(content.child(name)?)).ok_or_else(|| missing(name))
    };
    let about = content.and_then(|content| content.child("about"));
    let about = |name| about.and_then(|about| about.child_text(name)).unwrap_or_default();
    Ok(ServiceContent {
        root_folder: object("rootFolder")?,
        property_collector: object("propertyCollector")?,
        view_manager: object("viewManager")?,
        search_index: object("searchIndex")?,
        session_manager: object("sessionManager")?,
        product: format!("{} (API {})", about("fullName"), about("apiVersion")),
        api_version: about("apiVersion").to_owned(),
        instance_uuid: about("instanceUuid").to_owned(),
    })
}
