//! Client configuration: kubeconfig, in-cluster service account, user agent.
//!
//! Concurrent requests use as many pooled HTTP/1.1 connections as needed: kube's connector does not support HTTP/2. The retries
//! of kube are disabled, because they back off silently for up to 15 minutes; `retry` handles retries instead.

use std::path::{Path, PathBuf};

use bowline_core::with_causes;
use http::HeaderValue;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::access::Access;
use crate::rest::RestMetrics;

/// Options of an API client.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// `--kubeconfig`. Default without `master`: the service account of the pod, else the kubeconfig that kubectl uses.
    pub kubeconfig: Option<PathBuf>,
    /// `--master`: overrides the server address of the kubeconfig.
    pub master: Option<String>,
    /// `--kube-api-qps` and `--kube-api-burst`; `None` disables the client-side rate limiter.
    pub rate: Option<(f64, u32)>,
    /// Suffix of the user agent: the name of the controller.
    pub user: String,
    /// Request metrics, if enabled.
    pub metrics: Option<RestMetrics>,
    /// Request that must succeed with reloaded credentials before they replace the current ones.
    pub probe: Probe,
}

/// Request that verifies credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Probe {
    /// Lists one Node, for which every controller manager has permission. The UID of the Node also identifies the cluster.
    #[default]
    Nodes,
    /// Reads `/version`, which every authenticated user may read.
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

/// Reason why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Invalid client configuration.
    #[error("{0}")]
    Config(String),
    /// The client cannot be built.
    #[error("cannot build a client for the API server: {0}")]
    Client(#[source] kube::Error),
}

/// Creates an API client. It connects on the first request.
pub async fn connect(options: &ClientOptions) -> Result<Client, ConnectError> {
    Ok(Access::open(options).await?.client())
}

/// Loads the client configuration (CL-1).
pub(crate) async fn config(options: &ClientOptions) -> Result<Config, ConnectError> {
    let master = options.master.as_deref().filter(|master| !master.is_empty()).map(address).transpose()?;
    let kubeconfig = options.kubeconfig.as_deref().filter(|path| !path.as_os_str().is_empty());
    let mut config = match (kubeconfig, &master) {
        (Some(path), _) => from_file(path).await?,
        (None, Some(master)) => Config::new(master.clone()),
        (None, None) => from_environment().await?,
    };
    config.cluster_url = master.unwrap_or(config.cluster_url);
    Ok(config)
}

fn address(master: &str) -> Result<http::Uri, ConnectError> {
    // upstream: HOST:PORT without a scheme means plain HTTP.
    let whole = if master.contains("://") { master.to_owned() } else { format!("http://{master}") };
    whole.parse().map_err(|error| {
        let fix = "use https://HOST:PORT, or omit the flag to use the server of the kubeconfig";
        ConnectError::Config(format!("--master: invalid address {master:?} ({error}): {fix}"))
    })
}

async fn from_file(path: &Path) -> Result<Config, ConnectError> {
    let invalid = |error: KubeconfigError| {
        let causes = match &error {
            // Its own message has the path again.
            KubeconfigError::ReadConfig(cause, _) => cause.to_string(),
            error => with_causes(error),
        };
        let path = path.display();
        ConnectError::Config(format!(
            "cannot load the kubeconfig {path}: {causes}; check it with `kubectl --kubeconfig {path} version`"
        ))
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(invalid)?;
    from_kubeconfig(kubeconfig).await.map_err(invalid)
}

/// Uses the service account of the pod, or else the kubeconfig that kubectl uses.
async fn from_environment() -> Result<Config, ConnectError> {
    let in_cluster_error = match Config::incluster() {
        Ok(config) => return Ok(config),
        Err(error) => with_causes(&error),
    };
    let found = match Kubeconfig::read() {
        Ok(kubeconfig) => from_kubeconfig(kubeconfig).await,
        Err(error) => Err(error),
    };
    found.map_err(|error| {
        ConnectError::Config(format!(
            "no API server configured: no in-cluster service account ({in_cluster_error}), and no kubeconfig ({}); \
             set --kubeconfig",
            with_causes(&error)
        ))
    })
}

async fn from_kubeconfig(kubeconfig: Kubeconfig) -> Result<Config, KubeconfigError> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    if let Some(file) = &config.auth_info.token_file {
        // The file is read here and reloaded when it changes: kube would keep the trailing newline as part of the token. As in
        // kubectl, the file takes precedence over a token in the kubeconfig.
        let token =
            std::fs::read_to_string(file).map_err(|error| KubeconfigError::ReadConfig(error, PathBuf::from(file)))?;
        config.auth_info.token = Some(token.trim().to_owned().into());
        config.auth_info.token_file = None;
    }
    Ok(config)
}

