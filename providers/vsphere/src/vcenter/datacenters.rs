//! The containers in which machines are searched: the configured datacenters, or the whole vCenter.

use bowline_cloud::{Error, ErrorKind, Result, Retry};

use super::Vcenter;
use super::tree::{ANCESTORS, Entry, Tree};
use crate::soap::ManagedObject;
use crate::soap::properties::folders_filter;

const FIND: &str = "find the datacenters";

/// Type of datacenters.
pub(super) const DATACENTER: &str = "Datacenter";

/// Containers that were found, and the reason for each that was not.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    pub found: Vec<Container>,
    pub errors: Vec<Error>,
}

/// Where an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location<'a> {
    In(&'a Container),
    /// It is certainly in none of the containers.
    Elsewhere,
    /// An ancestor could not be read, so it may be in any of them.
    Unknown,
}

/// A part of the inventory: a datacenter, or the root folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Container {
    pub object: ManagedObject,
    /// Inventory path, for messages.
    pub path: String,
}

impl Containers {
    /// The whole inventory.
    pub(super) fn of(root: &ManagedObject) -> Containers {
        Containers { found: vec![Container { object: root.clone(), path: "/".to_owned() }], errors: Vec::new() }
    }

    /// Returns where an object of a tree is.
    pub(super) fn location(&self, tree: &Tree, object: &ManagedObject, root: &ManagedObject) -> Location<'_> {
        let chain = || tree.chain(object);
        let inside = |container: &&Container| chain().any(|ancestor| *ancestor == container.object);
        match self.found.iter().find(inside) {
            Some(container) => Location::In(container),
            None if chain().last() == Some(root) => Location::Elsewhere,
            None => Location::Unknown,
        }
    }
}

impl Container {
    /// Returns the datacenter; `None` for the whole vCenter.
    fn datacenter(&self) -> Option<&ManagedObject> {
        Some(&self.object).filter(|object| object.kind == DATACENTER)
    }
}

impl Vcenter {
    /// Returns the containers to search. They are read each time, because a datacenter may be renamed, added or removed; without
    /// configured datacenters, the root folder needs no call.
    pub(crate) async fn containers(&self) -> Result<Containers> {
        match self.config.datacenters.is_empty() {
            true => Ok(Containers::of(&self.session.get().await?.content.root_folder)),
            false => Ok(self.configured(&self.folders().await?)),
        }
    }

    /// Returns all datacenters that the account can see, in folders of any depth.
    pub(crate) async fn datacenters(&self) -> Result<Vec<Container>> {
        Ok(datacenters_in(&self.folders().await?))
    }

    /// Returns the configured datacenters in a tree.
    pub(super) fn configured(&self, tree: &Tree) -> Containers {
        let known = datacenters_in(tree);
        let mut containers = Containers::default();
        for wanted in &self.config.datacenters {
            match select(&known, wanted) {
                Ok(found) if containers.found.contains(found) => {}
                Ok(found) => containers.found.push(found.clone()),
                Err(message) => containers.errors.push(self.unknown(message)),
            }
        }
        containers
    }

    async fn folders(&self) -> Result<Tree> {
        let root = self.session.get().await?.content.root_folder.clone();
        let entries = self.retrieve(&folders_filter(&root, &[ANCESTORS]), Entry::of).await?;
        let mut tree = Tree::default();
        tree.extend(entries);
        Ok(tree)
    }

    /// Returns the error for a container without machines: either it has none, or the account has lost its permission.
    pub(super) fn shows_no_machines(&self, container: &Container) -> Error {
        let (place, unused) = match container.datacenter() {
            Some(_) => (format!("in datacenter {}", container.path), "remove it from datacenters in the configuration"),
            None => ("at all".to_owned(), "remove this vCenter from the configuration"),
        };
        let message = format!(
            "vCenter shows no VMs {place}, which does not prove that any is gone; fix: give the account the role Read-only with \
             propagation to children, or, if there are no VMs, {unused}"
        );
        self.error(ErrorKind::Unexpected, "list the virtual machines", message).retry(Retry::Backoff)
    }

    fn unknown(&self, message: String) -> Error {
        let advice = "fix: correct datacenters in the configuration, or give the account the role Read-only on it";
        let error = self.error(ErrorKind::InvalidConfig, FIND, format!("{message}; {advice}"));
        // The operator may fix it in vCenter, which sends no notification.
        error.retry(Retry::Backoff)
    }
}

