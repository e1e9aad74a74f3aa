//! Barbican calls, which check that a certificate exists.

use bowline_cloud::Error;
use http::Method;

use crate::session::{Service, Session};

const CONTAINERS: &str = "containers";
const SECRETS: &str = "secrets";

/// Certificate of a TLS reference, by ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored<'a> {
    /// A container: certificate, private key and CA certificates as several secrets.
    Container(&'a str),
    /// One secret with all of them.
    Secret(&'a str),
}

impl<'a> Stored<'a> {
    /// Parses the last two segments of a reference; `None` if it is another kind of resource.
    pub(crate) fn parse(reference: &'a str) -> Option<Stored<'a>> {
        let mut segments = reference.rsplit('/');
        let (id, kind) = (segments.next().filter(|id| !id.is_empty())?, segments.next()?);
        match kind {
            CONTAINERS => Some(Stored::Container(id)),
            SECRETS => Some(Stored::Secret(id)),
            _ => None,
        }
    }
}

/// Fails if it does not exist.
pub(crate) async fn exists(session: &Session, what: Stored<'_>) -> Result<(), Error> {
    let (name, kind, id) = match what {
        Stored::Container(id) => ("container_get", CONTAINERS, id),
        Stored::Secret(id) => ("secret_get", SECRETS, id),
    };
    session.call(name, Service::KeyManager, Method::GET, &[kind, id]).send().await
}
