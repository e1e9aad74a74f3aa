//! Tests of the page: its server over HTTP, and the page in a real browser.

#![allow(clippy::unwrap_used)]

#[path = "../../examples/page/sample.rs"]
#[allow(dead_code)]
mod sample;

mod browser;
mod page;
mod server;
