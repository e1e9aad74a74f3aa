//! Instance types: the names of flavors, which are cached.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::is_label_value;
use futures::stream::{self, StreamExt as _};

use super::lookup::PARALLEL;
use crate::OpenStack;
use crate::api::compute::{self, Flavor, FlavorRef};

/// Maximum number of flavors that are read one by one; more are listed.
const MAX_SINGLE_READS: usize = 3;

/// Instance types by flavor. Entries do not expire, because a flavor ID is never reused.
#[derive(Debug, Default)]
pub(crate) struct Flavors(Mutex<HashMap<String, String>>);

impl Flavors {
    fn get(&self, key: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn insert(&self, key: &str, flavor: &Flavor) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), type_of(flavor));
    }
}

/// Returns the flavor as a label value.
fn type_of(flavor: &Flavor) -> String {
    let name = if is_label_value(&flavor.name) { &flavor.name } else { &flavor.id };
    name.clone()
}

/// Returns the keys to read a flavor by, in order of preference. Empty if the server has its name.
fn keys(flavor: &FlavorRef) -> Vec<&str> {
    if has_label_name(flavor) {
        return Vec::new();
    }
    // upstream: a name that is not a label value is tried as an ID.
    [flavor.original_name.as_str(), flavor.id.as_str()].into_iter().filter(|key| !key.is_empty()).collect()
}

fn has_label_name(flavor: &FlavorRef) -> bool {
    !flavor.original_name.is_empty() && is_label_value(&flavor.original_name)
}

impl OpenStack {
    /// Reads the instance types of these flavors.
    pub(super) async fn read_types(&self, flavors: impl Iterator<Item = &FlavorRef>) -> Types<'_> {
        let unknown = |key: &&str| self.flavors.get(key).is_none();
        let mut keys: BTreeSet<String> = flavors.flat_map(keys).filter(unknown).map(str::to_owned).collect();
        if keys.len() > MAX_SINGLE_READS {
            self.read_listed(&mut keys).await;
        }
        let reads = stream::iter(keys).map(|key| async move {
            let failure = self.read_type(&key).await.err();
            failure.map(|error| (key, error))
        });
        let failures = reads.buffer_unordered(PARALLEL).filter_map(async |failure| failure).collect().await;
        Types { known: &self.flavors, failures }
    }

    /// Removes listed flavors from `keys`. An unlisted one may exist nevertheless: private flavors are hidden, and a failed listing
    /// does no harm.
    async fn read_listed(&self, keys: &mut BTreeSet<String>) {
        let listed = compute::flavors(&self.session).await;
        for flavor in listed.inspect_err(|error| tracing::debug!(%error, "could not list flavors")).unwrap_or_default()
        {
            if keys.remove(&flavor.id) {
                self.flavors.insert(&flavor.id, &flavor);
            }
        }
    }

    async fn read_type(&self, key: &str) -> Result<()> {
        let flavor = compute::flavor(&self.session, key).await.map_err(|error| error.during("get flavor"))?;
        if flavor.id.is_empty() {
            let message = format!("Nova returned the flavor {key:?} without an ID");
            return Err(Error::new(ErrorKind::Unexpected, "get flavor", message));
        }
        self.flavors.insert(key, &flavor);
        Ok(())
    }
}

/// Known instance types, and errors of the others.
pub(super) struct Types<'a> {
    known: &'a Flavors,
    failures: BTreeMap<String, Error>,
}

impl Types<'_> {
    /// Returns the instance type of a server with this flavor.
    pub(super) fn of(&self, flavor: &FlavorRef) -> Result<String> {
        if has_label_name(flavor) {
            return Ok(flavor.original_name.clone());
        }
        if let Some(name) = keys(flavor).into_iter().find_map(|key| self.known.get(key)) {
            return Ok(name);
        }
        // The last key is the flavor ID, whose error is the relevant one.
        let failure = keys(flavor).last().and_then(|key| self.failures.get(*key)).cloned();
        Err(failure.unwrap_or_else(|| Error::new(ErrorKind::Unexpected, "get flavor", "the server has no flavor")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flavor(id: &str, name: &str) -> Flavor {
        Flavor { id: id.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn case_044_case_045_the_instance_type_is_the_flavor_name_if_that_is_a_label_value() {
        assert_eq!(type_of(&flavor("2004", "ug2.2xlarge")), "ug2.2xlarge");
        assert_eq!(type_of(&flavor("m4", "4 vCPU / 8 GB")), "m4");
    }

    #[test]
    fn a_name_that_is_no_label_value_is_tried_before_the_id() {
        let keys_of = |id: &str, original_name: &str| {
            let flavor = FlavorRef { id: id.to_owned(), original_name: original_name.to_owned() };
            keys(&flavor).join(", ")
        };
        assert_eq!(keys_of("7", ""), "7");
        assert_eq!(keys_of("", "m1.tiny"), "");
        assert_eq!(keys_of("7", "m1.tiny"), "");
        assert_eq!(keys_of("7", "4 vCPU"), "4 vCPU, 7");
    }

    #[test]
    fn an_empty_flavor_is_an_error() {
        let known = Flavors::default();
        let types = Types { known: &known, failures: BTreeMap::new() };
        assert_eq!(types.of(&FlavorRef::default()).unwrap_err().kind(), ErrorKind::Unexpected);
    }
}
