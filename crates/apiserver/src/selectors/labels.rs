//! Label selectors.
//!
//! ```text
//! selector    = requirement { "," requirement }
//! requirement = key                                    the label exists
//!             | "!" key                                the label does not exist
//!             | key ("=" | "==" | "!=") [value]
//!             | key ("in" | "notin") "(" [value] { "," [value] } ")"
//!             | key (">" | "<") integer
//! ```
//!
//! All requirements must match; `!=` and `notin` also match objects without the label.

use std::collections::{BTreeMap, BTreeSet};

use crate::field_error::FieldError;
use crate::status::{ApiError, ApiResult};
use crate::validation;

/// A parsed label selector; an empty one matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Parses the `labelSelector` parameter.
    pub(crate) fn parse(text: &str) -> ApiResult<LabelSelector> {
        match (Parser { items: scan(text), at: 0 }).selector() {
            Ok(requirements) => Ok(LabelSelector { requirements }),
            Err(message) => Err(ApiError::bad_request(message)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|r| r.test.matches(labels.get(&r.key)))
    }
}

impl Test {
    fn matches(&self, value: Option<&String>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match self {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(wanted) => value.is_some_and(|v| wanted.contains(v)),
            Test::NotIn(unwanted) => value.is_none_or(|v| !unwanted.contains(v)),
            Test::Above(limit) => number().is_some_and(|n| n > *limit),
            Test::Below(limit) => number().is_some_and(|n| n < *limit),
        }
    }
}

// === Lexer ===

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Word,
    Not,
    Equal,
    NotEqual,
    Above,
    Below,
    In,
    NotIn,
    Comma,
    Open,
    Close,
    End,
}

#[derive(Debug, Clone, Copy)]
struct Item<'a> {
    token: Token,
    text: &'a str,
}

impl Item<'_> {
    /// `in` and `notin` are words where no operator is expected.
    fn as_operand(self) -> Self {
        match self.token {
            Token::In | Token::NotIn => Item { token: Token::Word, ..self },
            _ => self,
        }
    }
}

const END: Item<'static> = Item { token: Token::End, text: "" };

fn scan(text: &str) -> Vec<Item<'_>> {
    let mut items = Vec::new();
    let mut rest = skip_whitespace(text);
    while !rest.is_empty() {
        let (item, tail) = next_item(rest);
        items.push(item);
        rest = skip_whitespace(tail);
    }
    items
}

fn skip_whitespace(text: &str) -> &str {
    text.trim_start_matches(is_whitespace)
}

fn is_whitespace(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '\0')
}

fn next_item(text: &str) -> (Item<'_>, &str) {
    const TOKENS: [(&str, Token); 9] = [
        ("==", Token::Equal),
        ("!=", Token::NotEqual),
        ("=", Token::Equal),
        ("!", Token::Not),
        (">", Token::Above),
        ("<", Token::Below),
        (",", Token::Comma),
        ("(", Token::Open),
        (")", Token::Close),
    ];
    if let Some((token_text, token)) = TOKENS.into_iter().find(|(token, _)| text.starts_with(token)) {
        let (text, tail) = text.split_at(token_text.len());
        return (Item { token, text }, tail);
    }
    let end = text.find(|c| is_whitespace(c) || "=!(),><".contains(c)).unwrap_or(text.len());
    let (word, tail) = text.split_at(end);
    let token = match word {
        "in" => Token::In,
        "notin" => Token::NotIn,
        _ => Token::Word,
    };
    (Item { token, text: word }, tail)
}

// === Requirements ===

