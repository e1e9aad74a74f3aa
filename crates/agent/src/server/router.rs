//! Finds the call of a request.

use std::sync::Arc;

use bowline_agent_client::Empty;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, header};
use serde::de::DeserializeOwned;

use super::access::{Access, Caller, authorize};
use super::{CLAIM_HEADER, Reply, calls, check_api_version, error_reply, ok};
use crate::error::AgentError;
use crate::group::Group;
use crate::group::peer_client::PeerClient;
use crate::state::Stored;
use crate::traffic::Traffic;

/// Everything that calls need.
pub(crate) struct Api {
    pub(crate) group: Arc<Group>,
    pub(crate) client: PeerClient,
    pub(crate) traffic: Arc<Traffic>,
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    FindBalancers,
    Owners,
    ChangeBalancer,
    ListRoutes,
    CreateRoute,
    DeleteRoute,
    Status,
    Beat,
    ReadState,
    UpdateState,
}

/// A call that the caller may make.
pub(super) struct Admitted {
    call: Call,
    /// Name of the caller.
    name: String,
}

impl Admitted {
    pub(super) fn is_peer(&self) -> bool {
        self.call == Call::UpdateState
    }
}

impl Call {
    const ALL: [(Method, &'static str, Call, Access); 10] = [
        (Method::POST, "/v1/balancers/find", Call::FindBalancers, Access::Client),
        (Method::POST, "/v1/balancers/owners", Call::Owners, Access::Client),
        (Method::POST, "/v1/balancers/change", Call::ChangeBalancer, Access::Client),
        (Method::POST, "/v1/routes/list", Call::ListRoutes, Access::Client),
        (Method::POST, "/v1/routes/create", Call::CreateRoute, Access::Client),
        (Method::POST, "/v1/routes/delete", Call::DeleteRoute, Access::Client),
        (Method::GET, "/v1/status", Call::Status, Access::Anyone),
        (Method::GET, "/v1/peer/beat", Call::Beat, Access::Read),
        (Method::GET, "/v1/peer/state", Call::ReadState, Access::Read),
        (Method::POST, "/v1/peer/state", Call::UpdateState, Access::Peer),
    ];

    fn find(method: &Method, path: &str) -> Result<(Call, Access), AgentError> {
        let at_path: Vec<_> = Call::ALL.iter().filter(|(_, known, ..)| *known == path).collect();
        if at_path.is_empty() {
            let mut paths: Vec<_> = Call::ALL.iter().map(|(_, path, ..)| *path).collect();
            paths.dedup();
            let message = format!("there is no path {path:?}; the paths are {}", paths.join(", "));
            return Err(AgentError::NoSuchPath(message));
        }
        let found = at_path.iter().find(|(known, ..)| known == method);
        found.map(|(_, _, call, access)| (*call, *access)).ok_or_else(|| {
            let methods: Vec<_> = at_path.iter().map(|(method, ..)| method.as_str()).collect();
            AgentError::WrongMethod(format!("method {method} is not allowed; use {}", methods.join(" or ")))
        })
    }
}

impl Api {
    /// Checks path, version and permission of a request.
    pub(super) fn admit(&self, caller: &Caller, head: &Parts) -> Result<Admitted, AgentError> {
        let (call, access) = Call::find(&head.method, head.uri.path())?;
        let name = authorize(&self.group.config, caller, access)?;
        // The status is for humans, too.
        if call != Call::Status {
            check_api_version(&head.headers, "client").map_err(AgentError::ApiVersion)?;
        }
        let kind = head.headers.get(header::CONTENT_TYPE).map_or("", |kind| kind.to_str().unwrap_or_default());
        if head.method == Method::POST && kind != "application/json" {
            return Err(AgentError::NotJson(format!("unsupported Content-Type {kind:?}; expected application/json")));
        }
        Ok(Admitted { call, name })
    }

    pub(super) async fn respond(&self, admitted: &Admitted, request: Request<Bytes>) -> Reply {
        self.answer(admitted, &request).await.unwrap_or_else(|error| error_reply(&error))
    }

    async fn answer(&self, admitted: &Admitted, request: &Request<Bytes>) -> Result<Reply, AgentError> {
        let body = request.body();
        match admitted.call {
            Call::FindBalancers => calls::find_balancers(self, parse(body)?).await,
            Call::Owners => calls::owners(self, parse(body)?).await,
            Call::ChangeBalancer => calls::change_balancer(self, parse(body)?).await,
            Call::ListRoutes => calls::list_routes(self, parse(body)?).await,
            Call::CreateRoute => calls::create_route(self, parse(body)?).await,
            Call::DeleteRoute => calls::delete_route(self, parse(body)?).await,
            Call::Status => ok(&self.status()),
            Call::Beat => {
                if let Some(claim) = request.headers().get(CLAIM_HEADER) {
                    let claim = serde_json::from_slice(claim.as_bytes());
                    let claim = claim.map_err(|error| AgentError::Invalid(format!("invalid claim: {error}")))?;
                    self.group.receive_claim(&admitted.name, claim);
                }
                ok(&self.group.beat())
            }
            Call::ReadState => {
                let state = self.group.inner().state.clone();
                ok(&Stored::from(&state))
            }
            Call::UpdateState => {
                self.group.accept(&admitted.name, parse(body)?).await?;
                ok(&Empty {})
            }
        }
    }
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, AgentError> {
    serde_json::from_slice(body).map_err(|error| AgentError::Invalid(format!("invalid body: {error}")))
}
