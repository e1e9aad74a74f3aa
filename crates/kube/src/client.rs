//! Connecting to the API server.
//!
//! Requests run side by side over pooled HTTP/1.1 connections, as many as are needed: kube's connector speaks no HTTP/2.
//! That client's own repetition of requests is off: it stays away for up to a quarter of an hour without a word, and
//! whoever sends a request here knows better when to send it again.

use std::path::{Path, PathBuf};

use bowline_core::with_causes;
use http::HeaderValue;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::access::Access;
use crate::rest::RestMetrics;

/// How to reach the API server, and how hard.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// `--kubeconfig`; without it and `master`, the pod's own service account, else the usual kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: overrides the server's address.
    pub master: Option<String>,
    /// `--kube-api-qps` and `--kube-api-burst`; `None` leaves flow control to the server.
    pub rate: Option<(f64, u32)>,
    /// The end of the user agent: which controller this is.
    pub user: String,
    /// Where requests are counted, if they are.
    pub metrics: Option<RestMetrics>,
    /// What new credentials must be good for before they replace the old ones.
    pub probe: Probe,
}

/// What shows that credentials work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Probe {
    /// A look at a Node, to which whoever runs controllers has a right. It also tells one cluster from another.
    #[default]
    Nodes,
    /// A question that is open to all whose credentials are accepted, whatever else they may do.
    Version,
}

impl Probe {
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Probe::Nodes => "/api/v1/nodes?limit=1",
            Probe::Version => "/version",
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("{0}")]
    Config(String),
    /// The client cannot be built.
    #[error("cannot build a client for the API server: {0}")]
    Client(#[source] kube::Error),
}

/// A client for the API server. Connects when it is first used.
pub async fn connect(options: &ClientOptions) -> Result<Client, ConnectError> {
    Ok(Access::open(options).await?.client())
}

/// CL-1.
pub(crate) async fn config(options: &ClientOptions) -> Result<Config, ConnectError> {
    let master = options.master.as_deref().filter(|master| !master.is_empty()).map(address).transpose()?;
    let kubeconfig = options.kubeconfig.as_deref().filter(|path| !path.as_os_str().is_empty());
    let mut config = match (kubeconfig, &master) {
        (Some(path), _) => from_file(path).await?,
        (None, Some(master)) => Config::new(master.clone()),
        (None, None) => from_surroundings().await?,
    };
    config.cluster_url = master.unwrap_or(config.cluster_url);
    Ok(config)
}

fn address(master: &str) -> Result<http::Uri, ConnectError> {
    // A bare HOST:PORT would parse, but leave open how to speak to it; upstream takes it for plain HTTP.
    let whole = if master.contains("://") { master.to_owned() } else { format!("http://{master}") };
    whole.parse().map_err(|error| {
        let form = "give it as https://HOST:PORT, or leave it out to use the kubeconfig's";
        ConnectError::Config(format!("--master: {master:?} is not an address ({error}): {form}"))
    })
}

async fn from_file(path: &Path) -> Result<Config, ConnectError> {
    let unusable = |error: &dyn std::error::Error| {
        let (path, causes) = (path.display(), with_causes(error));
        ConnectError::Config(format!(
            "the kubeconfig {path} cannot be used: {causes}; `kubectl --kubeconfig {path} version` must work"
        ))
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| unusable(&error))?;
    from_kubeconfig(kubeconfig).await.map_err(|error| unusable(&error))
}

/// The pod's service account, or else what `kubectl` would use.
async fn from_surroundings() -> Result<Config, ConnectError> {
    let no_pod = match Config::incluster() {
        Ok(config) => return Ok(config),
        Err(error) => with_causes(&error),
    };
    let found = match Kubeconfig::read() {
        Ok(kubeconfig) => from_kubeconfig(kubeconfig).await,
        Err(error) => Err(error),
    };
    found.map_err(|error| {
        ConnectError::Config(format!(
            "no way to reach an API server: there is no service account of a pod ({no_pod}), and no kubeconfig ({}); \
             give one with --kubeconfig",
            with_causes(&error)
        ))
    })
}

