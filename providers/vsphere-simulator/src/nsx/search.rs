//! Search: `resource_type:StaticRoutes AND tags.scope:a\/b`, with OR, NOT, parentheses, `*` and `?` as wildcards, and phrases such as
//! `tags.tag:"a b"`.
//!
//! Every term must name its field. The real manager also searches all fields for a term without one, so that a value with a space that
//! is not escaped finds too much; here it is an error.

use bowline_simulator::{Body, Call, Record, object};
use serde_json::Value;

use super::listing::{PARAMETERS, page};
use super::simulator::State;
use super::wire::{Outcome, check_parameters, error, invalid};

/// Characters that a value must escape. A dash within a word is part of it.
const SPECIAL: &str = "()[]+=&|><!{}^~:/\"";

/// Condition of a query.
#[derive(Debug, Clone, PartialEq)]
enum Query {
    All(Vec<Query>),
    Any(Vec<Query>),
    Not(Box<Query>),
    Field { path: String, pattern: Vec<Symbol> },
}

/// Character of a pattern.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Symbol {
    Exactly(char),
    AnyOne,
    AnyMany,
}

pub(crate) fn answer(state: &State, call: &Call) -> Outcome {
    check_parameters(call, &[PARAMETERS.as_slice(), &["query"]].concat())?;
    let text = call.value("query").ok_or_else(|| invalid("query parameter query is missing"))?;
    let query = parse(text).ok_or_else(|| error(400, 60_501, format!("Invalid search query: {text}")))?;
    let objects = state.records.of("index").iter().filter_map(|row| row.record.get("object"));
    let found: Vec<Record> = objects.filter(|shown| query.matches(shown)).cloned().map(object).collect();
    let mut reply = page(call, found, state.options.max_page, true)?;
    if let (Some(fields), Body::Json(body)) = (call.value("included_fields"), &mut reply.body) {
        body["results"].as_array_mut().into_iter().flatten().for_each(|shown| project(shown, fields));
    }
    Ok(reply)
}

/// Removes all but the requested fields.
fn project(shown: &mut Value, fields: &str) {
    if let Some(shown) = shown.as_object_mut() {
        shown.retain(|field, _| fields.split(',').any(|wanted| wanted.trim() == field));
    }
}

impl Query {
    fn matches(&self, object: &Value) -> bool {
        match self {
            Query::All(parts) => parts.iter().all(|part| part.matches(object)),
            Query::Any(parts) => parts.iter().any(|part| part.matches(object)),
            Query::Not(part) => !part.matches(object),
            Query::Field { path, pattern } => {
                values(object, path).iter().any(|value| is_match(pattern, &value.chars().collect::<Vec<_>>()))
            }
        }
    }
}

/// Texts of a field. A path leads through lists, so that fields of list items are matched independently of each other.
fn values(value: &Value, path: &str) -> Vec<String> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    match value {
        Value::Array(items) => items.iter().flat_map(|item| values(item, path)).collect(),
        Value::Object(fields) => fields.get(first).map(|value| values(value, rest)).unwrap_or_default(),
        Value::String(text) if path.is_empty() => vec![text.clone()],
        Value::Bool(_) | Value::Number(_) if path.is_empty() => vec![value.to_string()],
        _ => Vec::new(),
    }
}

/// Whether a text matches, without regard to case.
fn is_match(pattern: &[Symbol], text: &[char]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((Symbol::AnyMany, rest)), None) => is_match(rest, text),
        (Some((Symbol::AnyMany, rest)), Some((_, later))) => is_match(rest, text) || is_match(pattern, later),
        (Some((Symbol::AnyOne, rest)), Some((_, later))) => is_match(rest, later),
        (Some((Symbol::Exactly(wanted), rest)), Some((found, later))) => {
            wanted.to_lowercase().eq(found.to_lowercase()) && is_match(rest, later)
        }
        _ => false,
    }
}

// ---- syntax

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Open,
    Close,
    And,
    Or,
    Not,
    Field { path: String, pattern: Vec<Symbol> },
}

fn parse(text: &str) -> Option<Query> {
    let tokens = tokens(text)?;
    let (query, rest) = any(&tokens)?;
    rest.is_empty().then_some(query)
}

fn any(tokens: &[Token]) -> Option<(Query, &[Token])> {
    let (mut parts, mut rest) = all(tokens).map(|(part, rest)| (vec![part], rest))?;
    while let Some((Token::Or, later)) = rest.split_first() {
        let (part, after) = all(later)?;
        parts.push(part);
        rest = after;
    }
    Some((Query::Any(parts), rest))
}

fn all(tokens: &[Token]) -> Option<(Query, &[Token])> {
    let (mut parts, mut rest) = one(tokens).map(|(part, rest)| (vec![part], rest))?;
    while let Some((Token::And, later)) = rest.split_first() {
        let (part, after) = one(later)?;
        parts.push(part);
        rest = after;
    }
    Some((Query::All(parts), rest))
}

fn one(tokens: &[Token]) -> Option<(Query, &[Token])> {
    let (first, rest) = tokens.split_first()?;
    match first {
        Token::Open => {
            let (query, rest) = any(rest)?;
            rest.strip_prefix(&[Token::Close]).map(|rest| (query, rest))
        }
        Token::Not => one(rest).map(|(query, rest)| (Query::Not(Box::new(query)), rest)),
        Token::Field { path, pattern } => Some((Query::Field { path: path.clone(), pattern: pattern.clone() }, rest)),
        _ => None,
    }
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(next) = chars.peek().copied() {
        match next {
            ' ' => drop(chars.next()),
            '(' | ')' => {
                chars.next();
                tokens.push(if next == '(' { Token::Open } else { Token::Close });
            }
            _ => tokens.push(word(&mut chars)?),
        }
    }
    Some(tokens)
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Reads an operator, or a field and its pattern.
fn word(chars: &mut Chars<'_>) -> Option<Token> {
    let mut name = String::new();
    while let Some(next) = chars.next_if(|next| next.is_alphanumeric() || "._-".contains(*next)) {
        name.push(next);
    }
    match (chars.next_if_eq(&':'), name.as_str()) {
        (None, "AND") => Some(Token::And),
        (None, "OR") => Some(Token::Or),
        (None, "NOT") => Some(Token::Not),
        (Some(_), path) if !path.is_empty() => {
            pattern(chars).map(|pattern| Token::Field { path: path.to_owned(), pattern })
        }
        _ => None,
    }
}

/// Reads a phrase up to its closing quotation mark.
fn phrase(chars: &mut Chars<'_>) -> Option<Vec<Symbol>> {
    let mut phrase = Vec::new();
    loop {
        match chars.next()? {
            '"' => return Some(phrase),
            '\\' => phrase.push(Symbol::Exactly(chars.next()?)),
            plain => phrase.push(Symbol::Exactly(plain)),
        }
    }
}

/// Reads a value up to a space or a parenthesis; `None` if it is empty or has a special character that is not escaped.
fn pattern(chars: &mut Chars<'_>) -> Option<Vec<Symbol>> {
    if chars.next_if_eq(&'"').is_some() {
        return phrase(chars);
    }
    let mut pattern = Vec::new();
    while let Some(next) = chars.next_if(|next| ![' ', ')'].contains(next)) {
        pattern.push(match next {
            '\\' => Symbol::Exactly(chars.next()?),
            '*' => Symbol::AnyMany,
            '?' => Symbol::AnyOne,
            '-' if pattern.is_empty() => return None,
            special if SPECIAL.contains(special) => return None,
            plain => Symbol::Exactly(plain),
        });
    }
    Some(pattern).filter(|pattern| !pattern.is_empty())
}
