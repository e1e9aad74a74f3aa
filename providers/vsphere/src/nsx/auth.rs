//! Credentials of calls, and the ID of each call. A rejected password rests, so that NSX does not lock the account.
//!
//! ```text
//!  rejected ──► pause: calls fail ──► one probe, while other calls wait ──► accepted: all calls pass
//!                 ▲                          │
//!                 └──────── rejected ◄───────┘
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bowline_cloud::{Calls, Effect, Error, ErrorKind, Result, Retry, SecretRef};
use bowline_config::{ConfigError, Secret};
use bowline_http::{Api, Authorize, Client, IssuedToken, Rejection, TokenSource};
use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderName, HeaderValue, Method, Request, header};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::MONITORS;
use super::errors::TokenErrors;
use crate::config::nsx::{NsxConfig, NsxCredentials, PasswordScheme};

/// Returns user and password from the Secret; `None` until it was read.
pub(crate) type SecretLogin = Arc<dyn Fn() -> Option<(String, Secret)> + Send + Sync>;

const LOGIN: &str = "log in to NSX";

/// Header with the access token of VMware Cloud.
const TOKEN: HeaderName = HeaderName::from_static("csp-auth-token");

/// Header with the ID of a call, which NSX writes to its logs.
const OPERATION_ID: HeaderName = HeaderName::from_static("vapi-ctx-opid");

/// Number of rejections in this time that do not lock the account. With the defaults of NSX, five do.
const MAX_REJECTIONS: usize = 4;
const LOCK_WINDOW: Duration = Duration::from_secs(900);

/// Pause after NSX rejected a password, and after it did so again.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const NEXT_PAUSE: Duration = Duration::from_secs(300);

/// Code of the error for a wrong password or a locked account.
const WRONG_PASSWORD: &str = "403";

/// Pause after a failed exchange of the refresh token that was not rejected.
const EXCHANGE_PAUSE: Duration = Duration::from_secs(10);

/// Time for which a renewed access token is not renewed again because of 403: the permission is missing then.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(300);

/// Authenticates calls.
pub(super) struct Login {
    credentials: Credentials,
    rejected: Mutex<Option<Rejected>>,
    /// Client for the probe after a pause, which only one call makes.
    probe: tokio::sync::Mutex<Api>,
    renewed: Renewed,
}

/// Time of the last renewal of the access token because of 403.
#[derive(Clone, Default)]
pub(super) struct Renewed(Arc<Mutex<Option<Instant>>>);

