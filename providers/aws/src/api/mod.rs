//! Clients of the AWS query APIs: one method for each action, and the records that it sends and receives.
//!
//! ```text
//!  Ec2, Elb, ElbV2: one method for each action ──► Query ──► Service::send ──► Calls ──► endpoint of the region
//!                                                                │                ▲
//!                  record ◄── XML ◄── response ◄─────────────────┘          Signer: credentials, region
//! ```
//!
//! An element that AWS leaves out has a default; IDs, names and states have none, so that an incomplete response is an error and not
//! an empty value.

pub(crate) mod ec2;
pub(crate) mod elb;
pub(crate) mod elbv2;
mod errors;
mod query;
mod service;
mod xml;

pub(crate) use errors::Errors;
pub(crate) use query::{Filter, Query};
pub(crate) use service::{Service, TIMEOUT, USER_AGENT};
pub(crate) use xml::Tags;
