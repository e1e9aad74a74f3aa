//! The contract's documentation and the suite name the same rules.

use std::collections::BTreeSet;

use bowline_conformance::cases;

const PROVIDER: &str = include_str!("../../../cloud/src/provider.rs");
const INSTANCES: &str = include_str!("../../../cloud/src/instances.rs");
const LOAD_BALANCERS: &str = include_str!("../../../cloud/src/load_balancers.rs");
const LOOPS: &str = include_str!("../../../cloud/src/loops.rs");
const ROUTES: &str = include_str!("../../../cloud/src/routes.rs");

/// The sources that name rules.
const SOURCES: [&str; 5] = [PROVIDER, INSTANCES, LOAD_BALANCERS, LOOPS, ROUTES];

/// The names in the lists of rules: ``/// - `name`: what it says``.
fn rules(source: &str) -> Vec<&str> {
    let items = source.lines().filter_map(|line| line.trim().strip_prefix("/// - `"));
    items.filter_map(|item| item.split_once("`:")).map(|(name, _)| name).collect()
}

#[test]
fn the_documented_rules_and_the_cases_have_the_same_names() {
    let documented = BTreeSet::from_iter(SOURCES.into_iter().flat_map(rules));
    let tried = BTreeSet::from_iter(cases().iter().map(|case| case.name));
    assert!(documented.contains("gone_is_certain"), "{documented:?}");
    assert_eq!(documented.difference(&tried).collect::<Vec<_>>(), [&""; 0], "rules without a case");
    assert_eq!(tried.difference(&documented).collect::<Vec<_>>(), [&""; 0], "cases without a rule");
}

#[test]
fn no_two_cases_have_one_name() {
    let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases().len());
}
