//! Digests in hexadecimal.

use ring::digest::{SHA256, digest};

/// Returns the SHA-256 of the content.
pub(super) fn sha256(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
