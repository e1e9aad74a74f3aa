//! Programs on a simulated cloud, which is served over HTTP and can become unreachable.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bowline_simulator::{Certificate, Server, Service, Simulator};

use super::{BOWLINE, finish};

/// Flags with which the manager runs alone, and deletes the Nodes of deleted machines within seconds.
pub(crate) const QUICK: [&str; 5] = [
    "--leader-elect=false",
    "--secure-port=0",
    "--node-monitor-period=500ms",
    "--node-deletion-grace-period=1s",
    "--node-deletion-confirm-period=1s",
];

/// A simulated cloud over HTTP.
pub(crate) struct Served<C> {
    cloud: C,
    /// `None` while the cloud is unreachable.
    server: Option<Server>,
    address: SocketAddr,
    /// `None` without TLS.
    certificate: Option<Certificate>,
}

impl<C> Deref for Served<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.cloud
    }
}

impl<C: Deref<Target = Simulator<S>>, S: Service> Served<C> {
    /// Serves a cloud on a free port.
    pub(crate) async fn start(cloud: C) -> Served<C> {
        Served::listen(cloud, None).await
    }

    /// Serves a cloud on a free port over TLS.
    pub(crate) async fn start_tls(cloud: C) -> Served<C> {
        Served::listen(cloud, Some(Certificate::for_loopback().unwrap())).await
    }

    async fn listen(cloud: C, certificate: Option<Certificate>) -> Served<C> {
        let address = "127.0.0.1:0".parse().unwrap();
        let mut served = Served { cloud, server: None, address, certificate };
        served.open().await;
        served.address = served.server.as_ref().unwrap().address();
        served
    }

    /// The certificate of the server in PEM format.
    pub(crate) fn ca(&self) -> &str {
        self.certificate.as_ref().unwrap().pem()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// SHA-256 fingerprint of the server's certificate.
    pub(crate) fn thumbprint(&self) -> String {
        self.certificate.as_ref().unwrap().fingerprint()
    }

    /// Makes the cloud unreachable.
    pub(crate) fn close(&mut self) {
        self.server = None;
    }

    /// Makes the cloud reachable again, at the same address.
    pub(crate) async fn open(&mut self) {
        let server = match &self.certificate {
            None => self.cloud.serve(self.address).await,
            Some(certificate) => self.cloud.serve_tls(self.address, certificate).await,
        };
        self.server = Some(server.unwrap());
    }
}

/// Returns the program with these variables and without those of the developer whose name `is_cleared`. Of `variables`, which take
/// precedence over `defaults`, those with an empty value are unset.
pub(crate) fn program(
    is_cleared: impl Fn(&str) -> bool,
    defaults: &[(&str, &str)],
    variables: &[(&str, &str)],
) -> Command {
    let mut command = Command::new(BOWLINE);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["KUBECONFIG", "BOWLINE_LOG"].contains(&name.as_str()) || is_cleared(&name) {
            command.env_remove(name);
        }
    }
    let all: BTreeMap<_, _> = defaults.iter().chain(variables).copied().collect();
    command.envs(all.into_iter().filter(|(_, value)| !value.is_empty()));
    command
}

/// Runs a program to completion.
pub(crate) fn output(command: &mut Command) -> Output {
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), Duration::from_secs(20))
}
