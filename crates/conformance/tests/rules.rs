//! The contract's documentation and the suite name the same rules.

use bowline_conformance::cases;

const PROVIDER: &str = include_str!("../../cloud/src/provider.rs");
const INSTANCES: &str = include_str!("../../cloud/src/instances.rs");

/// The names in the lists of rules: ``/// - `name`: what it says``.
fn rules(source: &str) -> Vec<&str> {
    let items = source.lines().filter_map(|line| line.trim().strip_prefix("/// - `"));
    items.filter_map(|item| item.split_once("`:")).map(|(name, _)| name).collect()
}

#[test]
fn every_documented_rule_has_a_case_of_its_name() {
    let documented = [rules(PROVIDER), rules(INSTANCES)].concat();
    assert!(documented.contains(&"gone_is_certain") && documented.len() >= 13, "{documented:?}");
    for rule in documented {
        assert!(cases().iter().any(|case| case.name == rule), "there is no case for the rule {rule}");
    }
}

#[test]
fn no_two_cases_have_one_name() {
    let mut names: Vec<_> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases().len());
}
