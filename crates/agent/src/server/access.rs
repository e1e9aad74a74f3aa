//! Who may make which call: the names in the certificate of the client decide.

use crate::config::Config;
use crate::error::AgentError;

/// Client of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Names in a certificate that a trusted CA signed.
    Certificate(Vec<String>),
    /// A process that can open the Unix socket.
    Local,
}

/// Kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Load balancers and routes.
    Client,
    /// Status.
    Anyone,
    /// Reads of peers and followers.
    Read,
    /// Updates of peers.
    Peer,
}

/// Checks a call, and returns the name under which the caller is known.
pub(super) fn authorize(config: &Config, caller: &Caller, access: Access) -> Result<String, AgentError> {
    let Caller::Certificate(names) = caller else {
        return match access {
            Access::Client | Access::Anyone => Ok("local".to_owned()),
            Access::Read | Access::Peer => Err(forbidden("the calls of peers are not available on a Unix socket")),
        };
    };
    let is_client = |name: &&String| config.clients.contains(name);
    let is_peer = |name: &&String| config.peers.iter().any(|peer| peer.name == **name);
    let is_follower = |name: &&String| config.followers.contains(name);
    let found = names.iter().find(|name| match access {
        Access::Client => is_client(name),
        Access::Peer => is_peer(name),
        Access::Read => is_peer(name) || is_follower(name),
        // With its own certificate, the command `lb-agent status` on the host of the agent.
        Access::Anyone => is_client(name) || is_peer(name) || is_follower(name) || config.name == **name,
    });
    found.cloned().ok_or_else(|| {
        let list = match access {
            Access::Client => "`clients`",
            Access::Peer => "`peers`",
            Access::Read => "`peers` or `followers`",
            Access::Anyone => "`clients`, `peers` or `followers`",
        };
        forbidden(&format!(
            "the certificate has the names {names:?}, and the agent {:?} permits this call only to names in {list}; fix: add the name \
             there, or use another certificate",
            config.name
        ))
    })
}

fn forbidden(message: &str) -> AgentError {
    AgentError::Forbidden(message.to_owned())
}

#[cfg(test)]
mod tests {
    use bowline_config::ConfigFile;

    use super::*;

    #[test]
    fn names_in_the_certificate_decide() {
        let text = "\
name: lb-1
tls: {certificateFile: a, keyFile: b, clientCaFile: c}
clients: [bowline]
followers: [node-1]
peers: {lb-2: {endpoint: 'https://lb-2:9470'}}
";
        let config = Config::read(&ConfigFile::from_text("agent.yaml", text)).unwrap();
        let table = [
            (Access::Client, ["bowline"].as_slice()),
            (Access::Peer, &["lb-2"]),
            (Access::Read, &["lb-2", "node-1"]),
            (Access::Anyone, &["bowline", "lb-1", "lb-2", "node-1"]),
        ];
        for (access, permitted) in table {
            for name in ["bowline", "lb-2", "node-1", "lb-1", "other", ""] {
                let caller = Caller::Certificate(vec!["unrelated".to_owned(), name.to_owned()]);
                let result = authorize(&config, &caller, access);
                assert_eq!(result.is_ok(), permitted.contains(&name), "{access:?} {name:?}: {result:?}");
            }
            assert!(authorize(&config, &Caller::Certificate(Vec::new()), access).is_err());
            let is_local = authorize(&config, &Caller::Local, access).is_ok();
            assert_eq!(is_local, matches!(access, Access::Client | Access::Anyone), "{access:?}");
        }
    }
}
