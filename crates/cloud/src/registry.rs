//! Registry of provider factories by name. The program builds it; no provider registers itself.

use std::sync::Arc;

use bowline_config::table::Keys;
use bowline_config::{ConfigErrors, ConfigFile, Environment};
use bowline_core::ClusterName;
use bowline_runtime::Metric;

use crate::{Calls, Capabilities, CloudProvider, FlagValues, ProviderFlag};

/// Everything that a provider is built from.
#[derive(Debug)]
pub struct BuildContext<'a> {
    /// Contents of `--cloud-config`; `None` if the flag is not set.
    pub config: Option<&'a ConfigFile>,
    /// `--cluster-name`.
    pub cluster: &'a ClusterName,
    /// Environment variables of the process.
    pub environment: &'a Environment,
    /// Values of `--user-agent`, which are sent to the cloud in addition to the program's name.
    pub user_agents: &'a [String],
    /// Values of the flags in [`Factory::flags`], and which controllers of [`Factory::controllers`] are enabled.
    pub flags: &'a FlagValues,
    /// Registry for the provider's own metrics. Providers of one kind share their metrics, and so does a provider that is rebuilt.
    pub metrics: &'a prometheus::Registry,
    /// Call layer that all HTTP calls of the provider must pass through.
    pub calls: &'a Calls,
}

/// Owned values that a [`BuildContext`] borrows, except configuration and cluster. The default is empty, for tests.
#[derive(Debug, Clone, Default)]
pub struct BuildInputs {
    /// [`BuildContext::environment`].
    pub environment: Environment,
    /// [`BuildContext::user_agents`].
    pub user_agents: Vec<String>,
    /// [`BuildContext::flags`].
    pub flags: FlagValues,
    /// [`BuildContext::metrics`].
    pub metrics: prometheus::Registry,
    /// [`BuildContext::calls`]; each cloud has its own.
    pub calls: Calls,
}

impl BuildInputs {
    /// Returns the build context of a provider with this configuration.
    pub fn context<'a>(&'a self, config: Option<&'a ConfigFile>, cluster: &'a ClusterName) -> BuildContext<'a> {
        let BuildInputs { environment, user_agents, flags, metrics, calls } = self;
        BuildContext { config, cluster, environment, user_agents, flags, metrics, calls }
    }
}

/// Builds a provider from its configuration, or returns all errors of the configuration. Makes no call and starts no task.
pub type Build = dyn Fn(&BuildContext<'_>) -> Result<Arc<dyn CloudProvider>, ConfigErrors> + Send + Sync;

/// Factory of one kind of provider.
pub struct Factory {
    /// Provider name, as in `--cloud-provider`.
    pub name: &'static str,
    /// One line for `--help` and error messages.
    pub summary: &'static str,
    /// Returns a valid configuration file to start from, with instructions in its comments.
    pub template: fn() -> String,
    /// Location of the configuration in existing installations; `None` for the default location, beside the manager's own files.
    pub config_location: Option<ConfigLocation>,
    /// Extension of the configuration file in the manifests, unless `config_location` names it. Default: `yaml`.
    pub config_extension: &'static str,
    /// Returns the environment variables of the manager, for the manifests. With one from a Secret, the manifests contain no
    /// configuration file unless one is given.
    pub environment: fn() -> Vec<EnvironmentVariable>,
    /// Flags that the Go manager of this cloud sets by default, each as `NAME=VALUE` without dashes. They apply if the program is
    /// called `PROVIDER-cloud-controller-manager`, and in the manifests.
    pub default_flags: &'static [&'static str],
    /// Flags that only the Go manager of this cloud has, and that the provider reads.
    pub flags: &'static [ProviderFlag],
    /// Names of background loops that `--controllers` accepts, because the Go manager of this cloud has such controllers. `*` does
    /// not enable them; a name that does also enables the controller that runs loops.
    pub controllers: &'static [&'static str],
    /// Returns the capabilities with a configuration that allows everything, for the reference page of the capabilities.
    pub capabilities: fn() -> Capabilities,
    /// Metrics that only this kind of provider has, for the reference page of the metrics.
    pub metrics: &'static [Metric],
    /// Reference pages of this kind, generated from its declarations.
    pub references: &'static [Reference],
    /// Builds a provider.
    pub build: Box<Build>,
}

/// A generated reference page of a provider: its configuration, its annotations.
#[derive(Debug, Clone, Copy)]
pub struct Reference {
    /// Subject of the page, as in `docs/reference/PROVIDER-TOPIC.md`.
    pub topic: &'static str,
    /// Renders the page in Markdown.
    pub page: fn() -> String,
}

