//! Credentials: where they come from, how they are renewed, and how requests are signed with them.
//!
//! ```text
//!  chain ──► Plan ──► sources ──► Keys ──► TokenSource: shared, renewed before they expire or when AWS rejects them
//!   │                   │                      │
//!   │                   └── STS, container,    └──► Signer: endpoint, time, signature
//!   └── variables, files    metadata service              ▲ Clock: corrected when AWS rejects a time
//! ```

mod chain;
mod clock;
pub(crate) mod metadata;
mod signer;
mod sources;
mod sts;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{BuildContext, Error, ErrorKind, Result};
use bowline_config::ConfigErrors;
use bowline_http::{IssuedToken, TokenSource};
use futures::FutureExt as _;
use jiff::Timestamp;

use crate::config::Config;
use crate::endpoints::Endpoints;
use chain::Chain;
use clock::Clock;

pub(crate) use metadata::Metadata;
pub(crate) use signer::Signer;
pub(crate) use sts::{API as STS, Sts};

/// Credentials for requests, with their source.
pub(crate) struct Keys {
    keys: bowline_http::sign::aws::Credentials,
    /// Source, for messages: `the environment`, `the role arn:…`.
    source: String,
}

type Issued = IssuedToken<Keys>;

/// Credentials from the chain of sources. Clones share the credentials.
#[derive(Clone)]
pub(crate) struct Credentials {
    keys: TokenSource<Keys>,
    clock: Clock,
}

/// Shortest time for which credentials are used. If this clock is wrong, or the metadata service shows old credentials, they must
/// not be read again for every call: AWS decides whether they are still valid.
const MIN_LIFETIME: Duration = Duration::from_secs(60);

impl Credentials {
    /// Creates credentials for the chain of sources. Makes no call.
    pub(crate) fn new(
        config: &Config,
        endpoints: &Endpoints,
        http: &bowline_http::Client,
        context: &BuildContext<'_>,
    ) -> std::result::Result<Credentials, ConfigErrors> {
        let clock = Clock::default();
        let chain = Arc::new(Chain::new(config, endpoints, http, context, clock.clone())?);
        let keys = TokenSource::new(move || {
            let chain = Arc::clone(&chain);
            async move { chain.issue().await }.boxed()
        });
        Ok(Credentials { keys, clock })
    }

    /// Creates credentials that never change.
    fn fixed(keys: bowline_http::sign::aws::Credentials, clock: Clock) -> Credentials {
        let keys = TokenSource::new(move || {
            let keys = Keys { keys: keys.clone(), source: String::new() };
            futures::future::ready(Ok(IssuedToken { token: keys, lifetime: None })).boxed()
        });
        Credentials { keys, clock }
    }

    /// Returns the source of the current credentials, for messages.
    pub(crate) async fn source(&self) -> Result<String> {
        self.keys.get().await.map(|keys| keys.source.clone())
    }

    /// Renews the credentials that AWS rejected. Returns whether there are others now.
    async fn renew(&self, rejected: &Arc<Keys>) -> Result<bool> {
        let current = self.keys.renew(|keys| std::ptr::eq(keys, Arc::as_ptr(rejected))).await?;
        Ok(!current.is_same(rejected))
    }
}

impl Keys {
    fn new(keys: bowline_http::sign::aws::Credentials, source: impl Into<String>) -> Keys {
        Keys { keys, source: source.into() }
    }

    fn is_same(&self, other: &Keys) -> bool {
        let parts = |keys: &Keys| {
            let keys = keys.keys.clone();
            (keys.access_key_id, keys.secret_access_key, keys.session_token)
        };
        parts(self) == parts(other)
    }

    /// Returns the credentials as issued at this time, with the expiry that the source reported.
    fn issued(self, expiry: Option<Timestamp>, now: Timestamp) -> Issued {
        let lifetime = expiry.map(|expiry| Duration::try_from(expiry.duration_since(now)).unwrap_or_default());
        IssuedToken { token: self, lifetime: lifetime.map(|lifetime| lifetime.max(MIN_LIFETIME)) }
    }
}

/// Creates an error of the configuration of credentials. A change of the environment may fix it.
fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, OPERATION, message).retry(bowline_cloud::Retry::Backoff)
}

const OPERATION: &str = "read AWS credentials";
