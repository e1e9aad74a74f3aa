//! Label selectors in the syntax of kubectl.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::iter::Peekable;
use std::str::Chars;
use std::vec::IntoIter;

use serde::{Deserialize, Serialize};

/// Maximum length of the name or value of a label.
const MAX_LENGTH: usize = 63;

/// Maximum length of the prefix of a label key.
const MAX_PREFIX_LENGTH: usize = 253;

/// A label selector in the syntax of kubectl: `zone in (a, b), !spot, size=large`. Serialised as text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct NodeSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Test {
    Exists,
    Missing,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
}

impl NodeSelector {
    /// Parses a selector. One without requirements matches every Node.
    ///
    /// ```
    /// use bowline_core::annotations::NodeSelector;
    /// let selector = NodeSelector::parse("zone in (a, b), !spot").unwrap();
    /// assert!(selector.matches(&[("zone".to_owned(), "b".to_owned())].into()));
    /// assert!(NodeSelector::parse("zone in a").unwrap_err().contains("expected '('"));
    /// ```
    pub fn parse(text: &str) -> Result<NodeSelector, String> {
        let mut parser = Parser { tokens: tokens(text)?.into_iter().peekable() };
        Ok(NodeSelector { requirements: parser.selector()? })
    }

    /// Returns whether the labels meet all requirements.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// Returns the label keys in the requirements.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(|requirement| requirement.key.as_str())
    }
}

impl Requirement {
    // upstream: a Node without the label matches `!=` and `notin`.
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.contains(value)),
            Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
        }
    }
}

/// Formats the selector so that [`NodeSelector::parse`] accepts it.
impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, requirement) in self.requirements.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let list = |values: &BTreeSet<String>| values.iter().map(String::as_str).collect::<Vec<_>>().join(",");
        match &self.test {
            Test::Exists => write!(f, "{key}"),
            Test::Missing => write!(f, "!{key}"),
            Test::In(values) if values.len() == 1 => write!(f, "{key}={}", list(values)),
            Test::In(values) => write!(f, "{key} in ({})", list(values)),
            Test::NotIn(values) if values.len() == 1 => write!(f, "{key}!={}", list(values)),
            Test::NotIn(values) => write!(f, "{key} notin ({})", list(values)),
        }
    }
}

impl From<NodeSelector> for String {
    fn from(selector: NodeSelector) -> String {
        selector.to_string()
    }
}

impl TryFrom<String> for NodeSelector {
    type Error = String;

    fn try_from(text: String) -> Result<NodeSelector, String> {
        NodeSelector::parse(&text)
    }
}

// ---- tokens

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A key, a value, or the operator `in` or `notin`, depending on the position.
    Word(String),
    Comma,
    Open,
    Close,
    Not,
    Equals,
    NotEquals,
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut letters = text.chars().peekable();
    let mut tokens = Vec::new();
    while let Some(letter) = letters.next() {
        tokens.push(match letter {
            ' ' | '\t' | '\r' | '\n' => continue,
            ',' => Token::Comma,
            '(' => Token::Open,
            ')' => Token::Close,
            // `=` and `==` are equivalent.
            '=' => letters.next_if_eq(&'=').map_or(Token::Equals, |_| Token::Equals),
            '!' => letters.next_if_eq(&'=').map_or(Token::Not, |_| Token::NotEquals),
            '<' | '>' => return Err(format!("'{letter}' is not supported; use =, !=, in or notin")),
            first => Token::Word(word(first, &mut letters)),
        });
    }
    Ok(tokens)
}

fn word(first: char, letters: &mut Peekable<Chars<'_>>) -> String {
    let ends = |letter: &char| matches!(letter, ' ' | '\t' | '\r' | '\n' | ',' | '(' | ')' | '=' | '!' | '<' | '>');
    let mut word = String::from(first);
    while let Some(letter) = letters.next_if(|letter| !ends(letter)) {
        word.push(letter);
    }
    word
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(word) => write!(f, "{word:?}"),
            Token::Comma => f.write_str("','"),
            Token::Open => f.write_str("'('"),
            Token::Close => f.write_str("')'"),
            Token::Not => f.write_str("'!'"),
            Token::Equals => f.write_str("'='"),
            Token::NotEquals => f.write_str("'!='"),
        }
    }
}

// ---- requirements

