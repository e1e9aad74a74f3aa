//! The user's kubeconfig, as kubectl reads it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use bowline_settings::BadInput;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::cli::ReachArgs;

/// Timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Address and credentials of an API server.
pub(super) struct Connection {
    pub(super) config: Config,
    context: Option<String>,
}

impl Connection {
    /// Reads the kubeconfig. Without one, in a Pod, the Pod's service account is used.
    pub(super) async fn open(args: &ReachArgs) -> anyhow::Result<Connection> {
        let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
        let kubeconfig = match &args.kubeconfig {
            Some(path) => read(path)?,
            None => match Kubeconfig::read() {
                Ok(kubeconfig) => kubeconfig,
                Err(error) => match Config::incluster() {
                    Ok(config) if args.context.is_none() => {
                        return Ok(Connection { config: tuned(config), context: None });
                    }
                    _ => {
                        let hint = "set --kubeconfig, or the environment variable KUBECONFIG";
                        return Err(BadInput(format!("cannot read the kubeconfig: {error}; fix: {hint}")).into());
                    }
                },
            },
        };
        let context = args.context.clone().or_else(|| kubeconfig.current_context.clone());
        check_proxy(&kubeconfig, context.as_deref())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let config =
            config.map_err(|error| BadInput(format!("invalid kubeconfig: {error}; fix: see `kubectl config view`")))?;
        Ok(Connection { config: tuned(config), context })
    }

    /// Creates a client for the API server.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        Client::try_from(self.config.clone()).context("cannot create a client from the kubeconfig")
    }

    /// URL of the API server.
    pub(super) fn server(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }

    /// Name of the cluster for people.
    pub(super) fn title(&self) -> String {
        match &self.context {
            Some(context) => format!("{context} ({})", self.server()),
            None => self.server(),
        }
    }
}

fn read(path: &Path) -> Result<Kubeconfig, BadInput> {
    Kubeconfig::read_from(path).map_err(|error| BadInput(format!("--kubeconfig {}: {error}", path.display())))
}

/// Rejects a cluster that is reached through a proxy, which the client does not support.
fn check_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> Result<(), BadInput> {
    let context = kubeconfig.contexts.iter().find(|known| Some(known.name.as_str()) == context);
    let cluster = context.and_then(|context| Some(&context.context.as_ref()?.cluster));
    let cluster = kubeconfig.clusters.iter().find(|known| Some(&known.name) == cluster);
    match cluster.and_then(|cluster| cluster.cluster.as_ref()?.proxy_url.as_deref()) {
        Some(proxy) if !proxy.is_empty() => Err(BadInput(format!(
            "the kubeconfig has the proxy-url {proxy}, which this program does not support; fix: run `kubectl proxy`, and use a kubeconfig \
             with its address as the server"
        ))),
        _ => Ok(()),
    }
}

/// Failures are shown at once, and the page asks again by itself. HTTPS_PROXY is often set for other purposes, and is not used.
fn tuned(mut config: Config) -> Config {
    config.proxy_url = None;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.default_retry = false;
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_of_the_selected_cluster_is_rejected() {
        let text = "clusters:\n- name: a\n  cluster: {server: 'https://a', proxy-url: 'http://proxy:3128'}\n\
                    - name: b\n  cluster: {server: 'https://b'}\n\
                    contexts:\n- name: one\n  context: {cluster: a}\n- name: two\n  context: {cluster: b}\n";
        let kubeconfig = Kubeconfig::from_yaml(text).unwrap();
        let error = check_proxy(&kubeconfig, Some("one")).unwrap_err().to_string();
        assert!(error.contains("http://proxy:3128") && error.contains("kubectl proxy"), "{error}");
        assert!(check_proxy(&kubeconfig, Some("two")).is_ok());
        assert!(check_proxy(&kubeconfig, None).is_ok());
    }
}
