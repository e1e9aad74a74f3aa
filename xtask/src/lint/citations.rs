//! Rule IDs such as `SVC-11`, and IDs of cases such as `S18`: what code, tests and pages cite, the page of rules explains.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::{self, Kind};
use super::text;
use crate::tree::Tree;

/// The page that explains every ID.
const PAGE: &str = "docs/reference/rules.md";

/// Prefixes that look like those of rules.
const OTHERS: [&str; 7] = ["BSD", "ISO", "SHA", "SSH", "TCP", "UTF", "XYZ"];

/// Crates whose tests cite cases. Elsewhere `R1` is a region and `S3` a service.
const WITH_CASES: [&str; 8] = [
    "crates/bowline",
    "crates/commands",
    "crates/controllers",
    "crates/core",
    "crates/daemon",
    "crates/kube",
    "crates/serving",
    "crates/settings",
];

/// First letters of cases.
const CASES: &str = "ABCFGHILMNPQRSUVWY";

/// A prefix with its separator and a number: `SVC-`, 11.
type Id = (String, u32);

/// Every cited ID that the page lacks, and every ID of the page that is not cited.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let explained = explained(text(tree, PAGE));
    let cited = cited(tree);
    let missing = cited.iter().filter(|(id, _)| !explained.contains(*id));
    let missing = missing.map(|(id, place)| format!("{place}: {} is not explained in {PAGE}", name(id)));
    let unused = explained.iter().filter(|id| !cited.contains_key(*id));
    missing.chain(unused.map(|id| format!("{PAGE}: {} is cited nowhere; remove it", name(id)))).collect()
}

fn name((prefix, number): &Id) -> String {
    format!("{prefix}{number}")
}

/// The IDs of the page: those of anchors at the beginning of a row.
fn explained(page: &str) -> BTreeSet<Id> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| <a id=")?.split_once("</a>"));
    rows.flat_map(|(_, row)| ids(row.split('|').next().unwrap_or_default(), true)).collect()
}

/// The IDs that files cite, each with the first place.
fn cited(tree: &Tree) -> BTreeMap<Id, String> {
    let mut cited = BTreeMap::new();
    for (path, text) in tree.iter().filter(|(path, _)| *path != PAGE && !path.ends_with(".txt")) {
        let has_cases = WITH_CASES.iter().any(|folder| path.starts_with(&format!("{folder}/")));
        for (line, id) in in_file(path, text, has_cases) {
            cited.entry(id).or_insert_with(|| format!("{path}:{line}"));
        }
    }
    cited
}

/// IDs in the lines of a page; in comments, literals and names of tests in code.
fn in_file(path: &str, text: &str, has_cases: bool) -> Vec<(usize, Id)> {
    let mut found = Vec::new();
    let mut add = |line: usize, ids: Vec<Id>| found.extend(ids.into_iter().map(|id| (line, id)));
    if !path.ends_with(".rs") {
        text.lines().enumerate().for_each(|(index, line)| add(index + 1, ids(line, has_cases)));
        return found;
    }
    for piece in scan::pieces(text) {
        match piece.kind {
            Kind::Comment | Kind::Literal => add(piece.line, ids(piece.text, has_cases)),
            Kind::Code if has_cases => add(piece.line, ids(&of_test(piece.text), has_cases)),
            Kind::Code => {}
        }
    }
    found
}

/// The beginning of a function's name as it would stand in a comment: `S1 TO S3 A SERVICE` of `s01_to_s03_a_service`.
fn of_test(code: &str) -> String {
    let Some((_, name)) = code.split_once("fn ") else { return String::new() };
    let name = name.split('(').next().unwrap_or_default();
    let spaced = name.to_uppercase().replace('_', " ").replace(" TO ", " to ").replace(" AND ", " ");
    let words: Vec<&str> = spaced.split(' ').take_while(|word| *word == "to" || id(word, true).is_some()).collect();
    words.join(" ")
}

