//! What kind of machine a server is: the name of its flavor, which is asked for once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::is_label_value;
use futures::stream::{self, StreamExt as _};

use super::lookup::PARALLEL;
use crate::OpenStack;
use crate::api::compute::{self, Flavor, FlavorRef};

/// More flavors than this are listed, rather than asked for one by one.
const SINGLY: usize = 3;

/// Instance types by flavor. A flavor is never another one under the same ID, so that none is forgotten.
#[derive(Debug, Default)]
pub(crate) struct Flavors(Mutex<HashMap<String, String>>);

impl Flavors {
    fn get(&self, key: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn learn(&self, key: &str, flavor: &Flavor) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), type_of(flavor));
    }
}

/// What a flavor is called in a label.
fn type_of(flavor: &Flavor) -> String {
    let name = if is_label_value(&flavor.name) { &flavor.name } else { &flavor.id };
    name.clone()
}

/// What a server's flavor is asked for by, the better first. Empty if it says its name itself.
fn keys(flavor: &FlavorRef) -> Vec<&str> {
    if says_its_name(flavor) {
        return Vec::new();
    }
    // upstream: a name that is no label is tried as an ID.
    [flavor.original_name.as_str(), flavor.id.as_str()].into_iter().filter(|key| !key.is_empty()).collect()
}

fn says_its_name(flavor: &FlavorRef) -> bool {
    !flavor.original_name.is_empty() && is_label_value(&flavor.original_name)
}

impl OpenStack {
    /// The instance type of each of these flavors.
    pub(super) async fn learn_types(&self, flavors: impl Iterator<Item = &FlavorRef>) -> Types<'_> {
        let unknown = |key: &&str| self.flavors.get(key).is_none();
        let mut keys: BTreeSet<String> = flavors.flat_map(keys).filter(unknown).map(str::to_owned).collect();
        if keys.len() > SINGLY {
            self.learn_listed(&mut keys).await;
        }
        let asked = stream::iter(keys).map(|key| async move {
            let failure = self.learn_type(&key).await.err();
            failure.map(|error| (key, error))
        });
        let failures = asked.buffer_unordered(PARALLEL).filter_map(async |failure| failure).collect().await;
        Types { known: &self.flavors, failures }
    }

    /// Takes out of `keys` what a listing of flavors tells. One that is not listed may be there all the same: flavors of
    /// others are hidden, and one that cannot be listed is no loss.
    async fn learn_listed(&self, keys: &mut BTreeSet<String>) {
        let listed = compute::flavors(&self.session).await;
        for flavor in listed.inspect_err(|error| tracing::debug!(%error, "could not list flavors")).unwrap_or_default()
        {
            if keys.remove(&flavor.id) {
                self.flavors.learn(&flavor.id, &flavor);
            }
        }
    }

    async fn learn_type(&self, key: &str) -> Result<()> {
        let flavor = compute::flavor(&self.session, key).await.map_err(|error| error.during("get flavor"))?;
        if flavor.id.is_empty() {
            let message = format!("asked for the flavor {key:?}, Nova tells of one without an ID");
            return Err(Error::new(ErrorKind::Unexpected, "get flavor", message));
        }
        self.flavors.learn(key, &flavor);
        Ok(())
    }
}

/// What is known of flavors, and why nothing is known of others.
pub(super) struct Types<'a> {
    known: &'a Flavors,
    failures: BTreeMap<String, Error>,
}

impl Types<'_> {
    /// The instance type of a server with this flavor.
    pub(super) fn of(&self, flavor: &FlavorRef) -> Result<String> {
        if says_its_name(flavor) {
            return Ok(flavor.original_name.clone());
        }
        if let Some(name) = keys(flavor).into_iter().find_map(|key| self.known.get(key)) {
            return Ok(name);
        }
        // The last key is the one that should have worked.
        let failure = keys(flavor).last().and_then(|key| self.failures.get(*key)).cloned();
        Err(failure.unwrap_or_else(|| {
            Error::new(ErrorKind::Unexpected, "get flavor", "the server has no flavor that could be asked for")
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flavor(id: &str, name: &str) -> Flavor {
        Flavor { id: id.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn case_044_case_045_a_flavor_is_called_by_its_name_if_that_is_a_label() {
        assert_eq!(type_of(&flavor("2004", "ug2.2xlarge")), "ug2.2xlarge");
        assert_eq!(type_of(&flavor("m4", "4 vCPU / 8 GB")), "m4");
    }

    #[test]
    fn a_name_that_is_no_label_is_tried_before_the_id() {
        let told = |id: &str, original_name: &str| {
            let flavor = FlavorRef { id: id.to_owned(), original_name: original_name.to_owned() };
            keys(&flavor).join(", ")
        };
        assert_eq!(told("7", ""), "7");
        assert_eq!(told("", "m1.tiny"), "");
        assert_eq!(told("7", "m1.tiny"), "");
        assert_eq!(told("7", "4 vCPU"), "4 vCPU, 7");
    }

    #[test]
    fn a_flavor_that_says_nothing_is_an_error() {
        let known = Flavors::default();
        let types = Types { known: &known, failures: BTreeMap::new() };
        assert_eq!(types.of(&FlavorRef::default()).unwrap_err().kind(), ErrorKind::Unexpected);
    }
}
