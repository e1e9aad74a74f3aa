//! Flags of `bowline manifests`.

use bowline_settings::flags;
use clap::{Args, ValueEnum};

/// Settings of the rendered manifests.
#[derive(Debug, Args)]
pub(crate) struct ManifestsArgs {
    /// Cloud providers, in the syntax of the manager's flag.
    #[arg(long, value_name = "NAMES")]
    pub(crate) cloud_provider: Vec<String>,

    /// Local configuration file of the provider, in the syntax of the manager's flag; its content is put into a Secret. Without it,
    /// the Secret contains a template to fill in; if the provider has a conventional Secret (OpenStack: cloud-config), that Secret
    /// is used and not printed; if its credentials are environment variables (DigitalOcean), there is no file.
    #[arg(long, value_name = "FILE")]
    pub(crate) cloud_config: Vec<String>,

    /// Namespace of the manager. A namespace other than kube-system is created.
    #[arg(long, value_name = "NAME", default_value = "kube-system", value_parser = flags::label)]
    pub(crate) namespace: String,

    /// Container image.
    #[arg(long, value_name = "IMAGE", default_value = concat!("bowline:", env!("CARGO_PKG_VERSION")), value_parser = flags::not_empty)]
    pub(crate) image: String,

    /// Secret in the same namespace with credentials for the image registry. Repeatable.
    #[arg(long, value_name = "NAME", value_parser = flags::not_empty)]
    pub(crate) image_pull_secret: Vec<String>,

    /// Workload kind: a DaemonSet has one Pod on each control-plane node, a Deployment has --replicas Pods.
    #[arg(
        long,
        value_name = "DaemonSet|Deployment",
        value_enum,
        default_value = "DaemonSet",
        hide_possible_values = true
    )]
    pub(crate) kind: WorkloadKind,

    /// Number of Pods of a Deployment: one leader, the others standby.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) replicas: u16,

    /// Label of the nodes that the Pods run on. Control-plane nodes of kubeadm have this label without a value; k3s and RKE2 use
    /// the value true.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        default_value = "node-role.kubernetes.io/control-plane=",
        value_parser = flags::label_and_value,
    )]
    pub(crate) node_selector: (String, String),

    /// Address of the API server for the Pods. Default: the cluster IP of the Service kubernetes, which is not reachable before
    /// kube-proxy, or its replacement, runs on the node.
    #[arg(long, value_name = "HOST:PORT", value_parser = flags::host_and_port)]
    pub(crate) api_server: Option<(String, u16)>,

    /// Annotation of the service account, such as the IAM role of the Pods in AWS. Repeatable.
    #[arg(long, value_name = "KEY=VALUE", value_parser = flags::annotation)]
    pub(crate) service_account_annotation: Vec<(String, String)>,

    /// Flags of the manager, after all other flags.
    #[arg(value_name = "MANAGER FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) flags: Vec<String>,
}

/// Workload kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum WorkloadKind {
    DaemonSet,
    Deployment,
}