/// Returns the datacenters of a tree, sorted by path.
fn datacenters_in(tree: &Tree) -> Vec<Container> {
    let datacenters = tree.of_kind(DATACENTER);
    let mut datacenters: Vec<_> =
        datacenters.map(|object| Container { object: object.clone(), path: tree.path(object) }).collect();
    datacenters.sort_by(|a, b| a.path.cmp(&b.path));
    datacenters
}

/// Decodes a name: vCenter escapes these three characters.
pub(crate) fn decoded(name: &str) -> String {
    name.replace("%2f", "/").replace("%5c", "\\").replace("%25", "%")
}

/// Returns the datacenter that a configured name, path or ID means.
fn select<'a>(known: &'a [Container], wanted: &str) -> std::result::Result<&'a Container, String> {
    let id = wanted.strip_prefix("Datacenter:").unwrap_or(wanted);
    if let Some(found) = known.iter().find(|container| container.object.id == id) {
        return Ok(found);
    }
    let pattern = wanted.trim_start_matches('/');
    let matches = |container: &&Container| {
        let path = container.path.trim_start_matches('/');
        match wanted.contains('/') {
            true => glob(pattern, path),
            false => glob(pattern, path.rsplit('/').next().unwrap_or(path)),
        }
    };
    let mut found = known.iter().filter(matches);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(format!("datacenter '{wanted}' not found")),
        (Some(_), Some(_)) => Err(format!("path '{wanted}' resolves to multiple datacenters")),
    }
}

/// Returns whether a name matches a pattern with `*` (any characters but `/`) and `?` (one of them).
fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<_>, Vec<_>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut of) = (0, 0);
    // Position behind the last `*`, and the part of the name that it covers so far.
    let mut star: Option<(usize, usize)> = None;
    while of < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at + 1, of));
                at += 1;
            }
            Some(wanted) if Some(wanted) == name.get(of) || *wanted == '?' && name.get(of) != Some(&'/') => {
                at += 1;
                of += 1;
            }
            _ => match star {
                Some((behind, covered)) if name.get(covered) != Some(&'/') => {
                    star = Some((behind, covered + 1));
                    (at, of) = (behind, covered + 1);
                }
                _ => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<Container> {
        let paths = ["/DC0", "/F0/DC1", "/F0/datacenter-west", "/F1/DC2", "/F2/DC2"];
        let container = |(number, path): (usize, &&str)| Container {
            object: ManagedObject::new("Datacenter", &format!("datacenter-{number}")),
            path: (*path).to_owned(),
        };
        paths.iter().enumerate().map(container).collect()
    }

    /// VS-56, VS-57
    #[test]
    fn a_datacenter_is_found_by_name_path_or_id() {
        let known = known();
        let table = [
            ("DC0", Ok("/DC0")),
            ("/DC0", Ok("/DC0")),
            ("DC1", Ok("/F0/DC1")),
            ("/F0/DC1", Ok("/F0/DC1")),
            ("F0/DC1", Ok("/F0/DC1")),
            ("F0/*1", Ok("/F0/DC1")),
            ("datacenter-1", Ok("/F0/DC1")),
            ("Datacenter:datacenter-1", Ok("/F0/DC1")),
            // upstream: a name that looks like an ID is not found.
            ("datacenter-west", Ok("/F0/datacenter-west")),
            ("DC?", Err("path 'DC?' resolves to multiple datacenters")),
            ("DC2", Err("path 'DC2' resolves to multiple datacenters")),
            ("/F1/DC2", Ok("/F1/DC2")),
            ("/DC1", Err("datacenter '/DC1' not found")),
            ("*west", Ok("/F0/datacenter-west")),
            ("dc0", Err("datacenter 'dc0' not found")),
            ("missing", Err("datacenter 'missing' not found")),
        ];
        for (wanted, expected) in table {
            let found = select(&known, wanted);
            assert_eq!(found.as_ref().map(|found| found.path.as_str()).map_err(String::as_str), expected, "{wanted}");
        }
    }

    #[test]
    fn a_glob_matches_within_one_folder() {
        let table =
            [("*", "a", true), ("*", "a/b", false), ("a*c", "abbc", true), ("a*c", "abcd", false), ("??", "a/", false)];
        for (pattern, name, expected) in table {
            assert_eq!(glob(pattern, name), expected, "{pattern} {name}");
        }
    }
}
