//! The manager under test as a process: ours, or a peer.

use std::path::Path;
use std::process::Command;

use crate::Failure;
use crate::figures::Usage;
use crate::support::{BOWLINE, Program, Server};

/// Environment variable with another build of ours.
const PROGRAM: &str = "BOWLINE_PROGRAM";

/// Environment variable with the command of another manager.
const PEER: &str = "BOWLINE_PEER";

/// Manager under test.
pub(crate) enum Kind {
    Ours,
    /// Command of another manager.
    Peer(String),
}

impl Kind {
    /// Returns ours, and the peer if there is one.
    pub(crate) fn all() -> Vec<Kind> {
        [Kind::Ours].into_iter().chain(std::env::var(PEER).ok().map(Kind::Peer)).collect()
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Kind::Ours => format!("bowline ({})", self.program()),
            Kind::Peer(_) => format!("peer ({})", self.program()),
        }
    }

    pub(crate) fn program(&self) -> String {
        match self {
            Kind::Ours => std::env::var(PROGRAM).unwrap_or_else(|_| BOWLINE.to_owned()),
            Kind::Peer(command) => command.split_whitespace().next().unwrap_or_default().to_owned(),
        }
    }

    fn arguments(&self) -> Vec<String> {
        match self {
            Kind::Ours => vec!["--cloud-provider=local".to_owned()],
            Kind::Peer(command) => command.split_whitespace().skip(1).map(str::to_owned).collect(),
        }
    }
}

/// A running manager, killed on drop.
pub(crate) struct Manager {
    program: Program,
}

impl Manager {
    /// Starts a manager with this lease on a free port. On SIGTERM it releases the lease.
    pub(crate) fn start(kind: &Kind, server: &Server, lease: &str) -> Result<Manager, Failure> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(kind.program());
        command.args(kind.arguments()).args(flags(&server.kubeconfig(), lease, port));
        let program = Program::start_command("bench-manager", command.env_remove("KUBECONFIG"));
        Ok(Manager { program })
    }

    /// Reads its resource usage.
    pub(crate) fn usage(&self) -> Result<Usage, Failure> {
        Usage::of(self.program.id()).map_err(|error| format!("{error}; output: {}", self.program.output()).into())
    }

    /// Sends it a signal.
    pub(crate) fn stop(&mut self, signal: &str) {
        self.program.signal(signal);
    }
}

fn flags(kubeconfig: &Path, lease: &str, port: u16) -> Vec<String> {
    let kubeconfig = kubeconfig.display();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--leader-elect=true".to_owned(),
        format!("--leader-elect-resource-name={lease}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        "--configure-cloud-routes=false".to_owned(),
    ]
}
