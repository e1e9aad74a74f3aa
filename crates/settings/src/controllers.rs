//! `--controllers`: the selection of controllers (CTRL-1 to CTRL-4).

use bowline_config::{ConfigError, ConfigErrors, nearest};
use bowline_controllers::{node, node_ipam, node_lifecycle, provider_loops, route, service};

use crate::choice;

/// A controller that `--controllers` may name.
struct Known {
    /// Name in health checks and messages.
    name: &'static str,
    /// Legacy name, supported forever.
    alias: &'static str,
}

/// All controllers. `*` selects all of them; some need another flag in addition, such as `--allocate-node-cidrs`.
const KNOWN: [Known; 6] = [
    Known { name: node::NAME, alias: "cloud-node" },
    Known { name: node_lifecycle::NAME, alias: "cloud-node-lifecycle" },
    Known { name: service::NAME, alias: "service" },
    Known { name: route::NAME, alias: "route" },
    Known { name: node_ipam::NAME, alias: "nodeipam" },
    Known { name: provider_loops::NAME, alias: "provider-loops" },
];

/// Value of `--controllers`, with canonical names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    items: Vec<String>,
    /// Controllers that the providers declare. They are disabled unless the list names them.
    declared: Vec<&'static str>,
}

impl Selection {
    /// Replaces aliases and reports unknown names (CTRL-2, CTRL-3). `declared` are the controllers of providers.
    pub(crate) fn new(items: &[String], declared: Vec<&'static str>, errors: &mut ConfigErrors) -> Selection {
        let is_known = |name: &&str| known(name).is_some() || declared.contains(name);
        choice::names(items).filter(|name| !is_known(name)).for_each(|name| errors.push(unknown(name)));
        Selection { items: items.iter().map(|item| canonical(item)).collect(), declared }
    }

    /// Whether the controller with this canonical name is enabled.
    pub(crate) fn has(&self, name: &str) -> bool {
        choice::takes(&self.items, name)
    }

    /// Returns the enabled controllers of providers.
    pub(crate) fn of_providers(&self) -> impl Iterator<Item = &'static str> {
        let named = choice::names(&self.items).collect::<Vec<_>>();
        self.declared.iter().copied().filter(move |name| named.contains(name) && self.has(name))
    }

    /// Returns the startup messages about disabled controllers (CTRL-4). Those of providers are disabled by default, so they cause none.
    // upstream: those cause one as well.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let disabled = KNOWN.iter().map(|known| known.name).filter(|name| !self.has(name));
        disabled.map(|name| format!("{name:?} is disabled")).collect()
    }
}

/// Canonical names of all controllers.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|known| known.name)
}

/// Returns the canonical name for a name or alias.
pub(crate) fn canonical_name(name: &str) -> Option<&'static str> {
    known(name).map(|known| known.name)
}

fn known(name: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.name == name || known.alias == name)
}

/// Replaces an alias in a list entry by the canonical name (CTRL-2).
pub(crate) fn canonical(item: &str) -> String {
    match known(choice::bare(item)) {
        Some(known) if item.starts_with('-') => format!("-{}", known.name),
        Some(known) => known.name.to_owned(),
        None => item.to_owned(),
    }
}

fn unknown(name: &str) -> ConfigError {
    let hint = match nearest(name, KNOWN.iter().flat_map(|known| [known.name, known.alias])) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("known controllers: {}", names().collect::<Vec<_>>().join(", ")),
    };
    ConfigError::flag("controllers", format!("{name:?} is not in the list of known controllers")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(items: &[&str]) -> (Selection, Vec<String>) {
        let mut errors = ConfigErrors::new();
        let items: Vec<_> = items.iter().map(ToString::to_string).collect();
        let selection = Selection::new(&items, Vec::new(), &mut errors);
        (selection, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn c05_aliases_become_canonical_names_and_keep_their_order() {
        let (selection, errors) = select(&["service-lb-controller", "-service", "route", "-cloud-node-lifecycle"]);
        let expected = [
            "service-lb-controller",
            "-service-lb-controller",
            "node-route-controller",
            "-cloud-node-lifecycle-controller",
        ];
        assert_eq!(selection.items, expected);
        assert!(errors.is_empty(), "{errors:?}");
    }

    #[test]
    fn the_first_entry_that_names_a_controller_wins_and_the_star_comes_last() {
        let (node, lifecycle) = (node::NAME, node_lifecycle::NAME);
        let cases: [(&str, &[&str], &str, bool); 14] = [
            ("C6", &["cloud-node", "cloud-node-lifecycle", "-service"], lifecycle, true),
            ("C6", &["cloud-node", "cloud-node-lifecycle", "-service"], "service-lb-controller", false),
            ("C7", &["*"], node, true),
            ("C7", &["*"], "node-route-controller", true),
            ("C7", &["*"], "node-ipam-controller", true),
            ("C8", &["*", "-nodeipam"], "node-ipam-controller", false),
            ("C8", &["*", "-route"], "node-route-controller", false),
            ("C8", &["*", "-cloud-node"], node, false),
            ("C8", &["-cloud-node", "*"], node, false),
            ("C8", &["*", "-cloud-node"], lifecycle, true),
            ("CTRL-1", &["cloud-node", "-cloud-node-controller"], node, true),
            ("CTRL-1", &["-cloud-node", "cloud-node"], node, false),
            ("CTRL-1", &["cloud-node"], lifecycle, false),
            ("C11", &[], node, false),
        ];
        for (case, items, name, expected) in cases {
            let (selection, errors) = select(items);
            assert_eq!(selection.has(name), expected, "{case}: {name} in {items:?}");
            assert!(errors.is_empty(), "{case}: {errors:?}");
        }
    }

    #[test]
    fn c09_c10_only_unknown_names_are_rejected() {
        let (_, errors) = select(&["*", "red-controller", "cloud-node", "-cloud-nod", "-"]);
        let expected = [
            "--controllers: \"red-controller\" is not in the list of known controllers; known controllers: cloud-node-",
            "--controllers: \"cloud-nod\" is not in the list of known controllers; did you mean cloud-node?",
            "--controllers: \"\" is not in the list of known controllers; known controllers: ",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:?}");
        for (error, expected) in errors.iter().zip(expected) {
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn each_disabled_controller_is_reported_once() {
        assert_eq!(
            select(&["cloud-node", "service", "-route", "nodeipam", "provider-loops"]).0.warnings(),
            ["\"cloud-node-lifecycle-controller\" is disabled", "\"node-route-controller\" is disabled"]
        );
        assert!(select(&["*"]).0.warnings().is_empty());
    }
}