/// Files of the client configuration: the kubeconfig and the files it references. Empty for an in-cluster configuration.
pub(crate) fn files(options: &ClientOptions) -> Vec<PathBuf> {
    let kubeconfigs = match options.kubeconfig.as_deref().filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => vec![path.to_owned()],
        None if options.master.is_some() || Config::incluster().is_ok() => Vec::new(),
        None => default_kubeconfigs(),
    };
    let parsed = kubeconfigs.iter().filter_map(|path| Kubeconfig::read_from(path).ok());
    let referenced: Vec<_> = parsed.flat_map(|config| referenced_files(&config)).collect();
    kubeconfigs.into_iter().chain(referenced).collect()
}

/// Kubeconfig files that kubectl uses.
fn default_kubeconfigs() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG") {
        Some(paths) => std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
    }
}

/// Certificate, key and token files of all contexts. `Kubeconfig::read_from` has made their paths absolute.
fn referenced_files(kubeconfig: &Kubeconfig) -> Vec<PathBuf> {
    let clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    let of_cluster = |cluster: &Cluster| cluster.certificate_authority.clone();
    let of_user = |user: &AuthInfo| [user.client_certificate.clone(), user.client_key.clone(), user.token_file.clone()];
    let files = clusters.filter_map(of_cluster).chain(users.flat_map(of_user).flatten());
    files.map(PathBuf::from).collect()
}

/// User agent of a client (CL-3).
pub(crate) fn user_agent(user: &str) -> Result<HeaderValue, ConnectError> {
    let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    let text = format!("bowline/{version} ({os}/{arch}) {user}");
    HeaderValue::from_str(text.trim_end())
        .map_err(|_| ConnectError::Config(format!("invalid user agent suffix {user:?}: only visible ASCII is allowed")))
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
        for (master_flag, expected) in
            [("https://api:6443", "https://api:6443/"), ("127.0.0.1:8080", "http://127.0.0.1:8080/")]
        {
            assert_eq!(config(&master(master_flag)).await.unwrap().cluster_url.to_string(), expected);
        }
    }

    #[tokio::test]
    async fn cl1_an_invalid_master_is_reported_with_the_fix() {
        let error = config(&master("https://")).await.unwrap_err().to_string();
        assert!(error.starts_with("--master: invalid address \"https://\""), "{error}");
        assert!(error.contains("https://HOST:PORT"), "{error}");
    }

    #[tokio::test]
    async fn cl1_the_error_names_a_kubeconfig_that_cannot_be_read() {
        let options = ClientOptions { kubeconfig: Some("/nowhere/config".into()), ..ClientOptions::default() };
        let error = config(&options).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot load the kubeconfig /nowhere/config"), "{error}");
    }

    #[test]
    fn cl3_the_user_agent_names_program_platform_and_user() {
        let agent = user_agent("node-controller").unwrap();
        let agent = agent.to_str().unwrap();
        assert!(agent.starts_with("bowline/") && agent.ends_with(") node-controller"), "{agent}");
        assert!(user_agent("two\nlines").is_err());
    }
}
