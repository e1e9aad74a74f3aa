//! Harness for cloud simulators.
//!
//! A simulator implements [`Service`]: a state, and a function that answers one request. The harness does the rest:
//!
//! ```text
//!  Request ──► Simulator::answer ──► journal, faults, latency ──► Service::answer(&Call) ──► Reply ──► Response
//!     ▲                                                              │ Records, Page, Jobs, Clock, Ids
//!     ├─ in this process: Simulator::client, or as a `bowline_http::Handler`
//!     └─ over HTTP: Simulator::serve, Simulator::serve_tls
//! ```
//!
//! | part | purpose |
//! |---|---|
//! | [`Records`], [`Page`], [`listing`] | objects in their wire format, lists, filters, pages |
//! | [`Clock`], [`Ids`] | tokio's time as a date, IDs that are the same in every run |
//! | [`Work`], [`Jobs`] | changes that the cloud accepts at once and completes later |
//! | [`FaultSpec`] | errors, throttling, delays, lost responses, empty and stale lists |
//! | [`Entry`], [`Golden`] | journal of calls, compared with a committed file |
//! | [`replay`] | comparison with recordings of the real cloud |
//! | [`drive`] | a driver for load balancers that acts as the manager does, and crashes at every call |
//!
//! A cloud with servers:
//!
//! ```
//! use std::time::Duration;
//!
//! use bowline_simulator::{Call, Fault, FaultSpec, Fields, Ids, Page, Record, Records, Reply, Service, Simulator, Views};
//! use serde_json::{Value, json};
//!
//! #[derive(Default)]
//! struct Toy {
//!     ids: Ids,
//!     records: Records<&'static str>,
//! }
//!
//! impl Service for Toy {
//!     fn answer(&mut self, call: &Call) -> Reply {
//!         let servers = self.records.of_mut("server");
//!         match (call.method.as_str(), call.segments().as_slice()) {
//!             ("GET", ["servers"]) => {
//!                 let all: Vec<Record> = servers.iter().map(|row| row.record.clone()).collect();
//!                 match Page::after(all, call.value("after"), Some(50)) {
//!                     Some(page) => Reply::one(200, "servers", page.records.into_iter().map(Value::Object).collect::<Vec<_>>()),
//!                     None => Reply::json(400, json!({"code": "no_such_server"})),
//!                 }
//!             }
//!             ("POST", ["servers"]) => {
//!                 let mut server = call.object("server").unwrap_or_default();
//!                 server.set("id", self.ids.uuid());
//!                 servers.insert("", server.clone());
//!                 Reply::json(201, server.into())
//!             }
//!             ("DELETE", ["servers", id]) => match servers.remove(id) {
//!                 Some(_) => Reply::empty(204),
//!                 None => Reply::json(404, json!({"code": "no_such_server"})),
//!             },
//!             _ => Reply::text(404, "no such path"),
//!         }
//!     }
//!
//!     fn views(&mut self) -> Option<&mut dyn Views> {
//!         Some(&mut self.records)
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let cloud = Simulator::new(Toy::default());
//! let client = cloud.client(Duration::from_secs(1));
//! let create = || http::Request::post("http://toy/servers").body(json!({"server": {"name": "a"}}).to_string().into()).unwrap();
//! assert_eq!(client.send(create()).await.unwrap().status(), 201);
//! cloud.inject(FaultSpec::always(Fault::AnswerLost).times(1));
//! assert!(client.send(create()).await.is_err());
//! assert_eq!(cloud.service().records.of("server").len(), 2);
//! assert_eq!(cloud.counts()["POST servers"], 2);
//! # });
//! ```

pub mod addresses;
mod clock;
pub mod drive;
mod faults;
mod golden;
mod journal;
pub mod listing;
mod records;
pub mod replay;
mod serve;
mod service;
mod simulator;
mod tls;
mod wire;
mod work;

pub use clock::{Clock, Ids};
pub use faults::{Fault, FaultSpec};
pub use golden::{Detail, Golden};
pub use journal::Entry;
pub use listing::Page;
pub use records::{Fields, Record, Records, Row, Table, View, Views, object};
pub use serve::Server;
pub use service::{Operation, Service};
pub use simulator::{Locked, Lost, Simulator};
pub use tls::Certificate;
pub use wire::{Body, Call, Reply};
pub use work::{Job, Jobs, Work};
