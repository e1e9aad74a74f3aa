//! A wire simulator of the DigitalOcean API v2, as far as a cloud controller manager calls it.
//!
//! The simulator is independent of the provider under test: it stores records in their wire format. It uses tokio's clock, which
//! tests can pause, and its IDs are the same in every run.
//!
//! Any host is accepted, and the links of a list use the host of the request. `/metadata/v1/region` answers as the metadata service
//! of a Droplet does. A kind of record is named as in the path of its list: `droplets`, `load_balancers`, `certificates`, `tags`,
//! `firewalls`, `vpcs`, `regions`, `actions`.
//!
//! ```
//! use bowline_digitalocean_simulator::{NewDroplet, Options, Simulator};
//!
//! let cloud = Simulator::new(Options::default());
//! let id = cloud.add_droplet(NewDroplet::named("node-1"));
//! cloud.set_droplet(id, "status", "off");
//! assert_eq!(cloud.records("droplets")[0]["status"], "off");
//! ```

mod control;
mod droplets;
mod firewalls;
mod fixture;
mod load_balancers;
mod options;
mod simulator;
mod tags;
mod wire;

pub use bowline_simulator::{Detail, Entry, Fault, FaultSpec, Fields, Golden, Lost, Record, Server, Work};
pub use droplets::NewDroplet;
pub use options::{Options, REGION, TOKEN};
pub use simulator::{Simulator, State};
pub use wire::error_fault;
