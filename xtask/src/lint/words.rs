//! Words that are not to be used, because the field has better ones: in comments, messages, names and pages.
//!
//! `xtask/words.txt` lists them, each with a suggestion. `xtask/words-allowed.txt` lists exceptions by line.

use std::collections::BTreeSet;

use anyhow::Context as _;

use super::scan::{self, Kind};
use super::text;
use crate::tree::Tree;

const WORDS: &str = "xtask/words.txt";
const ALLOWED: &str = "xtask/words-allowed.txt";

/// Pages and scripts that are checked, besides all Rust sources.
const PAGES: [&str; 11] = [
    "README.md",
    "CHANGELOG.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    ".ci/run",
    "docs/",
    "deploy/",
    "examples/",
    "crates/",
    "providers/",
];

/// A line of the list.
struct Rule<'a> {
    /// Checks names in code instead of text.
    is_of_names: bool,
    /// Each a word or several in a row, in lower case.
    phrases: Vec<Vec<&'a str>>,
    suggestion: &'a str,
}

/// A word of a text.
struct Word {
    line: usize,
    /// In lower case.
    text: String,
    /// In a code span or block, or part of a path or a placeholder.
    is_code: bool,
}

/// A use of a listed word.
struct Finding {
    path: String,
    line: usize,
    message: String,
}

/// Returns every use of a listed word, and every exception that is not needed.
pub(super) fn check(tree: &Tree) -> anyhow::Result<Vec<String>> {
    let rules = rules(text(tree, WORDS))?;
    let mut findings: Vec<Finding> = Vec::new();
    for (path, text) in tree.iter().filter(|(path, _)| is_checked(path)) {
        findings.extend(of_file(path, text, &rules));
    }
    let mut messages = except(tree, &mut findings)?;
    messages.extend(findings.iter().map(|finding| format!("{}:{}: {}", finding.path, finding.line, finding.message)));
    Ok(messages)
}

fn is_checked(path: &str) -> bool {
    let is_dashboard = path.starts_with("deploy/") && path.ends_with(".json");
    let is_page = [".md", ".yaml"].iter().any(|end| path.ends_with(end)) || path == ".ci/run" || is_dashboard;
    path.ends_with(".rs") || is_page && PAGES.iter().any(|page| path.starts_with(page))
}

/// Lines that are neither empty nor comments.
fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Reads lines such as `text nobody, somebody: name the actor`.
fn rules(text: &str) -> anyhow::Result<Vec<Rule<'_>>> {
    entries(text).map(|line| rule(line).with_context(|| format!("{WORDS}: cannot read {line:?}"))).collect()
}

fn rule(line: &str) -> Option<Rule<'_>> {
    let (words, suggestion) = line.split_once(": ")?;
    let (kind, words) = words.split_once(' ')?;
    let phrases = words.split(',').map(|phrase| phrase.split_whitespace().collect()).collect();
    matches!(kind, "text" | "name").then_some(Rule { is_of_names: kind == "name", phrases, suggestion })
}

/// Removes the findings that are allowed; returns the exceptions that allow nothing.
fn except(tree: &Tree, findings: &mut Vec<Finding>) -> anyhow::Result<Vec<String>> {
    let mut unused = Vec::new();
    for entry in entries(text(tree, ALLOWED)) {
        let mut parts = entry.split(" | ");
        let (path, part) =
            parts.next().zip(parts.next()).with_context(|| format!("{ALLOWED}: cannot read {entry:?}"))?;
        parts.next().with_context(|| format!("{ALLOWED}: {entry:?} has no reason"))?;
        let lines: Vec<&str> = text(tree, path).lines().collect();
        let is_allowed = |finding: &Finding| finding.path == path && lines[finding.line - 1].contains(part);
        let before = findings.len();
        findings.retain(|finding| !is_allowed(finding));
        if findings.len() == before {
            unused.push(format!("{ALLOWED}: {entry:?} allows nothing; remove it"));
        }
    }
    Ok(unused)
}

