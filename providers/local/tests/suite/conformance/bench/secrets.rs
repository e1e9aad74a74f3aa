//! Secret of the local provider, and the tokens that its cloud accepts.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bowline_cloud::{CloudProvider, SecretData, SecretRef};
use bowline_conformance::SecretBench;
use futures::FutureExt as _;

use super::SECRET;

/// Token after a rotation.
pub(super) const ROTATED: &str = "anglerfish-of-the-bench";

/// File with the token that the cloud accepts; the Secret has the same token.
pub(crate) struct TokenFile {
    pub(super) path: PathBuf,
}

impl TokenFile {
    pub(super) fn new() -> TokenFile {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("bowline-secret-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, SECRET).unwrap();
        TokenFile { path }
    }

    /// Delivers the Secret, as the framework does before the start.
    pub(super) fn deliver_to(&self, provider: &dyn CloudProvider) {
        let contents = self.read();
        for secret in provider.secrets() {
            // It never blocks, and some flaws make it fail.
            let _ = provider.on_secret(&secret, Some(&contents)).now_or_never().unwrap();
        }
    }

    fn read(&self) -> SecretData {
        SecretData::from_iter([("token", std::fs::read(&self.path).unwrap())])
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[async_trait]
impl SecretBench for TokenFile {
    async fn contents(&self, _: &SecretRef) -> SecretData {
        self.read()
    }

    async fn rotate(&self) {
        std::fs::write(&self.path, ROTATED).unwrap();
    }
}
