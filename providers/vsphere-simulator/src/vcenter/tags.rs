//! Categories, tags and the objects that they are attached to.

use std::collections::BTreeMap;

use bowline_simulator::Ids;
use serde_json::{Value, json};

use super::inventory::Reference;

/// All categories and tags.
#[derive(Default)]
pub(super) struct Tags {
    /// Categories by ID.
    pub(super) categories: BTreeMap<String, Value>,
    /// Tags by ID.
    pub(super) tags: BTreeMap<String, Value>,
    /// IDs of the tags of each object, in the order of attachment.
    attached: BTreeMap<Reference, Vec<String>>,
}

impl Tags {
    /// Attaches a tag to an object. Creates the tag and its category if they do not exist.
    pub(super) fn attach(&mut self, ids: &mut Ids, category: &str, name: &str, object: &Reference) -> String {
        let tag = self.tag(ids, category, name);
        let attached = self.attached.entry(object.clone()).or_default();
        if !attached.contains(&tag) {
            attached.push(tag.clone());
        }
        tag
    }

    /// ID of a tag. Creates the tag and its category if they do not exist.
    pub(super) fn tag(&mut self, ids: &mut Ids, category: &str, name: &str) -> String {
        let category = self.category(ids, category);
        let is_same = |tag: &Value| tag["name"] == name && tag["category_id"] == *category;
        if let Some((id, _)) = self.tags.iter().find(|(_, tag)| is_same(tag)) {
            return id.clone();
        }
        let id = format!("urn:vmomi:InventoryServiceTag:{}:GLOBAL", ids.uuid());
        let tag = json!({"id": id, "category_id": category, "name": name, "description": "", "used_by": []});
        self.tags.insert(id.clone(), tag);
        id
    }

    fn category(&mut self, ids: &mut Ids, name: &str) -> String {
        if let Some((id, _)) = self.categories.iter().find(|(_, category)| category["name"] == name) {
            return id.clone();
        }
        let id = format!("urn:vmomi:InventoryServiceCategory:{}:GLOBAL", ids.uuid());
        let category = json!({
            "id": id, "name": name, "description": "", "cardinality": "MULTIPLE", "associable_types": [], "used_by": [],
        });
        self.categories.insert(id.clone(), category);
        id
    }

    /// IDs of the tags in a category.
    pub(super) fn in_category<'a>(&'a self, category: &'a str) -> impl Iterator<Item = &'a String> {
        self.tags.iter().filter(move |(_, tag)| tag["category_id"] == *category).map(|(id, _)| id)
    }

    /// Detaches a tag from an object.
    pub(super) fn detach(&mut self, tag: &str, object: &Reference) {
        self.attached.get_mut(object).into_iter().for_each(|tags| tags.retain(|known| known != tag));
    }

    /// Deletes a tag.
    pub(super) fn delete(&mut self, tag: &str) {
        self.tags.remove(tag);
        self.attached.values_mut().for_each(|tags| tags.retain(|known| known != tag));
    }

    /// Tags of an object.
    pub(super) fn of(&self, object: &Reference) -> &[String] {
        self.attached.get(object).map_or(&[], Vec::as_slice)
    }
}
