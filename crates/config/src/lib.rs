//! Configuration: reading it, and saying all that is wrong with it at once, with where it stands and how to mend it.

mod duration;
mod file;
mod nearest;
mod problem;
mod yaml;

pub use duration::{format_duration, parse_duration};
pub use file::ConfigFile;
pub use nearest::nearest;
pub use problem::{Problem, Problems};
