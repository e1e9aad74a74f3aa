//! Who somebody is (SRV-4, SRV-5).
//!
//! The ways are tried in order, and the first that knows them counts. What somebody shows, and nobody believes, is a reason
//! to refuse them: only who shows nothing is anonymous.

mod certificates;
mod cluster;
mod front_proxy;
mod tokens;

use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderMap;
use rustls::pki_types::CertificateDer;

use self::certificates::Bundle;
use self::cluster::{Cluster, Lookup};
use self::front_proxy::FrontProxy;
use self::tokens::Tokens;
use crate::AuthenticationOptions;
use crate::files::{EVERY, FileError, Files};
use crate::user::User;

/// Why it cannot be found out who people are.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationError {
    /// A file of authorities is not one.
    #[error(transparent)]
    File(#[from] FileError),
    /// The settings of the front proxy are not to be had.
    #[error(
        "unable to load configmap based request-header-client-ca-file: {0}; give the manager the role \
         extension-apiserver-authentication-reader in kube-system, or set --authentication-tolerate-lookup-failure, \
         --authentication-skip-lookup or --requestheader-client-ca-file"
    )]
    Lookup(String),
}

/// Finds out who people are.
pub struct Authenticator {
    client_ca: Option<Files<Bundle>>,
    front_proxy: Option<Files<FrontProxy>>,
    tokens: Option<Tokens>,
    /// What the API server says of the two above, where nobody gave them.
    cluster: Option<Cluster>,
}

impl Authenticator {
    /// By these options. `client` is one that may create TokenReviews and look at the API server's ConfigMap; without it,
    /// tokens mean nothing.
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
            tracing::warn!(
                "no client for TokenReviews, since there is no --authentication-kubeconfig: tokens mean nothing"
            );
        }
        Ok(Authenticator { client_ca, front_proxy, tokens, cluster })
    }

    /// Who is asking, by what they show. The error is for the log.
    pub(crate) async fn who(&self, headers: &HeaderMap, shown: &[CertificateDer<'static>]) -> Result<User, String> {
        let mut errors = Vec::new();
        let mut known = |outcome: Result<Option<User>, String>| {
            outcome.unwrap_or_else(|problem| {
                errors.push(problem);
                None
            })
        };
        if let Some(proxy) = self.front_proxy()
            && let Some(user) = known(proxy.who(headers, shown))
        {
            return Ok(user.authenticated());
        }
        if let Some(bundle) = self.client_ca()
            && let Some(user) = known(bundle.who(shown))
        {
            return Ok(user.authenticated());
        }
        if let Some(tokens) = &self.tokens
            && let Some(user) = known(tokens.who(headers).await)
        {
            return Ok(user.authenticated());
        }
        if errors.is_empty() { Ok(User::anonymous()) } else { Err(errors.join("; ")) }
    }

    /// Takes away the headers of the front proxy.
    pub(crate) fn hide_proxy(&self, headers: &mut HeaderMap) {
        FrontProxy::standard_headers().hide(headers);
        if let Some(proxy) = self.front_proxy() {
            proxy.headers.hide(headers);
        }
    }

    /// Looks at files, and follows the API server's settings, for as long as it is let.
    pub(crate) async fn keep_fresh(&self) {
        let files = async {
            loop {
                tokio::time::sleep(EVERY).await;
                self.client_ca.iter().for_each(Files::refresh);
                self.front_proxy.iter().for_each(Files::refresh);
            }
        };
        let cluster = async {
            match &self.cluster {
                Some(cluster) => cluster.follow().await,
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

/// The first look at the API server's settings. Without those of the front proxy there is no start, unless that is
/// tolerated; without the authority of clients there is.
async fn look_up(cluster: &Cluster, tolerate: bool) -> Result<(), AuthenticationError> {
    match cluster.look().await {
        Err(error) if cluster.needs_front_proxy() && !tolerate => Err(AuthenticationError::Lookup(error)),
        Err(error) => {
            tracing::warn!(
                error,
                "cannot read the API server's authentication settings; clients may not be recognised"
            );
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn open_bundle(path: PathBuf) -> Result<Files<Bundle>, FileError> {
    Files::open(vec![path], Box::new(certificates::bundle_from_files))
}
