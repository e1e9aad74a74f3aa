//! The provider and its factory.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_agent_client::AgentLoadBalancers;
use bowline_cloud::{
    Absence, BuildContext, Calls, Capabilities, CloudProvider, Error, ErrorKind, Factory, Facts, InstanceCapabilities,
    Instances, LoadBalancers, ProviderInfo, ProviderLoop, Reference, Result, Routes, SecretData, SecretRef,
};
use bowline_config::{ConfigError, ConfigErrors};

use crate::api::FindRequest;
use crate::client::{Client, Endpoint};
use crate::tags::Tags;
use crate::token::Token;
use crate::{Config, LocalCloud};

const NAME: &str = "local";
/// Pages in `docs/reference`.
const REFERENCES: &[Reference] = &[Reference { topic: "config", page: crate::config::reference }];
const SUMMARY: &str = "small cloud on the local machine, for evaluation and tests";

/// Provider for a [`LocalCloud`], in this process or over HTTP.
pub struct LocalProvider {
    info: ProviderInfo,
    cluster_id: Option<String>,
    capabilities: Capabilities,
    pub(crate) config: Config,
    load_balancers: AgentLoadBalancers,
    pub(crate) client: Arc<Client>,
    token: Token,
    calls: Calls,
}

impl LocalProvider {
    /// Creates a provider for a cloud in this process. Page and batch sizes are limited to those of the cloud.
    pub fn in_process(cloud: LocalCloud, config: &Config) -> LocalProvider {
        LocalProvider::in_process_past(cloud, config, &Calls::default())
    }

    /// As above, with the call limits and metrics of `calls`.
    pub fn in_process_past(cloud: LocalCloud, config: &Config, calls: &Calls) -> LocalProvider {
        let mut config = config.clone();
        config.batch_lookup = config.batch_lookup.min(cloud.page_size());
        config.page_size = config.page_size.min(cloud.page_size());
        config.load_balancers.batch_observe = config.load_balancers.batch_observe.min(cloud.page_size());
        config.routes.max_routes = [config.routes.limit(), cloud.max_routes()].into_iter().flatten().min();
        let token = Token::default();
        LocalProvider::new(Client::in_process(cloud, &token, calls), token, config, calls)
    }

    /// Creates a provider for the cloud at the configured endpoint.
    pub fn over_http(config: &Config) -> Result<LocalProvider> {
        LocalProvider::over_http_past(config, &Calls::default())
    }

    /// As above, with the call limits and metrics of `calls`.
    pub fn over_http_past(config: &Config, calls: &Calls) -> Result<LocalProvider> {
        let endpoint = Endpoint::parse(&config.endpoint).map_err(|error| error.during("read the configuration"))?;
        let token = Token::default();
        if let Some(configured) = config.credential().map_err(|error| token_file_error(&error))? {
            token.set(&configured)?;
        }
        let client = Client::over_http(&endpoint, &token, calls)?;
        Ok(LocalProvider::new(client, token, config.clone(), calls))
    }

    fn new(client: Client, token: Token, config: Config, calls: &Calls) -> LocalProvider {
        let info = ProviderInfo { name: NAME.to_owned(), id_prefixes: vec![config.id_prefix.clone()] };
        let capabilities = capabilities(&config);
        let (client, calls) = (Arc::new(client), calls.clone());
        let drain = config.load_balancers.drain;
        let load_balancers = AgentLoadBalancers::new(client.balancers.clone(), Some(&config.id_prefix), drain);
        LocalProvider { info, cluster_id: None, capabilities, config, load_balancers, client, token, calls }
    }

    /// Sets the cluster that owns the created resources.
    fn for_cluster(mut self, context: &BuildContext<'_>) -> Arc<dyn CloudProvider> {
        self.cluster_id = Some(context.cluster.as_str().to_owned());
        Arc::new(self)
    }

    /// Requested page size of a list; `None` if listing is disabled.
    pub(crate) fn list_page(&self) -> Option<usize> {
        self.capabilities.instances.as_ref()?.list_page
    }
}

fn token_file_error(error: &std::io::Error) -> Error {
    let message = format!("cannot read the tokenFile: {error}");
    Error::new(ErrorKind::InvalidConfig, "read the configuration", message)
}

