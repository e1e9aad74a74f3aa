//! A service account for each controller (CL-4), so that each has the rights of its own role and the audit log tells them
//! apart.
//!
//! A token is asked for when it is first needed and again when a fifth of its life is left, by one request while the others
//! wait for it. The account is made if the API server does not know it. A token that the API server refuses is thrown away
//! and the request sent once more: its account may have been deleted and made again.

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

/// Where the accounts are.
pub(crate) const NAMESPACE: &str = "kube-system";
/// How long a token is to live. One that seems to live longer comes from a clock that is behind.
const LIFETIME_SECONDS: i64 = 3600;
const LIFETIME: Duration = Duration::from_secs(LIFETIME_SECONDS as u64);
/// A life shorter than this is taken for a clock that goes wrong.
const LEAST_LIFE: Duration = Duration::from_secs(600);
/// How often a token is asked for before its user is told.
const TRIES: u32 = 4;
/// The pause after the first try; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// While the old token is good, a failed renewal is not tried again with every request.
const AFTER_A_FAILURE: Duration = Duration::from_secs(30);

/// What the process needs so that these controllers can have accounts of their own. The accounts' own rights are those of the
/// controllers.
pub fn permissions(controllers: &[&'static str]) -> Vec<Permission> {
    let permission =
        |resource, scope, why| Permission { group: "", resource, verbs: &["create"], scope, why, without: None };
    let create = permission(
        "serviceaccounts",
        Scope::Namespace(NAMESPACE.into()),
        "to make a controller's account if it is missing",
    );
    let token = |name: &&'static str| {
        permission("serviceaccounts/token", Scope::Named(NAMESPACE.into(), (*name).into()), "to act as this controller")
    };
    std::iter::once(create).chain(controllers.iter().map(token)).collect()
}

/// The accounts of the controllers. Two controllers of one name share the token.
pub(crate) struct Accounts {
    access: Access,
    by_name: SyncMutex<HashMap<&'static str, Arc<Account>>>,
}

impl Accounts {
    pub(crate) fn new(access: Access) -> Accounts {
        Accounts { access, by_name: SyncMutex::new(HashMap::new()) }
    }

