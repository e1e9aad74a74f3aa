//! The provider: name, capabilities and construction.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bowline_agent_client::{Agents, load_balancer_capabilities, route_capabilities};
use bowline_cloud::{
    BuildContext, BuildInputs, Calls, Capabilities, CheckResult, CloudProvider, Factory, Facts, FlagSyntax, FlagValues,
    Instances, LoadBalancerCapabilities, LoadBalancers, ProviderFlag, ProviderInfo, Quota, Reference, Result, Routes,
    SecretData, SecretRef,
};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_core::annotations::check_label_key;
use bowline_core::{ClusterName, ProviderId};
use bowline_http::Client;
use futures::future::{OptionFuture, join_all};

use crate::config::Config;
use crate::credentials::Credentials;
use crate::instances::KnownMachines;
use crate::metrics::{METRICS, Metrics};
use crate::nsx::NsxFeatures;
use crate::transport::Clients;
use crate::vcenter::{Common, LoginHistory, Vcenter};
use crate::{instances, load_balancers, routes, transport};

/// Value of `--cloud-provider`, and prefix of provider IDs.
pub(crate) const NAME: &str = "vsphere";

/// Name of this program towards vCenter, as in the Go manager.
const USER_AGENT: &str = "k8s-cloud-provider-vsphere";

/// Component of Events, as in the Go manager.
const EVENT_COMPONENT: &str = "vsphere-cloud-controller-manager";

/// Pages for `docs/reference`.
const REFERENCES: &[Reference] = &[
    Reference { topic: "config", page: crate::config::reference },
    Reference { topic: "annotations", page: load_balancers::annotation_reference },
];

const NODE_LABELS: ProviderFlag = ProviderFlag {
    name: "node-labels",
    value: "KEY=VALUE,…",
    default: "",
    summary: "Labels that every Node gets at its initialisation",
    syntax: FlagSyntax::Repeated,
};

/// Virtual machines of several vCenters. Cheap to clone.
#[derive(Clone)]
pub struct Vsphere {
    info: Arc<ProviderInfo>,
    capabilities: Arc<Capabilities>,
    pub(crate) config: Arc<Config>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) vcenters: Arc<[Vcenter]>,
    pub(crate) known: Arc<KnownMachines>,
    /// Labels of every Node.
    pub(crate) labels: BTreeMap<String, String>,
    /// Load balancers and routes of NSX, if they are configured.
    pub(crate) nsx: Option<Arc<NsxFeatures>>,
    /// Agents in place of NSX, if they are configured.
    pub(crate) agents: Option<Arc<Agents>>,
    pub(crate) cluster: ClusterName,
    pub(crate) calls: Calls,
}

/// What all providers of a process share.
pub(crate) struct Shared {
    metrics: Metrics,
    logins: LoginHistory,
}

impl Shared {
    pub(crate) fn new() -> Shared {
        Shared { metrics: Metrics::new(), logins: LoginHistory::default() }
    }
}

/// Returns a factory. All its providers share their metrics, and their failed logins.
pub fn factory() -> Factory {
    let shared = Shared::new();
    let build = move |context: &BuildContext<'_>| -> std::result::Result<Arc<dyn CloudProvider>, ConfigErrors> {
        let config = Config::read(context)?;
        let clients = Clients::from_environment(context)?;
        shared.metrics.register(context.metrics);
        Ok(Arc::new(Vsphere::new(config, &clients, context, &shared)?))
    };
    Factory {
        environment: crate::config::environment,
        capabilities: || Capabilities {
            instances: Some(instances::capabilities(true, true)),
            load_balancers: Some(all_load_balancers()),
            routes: Some(routes::capabilities()),
        },
        config_extension: "conf",
        flags: &[NODE_LABELS],
        metrics: METRICS,
        references: REFERENCES,
        ..Factory::new(
            NAME,
            "vSphere virtual machines, load balancers and routes of NSX or L4 agents",
            crate::config::template,
            build,
        )
    }
}

