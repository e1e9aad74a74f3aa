//! Files that are reloaded when they change.
//!
//! Contents are compared instead of modification times: Kubernetes swaps whole directories by a symbolic link, and a file that was read
//! half written differs once it is complete. The files are small, so reading them every two seconds is cheap.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Interval between two reads.
pub(crate) const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}", path = path.display())]
pub struct FileError {
    /// Path of the file.
    pub path: PathBuf,
    /// What is wrong with the file, and what it should contain.
    pub message: String,
}

/// Parses the contents of the files, in the order of their paths.
pub(crate) type Parse<T> = Box<dyn Fn(&[PathBuf], &[Vec<u8>]) -> Result<T, FileError> + Send + Sync>;

/// Parsed contents of the files, as of the last time that they were valid.
pub(crate) struct Files<T> {
    paths: Vec<PathBuf>,
    parse: Parse<T>,
    current: RwLock<Arc<T>>,
    /// Last contents, valid or not, so that an invalid file is logged once.
    last_read: Mutex<Result<Vec<Vec<u8>>, FileError>>,
}

impl<T> Files<T> {
    /// Reads and parses the files.
    pub(crate) fn open(paths: Vec<PathBuf>, parse: Parse<T>) -> Result<Files<T>, FileError> {
        let contents = read(&paths)?;
        let value = parse(&paths, &contents)?;
        Ok(Files { paths, parse, current: RwLock::new(Arc::new(value)), last_read: Mutex::new(Ok(contents)) })
    }

    /// Returns the current value.
    pub(crate) fn current(&self) -> Arc<T> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again. An invalid file keeps the current value.
    pub(crate) fn refresh(&self) {
        let contents = read(&self.paths);
        let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        if *last_read == contents {
            return;
        }
        match contents.as_ref().map_err(Clone::clone).and_then(|contents| (self.parse)(&self.paths, contents)) {
            Ok(value) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                tracing::info!(files = ?self.paths, "reloaded changed files");
            }
            Err(error) => tracing::error!(%error, "cannot use a changed file; keeping the previous contents"),
        }
        *last_read = contents;
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
        text.parse().map_err(|_| FileError { path: paths[0].clone(), message: "is not a number".to_owned() })
    }

    #[test]
    fn valid_changes_are_loaded_and_symbolic_links_are_followed() {
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
