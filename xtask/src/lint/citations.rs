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

/// Prefixes of rules that names of tests cite with an underscore: `do_15a_…`.
const IN_NAMES: [&str; 3] = ["AWS", "DO", "VS"];

/// A prefix with its separator, a number, and the letter of a rule between two others: `SVC-`, 11, or `DO-`, 15, `a`.
type Id = (String, u32, String);

/// Every cited ID that the page lacks, and every ID of the page that is not cited.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let explained = explained(text(tree, PAGE));
    let cited = cited(tree);
    let missing = cited.iter().filter(|(id, _)| !explained.contains(*id));
    let missing = missing.map(|(id, place)| format!("{place}: {} is not explained in {PAGE}", name(id)));
    let unused = explained.iter().filter(|id| !cited.contains_key(*id));
    missing.chain(unused.map(|id| format!("{PAGE}: {} is cited nowhere; remove it", name(id)))).collect()
}

fn name((prefix, number, letter): &Id) -> String {
    format!("{prefix}{number}{letter}")
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
            Kind::Code => add(piece.line, ids(&of_test(piece.text), has_cases)),
        }
    }
    found
}

/// The beginning of a function's name as it would stand in a comment: `S1 TO S3 A SERVICE` of `s01_to_s03_a_service`.
fn of_test(code: &str) -> String {
    let Some((_, name)) = code.split_once("fn ") else { return String::new() };
    let name = name.split('(').next().unwrap_or_default();
    let (mut cited, mut rule) = (Vec::new(), None);
    for word in name.split('_').filter(|word| *word != "and") {
        if let Some(prefix) = IN_NAMES.iter().find(|prefix| prefix.eq_ignore_ascii_case(word)) {
            rule = Some(prefix);
            continue;
        }
        let word = match rule.filter(|_| word.starts_with(|letter: char| letter.is_ascii_digit())) {
            Some(prefix) => format!("{prefix}-{word}"),
            None if word == "to" => word.to_owned(),
            None => word.to_uppercase(),
        };
        if word != "to" && id(&word, true).is_none() {
            break;
        }
        cited.push(word);
    }
    cited.join(" ")
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
        if let Some((prefix, number, letter)) = id(word, has_cases) {
            match ids.last().cloned() {
                Some((from, first, _)) if is_range && from == prefix => {
                    ids.extend((first + 1..number).map(|between| (prefix.clone(), between, String::new())));
                }
                _ => {}
            }
            ids.push((prefix, number, letter));
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
    let number = rest.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    let letter = rest.get(number.len()..).filter(|letter| letter.len() <= 1)?;
    if let Some(number) = number.strip_prefix('-') {
        let is_rule = (2..=6).contains(&letters) && !OTHERS.contains(&prefix) || prefix == "W";
        return is_rule
            .then(|| number.parse().ok())
            .flatten()
            .map(|number| (format!("{prefix}-"), number, letter.to_owned()));
    }
    let is_case = has_cases && letters == 1 && CASES.contains(prefix) && number.len() <= 2;
    // Writes are `W-1` in comments and `w1_` in names.
    let prefix = if prefix == "W" { "W-" } else { prefix };
    is_case.then(|| number.parse().ok()).flatten().map(|number| (prefix.to_owned(), number, String::new()))
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
            ("\"DO-15a\", DO-38 to DO-40", vec!["DO-15a", "DO-38", "DO-39", "DO-40"]),
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
            ("fn do_15a_do_16_a_service() {", vec!["DO-15a", "DO-16"]),
            ("fn do_1_to_do_3_names() {", vec!["DO-1", "DO-2", "DO-3"]),
            ("fn do_6_15c_and_43b_a_service() {", vec!["DO-6", "DO-15c", "DO-43b"]),
            ("fn do_44_to_46_ports() {", vec!["DO-44", "DO-45", "DO-46"]),
            ("fn vs_12_and_13_texts() {", vec!["VS-12", "VS-13"]),
            ("fn undo_5_steps() {", vec![]),
            ("fn do_nothing() {", vec![]),
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
        let test = "fn do_2_names() {}\nfn s3_bucket() {}\n";
        assert_eq!(cited(&tree(&[("providers/x/src/lib.rs", test)])).len(), 1, "names of rules count everywhere");
        assert_eq!(cited(&tree(&[("crates/core/src/lib.rs", file)])).len(), 1);
    }
}
