//! Configuration keys, each declared once, for gcfg (INI), YAML and JSON files and for environment variables.
//!
//! ```text
//!  keys! { struct … } ──► fields of their types, with defaults ◄── read ── Settings ◄── file, environment
//!                    └──► Table of sections ──► checks, misspelled keys, reference page
//! ```
//!
//! [`keys!`](keys) declares a struct: each field with its key, default and meaning. The struct is the only way to a value, so reading
//! a key that is not declared does not compile. A value comes from the environment variable of its key, if it has one and that is
//! not empty, else from the file, else from the default. Everything that is wrong is reported at once, with its line.
//!
//! A [`Table`] says what the sections are, and what happens to unknown keys, which is what the Go program of that cloud does: most
//! ignore them, which is a warning here, and some refuse them.
//!
//! The rules of gcfg, the dialect of git's configuration that the Go programs read:
//!
//! * `[Name]` or `[Name "sub"]`; names are letters, digits and `-`, in any case; what is quoted keeps its case.
//! * `key = value`; `key` alone is `true`, or empties a list. A scalar that is there twice has its last value.
//! * `#` and `;` begin comments, also behind a value. Quotes keep them, and the blanks at either end.
//! * `\\`, `\"`, `\n` and `\t` inside quotes; outside, a backslash joins a line with the next, or stands before `"`.
//!
//! In YAML and JSON a section is a mapping of that name, one with a name of its own is a mapping in that mapping, and the section
//! without a name is the document itself. Texts may be written as numbers; numbers and booleans are not quoted.
//!
//! ```
//! use bowline_config::table::{Format, Section, Table, Unknown, keys};
//! use bowline_config::{ConfigFile, Environment};
//! use std::time::Duration;
//!
//! keys! {
//!     /// `[Global]`.
//!     #[derive(Debug, PartialEq)]
//!     pub struct Global {
//!         region: String = "region" env "ACME_REGION", "", "Where it is.";
//!         timeout: Duration = "timeout" | "time-out", "60s", "How long to wait.";
//!     }
//! }
//!
//! let table = Table { format: Format::Gcfg, unknown: Unknown::Warn, sections: vec![Section::of::<Global>("Global", "Everything.")] };
//! let file = ConfigFile::from_text("cloud.conf", "[global]\nRegion = north  # by the sea\nzone = a\n");
//! let settings = table.read(Some(&file), &Environment::default()).unwrap();
//! assert_eq!(settings.section::<Global>("Global"), Global { region: "north".to_owned(), timeout: Duration::from_secs(60) });
//! assert_eq!(settings.warnings()[0].to_string(), "cloud.conf:3: [Global] zone: nobody knows this key, so it is ignored");
//!
//! let file = ConfigFile::from_text("cloud.conf", "[Global]\ntimeout = 5\n");
//! let problems = table.read(Some(&file), &Environment::default()).unwrap_err();
//! assert!(problems.to_string().starts_with("cloud.conf:2: [Global] timeout: "));
//! ```

mod check;
mod declared;
mod document;
mod gcfg;
mod reference;
mod settings;
mod template;
#[cfg(test)]
mod tests;
mod value;
mod yaml;

#[doc(inline)]
pub use crate::__keys as keys;
pub use declared::{Example, Format, Key, Keys, Kind, Section, Table, Unknown};
pub use settings::{Settings, View};
pub use value::{Item, Value};