    /// A client that asks as the account of this name. What it takes to be that account passes this fence: even to read
    /// something, a token is made, and maybe the account.
    pub(crate) fn client(&self, name: &'static str, fence: &Fence) -> Client {
        let (access, account) = (self.access.clone(), self.account(name, fence));
        self.access.around(
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

/// Sends a request as the account, and once more if its token is refused.
fn send(
    access: Access,
    account: Arc<Account>,
    request: Request<Body>,
) -> BoxFuture<'static, Result<Response<Body>, BoxError>> {
    async move {
        let again = copy(&request);
        let token = account.token().await?;
        let answer = access.clone().send_bare(with_token(request, &token)).await?;
        let Some(again) = again.filter(|_| answer.status() == StatusCode::UNAUTHORIZED) else { return Ok(answer) };
        account.refused(&token).await;
        let token = account.token().await?;
        access.send_bare(with_token(again, &token)).await
    }
    .boxed()
}

fn with_token(mut request: Request<Body>, token: &HeaderValue) -> Request<Body> {
    request.headers_mut().insert(AUTHORIZATION, token.clone());
    request
}

/// `None` if the body can be read only once.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// Why there is no token.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no token for the service account {NAMESPACE}/{account}: {why}")]
struct NoToken {
    account: &'static str,
    why: String,
    /// There is no use in asking again.
    is_final: bool,
}

/// One account and its token.
struct Account {
    name: &'static str,
    /// With the credentials of the process, which may ask for tokens.
    process: Client,
    /// Held while a token is asked for, so that one request is enough for all who wait.
    token: Mutex<Option<Token>>,
}

#[derive(Clone)]
struct Token {
    header: HeaderValue,
    renew_at: Instant,
    ends_at: Instant,
}

impl Account {
    fn new(name: &'static str, process: Client) -> Account {
        Account { name, process, token: Mutex::new(None) }
    }

    /// A token that is good for a while.
    async fn token(&self) -> Result<HeaderValue, NoToken> {
        let mut held = self.token.lock().await;
        if let Some(token) = held.as_ref().filter(|token| Instant::now() < token.renew_at) {
            return Ok(token.header.clone());
        }
        match (self.requested().await, held.as_mut()) {
            (Ok(token), _) => Ok(held.insert(token).header.clone()),
            (Err(error), Some(old)) if Instant::now() < old.ends_at => {
                tracing::warn!(account = self.name, %error, "the token cannot be renewed; the old one is good for now");
                old.renew_at = Instant::now() + AFTER_A_FAILURE;
                Ok(old.header.clone())
            }
            (Err(error), _) => Err(error),
        }
    }

    /// The API server refuses this one. A newer one is not thrown away.
    async fn refused(&self, token: &HeaderValue) {
        let mut held = self.token.lock().await;
        if held.as_ref().is_some_and(|held| held.header == *token) {
            *held = None;
        }
    }

    async fn requested(&self) -> Result<Token, NoToken> {
        let mut pause = FIRST_PAUSE;
        for _ in 1..TRIES {
            match self.request().await {
                Ok(token) => return Ok(token),
                Err(error) if error.is_final => return Err(error),
                Err(error) => tracing::debug!(account = self.name, %error, ?pause, "asking again"),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.request().await
    }

    /// Asks for a token. If there is no such account, it is made: that order needs no right to read accounts.
    async fn request(&self) -> Result<Token, NoToken> {
        let answer = match self.ask().await {
            Err(error) if is(&error, StatusCode::NOT_FOUND) => {
                self.create().await.map_err(|error| self.failure("it cannot be created", &error))?;
                self.ask().await
            }
            answer => answer,
        };
        let answer = answer.map_err(|error| self.failure("the API server hands out none", &error))?;
        let unusable = |why: &str| NoToken { account: self.name, why: why.to_owned(), is_final: false };
        let status = answer.status.unwrap_or_default();
        let text = status.token.ok_or_else(|| unusable("the answer has none"))?;
        let life = status.expiration_timestamp.map(|end| end.0.duration_since(Timestamp::now()));
        let life = life.and_then(|life| Duration::try_from(life).ok()).unwrap_or_default();
        Token::new(&text, life).ok_or_else(|| unusable("it cannot stand in a header"))
    }

    async fn ask(&self) -> kube::Result<TokenRequest> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.process.clone(), NAMESPACE);
        let spec = TokenRequestSpec { expiration_seconds: Some(LIFETIME_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        accounts.create_token_request(self.name, &PostParams::default(), &request).await
    }

    async fn create(&self) -> kube::Result<()> {
        match self.create_account().await {
            Err(error) if is(&error, StatusCode::NOT_FOUND) => {
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
            Err(error) if is(&error, StatusCode::CONFLICT) => Ok(()),
            answer => answer.map(|_| ()),
        }
    }

    /// Errors are of no matter: whether this process may make namespaces is not known, and the next step tells.
    async fn create_namespace(&self) {
        let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let namespaces: Api<Namespace> = Api::all(self.process.clone());
        if let Err(error) = namespaces.create(&PostParams::default(), &namespace).await {
            tracing::warn!(namespace = NAMESPACE, error = %with_causes(&error), "the namespace cannot be created");
        }
    }

    fn failure(&self, what: &str, error: &kube::Error) -> NoToken {
        NoToken { account: self.name, why: format!("{what}: {}", with_causes(error)), is_final: is_fenced(error) }
    }
}

impl Token {
    /// A token with this much life in it. `None` if it cannot be sent.
    fn new(text: &str, life: Duration) -> Option<Token> {
        let mut header = HeaderValue::try_from(format!("Bearer {text}")).ok()?;
        header.set_sensitive(true);
        let (now, life) = (Instant::now(), life.clamp(LEAST_LIFE, LIFETIME));
        Some(Token { header, renew_at: now + life * 4 / 5, ends_at: now + life })
    }
}

fn is(error: &kube::Error, code: StatusCode) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code.as_u16())
}

#[cfg(test)]
mod tests {
    use bowline_apiserver::{ApiServer, FaultRule, Options};

    use super::*;

    /// An account on a server without sockets, so that time can be paused.
    async fn fixture() -> (ApiServer, Account) {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let account = Account::new("node-controller", server.in_process_client());
        (server, account)
    }

    fn tokens_asked(server: &ApiServer) -> u64 {
        let of_tokens =
            |kind: &bowline_apiserver::RequestKind| (kind.resource, kind.subresource) == ("serviceaccounts", "token");
        server.requests().iter().filter(|(kind, _)| of_tokens(kind)).map(|(_, count)| count).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn cl4_a_token_is_renewed_when_a_fifth_of_its_life_is_left_and_not_before() {
        let (server, account) = fixture().await;
        let first = account.token().await.unwrap();
        let asked = tokens_asked(&server);
        tokio::time::advance(Duration::from_secs(2870)).await;
        assert_eq!(account.token().await.unwrap(), first);
        assert_eq!(tokens_asked(&server), asked);
        tokio::time::advance(Duration::from_secs(15)).await;
        account.token().await.unwrap();
        assert_eq!(tokens_asked(&server), asked + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn cl4_an_account_that_is_missing_is_made_and_many_who_wait_need_one_token() {
        let (server, account) = fixture().await;
        let tokens = futures::future::join_all((0..20).map(|_| account.token())).await;
        assert!(tokens.iter().all(Result::is_ok));
        assert_eq!(tokens_asked(&server), 2, "one that finds no account, and one for all");
        let accounts: Api<ServiceAccount> = Api::namespaced(server.in_process_client(), NAMESPACE);
        assert!(accounts.get_opt("node-controller").await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn cl4_a_token_is_asked_for_four_times_before_its_user_is_told() {
        let (server, account) = fixture().await;
        server.faults().add(no_tokens());
        let start = Instant::now();
        let error = account.token().await.unwrap_err().to_string();
        assert!(error.starts_with("no token for the service account kube-system/node-controller: "), "{error}");
        assert_eq!(start.elapsed().as_millis(), 3500);
    }

    #[tokio::test(start_paused = true)]
    async fn cl4_an_old_token_serves_while_it_is_good_and_no_new_one_can_be_had() {
        let (server, account) = fixture().await;
        let first = account.token().await.unwrap();
        server.faults().add(no_tokens());
        tokio::time::advance(Duration::from_secs(3000)).await;
        assert_eq!(account.token().await.unwrap(), first);
        tokio::time::advance(Duration::from_secs(600)).await;
        assert!(account.token().await.is_err(), "it has ended");
    }

    #[test]
    fn cl4_a_life_that_is_too_short_to_be_true_counts_as_ten_minutes() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let token = Token::new("x", Duration::from_secs(5)).unwrap();
            assert_eq!(token.renew_at - Instant::now(), Duration::from_secs(480));
            let token = Token::new("x", Duration::from_secs(3 * 3600)).unwrap();
            assert_eq!(token.renew_at - Instant::now(), Duration::from_secs(2880));
            assert!(Token::new("two\nlines", LEAST_LIFE).is_none());
            assert!(!format!("{:?}", token.header).contains('x'), "secrets are not shown");
        });
    }

    fn no_tokens() -> FaultRule {
        FaultRule { subresource: Some("token".into()), ..FaultRule::default() }
    }
}
