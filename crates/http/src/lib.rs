//! The one way in which providers speak HTTP with a cloud.
//!
//! A [`Client`] is made once per provider from what its configuration says of TLS, proxies and patience, and sends whole
//! requests for whole answers. It follows no redirect, makes nothing happen twice and knows no cloud: what an answer means,
//! and whether to ask again, is the provider's and the layers' to say.
//!
//! ```text
//!  provider ──► Client::send(Request<Bytes>) ──► over the network: pool, proxy, TLS ──► Response<Bytes>
//!                                            └─► in this process: a Handler, for tests without sockets
//! ```
//!
//! Nothing that it logs or fails with has a header or a body in it.

pub mod api;
mod client;
mod connect;
mod failure;
mod handler;
mod proxy;
pub mod sign;
mod tls;
mod token;

pub use api::{Answer, Api, Authorize, Bearer, CallBuilder, ErrorDecoder, Page, Refusal, all_pages};
pub use client::{Client, Options};
pub use failure::{Failure, TlsFailure};
pub use handler::Handler;
pub use proxy::{BadProxy, Proxies};
pub use tls::{BadTls, ClientCertificate, Roots, Tls};
pub use token::{Issued, TokenSource};
