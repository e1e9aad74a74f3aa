//! The flags of `bowline cloud`: a cloud to run, or one change to a cloud that runs.

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

    /// Where to listen, on this machine; port 0 picks a free one.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7480", value_parser = flags::loopback)]
    pub(crate) listen: SocketAddr,

    /// Where its machines, load balancers and routes survive a restart; made if it is not there. Without it they are kept in
    /// memory only.
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,

    /// What every call takes.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = flags::duration)]
    pub(crate) latency: Duration,

    /// How many machines one page of a listing holds, and how many one lookup may name.
    #[arg(
        long,
        value_name = "N",
        default_value_t = CloudOptions::default().page_size as u32,
        value_parser = clap::value_parser!(u32).range(1..),
    )]
    pub(crate) page_size: u32,

    /// What makes chance repeatable.
    #[arg(long, value_name = "N", default_value_t = CloudOptions::default().seed)]
    pub(crate) seed: u64,

    /// Where the addresses of load balancers come from. A list: separated by commas, or the flag given again. Every
    /// address of 127.0.0.0/8 is this machine, so that no rights are needed to listen there.
    #[arg(
        long,
        value_name = "CIDR",
        value_delimiter = ',',
        default_values_t = BalancerOptions::default().pool,
        value_parser = flags::cidr,
    )]
    pub(crate) pool: Vec<IpNet>,

    /// The same for load balancers that are reached from inside only.
    #[arg(
        long,
        value_name = "CIDR",
        value_delimiter = ',',
        default_values_t = BalancerOptions::default().internal_pool,
        value_parser = flags::cidr,
    )]
    pub(crate) internal_pool: Vec<IpNet>,

    /// Let load balancers listen and carry traffic. Without it they are records only.
    #[arg(long, default_value = "true", value_parser = flags::go_bool, switch())]
    pub(crate) data_plane: bool,

    /// How long the cloud is at work after each change of a load balancer, and takes no further one.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = flags::duration)]
    pub(crate) work_time: Duration,

    /// How many routes each cluster may have; as many as it likes unless given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_routes: Option<u32>,

    /// Make routes of the kernel, so that packets follow the routes of the cloud, in the network namespaces that machines
    /// name. Linux only, and needs root. Without it routes are records only.
    #[arg(long, default_value = "false", value_parser = flags::go_bool, switch())]
    pub(crate) kernel_routes: bool,

    /// Where the tokens are that users must show, one in a line; it is read for every call. Without it anybody may call, or with
    /// --kernel-routes the owner alone.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Where to write the owner's token, readable by its owner only, which the commands below show. Unless given, in the folder
    /// bowline of $XDG_RUNTIME_DIR or of ~/.cache, where they look for it.
    #[arg(long, value_name = "FILE")]
    pub(crate) owner_token_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CloudCommand {
    /// Make a machine, running, and print its ID.
    Add(AddArgs),
    /// List all machines.
    List(EndpointArgs),
    /// Stop a machine.
    Stop(MachineArgs),
    /// Start a machine.
    Start(MachineArgs),
    /// Remove a machine.
    Delete(MachineArgs),
    /// List all load balancers: whose they are, where they listen, who takes their traffic, and how much of it.
    Balancers(EndpointArgs),
    /// List all addresses of load balancers, and whose they are.
    Addresses(EndpointArgs),
    /// List all routes: whose table they are in, and which machine a range is led to.
    Routes(EndpointArgs),
    /// Lead a range to a machine by hand, and print the ID of the route.
    AddRoute(AddRouteArgs),
    /// Remove a route.
    DeleteRoute(DeleteRouteArgs),
    /// Make the cloud go wrong from now on, and print the number that takes it back.
    Fault(FaultArgs),
    /// Take a fault back, or all of them.
    Repair(RepairArgs),
    /// Print how often each kind of call was made.
    Calls(CallsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct EndpointArgs {
    /// Where the cloud listens.
    #[arg(long, value_name = "URL", default_value = Config::default().endpoint)]
    pub(crate) endpoint: String,

    /// The owner's token, if it is not where the cloud writes it unless told otherwise.
    #[arg(long, value_name = "FILE")]
    pub(crate) owner_token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// The machine's ID.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The machine's name; a node of this name is taken to be it.
    pub(crate) name: String,

    /// The machine's ID; made up unless given.
    #[arg(long, value_name = "ID", default_value = "")]
    pub(crate) id: String,

    /// The kind of machine.
    #[arg(long = "type", value_name = "TYPE", default_value = "")]
    pub(crate) instance_type: String,

    /// The failure domain.
    #[arg(long, value_name = "ZONE", default_value = "")]
    pub(crate) zone: String,

    /// The region.
    #[arg(long, value_name = "REGION", default_value = "")]
    pub(crate) region: String,

    /// An address, such as InternalIP=10.0.0.1 or ExternalDNS=worker-1.example; given again for further ones, in the
    /// order that the node should have them.
    #[arg(long, value_name = "TYPE=ADDRESS", value_parser = node_address)]
    pub(crate) address: Vec<Address>,

    /// A further label for the node; given again for further ones.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) label: Vec<(String, String)>,
    /// Annotation for the node; repeat for more.
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) annotation: Vec<(String, String)>,

    /// A pod range that the cloud leads to the machine by itself, such as 10.244.3.0/24; given again for further ones.
    #[arg(long, value_name = "CIDR", value_parser = flags::cidr)]
    pub(crate) pod_range: Vec<IpNet>,

    /// The network namespace where its packets go, with `bowline cloud --kernel-routes`: a name under /run/netns, or the path
    /// of one.
    #[arg(long, value_name = "NAME|PATH")]
    pub(crate) network_namespace: Option<String>,

    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

/// Whose table of routes.
#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    /// The cluster whose table it is in, as the manager's --cluster-name.
    #[arg(long, value_name = "NAME", default_value = "kubernetes", value_parser = flags::not_empty)]
    pub(crate) cluster: String,
    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AddRouteArgs {
    /// The range, such as 10.244.3.0/24.
    #[arg(value_name = "CIDR", value_parser = flags::cidr)]
    pub(crate) destination: IpNet,

    /// The ID of the machine that it leads to.
    pub(crate) machine: String,

    /// Put the cluster's mark on it, as on one that a manager made.
    #[arg(long)]
    pub(crate) stamped: bool,

    #[command(flatten)]
    pub(crate) table: TableArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteRouteArgs {
    /// The route's ID.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) table: TableArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FaultArgs {
    /// What goes wrong: slow=2s, throttled, throttled=5s (in Retry-After), failing=503, hanging, empty (shows nothing),
    /// stale (answers as things are now), answer-lost (does it, and the answer never arrives), garbled.
    #[arg(value_parser = fault)]
    pub(crate) fault: Fault,

    /// The kind of call that it strikes, as `bowline cloud calls` names them: find, list, observe-balancers,
    /// delete-balancer and so on. All that a provider makes unless given.
    #[arg(long, value_name = "KIND", default_value = "")]
    pub(crate) call: String,

    /// How often it strikes, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = flags::share)]
    pub(crate) probability: f64,

    /// How many times it strikes; for ever unless given.
    #[arg(long, value_name = "N")]
    pub(crate) times: Option<u64>,

    /// How many calls it lets pass first.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) after: u64,

    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// The fault's number; all faults unless given.
    pub(crate) number: Option<u64>,
    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CallsArgs {
    /// Count from zero again afterwards.
    #[arg(long)]
    pub(crate) reset: bool,
    #[command(flatten)]
    pub(crate) at: EndpointArgs,
}

// ---- into the values of the cloud

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
            max_routes: args.max_routes.map(|most| most as usize),
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
    fn faults_are_written_in_one_word() {
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
    fn addresses_name_their_type() {
        assert_eq!(node_address("InternalIP=10.0.0.1"), Ok(Address::new(AddressType::InternalIP, "10.0.0.1")));
        assert_eq!(node_address("InternalIP=fd00::1"), Ok(Address::new(AddressType::InternalIP, "fd00::1")));
        for text in ["10.0.0.1", "InternalIP=", "IP=10.0.0.1", "internalip=10.0.0.1", ""] {
            assert!(node_address(text).unwrap_err().contains("ExternalDNS"), "{text}");
        }
    }
}
