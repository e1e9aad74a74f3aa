//! Feed of a manager that this machine reaches directly, with the credentials of the kubeconfig.

use std::path::Path;

use anyhow::Context as _;
use bowline_console::page::{Feed, FeedError};
use bowline_console::{Position, access};
use bowline_settings::BadInput;
use bytes::Bytes;
use futures::future::BoxFuture;
use kube::Client;

use super::call::{CallError, Rejection, call};
use super::connection::Connection;
use super::remote::document_request;
use crate::cli::ReachArgs;

/// Reads the document of one manager, whether or not it is the leader.
pub(super) struct DirectFeed {
    client: Client,
    manager: String,
}

impl DirectFeed {
    pub(super) fn new(connection: Connection, manager: &str, args: &ReachArgs) -> anyhow::Result<DirectFeed> {
        let mut config = connection.config;
        config.cluster_url = manager.parse().map_err(|error| BadInput(format!("--manager {manager}: {error}")))?;
        // These are of the API server.
        (config.tls_server_name, config.proxy_url, config.root_cert_file) = (None, None, None);
        config.accept_invalid_certs = args.insecure_skip_tls_verify;
        config.root_cert = match &args.manager_certificate_authority {
            Some(path) => Some(certificates(path)?),
            None if args.insecure_skip_tls_verify => None,
            None => {
                let message = "--manager needs the CA that signs the manager's certificate, because your credentials are sent to it; \
                               fix: set --manager-certificate-authority";
                return Err(BadInput(message.to_owned()).into());
            }
        };
        let client = Client::try_from(config).context("cannot create a client for --manager")?;
        Ok(DirectFeed { client, manager: manager.to_owned() })
    }

    fn explain(&self, error: CallError) -> FeedError {
        let (manager, path) = (&self.manager, access::PATH);
        FeedError(match error {
            CallError::Unreachable(reason) => format!(
                "the manager {manager} cannot be reached: {reason}; fix: check --manager, the network, and \
                 --manager-certificate-authority"
            ),
            CallError::Rejected(Rejection { code: 401, .. }) => format!(
                "the manager {manager} does not accept the credentials of the kubeconfig; fix: a token that the API server accepts, or a \
                 certificate that its client CA signs"
            ),
            CallError::Rejected(Rejection { code: 403, message, .. }) => format!(
                "no permission to read {path} of the manager: {message}; fix: an administrator binds the ClusterRole {} to you",
                access::SERVICE_ACCOUNT
            ),
            CallError::Rejected(Rejection { code: 404, .. }) => format!(
                "the manager {manager} has no {path}; fix: check --manager, and update the manager if it is older than this program"
            ),
            CallError::Rejected(Rejection { code, message, .. }) => {
                format!("the manager {manager} answered with status {code}: {message}")
            }
        })
    }
}

impl Feed for DirectFeed {
    fn changes<'a>(&'a self, position: &'a Position) -> BoxFuture<'a, Result<Bytes, FeedError>> {
        Box::pin(async move {
            let request = document_request(access::PATH, position).map_err(|error| FeedError(error.to_string()))?;
            call(&self.client, request).await.map_err(|error| self.explain(error))
        })
    }
}

/// Reads the certificates of a PEM file.
fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, BadInput> {
    let invalid = |why: String| BadInput(format!("--manager-certificate-authority {}: {why}", path.display()));
    let pem = std::fs::read(path).map_err(|error| invalid(error.to_string()))?;
    let blocks = pem::parse_many(pem).map_err(|error| invalid(error.to_string()))?;
    let certificates: Vec<Vec<u8>> =
        blocks.into_iter().filter(|block| block.tag() == "CERTIFICATE").map(pem::Pem::into_contents).collect();
    if certificates.is_empty() { Err(invalid("contains no certificate".to_owned())) } else { Ok(certificates) }
}
