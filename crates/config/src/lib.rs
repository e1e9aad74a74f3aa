//! Configuration: parsing and validation. All errors are reported at once, each with its file, line, key and remedy.

mod environment;
mod error;
mod file;
mod secret;
pub mod table;
mod yaml;

pub use bowline_core::{format_duration, nearest, parse_duration};
pub use environment::Environment;
pub use error::{ConfigError, ConfigErrors};
pub use file::ConfigFile;
pub use secret::Secret;
