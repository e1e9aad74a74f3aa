//! Flags of `bowline lb-agent`, which runs an agent, and of its subcommands.

use std::path::PathBuf;

use bowline_settings::flags::{self, Switch as _};
use bowline_telemetry::logging::{Format, Options};
use clap::{Args, Subcommand};

use super::inspect::OutputArgs;

/// Configuration file of an agent.
const CONFIG: &str = "/etc/bowline-lb-agent/agent.yaml";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LbAgentArgs {
    #[command(subcommand)]
    pub(crate) command: Option<LbAgentCommand>,

    /// Configuration file of the agent.
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) config: PathBuf,

    /// Check the configuration file and the certificates that it names, and exit.
    #[arg(long, default_value = "false", value_parser = flags::go_bool, switch())]
    pub(crate) check_config: bool,

    /// Log level: 0 logs changes, 4 adds the reasons, 6 and above add every request. The environment variable BOWLINE_LOG overrides it.
    #[arg(short = 'v', long, value_name = "LEVEL", default_value = "0", value_parser = flags::int32)]
    pub(crate) v: i32,

    /// Log format: text for the format of klog, or json for one JSON object per line.
    #[arg(long, value_name = "text|json", default_value = "text", value_parser = |text: &str| text.parse::<Format>())]
    pub(crate) logging_format: Format,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LbAgentCommand {
    /// Show which agent of the group is active, and problems.
    ///
    /// Reads the configuration file of the agent on this host, and asks it and its peers with its own certificate. Exit codes: 0 if
    /// exactly one agent is active, 1 if not, 2 for invalid flags or files.
    Status(StatusArgs),

    /// Create the certificates of agents, and of the manager as their client.
    ///
    /// Creates a CA in the directory, or uses the one that is there, and signs a certificate for each agent and client that has
    /// none. Existing files are not changed. An agent's certificate has its name and its addresses: the hosts in the endpoints by which
    /// the manager and the other agents reach it.
    Certificates(CertificatesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Configuration file of the agent.
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    pub(crate) config: PathBuf,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CertificatesArgs {
    /// Directory of the files; created if it does not exist.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) directory: PathBuf,

    /// Name of a client, such as the manager; may be repeated.
    #[arg(long = "client", value_name = "NAME", default_value = "bowline")]
    pub(crate) clients: Vec<String>,

    /// Validity of agents' and clients' certificates in days; that of the CA is ten years.
    #[arg(long, value_name = "DAYS", default_value = "1825", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,

    /// Name of an agent, and its IP addresses or DNS names.
    #[arg(value_name = "NAME=ADDRESS[,ADDRESS]", required_unless_present = "clients", value_parser = named)]
    pub(crate) agents: Vec<NamedAgent>,
}

/// Name of an agent, and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedAgent {
    pub(crate) name: String,
    pub(crate) addresses: Vec<String>,
}

fn named(text: &str) -> Result<NamedAgent, String> {
    match text.split_once('=') {
        Some((name, addresses)) if !name.is_empty() && !addresses.is_empty() => {
            let addresses = addresses.split(',').map(|address| address.trim().to_owned()).collect();
            Ok(NamedAgent { name: name.to_owned(), addresses })
        }
        _ => Err("expected NAME=ADDRESS, such as lb-1=192.0.2.11".to_owned()),
    }
}

impl LbAgentArgs {
    /// Logging options of an agent; `None` for the commands that print a result.
    pub(crate) fn logging(&self) -> Option<Options> {
        let is_agent = self.command.is_none() && !self.check_config;
        is_agent.then(|| Options { format: self.logging_format, verbosity: self.v, ..Options::default() })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(words: &[&str]) -> LbAgentArgs {
        match Cli::parse_from(["bowline", "lb-agent"].iter().chain(words)).command {
            Some(Command::LbAgent(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_agent_logs_like_the_manager_and_the_other_commands_do_not() {
        let args = parse(&["--config=a.yaml", "-v=4", "--logging-format=json"]);
        let options = args.logging().unwrap();
        assert_eq!((args.config, options.verbosity, options.format), ("a.yaml".into(), 4, Format::Json));
        assert!(parse(&["--check-config"]).logging().is_none());
        assert!(parse(&["status"]).logging().is_none());
        assert_eq!(parse(&[]).config, PathBuf::from(CONFIG));
    }

    #[test]
    fn an_agent_has_a_name_and_addresses() {
        let args = parse(&["certificates", "--directory=pki", "lb-1=192.0.2.11,lb-1.example", "lb-2=2001:db8::2"]);
        let Some(LbAgentCommand::Certificates(args)) = args.command else { panic!("another command") };
        assert_eq!(args.agents[0].addresses, ["192.0.2.11", "lb-1.example"]);
        assert_eq!((args.agents[1].name.as_str(), args.agents[1].addresses[0].as_str()), ("lb-2", "2001:db8::2"));
        assert_eq!((args.clients, args.days), (vec!["bowline".to_owned()], 1825));
        for text in ["lb-1", "lb-1=", "=192.0.2.11"] {
            assert!(named(text).unwrap_err().starts_with("expected NAME=ADDRESS"), "{text}");
        }
        let without_agents = Cli::try_parse_from(["bowline", "lb-agent", "certificates", "--directory=pki"]);
        assert!(without_agents.unwrap_err().to_string().contains("NAME=ADDRESS"));
        parse(&["certificates", "--directory=pki", "--client=spare"]);
    }
}
