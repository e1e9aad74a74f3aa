//! Groups of real agents on loopback addresses: HTTPS with certificates, state files, sockets that forward traffic.

mod access;
mod failover;
mod group;
mod link;
mod single;
mod split;
