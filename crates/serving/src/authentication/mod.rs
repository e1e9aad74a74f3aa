//! Delegated authentication (SRV-4, SRV-5).
//!
//! The methods are tried in order, and the first that identifies the user wins. Invalid credentials are an error; only a request
//! without credentials is anonymous.

mod audience;
mod certificates;
mod cluster;
mod front_proxy;
mod tokens;

use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use rustls::pki_types::CertificateDer;

pub use self::audience::AudienceToken;
use self::audience::AudienceTokens;
use self::certificates::Bundle;
use self::cluster::{Cluster, Lookup};
use self::front_proxy::FrontProxy;
use self::tokens::Tokens;
use crate::AuthenticationOptions;
use crate::files::{FileError, Files, RELOAD_INTERVAL};
use crate::user::User;

/// A failure to set up authentication.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// A CA file is invalid.
    #[error(transparent)]
    File(#[from] FileError),
    /// The settings of the front proxy cannot be read.
    #[error(
        "unable to load configmap based request-header-client-ca-file: {0}; give the manager the role \
         extension-apiserver-authentication-reader in kube-system, or set --authentication-tolerate-lookup-failure, \
         --authentication-skip-lookup or --requestheader-client-ca-file"
    )]
    Lookup(String),
}

/// Authenticates requests.
pub struct Authenticator {
    client_ca: Option<Files<Bundle>>,
    front_proxy: Option<Files<FrontProxy>>,
    tokens: Option<Tokens>,
    audience_tokens: Option<AudienceTokens>,
    /// The API server's settings for the two above, where no flag sets them.
    cluster: Option<Cluster>,
}

impl Authenticator {
    /// Creates an authenticator. `client` needs permission to create TokenReviews and to read the API server's ConfigMap; without a
    /// client, bearer tokens are ignored.
    pub async fn new(
        options: &AuthenticationOptions,
        client: Option<kube::Client>,
    ) -> Result<Authenticator, AuthenticationError> {
        let client_ca = options.client_ca_file.clone().map(open_bundle).transpose()?;
        let front_proxy = match options.request_header.client_ca_file.clone() {
            Some(path) => Some(FrontProxy::open(path, &options.request_header)?),
            None => None,
        };
        let lookup = Lookup { client_ca: client_ca.is_none(), front_proxy: front_proxy.is_none() };
        let cluster = match &client {
            Some(client) if !options.skip_lookup && lookup.is_needed() => Some(Cluster::new(client.clone(), lookup)),
            _ => None,
        };
        if let Some(cluster) = &cluster {
            look_up(cluster, options.tolerate_lookup_failure).await?;
        }
        let tokens = client.map(|client| Tokens::new(client, options.cache_ttl));
        if tokens.is_none() {
            tracing::warn!("bearer tokens are ignored: no client for TokenReviews; set --authentication-kubeconfig");
        }
        Ok(Authenticator { client_ca, front_proxy, tokens, audience_tokens: None, cluster })
    }

    /// Also accepts this header. A request that has it is authenticated by it alone. Without a client for TokenReviews, the header is
    /// ignored.
    pub fn accepting(self, accepted: AudienceToken) -> Authenticator {
        let audience_tokens = self.tokens.as_ref().map(|tokens| AudienceTokens::new(accepted, tokens));
        Authenticator { audience_tokens, ..self }
    }

    /// Returns the user of a request. The error is for the log.
    pub(crate) async fn authenticate(
        &self,
        path: &str,
        headers: &HeaderMap,
        client_certificates: &[CertificateDer<'static>],
    ) -> Result<User, String> {
        if let Some(tokens) = &self.audience_tokens
            && let Some(user) = tokens.user(path, headers).await
        {
            return user.map(User::authenticated);
        }
        let mut errors = Vec::new();
        let mut user_or_error = |outcome: Result<Option<User>, String>| {
            outcome.unwrap_or_else(|error| {
                errors.push(error);
                None
            })
        };
        if let Some(proxy) = self.front_proxy()
            && let Some(user) = user_or_error(proxy.user(headers, client_certificates))
        {
            return Ok(user.authenticated());
        }
        if let Some(bundle) = self.client_ca()
            && let Some(user) = user_or_error(bundle.user(client_certificates))
        {
            return Ok(user.authenticated());
        }
        if let Some(tokens) = &self.tokens
            && let Some(user) = user_or_error(tokens.user(headers, &AUTHORIZATION).await)
        {
            return Ok(user.authenticated());
        }
        if errors.is_empty() { Ok(User::anonymous()) } else { Err(errors.join("; ")) }
    }

    /// Removes tokens and the headers of the front proxy.
    pub(crate) fn remove_credentials(&self, headers: &mut HeaderMap) {
        if let Some(tokens) = &self.audience_tokens {
            tokens.remove_from(headers);
        }
        FrontProxy::standard_headers().remove_from(headers);
        if let Some(proxy) = self.front_proxy() {
            proxy.headers.remove_from(headers);
        }
    }

    /// Reloads files and watches the API server's settings, until the future is dropped.
    pub(crate) async fn keep_up_to_date(&self) {
        let files = async {
            loop {
                tokio::time::sleep(RELOAD_INTERVAL).await;
                self.client_ca.iter().for_each(Files::refresh);
                self.front_proxy.iter().for_each(Files::refresh);
            }
        };
        let cluster = async {
            match &self.cluster {
                Some(cluster) => cluster.watch().await,
                None => std::future::pending().await,
            }
        };
        let ((), ()) = tokio::join!(files, cluster);
    }

    fn client_ca(&self) -> Option<Arc<Bundle>> {
        let given = self.client_ca.as_ref().map(Files::current);
        given.or_else(|| self.cluster.as_ref().and_then(Cluster::client_ca))
    }

    fn front_proxy(&self) -> Option<Arc<FrontProxy>> {
        let given = self.front_proxy.as_ref().map(Files::current);
        given.or_else(|| self.cluster.as_ref().and_then(Cluster::front_proxy))
    }
}

/// Reads the API server's settings at start. A failure is fatal if those of the front proxy are needed, unless failures are
/// tolerated; a missing client CA is not.
async fn look_up(cluster: &Cluster, tolerate: bool) -> Result<(), AuthenticationError> {
    match cluster.read().await {
        Err(error) if cluster.needs_front_proxy() && !tolerate => Err(AuthenticationError::Lookup(error)),
        Err(error) => {
            tracing::warn!(
                error,
                "cannot read the API server's authentication settings; some clients cannot authenticate"
            );
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn open_bundle(path: PathBuf) -> Result<Files<Bundle>, FileError> {
    Files::open(vec![path], Box::new(certificates::bundle_from_files))
}
