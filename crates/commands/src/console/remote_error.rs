//! Failures on the way to the leader's document, each with its remedy.

use bowline_console::access;

use super::leader::binding_command;
use crate::cli::LeaseName;

/// Reason why the leader's document cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RemoteError {
    #[error(
        "the API server {server} cannot be reached: {reason}; fix: check --kubeconfig and --context, and the network"
    )]
    Unreachable { server: String, reason: String },
    #[error(
        "the API server {server} does not accept the credentials of the kubeconfig; fix: log in to the cluster again"
    )]
    Unauthenticated { server: String },
    #[error("no permission to {action}: {message}; fix: an administrator runs {}", binding_command(.namespace))]
    Forbidden { action: String, namespace: String, message: String },
    #[error(
        "there is no Lease {lease}: no manager with leader election has run in this cluster; fix: set --lease if it has another name, or \
         --manager for a manager without leader election"
    )]
    NoLease { lease: LeaseName },
    #[error(
        "no manager holds the Lease {lease}: it has no leader at the moment; fix: see the Pods of the manager, and their logs"
    )]
    NoHolder { lease: LeaseName },
    #[error(
        "the leader {holder} has no Pod in the namespace {namespace}; fix: set --namespace if it runs in another one, or --manager if it runs \
         outside of the cluster"
    )]
    NoPod { holder: String, namespace: String },
    #[error(
        "several Pods on the node of the leader {holder} could be the manager: {}; fix: set --manager to the URL of one",
        .pods.join(", ")
    )]
    AmbiguousPod { holder: String, pods: Vec<String> },
    #[error(
        "the service account {namespace}/{account} does not exist; fix: apply the manifests of this version (`bowline manifests`, or the \
         chart with console.enabled), or set --service-account"
    )]
    NoServiceAccount { namespace: String, account: String },
    #[error(
        "the manager {pod} does not accept tokens of the service account {account}: {message}; fix: see its log for the TokenReview, and \
         update it if it is older than this program"
    )]
    TokenRejected { pod: String, account: String, message: String },
    #[error(
        "the manager {pod} does not let the service account {account} read {}: {message}; fix: apply the manifests of this version, which \
         have a ClusterRole and a ClusterRoleBinding {}, and update the manager if it is older than this program",
        access::PATH,
        access::SERVICE_ACCOUNT
    )]
    ManagerForbids { pod: String, account: String, message: String },
    #[error("the manager {pod} has no {}: it is older than this program; fix: update it", access::PATH)]
    TooOld { pod: String },
    #[error(
        "the API server cannot reach the Pod {pod} on port {port}: {message}; fix: let the API server connect to this port, or set \
         --manager"
    )]
    PodUnreachable { pod: String, port: u16, message: String },
    #[error("cannot {action}: status {code}: {message}")]
    Other { action: String, code: u16, message: String },
}
