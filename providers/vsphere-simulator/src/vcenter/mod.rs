//! vCenter: SOAP methods of the vim25 API, and the tagging API.
//!
//! ```text
//!  /sdk                  ──► soap: methods ──► inventory: objects, search index
//!  /rest/com/vmware/cis  ──► rest: sessions, tags
//!  /lookupservice, /sts ──► sts: tokens for logins with a certificate
//!  /session-manager      ──► clone tickets for shared sessions
//!  /control              ──► changes by tests in another process
//! ```
//!
//! Objects have properties in their wire format ([`Vcenter::properties`]); `schema.txt` gives their types. IDs are the same in every
//! run, and time is tokio's, which tests can pause.
//!
//! ```
//! use bowline_vsphere_simulator::vcenter::{Machine, Options, Vcenter};
//!
//! let vcenter = Vcenter::new(Options::default());
//! let machine = vcenter.add_machine(Machine::named("node-1", "10.10.1.11")).unwrap();
//! assert_eq!(vcenter.properties(&machine).unwrap()["guest"]["hostName"], "node-1");
//! ```

mod control;
mod inventory;
mod machine;
mod options;
mod placement;
mod remote;
mod rest;
mod schema;
mod simulator;
mod soap;
mod sts;
mod tags;
mod world;
mod xml;

pub use bowline_simulator::{Detail, Entry, Fault, FaultSpec, Fields, Golden, Lost, Record, Server};
pub use inventory::{Access, Reference};
pub use machine::{Machine, Nic};
pub use options::{Options, PASSWORD, USER};
pub use simulator::{State, Vcenter};
pub use soap::soap_fault;
