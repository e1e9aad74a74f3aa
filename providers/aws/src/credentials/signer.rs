//! Signature of requests.

use std::sync::Arc;

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Result};
use bowline_http::sign::aws::{self, PathRule, Scope};
use bowline_http::{Authorize, Rejection};
use bytes::Bytes;
use http::Request;

use super::{Credentials, Keys};
use crate::endpoints::{ApiName, Endpoints};

/// Signs the requests of one API, and determines its endpoint.
pub(crate) struct Signer {
    pub(crate) credentials: Credentials,
    pub(crate) endpoints: Endpoints,
    pub(crate) api: ApiName,
}

/// Credentials that a request is signed with.
#[derive(Clone)]
struct Used(Arc<Keys>);

#[async_trait]
impl Authorize for Signer {
    async fn base(&self) -> Result<Option<String>> {
        self.endpoints.of(self.api).map(|endpoint| Some(endpoint.url))
    }

    async fn authorize(&self, request: &mut Request<Bytes>) -> Result<()> {
        let keys = self.credentials.keys.get().await?;
        let endpoint = self.endpoints.of(self.api)?;
        let (region, service) = (endpoint.signing_region.as_str(), endpoint.signing_name.as_str());
        let scope = Scope { region, service, path: PathRule::Standard };
        let signed = aws::headers(request, &keys.keys, &scope, self.credentials.clock.now());
        let unsigned =
            |error| Error::new(ErrorKind::InvalidConfig, "sign the request", format!("{error}")).source(error);
        request.headers_mut().extend(signed.map_err(unsigned)?);
        request.extensions_mut().insert(Used(keys));
        Ok(())
    }

    async fn renew(&self, rejection: &Rejection<'_>) -> Result<bool> {
        if self.credentials.clock.correct(rejection.error.code(), rejection.date) {
            return Ok(true);
        }
        let Some(Used(rejected)) = rejection.request.extensions().get() else { return Ok(false) };
        tracing::debug!(service = self.api.identifier(), "AWS rejected the credentials; renewing them");
        self.credentials.renew(rejected).await
    }
}

/// Determines the endpoint of an API whose requests are not signed.
pub(super) struct Unsigned {
    pub(super) endpoints: Endpoints,
    pub(super) api: ApiName,
}

#[async_trait]
impl Authorize for Unsigned {
    async fn base(&self) -> Result<Option<String>> {
        self.endpoints.of(self.api).map(|endpoint| Some(endpoint.url))
    }

    async fn authorize(&self, _: &mut Request<Bytes>) -> Result<()> {
        Ok(())
    }
}
