//! Session with one cloud: the token, its service catalog, and an [`Api`] for each service.

mod auth;
mod call;
mod catalog;
mod error;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Calls, Error};
use bowline_http::{Api, Authorize, Client, Rejection, TokenSource};
use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderName, HeaderValue, Method, Request, header};

use crate::config::Global;
use crate::metrics::Metrics;

pub(crate) use auth::Access;
use auth::Identity;
pub(crate) use call::Call;
pub(crate) use catalog::Service;
use error::Faults;

/// Header with the token.
const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// Session of one user with one cloud.
pub(crate) struct Session {
    url: String,
    tokens: TokenSource<Access>,
    apis: Vec<(Service, Api)>,
    metrics: Metrics,
}

/// Token and endpoint of one service.
struct Endpoint {
    tokens: TokenSource<Access>,
    service: Service,
}

impl Session {
    /// Creates a session. Makes no call.
    pub(crate) fn new(http: &Client, calls: &Calls, global: &Global, user_agent: &str, metrics: Metrics) -> Session {
        let api = |service: &'static str| {
            let api = Api::new(http.clone(), calls, service);
            match HeaderValue::try_from(user_agent) {
                Ok(value) => api.header(header::USER_AGENT, value),
                Err(_) => api,
            }
        };
        let identity = Arc::new(Identity::new(api("identity"), global));
        let url = identity.url().to_owned();
        let tokens = TokenSource::new(move || {
            let identity = Arc::clone(&identity);
            async move { identity.authenticate().await }.boxed()
        });
        let of_service = |service: Service| {
            let endpoint = Endpoint { tokens: tokens.clone(), service };
            (service, api(service.kind()).authorize(endpoint).errors(Faults))
        };
        let apis = Service::ALL.map(of_service).into();
        Session { url, tokens, apis, metrics }
    }

    /// Creates a call with the metric label `name`.
    pub(crate) fn call(&self, name: &'static str, service: Service, method: Method, path: &[&str]) -> Call<'_> {
        Call::new(self, name, service, method, path)
    }

    /// Returns the current token with its catalog; authenticates if there is none.
    pub(crate) async fn access(&self) -> Result<Arc<Access>, Error> {
        self.tokens.get().await
    }

    #[allow(clippy::indexing_slicing)] // Service::ALL is in the order of its variants, and there is an API for each
    fn api(&self, service: Service) -> &Api {
        &self.apis[service as usize].1
    }
}

#[async_trait]
impl Authorize for Endpoint {
    async fn base(&self) -> Result<Option<String>, Error> {
        self.tokens.get().await?.endpoint(self.service).map(Some)
    }

    async fn authorize(&self, request: &mut Request<Bytes>) -> Result<(), Error> {
        let access = self.tokens.get().await?;
        request.headers_mut().insert(TOKEN, access.token().clone());
        Ok(())
    }

    async fn renew(&self, rejection: &Rejection<'_>) -> Result<bool, Error> {
        tracing::debug!(service = self.service.kind(), "the token was rejected; authenticating again");
        self.tokens.renew(|access| rejection.request.headers().get(TOKEN) == Some(access.token())).await?;
        Ok(true)
    }
}

impl fmt::Debug for Session {
    /// Prints no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("identity", &self.url).finish_non_exhaustive()
    }
}
