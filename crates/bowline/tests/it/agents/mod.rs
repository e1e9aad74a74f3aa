//! Load balancers on hosts without a cloud: agents, manager, Nodes and clients.
//!
//! `story` has real packets: every host is a network namespace on one Ethernet segment. It needs root. `walk_through` needs no
//! privileges: its only agent listens on loopback.

mod commands;
#[path = "../../../../agent/tests/suite/network/net.rs"]
mod net;
mod routes;
mod scene;
mod story;
mod walk_through;
