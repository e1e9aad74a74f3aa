//! The provider, configured by the `cloud.conf` of the folder, for one of two clusters in the account.

use std::sync::Arc;
use std::time::Duration;

use bowline_aws::{Aws, Config};
use bowline_cloud::{BuildInputs, CloudProvider};
use bowline_config::{ConfigFile, Environment};

use super::moto::{Moto, client, text};

/// Changes to the configuration of a provider.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    /// Cluster, if it is not the one of the folder.
    pub(crate) cluster: Option<String>,
    /// Further lines of the section `[Global]`.
    pub(crate) lines: String,
    /// Variables in place of the keys of the account.
    pub(crate) variables: Option<Vec<(String, String)>>,
}

/// Timeout of a call of the provider.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Addresses of both IP families, as the bench expects them.
const FAMILIES: &str = "NodeIPFamilies = ipv4\nNodeIPFamilies = ipv6\n";

/// Builds a provider without starting it.
pub(crate) fn build(moto: &Moto, setup: &Setup) -> Aws {
    let own = text(&moto.ids()["cluster"]);
    let cluster = setup.cluster.clone().unwrap_or_else(|| own.clone());
    let file = std::fs::read_to_string(moto.folder().join("cloud.conf")).unwrap().replace(
        &format!("KubernetesClusterID = {own}\n"),
        &format!("KubernetesClusterID = {cluster}\n{FAMILIES}{}", setup.lines),
    );
    let keys = || {
        let keys = [("AWS_ACCESS_KEY_ID", "access_key"), ("AWS_SECRET_ACCESS_KEY", "secret_key")];
        keys.map(|(variable, name)| (variable.to_owned(), moto.endpoint(name))).to_vec()
    };
    let mut variables = setup.variables.clone().unwrap_or_else(keys);
    variables.push(("AWS_ENDPOINT_URL_STS".to_owned(), moto.endpoint("endpoint")));
    let inputs = BuildInputs { environment: Environment::from_iter(variables), ..BuildInputs::default() };
    let (file, cluster) = (ConfigFile::from_text("cloud.conf", file), cluster.as_str().into());
    let config = Config::read(&inputs.context(Some(&file), &cluster)).unwrap();
    Aws::over(config, client(TIMEOUT), &cluster).unwrap()
}

/// Builds and starts a provider.
pub(crate) async fn start(moto: &Moto, setup: &Setup) -> Arc<dyn CloudProvider> {
    let provider = build(moto, setup);
    // A case may begin with a broken cloud, and then starts the provider itself.
    let _ = provider.start().await;
    Arc::new(provider)
}
