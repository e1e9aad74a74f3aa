//! Volumes made of small files: projected ones and those of the downward API.

use std::collections::BTreeSet;

use serde_json::Value;

use super::env;
use super::paths;
use super::volumes::{file_mode, key_to_path, required_fields};
use crate::resources::check::{Findings, Path};
use crate::value::Json;

pub(super) fn downward_api(source: &Value, at: Path<'_>, found: &mut Findings) {
    file_mode(source.int("defaultMode"), at.child("defaultMode"), found);
    for file in source.list("items") {
        // upstream: errors of a file do not say which file.
        downward_file(file, at, found);
    }
}

fn downward_file(file: &Value, at: Path<'_>, found: &mut Findings) {
    required_fields(file, &["path"], at, found);
    paths::unreserved(file.text("path"), at.child("path"), found);
    match (file.has("fieldRef"), file.has("resourceFieldRef")) {
        (true, both) => {
            env::field_ref(file.at("fieldRef"), env::FILE_FIELDS, at.child("fieldRef"), found);
            if both {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                found.invalid(at, "resource", detail);
            }
        }
        (false, true) => {
            let reference = file.at("resourceFieldRef");
            env::resource_field_ref(reference, true, at.child("resourceFieldRef"), found);
        }
        (false, false) => found.required(at, "one of fieldRef and resourceFieldRef is required"),
    }
    file_mode(file.int("mode"), at.child("mode"), found);
}

pub(super) fn projected(volume: &Value, at: Path<'_>, found: &mut Findings) {
    file_mode(volume.int("defaultMode"), at.child("defaultMode"), found);
    let mut taken = Taken { paths: BTreeSet::new(), volume: at };
    let sources = at.child("sources");
    for (i, source) in volume.list("sources").iter().enumerate() {
        let at = sources.index(i);
        projection(source, &mut taken, at, found);
        if source.as_object().is_some_and(|s| s.len() > 1) {
            found.forbidden(at, "may not specify more than 1 volume type per source");
        }
    }
}

/// The paths that sources of one volume put files at.
struct Taken<'a> {
    paths: BTreeSet<&'a str>,
    /// Where conflicts are reported.
    volume: Path<'a>,
}

impl<'a> Taken<'a> {
    /// Takes a path; `shown` is what an error names.
    fn take(&mut self, path: &'a str, shown: &str, found: &mut Findings) {
        if !path.is_empty() && !self.paths.insert(path) {
            found.invalid(self.volume, shown, "conflicting duplicate paths");
        }
    }
}

fn projection<'a>(source: &'a Value, taken: &mut Taken<'a>, at: Path<'_>, found: &mut Findings) {
    for kind in ["secret", "configMap"] {
        if let Some(object) = source.get(kind) {
            named_files(object, taken, at.child(kind), found);
        }
    }
    let downward = at.child("downwardAPI");
    for file in source.list("downwardAPI.items") {
        downward_file(file, downward, found);
        taken.take(file.text("path"), file.text("path"), found);
    }
    if let Some(token) = source.get("serviceAccountToken") {
        token_file(token, taken.volume, at.child("serviceAccountToken"), found);
    }
    if let Some(bundle) = source.get("clusterTrustBundle") {
        trust_bundle(bundle, taken, at.child("clusterTrustBundle"), found);
    }
}

fn named_files<'a>(object: &'a Value, taken: &mut Taken<'a>, at: Path<'_>, found: &mut Findings) {
    required_fields(object, &["name"], at, found);
    let items = at.child("items");
    for (i, item) in object.list("items").iter().enumerate() {
        key_to_path(item, items.index(i), found);
        taken.take(item.text("path"), object.text("name"), found);
    }
}

fn token_file(token: &Value, volume: Path<'_>, at: Path<'_>, found: &mut Findings) {
    let expires = at.child("expirationSeconds");
    match token.int("expirationSeconds") {
        None => found.required(expires, ""),
        Some(seconds) if seconds < 600 => {
            found.invalid(expires, seconds, "may not specify a duration less than 10 minutes");
        }
        Some(seconds) if seconds > 1 << 32 => {
            found.invalid(expires, seconds, "may not specify a duration larger than 2^32 seconds");
        }
        Some(_) => {}
    }
    // upstream: the path is reported on the volume, not on the source.
    match token.text("path") {
        "" => found.required(volume.child("path"), ""),
        path => paths::unreserved(path, volume.child("path"), found),
    }
}

fn trust_bundle<'a>(bundle: &'a Value, taken: &mut Taken<'a>, at: Path<'_>, found: &mut Findings) {
    match (bundle.has("name"), bundle.has("signerName")) {
        (true, true) => found.invalid(at, bundle.clone(), "only one of name and signerName may be used"),
        (false, false) => found.required(at, "either name or signerName must be specified"),
        _ => {}
    }
    required_fields(bundle, &["path"], at, found);
    paths::unreserved(bundle.text("path"), at.child("path"), found);
    taken.take(bundle.text("path"), bundle.text("path"), found);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(sources: Value) -> Vec<String> {
        let mut found = Findings::default();
        projected(&json!({"defaultMode": 420, "sources": sources}), Path::new("p"), &mut found);
        found.into_errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_admission_adds_is_sound() {
        let got = complaints(json!([
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
            {"downwardAPI": {"items": [
                {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"},
            ]}},
        ]));
        assert_eq!(got, Vec::<String>::new());
    }

    #[test]
    fn two_sources_cannot_write_the_same_file() {
        let item = json!({"key": "k", "path": "x"});
        let got = complaints(json!([
            {"configMap": {"name": "m", "items": [item]}}, {"secret": {"name": "s", "items": [item]}},
        ]));
        assert_eq!(got, ["p: Invalid value: \"s\": conflicting duplicate paths"]);
    }

    #[test]
    fn tokens_live_at_least_ten_minutes() {
        assert_eq!(
            complaints(json!([{"serviceAccountToken": {"expirationSeconds": 60, "path": ""}}])),
            [
                "p.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 60: may not specify a duration \
                 less than 10 minutes",
                "p.path: Required value"
            ]
        );
    }

    #[test]
    fn a_source_is_one_thing() {
        let both = json!({"secret": {"name": "s"}, "configMap": {"name": "m"}});
        assert_eq!(complaints(json!([both])).len(), 1);
    }
}
