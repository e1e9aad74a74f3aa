//! Tags of objects, from the REST API.
//!
//! ```text
//!  objects ──list-attached-tags-on-objects, one call──► tag IDs ──TagNames──► names of those in the wanted categories
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_cloud::{Effect, Error, Result};
use bowline_http::{Api, CallBuilder};
use futures::stream::{self, StreamExt as _};
use http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::rest::{NOT_FOUND, RestErrors, RestSession, value_of};
use super::session::Session;
use super::tag_names::TagNames;
use crate::metrics::Metrics;
use crate::soap::ManagedObject;

/// Maximum number of objects in one batch. The body of the request stays below 1 MB.
const BATCH: usize = 10_000;

/// Maximum number of concurrent calls for single objects or tags.
pub(super) const PARALLEL: usize = 8;

const LIST_BATCH: &str = "list_attached_tags_on_objects";
const LIST_ONE: &str = "list_attached_tags";

/// Tags of one vCenter. Clones share session and cache.
#[derive(Clone)]
pub(crate) struct Tagging(Arc<Shared>);

struct Shared {
    api: TagApi,
    session: RestSession,
    /// The vCenter does not have the batch form.
    has_no_batch: AtomicBool,
    /// Objects that make a batch fail, with their errors.
    offending: Cache<ManagedObject, Error>,
    names: TagNames,
}

/// Tags in the wanted categories on each object, or the reason why they cannot be listed or read. Objects without tags may be missing.
pub(crate) type Tagged = HashMap<ManagedObject, Result<Vec<Tag>>>;

/// IDs of the tags on each object, or the reason why they cannot be listed.
type Attached = HashMap<ManagedObject, Result<Vec<String>>>;

/// A tag with the name of its category.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tag {
    pub name: String,
    pub category: String,
}

/// Calls of the tagging service.
#[derive(Clone)]
pub(super) struct TagApi {
    api: Api,
    metrics: Metrics,
}

// ---- wire format

#[derive(Serialize, Deserialize)]
struct ObjectId {
    id: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct ObjectTags {
    object_id: ObjectId,
    #[serde(default)]
    tag_ids: Option<Vec<String>>,
}

impl ObjectId {
    fn of(object: &ManagedObject) -> ObjectId {
        ObjectId { id: object.id.clone(), kind: object.kind.clone() }
    }

