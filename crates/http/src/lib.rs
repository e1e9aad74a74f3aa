//! The HTTP client of all providers.
//!
//! A provider makes an [`Api`] for each service of its cloud: base URL, credentials ([`Authorize`], [`TokenSource`], [`sign`]), error
//! decoder. Every call passes the gate of `bowline-cloud`, which limits, retries and measures it. Below is a [`Client`], made once per
//! provider from TLS settings, proxies and a timeout; it sends whole requests for whole answers, follows no redirect and repeats
//! nothing.
//!
//! ```text
//!  provider ──► Api::call(…).send() ──► bowline_cloud::Calls ──► Client ──► over the network: pool, proxy, TLS
//!                                                                      └──► in this process: a Handler, for tests without sockets
//! ```
//!
//! No error contains a header or the body of a request.

pub mod api;
mod budget;
mod client;
mod connect;
mod failure;
mod handler;
mod proxy;
pub mod sign;
mod tls;
mod tls_files;
mod token;

pub use api::{Api, ApiResponse, Authorize, Bearer, CallBuilder, ErrorDecoder, ErrorResponse, Page, all_pages};
pub use client::{Client, Options};
pub use failure::{Failure, TlsFailure};
pub use handler::Handler;
pub use proxy::{Proxies, ProxyError};
pub use tls::{ClientCertificate, Roots, Tls, TlsError};
pub use tls_files::{TlsFileError, TlsFiles, TlsSetting};
pub use token::{Issued, TokenSource};
