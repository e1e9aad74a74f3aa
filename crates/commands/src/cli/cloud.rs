//! Flags of `bowline cloud`, which runs a local cloud, and of its subcommands, which manage a running one.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bowline_core::{Address, AddressType};
use bowline_local::{BalancerOptions, CloudOptions, Config, Fault, FaultSpec, NewMachine, NewRoute, RouteOptions};
use bowline_settings::flags::{self, Switch as _};
use clap::{Args, Subcommand};
use ipnet::IpNet;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CloudArgs {
    #[command(subcommand)]
    pub(crate) command: Option<CloudCommand>,

    /// Listen address, a loopback address; port 0 selects a free port.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7480", value_parser = flags::loopback)]
    pub(crate) listen: SocketAddr,

    /// File that persists machines, load balancers and routes over a restart; created if it does not exist. Default: in memory
    /// only.
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,

    /// Latency of every call.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = flags::duration)]
    pub(crate) latency: Duration,

    /// Maximum number of machines on a page of a list, and in one lookup.
    #[arg(
        long,
        value_name = "N",
        default_value_t = CloudOptions::default().page_size as u32,
        value_parser = clap::value_parser!(u32).range(1..),
    )]
    pub(crate) page_size: u32,

    /// Seed of the random number generator.
    #[arg(long, value_name = "N", default_value_t = CloudOptions::default().seed)]
    pub(crate) seed: u64,

    /// Address pool of external load balancers; comma-separated or repeated. No privileges are needed to listen on addresses of
    /// 127.0.0.0/8.
    #[arg(
        long,
        value_name = "CIDR",
        value_delimiter = ',',
        default_values_t = BalancerOptions::default().pool,
        value_parser = flags::cidr,
    )]
    pub(crate) pool: Vec<IpNet>,

    /// Address pool of internal load balancers; comma-separated or repeated.
    #[arg(
        long,
        value_name = "CIDR",
        value_delimiter = ',',
        default_values_t = BalancerOptions::default().internal_pool,
        value_parser = flags::cidr,
    )]
    pub(crate) internal_pool: Vec<IpNet>,

    /// Let load balancers listen and forward traffic. If false, load balancers are only records.
    #[arg(long, default_value = "true", value_parser = flags::go_bool, switch())]
    pub(crate) data_plane: bool,

    /// Time after each change of a load balancer during which the cloud rejects further changes.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = flags::duration)]
    pub(crate) work_time: Duration,

    /// Maximum number of routes of each cluster. Default: unlimited.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_routes: Option<u32>,

    /// Create kernel routes in the machines' network namespaces, so that packets follow the cloud's routes. Linux only, needs root.
    /// If false, routes are only records.
    #[arg(long, default_value = "false", value_parser = flags::go_bool, switch())]
    pub(crate) kernel_routes: bool,

    /// File with the bearer tokens of users, one per line, read for every call. Default: calls need no token, or with
    /// --kernel-routes the owner's.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// File for the owner's token, readable by the file owner only, which the subcommands use. Default: in the directory bowline of
    /// $XDG_RUNTIME_DIR or ~/.cache, where the subcommands find it.
    #[arg(long, value_name = "FILE")]
    pub(crate) owner_token_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CloudCommand {
    /// Create a running machine and print its ID.
    Add(AddArgs),
    /// List machines.
    List(EndpointArgs),
    /// Stop machines.
    Stop(MachineArgs),
    /// Start machines.
    Start(MachineArgs),
    /// Delete machines.
    Delete(MachineArgs),
    /// List load balancers with their owners, addresses, ports, targets and traffic.
    Balancers(EndpointArgs),
    /// List load balancer addresses with their owners.
    Addresses(EndpointArgs),
    /// List routes with their cluster, destination CIDR and machine.
    Routes(EndpointArgs),
    /// Create a route to a machine and print its ID.
    AddRoute(AddRouteArgs),
    /// Delete routes.
    DeleteRoute(DeleteRouteArgs),
    /// Inject a fault and print its number.
    Fault(FaultArgs),
    /// Remove a fault, or all of them.
    Repair(RepairArgs),
    /// Print the number of calls of each kind.
    Calls(CallsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EndpointArgs {
    /// Address of the cloud; BOWLINE_CLOUD_ENDPOINT sets it, too.
    #[arg(
        long,
        value_name = "URL",
        default_value = Config::default().endpoint,
        env = "BOWLINE_CLOUD_ENDPOINT",
        hide_env = true,
    )]
    pub(crate) endpoint: String,

    /// File with the owner's token; BOWLINE_CLOUD_TOKEN_FILE sets it, too. Default: the file that the cloud writes by default.
    #[arg(long, value_name = "FILE", env = "BOWLINE_CLOUD_TOKEN_FILE", hide_env = true)]
    pub(crate) owner_token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// ID of the machine; repeat for more.
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Name of the machine and of its Node.
    pub(crate) name: String,

    /// ID of the machine. Default: generated.
    #[arg(long, value_name = "ID", default_value = "")]
    pub(crate) id: String,

    /// Instance type.
    #[arg(long = "type", value_name = "TYPE", default_value = "")]
    pub(crate) instance_type: String,

    /// Zone.
    #[arg(long, value_name = "ZONE", default_value = "")]
    pub(crate) zone: String,

    /// Region.
    #[arg(long, value_name = "REGION", default_value = "")]
    pub(crate) region: String,

    /// Address, such as InternalIP=10.0.0.1 or ExternalDNS=worker-1.example; repeat for more, in the order of the Node's addresses.
    #[arg(long, value_name = "TYPE=ADDRESS", value_parser = node_address)]
    pub(crate) address: Vec<Address>,

    /// Additional label of the Node; repeat for more.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) label: Vec<(String, String)>,
    /// Annotation of the Node; repeat for more.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) annotation: Vec<(String, String)>,

    /// Pod CIDR that the cloud itself routes to the machine, such as 10.244.3.0/24; repeat for more.
    #[arg(long, value_name = "CIDR", value_parser = flags::cidr)]
    pub(crate) pod_range: Vec<IpNet>,

    /// Network namespace of the machine for `bowline cloud --kernel-routes`: a name in /run/netns, or a path.
    #[arg(long, value_name = "NAME|PATH")]
    pub(crate) network_namespace: Option<String>,

    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

/// Selects the route table of a cluster.
#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    /// Cluster name (the manager's --cluster-name) of the route table.
    #[arg(long, value_name = "NAME", default_value = "kubernetes", value_parser = flags::not_empty)]
    pub(crate) cluster: String,
    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AddRouteArgs {
    /// Destination CIDR, such as 10.244.3.0/24.
    #[arg(value_name = "CIDR", value_parser = flags::cidr)]
    pub(crate) destination: IpNet,

    /// ID of the target machine.
    pub(crate) machine: String,

    /// Set the cluster's mark, as a manager does.
    #[arg(long)]
    pub(crate) stamped: bool,

    #[command(flatten)]
    pub(crate) table: TableArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteRouteArgs {
    /// ID of the route; repeat for more.
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) ids: Vec<String>,
    /// Delete all routes of the cluster.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) table: TableArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FaultArgs {
    /// Fault: slow=2s, throttled, throttled=5s (with Retry-After), failing=503, hanging, empty (empty lists), stale (reads return
    /// the state from when the fault was injected), answer-lost (applies the call, and loses the response), garbled.
    #[arg(value_parser = fault)]
    pub(crate) fault: Fault,

    /// Kind of call that fails, as listed by `bowline cloud calls`: find, list, observe-balancers, delete-balancer and so on.
    /// Default: all calls of providers.
    #[arg(long, value_name = "KIND", default_value = "")]
    pub(crate) call: String,

    /// Probability that a call fails, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = flags::share)]
    pub(crate) probability: f64,

    /// Number of calls that fail. Default: unlimited.
    #[arg(long, value_name = "N")]
    pub(crate) times: Option<u64>,

    /// Number of calls that succeed first.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) after: u64,

    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Number of the fault. Default: all faults.
    pub(crate) number: Option<u64>,
    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CallsArgs {
    /// Reset the counters afterwards.
    #[arg(long)]
    pub(crate) reset: bool,
    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

// ---- conversion to the types of the local cloud

impl From<&CloudArgs> for CloudOptions {
    fn from(args: &CloudArgs) -> CloudOptions {
        CloudOptions {
            snapshot: args.snapshot.clone(),
            latency: args.latency,
            page_size: args.page_size as usize,
            seed: args.seed,
            balancers: BalancerOptions {
                pool: args.pool.clone(),
                internal_pool: args.internal_pool.clone(),
                data_plane: args.data_plane,
                work_time: args.work_time,
            },
            max_routes: args.max_routes.map(|max| max as usize),
            routes: RouteOptions { kernel: args.kernel_routes },
            token_file: args.token_file.clone(),
        }
    }
}

impl From<&AddArgs> for NewMachine {
    fn from(args: &AddArgs) -> NewMachine {
        NewMachine {
            name: args.name.clone(),
            id: args.id.clone(),
            instance_type: args.instance_type.clone(),
            zone: args.zone.clone(),
            region: args.region.clone(),
            addresses: args.address.clone(),
            labels: args.label.iter().cloned().collect(),
            annotations: args.annotation.iter().cloned().collect(),
            pod_ranges: args.pod_range.clone(),
            tags: Default::default(),
            network_namespace: args.network_namespace.clone(),
        }
    }
}

impl From<&AddRouteArgs> for NewRoute {
    fn from(args: &AddRouteArgs) -> NewRoute {
        NewRoute {
            name: String::new(),
            destination: args.destination,
            machine: args.machine.clone(),
            addresses: None,
            stamped: args.stamped,
            cluster_uid: None,
        }
    }
}

impl From<&FaultArgs> for FaultSpec {
    fn from(args: &FaultArgs) -> FaultSpec {
        let FaultArgs { fault, call, probability, times, after, .. } = args;
        FaultSpec {
            call: call.clone(),
            probability: *probability,
            times: *times,
            after: *after,
            ..FaultSpec::always(fault.clone())
        }
    }
}

fn node_address(text: &str) -> Result<Address, String> {
    const TYPES: [AddressType; 5] = [
        AddressType::InternalIP,
        AddressType::ExternalIP,
        AddressType::Hostname,
        AddressType::InternalDNS,
        AddressType::ExternalDNS,
    ];
    let (kind, address) = text.split_once('=').unwrap_or(("", ""));
    match TYPES.into_iter().find(|known| known.to_string() == kind) {
        Some(kind) if !address.is_empty() => Ok(Address::new(kind, address)),
        _ => Err(format!("expected a type and an address, such as InternalIP=10.0.0.1; types are {}", {
            TYPES.map(|kind| kind.to_string()).join(", ")
        })),
    }
}

fn label(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected a key and a value, such as disk=fast"),
    }
}

fn fault(text: &str) -> Result<Fault, String> {
    let (kind, value) = match text.split_once('=') {
        Some((kind, value)) => (kind, Some(value)),
        None => (text, None),
    };
    match (kind, value) {
        ("slow", Some(value)) => flags::duration(value).map(Fault::Slow),
        ("throttled", value) => value.map(flags::duration).transpose().map(Fault::Throttled),
        ("failing", Some(value)) => status(value).map(Fault::Failing),
        ("hanging", None) => Ok(Fault::Hanging),
        ("empty", None) => Ok(Fault::Empty),
        ("stale", None) => Ok(Fault::Stale),
        ("answer-lost", None) => Ok(Fault::AnswerLost),
        ("garbled", None) => Ok(Fault::Garbled),
        _ => Err("expected slow=DURATION, throttled, throttled=DURATION, failing=STATUS, hanging, empty, stale, \
                  answer-lost or garbled"
            .to_owned()),
    }
}

fn status(text: &str) -> Result<u16, String> {
    let status = text.parse().ok().filter(|status| (400..600).contains(status));
    status.ok_or_else(|| "expected an HTTP status from 400 to 599, such as 503".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed() {
        let cases = [
            ("slow=2s", Some(Fault::Slow(Duration::from_secs(2)))),
            ("throttled", Some(Fault::Throttled(None))),
            ("throttled=5s", Some(Fault::Throttled(Some(Duration::from_secs(5))))),
            ("failing=503", Some(Fault::Failing(503))),
            ("empty", Some(Fault::Empty)),
            ("slow", None),
            ("slow=soon", None),
            ("failing", None),
            ("failing=200", None),
            ("failing=99999", None),
            ("empty=1", None),
            ("sunk", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(fault(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn addresses_have_a_type() {
        assert_eq!(node_address("InternalIP=10.0.0.1"), Ok(Address::new(AddressType::InternalIP, "10.0.0.1")));
        assert_eq!(node_address("InternalIP=fd00::1"), Ok(Address::new(AddressType::InternalIP, "fd00::1")));
        for text in ["10.0.0.1", "InternalIP=", "IP=10.0.0.1", "internalip=10.0.0.1", ""] {
            assert!(node_address(text).unwrap_err().contains("ExternalDNS"), "{text}");
        }
    }
}
