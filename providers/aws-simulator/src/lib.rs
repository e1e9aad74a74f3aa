//! A wire simulator of the AWS APIs that a cloud controller manager calls: EC2, ELB, ELBv2, STS and the metadata service.
//!
//! The simulator is independent of the provider under test: it reads and writes the query protocol, and stores records with the
//! names of the elements in responses. It uses tokio's clock, which tests can pause, and its IDs are the same in every run.
//!
//! ```text
//!  POST /  ──► Version: API ──► credentials ──► parameters ──► permission ──► action: ec2, elb, elbv2, sts ──► XML
//!  /latest/…, /v2/credentials ──► metadata
//! ```
//!
//! Any host is accepted, as one endpoint for all APIs. Journal entries and faults name the API and the action:
//! `ec2 DescribeInstances`, `imds meta-data/instance-id`.
//!
//! ```
//! use bowline_aws_simulator::{NewInstance, Options, Simulator};
//!
//! let cloud = Simulator::new(Options::default());
//! let id = cloud.add_instance(NewInstance::named("node-1").tagged("kubernetes.io/cluster/demo", "owned"));
//! cloud.set_state(&id, "stopped");
//! assert_eq!(cloud.records("instance")[1]["instanceState"]["name"], "stopped");
//! ```

mod auth;
mod balancing;
mod control;
mod ec2;
mod elb;
mod elbv2;
mod fixture;
mod instances;
mod metadata;
mod options;
mod params;
mod simulator;
mod sts;
mod wire;

pub use bowline_simulator::{Detail, Entry, Fault, FaultSpec, Fields, Golden, Lost, Record, Server, Work};
pub use fixture::Fixture;
pub use instances::{NewInstance, NewInterface};
pub use options::{ACCESS_KEY, ACCOUNT, CONTAINER_TOKEN, Limits, Options, REGION, SECRET_KEY, WEB_IDENTITY_TOKEN};
pub use simulator::{Simulator, State};
pub use wire::{ec2_fault, elb_fault, parameters, sts_fault};
