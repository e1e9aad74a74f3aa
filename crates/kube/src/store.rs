//! What is known of the cluster: the last state of every object of a kind, fed by a watch.

use std::sync::Arc;

/// What happened to an object.
#[derive(Debug, Clone)]
pub enum Change<T> {
    /// It is new, to us.
    Added(Arc<T>),
    /// It changed.
    Updated {
        /// As it was.
        old: Arc<T>,
        /// As it is.
        new: Arc<T>,
    },
    /// It is gone; this is the last we saw of it.
    Deleted(Arc<T>),
}

/// The objects of a kind. Clones are the same store.
pub struct Store<T>(std::marker::PhantomData<T>);

impl<T: Send + Sync + 'static> Store<T> {
    /// An empty store.
    pub fn new() -> Store<T> {
        todo!()
    }

    /// Calls `listener` for every change from now on, in order, on the task that feeds the store: it must be quick.
    pub fn listen(&self, listener: impl Fn(&Change<T>) + Send + Sync + 'static) {
        let _ = listener;
        todo!()
    }

    /// The object of this name.
    pub fn get(&self, key: &str) -> Option<Arc<T>> {
        let _ = key;
        todo!()
    }

    /// All objects, in no particular order.
    pub fn all(&self) -> Vec<Arc<T>> {
        todo!()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until everything that was there at the start is in.
    pub async fn synced(&self) {
        todo!()
    }

    /// Everything that was there at the start is in.
    pub fn is_synced(&self) -> bool {
        todo!()
    }
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Store<T> {
        Store(self.0)
    }
}
