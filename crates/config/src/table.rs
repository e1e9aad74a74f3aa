//! Configuration keys, each declared once, for gcfg (INI), YAML and JSON files and for environment variables.
//!
//! ```text
//!  keys! { struct … } ──► fields of their types, with defaults ◄── read ── Settings ◄── file, environment
//!                    └──► Table of sections ──► validation, misspelled keys, reference page
//! ```
//!
//! [`keys!`](keys) declares a struct: each field with its key, default and description. The struct is the only way to read a
//! value, so reading an undeclared key does not compile. A value comes from the environment variable of its key, if it has one
//! and that is not empty, else from the file, else from the default. All errors are reported at once, with their lines.
//!
//! A [`Table`] declares the sections and the treatment of unknown keys, which follows the Go program of the cloud: most ignore
//! them, which is a warning here, and some reject them.
//!
//! Syntax of gcfg, the variant of git's configuration format that the Go programs use:
//!
//! * `[Name]` or `[Name "subsection"]`. Names consist of letters, digits and `-` and are case-insensitive; subsection names are
//!   case-sensitive.
//! * `key = value`. A key without a value is `true`, or clears a list. The last value of a repeated scalar key is used.
//! * `#` and `;` start a comment, also after a value. Quotes preserve them, and whitespace at both ends.
//! * `\\`, `\"`, `\n` and `\t` are escapes inside quotes. Outside, a backslash continues a line or escapes `"`.
//!
//! A key may have another name in gcfg than in YAML, for a program that reads both: `ca_file: String = "caFile" gcfg "ca-file", …`.
//!
//! In YAML and JSON, a section is a mapping of that name, a subsection is a mapping in that mapping, and the section with an empty
//! name is the document itself. Strings may be written as numbers; numbers and booleans must not be quoted.
//!
//! ```
//! use bowline_config::table::{Format, Section, Table, UnknownKeys, keys};
//! use bowline_config::{ConfigFile, Environment};
//! use std::time::Duration;
//!
//! keys! {
//!     /// `[Global]`.
//!     #[derive(Debug, PartialEq)]
//!     pub struct Global {
//!         region: String = "region" env "ACME_REGION", "", "Region of the cloud.";
//!         timeout: Duration = "timeout" | "time-out", "60s", "Request timeout.";
//!     }
//! }
//!
//! let table = Table { format: Format::Gcfg, unknown: UnknownKeys::Warn, sections: vec![Section::of::<Global>("Global", "Everything.")] };
//! let file = ConfigFile::from_text("cloud.conf", "[global]\nRegion = north  # by the sea\nzone = a\n");
//! let settings = table.read(Some(&file), &Environment::default()).unwrap();
//! assert_eq!(settings.section::<Global>("Global"), Global { region: "north".to_owned(), timeout: Duration::from_secs(60) });
//! assert_eq!(settings.warnings()[0].to_string(), "cloud.conf:3: [Global] zone: unknown key, ignored");
//!
//! let file = ConfigFile::from_text("cloud.conf", "[Global]\ntimeout = 5\n");
//! let errors = table.read(Some(&file), &Environment::default()).unwrap_err();
//! assert!(errors.to_string().starts_with("cloud.conf:2: [Global] timeout: "));
//! ```

mod check;
mod declared;
mod document;
mod further;
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
pub use declared::{Example, Format, Key, Keys, Kind, Section, Table, UnknownKeys};
pub use further::Checks;
pub use settings::{Settings, View};
pub use value::{Item, Value};
