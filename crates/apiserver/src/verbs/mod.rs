//! The verbs: one module per verb, generic over the resource.

mod create;
mod delete;
mod list;
mod patch;
mod special;
mod update;
mod watch;
mod write;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::Value;

pub(crate) use delete::{DeleteOptions, Deleted, Propagation, delete_object};
#[cfg(test)]
pub(crate) use list::ContinueToken;
pub(crate) use write::{UpdateError, create_object, now, update_object};

use crate::auth::User;
use crate::go_text;
use crate::http::negotiate::{Negotiated, Offer};
use crate::http::path::ResourcePath;
use crate::http::query::Query;
use crate::http::respond::{self, Body, Object, ResponseContent};
use crate::limits::Client;
use crate::resources::{Resource, WriteCx};
use crate::state::State;
use crate::status::{ApiError, ApiResult};
use crate::store::Stored;
use crate::validation;

/// A resource request that is authenticated and authorised and whose body is read.
pub(crate) struct Call {
    pub(crate) state: Arc<State>,
    pub(crate) path: ResourcePath,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) user: User,
    pub(crate) body: Bytes,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
    /// Whether a fault rule truncates the watch in the middle of a line.
    pub(crate) truncate_watch: bool,
}

/// The API verb of a method on a path, as in authorization.
pub(crate) fn verb_of(method: &Method, path: &ResourcePath, query: &Query) -> ApiResult<&'static str> {
    let collection = path.name.is_empty();
    let verb = match *method {
        Method::GET if path.watch || (collection && query.flag("watch")) => "watch",
        Method::GET if collection => "list",
        Method::GET => "get",
        Method::POST if collection || path.subresource.is_some() => "create",
        Method::PUT if !collection => "update",
        Method::PATCH if !collection => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => return Err(ApiError::method_not_allowed()),
    };
    if path.watch && verb != "watch" {
        return Err(ApiError::method_not_allowed());
    }
    let offered = match path.subresource {
        Some(sub) => sub.verbs.contains(&verb),
        None => path.resource.allows(verb),
    };
    let all_namespaces = path.resource.namespaced && path.namespace.is_empty();
    if !offered || (all_namespaces && !matches!(verb, "list" | "watch")) {
        return Err(ApiError::method_not_allowed());
    }
    Ok(verb)
}

impl Call {
    pub(crate) fn resource(&self) -> &'static Resource {
        self.path.resource
    }

    /// Runs the verb. Returns the response and the texts for `Warning` headers.
    pub(crate) async fn run(
        mut self,
        verb: &'static str,
        client: &Client<'_>,
    ) -> (ApiResult<Response<Body>>, Vec<String>) {
        let outcome = match verb {
            "watch" => watch::watch(&mut self).await,
            "get" | "list" | "deletecollection" => self.read(verb).await,
            _ => {
                let weight = self.weight();
                let work = move || (self.write(verb), self.warnings);
                return client.work(weight, work).await.unwrap_or_else(|rejected| (Err(rejected), Vec::new()));
            }
        };
        (outcome, self.warnings)
    }

    /// Approximate cost of a write: the size of the body and of the stored object.
    fn weight(&self) -> usize {
        let stored = if self.resource().is_virtual() { None } else { self.stored() };
        self.body.len() + stored.map_or(0, |stored| stored.size())
    }

    async fn read(&mut self, verb: &str) -> ApiResult<Response<Body>> {
        let offer = if verb == "list" { Offer::List } else { Offer::Object };
        let negotiated = Negotiated::negotiate(&self.headers, &self.query, offer)?;
        self.check_name()?;
        let content = match (verb, self.path.subresource) {
            (_, Some(sub)) if special::handles(sub.name) => special::run(self, sub.name, verb)?,
            ("list", _) => list::list(self).await?,
            ("deletecollection", _) => delete::delete_collection(self).await?,
            _ => list::get(self).await?,
        };
        self.respond(&negotiated, content)
    }

    fn write(&mut self, verb: &str) -> ApiResult<Response<Body>> {
        let negotiated = Negotiated::negotiate(&self.headers, &self.query, Offer::Object)?;
        self.check_name()?;
        let content = match (verb, self.path.subresource) {
            (_, Some(sub)) if special::handles(sub.name) => special::run(self, sub.name, verb)?,
            ("create", _) => create::create(self)?,
            ("update", _) => update::update(self)?,
            ("patch", _) => patch::patch(self)?,
            ("delete", _) => delete::delete(self)?,
            _ => return Err(ApiError::method_not_allowed()),
        };
        self.respond(&negotiated, content)
    }

    fn respond(&self, negotiated: &Negotiated, content: ResponseContent) -> ApiResult<Response<Body>> {
        let include = negotiated.include(&self.query)?;
        respond::to_response(self.resource(), negotiated, include, &self.headers, content)
    }

    /// Rejects names that are not valid path segments.
    fn check_name(&self) -> ApiResult<()> {
        let name = self.path.name.as_str();
        let errors = validation::path_segment(name, false);
        if errors.is_empty() {
            return Ok(());
        }
        let message = format!("Name parameter invalid: {}: {}", go_text::quote(name), errors.join(";"));
        Err(ApiError::bad_request(message))
    }

    fn stored(&self) -> Option<Arc<Stored>> {
        self.state.store.get(self.resource().storage, &self.path.namespace, &self.path.name)
    }

    fn stored_or_404(&self) -> ApiResult<Arc<Stored>> {
        self.stored().ok_or_else(|| ApiError::not_found(self.resource().named(), &self.path.name))
    }

    /// The object in the API version of this request's resource.
    fn to_view(&self, stored: &Stored) -> Value {
        match self.resource().view {
            Some(view) => (view.from_stored)(stored.value()),
            None => stored.value(),
        }
    }

    fn subresource_name(&self) -> Option<&'static str> {
        self.path.subresource.map(|s| s.name)
    }

    /// The field manager: the given one, or the User-Agent up to the first slash.
    fn manager(&self, given: Option<&str>) -> String {
        const MAX_LENGTH: usize = 128;
        match given {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => {
                let agent = self.headers.get(http::header::USER_AGENT).map(http::HeaderValue::as_bytes);
                let agent = String::from_utf8_lossy(agent.unwrap_or_default());
                let mut name: String = agent.chars().take_while(|c| *c != '/').filter(|c| !c.is_control()).collect();
                name.truncate(name.floor_char_boundary(MAX_LENGTH));
                name
            }
        }
    }

    fn writer<'a>(&'a self, manager: &'a str, dry_run: bool) -> WriteCx<'a> {
        WriteCx {
            state: &self.state,
            resource: self.resource(),
            subresource: self.subresource_name(),
            namespace: &self.path.namespace,
            user: &self.user,
            manager,
            dry_run,
        }
    }
}

fn ok(object: Object) -> ResponseContent {
    ResponseContent::Object { code: StatusCode::OK, object }
}

fn created(object: Object) -> ResponseContent {
    ResponseContent::Object { code: StatusCode::CREATED, object }
}
