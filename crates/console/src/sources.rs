//! Sources of the document.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Document;

/// A part of the process that knows something for the document.
///
/// Sources are read in the order of their registration; a later one finds the items of earlier ones and may complete them.
pub trait Source: Send + Sync {
    /// Fills in what this source knows. Called only while a client follows the document; must not block.
    fn fill(&self, document: &mut Document);
}

impl<F: Fn(&mut Document) + Send + Sync> Source for F {
    fn fill(&self, document: &mut Document) {
        self(document);
    }
}

/// All sources of the process. Clones share their state.
#[derive(Clone, Default)]
pub struct Sources(Arc<Mutex<Vec<Arc<dyn Source>>>>);

impl Sources {
    /// Creates an empty list.
    pub fn new() -> Sources {
        Sources::default()
    }

    /// Registers a source.
    pub fn add(&self, source: impl Source + 'static) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(source));
    }

    /// Reads all sources.
    pub fn read(&self) -> Document {
        let mut document = Document::default();
        self.fill(&mut document);
        document
    }

    /// Lets all sources fill in what they know.
    pub fn fill(&self, document: &mut Document) {
        // Not locked meanwhile: a source may register another one.
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sources.iter().for_each(|source| source.fill(document));
    }
}
