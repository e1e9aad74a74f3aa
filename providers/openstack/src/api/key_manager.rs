//! What Barbican says: whether something is there.

use http::Method;

use crate::session::{CallError, Service, Session};

/// What a TLS reference may lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Several secrets together: a certificate, its key, those who vouch for it.
    Container,
    /// One, with all of that in it.
    Secret,
}

/// Whether there is such a thing, by an error if there is not.
pub(crate) async fn exists(session: &Session, what: Stored, id: &str) -> Result<(), CallError> {
    let (name, kind) = match what {
        Stored::Container => ("container_get", "containers"),
        Stored::Secret => ("secret_get", "secrets"),
    };
    session.call(name, Service::KeyManager, Method::GET, &[kind, id]).done().await
}
