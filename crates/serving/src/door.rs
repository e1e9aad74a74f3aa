//! Who gets in: first who they are, then whether they may.

use bowline_runtime::Shutdown;
use http::{HeaderMap, StatusCode, Uri};
use rustls::pki_types::CertificateDer;

use crate::answer::{self, Answer};
use crate::authentication::Authenticator;
use crate::authorization::{Authorizer, Decision};
use crate::site::IncomingRequest;
use crate::user::User;

/// Lets people in, or not.
pub struct AccessControl(Option<(Authenticator, Authorizer)>);

impl AccessControl {
    /// Everybody gets in, as somebody unknown.
    pub fn open() -> AccessControl {
        AccessControl(None)
    }

    /// Whoever these let in.
    pub fn protected(authenticator: Authenticator, authorizer: Authorizer) -> AccessControl {
        AccessControl(Some((authenticator, authorizer)))
    }

    /// Who is asking, if they may; else what they are told.
    pub(crate) async fn admit(
        &self,
        asked: &IncomingRequest,
        uri: &Uri,
        shown: &[CertificateDer<'static>],
    ) -> Result<User, Box<Answer>> {
        let Some((authenticator, authorizer)) = &self.0 else { return Ok(User::anonymous()) };
        let user = authenticator.who(&asked.headers, shown).await.map_err(|error| {
            tracing::warn!(%error, "somebody did not prove who they are");
            Box::new(answer::unauthorized(&asked.headers))
        })?;
        let verb = asked.method.as_str().to_ascii_lowercase();
        match authorizer.may(&user, &verb, &asked.path).await {
            Ok(Decision::Allow) => Ok(user),
            Ok(Decision::NoOpinion(reason)) => Err(Box::new(refusal(&user, &verb, asked, &reason))),
            Err(error) => {
                tracing::error!(path = asked.path, error, "cannot find out who may do what");
                let asked_for = uri.path_and_query().map_or("/", |path| path.as_str());
                let message = format!("Internal Server Error: {asked_for:?}: {error}");
                Err(Box::new(answer::failure(StatusCode::INTERNAL_SERVER_ERROR, &answer::harmless(&message))))
            }
        }
    }

    /// Takes away what proved who is asking: no handler needs it.
    pub(crate) fn hide_who(&self, headers: &mut HeaderMap) {
        headers.remove(http::header::AUTHORIZATION);
        if let Some((authenticator, _)) = &self.0 {
            authenticator.hide_proxy(headers);
        }
    }

    /// Keeps what it goes by up to date until shutdown is requested.
    pub(crate) async fn keep_fresh(&self, shutdown: Shutdown) {
        if let Some((authenticator, _)) = &self.0 {
            shutdown.or(authenticator.keep_fresh()).await;
        }
    }
}

/// upstream: these words.
fn refusal(user: &User, verb: &str, asked: &IncomingRequest, reason: &str) -> Answer {
    let message = answer::harmless(&format!("User {:?} cannot {verb} path {:?}", user.name, asked.path));
    let message = if reason.is_empty() { message } else { format!("{message}: {reason}") };
    answer::forbidden(&message, &asked.headers)
}