async fn from_kubeconfig(kubeconfig: Kubeconfig) -> Result<Config, KubeconfigError> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    if let Some(file) = &config.auth_info.token_file {
        // Read here, and again when it changes: the client below would take the line's end for a part of the token, and go
        // before a token in the kubeconfig itself, as kubectl does.
        let token =
            std::fs::read_to_string(file).map_err(|error| KubeconfigError::ReadConfig(error, PathBuf::from(file)))?;
        config.auth_info.token = Some(token.trim().to_owned().into());
        config.auth_info.token_file = None;
    }
    Ok(config)
}

/// The files that decide how the API server is reached: the kubeconfig, and those that it names. In a pod there are none.
pub(crate) fn files(options: &ClientOptions) -> Vec<PathBuf> {
    let kubeconfigs = match options.kubeconfig.as_deref().filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => vec![path.to_owned()],
        None if options.master.is_some() || Config::incluster().is_ok() => Vec::new(),
        None => usual_kubeconfigs(),
    };
    let named =
        kubeconfigs.iter().filter_map(|path| Kubeconfig::read_from(path).ok()).flat_map(|config| named(&config));
    let named: Vec<_> = named.collect();
    kubeconfigs.into_iter().chain(named).collect()
}

/// Where kubectl looks.
fn usual_kubeconfigs() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG") {
        Some(paths) => std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
    }
}

/// Certificates, keys and tokens of whichever context; reading a kubeconfig has made their paths absolute.
fn named(kubeconfig: &Kubeconfig) -> Vec<PathBuf> {
    let clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    let of_cluster = |cluster: &Cluster| cluster.certificate_authority.clone();
    let of_user = |user: &AuthInfo| [user.client_certificate.clone(), user.client_key.clone(), user.token_file.clone()];
    let files = clusters.filter_map(of_cluster).chain(users.flat_map(of_user).flatten());
    files.map(PathBuf::from).collect()
}

/// CL-3.
pub(crate) fn user_agent(user: &str) -> Result<HeaderValue, ConnectError> {
    let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    let text = format!("bowline/{version} ({os}/{arch}) {user}");
    HeaderValue::from_str(text.trim_end())
        .map_err(|_| ConnectError::Config(format!("{user:?} cannot stand in a user agent: plain ASCII is needed")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn master(master: &str) -> ClientOptions {
        ClientOptions { master: Some(master.into()), ..ClientOptions::default() }
    }

    #[tokio::test]
    async fn cl1_a_master_alone_is_used_without_credentials() {
        for (given, wanted) in [("https://api:6443", "https://api:6443/"), ("127.0.0.1:8080", "http://127.0.0.1:8080/")]
        {
            assert_eq!(config(&master(given)).await.unwrap().cluster_url.to_string(), wanted);
        }
    }

    #[tokio::test]
    async fn cl1_a_bad_master_is_named_with_what_to_do() {
        let error = config(&master("https://")).await.unwrap_err().to_string();
        assert!(error.starts_with("--master: \"https://\" is not an address"), "{error}");
        assert!(error.contains("https://HOST:PORT"), "{error}");
    }

    #[tokio::test]
    async fn cl1_a_kubeconfig_that_cannot_be_read_is_named() {
        let options = ClientOptions { kubeconfig: Some("/nowhere/config".into()), ..ClientOptions::default() };
        let error = config(&options).await.unwrap_err().to_string();
        assert!(error.starts_with("the kubeconfig /nowhere/config cannot be used"), "{error}");
    }

    #[test]
    fn cl3_the_user_agent_names_program_platform_and_user() {
        let agent = user_agent("node-controller").unwrap();
        let agent = agent.to_str().unwrap();
        assert!(agent.starts_with("bowline/") && agent.ends_with(") node-controller"), "{agent}");
        assert!(user_agent("two\nlines").is_err());
    }
}
