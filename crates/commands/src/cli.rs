//! The command line, declared once. The doc comments here are the help texts and, by way of `xtask generate`, the page
//! `docs/reference/cli.md`; write them for the person at the terminal.

mod check;
#[cfg(feature = "provider-local")]
mod cloud;
mod look;
mod manifests;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use bowline_apiserver::{AuthorizationMode, Options};
use bowline_cloud::Registry;
use bowline_core::parse_cidr;
use bowline_playground::{PlaygroundOptions, check_cluster_cidrs};
use bowline_settings::cli::ManagerArgs;
use bowline_settings::flags::{self, PortRange, Switch as _};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use ipnet::IpNet;

pub(crate) use check::CheckArgs;
#[cfg(feature = "provider-local")]
pub(crate) use cloud::{CloudArgs, CloudCommand, EndpointArgs};
pub(crate) use look::{ExplainArgs, OrphansArgs, Output, PlanArgs};
pub(crate) use manifests::{ManifestsArgs, WorkloadKind};

/// A cloud controller manager for Kubernetes, and the tools to try it without a cloud.
///
/// With flags and no command it is the manager: it watches the API server, makes the cluster's nodes match what their
/// clouds say, and sees to load balancers for its Services, to pod ranges and to the routes to them. Flags that the
/// managers built on k8s.io/cloud-provider have, too, are written as they are there. It stops cleanly on SIGINT or SIGTERM.
#[derive(Debug, Parser)]
#[command(
    name = "bowline",
    // The manager has one of its own, which takes values as Go's does.
    disable_version_flag = true,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    // upstream: of a flag that is given twice, the last counts.
    args_override_self = true,
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) manager: ManagerArgs,
}

