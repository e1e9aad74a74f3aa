//! The flags of `bowline manifests`.

use bowline_settings::flags;
use clap::{Args, ValueEnum};

/// What to render.
#[derive(Debug, Args)]
pub(crate) struct ManifestsArgs {
    /// The clouds that the manager serves, as for the manager itself.
    #[arg(long, value_name = "NAMES")]
    pub(crate) cloud_provider: Vec<String>,

    /// The provider's configuration file on this machine, which goes into a Secret; written as for the manager itself.
    /// Without it, the Secret has a template to fill in; where clusters have had a Secret for it (OpenStack's cloud-config), that
    /// one is used and not printed.
    #[arg(long, value_name = "FILE")]
    pub(crate) cloud_config: Vec<String>,

    /// Where the manager lives. A namespace other than kube-system is made, too.
    #[arg(long, value_name = "NAME", default_value = "kube-system", value_parser = flags::label)]
    pub(crate) namespace: String,

    /// The container image.
    #[arg(long, value_name = "IMAGE", default_value = concat!("bowline:", env!("CARGO_PKG_VERSION")), value_parser = flags::not_empty)]
    pub(crate) image: String,

    /// A Secret in the same namespace that has the credentials for the image's registry. It may be given several times.
    #[arg(long, value_name = "NAME", value_parser = flags::not_empty)]
    pub(crate) image_pull_secret: Vec<String>,

    /// A DaemonSet has one pod on each control-plane node, a Deployment so many as --replicas says.
    #[arg(
        long,
        value_name = "DaemonSet|Deployment",
        value_enum,
        default_value = "DaemonSet",
        hide_possible_values = true
    )]
    pub(crate) kind: WorkloadKind,

    /// The pods of a Deployment, of which one works and the others stand by.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) replicas: u16,

    /// The label of the nodes that the pods run on. It is there without a value on control-plane nodes of kubeadm; k3s and
    /// RKE2 have the value true.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        default_value = "node-role.kubernetes.io/control-plane=",
        value_parser = flags::label_and_value,
    )]
    pub(crate) node_selector: (String, String),

    /// Where the pods reach the API server. Without it they use the address of the Service kubernetes, which does not work
    /// before kube-proxy, or whatever takes its place, runs on their nodes.
    #[arg(long, value_name = "HOST:PORT", value_parser = flags::host_and_port)]
    pub(crate) api_server: Option<(String, u16)>,

    /// The flags that the manager is to have; they stand behind all others.
    #[arg(value_name = "MANAGER FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) flags: Vec<String>,
}

/// What runs the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum WorkloadKind {
    DaemonSet,
    Deployment,
}