fn of_file(path: &str, text: &str, rules: &[Rule<'_>]) -> Vec<Finding> {
    let at = |(line, message)| Finding { path: path.to_owned(), line, message };
    if !path.ends_with(".rs") {
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        return in_text(&words(lines), rules).into_iter().map(at).collect();
    }
    let pieces = scan::pieces(text);
    let of = |kind| pieces.iter().filter(move |piece| piece.kind == kind).map(|piece| (piece.line, piece.text));
    let comments = words(of(Kind::Comment));
    // One word alone is a name or a value, not a message.
    let literals = of(Kind::Literal).map(|(line, text)| (line, text.trim_matches(['"', '#', 'r'])));
    let literals = words(literals.filter(|(_, text)| text.contains(' ')));
    let mut found = in_text(&comments, rules);
    found.extend(in_text(&literals, rules));
    found.extend(in_names(of(Kind::Code), rules));
    found.sort();
    found.into_iter().map(at).collect()
}

/// Splits lines into words.
fn words<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Word> {
    let mut words = Vec::new();
    let mut is_block = false;
    for (line, text) in lines {
        if text.trim_start_matches(['/', '!', ' ']).starts_with("```") {
            is_block = !is_block;
            continue;
        }
        // Every second part stands between backticks.
        for (index, part) in text.replace("\\n", "\n").split('`').enumerate() {
            let runs = part.split(|letter: char| !is_of_word(letter));
            for run in runs.filter(|run| run.contains(char::is_alphabetic)) {
                let text = run.trim_matches(|letter: char| !letter.is_alphanumeric());
                let is_path = text.len() < run.trim_end_matches(['.', ':', '-']).len();
                words.push(Word { line, text: text.to_lowercase(), is_code: is_block || is_path || index % 2 == 1 });
            }
        }
    }
    words
}

/// Letters that join words to a path, a name, a link or a placeholder.
fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '/' | '.' | ':' | '{' | '}' | '"' | '=' | '\\')
}

fn in_text(words: &[Word], rules: &[Rule<'_>]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for rule in rules.iter().filter(|rule| !rule.is_of_names) {
        for phrase in &rule.phrases {
            let starts = (0..words.len()).filter(|start| is_at(words, *start, phrase));
            found.extend(starts.map(|start| (words[start].line, message(&phrase.join(" "), rule))));
        }
    }
    found.sort();
    found
}

fn message(word: &str, rule: &Rule<'_>) -> String {
    format!("\"{word}\": {}", rule.suggestion)
}

fn is_at(words: &[Word], start: usize, phrase: &[&str]) -> bool {
    let Some(run) = words.get(start..start + phrase.len()) else { return false };
    let is_same = run.iter().zip(phrase).all(|(word, wanted)| word.text == *wanted && !word.is_code);
    is_same && !(phrase[0].starts_with("balancer") && start > 0 && words[start - 1].text == "load")
}

/// Names with a listed segment, each once.
fn in_names<'a>(code: impl Iterator<Item = (usize, &'a str)>, rules: &[Rule<'_>]) -> Vec<(usize, String)> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (line, text) in code {
        for name in text.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
            let segments = segments(name);
            for rule in rules.iter().filter(|rule| rule.is_of_names) {
                let is_listed = rule.phrases.iter().any(|phrase| segments.iter().any(|segment| segment == phrase[0]));
                if is_listed && seen.insert(name) {
                    found.push((line, message(name, rule)));
                }
            }
        }
    }
    found
}

/// The parts of a name, in lower case: `told`, `by` of `told_by` and of `ToldBy`.
fn segments(name: &str) -> Vec<String> {
    let mut segments = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && was_lower {
            segments.push(String::new());
        }
        was_lower = letter.is_lowercase();
        if let Some(last) = segments.last_mut().filter(|_| letter != '_') {
            last.extend(letter.to_lowercase());
        }
    }
    segments
}

#[cfg(test)]
mod tests;