/// What selects the logs.
const LOG_HELP: &str = "\
Logs go to standard error. BOWLINE_LOG selects them: a level (error, warn, info, debug, trace), or levels by module \
(bowline_apiserver=debug,warn). The default is warn; for the manager it is info, or what -v says.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an in-memory Kubernetes API server.
    ///
    /// It keeps nothing on disk but the kubeconfig it writes: each start has a new, empty state and a new certificate
    /// authority. It prints one line when it is ready, and stops cleanly on SIGINT or SIGTERM.
    Apiserver(ApiserverArgs),

    /// Try Bowline on this machine: no account, no Docker, no root.
    ///
    /// An API server, a small cloud, simulated kubelets and the controllers in one process, and a tour of what they do:
    /// commands to paste and what to look for. Nothing is kept; Ctrl-C ends it.
    Playground(PlaygroundArgs),

    /// Show what the manager would change, in the clouds and in the cluster, and change nothing.
    ///
    /// It looks once at all nodes and Services, asks the clouds, and prints what the controllers would do about what is
    /// there now. It takes every flag of the manager, written as there; those that make no difference to a plan have no effect.
    /// The exit code is 0 if that is nothing, 2 if there is something, and 1 if something went wrong, which includes flags that
    /// cannot work.
    Plan(Box<PlanArgs>),

    /// Explain why a Node or a Service is as it is: what is desired, what is observed, what blocks it, and what comes next.
    ///
    /// It takes every flag of the manager, written as there, reads the cluster and its clouds once, and changes nothing. The exit
    /// code is 0 if nothing would change, 2 if something would, and 1 if something went wrong, which includes an object that is not
    /// there.
    Explain(Box<ExplainArgs>),

    /// List what this cluster has left behind in its clouds: load balancers without a Service, or what is left of them, and routes
    /// without a Node.
    ///
    /// Of each Service all is shown that is left. With --delete they are removed, after a question. It takes every flag of the
    /// manager, written as there: with --cluster-cidr, routes of these ranges count too in a cloud whose routes have no mark, and
    /// unless --route-deletion-max-share is 1, the routes of a cluster without any Node stay, as such a cluster is often the wrong
    /// one. The exit code is 1 if anything went wrong.
    Orphans(Box<OrphansArgs>),

    /// Look whether the manager can work here, before it does: inside or outside of a cluster.
    ///
    /// It takes the flags that the manager is to have, asks the API server and the clouds, changes nothing, and tells what would
    /// go wrong, each with its cure. The exit code is 0 if nothing would, warnings aside, 2 if something would, be it a flag's
    /// value, and 1 if it could not look at all.
    Check(Box<CheckArgs>),

    /// Print what a cluster needs to run the manager: accounts, roles, configuration and the pods themselves.
    ///
    /// Plain YAML for `kubectl apply -f -`, or for a kustomization. What the roles allow is what the manager needs with these
    /// flags, and nothing else. Flags of the manager stand behind those of this command.
    Manifests(Box<ManifestsArgs>),

    /// Run a small cloud on this machine, or change one that runs.
    ///
    /// It has machines, an API with pages, throttling and failures of its own, and it serves the provider `local`.
    /// It prints one line when it is ready, and stops cleanly on SIGINT or SIGTERM.
    #[cfg(feature = "provider-local")]
    Cloud(Box<CloudArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct ApiserverArgs {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:6443", value_parser = flags::address)]
    pub(crate) listen: SocketAddr,

    /// Where to write the kubeconfig of an administrator (group system:masters), readable by its owner only. A file that is
    /// there is replaced only if it is from an earlier run.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,

    /// Who may do what: AlwaysAllow lets every authenticated request pass and refuses all others, RBAC asks the stored roles
    /// and bindings.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "AlwaysAllow",
        value_parser = PossibleValuesParser::new(["AlwaysAllow", "RBAC"]).map(authorization_mode),
    )]
    pub(crate) authorization_mode: AuthorizationMode,

    /// Listen on an address that other machines can reach although every client with a certificate or a token may do
    /// everything: without this, --authorization-mode=AlwaysAllow is for loopback addresses only.
    #[arg(long, default_value_t = Options::default().allow_remote_clients, value_parser = flags::go_bool, switch())]
    pub(crate) allow_remote_clients: bool,

    /// Run the helpers that a real cluster has elsewhere: namespace purge, garbage collection, default service
    /// accounts, endpoint slices.
    #[arg(long, default_value_t = Options::default().built_in_controllers, value_parser = flags::go_bool, switch())]
    pub(crate) built_in_controllers: bool,

    /// Serve the test knobs under /debug/: forget history, cut watches, inject faults.
    #[arg(long, default_value_t = Options::default().debug_endpoints, value_parser = flags::go_bool, switch())]
    pub(crate) debug_endpoints: bool,

    /// The addresses that Services get as cluster IPs.
    #[arg(long, value_name = "CIDR", default_value_t = Options::default().service_cidr, value_parser = flags::cidr)]
    pub(crate) service_cluster_ip_range: IpNet,

    /// The ports that Services get as node ports, first and last included.
    #[arg(
        long,
        value_name = "FIRST-LAST",
        default_value_t = PortRange::from(Options::default().node_ports),
        value_parser = flags::port_range,
    )]
    pub(crate) service_node_port_range: PortRange,

    /// The issuer named in service-account tokens.
    #[arg(long, value_name = "URL", default_value_t = Options::default().issuer, value_parser = flags::issuer)]
    pub(crate) service_account_issuer: String,
}

#[derive(Debug, Args)]
pub(crate) struct PlaygroundArgs {
    /// How many machines there are at the start, each with a simulated kubelet and its Node.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = node_count)]
    pub(crate) nodes: usize,

    /// Where the API server listens; port 0 picks a free one.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0", value_parser = flags::address)]
    pub(crate) listen: SocketAddr,

    /// Let the API server listen at this port of 127.0.0.1.
    #[arg(long, value_name = "PORT", conflicts_with = "listen")]
    pub(crate) port: Option<u16>,

    /// Let the API server listen on an address that other machines can reach, although every client with a certificate or a
    /// token may do everything there.
    #[arg(long, default_value = "false", value_parser = flags::go_bool, switch())]
    pub(crate) allow_remote_clients: bool,

    /// Where Pods live, as on the manager itself: one range, or one of each family. If nothing is said, in a free part of the
    /// loopback network, where they can be reached; other ranges are only shown.
    #[arg(long, value_name = "CIDR", value_parser = pod_ranges)]
    pub(crate) cluster_cidr: Option<PodRanges>,

    /// Where the cloud's own API listens, on this machine; port 0 picks a free one.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0", value_parser = flags::loopback)]
    pub(crate) cloud_listen: SocketAddr,

