//! The simulators with clients of their own, and with VMware's Python library.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod nsx;
mod vcenter;
