//! HTTP client of the providers.
//!
//! A provider creates an [`Api`] for each service of its cloud: base URL, credentials ([`Authorize`], [`TokenSource`], [`sign`])
//! and error decoder. Every call passes through the call layer of `bowline-cloud`, which limits, retries and measures it. Below is
//! a [`Client`], created once per provider from TLS settings, proxies and a timeout. It reads whole responses, follows no redirects
//! and does not retry.
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
mod error;
mod fingerprint;
mod handler;
mod proxy;
pub mod sign;
mod tls;
mod tls_files;
mod token;

pub use api::{
    Api, ApiResponse, Authorize, Bearer, CallBuilder, ErrorDecoder, ErrorResponse, Fields, Page, Rejection, all_pages,
    omit_empty, rate_limit_until_epoch, user_agent,
};
pub use client::{Client, Options};
pub use error::{RequestError, TlsHandshakeError};
pub use fingerprint::{Fingerprint, FingerprintError, FingerprintMismatch};
pub use handler::Handler;
pub use proxy::{Proxies, ProxyError};
pub use tls::{CaFileError, ClientCertificate, Roots, Tls, TlsError};
pub use tls_files::{TlsFileError, TlsFiles, TlsSetting};
pub use token::{IssuedToken, TokenSource};