    /// Where to write the kubeconfig of an administrator, readable by its owner only. A file that is there is replaced only if it
    /// is from an earlier run.
    #[arg(long, value_name = "FILE", default_value = "bowline.kubeconfig")]
    pub(crate) kubeconfig: PathBuf,

    /// Take the tour by itself and check every step: exit code 0, or 1 and the name of the step that failed.
    #[arg(long)]
    pub(crate) script: bool,
}

impl Command {
    /// The manager's flags, of a command that takes them all.
    pub(crate) fn manager_args(&mut self) -> Option<&mut ManagerArgs> {
        match self {
            Command::Plan(args) => Some(&mut args.manager),
            Command::Explain(args) => Some(&mut args.manager),
            Command::Orphans(args) => Some(&mut args.manager),
            Command::Check(args) => Some(&mut args.manager),
            _ => None,
        }
    }
}

/// The definition of the command line, from which `--help` and the reference page are made.
pub fn definition(registry: &Registry) -> clap::Command {
    Cli::command().after_help(after_help(registry))
}

/// Names the providers of this program, and what selects the logs.
pub(crate) fn after_help(registry: &Registry) -> String {
    let kinds: Vec<_> = registry.iter().map(|kind| format!("{} ({})", kind.name, kind.summary)).collect();
    format!("Cloud providers: {}.\n\n{LOG_HELP}", kinds.join("; "))
}

// ---- values of flags

/// How many Nodes a playground has. More would be possible, but not on every machine on which it is tried.
pub(crate) fn node_count(text: &str) -> Result<usize, &'static str> {
    let count = text.parse().ok().filter(|count| (1..=10_000).contains(count));
    count.ok_or("expected a number from 1 to 10000")
}

/// Where the Pods of a playground live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodRanges(pub(crate) Vec<IpNet>);

/// Ranges for the Pods of a playground, such as `10.244.0.0/16`: one, or one of each family.
pub(crate) fn pod_ranges(text: &str) -> Result<PodRanges, String> {
    let range = |part: &str| {
        parse_cidr(part)
            .ok_or_else(|| format!("{part:?} is no range; expected one such as 10.244.0.0/16 or fd00:10:244::/56"))
    };
    let ranges: Vec<IpNet> = text.split(',').map(range).collect::<Result<_, _>>()?;
    check_cluster_cidrs(&ranges).map_err(|problem| problem.to_string())?;
    Ok(PodRanges(ranges))
}

// ---- into the options of the crates below

impl From<&ApiserverArgs> for Options {
    fn from(args: &ApiserverArgs) -> Options {
        Options {
            listen: args.listen,
            authorization: args.authorization_mode,
            allow_remote_clients: args.allow_remote_clients,
            built_in_controllers: args.built_in_controllers,
            debug_endpoints: args.debug_endpoints,
            service_cidr: args.service_cluster_ip_range,
            node_ports: args.service_node_port_range.into(),
            issuer: args.service_account_issuer.clone(),
            ..Options::default()
        }
    }
}

impl From<&PlaygroundArgs> for PlaygroundOptions {
    fn from(args: &PlaygroundArgs) -> PlaygroundOptions {
        let listen = args.port.map_or(args.listen, |port| (Ipv4Addr::LOCALHOST, port).into());
        // The tour starts them, after a look at how things are without.
        PlaygroundOptions {
            nodes: args.nodes,
            listen,
            allow_remote_clients: args.allow_remote_clients,
            cloud_listen: args.cloud_listen,
            cluster_cidrs: args.cluster_cidr.clone().map_or_else(Vec::new, |PodRanges(ranges)| ranges),
            controllers: false,
        }
    }
}