impl Renewed {
    /// Whether the access token is too new to have expired.
    pub(super) fn is_recent(&self) -> bool {
        lock(&self.0).is_some_and(|at| at.elapsed() < RENEWAL_INTERVAL)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A password that NSX rejected. It is not sent before the end of a pause.
struct Rejected {
    header: HeaderValue,
    error: Error,
    until: Instant,
    /// Times of the last rejections, fewer than [`MAX_REJECTIONS`].
    times: VecDeque<Instant>,
}

enum Credentials {
    /// No header: anonymous, or by TLS client certificate.
    None,
    /// User and password of the configuration.
    Password(HeaderValue),
    /// User and password of a Secret, which may change at any time.
    Secret(SecretRef, SecretLogin, PasswordScheme),
    /// Access tokens of VMware Cloud.
    Token(TokenSource<HeaderValue>),
}

/// Response with an access token.
#[derive(Deserialize)]
struct Issued {
    access_token: Secret,
    /// Lifetime in seconds: a number, or a number as text.
    #[serde(default)]
    expires_in: Value,
}

impl Login {
    /// `probe` is a client of the manager without credentials.
    pub(super) fn new(
        config: &NsxConfig,
        tokens: Client,
        probe: Api,
        secret: SecretLogin,
        calls: &Calls,
    ) -> std::result::Result<Login, ConfigError> {
        let credentials = match &config.credentials {
            NsxCredentials::Anonymous | NsxCredentials::Certificate { .. } => Credentials::None,
            NsxCredentials::Password { user, password, scheme } => {
                let header = password_header(user, password, *scheme);
                Credentials::Password(
                    header.map_err(|error| ConfigError::new(error.to_string()).field("nsxt.password"))?,
                )
            }
            NsxCredentials::Secret { secret: name, scheme } => Credentials::Secret(name.clone(), secret, *scheme),
            NsxCredentials::Vmc { token, auth_host } => {
                let (host, path) = auth_host.split_once('/').unwrap_or((auth_host, ""));
                let api = Api::new(tokens, calls, "vmc").base(&format!("https://{host}")).errors(TokenErrors);
                Credentials::Token(token_source(api, path.to_owned(), token.clone()))
            }
        };
        let (rejected, probe) = (Mutex::default(), tokio::sync::Mutex::new(probe));
        Ok(Login { credentials, rejected, probe, renewed: Renewed::default() })
    }

    pub(super) fn renewed(&self) -> Renewed {
        self.renewed.clone()
    }

    /// Fails during the pause of a rejected password. Returns whether it may be sent without a probe.
    fn is_usable(&self, header: &HeaderValue) -> Result<bool> {
        let now = Instant::now();
        match &*lock(&self.rejected) {
            Some(rejected) if rejected.header == header && now < rejected.until => {
                Err(rejected.error.clone().retry(Retry::After(rejected.until - now)))
            }
            Some(rejected) if rejected.header == header => Ok(false),
            _ => Ok(true),
        }
    }

    /// Waits until a password that was rejected is known to be right. Only one call sends it.
    async fn check(&self, header: &HeaderValue) -> Result<()> {
        if self.is_usable(header)? {
            return Ok(());
        }
        let probe = self.probe.lock().await;
        // Another call may have sent it meanwhile.
        if self.is_usable(header)? {
            return Ok(());
        }
        let call = probe.call(MONITORS.list, Method::GET, &MONITORS.all()).query(&[("page_size", "1")]);
        match call.header(header::AUTHORIZATION, header.clone()).send().await {
            Err(error) if is_wrong_password(&error) => {
                self.reject(header, &error);
                self.is_usable(header).map(drop)
            }
            // Any other answer of NSX itself proves that it has accepted the password.
            Err(error) if error.code().is_none() || error.kind().is_transient() => Err(error),
            _ => {
                *lock(&self.rejected) = None;
                Ok(())
            }
        }
    }

    /// Begins the pause of a password that NSX rejected. Other calls may have sent it at the same time.
    fn reject(&self, header: &HeaderValue, error: &Error) {
        let (mut rejected, now) = (lock(&self.rejected), Instant::now());
        let earlier = rejected.take().filter(|earlier| earlier.header == header);
        let until = match earlier.as_ref().map(|earlier| earlier.until) {
            Some(until) if now < until => until,
            Some(until) if now < until + NEXT_PAUSE => now + NEXT_PAUSE,
            _ => now + FIRST_PAUSE,
        };
        let mut times = earlier.map(|earlier| earlier.times).unwrap_or_default();
        times.push_back(now);
        // One more is sent only when the first of these does not count any more.
        let first = if times.len() < MAX_REJECTIONS { None } else { times.pop_front() };
        let until = first.map_or(until, |first| until.max(first + LOCK_WINDOW));
        let message = format!(
            "{}; correct user and password (the account may be locked); the credentials are retried after {} s",
            error.message(),
            (until - now).as_secs(),
        );
        let error = Error::new(ErrorKind::Unauthenticated, LOGIN, message);
        *rejected = Some(Rejected { header: header.clone(), error, until, times });
    }
}

impl Credentials {
    /// Returns the header with the credentials.
    async fn header(&self) -> Result<Option<(HeaderName, HeaderValue)>> {
        Ok(match self {
            Credentials::None => None,
            Credentials::Password(value) => Some((header::AUTHORIZATION, value.clone())),
            Credentials::Secret(name, secret, scheme) => {
                let (user, password) = secret().ok_or_else(|| {
                    let message = format!(
                        "the Secret {name} was not read yet, or is incomplete; create it with the keys username and password"
                    );
                    Error::new(ErrorKind::Unauthenticated, LOGIN, message)
                })?;
                Some((header::AUTHORIZATION, password_header(&user, &password, *scheme)?))
            }
            Credentials::Token(tokens) => Some((TOKEN, tokens.get().await?.as_ref().clone())),
        })
    }
}

#[async_trait]
impl Authorize for Login {
    async fn authorize(&self, request: &mut Request<Bytes>) -> Result<()> {
        if let Some((name, value)) = self.credentials.header().await? {
            if name == header::AUTHORIZATION {
                self.check(&value).await?;
            }
            request.headers_mut().insert(name, value);
        }
        if let Ok(id) = HeaderValue::try_from(Uuid::new_v4().to_string()) {
            request.headers_mut().insert(OPERATION_ID, id);
        }
        Ok(())
    }

    /// Renews an access token, and takes over a password that has changed since the call. A rejected password is not sent again.
    async fn renew(&self, rejection: &Rejection<'_>) -> Result<bool> {
        let sent = |name: HeaderName| rejection.request.headers().get(name);
        match (&self.credentials, sent(header::AUTHORIZATION)) {
            (Credentials::Token(tokens), _) => {
                let rejected = sent(TOKEN);
                tokens.renew(|token| Some(token) == rejected).await?;
                if rejection.error.status() == Some(403) {
                    *lock(&self.renewed.0) = Some(Instant::now());
                }
                Ok(true)
            }
            (credentials, Some(sent)) => {
                if is_wrong_password(rejection.error) {
                    self.reject(sent, rejection.error);
                }
                Ok(credentials.header().await?.is_some_and(|(_, current)| current != sent))
            }
            (_, None) => Ok(false),
        }
    }
}

fn is_wrong_password(error: &Error) -> bool {
    error.status() == Some(401) || error.code() == Some(WRONG_PASSWORD)
}

fn password_header(user: &str, password: &Secret, scheme: PasswordScheme) -> Result<HeaderValue> {
    let word = match scheme {
        PasswordScheme::Basic => "Basic",
        PasswordScheme::Remote => "Remote",
    };
    let encoded = STANDARD.encode(format!("{user}:{}", password.reveal()));
    sensitive(&format!("{word} {encoded}"))
}

fn sensitive(value: &str) -> Result<HeaderValue> {
    let invalid = |_| Error::new(ErrorKind::InvalidConfig, LOGIN, "the credentials are not valid in a header");
    let mut value = HeaderValue::try_from(value).map_err(invalid)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Exchanges the refresh token for access tokens. After a failure, it rests.
fn token_source(api: Api, path: String, refresh: Secret) -> TokenSource<HeaderValue> {
    let failed: Arc<Mutex<Option<(Instant, Error)>>> = Arc::default();
    TokenSource::new(move || {
        let (api, path, refresh, failed) = (api.clone(), path.clone(), refresh.clone(), failed.clone());
        async move {
            let earlier = lock(&failed).clone().map(|(until, error)| (until - Instant::now(), error));
            if let Some((pause, error)) = earlier.filter(|(pause, _)| !pause.is_zero()) {
                return Err(error.retry(Retry::After(pause)));
            }
            let issued = exchange(&api, &path, &refresh).await;
            let pause = |error: &Error| match error.kind() {
                ErrorKind::Unauthenticated => FIRST_PAUSE,
                _ => EXCHANGE_PAUSE,
            };
            *lock(&failed) = issued.as_ref().err().map(|error| (Instant::now() + pause(error), error.clone()));
            issued
        }
        .boxed()
    })
}

async fn exchange(api: &Api, path: &str, refresh: &Secret) -> Result<IssuedToken<HeaderValue>> {
    let path: Vec<_> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let call = api.call("issue_vmc_token", Method::POST, &path).effect(Effect::Read);
    let response = call.form(&[("refresh_token", refresh.reveal())]).send().await?;
    let issued: Issued = response.json()?;
    Ok(IssuedToken { token: sensitive(issued.access_token.reveal())?, lifetime: lifetime(&issued.expires_in) })
}

/// Returns the time for which a token is used. The source renews it at nine tenths of this time, which is 80 % of its life.
fn lifetime(expires_in: &Value) -> Option<Duration> {
    let seconds = expires_in.as_u64().or_else(|| expires_in.as_str()?.trim().parse().ok())?;
    Some(Duration::from_secs(seconds).saturating_mul(8) / 9)
}