struct Parser<'a> {
    items: Vec<Item<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Item<'a> {
        self.items.get(self.at).copied().unwrap_or(END).as_operand()
    }

    fn next(&mut self) -> Item<'a> {
        let item = self.peek();
        self.at += 1;
        item
    }

    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Item { token: Token::End, .. } => return Ok(requirements),
                Item { token: Token::Word | Token::Not, .. } => {}
                other => return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.text)),
            }
            let requirement = self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?;
            requirements.push(requirement);
            match self.next() {
                Item { token: Token::End, .. } => return Ok(requirements),
                Item { token: Token::Comma, .. } => self.expect_another()?,
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text)),
            }
        }
    }

    fn expect_another(&self) -> Result<(), String> {
        match self.peek() {
            Item { token: Token::Word | Token::Not, .. } => Ok(()),
            other => Err(format!("found '{}', expected: identifier after ','", other.text)),
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek().token == Token::Not;
        if negated {
            self.next();
        }
        let key = self.key()?;
        let ends = matches!(self.peek().token, Token::End | Token::Comma);
        let test = match (negated, ends) {
            (true, _) => Test::Absent,
            (false, true) => Test::Exists,
            (false, false) => self.comparison(key)?,
        };
        Ok(Requirement { key: key.to_owned(), test })
    }

    fn key(&mut self) -> Result<&'a str, String> {
        let item = self.next();
        if item.token != Token::Word {
            return Err(format!("found '{}', expected: identifier", item.text));
        }
        match validation::qualified_name(item.text) {
            errors if errors.is_empty() => Ok(item.text),
            // upstream: the field path of the key is nil.
            errors => Err(FieldError::invalid("<nil>", item.text, errors.join("; ")).to_string()),
        }
    }

    fn comparison(&mut self, key: &str) -> Result<Test, String> {
        let operator = self.items.get(self.at).copied().unwrap_or(END);
        self.at += 1;
        let values = match operator.token {
            Token::In | Token::NotIn => self.values()?,
            Token::Equal | Token::NotEqual | Token::Above | Token::Below => BTreeSet::from([self.value()?]),
            _ => return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", operator.text)),
        };
        let mut errors = Vec::new();
        let mut limit = 0;
        if matches!(operator.token, Token::Above | Token::Below) {
            match integer(&values) {
                Ok(number) => limit = number,
                Err(error) => errors.push(error),
            }
        }
        errors.extend(invalid_values(key, &values));
        to_result(&errors)?;
        Ok(match operator.token {
            Token::In | Token::Equal => Test::In(values),
            Token::Above => Test::Above(limit),
            Token::Below => Test::Below(limit),
            _ => Test::NotIn(values),
        })
    }

    /// The value after an operator such as `=`; a missing value is empty.
    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek().token, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            Item { token: Token::Word, text } => Ok(text.to_owned()),
            other => Err(format!("found '{}', expected: identifier", other.text)),
        }
    }

    /// The values in parentheses; nothing between two commas is an empty value.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        match self.next() {
            Item { token: Token::Open, .. } => {}
            other => return Err(format!("found '{}' expected: '('", other.text)),
        }
        match self.peek() {
            Item { token: Token::Word | Token::Comma, .. } => self.value_list(),
            Item { token: Token::Close, .. } => {
                self.next();
                Ok(BTreeSet::from([String::new()]))
            }
            other => Err(format!("found '{}', expected: ',', ')' or identifier", other.text)),
        }
    }

    fn value_list(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            let item = self.next();
            let after = self.peek();
            match (item.token, after.token) {
                (Token::Word, Token::Comma | Token::Close) => drop(values.insert(item.text.to_owned())),
                (Token::Word, _) => return Err(format!("found '{}', expected: ',' or ')'", after.text)),
                (Token::Comma, Token::Comma | Token::Close) => drop(values.insert(String::new())),
                (Token::Comma, _) if values.is_empty() => drop(values.insert(String::new())),
                (Token::Comma, _) => {}
                _ => return Err(format!("found '{}', expected: ',', or identifier", item.text)),
            }
            if after.token == Token::Close {
                self.next();
                return Ok(values);
            }
        }
    }
}

fn integer(values: &BTreeSet<String>) -> Result<i64, FieldError> {
    let text = values.first().map(String::as_str).unwrap_or_default();
    let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
    text.parse().map_err(|_| FieldError::invalid("values[0]", text, detail))
}

