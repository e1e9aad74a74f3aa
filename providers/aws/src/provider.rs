//! The provider: name, capabilities and construction.

use std::sync::{Arc, Once, OnceLock};

use async_trait::async_trait;
use bowline_cloud::{
    BuildContext, BuildInputs, Calls, Capabilities, CheckResult, CloudProvider, Error, ErrorKind, Factory, Facts,
    Instances, LoadBalancerCapabilities, LoadBalancers, ProviderInfo, ProviderLoop, Quota, Reference, Result, Routes,
};
use bowline_config::ConfigErrors;
use bowline_core::{ClusterName, ProviderId};

use crate::api::ec2::{self, Ec2};
use crate::api::elb::{self, Elb};
use crate::api::elbv2::{self, ElbV2};
use crate::api::{Service, TIMEOUT, USER_AGENT};
use crate::cluster_tags::ClusterTags;
use crate::config::Config;
use crate::credentials::{Credentials, Metadata, STS, Signer, Sts};
use crate::endpoints::{ApiName, Endpoints};
use crate::instances::Places;
use crate::load_balancers::{Created, InstanceCache, MtuRules, NetworkCache};
use crate::metrics::{METRICS, Metrics};
use crate::tagging::Tagging;
use crate::{instances, load_balancers, routes, tagging};

/// Value of `--cloud-provider`, and prefix of provider IDs.
pub(crate) const NAME: &str = "aws";

/// Component of Events, as in the Go manager.
const EVENT_COMPONENT: &str = "aws-cloud-provider";

/// Pages for `docs/reference`.
const REFERENCES: &[Reference] = &[
    Reference { topic: "config", page: crate::config::reference },
    Reference { topic: "annotations", page: load_balancers::annotation_reference },
    Reference { topic: "iam-policy", page: crate::policy::reference },
];

/// An AWS account in one region. Cheap to clone.
#[derive(Clone)]
pub struct Aws {
    pub(crate) info: Arc<ProviderInfo>,
    capabilities: Arc<Capabilities>,
    pub(crate) config: Arc<Config>,
    pub(crate) endpoints: Endpoints,
    pub(crate) credentials: Credentials,
    pub(crate) metadata: Metadata,
    pub(crate) sts: Sts,
    pub(crate) ec2: Ec2,
    pub(crate) elb: Elb,
    pub(crate) elbv2: ElbV2,
    pub(crate) calls: Calls,
    /// Value of `--cluster-name`.
    pub(crate) cluster: ClusterName,
    pub(crate) places: Arc<Places>,
    /// Controller `tagging`; `None` if it is disabled.
    pub(crate) tagging: Option<Arc<Tagging>>,
    identity: Arc<OnceLock<Identity>>,
    pub(crate) instance_cache: InstanceCache,
    pub(crate) network_cache: NetworkCache,
    pub(crate) created: Created,
    pub(crate) mtu_rules: MtuRules,
    /// Whether it was logged that tags of load balancers cannot be read.
    pub(crate) untagged: Arc<Once>,
}

/// What the start has determined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) region: String,
    pub(crate) vpc_id: String,
    /// Subnet of this instance; may be empty outside AWS.
    pub(crate) subnet_id: String,
    /// ID of this instance; `None` outside AWS.
    pub(crate) instance_id: Option<String>,
    /// Name of the Node on this instance.
    pub(crate) node_name: Option<String>,
    pub(crate) cluster: ClusterTags,
}

/// Returns a factory. All its providers share their metrics.
pub fn factory() -> Factory {
    let metrics = Metrics::new();
    let build = move |context: &BuildContext<'_>| -> std::result::Result<Arc<dyn CloudProvider>, ConfigErrors> {
        let config = Config::read(context)?;
        let http = bowline_http::Client::from_environment(context.environment, TIMEOUT)?;
        metrics.register(context.metrics);
        Ok(Arc::new(Aws::new(config, http, context, &metrics)?))
    };
    Factory {
        capabilities,
        config_extension: "conf",
        flags: tagging::FLAGS,
        controllers: &[tagging::CONTROLLER],
        metrics: METRICS,
        references: REFERENCES,
        ..Factory::new(NAME, "AWS EC2 instances, load balancers and routes", crate::config::template, build)
    }
}

impl Aws {
    /// Creates a provider that calls through `http` without limits, retries and metrics. Makes no call.
    pub fn over(
        config: Config,
        http: bowline_http::Client,
        cluster: &ClusterName,
    ) -> std::result::Result<Aws, ConfigErrors> {
        Aws::new(config, http, &BuildInputs::default().context(None, cluster), &Metrics::new())
    }

