//! Groups of real agents on loopback addresses: HTTPS with certificates, state files, sockets that forward traffic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod access;
mod failover;
mod group;
mod link;
mod single;
mod split;