impl Factory {
    /// Creates a factory with the default configuration location, and without environment variables, flags, controllers, metrics and
    /// reference pages.
    pub fn new(
        name: &'static str,
        summary: &'static str,
        template: fn() -> String,
        build: impl Fn(&BuildContext<'_>) -> Result<Arc<dyn CloudProvider>, ConfigErrors> + Send + Sync + 'static,
    ) -> Factory {
        Factory {
            name,
            summary,
            template,
            config_location: None,
            config_extension: "yaml",
            environment: Vec::new,
            default_flags: &[],
            flags: &[],
            controllers: &[],
            capabilities: Capabilities::default,
            metrics: &[],
            references: &[],
            build: Box::new(build),
        }
    }

    /// Returns the path of a reference page in the repository.
    pub fn path_of(&self, reference: &Reference) -> String {
        format!("docs/reference/{}-{}.md", self.name, reference.topic)
    }
}

/// Location of a provider's configuration in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigLocation {
    /// Name of the Secret.
    pub secret: &'static str,
    /// Mount path of the Secret in the manager's container.
    pub folder: &'static str,
    /// File name, which is the key in the Secret.
    pub file: &'static str,
}

/// An environment variable of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvironmentVariable {
    /// Name of the variable.
    pub name: &'static str,
    /// One line for the manifests.
    pub summary: &'static str,
    /// Secret with the value; `None` for an optional variable, which the manifests contain as a comment.
    pub secret: Option<SecretKey>,
}

impl EnvironmentVariable {
    /// Returns the environment variables of declared keys. `secrets` has those whose values are in Secrets.
    pub fn of<K: Keys>(secrets: &[(&str, SecretKey)]) -> Vec<EnvironmentVariable> {
        let secret = |name: &str| secrets.iter().find(|(known, _)| *known == name).map(|(_, secret)| *secret);
        let variables = K::keys().into_iter().flat_map(|key| key.env.iter().map(move |name| (*name, key.doc)));
        variables.map(|(name, summary)| EnvironmentVariable { name, summary, secret: secret(name) }).collect()
    }
}

/// A value in a Secret in the namespace of the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretKey {
    /// Name of the Secret.
    pub name: &'static str,
    /// Key in the Secret.
    pub key: &'static str,
}

impl Factory {
    /// Returns the environment variables whose values are in Secrets.
    pub fn secret_variables(&self) -> impl Iterator<Item = (&'static str, SecretKey)> {
        (self.environment)().into_iter().filter_map(|variable| Some((variable.name, variable.secret?)))
    }
}

/// Provider factories of this program.
#[derive(Default)]
pub struct Registry {
    factories: Vec<Factory>,
}

impl Registry {
    /// Adds a factory. It replaces an earlier one of the same name, so that a test can substitute its own.
    pub fn with(mut self, factory: Factory) -> Registry {
        self.factories.retain(|known| known.name != factory.name);
        self.factories.push(factory);
        self
    }

    /// Returns the factory of this name.
    pub fn get(&self, name: &str) -> Option<&Factory> {
        self.factories.iter().find(|factory| factory.name == name)
    }

    /// Returns all factories, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Factory> {
        self.factories.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn factory(name: &'static str, provider: &'static str) -> Factory {
        Factory::new(name, "for tests", String::new, move |_| Ok(Arc::new(Fake::new(provider))))
    }

    bowline_config::table::keys! {
        /// Keys of this test.
        struct TestKeys {
            token: String = "token" env "ACME_TOKEN", "", "API token.";
            region: String = "region" env "ACME_REGION", "", "Region.";
            zone: String = "zone", "", "Zone.";
        }
    }

    #[test]
    fn declared_keys_give_the_environment_variables() {
        let secret = SecretKey { name: "acme", key: "token" };
        let variables = EnvironmentVariable::of::<TestKeys>(&[("ACME_TOKEN", secret)]);
        let token = EnvironmentVariable { name: "ACME_TOKEN", summary: "API token.", secret: Some(secret) };
        let region = EnvironmentVariable { name: "ACME_REGION", summary: "Region.", secret: None };
        assert_eq!(variables, [token, region]);
    }

    #[test]
    fn a_factory_replaces_an_earlier_one_of_the_same_name() {
        let registry =
            Registry::default().with(factory("a", "first")).with(factory("b", "b")).with(factory("a", "last"));
        let cluster = "kubernetes".into();
        let inputs = BuildInputs::default();
        let context = inputs.context(None, &cluster);
        let built = (registry.get("a").unwrap().build)(&context).ok().unwrap();
        assert_eq!(built.info().name, "last");
        assert_eq!(registry.iter().map(|factory| factory.name).collect::<Vec<_>>(), ["b", "a"]);
        assert!(registry.get("c").is_none());
    }
}
