//! Access control: authentication, then authorization.

use bowline_runtime::Shutdown;
use http::{HeaderMap, StatusCode, Uri};
use rustls::pki_types::CertificateDer;

use crate::answer::{self, Answer};
use crate::authentication::Authenticator;
use crate::authorization::{Authorizer, Decision};
use crate::router::IncomingRequest;
use crate::user::User;

/// Authenticates and authorizes requests.
pub struct AccessControl(Option<(Authenticator, Authorizer)>);

impl AccessControl {
    /// Admits every request as the anonymous user.
    pub fn open() -> AccessControl {
        AccessControl(None)
    }

    /// Admits the requests that the authenticator and the authorizer accept.
    pub fn protected(authenticator: Authenticator, authorizer: Authorizer) -> AccessControl {
        AccessControl(Some((authenticator, authorizer)))
    }

    /// Returns the user of an authorized request, or the 401, 403 or 500 response.
    pub(crate) async fn admit(
        &self,
        request: &IncomingRequest,
        uri: &Uri,
        certificates: &[CertificateDer<'static>],
    ) -> Result<User, Box<Answer>> {
        let Some((authenticator, authorizer)) = &self.0 else { return Ok(User::anonymous()) };
        let user = authenticator.authenticate(&request.path, &request.headers, certificates).await;
        let user = user.map_err(|error| {
            tracing::warn!(%error, "Unable to authenticate the request");
            Box::new(answer::unauthorized(&request.headers))
        })?;
        let verb = request.method.as_str().to_ascii_lowercase();
        match authorizer.authorize(&user, &verb, &request.path).await {
            Ok(Decision::Allow) => Ok(user),
            Ok(Decision::NoOpinion(reason)) => Err(Box::new(forbidden(&user, &verb, request, &reason))),
            Err(error) => {
                tracing::error!(path = request.path, error, "cannot authorize the request");
                let path_and_query = uri.path_and_query().map_or("/", |path| path.as_str());
                let message = format!("Internal Server Error: {path_and_query:?}: {error}");
                Err(Box::new(answer::failure(StatusCode::INTERNAL_SERVER_ERROR, &answer::escape_html(&message))))
            }
        }
    }

    /// Removes the credentials from the request: no handler needs them.
    pub(crate) fn remove_credentials(&self, headers: &mut HeaderMap) {
        headers.remove(http::header::AUTHORIZATION);
        if let Some((authenticator, _)) = &self.0 {
            authenticator.remove_credentials(headers);
        }
    }

    /// Reloads certificate authorities and settings until shutdown is requested.
    pub(crate) async fn keep_up_to_date(&self, shutdown: Shutdown) {
        if let Some((authenticator, _)) = &self.0 {
            shutdown.or(authenticator.keep_up_to_date()).await;
        }
    }
}

/// upstream: this wording.
fn forbidden(user: &User, verb: &str, request: &IncomingRequest, reason: &str) -> Answer {
    let message = answer::escape_html(&format!("User {:?} cannot {verb} path {:?}", user.name, request.path));
    let message = if reason.is_empty() { message } else { format!("{message}: {reason}") };
    answer::forbidden(&message, &request.headers)
}