fn invalid_values(key: &str, values: &BTreeSet<String>) -> Vec<FieldError> {
    let checked = values.iter().enumerate().map(|(i, value)| (i, value, validation::label_value(value)));
    checked
        .filter(|(_, _, errors)| !errors.is_empty())
        .map(|(i, value, errors)| FieldError::invalid(format!("values[{i}][{key}]"), value.as_str(), errors.join("; ")))
        .collect()
}

fn to_result(errors: &[FieldError]) -> Result<(), String> {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the recorded objects that match: a and b have app=x, c has app=y; label i is 0, 1 and 2.
    fn matched(selector: &str) -> String {
        let selector = LabelSelector::parse(selector).unwrap();
        let objects = [("a", "x", "0"), ("b", "x", "1"), ("c", "y", "2")];
        let labels = |app: &str, i: &str| BTreeMap::from([("app".into(), app.into()), ("i".into(), i.into())]);
        objects.iter().filter(|(_, app, i)| selector.matches(&labels(app, i))).map(|(name, ..)| *name).collect()
    }

    #[test]
    fn selectors_match_the_recorded_objects() {
        for (selector, want) in [
            ("", "abc"),
            ("app==x", "ab"),
            ("app!=x", "c"),
            ("app in (x,y)", "abc"),
            ("app notin (x)", "c"),
            ("app", "abc"),
            ("!app", ""),
            ("!nope", "abc"),
            ("app=x,i=0", "a"),
            ("app=x,i!=0", "b"),
            ("nope!=x", "abc"),
            ("nope notin (x)", "abc"),
            ("i>0", "bc"),
            ("i<2", "ab"),
            ("app>0", ""),
            ("app in (x),i notin (1)", "a"),
            ("app=", ""),
            ("app in ()", ""),
            ("app in (,x)", "ab"),
            ("x/y=1", ""),
            (" app = x ", "ab"),
            ("app in (in)", ""),
            ("in,notin", ""),
            ("!in", "abc"),
        ] {
            assert_eq!(matched(selector), want, "{selector:?}");
        }
    }

    #[test]
    fn errors_match_upstream_messages() {
        let key_form = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                        an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                        validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        let bad_key = format!("unable to parse requirement: <nil>: Invalid value: \"-bad\": {key_form}");
        for (selector, want) in [
            ("app in x", "unable to parse requirement: found 'x' expected: '('"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("=x", "found '=', expected: !, identifier, or 'end of string'"),
            ("-bad=1", &bad_key),
            ("app=bad value!", "found 'value', expected: ',' or 'end of string'"),
            ("app in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
            (
                "app>abc",
                "unable to parse requirement: values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            ("a=x y", "found 'y', expected: ',' or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("a,,b", "found ',', expected: identifier after ','"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            ("!!a", "unable to parse requirement: found '!', expected: identifier"),
            ("a=(", "unable to parse requirement: found '(', expected: identifier"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in (x,", "unable to parse requirement: found '', expected: ',', or identifier"),
            ("a in (x,(", "unable to parse requirement: found '(', expected: ',', or identifier"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("a==!b", "unable to parse requirement: found '!', expected: identifier"),
            ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ] {
            assert_eq!(LabelSelector::parse(selector).unwrap_err().message, want, "{selector:?}");
        }
    }

    #[test]
    fn invalid_values_are_listed_with_their_index() {
        let message = LabelSelector::parse("k in (-b,a,_c)").unwrap_err().message;
        assert!(
            message.starts_with("unable to parse requirement: [values[0][k]: Invalid value: \"-b\": a valid label")
        );
        assert!(message.contains(", values[1][k]: Invalid value: \"_c\": a valid label"), "{message}");
        let message = LabelSelector::parse("k>-x").unwrap_err().message;
        assert!(message.starts_with("unable to parse requirement: [values[0]: Invalid value: \"-x\": for 'Gt'"));
    }
}