/// Capabilities of load balancers of NSX and of agents, for the reference page.
fn all_load_balancers() -> LoadBalancerCapabilities {
    let (nsx, agents) = (load_balancers::capabilities(), load_balancer_capabilities());
    LoadBalancerCapabilities {
        marks_uid: nsx.marks_uid || agents.marks_uid,
        batch_observe: nsx.batch_observe.max(agents.batch_observe),
        fixed_kind: nsx.fixed_kind || agents.fixed_kind,
        kinds: [nsx.kinds, agents.kinds].concat(),
    }
}

impl Vsphere {
    /// Creates a provider that calls through `http` without limits, retries and metrics. Makes no call.
    pub fn over(config: Config, http: Client, cluster: &ClusterName) -> std::result::Result<Vsphere, ConfigErrors> {
        let inputs = BuildInputs::default();
        Vsphere::new(config, &Clients::Single(http), &inputs.context(None, cluster), &Shared::new())
    }

    pub(crate) fn new(
        mut config: Config,
        clients: &Clients,
        context: &BuildContext<'_>,
        shared: &Shared,
    ) -> std::result::Result<Vsphere, ConfigErrors> {
        let labels = node_labels(context.flags)?;
        let agent = bowline_http::user_agent(context.user_agents, USER_AGENT)?;
        let session_managers = clients.of_session_managers()?;
        let Shared { metrics, logins } = shared;
        let (calls, credentials) = (context.calls, Arc::new(Credentials::new(&config)));
        let common = Common {
            calls,
            credentials: &credentials,
            logins,
            session_managers: &session_managers,
            agent: &agent,
            metrics,
        };
        let mut vcenters = Vec::with_capacity(config.vcenters.len());
        for vcenter in config.vcenters.clone() {
            // upstream: the files are read at each login, so only this vCenter fails.
            let http = clients.of(&vcenter).unwrap_or_else(|errors| {
                let name = &vcenter.name;
                config.warnings.extend(errors.iter().map(|error| ConfigError::new(format!("vCenter {name}: {error}"))));
                transport::failing(&errors)
            });
            vcenters.push(Vcenter::new(vcenter, &http, &common));
        }
        let nsx = nsx_features(&config, clients, context, &credentials).unwrap_or_else(|errors| {
            config.switch_off(errors);
            None
        });
        let agents = config.agent.as_ref().map(|agent| clients.of_agents(agent, context)).transpose();
        let agents = agents.unwrap_or_else(|errors| {
            config.switch_off(errors);
            None
        });
        let of_nsx = nsx.as_ref();
        let agent_routes = agents.as_ref().filter(|_| config.agent_routes);
        let capabilities = Capabilities {
            instances: Some(instances::capabilities(config.zone_categories.is_some(), !labels.is_empty())),
            load_balancers: of_nsx
                .and_then(NsxFeatures::load_balancer_capabilities)
                .or(agents.as_ref().map(|_| load_balancer_capabilities())),
            routes: of_nsx.and_then(NsxFeatures::route_capabilities).or(agent_routes.map(|_| route_capabilities())),
        };
        Ok(Vsphere {
            info: Arc::new(ProviderInfo { name: NAME.to_owned(), id_prefixes: vec![NAME.to_owned()] }),
            capabilities: Arc::new(capabilities),
            config: Arc::new(config),
            credentials,
            vcenters: vcenters.into(),
            known: Arc::default(),
            labels,
            nsx: nsx.map(Arc::new),
            agents: agents.map(Arc::new),
            cluster: context.cluster.clone(),
            calls: context.calls.clone(),
        })
    }

    /// Returns the name of a vCenter, for messages.
    pub(crate) fn vcenter_name(&self, index: usize) -> String {
        self.vcenters.get(index).map(|vcenter| vcenter.config.name.clone()).unwrap_or_default()
    }
}

