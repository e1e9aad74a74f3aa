//! Status of all agents of a group, for `bowline lb-agent status`: asks the agent of this host and its peers with the agent's own
//! certificate.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bowline_agent_client::{AgentStatus, ErrorReply, unix_client};
use bowline_http::{Client, Fingerprint, Options, Proxies, Tls};
use bytes::Bytes;
use http::{Method, Request, StatusCode};

use crate::config::{Config, Listen, TlsConfig};
use crate::server::{API_HEADER, API_VERSION, TlsFileError, check_api_version, client_tls, leaf};

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Answer of an agent.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Name in the configuration.
    pub name: String,
    /// Endpoint that was asked.
    pub endpoint: String,
    /// Its status, or the reason why there is none.
    pub status: Result<AgentStatus, String>,
}

/// Agent to ask.
struct Target {
    name: String,
    endpoint: String,
    client: Client,
}

/// Asks the agent of this configuration and its peers; the answers are sorted by name. Fails only if the certificates cannot be used.
pub async fn query_group(config: &Config) -> Result<Vec<Answer>, TlsFileError> {
    let targets = targets(config)?;
    let tasks: Vec<_> = targets.into_iter().map(|target| tokio::spawn(ask(target))).collect();
    let mut answers = Vec::new();
    for task in tasks {
        // Fails only if the runtime shuts down.
        answers.extend(task.await);
    }
    answers.sort_by(|one: &Answer, other| one.name.cmp(&other.name));
    Ok(answers)
}

fn targets(config: &Config) -> Result<Vec<Target>, TlsFileError> {
    let own = |endpoint: String, client| Target { name: config.name.clone(), endpoint, client };
    let mut targets = Vec::new();
    match &config.listen {
        Listen::Unix(path) => targets.push(own(format!("unix:{}", path.display()), unix_client(path.clone(), TIMEOUT))),
        Listen::Tcp(address) => {
            if let Some(files) = &config.tls {
                targets.push(own(format!("https://{}", reachable(*address)), own_client(files)?));
            }
        }
    }
    if let Some(files) = &config.tls {
        let client = client(files, client_tls(files)?)?;
        targets.extend(config.peers.iter().map(|peer| Target {
            name: peer.name.clone(),
            endpoint: peer.endpoint.trim_end_matches('/').to_owned(),
            client: client.clone(),
        }));
    }
    Ok(targets)
}

/// Client of the agent on this host. Its certificate need not have the address on which it listens, which may be that of loopback, so it
/// must be the one in the configuration.
fn own_client(files: &TlsConfig) -> Result<Client, TlsFileError> {
    let fingerprint = Fingerprint::sha256(&leaf(files)?);
    client(files, Tls { fingerprint: Some(fingerprint), ..client_tls(files)? })
}

fn client(files: &TlsConfig, tls: Tls) -> Result<Client, TlsFileError> {
    let client = Client::new(Options { tls, proxies: Proxies::default(), timeout: TIMEOUT });
    client.map_err(|error| TlsFileError { path: files.certificate_file.clone(), message: error.to_string() })
}

/// Address at which a listener of this host is reached.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

async fn ask(target: Target) -> Answer {
    let Target { name, endpoint, client } = target;
    let status = status(&client, &endpoint).await.and_then(|status| match status.name == name {
        true => Ok(status),
        false => Err(format!(
            "the agent there has the name {:?}; fix: correct `peers`, or `name` of that agent",
            status.name
        )),
    });
    Answer { name, endpoint, status }
}

async fn status(client: &Client, endpoint: &str) -> Result<AgentStatus, String> {
    let base = if endpoint.starts_with("unix:") { "http://localhost" } else { endpoint };
    let request = Request::builder().method(Method::GET).uri(format!("{base}/v1/status"));
    let request = request.header(API_HEADER, API_VERSION).body(Bytes::new()).map_err(|error| error.to_string())?;
    let response = client.send(request).await.map_err(|error| error.to_string())?;
    check_api_version(response.headers(), "agent")?;
    match response.status() {
        StatusCode::OK => serde_json::from_slice(response.body()).map_err(|error| format!("invalid response: {error}")),
        status => Err(match serde_json::from_slice::<ErrorReply>(response.body()) {
            Ok(reply) => reply.error.message,
            Err(_) => format!("HTTP status {status}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_listens_everywhere_is_asked_on_loopback() {
        for (listen, expected) in
            [("0.0.0.0:9470", "127.0.0.1:9470"), ("[::]:9470", "[::1]:9470"), ("192.0.2.11:1", "192.0.2.11:1")]
        {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), expected);
        }
    }
}