    fn into_object(self) -> ManagedObject {
        ManagedObject { kind: self.kind, id: self.id }
    }
}

// ---- calls

impl TagApi {
    /// Creates a call; `path` is that below the service.
    pub(super) fn call(&self, name: &'static str, method: Method, path: &[&str]) -> CallBuilder<'_> {
        let path = [&["rest", "com", "vmware", "cis", "tagging"], path].concat();
        self.api.call(name, method, &path)
    }

    /// Sends a call that only reads, and returns its result.
    pub(super) async fn value<T: DeserializeOwned>(&self, name: &str, call: CallBuilder<'_>) -> Result<T> {
        let call = call.effect(Effect::Read);
        value_of(&self.metrics.request(name, call.send()).await?)
    }

    fn association(&self, name: &'static str, action: &str) -> CallBuilder<'_> {
        self.call(name, Method::POST, &["tag-association"]).raw_query(action)
    }
}

// ---- tags

impl Tagging {
    /// `logins` is the API with one attempt for each call.
    pub(super) fn new(api: Api, logins: Api, soap: &Session, metrics: &Metrics) -> Tagging {
        let session = RestSession::new(api.errors(RestErrors), logins.errors(RestErrors), soap);
        let api = TagApi { api: session.api(), metrics: metrics.clone() };
        let (has_no_batch, offending) = Default::default();
        Tagging(Arc::new(Shared { names: TagNames::new(api.clone()), api, session, has_no_batch, offending }))
    }

    /// Returns the tags in the wanted categories on objects.
    pub(crate) async fn tags(&self, objects: &[ManagedObject], wanted: &[&str]) -> Result<Tagged> {
        let attached = self.attached(objects).await?;
        let ids: BTreeSet<&str> = attached.values().flatten().flatten().map(String::as_str).collect();
        let tags = self.0.names.resolve(ids, wanted).await;
        let named = |id: &String| tags.get(id.as_str()).cloned().unwrap_or(Ok(None)).transpose();
        let tagged = attached.iter().map(|(object, ids)| {
            let tags = ids.as_ref().map_err(Error::clone).and_then(|ids| ids.iter().filter_map(named).collect());
            (object.clone(), tags)
        });
        Ok(tagged.collect())
    }

    /// Returns the IDs of the tags on objects.
    async fn attached(&self, objects: &[ManagedObject]) -> Result<Attached> {
        let (mut attached, mut others) = (Attached::new(), Vec::with_capacity(objects.len()));
        for object in objects {
            match self.0.offending.get(object) {
                Some(error) => _ = attached.insert(object.clone(), Err(error)),
                None => others.push(object.clone()),
            }
        }
        for batch in others.chunks(BATCH) {
            attached.extend(self.attached_to(batch).await?);
        }
        Ok(attached)
    }

    async fn attached_to(&self, objects: &[ManagedObject]) -> Result<Attached> {
        if self.0.has_no_batch.load(Ordering::Relaxed) {
            return self.attached_one_by_one(objects).await;
        }
        match self.attached_in_batch(objects).await {
            Err(error) if lacks_batch(&error) => {
                let attached = self.attached_one_by_one(objects).await?;
                tracing::info!(%error, "the vCenter does not list tags of several objects at once");
                self.0.has_no_batch.store(true, Ordering::Relaxed);
                Ok(attached)
            }
            // One of the objects was deleted, or the account has no permission on it.
            Err(error) if is_about_an_object(&error) => self.attached_one_by_one(objects).await,
            outcome => outcome,
        }
    }

    async fn attached_in_batch(&self, objects: &[ManagedObject]) -> Result<Attached> {
        #[derive(Serialize)]
        struct Batch {
            object_ids: Vec<ObjectId>,
        }
        let call = self.0.api.association(LIST_BATCH, "~action=list-attached-tags-on-objects");
        let call = call.json(&Batch { object_ids: objects.iter().map(ObjectId::of).collect() });
        let found: Option<Vec<ObjectTags>> = self.0.api.value(LIST_BATCH, call).await?;
        let found = found.unwrap_or_default().into_iter();
        Ok(found.map(|one| (one.object_id.into_object(), Ok(one.tag_ids.unwrap_or_default()))).collect())
    }

    /// Makes one call for each object, and remembers those that fail: they must not spoil the next batch. Fails if none succeeds.
    async fn attached_one_by_one(&self, objects: &[ManagedObject]) -> Result<Attached> {
        let calls: Vec<_> = objects.iter().map(|object| self.attached_to_one(object)).collect();
        let listed: Vec<_> = stream::iter(calls).buffered(PARALLEL).collect().await;
        for (object, outcome) in objects.iter().zip(&listed) {
            if let Err(error) = outcome.as_ref()
                && is_about_an_object(error)
            {
                self.0.offending.insert(object.clone(), error.clone());
            }
        }
        match listed.first() {
            Some(Err(error)) if listed.iter().all(Result::is_err) => Err(error.clone()),
            _ => Ok(objects.iter().cloned().zip(listed).collect()),
        }
    }

    async fn attached_to_one(&self, object: &ManagedObject) -> Result<Vec<String>> {
        #[derive(Serialize)]
        struct One {
            object_id: ObjectId,
        }
        let call = self.0.api.association(LIST_ONE, "~action=list-attached-tags");
        let call = call.json(&One { object_id: ObjectId::of(object) });
        Ok(self.0.api.value::<Option<Vec<String>>>(LIST_ONE, call).await?.unwrap_or_default())
    }

    /// Returns the names of all categories that the account can see.
    pub(crate) async fn categories(&self) -> Result<Vec<String>> {
        let categories = self.0.names.categories().await?;
        // One may have been deleted meanwhile.
        let existing = categories.into_values().filter(|name| !name.as_ref().is_err_and(Error::is_not_found));
        existing.collect()
    }

    /// Makes the smallest call, to see whether the service answers.
    pub(super) async fn probe(&self) -> Result<()> {
        self.0.session.probe().await
    }

    /// Closes the session, if one is open.
    pub(crate) async fn close(&self) {
        self.0.session.close().await;
    }
}

/// Returns whether the vCenter does not know the batch form.
fn lacks_batch(error: &Error) -> bool {
    is_of_list(error) && matches!(error.status(), Some(404 | 405 | 501)) && error.code() != Some(NOT_FOUND)
}

/// Returns whether an error may be that of a single object.
fn is_about_an_object(error: &Error) -> bool {
    is_of_list(error) && matches!(error.status(), Some(400 | 403 | 404))
}

/// Returns whether an error is that of the call itself. The login before it may fail with any status as well.
fn is_of_list(error: &Error) -> bool {
    matches!(error.operation(), LIST_BATCH | LIST_ONE)
}