/// Returns load balancers and routes of NSX; `None` if they are not configured.
fn nsx_features(
    config: &Config,
    clients: &Clients,
    context: &BuildContext<'_>,
    credentials: &Arc<Credentials>,
) -> std::result::Result<Option<NsxFeatures>, ConfigErrors> {
    let Some(manager) = &config.nsx else { return Ok(None) };
    let (http, credentials) = (clients.of_nsx(manager)?, credentials.clone());
    let secret = Arc::new(move || credentials.nsx_password());
    NsxFeatures::new(manager, config, http, secret, context.calls, context.user_agents).map(Some)
}

/// Reads the labels of `--node-labels`.
fn node_labels(flags: &FlagValues) -> std::result::Result<BTreeMap<String, String>, ConfigErrors> {
    let (mut labels, mut errors) = (BTreeMap::new(), ConfigErrors::new());
    let pairs = flags.all(&NODE_LABELS).into_iter().flat_map(|value| value.split(','));
    for pair in pairs.map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match check_label_key(key) {
            Ok(()) => _ = labels.insert(key.to_owned(), value.to_owned()),
            Err(error) => errors.push(ConfigError::new(format!("invalid --node-labels key {key:?}: {error}"))),
        }
    }
    if errors.is_empty() { Ok(labels) } else { Err(errors) }
}

#[async_trait]
impl CloudProvider for Vsphere {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn owns(&self, id: &ProviderId) -> bool {
        instances::own_id(id).is_some()
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        let of_agents = || self.agents.as_ref().map(|agents| agents.load_balancers() as &dyn LoadBalancers);
        self.nsx.as_ref().and_then(|nsx| nsx.load_balancers()).or_else(of_agents)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        let agents = self.agents.as_ref().filter(|_| self.config.agent_routes);
        let of_agents = || agents.map(|agents| agents.routes() as &dyn Routes);
        self.nsx.as_ref().and_then(|nsx| nsx.routes()).or_else(of_agents)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.config.files()
    }

    fn revision(&self) -> u64 {
        self.credentials.revision()
    }

    fn secrets(&self) -> Vec<SecretRef> {
        self.credentials.secrets()
    }

    async fn on_secret(&self, secret: &SecretRef, data: Option<&SecretData>) -> Result<()> {
        self.credentials.on_secret(secret, data)
    }

