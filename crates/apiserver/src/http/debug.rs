//! Debug endpoints under `/debug/`, for tests.
//!
//! | request | effect |
//! |---|---|
//! | `POST /debug/compact` | compacts the watch history up to the current revision |
//! | `POST /debug/cut-watches` | closes all watches |
//! | `GET /debug/faults` | lists the fault rules |
//! | `POST /debug/faults` | adds a rule (JSON) |
//! | `DELETE /debug/faults` | removes all rules |
//! | `GET /debug/requests` | lists the latest resource requests, oldest first |
//! | `POST /debug/seed` | seeds the random number generator of the rules (a JSON number) |

use http::{Method, Response, StatusCode};
use serde::de::DeserializeOwned;

use super::non_resource::not_found;
use super::respond::{Body, text_response};
use crate::faults::FaultRule;
use crate::state::State;
use crate::status::{ApiError, ApiResult};

pub(super) fn serve(state: &State, method: &Method, path: &str, body: &[u8]) -> ApiResult<Response<Body>> {
    match (method, path) {
        (&Method::POST, "/debug/compact") => state.store.compact(),
        (&Method::POST, "/debug/cut-watches") => state.cut_watches(),
        (&Method::POST, "/debug/faults") => state.faults.add(parse::<FaultRule>(body)?),
        (&Method::DELETE, "/debug/faults") => state.faults.clear(),
        (&Method::POST, "/debug/seed") => state.faults.seed(parse(body)?),
        (&Method::GET, "/debug/faults") => {
            let rules = serde_json::to_string(&state.faults.list()).unwrap_or_default();
            return Ok(text_response(StatusCode::OK, rules));
        }
        (&Method::GET, "/debug/requests") => {
            let entries = serde_json::to_string(&state.journal.entries()).unwrap_or_default();
            return Ok(text_response(StatusCode::OK, entries));
        }
        (_, "/debug/compact" | "/debug/cut-watches" | "/debug/faults" | "/debug/requests" | "/debug/seed") => {
            return Err(ApiError::method_not_allowed());
        }
        _ => return Ok(not_found()),
    }
    Ok(text_response(StatusCode::OK, "ok"))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> ApiResult<T> {
    serde_json::from_slice(body).map_err(|e| ApiError::bad_request(format!("invalid request body: {e}")))
}
