//! One service account per controller (CL-4), so that each has the permissions of its own role and the audit log distinguishes
//! them.
//!
//! A token is requested on first use and again when a fifth of its lifetime is left. One request is made, and concurrent users
//! wait for it. A missing service account is created. If the API server rejects a token, the token is discarded and the request
//! is sent once more: the service account may have been deleted and recreated.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use bowline_core::with_causes;
use bowline_runtime::Fence;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::client::{Body, Client};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::BoxError;

use crate::access::Access;
use crate::fenced::{fenced, is_fenced};
use crate::permissions::{Permission, Scope};

/// Namespace of the service accounts.
pub(crate) const NAMESPACE: &str = "kube-system";
/// Requested lifetime of a token. A longer remaining lifetime means that the local clock is behind.
const LIFETIME_SECONDS: i64 = 3600;
const LIFETIME: Duration = Duration::from_secs(LIFETIME_SECONDS as u64);
/// Minimum lifetime. A shorter one means that the local clock is wrong.
const MIN_LIFETIME: Duration = Duration::from_secs(600);
/// Maximum number of attempts to request a token.
const MAX_ATTEMPTS: u32 = 4;
/// Back-off after the first attempt; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Pause after a failed renewal while the current token is still valid.
const RENEWAL_PAUSE: Duration = Duration::from_secs(30);

/// Permissions that the process needs to use the service accounts of these controllers. The accounts themselves need the
/// permissions of the controllers.
pub fn permissions(controllers: &[&'static str]) -> Vec<Permission> {
    let permission =
        |resource, scope, why| Permission { group: "", resource, verbs: &["create"], scope, why, without: None };
    let create = permission(
        "serviceaccounts",
        Scope::Namespace(NAMESPACE.into()),
        "create a controller's service account if it is missing",
    );
    let token = |name: &&'static str| {
        permission(
            "serviceaccounts/token",
            Scope::Named(NAMESPACE.into(), (*name).into()),
            "request tokens for this controller's service account",
        )
    };
    std::iter::once(create).chain(controllers.iter().map(token)).collect()
}

/// Service accounts of the controllers. Two controllers with the same name share a token.
pub(crate) struct Accounts {
    access: Access,
    by_name: SyncMutex<HashMap<&'static str, Arc<Account>>>,
}

impl Accounts {
    pub(crate) fn new(access: Access) -> Accounts {
        Accounts { access, by_name: SyncMutex::new(HashMap::new()) }
    }

    /// Creates a client that authenticates as this service account. Even its reads pass the fence before a token is requested,
    /// because that is a write and may create the account.
    pub(crate) fn client(&self, name: &'static str, fence: &Fence) -> Client {
        let (access, account) = (self.access.clone(), self.account(name, fence));
        self.access.client_over(
            &format!("system:serviceaccount:{NAMESPACE}:{name}"),
            tower::service_fn(move |request| send(access.clone(), account.clone(), request)),
        )
    }

    fn account(&self, name: &'static str, fence: &Fence) -> Arc<Account> {
        let mut accounts = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let process = || fenced(self.access.client(), fence.clone());
        let account = accounts.entry(name).or_insert_with(|| Arc::new(Account::new(name, process())));
        account.clone()
    }
}

/// Sends a request with the token of the account, and once more with a new token after a 401.
fn send(
    access: Access,
    account: Arc<Account>,
    request: Request<Body>,
) -> BoxFuture<'static, Result<Response<Body>, BoxError>> {
    async move {
        let retry = copy(&request);
        let token = account.token().await?;
        let response = access.clone().send_without_credentials(with_token(request, &token)).await?;
        let Some(retry) = retry.filter(|_| response.status() == StatusCode::UNAUTHORIZED) else { return Ok(response) };
        account.discard(&token).await;
        let token = account.token().await?;
        access.send_without_credentials(with_token(retry, &token)).await
    }
    .boxed()
}

fn with_token(mut request: Request<Body>, token: &HeaderValue) -> Request<Body> {
    request.headers_mut().insert(AUTHORIZATION, token.clone());
    request
}