struct Parser {
    tokens: Peekable<IntoIter<Token>>,
}

impl Parser {
    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        if self.tokens.peek().is_none() {
            return Ok(requirements);
        }
        loop {
            requirements.push(self.requirement()?);
            match self.tokens.next() {
                None => return Ok(requirements),
                Some(Token::Comma) => {}
                other => return Err(unexpected(other, "',' or the end")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.tokens.next_if_eq(&Token::Not).is_some() {
            return Ok(Requirement { key: self.key()?, test: Test::Missing });
        }
        let key = self.key()?;
        let test = if self.is_at_end() { Test::Exists } else { self.test()? };
        Ok(Requirement { key, test })
    }

    fn key(&mut self) -> Result<String, String> {
        match self.tokens.next() {
            Some(Token::Word(key)) => check_label_key(&key).map(|()| key),
            other => Err(unexpected(other, "a label key")),
        }
    }

    fn test(&mut self) -> Result<Test, String> {
        match self.tokens.next() {
            Some(Token::Equals) => Ok(Test::In(BTreeSet::from([self.value()?]))),
            Some(Token::NotEquals) => Ok(Test::NotIn(BTreeSet::from([self.value()?]))),
            Some(Token::Word(word)) if word == "in" => Ok(Test::In(self.values()?)),
            Some(Token::Word(word)) if word == "notin" => Ok(Test::NotIn(self.values()?)),
            other => Err(unexpected(other, "one of =, ==, !=, in, notin, or ','")),
        }
    }

    /// Parses the value after `=`, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        if self.is_at_end() {
            return Ok(String::new());
        }
        match self.tokens.next() {
            Some(Token::Word(value)) => check_value(&value).map(|()| value),
            other => Err(unexpected(other, "a value")),
        }
    }

    /// Parses a list such as `(a, b)`. An empty item is the empty value.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        match self.tokens.next() {
            Some(Token::Open) => {}
            other => return Err(unexpected(other, "'(' and a list of values, such as (a, b)")),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.tokens.next_if(|token| matches!(token, Token::Word(_))) {
                Some(Token::Word(value)) => check_value(&value).map(|()| value)?,
                _ => String::new(),
            };
            values.insert(value);
            match self.tokens.next() {
                Some(Token::Comma) => {}
                Some(Token::Close) => return Ok(values),
                other => return Err(unexpected(other, "',' or ')'")),
            }
        }
    }

    fn is_at_end(&mut self) -> bool {
        matches!(self.tokens.peek(), None | Some(Token::Comma))
    }
}

fn unexpected(found: Option<Token>, expected: &str) -> String {
    let found = found.map_or_else(|| "the end".to_owned(), |token| token.to_string());
    format!("expected {expected}, found {found}")
}

// ---- syntax of labels

/// Fails for a text that Kubernetes does not accept as key of a label.
pub fn check_label_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| !is_domain(prefix)) || !is_name(name) {
        return Err(format!("{key:?} is not a valid label key, such as zone or topology.kubernetes.io/zone"));
    }
    Ok(())
}

fn check_value(value: &str) -> Result<(), String> {
    if is_name(value) {
        return Ok(());
    }
    Err(format!(
        "{value:?} is not a valid label value: at most {MAX_LENGTH} letters, digits and any of -_. in between, without \
         quotes"
    ))
}

/// Returns whether text consists of letters, digits, and `-`, `_` and `.` between them.
pub(super) fn is_name(text: &str) -> bool {
    let is_inner = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'-' | b'_' | b'.');
    is_delimited(text, MAX_LENGTH, |letter| letter.is_ascii_alphanumeric(), is_inner)
}

/// Returns whether text is a DNS subdomain in lower case.
fn is_domain(text: &str) -> bool {
    let is_edge = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_label =
        |label: &str| is_delimited(label, MAX_PREFIX_LENGTH, is_edge, |letter| is_edge(letter) || letter == b'-');
    text.len() <= MAX_PREFIX_LENGTH && text.split('.').all(is_label)
}

/// Checks the length, the first and last character, and all characters of a name.
fn is_delimited(text: &str, max_length: usize, is_edge: impl Fn(u8) -> bool, is_inner: impl Fn(u8) -> bool) -> bool {
    let edges = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= max_length && edges.into_iter().all(|edge| edge.is_some_and(&is_edge)) && text.bytes().all(is_inner)
}