/// The IDs in a text, with all between the ends of `SVC-1 to SVC-28`.
fn ids(text: &str, has_cases: bool) -> Vec<Id> {
    let mut ids: Vec<Id> = Vec::new();
    let mut is_range = false;
    for word in text.split(|letter: char| letter.is_whitespace() || matches!(letter, '(' | ')' | ',' | ';' | '"' | '|'))
    {
        if word.is_empty() {
            continue;
        }
        if let Some((prefix, number)) = id(word, has_cases) {
            match ids.last().cloned() {
                Some((from, first)) if is_range && from == prefix => {
                    ids.extend((first + 1..number).map(|between| (prefix.clone(), between)));
                }
                _ => {}
            }
            ids.push((prefix, number));
        }
        is_range = word == "to";
    }
    ids
}

/// The ID that a word is, with punctuation behind it or the letter of a variant (`P12a`).
fn id(word: &str, has_cases: bool) -> Option<Id> {
    let word = word.trim_matches(|letter: char| matches!(letter, '.' | ':' | '`' | '*' | '[' | ']' | '\''));
    let letters = word.find(|letter: char| !letter.is_ascii_uppercase()).filter(|letters| *letters > 0)?;
    let (prefix, rest) = word.split_at(letters);
    if let Some(number) = rest.strip_prefix('-') {
        let is_rule = (2..=6).contains(&letters) && !OTHERS.contains(&prefix) || prefix == "W";
        return is_rule.then(|| number.parse().ok()).flatten().map(|number| (format!("{prefix}-"), number));
    }
    let number = rest.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    let is_case = has_cases && letters == 1 && CASES.contains(prefix) && rest.len() - number.len() <= 1;
    // Writes are `W-1` in comments and `w1_` in names.
    let prefix = if prefix == "W" { "W-" } else { prefix };
    (is_case && number.len() <= 2).then(|| number.parse().ok()).flatten().map(|number| (prefix.to_owned(), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    fn names(text: &str) -> Vec<String> {
        ids(text, true).iter().map(name).collect()
    }

    #[test]
    fn ids_are_found_with_what_stands_between_them() {
        for (text, expected) in [
            ("// Ends here (SVC-11).", vec!["SVC-11"]),
            ("//! (SRV-1 to SRV-3, HOOK-2)", vec!["SRV-1", "SRV-2", "SRV-3", "HOOK-2"]),
            ("// ROUTE-2: a run", vec!["ROUTE-2"]),
            ("\"S20, S29\"", vec!["S20", "S29"]),
            ("Y1 to Y3", vec!["Y1", "Y2", "Y3"]),
            ("\"P12a\"", vec!["P12"]),
            ("taints (W-4)", vec!["W-4"]),
            ("UTF-8, SHA-256, P-256, PHX-AD-1, I10.0.0.1, E1.1.1.1, S3x, IPv4, X-1", vec!["S3"]),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
    }

    #[test]
    fn the_page_and_the_citations_are_compared_both_ways() {
        let page =
            "# Rules\n\n| <a id=\"svc-1\"></a>SVC-1 | One; unlike SVC-9. |\n| <a id=\"svc-2\"></a>SVC-2 | Two. |\n";
        let code = "// Does it (SVC-1).\nlet svc = SVC-4;\n// SVC-3\n";
        let findings = check(&tree(&[(PAGE, page), ("crates/x/src/lib.rs", code)]));
        let missing = format!("crates/x/src/lib.rs:3: SVC-3 is not explained in {PAGE}");
        assert_eq!(findings, [missing, format!("{PAGE}: SVC-2 is cited nowhere; remove it")]);
    }

    #[test]
    fn names_of_tests_cite_cases_too() {
        for (code, expected) in [
            ("async fn s01_s09_a_service_of_b2(", vec!["S1", "S9"]),
            ("fn y1_to_y3_changes() {", vec!["Y1", "Y2", "Y3"]),
            ("fn b1_and_b2_labels() {", vec!["B1", "B2"]),
            ("fn w7_finalizers() {", vec!["W-7"]),
            ("fn a_service() {", vec![]),
            ("s1_service()", vec![]),
        ] {
            assert_eq!(names(&of_test(code)), expected, "{code}");
        }
    }

    #[test]
    fn cases_count_in_the_crates_that_cite_them() {
        let file = "// R1";
        assert!(cited(&tree(&[("providers/x/src/lib.rs", file)])).is_empty());
        assert_eq!(cited(&tree(&[("crates/core/src/lib.rs", file)])).len(), 1);
    }
}
