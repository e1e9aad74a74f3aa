//! Parameters of a query request: `Filter.1.Value.2=x` as a tree, checked against the parameters that an action has.
//!
//! A pattern is a list of names. `#` is a list index (`Filter.1` in EC2, `Tags.member.1` in ELB and STS), braces hold alternatives,
//! and `!` marks a required parameter: `GroupId! Filter.#.{Name,Value.#}`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::wire::{Api, Failure};

/// Parameters that every action has.
const COMMON: &str = "Action Version DryRun";

/// Parameters of a request, as a tree of objects, lists and strings.
pub(crate) struct Params {
    tree: Value,
}

impl Params {
    /// Parses and checks the fields of a form.
    pub(crate) fn read(api: Api, form: &[(String, String)], patterns: &str) -> Result<Params, Failure> {
        let known: Vec<String> = patterns.split(' ').chain(COMMON.split(' ')).flat_map(expand).collect();
        let sent: Vec<String> = form.iter().map(|(name, _)| normalized(api, name)).collect();
        for ((name, value), normalized) in form.iter().zip(&sent) {
            let list = format!("{normalized}.#");
            let is_empty_list = |known: &str| value.is_empty() && known.starts_with(&list);
            let is_known = |known: &String| known.trim_end_matches('!') == normalized || is_empty_list(known);
            if !known.iter().any(is_known) {
                return Err(Failure::new("UnknownParameter", format!("The parameter {name} is not recognized")));
            }
        }
        let mut required = known.iter().filter_map(|known| known.strip_suffix('!'));
        if let Some(name) =
            required.find(|name| !sent.iter().any(|sent| sent == name || name.strip_suffix(".#") == Some(sent)))
        {
            return Err(Failure::missing(api, name.trim_end_matches(".#")));
        }
        let mut root = Node::default();
        form.iter().for_each(|(name, value)| root.insert(name.split('.').filter(|part| *part != "member"), value));
        Ok(Params { tree: root.into_value() })
    }

    /// Text of a parameter; empty if it is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        text(&self.tree, name)
    }

    /// Text of a parameter; `None` if it is missing or empty.
    pub(crate) fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// Items of a list parameter; empty if it is missing.
    pub(crate) fn items(&self, name: &str) -> &[Value] {
        items(&self.tree, name)
    }

    /// Texts of a list parameter.
    pub(crate) fn texts(&self, name: &str) -> Vec<&str> {
        self.items(name).iter().filter_map(Value::as_str).collect()
    }

    /// Parameter as a value; null if it is missing.
    pub(crate) fn value(&self, name: &str) -> &Value {
        &self.tree[name]
    }

    /// Whether the parameter was sent, even if it is empty.
    pub(crate) fn has(&self, name: &str) -> bool {
        !self.tree[name].is_null()
    }

    /// Number in a parameter; `None` if it is missing.
    pub(crate) fn number(&self, name: &str) -> Result<Option<usize>, Failure> {
        let Some(text) = self.given(name) else { return Ok(None) };
        let invalid = |_| Failure::invalid(format!("Invalid value '{text}' for {name}: not an integer"));
        text.parse().map(Some).map_err(invalid)
    }
}

/// Text of a field; empty if it is missing.
pub(crate) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Items of a list field; empty if it is missing.
pub(crate) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// All names that a pattern stands for.
fn expand(pattern: &str) -> Vec<String> {
    let Some((head, rest)) = pattern.split_once('{') else { return vec![pattern.to_owned()] };
    let inner = rest.strip_suffix('}').unwrap_or(rest);
    let mut depth = 0;
    let parts = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.flat_map(expand).map(|part| format!("{head}{part}")).collect()
}

/// Name with `#` for list indices: `Filter.#.Value.#`. An index in the syntax of the other APIs remains as it is.
fn normalized(api: Api, name: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('.') {
        let is_index = part.parse::<u32>().is_ok();
        let follows_member = parts.last() == Some(&"member");
        if is_index && follows_member && api != Api::Ec2 {
            parts.pop();
        }
        parts.push(if is_index && follows_member == (api != Api::Ec2) { "#" } else { part });
    }
    parts.join(".")
}

#[derive(Default)]
struct Node {
    text: Option<String>,
    children: BTreeMap<String, Node>,
}

impl Node {
    fn insert<'a>(&mut self, mut path: impl Iterator<Item = &'a str>, value: &str) {
        match path.next() {
            Some(part) => self.children.entry(part.to_owned()).or_default().insert(path, value),
            None => self.text = Some(value.to_owned()),
        }
    }

    fn into_value(self) -> Value {
        if self.children.is_empty() {
            return self.text.unwrap_or_default().into();
        }
        let index = |name: &String| name.parse::<u32>().unwrap_or_default();
        if !self.children.keys().all(|name| name.parse::<u32>().is_ok()) {
            let fields = self.children.into_iter().map(|(name, node)| (name, node.into_value()));
            return fields.collect::<Map<_, _>>().into();
        }
        let mut list: Vec<_> = self.children.into_iter().collect();
        list.sort_by_key(|(name, _)| index(name));
        list.into_iter().map(|(_, node)| node.into_value()).collect::<Vec<_>>().into()
    }
}
