//! Files that are read again when they change.
//!
//! The contents are compared, and not the times: Kubernetes swaps whole directories by a symbolic link, and what was read
//! half written looks different once it is whole. Such files are small, and a look every two seconds costs nothing.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// How often files are looked at.
pub(crate) const EVERY: Duration = Duration::from_secs(2);

/// Why files cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}", path = path.display())]
pub struct FileError {
    /// The file at fault.
    pub path: PathBuf,
    /// What is wrong with it, and what it should be.
    pub message: String,
}

/// What is made of the contents of the files, in their order.
pub(crate) type Parse<T> = Box<dyn Fn(&[PathBuf], &[Vec<u8>]) -> Result<T, FileError> + Send + Sync>;

/// What the files say, as of the last time that they made sense.
pub(crate) struct Files<T> {
    paths: Vec<PathBuf>,
    parse: Parse<T>,
    current: RwLock<Arc<T>>,
    /// What was read last, good or bad, so that a bad one is spoken of once.
    seen: Mutex<Result<Vec<Vec<u8>>, FileError>>,
}

impl<T> Files<T> {
    /// Reads them for the first time.
    pub(crate) fn open(paths: Vec<PathBuf>, parse: Parse<T>) -> Result<Files<T>, FileError> {
        let contents = read(&paths)?;
        let value = parse(&paths, &contents)?;
        Ok(Files { paths, parse, current: RwLock::new(Arc::new(value)), seen: Mutex::new(Ok(contents)) })
    }

    /// What they say.
    pub(crate) fn current(&self) -> Arc<T> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at them once more. What makes no sense changes nothing.
    pub(crate) fn refresh(&self) {
        let contents = read(&self.paths);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == contents {
            return;
        }
        match contents.as_ref().map_err(Clone::clone).and_then(|contents| (self.parse)(&self.paths, contents)) {
            Ok(value) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                tracing::info!(files = ?self.paths, "read again after a change");
            }
            Err(error) => tracing::error!(%error, "a changed file cannot be used; what was read before still counts"),
        }
        *seen = contents;
    }
}

fn read(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, FileError> {
    let read = |path: &PathBuf| {
        std::fs::read(path)
            .map_err(|error| FileError { path: path.clone(), message: format!("cannot be read: {error}") })
    };
    paths.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(paths: &[PathBuf], contents: &[Vec<u8>]) -> Result<i32, FileError> {
        let text = String::from_utf8_lossy(&contents[0]);
        text.parse().map_err(|_| FileError { path: paths[0].clone(), message: "is no number".to_owned() })
    }

    #[test]
    fn a_change_counts_when_it_makes_sense_and_symbolic_links_are_followed() {
        let directory = std::env::temp_dir().join(format!("bowline-files-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (link, write) = (directory.join("value"), |name: &str, text: &str| {
            std::fs::write(directory.join(name), text).unwrap();
            directory.join(name)
        });
        let swap = |target: PathBuf| {
            let fresh = directory.join("fresh");
            std::os::unix::fs::symlink(target, &fresh).unwrap();
            std::fs::rename(fresh, &link).unwrap();
        };
        swap(write("a", "1"));
        let files = Files::open(vec![link.clone()], Box::new(number)).unwrap();
        let mut seen = Vec::new();
        for (name, text) in [("b", "2"), ("c", "rubbish"), ("d", "4")] {
            swap(write(name, text));
            files.refresh();
            seen.push(*files.current());
        }
        std::fs::remove_file(&link).unwrap();
        files.refresh();
        seen.push(*files.current());
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(seen, [2, 2, 4, 4]);
        assert!(Files::open(vec![link], Box::new(number)).is_err_and(|error| error.message.contains("cannot be read")));
    }
}
