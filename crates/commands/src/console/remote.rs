//! Feed of the leader, through the API server.
//!
//! ```text
//!  Lease ──holder──► Pod ──┐
//!                          ├──► GET …/pods/https:POD:PORT/proxy/consolez   X-Bowline-Authorization: Bearer TOKEN
//!  TokenRequest ──TOKEN────┘
//! ```
//!
//! The API server removes the user's own credentials from a request that it proxies, and does not verify the Pod's certificate. The
//! token is of a service account that can only read this path, and has an audience that only managers accept: a forged Pod that gets it
//! can do nothing with it elsewhere.

use std::time::Duration;

use bowline_console::page::{Feed, FeedError};
use bowline_console::{Position, access};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::call::{CallError, Rejection, call, call_json};
use super::leader::{ManagerPod, NoPod, pod_of};
use super::remote_error::RemoteError;
use crate::cli::{LeaseName, ReachArgs};

/// Time after which the holder of the Lease is read again: a new leader is followed within this time.
const LEASE_AGE: Duration = Duration::from_secs(5);

/// Lifetime of a token: the minimum of the API server.
const TOKEN_TIME: Duration = Duration::from_secs(600);

/// Age at which a token is replaced. The rest of its lifetime is for slow requests, and clocks that differ.
const TOKEN_AGE: Duration = Duration::from_secs(480);

/// Reads the document of the leader.
pub(super) struct RemoteFeed {
    client: Client,
    /// URL of the API server, for messages.
    server: String,
    namespace: String,
    lease: LeaseName,
    account: String,
    state: Mutex<State>,
}

/// What earlier requests have found out.
#[derive(Default)]
struct State {
    leader: Option<Leader>,
    token: Option<Token>,
}

#[derive(Clone)]
struct Leader {
    holder: String,
    pod: ManagerPod,
    read_at: Instant,
}

#[derive(Clone)]
struct Token {
    value: HeaderValue,
    created_at: Instant,
}

type Outcome<T> = Result<T, RemoteError>;

impl RemoteFeed {
    pub(super) fn new(client: Client, server: String, args: &ReachArgs) -> RemoteFeed {
        RemoteFeed {
            client,
            server,
            namespace: args.namespace.clone(),
            lease: args.lease.clone(),
            account: args.service_account.clone(),
            state: Mutex::default(),
        }
    }

    pub(super) async fn read(&self, position: &Position) -> Outcome<Bytes> {
        let (leader, token) = self.prepare().await?;
        match self.document(&leader, &token, position).await {
            // The Pod or the token may have been replaced since they were read.
            Err(RemoteError::NoPod { .. } | RemoteError::TokenRejected { .. }) => {
                self.forget().await;
                let (leader, token) = self.prepare().await?;
                self.document(&leader, &token, position).await
            }
            Err(error) => {
                self.forget_leader().await;
                Err(error)
            }
            Ok(document) => Ok(document),
        }
    }

    /// Returns the leader and a valid token, as far as they are known from earlier requests.
    async fn prepare(&self) -> Outcome<(Leader, Token)> {
        let mut state = self.state.lock().await;
        let leader = match &state.leader {
            Some(leader) if leader.read_at.elapsed() < LEASE_AGE => leader.clone(),
            known => self.leader(known.as_ref()).await?,
        };
        state.leader = Some(leader.clone());
        let token = match &state.token {
            Some(token) if token.created_at.elapsed() < TOKEN_AGE => token.clone(),
            _ => self.token().await?,
        };
        state.token = Some(token.clone());
        Ok((leader, token))
    }

    async fn forget(&self) {
        *self.state.lock().await = State::default();
    }

    async fn forget_leader(&self) {
        self.state.lock().await.leader = None;
    }

    /// Reads the Lease and, for another holder than the known one, the Pods.
    async fn leader(&self, known: Option<&Leader>) -> Outcome<Leader> {
        let read_at = Instant::now();
        let holder = self.holder().await?;
        if let Some(known) = known.filter(|known| known.holder == holder) {
            return Ok(Leader { read_at, ..known.clone() });
        }
        let pod = self.pod(&holder).await?;
        Ok(Leader { holder, pod, read_at })
    }

    async fn holder(&self) -> Outcome<String> {
        let LeaseName { namespace, name } = &self.lease;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
        let lease = self.get(&path).await.map_err(|error| match error {
            CallError::Rejected(Rejection { code: 404, .. }) => RemoteError::NoLease { lease: self.lease.clone() },
            error => self.explain(error, &format!("get the Lease {}", self.lease), namespace),
        })?;
        match lease["spec"]["holderIdentity"].as_str() {
            Some(holder) if !holder.is_empty() => Ok(holder.to_owned()),
            _ => Err(RemoteError::NoHolder { lease: self.lease.clone() }),
        }
    }

    async fn pod(&self, holder: &str) -> Outcome<ManagerPod> {
        let pods = self.get(&format!("/api/v1/namespaces/{}/pods", self.namespace)).await;
        let action = || format!("list the Pods in {}", self.namespace);
        let pods = pods.map_err(|error| self.explain(error, &action(), &self.namespace))?;
        let holder = holder.to_owned();
        pod_of(&holder, &pods).map_err(|error| match error {
            NoPod::Missing => RemoteError::NoPod { holder, namespace: self.namespace.clone() },
            NoPod::Ambiguous(pods) => RemoteError::AmbiguousPod { holder, pods },
        })
    }

