//! The suite can fail: small sound providers pass, and each flaw that is put into one of them is caught by the case that
//! is there to catch it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod balancers;
mod machines;
mod routes;

use bowline_cloud::{Error, ErrorKind, Retry};
use bowline_conformance::Trouble;

/// What a call says in this trouble, if the provider reads the answer as it should.
fn refusal(trouble: Trouble) -> Error {
    let kind = match trouble {
        Trouble::Unauthenticated => ErrorKind::Unauthenticated,
        Trouble::Forbidden => ErrorKind::PermissionDenied,
        Trouble::Throttled(_) => ErrorKind::RateLimited,
        Trouble::Broken => ErrorKind::Unavailable,
        Trouble::Empty | Trouble::Garbled => ErrorKind::Unexpected,
    };
    let error = Error::new(kind, "toy", format!("{trouble:?}"));
    match trouble {
        Trouble::Throttled(after) => error.retry(Retry::After(after)),
        _ => error,
    }
}
