//! Flags of `bowline playground`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use bowline_core::parse_cidr;
use bowline_playground::{PlaygroundOptions, Ports, check_cluster_cidrs};
use bowline_settings::flags::{self, Switch as _};
use clap::{Args, Subcommand};
use ipnet::IpNet;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PlaygroundArgs {
    #[command(subcommand)]
    pub(crate) command: Option<PlaygroundCommand>,

    /// Initial number of machines, each with a simulated kubelet and its Node.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = node_count)]
    pub(crate) nodes: usize,

    /// Listen address of the API server; port 0 selects a free port.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0", value_parser = flags::address)]
    pub(crate) listen: SocketAddr,

    /// Port of the API server on 127.0.0.1.
    #[arg(long, value_name = "PORT", conflicts_with = "listen")]
    pub(crate) port: Option<u16>,

    /// Allow --listen with a non-loopback address, although every client with a certificate or a token has full access.
    #[arg(long, default_value = "false", value_parser = flags::go_bool, switch())]
    pub(crate) allow_remote_clients: bool,

    /// Cluster CIDR, in the syntax of the manager's flag: one CIDR, or one of each IP family. Default: an unused part of the
    /// loopback network, where Pods are reachable; Pods in other CIDRs are not.
    #[arg(long, value_name = "CIDR", value_parser = parse_cluster_cidrs)]
    pub(crate) cluster_cidr: Option<ClusterCidrs>,

    /// Listen address of the cloud's API, a loopback address; port 0 selects a free port.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0", value_parser = flags::loopback)]
    pub(crate) cloud_listen: SocketAddr,

    /// Listen address of the page that shows the playground, a loopback address; port 0 selects a free port, and off disables the
    /// page. Its URL is printed, with a token that lets only you change machines, faults and examples.
    #[arg(long, value_name = "IP:PORT|off", default_value = "127.0.0.1:0", value_parser = console_listen)]
    pub(crate) console: ConsoleListen,

    /// File for the kubeconfig of an administrator, readable by the file owner only. An existing file is replaced only if an
    /// earlier run wrote it.
    #[arg(long, value_name = "FILE", default_value = "bowline.kubeconfig")]
    pub(crate) kubeconfig: PathBuf,

    /// Run the tour unattended and check every step: exit code 0, or 1 and the name of the step that failed. The default without a
    /// terminal.
    #[arg(long)]
    pub(crate) script: bool,

    /// Print the commands of all steps, and run until SIGINT or SIGTERM.
    #[arg(long, conflicts_with = "script")]
    pub(crate) no_tour: bool,

    /// File that the log is appended to, at level info, or the level of BOWLINE_LOG.
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// Show all log lines above the tour. Default: only the most recent one; the key L shows all.
    #[arg(long)]
    pub(crate) show_log: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PlaygroundCommand {
    /// Print an example manifest for `kubectl apply -f -`. Without a name, list the examples.
    Example(ExampleArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExampleArgs {
    /// Name of the example.
    pub(crate) name: Option<String>,

    /// HTTP port of the Service hello, if another program uses the default; its UDP port is the next one.
    #[arg(long, value_name = "PORT", default_value_t = Ports::DEFAULT.http, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
}

impl From<&PlaygroundArgs> for PlaygroundOptions {
    fn from(args: &PlaygroundArgs) -> PlaygroundOptions {
        let listen = args.port.map_or(args.listen, |port| (Ipv4Addr::LOCALHOST, port).into());
        // The tour starts the controllers, after showing the cluster without them.
        PlaygroundOptions {
            nodes: args.nodes,
            listen,
            allow_remote_clients: args.allow_remote_clients,
            cloud_listen: args.cloud_listen,
            cluster_cidrs: args.cluster_cidr.clone().map_or_else(Vec::new, |ClusterCidrs(cidrs)| cidrs),
            controllers: false,
        }
    }
}

/// Listen address of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConsoleListen {
    /// There is no page.
    Off,
    /// A loopback address.
    At(SocketAddr),
}

/// Parses the listen address of the page, or `off`. The page is for the user of this machine, so other addresses are rejected.
fn console_listen(text: &str) -> Result<ConsoleListen, &'static str> {
    match text {
        "off" => Ok(ConsoleListen::Off),
        _ => flags::loopback(text)
            .map(ConsoleListen::At)
            .map_err(|_| "expected a loopback address, such as 127.0.0.1:0 or [::1]:0, or off"),
    }
}

/// Parses the number of Nodes. Higher numbers would work, but not on every computer.
pub(crate) fn node_count(text: &str) -> Result<usize, &'static str> {
    let count = text.parse().ok().filter(|count| (1..=10_000).contains(count));
    count.ok_or("expected a number from 1 to 10000")
}

/// Cluster CIDRs of a playground.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterCidrs(pub(crate) Vec<IpNet>);

/// Parses cluster CIDRs such as `10.244.0.0/16`: one, or one of each IP family.
pub(crate) fn parse_cluster_cidrs(text: &str) -> Result<ClusterCidrs, String> {
    let cidr = |part: &str| {
        parse_cidr(part)
            .ok_or_else(|| format!("{part:?} is not a CIDR; expected for example 10.244.0.0/16 or fd00:10:244::/56"))
    };
    let cidrs: Vec<IpNet> = text.split(',').map(cidr).collect::<Result<_, _>>()?;
    check_cluster_cidrs(&cidrs).map_err(|error| error.to_string())?;
    Ok(ClusterCidrs(cidrs))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn listen_and_port_set_the_listen_address() {
        let listen = |flags: &[&str]| {
            let cli = Cli::try_parse_from(["bowline", "playground"].iter().chain(flags)).ok()?;
            match cli.command {
                Some(Command::Playground(args)) => Some(PlaygroundOptions::from(&*args).listen.to_string()),
                _ => None,
            }
        };
        assert_eq!(listen(&[]).as_deref(), Some("127.0.0.1:0"));
        assert_eq!(listen(&["--port=6443"]).as_deref(), Some("127.0.0.1:6443"));
        assert_eq!(listen(&["--listen=[::1]:6443"]).as_deref(), Some("[::1]:6443"));
        assert_eq!(listen(&["--listen=[::1]:6443", "--port=1"]), None);
    }

    #[test]
    fn the_page_listens_on_a_loopback_address_or_not_at_all() {
        assert_eq!(console_listen("off"), Ok(ConsoleListen::Off));
        for text in ["127.0.0.1:0", "[::1]:8080"] {
            assert_eq!(console_listen(text), Ok(ConsoleListen::At(text.parse().unwrap())));
        }
        for text in ["0.0.0.0:8080", "192.0.2.1:8080", "on", "", "8080"] {
            assert!(console_listen(text).is_err(), "{text}");
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
    fn there_is_at_most_one_cluster_cidr_of_each_ip_family() {
        let ranges = |text| {
            parse_cluster_cidrs(text)
                .map(|ClusterCidrs(ranges)| ranges.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(ranges("10.244.0.0/16").unwrap(), ["10.244.0.0/16"]);
        assert_eq!(ranges("10.244.7.1/16,fd00:10:244::/56").unwrap(), ["10.244.0.0/16", "fd00:10:244::/56"]);
        for text in
            ["", "10.244.0.0", "10.244.0.0/33", "10.244.0.0/16, fd00::/56", "10.0.0.0/16,10.1.0.0/16", "127.0.0.0/16"]
        {
            assert!(parse_cluster_cidrs(text).is_err(), "{text}");
        }
    }
}
