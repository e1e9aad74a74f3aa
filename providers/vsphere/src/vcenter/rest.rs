//! Sessions of the REST API, and its errors.
//!
//! The REST API has a session of its own, unless the SOAP session is a shared one, whose ID the REST API accepts as well.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_cloud::{Effect, Error, ErrorKind, Result};
use bowline_config::Secret;
use bowline_http::{Api, ApiResponse, Authorize, ErrorDecoder, ErrorResponse, IssuedToken, Rejection, TokenSource};
use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderName, HeaderValue, Method, Request, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::opened::{CLOSE_LIMIT, Opened, closed};
use super::session::{Live, Session};
use crate::credentials::Login;
use crate::soap::{code, is_fault};

const SESSION_ID: HeaderName = HeaderName::from_static("vmware-api-session-id");
const USE_HEADER: HeaderName = HeaderName::from_static("vmware-use-header-authn");

const SESSION: [&str; 5] = ["rest", "com", "vmware", "cis", "session"];

/// The session of the REST API. Clones share it.
#[derive(Clone)]
pub(super) struct RestSession {
    /// The API without a session.
    api: Api,
    login: Arc<RestLogin>,
    source: TokenSource<RestToken>,
}

/// Opens REST sessions.
struct RestLogin {
    /// The API without a session. Makes one attempt for each call.
    api: Api,
    soap: Session,
    /// ID of the open session, unless it is a shared one.
    opened: Opened<HeaderValue>,
}

/// An open session.
struct RestToken {
    id: HeaderValue,
    /// It is the shared SOAP session, which is not closed here.
    is_shared: bool,
}

/// Adds the session to requests.
struct SessionHeader(TokenSource<RestToken>, Arc<RestLogin>);

impl RestSession {
    /// Creates the session. `api` is the API without one, and `logins` the same with one attempt for each call.
    pub(super) fn new(api: Api, logins: Api, soap: &Session) -> RestSession {
        let login = Arc::new(RestLogin { api: logins, soap: soap.clone(), opened: Opened::default() });
        let flow = login.clone();
        let source = TokenSource::new(move || {
            let flow = flow.clone();
            async move { Ok(IssuedToken { token: flow.open().await?, lifetime: None }) }.boxed()
        });
        RestSession { api, login, source }
    }

    /// Returns the API with the session.
    pub(super) fn api(&self) -> Api {
        self.api.clone().authorize(SessionHeader(self.source.clone(), self.login.clone()))
    }

    /// Makes the smallest call, to see whether the service answers.
    pub(super) async fn probe(&self) -> Result<()> {
        self.api.call("rest_session", Method::GET, &SESSION).send().await.map(drop)
    }

    /// Closes the session, if one is open, and lets no further one open. A shared one is closed as SOAP session.
    pub(super) async fn close(&self) {
        let open = self.login.opened.close();
        self.source.take();
        if let Some(id) = open {
            self.login.log_out(id).await;
        }
        // Joins a login in progress, which closes its session itself. Without one, this fails at once.
        let _ = timeout(CLOSE_LIMIT, self.source.get()).await;
    }
}