/// The names are checked by the parser in front of this.
fn authorization_mode(name: String) -> AuthorizationMode {
    if name == "RBAC" { AuthorizationMode::Rbac } else { AuthorizationMode::AlwaysAllow }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Options, String> {
        let argv = ["bowline", "apiserver", "--kubeconfig", "kc"].iter().chain(flags);
        let cli = Cli::try_parse_from(argv).map_err(|error| error.to_string())?;
        match cli.command {
            Some(Command::Apiserver(args)) => Ok(Options::from(&args)),
            _ => unreachable!("the arguments name the other command"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_flags_mean_the_library_defaults_on_the_usual_port() {
        let options = parse(&[]).unwrap();
        let expected = Options { listen: "127.0.0.1:6443".parse().unwrap(), ..Options::default() };
        assert_eq!(format!("{options:?}"), format!("{expected:?}"));
    }

    #[test]
    fn booleans_are_written_as_in_go() {
        let cases = [
            ("--built-in-controllers", true),
            ("--built-in-controllers=true", true),
            ("--built-in-controllers=T", true),
            ("--built-in-controllers=false", false),
            ("--built-in-controllers=0", false),
        ];
        for (flag, expected) in cases {
            assert_eq!(parse(&[flag]).unwrap().built_in_controllers, expected, "{flag}");
        }
    }

    #[test]
    fn every_flag_reaches_its_option() {
        let options = parse(&[
            "--listen=[::1]:0",
            "--authorization-mode=RBAC",
            "--allow-remote-clients",
            "--debug-endpoints",
            "--service-cluster-ip-range=10.0.0.0/20",
            "--service-node-port-range=31000-31999",
            "--service-account-issuer=https://issuer.example",
        ])
        .unwrap();
        assert_eq!(options.listen, "[::1]:0".parse().unwrap());
        assert_eq!(options.authorization, AuthorizationMode::Rbac);
        assert!(options.debug_endpoints && options.allow_remote_clients);
        assert_eq!(options.service_cidr, "10.0.0.0/20".parse().unwrap());
        assert_eq!(options.node_ports, (31_000, 31_999));
        assert_eq!(options.issuer, "https://issuer.example");
    }

    #[test]
    fn the_playground_listens_where_either_flag_says() {
        let listen = |flags: &[&str]| {
            let cli = Cli::try_parse_from(["bowline", "playground"].iter().chain(flags)).ok()?;
            match cli.command {
                Some(Command::Playground(args)) => Some(PlaygroundOptions::from(&args).listen.to_string()),
                _ => None,
            }
        };
        assert_eq!(listen(&[]).as_deref(), Some("127.0.0.1:0"));
        assert_eq!(listen(&["--port=6443"]).as_deref(), Some("127.0.0.1:6443"));
        assert_eq!(listen(&["--listen=[::1]:6443"]).as_deref(), Some("[::1]:6443"));
        assert_eq!(listen(&["--listen=[::1]:6443", "--port=1"]), None);
    }

    #[test]
    fn an_error_names_the_flag_the_value_and_a_right_one() {
        let cases = [
            ("--listen=localhost:6443", "127.0.0.1:6443"),
            ("--authorization-mode=Webhook", "AlwaysAllow, RBAC"),
            ("--built-in-controllers=maybe", "true or false"),
            ("--service-cluster-ip-range=10.96.0.1", "10.96.0.0/16"),
            ("--service-node-port-range=40000-30000", "30000-32767"),
            ("--service-account-issuer=", "https://"),
        ];
        for (flag, hint) in cases {
            let error = parse(&[flag]).unwrap_err();
            let (name, value) = flag.split_once('=').unwrap();
            assert!(error.contains(name) && error.contains(value) && error.contains(hint), "{flag}: {error}");
        }
    }

    #[test]
    fn a_playground_has_at_least_one_node() {
        for text in ["0", "-1", "10001", "", "three"] {
            assert!(node_count(text).is_err(), "{text}");
        }
        assert_eq!((node_count("1"), node_count("10000")), (Ok(1), Ok(10_000)));
    }

    #[test]
    fn the_pods_of_a_playground_live_in_one_range_of_each_family_at_most() {
        let ranges =
            |text| pod_ranges(text).map(|PodRanges(ranges)| ranges.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(ranges("10.244.0.0/16").unwrap(), ["10.244.0.0/16"]);
        assert_eq!(ranges("10.244.7.1/16,fd00:10:244::/56").unwrap(), ["10.244.0.0/16", "fd00:10:244::/56"]);
        for text in
            ["", "10.244.0.0", "10.244.0.0/33", "10.244.0.0/16, fd00::/56", "10.0.0.0/16,10.1.0.0/16", "127.0.0.0/16"]
        {
            assert!(pod_ranges(text).is_err(), "{text}");
        }
    }
}
