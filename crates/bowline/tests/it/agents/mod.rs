//! Load balancers on hosts without a cloud: agents, manager, Nodes and clients.
//!
//! `story` and `routes` have real packets: every host is a network namespace on one Ethernet segment. They need root. `walk_through` and
//! `problems` need no privileges: their only agent listens on loopback.

mod commands;
#[path = "../../../../agent/tests/suite/network/net.rs"]
mod net;
mod problems;
mod routes;
mod scene;
mod story;
mod walk_through;
