//! The settings of the manager as one document: `/configz` shows it, and `--config` reads it.
//!
//! ```text
//!              ┌──────── fields: path in the document ◄──► flag ────────┐
//!  flags ──────┤                                                        ├──────► /configz (JSON)
//!  --config ───┴─► document (strict: every key is known) ──► --flag=value, in front of the flags
//! ```
//!
//! A field is the value of a flag and nothing else, so that what a flag means is written once, where it is resolved; and
//! what `/configz` shows makes the same settings when it is read.

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

/// The group of the document's type, which is also its name at `/configz`.
pub const GROUP: &str = "cloudcontrollermanager.config.k8s.io";

/// What the document says it is.
const API_VERSION: &str = "cloudcontrollermanager.config.k8s.io/v1alpha1";
const KIND: &str = "CloudControllerManagerConfiguration";

/// The document at `/configz`.
pub fn configz(flags: &EffectiveFlags, migration: Option<&Migration>) -> Value {
    let mut document = json!({ "kind": KIND, "apiVersion": API_VERSION });
    // upstream: kept for those who read them; nothing is served there, and nothing is asked of the API server.
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

/// Who gives the burst alone gets a limit, too.
fn implied_qps(flags: &EffectiveFlags) -> Option<Value> {
    let has = |name: &str| flags.get(name).is_some_and(|flag| !flag.values.is_empty());
    (has("kube-api-burst") && !has("kube-api-qps")).then(|| Kind::Number.value(&KUBE_API_RATE.0.to_string()))
}

/// A number that is 0 is that of another field.
fn follow(document: &mut Value, path: &str, other: &str) {
    let number = document.pointer(other).cloned();
    if let (Some(place), Some(number)) = (document.pointer_mut(path).filter(|place| **place == json!(0)), number) {
        *place = number;
    }
}

/// No controller moves between managers.
fn no_migration() -> Value {
    json!({ "leaderName": "", "resourceLock": "", "controllerLeaders": null })
}

/// Writes a value where the path leads, making the objects on its way.
fn put(document: &mut Value, path: &str, value: Value) {
    let mut place = document;
    for key in path.split('/').skip(1) {
        place = match place {
            Value::Object(object) => object.entry(key).or_insert_with(|| Value::Object(Map::new())),
            // A path never leads through a value.
            _ => return,
        };
    }
    *place = value;
}

/// The settings that a file has.
pub struct Configuration {
    /// The flags that it sets, with their values.
    pub flags: Vec<(&'static str, String)>,
    /// What `--leader-migration-config` would name a file of.
    pub migration: Option<Migration>,
}

/// Reads such a file.
pub fn read(path: &Path) -> Result<Configuration, ConfigErrors> {
    let file = ConfigFile::read(path)?;
    let document: Document = file.yaml()?;
    let mut document = document.unwrapped();
    let wrong = document.wrong(path);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let migration = document.take_migration();
    let document = serde_json::to_value(&document).map_err(|error| ConfigError::file(path, None, error.to_string()))?;
    let flags = FIELDS.iter().filter_map(|field| Some((field.flag, field.text(&document)?))).collect();
    Ok(Configuration { flags, migration })
}

impl Field {
    /// What the flag has, as the document has it.
    fn value(&self, flags: &EffectiveFlags) -> Value {
        let flag = flags.get(self.flag).filter(|flag| !flag.values.is_empty());
        let text = flag.map_or_else(|| (self.unset)(), |flag| flag.text());
        self.kind.value(&text)
    }

    /// What the document has, as the flag takes it.
    fn text(&self, document: &Value) -> Option<String> {
        self.kind.text(document.pointer(self.path)?)
    }
}

/// Puts what `--config` says in front of the flags, except where a flag says it, too.
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
