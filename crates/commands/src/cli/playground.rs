//! The flags of `bowline playground`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use bowline_core::parse_cidr;
use bowline_playground::{PlaygroundOptions, check_cluster_cidrs};
use bowline_settings::flags::{self, Switch as _};
use clap::Args;
use ipnet::IpNet;

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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

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
