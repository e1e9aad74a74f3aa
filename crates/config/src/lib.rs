//! Configuration: reading it, and saying all that is wrong with it at once, with where it stands and how to mend it.

mod environment;
mod file;
mod problem;
mod secret;
pub mod table;
mod yaml;

pub use bowline_core::{format_duration, nearest, parse_duration};
pub use environment::Environment;
pub use file::ConfigFile;
pub use problem::{ConfigError, ConfigErrors};
pub use secret::Secret;
