//! The dialect of git's configuration that the Go managers read their `cloud.conf` with: sections, keys, values.
//!
//! ```text
//!  ConfigFile ──► sections, each with its entries and their lines
//!                        │
//!  &[Section] (declared) ┴─ Settings::read ──► values of their types, or all Problems at once
//! ```
//!
//! What a file may say is declared once, as a table of [`Section`]s and [`Key`]s; the same table gives types, defaults,
//! warnings about names that nobody knows, and the [page of reference](reference()). The rules of the dialect:
//!
//! * `[Name]` or `[Name "sub"]`; names are letters, digits and `-`, in any case; what is quoted keeps its case.
//! * `key = value`; `key` alone is `true`, or empties a list. A scalar that is there twice has its last value.
//! * `#` and `;` begin comments, also behind a value. Quotes keep them, and the blanks at either end.
//! * `\\`, `\"`, `\n` and `\t` inside quotes; outside, a backslash joins a line with the next, or stands before `"`.
//! * What nobody declared is a warning. Whatever else is wrong is an error, with its line.
//!
//! ```
//! use bowline_config::ConfigFile;
//! use bowline_config::gcfg::{Key, Kind, Section, Settings};
//!
//! const SECTIONS: &[Section] = &[Section {
//!     name: "Global",
//!     keys: &[
//!         Key { name: "region", kind: Kind::Text, default: "", meaning: "Where it is." },
//!         Key { name: "timeout", kind: Kind::Duration, default: "60s", meaning: "How long to wait." },
//!     ],
//!     ..Section::EMPTY
//! }];
//!
//! let file = ConfigFile::from_text("cloud.conf", "[global]\nRegion = north  # by the sea\nzone = a\n");
//! let settings = Settings::read(&file, SECTIONS).unwrap();
//! let global = settings.section("Global");
//! assert_eq!((global.text("region"), global.duration("timeout").as_secs()), ("north", 60));
//! assert_eq!(settings.warnings()[0].to_string(), "cloud.conf:3: [Global] zone: nobody knows this key, so it is ignored");
//!
//! let file = ConfigFile::from_text("cloud.conf", "[Global]\ntimeout = 5\n");
//! let problems = Settings::read(&file, SECTIONS).unwrap_err();
//! assert!(problems.to_string().starts_with("cloud.conf:2: [Global] timeout: "));
//! ```

mod declared;
mod document;
mod reference;
mod settings;
mod syntax;
#[cfg(test)]
mod tests;
mod value;

pub use declared::{Key, Kind, Section};
pub use reference::reference;
pub use settings::{Settings, View};