/// Copies the request; `None` if the body is a stream.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// Reason why a token cannot be obtained.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot get a token for the service account {NAMESPACE}/{account}: {why}")]
struct TokenError {
    account: &'static str,
    why: String,
    /// A retry cannot succeed.
    is_final: bool,
}

/// Service account with its token.
struct Account {
    name: &'static str,
    /// Client with the credentials of the process, which may request tokens.
    process: Client,
    /// Locked while a token is requested, so that concurrent users share one request.
    token: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    header: HeaderValue,
    renew_at: Instant,
    expires_at: Instant,
}

impl Account {
    fn new(name: &'static str, process: Client) -> Account {
        Account { name, process, token: Mutex::new(None) }
    }

    /// Returns a valid token, renewed if necessary.
    async fn token(&self) -> Result<HeaderValue, TokenError> {
        let mut current = self.token.lock().await;
        if let Some(token) = current.as_ref().filter(|token| Instant::now() < token.renew_at) {
            return Ok(token.header.clone());
        }
        match (self.request_with_retry().await, current.as_mut()) {
            (Ok(token), _) => Ok(current.insert(token).header.clone()),
            (Err(error), Some(old)) if Instant::now() < old.expires_at => {
                tracing::warn!(account = self.name, %error, "cannot renew the token; using the current one until it expires");
                old.renew_at = Instant::now() + RENEWAL_PAUSE;
                Ok(old.header.clone())
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Discards a token that the API server rejected, unless it was already replaced.
    async fn discard(&self, token: &HeaderValue) {
        let mut current = self.token.lock().await;
        if current.as_ref().is_some_and(|current| current.header == *token) {
            *current = None;
        }
    }

    async fn request_with_retry(&self) -> Result<Token, TokenError> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..MAX_ATTEMPTS {
            match self.request().await {
                Ok(token) => return Ok(token),
                Err(error) if error.is_final => return Err(error),
                Err(error) => tracing::debug!(account = self.name, %error, ?pause, "retrying the token request"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.request().await
    }

    /// Requests a token, and creates the account if it does not exist. This order needs no permission to read service accounts.
    async fn request(&self) -> Result<Token, TokenError> {
        let response = match self.create_token().await {
            Err(error) if has_code(&error, StatusCode::NOT_FOUND) => {
                self.create().await.map_err(|error| self.failure("cannot create the account", &error))?;
                self.create_token().await
            }
            response => response,
        };
        let response = response.map_err(|error| self.failure("the token request failed", &error))?;
        let invalid = |why: &str| TokenError { account: self.name, why: why.to_owned(), is_final: false };
        let status = response.status.unwrap_or_default();
        let text = status.token.ok_or_else(|| invalid("the response contains no token"))?;
        let lifetime = status.expiration_timestamp.map(|end| end.0.duration_since(Timestamp::now()));
        let lifetime = lifetime.and_then(|lifetime| Duration::try_from(lifetime).ok()).unwrap_or_default();
        Token::new(&text, lifetime).ok_or_else(|| invalid("the token is not a valid header value"))
    }

    async fn create_token(&self) -> kube::Result<TokenRequest> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.process.clone(), NAMESPACE);
        let spec = TokenRequestSpec { expiration_seconds: Some(LIFETIME_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        accounts.create_token_request(self.name, &PostParams::default(), &request).await
    }

    async fn create(&self) -> kube::Result<()> {
        match self.create_account().await {
            Err(error) if has_code(&error, StatusCode::NOT_FOUND) => {
                self.create_namespace().await;
                self.create_account().await
            }
            answer => answer,
        }
    }

    async fn create_account(&self) -> kube::Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.process.clone(), NAMESPACE);
        let metadata = ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        match accounts.create(&PostParams::default(), &account).await {
            Err(error) if has_code(&error, StatusCode::CONFLICT) => Ok(()),
            answer => answer.map(|_| ()),
        }
    }

    /// Creates the namespace. Errors are only logged: the permission may be missing, and the next step fails if the namespace does.
    async fn create_namespace(&self) {
        let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let namespaces: Api<Namespace> = Api::all(self.process.clone());
        if let Err(error) = namespaces.create(&PostParams::default(), &namespace).await {
            tracing::warn!(namespace = NAMESPACE, error = %with_causes(&error), "cannot create the namespace");
        }
    }

    fn failure(&self, what: &str, error: &kube::Error) -> TokenError {
        TokenError { account: self.name, why: format!("{what}: {}", with_causes(error)), is_final: is_fenced(error) }
    }
}

impl Token {
    /// Token with this remaining lifetime. `None` if it is not a valid header value.
    fn new(text: &str, lifetime: Duration) -> Option<Token> {
        let mut header = HeaderValue::try_from(format!("Bearer {text}")).ok()?;
        header.set_sensitive(true);
        let (now, lifetime) = (Instant::now(), lifetime.clamp(MIN_LIFETIME, LIFETIME));
        Some(Token { header, renew_at: now + lifetime * 4 / 5, expires_at: now + lifetime })
    }
}

fn has_code(error: &kube::Error, code: StatusCode) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code.as_u16())
}

#[cfg(test)]
mod tests {
    use bowline_apiserver::{ApiServer, FaultRule, Options};