    fn event_component(&self) -> Option<&'static str> {
        Some(EVENT_COMPONENT)
    }

    fn calls(&self) -> Option<Calls> {
        Some(self.calls.clone())
    }

    async fn start(&self) -> Result<Facts> {
        self.start_up().await
    }

    async fn check(&self) -> Result<()> {
        self.check_all().await?;
        if let Some(Err(error)) = OptionFuture::from(self.nsx.as_ref().map(|nsx| nsx.check())).await {
            // Nodes do not depend on it, so a new configuration is used all the same.
            tracing::warn!(%error, "NSX is not ready; load balancers and routes wait for it");
        }
        let agents = self.agents.as_ref().map(|agents| agents.check(&self.cluster));
        if let Some(Err(error)) = OptionFuture::from(agents).await {
            tracing::warn!(%error, "the agents are not ready; load balancers and routes wait for them");
        }
        Ok(())
    }

    async fn diagnose(&self) -> Vec<CheckResult> {
        self.diagnose_all().await
    }

    async fn quotas(&self) -> Result<Vec<Quota>> {
        match &self.agents {
            Some(agents) => agents.quotas().await,
            None => Ok(Vec::new()),
        }
    }

    async fn close(&self) {
        join_all(self.vcenters.iter().map(Vcenter::close)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bowline_cloud::CallPolicy;
    use bowline_config::ConfigFile;
    use bowline_core::InstanceRef;
    use bowline_vsphere_simulator::vcenter::{Machine, Options, PASSWORD, USER, Vcenter};
    use bowline_vsphere_simulator::{Fault, FaultSpec};
    use http::Method;

    use super::*;

    #[test]
    fn the_factory_builds_a_provider_from_its_template() {
        let (factory, inputs, cluster) = (factory(), BuildInputs::default(), "kubernetes".into());
        let template = ConfigFile::from_text("vsphere.conf", (factory.template)());
        let built = (factory.build)(&inputs.context(Some(&template), &cluster)).map_err(|errors| errors.to_string());
        let built = built.unwrap();
        assert_eq!((built.info().name.as_str(), built.event_component()), (NAME, Some(EVENT_COMPONENT)));
        assert_eq!(built.capabilities().exceeds(&(factory.capabilities)()), None);
        let owns = |text| built.owns(&ProviderId::new(text).unwrap());
        assert!(owns("vsphere://422e4956-ad22-1139-6d72-59cc8f26bc90") && owns("vsphere://x"));
        assert!(owns("422e4956-ad22-1139-6d72-59cc8f26bc90") && !owns("x") && !owns("aws:///us-east-1a/i-1"));
        for reference in factory.references {
            assert!((reference.page)().starts_with("# "), "{}", reference.topic);
        }
    }

    /// VS-3
    #[test]
    fn without_a_configuration_file_there_is_a_clear_error() {
        let (factory, inputs, cluster) = (factory(), BuildInputs::default(), "kubernetes".into());
        let errors = (factory.build)(&inputs.context(None, &cluster)).err().unwrap();
        assert!(errors.to_string().contains("no vSphere cloud provider config file given"), "{errors}");
    }

    /// VS-73
    #[test]
    fn node_labels_have_valid_keys() {
        let read = |values: &[&str]| {
            let values = values.iter().map(ToString::to_string).collect();
            node_labels(&FlagValues::new([(NODE_LABELS.name.to_owned(), values)])).map_err(|errors| errors.to_string())
        };
        let labels = read(&["a=1,example.com/b=", "c"]).unwrap();
        assert_eq!(
            labels.into_iter().collect::<Vec<_>>(),
            [("a", "1"), ("c", ""), ("example.com/b", "")].map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
        assert!(read(&["-a=1"]).unwrap_err().contains("invalid --node-labels key \"-a\""));
        assert_eq!(node_labels(&FlagValues::default()).ok(), Some(BTreeMap::new()));
        let flags = FlagValues::new([(NODE_LABELS.name.to_owned(), vec!["-a=1".to_owned()])]);
        let (factory, inputs) = (factory(), BuildInputs { flags, ..BuildInputs::default() });
        let template = ConfigFile::from_text("vsphere.conf", (factory.template)());
        let errors = (factory.build)(&inputs.context(Some(&template), &"kubernetes".into())).err().unwrap();
        assert!(errors.to_string().contains("invalid --node-labels key"), "{errors}");
    }

    /// VS-47
    #[tokio::test(start_paused = true)]
    async fn a_read_is_repeated_after_a_network_error_as_often_as_configured() {
        let (inputs, cluster) =
            (BuildInputs { calls: Calls::new(CallPolicy::default()), ..BuildInputs::default() }, "kubernetes".into());
        for (attempts, is_found) in [(3, true), (2, false)] {
            let cloud = Vcenter::new(Options::default());
            cloud.add_machine(Machine::named("node-1", "10.10.1.11")).unwrap();
            let text = format!(
                "[Global]\nsoap-roundtrip-count = {attempts}\nuser = {USER}\npassword = \"{PASSWORD}\"\n[VirtualCenter \"vc\"]\n"
            );
            let file = ConfigFile::from_text("vsphere.conf", text);
            let context = inputs.context(Some(&file), &cluster);
            let config = Config::read(&context).map_err(|errors| errors.to_string()).unwrap();
            let clients = Clients::Single(cloud.client(Duration::from_secs(60)));
            let provider = Vsphere::new(config, &clients, &context, &Shared::new()).ok().unwrap();
            cloud.inject(FaultSpec::always(Fault::Lost).on(Method::POST, "RetrievePropertiesEx").times(2));
            let node = InstanceRef { node: "node-1".into(), provider_id: None, system_uuid: None };
            let found = provider.find(std::slice::from_ref(&node)).await.remove(0);
            assert_eq!(found.is_ok(), is_found, "{attempts}: {found:?}");
        }
    }
}
