//! The documentation of the provider traits and the suite have the same rules.

use std::collections::BTreeSet;

use bowline_conformance::cases;

const PROVIDER: &str = include_str!("../../../cloud/src/provider.rs");
const INSTANCES: &str = include_str!("../../../cloud/src/instances.rs");
const LOAD_BALANCERS: &str = include_str!("../../../cloud/src/load_balancers.rs");
const LOOPS: &str = include_str!("../../../cloud/src/loops.rs");
const ROUTES: &str = include_str!("../../../cloud/src/routes.rs");

/// Sources with lists of rules.
const SOURCES: [&str; 5] = [PROVIDER, INSTANCES, LOAD_BALANCERS, LOOPS, ROUTES];

/// Names in the lists of rules: ``/// - `name`: description``.
fn rules(source: &str) -> Vec<&str> {
    let items = source.lines().filter_map(|line| line.trim().strip_prefix("/// - `"));
    items.filter_map(|item| item.split_once("`:")).map(|(name, _)| name).collect()
}

#[test]
fn the_documented_rules_and_the_cases_have_the_same_names() {
    let documented = BTreeSet::from_iter(SOURCES.into_iter().flat_map(rules));
    let tested = BTreeSet::from_iter(cases().iter().map(|case| case.name));
    assert!(documented.contains("gone_is_certain"), "{documented:?}");
    assert_eq!(documented.difference(&tested).collect::<Vec<_>>(), [&""; 0], "rules without a case");
    assert_eq!(tested.difference(&documented).collect::<Vec<_>>(), [&""; 0], "cases without a rule");
}

#[test]
fn case_names_are_unique() {
    let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases().len());
}