    use super::*;

    /// Account on an in-process server, so that time can be paused.
    async fn fixture() -> (ApiServer, Account) {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let account = Account::new("node-controller", server.in_process_client());
        (server, account)
    }

    fn token_requests(server: &ApiServer) -> u64 {
        let is_token_request =
            |kind: &bowline_apiserver::RequestKind| (kind.resource, kind.subresource) == ("serviceaccounts", "token");
        server.requests().iter().filter(|(kind, _)| is_token_request(kind)).map(|(_, count)| count).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn cl4_a_token_is_renewed_when_a_fifth_of_its_lifetime_is_left() {
        let (server, account) = fixture().await;
        let first = account.token().await.unwrap();
        let before = token_requests(&server);
        tokio::time::advance(Duration::from_secs(2870)).await;
        assert_eq!(account.token().await.unwrap(), first);
        assert_eq!(token_requests(&server), before);
        tokio::time::advance(Duration::from_secs(15)).await;
        account.token().await.unwrap();
        assert_eq!(token_requests(&server), before + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn cl4_a_missing_account_is_created_and_concurrent_users_share_one_token() {
        let (server, account) = fixture().await;
        let tokens = futures::future::join_all((0..20).map(|_| account.token())).await;
        assert!(tokens.iter().all(Result::is_ok));
        assert_eq!(token_requests(&server), 2, "one before the account exists, and one for all users");
        let accounts: Api<ServiceAccount> = Api::namespaced(server.in_process_client(), NAMESPACE);
        assert!(accounts.get_opt("node-controller").await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn cl4_a_token_request_fails_after_four_attempts() {
        let (server, account) = fixture().await;
        server.faults().add(no_tokens());
        let start = Instant::now();
        let error = account.token().await.unwrap_err().to_string();
        assert!(
            error.starts_with("cannot get a token for the service account kube-system/node-controller: "),
            "{error}"
        );
        assert_eq!(start.elapsed().as_millis(), 3500);
    }

    #[tokio::test(start_paused = true)]
    async fn cl4_a_valid_token_is_used_while_its_renewal_fails() {
        let (server, account) = fixture().await;
        let first = account.token().await.unwrap();
        server.faults().add(no_tokens());
        tokio::time::advance(Duration::from_secs(3000)).await;
        assert_eq!(account.token().await.unwrap(), first);
        tokio::time::advance(Duration::from_secs(600)).await;
        assert!(account.token().await.is_err(), "it has expired");
    }

    #[test]
    fn cl4_an_implausible_lifetime_is_clamped() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let token = Token::new("x", Duration::from_secs(5)).unwrap();
            assert_eq!(token.renew_at - Instant::now(), Duration::from_secs(480));
            let token = Token::new("x", Duration::from_secs(3 * 3600)).unwrap();
            assert_eq!(token.renew_at - Instant::now(), Duration::from_secs(2880));
            assert!(Token::new("two\nlines", MIN_LIFETIME).is_none());
            assert!(!format!("{:?}", token.header).contains('x'), "secrets are not printed");
        });
    }

    fn no_tokens() -> FaultRule {
        FaultRule { subresource: Some("token".into()), ..FaultRule::default() }
    }
}
