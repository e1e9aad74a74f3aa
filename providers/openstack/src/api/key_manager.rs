//! What Barbican says: whether something is there.

use bowline_cloud::Error;
use http::Method;

use crate::session::{Service, Session};

const CONTAINERS: &str = "containers";
const SECRETS: &str = "secrets";

/// What a TLS reference leads to, by its ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored<'a> {
    /// Several secrets together: a certificate, its key, those who vouch for it.
    Container(&'a str),
    /// One, with all of that in it.
    Secret(&'a str),
}

impl<'a> Stored<'a> {
    /// The last two segments of a reference say it; `None` if they lead to something else.
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

/// Whether there is such a thing, by an error if there is not.
pub(crate) async fn exists(session: &Session, what: Stored<'_>) -> Result<(), Error> {
    let (name, kind, id) = match what {
        Stored::Container(id) => ("container_get", CONTAINERS, id),
        Stored::Secret(id) => ("secret_get", SECRETS, id),
    };
    session.call(name, Service::KeyManager, Method::GET, &[kind, id]).done().await
}
