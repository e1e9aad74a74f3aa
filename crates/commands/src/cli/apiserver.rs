//! Flags of `bowline apiserver`.

use std::net::SocketAddr;
use std::path::PathBuf;

use bowline_apiserver::{AuthorizationMode, Options};
use bowline_settings::flags::{self, PortRange, Switch as _};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use ipnet::IpNet;

#[derive(Debug, Args)]
pub(crate) struct ApiserverArgs {
    /// Listen address; port 0 selects a free port.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:6443", value_parser = flags::address)]
    pub(crate) listen: SocketAddr,

    /// File for the kubeconfig of an administrator (group system:masters), readable by the file owner only. An existing file is
    /// replaced only if an earlier run wrote it.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,

    /// Authorization mode: AlwaysAllow permits every authenticated request, RBAC evaluates the stored roles and bindings.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "AlwaysAllow",
        value_parser = PossibleValuesParser::new(["AlwaysAllow", "RBAC"]).map(authorization_mode),
    )]
    pub(crate) authorization_mode: AuthorizationMode,

    /// Allow --listen with a non-loopback address in mode AlwaysAllow, in which every client with a certificate or a token has full
    /// access.
    #[arg(long, default_value_t = Options::default().allow_remote_clients, value_parser = flags::go_bool, switch())]
    pub(crate) allow_remote_clients: bool,

    /// Run the controllers that kube-controller-manager runs in a real cluster: namespace deletion, garbage collection, default
    /// service accounts, endpoint slices.
    #[arg(long, default_value_t = Options::default().built_in_controllers, value_parser = flags::go_bool, switch())]
    pub(crate) built_in_controllers: bool,

    /// Serve test endpoints under /debug/: compact history, close watches, inject faults.
    #[arg(long, default_value_t = Options::default().debug_endpoints, value_parser = flags::go_bool, switch())]
    pub(crate) debug_endpoints: bool,

    /// CIDR for the cluster IPs of Services.
    #[arg(long, value_name = "CIDR", default_value_t = Options::default().service_cidr, value_parser = flags::cidr)]
    pub(crate) service_cluster_ip_range: IpNet,

    /// Port range for Services with node ports, inclusive.
    #[arg(
        long,
        value_name = "FIRST-LAST",
        default_value_t = PortRange::from(Options::default().node_ports),
        value_parser = flags::port_range,
    )]
    pub(crate) service_node_port_range: PortRange,

    /// Issuer of service account tokens.
    #[arg(long, value_name = "URL", default_value_t = Options::default().issuer, value_parser = flags::issuer)]
    pub(crate) service_account_issuer: String,
}

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

/// Converts a mode that the value parser has already validated.
fn authorization_mode(name: String) -> AuthorizationMode {
    if name == "RBAC" { AuthorizationMode::Rbac } else { AuthorizationMode::AlwaysAllow }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn parse(flags: &[&str]) -> Result<Options, String> {
        let argv = ["bowline", "apiserver", "--kubeconfig", "kc"].iter().chain(flags);
        let cli = Cli::try_parse_from(argv).map_err(|error| error.to_string())?;
        match cli.command {
            Some(Command::Apiserver(args)) => Ok(Options::from(&args)),
            _ => unreachable!("the arguments name the other command"),
        }
    }

    #[test]
    fn without_flags_the_library_defaults_and_the_usual_port_apply() {
        let options = parse(&[]).unwrap();
        let expected = Options { listen: "127.0.0.1:6443".parse().unwrap(), ..Options::default() };
        assert_eq!(format!("{options:?}"), format!("{expected:?}"));
    }

    #[test]
    fn booleans_have_the_syntax_of_go() {
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
    fn every_flag_sets_its_option() {
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
    fn an_error_names_the_flag_its_value_and_a_valid_one() {
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
}
