//! Flags of `bowline console` and `bowline top`, which show what a running manager does.

use std::net::SocketAddr;
use std::path::PathBuf;

use bowline_console::access;
use bowline_settings::flags;
use clap::Args;

use super::inspect::Output;

#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    /// Loopback address of the page; port 0 selects a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = flags::loopback)]
    pub(crate) listen: SocketAddr,

    #[command(flatten)]
    pub(crate) manager: ReachArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Print the document once, and exit. This is the default if standard output is not a terminal.
    #[arg(long)]
    pub(crate) once: bool,

    /// Output format; json prints the complete document once.
    #[arg(
        short = 'o',
        long,
        value_name = "text|json",
        value_enum,
        default_value = "text",
        hide_possible_values = true
    )]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) manager: ReachArgs,
}

/// How to reach the manager.
#[derive(Debug, Args)]
pub(crate) struct ReachArgs {
    /// Kubeconfig of the user. Default: the file that kubectl uses.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig. Default: the current one.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// Namespace of the manager's Pods and of the service account.
    #[arg(short = 'n', long, value_name = "NAME", default_value = "kube-system", value_parser = flags::label)]
    pub(crate) namespace: String,

    /// Lease of the manager: its holder is the leader, whose Pod is asked.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "kube-system/cloud-controller-manager", value_parser = lease)]
    pub(crate) lease: LeaseName,

    /// Service account whose tokens authenticate this command to the manager. Your own credentials are not sent to it.
    #[arg(long, value_name = "NAME", default_value = access::SERVICE_ACCOUNT, value_parser = flags::not_empty)]
    pub(crate) service_account: String,

    /// URL of a manager that this machine reaches directly, such as https://HOST:10258, with the credentials of the kubeconfig. For a
    /// manager outside of the cluster, or one without leader election.
    #[arg(long, value_name = "URL", value_parser = https)]
    pub(crate) manager: Option<String>,

    /// CA that signs the certificate of --manager.
    #[arg(long, value_name = "FILE", requires = "manager")]
    pub(crate) manager_certificate_authority: Option<PathBuf>,

    /// Do not verify the certificate of --manager. The credentials of the kubeconfig are then sent to any server at this address.
    #[arg(long, requires = "manager", conflicts_with = "manager_certificate_authority")]
    pub(crate) insecure_skip_tls_verify: bool,
}

/// Namespace and name of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::fmt::Display for LeaseName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

fn lease(text: &str) -> Result<LeaseName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(LeaseName { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("expected NAMESPACE/NAME, such as kube-system/cloud-controller-manager".to_owned()),
    }
}

fn https(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").map(|rest| rest.trim_end_matches('/'));
    match host {
        Some(host) if !host.is_empty() && !host.contains(['/', '?', '#', '@']) => Ok(format!("https://{host}")),
        _ => Err("expected https://HOST:PORT, such as https://192.0.2.10:10258".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(words: &[&str]) -> Result<ReachArgs, String> {
        let cli = Cli::try_parse_from(["bowline", "top"].iter().chain(words)).map_err(|error| error.to_string())?;
        match cli.command {
            Some(Command::Top(args)) => Ok(args.manager),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_defaults_fit_the_printed_manifests() {
        let args = parse(&[]).unwrap();
        assert_eq!((args.namespace.as_str(), args.service_account.as_str()), ("kube-system", "bowline-console"));
        assert_eq!(args.lease.to_string(), "kube-system/cloud-controller-manager");
    }

    #[test]
    fn a_lease_has_a_namespace_and_a_name() {
        let expected = LeaseName { namespace: "a".to_owned(), name: "b".to_owned() };
        assert_eq!(parse(&["--lease=a/b"]).unwrap().lease, expected);
        for text in ["a", "/b", "a/", "a/b/c", ""] {
            assert!(lease(text).unwrap_err().starts_with("expected NAMESPACE/NAME"), "{text}");
        }
    }

    #[test]
    fn a_manager_is_reached_over_https_only() {
        assert_eq!(https("https://[2001:db8::1]:10258/").as_deref(), Ok("https://[2001:db8::1]:10258"));
        for url in ["http://a:1", "a:1", "https://", "https://a/b", "https://user@a", ""] {
            assert!(https(url).unwrap_err().starts_with("expected https://"), "{url}");
        }
        for flags in [&["--insecure-skip-tls-verify"][..], &["--manager-certificate-authority=f"]] {
            assert!(parse(flags).unwrap_err().contains("--manager"), "{flags:?}");
        }
        let both = ["--manager=https://a", "--insecure-skip-tls-verify", "--manager-certificate-authority=f"];
        assert!(parse(&both).unwrap_err().contains("cannot be used with"));
    }
}
