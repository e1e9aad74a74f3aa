//! Settings of the manager as one document, which `/configz` serves and `--config` reads.
//!
//! ```text
//!              ┌──────── fields: path in the document ◄──► flag ────────┐
//!  flags ──────┤                                                        ├──────► /configz (JSON)
//!  --config ───┴─► document (strict: every key is known) ──► --flag=value, before the flags
//! ```
//!
//! Every field is the value of a flag, so that its meaning is defined once, where the flag is resolved. Reading the document of
//! `/configz` results in the same settings.

mod document;
mod fields;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;

use bowline_config::{ConfigError, ConfigErrors, ConfigFile};
use serde_json::{Map, Value, json};

use crate::argv::Argv;
use crate::effective::EffectiveFlags;
use crate::migration::Migration;
use crate::settings::KUBE_API_RATE;
use document::Document;
use fields::{FIELDS, Field, Kind};

/// API group of the document, and its key at `/configz`.
pub const GROUP: &str = "cloudcontrollermanager.config.k8s.io";

/// `apiVersion` of the document.
const API_VERSION: &str = "cloudcontrollermanager.config.k8s.io/v1alpha1";
const KIND: &str = "CloudControllerManagerConfiguration";

/// Returns the document of `/configz`.
pub fn configz(flags: &EffectiveFlags, migration: Option<&Migration>) -> Value {
    let mut document = json!({ "kind": KIND, "apiVersion": API_VERSION });
    // upstream: kept for clients that read these fields. Insecure serving and content negotiation are not supported.
    put(&mut document, "/Generic", json!({ "Port": 0, "Address": "0.0.0.0" }));
    put(&mut document, "/Generic/ClientConnection/acceptContentTypes", json!(""));
    put(&mut document, "/Generic/LeaderMigration", migration.map_or_else(no_migration, Migration::field));
    for field in &FIELDS {
        put(&mut document, field.path, field.value(flags));
    }
    if let Some(qps) = implied_qps(flags) {
        put(&mut document, "/Generic/ClientConnection/qps", qps);
    }
    follow(&mut document, "/NodeController/ConcurrentNodeStatusUpdates", "/NodeController/ConcurrentNodeSyncs");
    json!({ GROUP: document })
}

/// QPS that applies if only the burst is set.
fn implied_qps(flags: &EffectiveFlags) -> Option<Value> {
    let has = |name: &str| flags.get(name).is_some_and(|flag| !flag.values.is_empty());
    (has("kube-api-burst") && !has("kube-api-qps")).then(|| Kind::Number.value(&KUBE_API_RATE.0.to_string()))
}

/// Replaces a 0 by the value of another field.
fn follow(document: &mut Value, path: &str, other: &str) {
    let number = document.pointer(other).cloned();
    if let (Some(target), Some(number)) = (document.pointer_mut(path).filter(|target| **target == json!(0)), number) {
        *target = number;
    }
}

/// Leader migration is disabled.
fn no_migration() -> Value {
    json!({ "leaderName": "", "resourceLock": "", "controllerLeaders": null })
}

/// Sets the value at a path, and creates the objects on the way.
fn put(document: &mut Value, path: &str, value: Value) {
    let mut target = document;
    for key in path.split('/').skip(1) {
        target = match target {
            Value::Object(object) => object.entry(key).or_insert_with(|| Value::Object(Map::new())),
            // A path never goes through a scalar.
            _ => return,
        };
    }
    *target = value;
}

/// Settings of a configuration file.
pub struct Configuration {
    /// Flags that the file sets, with their values.
    pub flags: Vec<(&'static str, String)>,
    /// Leader migration configuration, as in the file of `--leader-migration-config`.
    pub migration: Option<Migration>,
}

/// Reads and validates a configuration file.
pub fn read(path: &Path) -> Result<Configuration, ConfigErrors> {
    let file = ConfigFile::read(path)?;
    let document: Document = file.yaml()?;
    let mut document = document.unwrapped();
    let errors = document.validate(path);
    if !errors.is_empty() {
        return Err(errors);
    }
    let migration = document.take_migration();
    let document = serde_json::to_value(&document).map_err(|error| ConfigError::file(path, None, error.to_string()))?;
    let flags = FIELDS.iter().filter_map(|field| Some((field.flag, field.text(&document)?))).collect();
    Ok(Configuration { flags, migration })
}

impl Field {
    /// Converts the value of the flag to the document's value.
    fn value(&self, flags: &EffectiveFlags) -> Value {
        let flag = flags.get(self.flag).filter(|flag| !flag.values.is_empty());
        let text = flag.map_or_else(|| (self.unset)(), |flag| flag.text());
        self.kind.value(&text)
    }

    /// Converts the value in the document to the flag's text.
    fn text(&self, document: &Value) -> Option<String> {
        self.kind.text(document.pointer(self.path)?)
    }
}

/// Inserts the settings of `--config` before the flags, except those that a flag sets.
pub fn prepend(argv: &mut Argv) {
    let Some(path) = argv.values("config").last().filter(|path| !path.is_empty()).map(str::to_owned) else { return };
    match read(Path::new(&path)) {
        Ok(Configuration { flags, migration }) => {
            argv.migration = migration;
            let behind: Vec<_> = argv.arguments.drain(1.min(argv.arguments.len())..).collect();
            let given = Argv { arguments: behind, ..Argv::default() };
            let written = flags.into_iter().filter(|(flag, _)| !given.has(flag));
            argv.arguments.extend(written.map(|(flag, value)| OsString::from(format!("--{flag}={value}"))));
            argv.arguments.extend(given.arguments);
        }
        Err(errors) => argv.errors.extend(errors),
    }
}
