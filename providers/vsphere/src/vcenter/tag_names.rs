//! Names of tags and of their categories.
//!
//! ```text
//!  few unknown tags ───────────────────────────────────────────────► tag ──► category
//!  many ──► all categories ──► tags of the wanted ones: the others ─┘        (each cached)
//!                              do not matter
//! ```
//!
//! Machines may have many tags of other categories, such as one of a backup tool on each. These are not read one by one.

use std::collections::{BTreeSet, HashMap, HashSet};

use bowline_cloud::{Error, Result};
use futures::stream::{self, StreamExt as _};
use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::cache::Cache;
use super::tagging::{PARALLEL, Tag, TagApi};

/// Maximum number of unknown tags that are read one by one, without the list of categories: a zone and a region, each old and new.
const FEW: usize = 4;

/// Names of tags and categories.
pub(super) struct TagNames {
    api: TagApi,
    /// Tags by ID; `None` for those of other categories than the wanted ones, which are always the same.
    tags: Cache<String, Option<Tag>>,
    categories: Cache<String, String>,
}

/// Tags by ID, or the reason why one cannot be read.
pub(super) type Resolved<'a> = HashMap<&'a str, Result<Option<Tag>>>;

#[derive(Deserialize)]
struct TagModel {
    name: String,
    category_id: String,
}

#[derive(Deserialize)]
struct CategoryModel {
    name: String,
}

impl TagNames {
    pub(super) fn new(api: TagApi) -> TagNames {
        TagNames { api, tags: Cache::default(), categories: Cache::default() }
    }

    /// Returns the tags with these IDs; `None` for those that are in none of the wanted categories.
    pub(super) async fn resolve<'a>(&self, ids: BTreeSet<&'a str>, wanted: &[&str]) -> Resolved<'a> {
        let (mut resolved, mut unknown) = (Resolved::new(), Vec::new());
        for id in ids {
            match self.tags.get(&id.to_owned()) {
                Some(tag) => _ = resolved.insert(id, Ok(tag)),
                None => unknown.push(id),
            }
        }
        match self.relevant(unknown.clone(), wanted).await {
            Ok(relevant) => {
                let others = unknown.into_iter().filter(|id| !relevant.contains(id));
                resolved.extend(others.map(|id| (id, self.tags.record(id.to_owned(), Ok(None)))));
                let read = self.read(&relevant, wanted).await;
                resolved.extend(read.into_iter().map(|(id, tag)| (id, self.tags.record(id.to_owned(), tag))));
            }
            Err(error) => {
                let old = unknown.into_iter().map(|id| (id, self.tags.extend(&id.to_owned(), error.clone())));
                resolved.extend(old);
            }
        }
        resolved
    }

    /// Returns those of the tags that may be in a wanted category.
    async fn relevant<'a>(&self, mut unknown: Vec<&'a str>, wanted: &[&str]) -> Result<Vec<&'a str>> {
        if unknown.len() > FEW {
            let members = self.members(wanted).await?;
            unknown.retain(|id| members.contains(*id));
        }
        Ok(unknown)
    }

    /// Returns the IDs of all tags in the wanted categories.
    async fn members(&self, wanted: &[&str]) -> Result<HashSet<String>> {
        let (mut found, mut error) = (Vec::new(), None);
        for (id, name) in self.categories().await? {
            match name {
                Ok(name) if wanted.contains(&name.as_str()) => found.push(id),
                Ok(_) => {}
                Err(unreadable) if unreadable.is_not_found() => {}
                Err(unreadable) => error = Some(unreadable),
            }
        }
        // A category that cannot be read matters only if it may be one of those that are missing.
        if let Some(error) = error.filter(|_| found.len() < wanted.len()) {
            return Err(error);
        }
        let lists: Vec<_> = stream::iter(found).map(|id| self.tags_in(id)).buffered(PARALLEL).collect().await;
        let lists: Vec<_> = lists.into_iter().collect::<Result<_>>()?;
        Ok(lists.into_iter().flatten().collect())
    }

    async fn tags_in(&self, category: String) -> Result<Vec<String>> {
        const NAME: &str = "list_tags_for_category";
        let call = self.api.call(NAME, Method::POST, &["tag", &format!("id:{category}")]);
        let call = call.raw_query("~action=list-tags-for-category");
        Ok(self.api.value::<Option<_>>(NAME, call).await?.unwrap_or_default())
    }

    /// Returns the names of all categories that the account can see, by ID.
    pub(super) async fn categories(&self) -> Result<HashMap<String, Result<String>>> {
        const NAME: &str = "list_categories";
        let call = self.api.call(NAME, Method::GET, &["category"]);
        let ids: Option<Vec<String>> = self.api.value(NAME, call).await?;
        Ok(self.names(ids.unwrap_or_default().into_iter().collect()).await)
    }

    /// Returns the names of these categories.
    async fn names(&self, categories: BTreeSet<String>) -> HashMap<String, Result<String>> {
        let reads = stream::iter(categories).map(async |id| {
            let name = match self.categories.get(&id) {
                Some(name) => Ok(name),
                None => {
                    let read = self.model::<CategoryModel>("get_category", "category", &id).await;
                    self.categories.record(id.clone(), read.map(|category| category.name))
                }
            };
            (id, name)
        });
        reads.buffered(PARALLEL).collect().await
    }

    /// Reads tags, and then their categories, each once.
    async fn read<'a>(&self, ids: &[&'a str], wanted: &[&str]) -> Vec<(&'a str, Result<Option<Tag>>)> {
        let reads: Vec<_> = ids.iter().map(|id| self.model::<TagModel>("get_tag", "tag", id)).collect();
        let tags: Vec<_> = stream::iter(reads).buffered(PARALLEL).collect().await;
        let categories = tags.iter().filter_map(|tag| Some(tag.as_ref().ok()?.category_id.clone())).collect();
        let names = self.names(categories).await;
        let named = |tag: TagModel| -> Result<Option<Tag>> {
            let Some(category) = names.get(&tag.category_id) else { return Ok(None) };
            let category = category.as_ref().map_err(Error::clone)?.clone();
            let is_wanted = wanted.contains(&category.as_str());
            Ok(is_wanted.then_some(Tag { name: tag.name, category }))
        };
        ids.iter().copied().zip(tags.into_iter().map(|tag| tag.and_then(named))).collect()
    }

    async fn model<T: DeserializeOwned>(&self, name: &'static str, kind: &str, id: &str) -> Result<T> {
        let call = self.api.call(name, Method::GET, &[kind, &format!("id:{id}")]);
        self.api.value(name, call).await
    }
}