    fn new(
        config: Config,
        http: bowline_http::Client,
        context: &BuildContext<'_>,
        metrics: &Metrics,
    ) -> std::result::Result<Aws, ConfigErrors> {
        let config = Arc::new(config);
        let endpoints = Endpoints::new(config.clone());
        let credentials = Credentials::new(&config, &endpoints, &http, context)?;
        let agent = bowline_http::user_agent(context.user_agents, USER_AGENT)?;
        // upstream: EC2 and both load balancer APIs share the damping after throttled calls.
        let calls = context.calls.with_adaptive_rate();
        let service = |calls: &Calls, api, name| {
            let signer = Signer { credentials: credentials.clone(), endpoints: endpoints.clone(), api };
            Service::new(http.clone(), calls, name, agent.clone(), signer).with_metrics(metrics.of(api))
        };
        let tagging = tagging::Options::read(context.flags)?;
        let tagging = tagging.map(|options| {
            // The controller has a rate limit of its own.
            let calls = options.rate.map_or(calls.clone(), |(rate, burst)| calls.with_rate(rate, burst));
            Tagging::new(options, Ec2(service(&calls, ApiName::Ec2, ec2::API)), metrics.tagging.clone())
        });
        Ok(Aws {
            places: Arc::default(),
            tagging: tagging.map(Arc::new),
            info: Arc::new(ProviderInfo { name: NAME.to_owned(), id_prefixes: vec![NAME.to_owned()] }),
            capabilities: Arc::new(capabilities()),
            metadata: Metadata::new(&http, context.calls, &endpoints, config.is_metadata_disabled()),
            sts: Sts(service(context.calls, ApiName::Sts, STS)),
            ec2: Ec2(service(&calls, ApiName::Ec2, ec2::API)),
            elb: Elb(service(&calls, ApiName::Elb, elb::API)),
            elbv2: ElbV2(service(&calls, ApiName::ElbV2, elbv2::API)),
            calls,
            cluster: context.cluster.clone(),
            identity: Arc::default(),
            instance_cache: InstanceCache::default(),
            network_cache: NetworkCache::default(),
            created: Created::default(),
            mtu_rules: MtuRules::default(),
            untagged: Arc::new(Once::new()),
            config,
            endpoints,
            credentials,
        })
    }

    /// Returns what the start has determined; an error before the start.
    pub(crate) fn identity(&self) -> Result<&Identity> {
        let missing = || Error::new(ErrorKind::Unavailable, "use the AWS provider", "it has not started yet");
        self.identity.get().ok_or_else(missing)
    }

    /// Sets what the start has determined. It does not change until the provider is rebuilt.
    pub(crate) fn set_identity(&self, identity: Identity) {
        let _ = self.identity.set(identity);
    }
}

/// Returns the capabilities: one group for each trait that [`Aws`] returns.
fn capabilities() -> Capabilities {
    let kinds = load_balancers::kinds();
    let load_balancers =
        LoadBalancerCapabilities { marks_uid: true, batch_observe: elbv2::BATCH, fixed_kind: true, kinds };
    Capabilities {
        instances: Some(instances::capabilities()),
        load_balancers: Some(load_balancers),
        routes: Some(routes::route_capabilities()),
    }
}

#[async_trait]
impl CloudProvider for Aws {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn owns(&self, id: &ProviderId) -> bool {
        instances::owns(id)
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    fn routes(&self) -> Option<&dyn Routes> {
        Some(self)
    }

    fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        self.background_loops()
    }

    fn calls(&self) -> Option<Calls> {
        Some(self.calls.clone())
    }

    fn event_component(&self) -> Option<&'static str> {
        Some(EVENT_COMPONENT)
    }

    async fn start(&self) -> Result<Facts> {
        self.start_up().await
    }

    async fn check(&self) -> Result<()> {
        self.ec2.availability_zones().await.map(drop)
    }

    async fn diagnose(&self) -> Vec<CheckResult> {
        self.diagnose_all().await
    }

    async fn quotas(&self) -> Result<Vec<Quota>> {
        self.limits().await
    }
}

#[cfg(test)]
mod tests {
    use bowline_cloud::BuildInputs;
    use bowline_config::ConfigFile;
    use bowline_core::ProviderId;

    use super::*;

    #[test]
    fn the_factory_builds_a_provider_from_its_template_and_registers_metrics() {
        let (factory, inputs, cluster) = (factory(), BuildInputs::default(), "kubernetes".into());
        let template = ConfigFile::from_text("cloud.conf", (factory.template)());
        for file in [None, Some(&template)] {
            let built = (factory.build)(&inputs.context(file, &cluster)).ok().unwrap();
            assert_eq!((built.info().name.as_str(), built.event_component()), (NAME, Some(EVENT_COMPONENT)));
            let owns = |text| built.owns(&ProviderId::new(text).unwrap());
            assert!(owns("aws:///us-east-1a/i-1") && !owns("eks-hybrid:///r/c/n"));
        }
        let pages = factory.references.iter().map(|reference| (factory.path_of(reference), (reference.page)()));
        for (path, page) in pages {
            assert!(path.starts_with("docs/reference/aws-") && page.starts_with("# AWS: "), "{path}");
        }
        let broken = ConfigFile::from_text("cloud.conf", "[Global]\nRoleARN = x\n");
        let errors = (factory.build)(&inputs.context(Some(&broken), &cluster)).err().unwrap();
        assert!(errors.to_string().contains("unable to create sts v2 client: arn: invalid prefix"), "{errors}");
    }
}
