//! Lookups of servers by ID and by name, and pages of all servers.

use std::collections::{HashMap, HashSet};

use bowline_cloud::{Error, ErrorKind, Identity, Result, Retry};
use futures::stream::{self, StreamExt as _};

use super::FIND;
use crate::OpenStack;
use crate::api::compute::{self, Server, ServerPage};

/// Servers per page: Nova's default maximum.
pub(crate) const PAGE: usize = 1000;

/// Maximum number of concurrent calls for one lookup.
pub(super) const PARALLEL: usize = 4;

/// Results of lookups; `None` if the server does not exist.
pub(super) type Found = HashMap<Identity, Result<Option<Server>>>;

impl OpenStack {
    /// Looks up all of these, each once.
    pub(super) async fn look_up(&self, identities: HashSet<Identity>) -> Found {
        let answers = stream::iter(identities).map(|identity| async move {
            let answer = self.server_of(&identity).await;
            (identity, answer)
        });
        answers.buffer_unordered(PARALLEL).collect().await
    }

    /// Reads one page of all servers.
    pub(super) async fn page(&self, after: Option<&str>) -> Result<ServerPage> {
        let limit = PAGE.to_string();
        let page = compute::servers_page(&self.session, &[("limit", &limit)], after).await;
        page.map_err(|error| error.during("list servers"))
    }

    async fn server_of(&self, identity: &Identity) -> Result<Option<Server>> {
        match identity {
            Identity::Id(id) => self.server_of_id(id).await,
            Identity::Name(name) => self.server_of_name(name).await,
            Identity::NotMine => Ok(None),
        }
    }

    async fn server_of_id(&self, id: &str) -> Result<Option<Server>> {
        match compute::server(&self.session, id).await {
            Ok(server) => identified(server).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.during(FIND).context("server", id)),
        }
    }

    async fn server_of_name(&self, name: &str) -> Result<Option<Server>> {
        let pattern = format!("^{}$", escaped(name));
        let found = compute::servers(&self.session, &[("name", &pattern)]).await;
        let mut found = found.map_err(|error| error.during(FIND).context("name", name))?;
        match found.len() {
            0 if self.config.regional => Err(elsewhere(name)),
            0 => Ok(None),
            1 => found.pop().map(identified).transpose(),
            _ => Err(ambiguous(name, &found)),
        }
    }
}

/// Returns a regular expression that matches exactly this name.
fn escaped(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for c in name.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// Returns the server if it has an ID.
fn identified(server: Server) -> Result<Server> {
    if server.id.is_empty() { Err(without_id(&server)) } else { Ok(server) }
}

fn without_id(server: &Server) -> Error {
    Error::new(ErrorKind::Unexpected, FIND, format!("Nova returned a server {:?} without an ID", server.name))
}

/// In a cluster of several regions, the server may be in another one.
fn elsewhere(name: &str) -> Error {
    let message = format!(
        "no server is named {name:?} in this region, and with OS_CCM_REGIONAL=true it may be in another one: the Node is \
         not managed; set spec.providerID, or delete the Node"
    );
    // No event reports a new server: retry.
    Error::new(ErrorKind::InvalidConfig, FIND, message).retry(Retry::Backoff)
}

fn ambiguous(name: &str, servers: &[Server]) -> Error {
    let ids: Vec<_> = servers.iter().map(|server| server.id.as_str()).collect();
    let message = format!("multiple results: {} servers are named {name:?}: {}", ids.len(), ids.join(", "));
    // No event reports that an operator fixed this: retry.
    Error::new(ErrorKind::InvalidConfig, FIND, message).retry(Retry::Backoff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_039_a_name_matches_only_itself() {
        assert_eq!(escaped("n1.example"), r"n1\.example");
        assert_eq!(escaped(r"a+b(c)|[d]{e}^$*?\"), r"a\+b\(c\)\|\[d\]\{e\}\^\$\*\?\\");
        assert_eq!(escaped("node-1"), "node-1");
    }
}
