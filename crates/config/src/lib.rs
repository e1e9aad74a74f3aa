//! Configuration: reading it, and saying all that is wrong with it at once, with where it stands and how to mend it.

mod duration;
mod file;
mod problem;
mod yaml;

pub use bowline_core::nearest;
pub use duration::{format_duration, parse_duration};
pub use file::ConfigFile;
pub use problem::{Problem, Problems};
