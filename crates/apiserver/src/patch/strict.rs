//! Strict field validation of the patch text.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::PatchKind;

/// Returns duplicate keys and, in a JSON patch, unknown fields of operations.
pub(super) fn issues(kind: PatchKind, patch: &[u8]) -> Vec<String> {
    let mut collector = Collector { operations: kind == PatchKind::Json, path: Vec::new(), issues: Vec::new() };
    let mut reader = serde_json::Deserializer::from_slice(patch);
    match Seed(&mut collector).deserialize(&mut reader) {
        Ok(()) => collector.issues,
        Err(_) => Vec::new(),
    }
}

/// Collects issues in the order of the JSON text.
struct Collector {
    /// Set if the text is a list of JSON patch operations.
    operations: bool,
    path: Vec<String>,
    issues: Vec<String>,
}

impl Collector {
    fn report(&mut self, what: &str, key: &str) {
        let mut path = self.path.concat();
        if !path.is_empty() {
            path.push('.');
        }
        let prefix = if self.operations { "json patch " } else { "" };
        let issue = format!("{prefix}{what} field \"{path}{key}\"");
        if !self.issues.contains(&issue) {
            self.issues.push(issue);
        }
    }

    fn check_key(&mut self, seen: &mut HashSet<String>, key: &str) {
        let in_operation = self.operations && self.path.len() == 1;
        if in_operation && !matches!(key, "op" | "path" | "from" | "value") {
            self.report("unknown", key);
        } else if !seen.insert(key.to_owned()) {
            self.report("duplicate", key);
        }
    }
}

struct Seed<'f>(&'f mut Collector);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        for index in 0.. {
            self.0.path.push(format!("[{index}]"));
            let next = seq.next_element_seed(Seed(self.0))?;
            self.0.path.pop();
            if next.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            self.0.check_key(&mut seen, &key);
            let dot = if self.0.path.is_empty() { "" } else { "." };
            self.0.path.push(format!("{dot}{key}"));
            map.next_value_seed(Seed(self.0))?;
            self.0.path.pop();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_keys_are_found_at_any_depth() {
        let text = br#"{"a":{"b":[{"c":1,"c":2}],"b":[]},"d":1,"d":2,"d":3}"#;
        let expected = [r#"duplicate field "a.b[0].c""#, r#"duplicate field "a.b""#, r#"duplicate field "d""#];
        assert_eq!(issues(PatchKind::Merge, text), expected);
    }

    #[test]
    fn unknown_fields_of_operations_are_found() {
        let text = br#"[{"op":"add","path":"/a","value":{"x":1,"x":2},"foo":1}]"#;
        let expected = [r#"json patch duplicate field "[0].value.x""#, r#"json patch unknown field "[0].foo""#];
        assert_eq!(issues(PatchKind::Json, text), expected);
    }
}
