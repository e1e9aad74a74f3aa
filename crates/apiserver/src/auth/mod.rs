//! Who asks, and whether they may.

use serde_json::Value;

use crate::options::Options;
use crate::resources::Resource;
use crate::state::State;
use crate::status::{ApiError, ApiResult};

/// Somebody who was recognised.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: std::collections::BTreeMap<String, Vec<String>>,
}

/// What a request wants to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// `get`, `list`, `watch`, `create`, …; for paths the lower-case method.
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) version: String,
    /// Empty for a path.
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Set for requests that are not about a resource.
    pub(crate) path: String,
}

/// Keys, tokens and the rules' cache.
pub(crate) struct Auth;

impl Auth {
    pub(crate) fn new(_options: &Options) -> Auth {
        Auth
    }
}

/// Recognises the client by its certificate (DER, already verified against our CA) or its bearer token.
pub(crate) fn authenticate(_state: &State, certificate: Option<&[u8]>, authorization: Option<&str>) -> ApiResult<User> {
    match (certificate, authorization) {
        (Some(_), _) => Ok(User { name: "admin".into(), groups: vec!["system:masters".into()], ..User::default() }),
        _ => Err(ApiError::unauthorized()),
    }
}

/// Lets the request pass or answers 403.
pub(crate) fn authorize(_state: &State, _user: &User, _wants: &Attributes) -> ApiResult<()> {
    Ok(())
}

/// Answers the kinds that are only posted: token, access and self reviews. `review` is decoded and canonical.
pub(crate) fn review(
    _state: &State,
    _resource: &'static Resource,
    _namespace: &str,
    _user: &User,
    _review: Value,
) -> ApiResult<Value> {
    Err(ApiError::method_not_allowed())
}

/// Answers POST `serviceaccounts/NAME/token`.
pub(crate) fn request_token(
    _state: &State,
    _namespace: &str,
    _name: &str,
    _request: Value,
    _dry_run: bool,
) -> ApiResult<Value> {
    Err(ApiError::method_not_allowed())
}

/// Refuses to let somebody write a role or binding that grants rights they do not hold.
pub(crate) fn check_escalation(
    _state: &State,
    _resource: &'static Resource,
    _user: &User,
    _namespace: &str,
    _new: &Value,
    _old: Option<&Value>,
) -> ApiResult<()> {
    Ok(())
}

/// The roles and bindings every cluster starts with, as stored objects (kind, apiVersion, metadata.name, …).
pub(crate) fn bootstrap_objects() -> Vec<Value> {
    Vec::new()
}

/// `GET /.well-known/openid-configuration`.
pub(crate) fn openid_configuration(_state: &State) -> Value {
    Value::Null
}

/// `GET /openid/v1/jwks`.
pub(crate) fn jwks(_state: &State) -> Value {
    Value::Null
}