    /// Requests a token that only managers accept, and only for the console.
    async fn token(&self) -> Outcome<Token> {
        let created_at = Instant::now();
        let (namespace, account) = (&self.namespace, &self.account);
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let spec = json!({"audiences": [access::AUDIENCE], "expirationSeconds": TOKEN_TIME.as_secs()});
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let request = Request::post(&path).header(CONTENT_TYPE, "application/json").body(body.to_string().into_bytes());
        let action = format!("create a token of the service account {namespace}/{account}");
        let answer = match request {
            Ok(request) => call_json(&self.client, request).await,
            Err(error) => Err(CallError::Unreachable(error.to_string())),
        };
        let answer = answer.map_err(|error| match error {
            CallError::Rejected(Rejection { code: 404, .. }) => {
                RemoteError::NoServiceAccount { namespace: namespace.clone(), account: account.clone() }
            }
            error => self.explain(error, &action, namespace),
        })?;
        let token = answer["status"]["token"].as_str().unwrap_or_default();
        let invalid =
            |_| RemoteError::Other { action, code: 201, message: "the token is not valid in a header".to_owned() };
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(invalid)?;
        value.set_sensitive(true);
        Ok(Token { value, created_at })
    }

    async fn document(&self, leader: &Leader, token: &Token, position: &Position) -> Outcome<Bytes> {
        let ManagerPod { name, port } = &leader.pod;
        let path = format!("/api/v1/namespaces/{}/pods/https:{name}:{port}/proxy{}", self.namespace, access::PATH);
        let request = document_request(&path, position).map(|mut request| {
            request.headers_mut().insert(access::TOKEN_HEADER, token.value.clone());
            request
        });
        let read = match request {
            Ok(request) => call(&self.client, request).await,
            Err(error) => Err(CallError::Unreachable(error.to_string())),
        };
        read.map_err(|error| self.explain_document(error, leader))
    }

    /// Explains the failure of a proxied request. Errors of the API server name the kind `pods`; those of the manager name none.
    fn explain_document(&self, error: CallError, leader: &Leader) -> RemoteError {
        let account = format!("{}/{}", self.namespace, self.account);
        let ManagerPod { name: pod, port } = leader.pod.clone();
        let CallError::Rejected(Rejection { code, message, kind }) = error else {
            return self.explain(error, "read the document", &self.namespace);
        };
        match (code, kind.as_str()) {
            (404, "pods") => RemoteError::NoPod { holder: leader.holder.clone(), namespace: self.namespace.clone() },
            (403, "pods") => {
                let action = format!("send requests to Pods in {} through the API server", self.namespace);
                RemoteError::Forbidden { action, namespace: self.namespace.clone(), message }
            }
            (404, _) => RemoteError::TooOld { pod },
            (401, _) => RemoteError::TokenRejected { pod, account, message },
            (403, _) => RemoteError::ManagerForbids { pod, account, message },
            (400 | 502..=504, _) => RemoteError::PodUnreachable { pod, port, message },
            _ => RemoteError::Other { action: format!("read the document of {pod}"), code, message },
        }
    }

    /// Explains the failure of a request to the API server itself.
    fn explain(&self, error: CallError, action: &str, namespace: &str) -> RemoteError {
        let (action, namespace, server) = (action.to_owned(), namespace.to_owned(), self.server.clone());
        match error {
            CallError::Unreachable(reason) => RemoteError::Unreachable { server, reason },
            CallError::Rejected(Rejection { code: 401, .. }) => RemoteError::Unauthenticated { server },
            CallError::Rejected(Rejection { code: 403, message, .. }) => {
                RemoteError::Forbidden { action, namespace, message }
            }
            CallError::Rejected(Rejection { code, message, .. }) => RemoteError::Other { action, code, message },
        }
    }

    async fn get(&self, path: &str) -> Result<Value, CallError> {
        let request = Request::get(path).header(ACCEPT, "application/json").body(Vec::new());
        call_json(&self.client, request.map_err(|error| CallError::Unreachable(error.to_string()))?).await
    }
}

impl Feed for RemoteFeed {
    fn changes<'a>(&'a self, position: &'a Position) -> BoxFuture<'a, Result<Bytes, FeedError>> {
        Box::pin(async move { self.read(position).await.map_err(|error| FeedError(error.to_string())) })
    }
}

/// Request for the changes since this position. The epoch is chosen by a manager, so it is escaped.
pub(super) fn document_request(path: &str, position: &Position) -> http::Result<Request<Vec<u8>>> {
    let epoch: String = position.epoch.chars().filter(char::is_ascii_alphanumeric).collect();
    let uri = format!("{path}?epoch={epoch}&since={}", position.revision);
    Request::get(uri).header(ACCEPT, "application/json").header(ACCEPT_ENCODING, "gzip").body(Vec::new())
}