/// Capabilities of the cloud that the configuration enables.
fn capabilities(config: &Config) -> Capabilities {
    let instances = InstanceCapabilities {
        batch_lookup: config.batch_lookup.max(1),
        list_page: config.listing.then_some(config.page_size.max(1)),
        page_cost: None,
        numbered_pages: false,
        absence: Absence::Proof,
        max_parallel: config.max_parallel.max(1),
        lookup_by_name: config.lookup_by_name,
        unique_ids: true,
        shutdown_state: config.shutdown_state,
        zones: config.zones,
        additional_labels: config.additional_labels,
        additional_annotations: config.additional_annotations,
        pod_cidrs: config.pod_ranges,
        assign_pod_cidrs: config.pod_ranges,
    };
    Capabilities {
        instances: Some(instances),
        load_balancers: config.load_balancers.capabilities(),
        routes: config.routes.capabilities(),
    }
}

#[async_trait]
impl CloudProvider for LocalProvider {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.capabilities.load_balancers.as_ref().map(|_| &self.load_balancers as &dyn LoadBalancers)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        self.capabilities.routes.as_ref().map(|_| self as &dyn Routes)
    }

    fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        let (client, config) = (self.client.clone(), &self.config);
        let tags = || Tags { client, id_prefix: config.id_prefix.clone(), page_size: config.page_size };
        if config.tag_machines { vec![Arc::new(tags())] } else { Vec::new() }
    }

    fn calls(&self) -> Option<Calls> {
        Some(self.calls.clone())
    }

    fn secrets(&self) -> Vec<SecretRef> {
        self.config.token_secret.as_deref().and_then(SecretRef::parse).into_iter().collect()
    }

    async fn on_secret(&self, _: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        self.token.replace(&SecretData::required(data)?.text("token")?)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.config.token_file.iter().cloned().collect()
    }

    async fn start(&self) -> Result<Facts> {
        Ok(Facts { cluster_id: self.cluster_id.clone(), ..Facts::default() })
    }

    async fn check(&self) -> Result<()> {
        // An empty lookup is the smallest call that only this cloud answers correctly.
        let reply = self.client.find(&FindRequest::default()).await;
        reply.map(drop).map_err(|error| error.during("check the cloud"))
    }
}

/// Factory of the provider `local`, for a [`Registry`](bowline_cloud::Registry): reads its [`Config`] and uses HTTP.
pub fn factory() -> Factory {
    let build = |context: &BuildContext<'_>| {
        let provider = LocalProvider::over_http_past(&configured(context)?, context.calls);
        // `Config::read` has validated the endpoint.
        Ok(provider.map_err(|error| ConfigError::flag("cloud-config", error.to_string()))?.for_cluster(context))
    };
    let capabilities = || capabilities(&Config { pod_ranges: true, ..Config::default() });
    Factory { capabilities, references: REFERENCES, ..Factory::new(NAME, SUMMARY, Config::template, build) }
}

/// Factory of the provider `local` for a cloud in this process.
pub fn factory_for(cloud: LocalCloud) -> Factory {
    let build = move |context: &BuildContext<'_>| {
        Ok(LocalProvider::in_process_past(cloud.clone(), &configured(context)?, context.calls).for_cluster(context))
    };
    Factory::new(NAME, SUMMARY, Config::template, build)
}

fn configured(context: &BuildContext<'_>) -> std::result::Result<Config, ConfigErrors> {
    context.config.map_or_else(|| Ok(Config::default()), Config::read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_cloud::BuildInputs;
    use bowline_config::ConfigFile;
    use bowline_core::ClusterName;

    fn build(factory: &Factory, text: Option<&str>) -> std::result::Result<Arc<dyn CloudProvider>, ConfigErrors> {
        let file = text.map(|text| ConfigFile::from_text("local.yaml", text));
        (factory.build)(&BuildInputs::default().context(file.as_ref(), &ClusterName::from("harbour")))
    }

    #[tokio::test]
    async fn the_factories_apply_the_configuration() {
        let cloud = LocalCloud::open(crate::CloudOptions { page_size: 7, ..Default::default() }).unwrap();
        for (factory, batch) in [(factory(), 100), (factory_for(cloud), 7)] {
            let plain = build(&factory, None).ok().unwrap();
            assert_eq!(plain.info().name, factory.name);
            assert_eq!(plain.start().await.unwrap().cluster_id.as_deref(), Some("harbour"));
            assert_eq!(plain.info().id_prefixes, ["local"]);
            assert_eq!(plain.capabilities().instances.as_ref().unwrap().batch_lookup, batch);
            let other = build(&factory, Some("idPrefix: other\nlisting: false\n")).ok().unwrap();
            assert_eq!(other.info().id_prefixes, ["other"]);
            assert_eq!(other.capabilities().instances.as_ref().unwrap().list_page, None);
            assert!(build(&factory, Some("endpoint: nowhere\n")).is_err());
        }
    }
}
