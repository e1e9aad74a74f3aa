//! Comparison of two responses.

use serde_json::{Map, Value};

use super::names::{Names, is_generated};

/// Allowed differences between a real cloud and its simulator.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules {
    /// Fields with human-readable messages, compared without IDs, addresses and the text after one of `prose_ends`.
    pub prose: &'static [&'static str],
    /// Markers at which a message is truncated before it is compared.
    pub prose_ends: &'static [&'static str],
    /// Fields that only the real cloud has.
    pub left_out: &'static [&'static str],
    /// Fields of which only the type is compared, such as dates. `a[].b` is the field `b` of the items of the list `a`, `.a` is a
    /// top-level field.
    pub own: &'static [&'static str],
    /// Lists of which only the common items are compared.
    pub partial: &'static [&'static str],
    /// Fields that identify items of lists without a known ID.
    pub identity: &'static [&'static str],
}

impl Rules {
    /// Differences between a response and the recorded one. Learns the pairs of generated names.
    pub fn compare(&self, names: &mut Names, recorded: &Value, ours: &Value) -> Vec<String> {
        self.learn(names, recorded, ours);
        let mut comparison = Comparison { rules: self, names, differences: Vec::new() };
        comparison.values("", recorded, ours);
        comparison.differences
    }

    /// Differences between pages of lists that are sorted by generated IDs: compares the number of items and the links to other
    /// pages.
    pub fn compare_pages(recorded: &Value, ours: &Value) -> Vec<String> {
        let outline = |answer: &Value| -> Vec<(String, usize, Vec<String>)> {
            let lists = answer.as_object().into_iter().flatten();
            let rels = |list: &Value| {
                let links = list.as_array().into_iter().flatten();
                links.filter_map(|link| link.get("rel")?.as_str()).map(str::to_owned).collect()
            };
            lists.map(|(name, list)| (name.clone(), list.as_array().map_or(0, Vec::len), rels(list))).collect()
        };
        if outline(recorded) == outline(ours) {
            return Vec::new();
        }
        vec![format!("the page is {:?}, recorded {:?}", outline(ours), outline(recorded))]
    }
}

struct Comparison<'a> {
    rules: &'a Rules,
    names: &'a Names,
    differences: Vec<String>,
}

impl Comparison<'_> {
    fn values(&mut self, place: &str, recorded: &Value, ours: &Value) {
        match (recorded, ours) {
            (Value::Object(recorded), Value::Object(ours)) => self.objects(place, recorded, ours),
            (Value::Array(recorded), Value::Array(ours)) => self.lists(place, recorded, ours),
            _ => self.scalars(place, recorded, ours),
        }
    }

    fn objects(&mut self, place: &str, recorded: &Map<String, Value>, ours: &Map<String, Value>) {
        for (field, value) in recorded {
            // Field names are compared literally: addresses of servers are keyed by network name.
            match ours.get(field) {
                Some(our) => self.values(&format!("{place}.{field}"), value, our),
                None if self.rules.left_out.contains(&field.as_str()) => {}
                None => self.differences.push(format!("{place}.{field} is missing: {value}")),
            }
        }
        for (field, value) in ours.iter().filter(|(field, _)| !recorded.contains_key(*field)) {
            self.differences.push(format!("{place}.{field} is not in the recording: {value}"));
        }
    }

    fn lists(&mut self, place: &str, recorded: &[Value], ours: &[Value]) {
        let name = place.rsplit('.').next().unwrap_or_default();
        if recorded.len() != ours.len() && !self.rules.partial.contains(&name) {
            self.differences.push(format!("{place} has {} of {}", ours.len(), recorded.len()));
        }
        for (recorded, ours) in self.rules.paired(self.names, recorded, ours, !self.rules.partial.contains(&name)) {
            self.values(&format!("{place}[]"), recorded, ours);
        }
    }

    fn scalars(&mut self, place: &str, recorded: &Value, ours: &Value) {
        let field = place.rsplit('.').next().unwrap_or_default();
        let same_type = std::mem::discriminant(recorded) == std::mem::discriminant(ours);
        let same = match recorded {
            _ if self.rules.is_own(place, field) => same_type,
            Value::String(text) if self.rules.prose.contains(&field) => ours
                .as_str()
                .is_some_and(|ours| self.rules.anonymous(ours) == self.rules.anonymous(&self.names.ours(text))),
            Value::String(text) => ours.as_str() == Some(&self.names.ours(text)),
            // Response without a body.
            Value::Null if place.is_empty() => ours == "" || ours.is_null(),
            _ => recorded == ours,
        };
        if !same {
            self.differences.push(format!("{place} is {ours}, recorded {recorded}"));
        }
    }
}

impl Rules {
    fn is_own(&self, place: &str, field: &str) -> bool {
        let matches = |own: &&'static str| match own.strip_prefix('.') {
            Some(_) => place == *own,
            None => *own == field || own.contains('.') && place.ends_with(own),
        };
        self.own.iter().any(matches)
    }

    /// Message without the parts that differ every time: IDs, addresses, and the text after one of `prose_ends`.
    fn anonymous(&self, text: &str) -> String {
        let end = |text: &str, end: &&str| text.find(*end).unwrap_or(text.len());
        let text = self.prose_ends.iter().fold(text, |text, mark| &text[..end(text, mark)]);
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || ".:-/".contains(letter);
        let mut anonymous = String::new();
        for piece in text.split_inclusive(|letter: char| !is_part(letter)) {
            let (word, rest) = match piece.chars().last() {
                Some(last) if !is_part(last) => piece.split_at(piece.len() - last.len_utf8()),
                _ => (piece, ""),
            };
            anonymous.push_str(if is_generated(word.trim_end_matches('.')) { "…" } else { word });
            anonymous.push_str(rest);
        }
        anonymous
    }

    /// Pairs the items of two lists, which are sorted by generated IDs. `all` also pairs the remaining items in order.
    fn paired<'a>(
        &self,
        names: &Names,
        recorded: &'a [Value],
        ours: &'a [Value],
        all: bool,
    ) -> Vec<(&'a Value, &'a Value)> {
        let (mut left, mut pairs, mut unmatched) = (ours.iter().collect::<Vec<_>>(), Vec::new(), Vec::new());
        for one in recorded {
            match left.iter().position(|our| self.is_same(names, one, our)) {
                Some(at) => pairs.push((one, left.remove(at))),
                None => unmatched.push(one),
            }
        }
        pairs.extend(unmatched.into_iter().zip(left).filter(|_| all));
        pairs
    }

    fn is_same(&self, names: &Names, recorded: &Value, ours: &Value) -> bool {
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(text) = recorded.as_str() {
            return ours.as_str() == Some(&names.ours(text));
        }
        let id = text(recorded, "id");
        if names.is_bound(&id) {
            return names.ours(&id) == text(ours, "id");
        }
        self.identity.iter().all(|field| names.ours(&text(recorded, field)) == text(ours, field))
    }

    /// Learns pairs of names at the same place in both responses.
    fn learn(&self, names: &mut Names, recorded: &Value, ours: &Value) {
        match (recorded, ours) {
            (Value::Object(recorded), Value::Object(ours)) => {
                for (field, value) in recorded {
                    if let Some(our) = ours.get(field) {
                        self.learn(names, value, our);
                    }
                }
            }
            (Value::Array(recorded), Value::Array(ours)) => {
                for (one, our) in self.paired(names, recorded, ours, true) {
                    self.learn(names, one, our);
                }
            }
            (Value::String(recorded), Value::String(ours)) => names.learn(recorded, ours),
            _ => {}
        }
    }
}