impl RestLogin {
    /// Tries the current credentials in order, those of the SOAP session first. They may have changed since that was opened.
    async fn open(&self) -> Result<RestToken> {
        self.opened.check()?;
        let live = self.soap.get().await?;
        let mut rejected = None;
        for login in self.soap.logins()? {
            let outcome = match login {
                Login::SharedSession { .. } => return self.share(&login, live).await,
                _ => self.soap.attempt_rest(&login, self.log_in(&login)).await,
            };
            match outcome {
                Ok(id) => return self.accept(id).await,
                Err(error) if is_fault(&error, code::INVALID_LOGIN) => rejected = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(rejected.unwrap_or_else(unsupported))
    }

    /// Uses the SOAP session, which has to be one of this login.
    async fn share(&self, login: &Login, live: Arc<Live>) -> Result<RestToken> {
        let live = if live.login == *login { live } else { self.soap.replace(&live).await? };
        match live.login {
            Login::SharedSession { .. } => Ok(RestToken { id: session_id(live.id())?, is_shared: true }),
            _ => Err(unsupported()),
        }
    }

    async fn log_in(&self, login: &Login) -> Result<HeaderValue> {
        let call = self.api.call("rest_login", Method::POST, &SESSION).effect(Effect::Read);
        let call = call.header(USE_HEADER, HeaderValue::from_static("true"));
        let call = match login {
            Login::SharedSession { .. } => return Err(unsupported()),
            Login::Password { user, password } => {
                call.header(header::AUTHORIZATION, basic(user, password).ok_or_else(unsupported)?)
            }
            Login::Certificate { certificate, key } => {
                let path = format!("/{}", SESSION.join("/"));
                let headers = self.soap.sign_rest_login(certificate, key, &path).await?;
                headers.into_iter().fold(call, |call, (name, value)| call.header(name, value))
            }
        };
        session_id(&value_of::<String>(&call.send().await?)?)
    }

    async fn accept(&self, id: HeaderValue) -> Result<RestToken> {
        match self.opened.record(id.clone()) {
            Ok(()) => Ok(RestToken { id, is_shared: false }),
            Err(id) => {
                self.log_out(id).await;
                Err(closed())
            }
        }
    }

    /// Closes a session. One that has ended already is no error.
    async fn log_out(&self, id: HeaderValue) {
        let call = self.api.call("rest_logout", Method::DELETE, &SESSION).header(SESSION_ID, id).effect(Effect::Read);
        match timeout(CLOSE_LIMIT, call.send()).await {
            Ok(Err(error)) if error.status() != Some(401) => tracing::warn!("failed to logout: {error}"),
            Ok(_) => {}
            Err(_) => tracing::warn!("failed to logout: no response in time; the session ends when it is idle"),
        }
    }
}

fn basic(user: &str, password: &Secret) -> Option<HeaderValue> {
    let credentials = STANDARD.encode(format!("{user}:{}", password.reveal()));
    let mut header = HeaderValue::try_from(format!("Basic {credentials}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}

fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, "rest_login", "this login is not possible for the REST API")
}

fn session_id(id: &str) -> Result<HeaderValue> {
    let invalid = |_| Error::new(ErrorKind::Unexpected, "rest_login", "the ID of the session is not valid");
    let mut id = HeaderValue::try_from(id).map_err(invalid)?;
    id.set_sensitive(true);
    Ok(id)
}

#[async_trait]
impl Authorize for SessionHeader {
    async fn authorize(&self, request: &mut Request<Bytes>) -> Result<()> {
        let session = self.0.get().await?;
        request.headers_mut().insert(SESSION_ID, session.id.clone());
        Ok(())
    }

    async fn renew(&self, rejection: &Rejection<'_>) -> Result<bool> {
        let rejected = rejection.request.headers().get(SESSION_ID).cloned();
        // The shared session has ended as a whole.
        if self.0.current().is_some_and(|session| session.is_shared && Some(&session.id) == rejected.as_ref()) {
            let live = self.1.soap.get().await?;
            if Some(live.id()) == rejected.as_ref().and_then(|id| id.to_str().ok()) {
                self.1.soap.renew(&live).await?;
            }
        }
        self.0.renew(|session| Some(&session.id) == rejected.as_ref()).await?;
        Ok(true)
    }
}

// ---- responses

/// Every response wraps its result.
#[derive(Deserialize)]
struct Wrapped<T> {
    value: T,
}

/// Returns the result of a response.
pub(super) fn value_of<T: DeserializeOwned>(response: &ApiResponse) -> Result<T> {
    Ok(response.json::<Wrapped<T>>()?.value)
}

/// Type of the error for an object that does not exist.
pub(super) const NOT_FOUND: &str = "com.vmware.vapi.std.errors.not_found";

/// Decodes error responses. The type of an error is its code.
pub(super) struct RestErrors;

impl ErrorDecoder for RestErrors {
    fn decode(&self, response: &ErrorResponse<'_>) -> Error {
        #[derive(Deserialize)]
        struct Body {
            #[serde(rename = "type")]
            kind: String,
        }
        match (response.json::<Body>(), response.status()) {
            (Some(body), _) => response.to_error().with_code(body.kind),
            // A proxy or a wrong address may answer 404 to everything.
            (None, 404) => response.to_error_of(ErrorKind::Unexpected),
            (None, _) => response.to_error(),
        }
    }
}
