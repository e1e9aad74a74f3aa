//! The providers that a program has, by name. A value, built by the program; nothing registers itself.

use std::sync::Arc;

use bowline_config::{ConfigErrors, ConfigFile, Environment};
use bowline_core::ClusterName;
use bowline_runtime::Metric;

use crate::{Calls, Capabilities, CloudProvider};

/// What a provider is made from.
#[derive(Debug)]
pub struct BuildContext<'a> {
    /// Its `--cloud-config`, read already; `None` if none was given.
    pub config: Option<&'a ConfigFile>,
    /// `--cluster-name`.
    pub cluster: &'a ClusterName,
    /// What the surroundings of the process say.
    pub environment: &'a Environment,
    /// `--user-agent`, each value: what the cloud is told of who asks, beside the program's name.
    pub user_agents: &'a [String],
    /// Where the provider's own metrics go. Providers of a kind share their metrics, as does one that is made anew.
    pub metrics: &'a prometheus::Registry,
    /// The gate that its HTTP calls pass.
    pub calls: &'a Calls,
}

/// What a [`BuildContext`] borrows, beside configuration and cluster; the default is that of a test: nothing.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// [`BuildContext::environment`].
    pub environment: Environment,
    /// [`BuildContext::user_agents`].
    pub user_agents: Vec<String>,
    /// [`BuildContext::metrics`].
    pub metrics: prometheus::Registry,
    /// [`BuildContext::calls`]; each cloud has its own.
    pub calls: Calls,
}

impl Surroundings {
    /// What a provider with this configuration is made from here.
    pub fn context<'a>(&'a self, config: Option<&'a ConfigFile>, cluster: &'a ClusterName) -> BuildContext<'a> {
        let Surroundings { environment, user_agents, metrics, calls } = self;
        BuildContext { config, cluster, environment, user_agents, metrics, calls }
    }
}

/// Makes a provider. It reads its configuration and says all that is wrong with it; it makes no call and starts nothing.
pub type Build = dyn Fn(&BuildContext<'_>) -> Result<Arc<dyn CloudProvider>, ConfigErrors> + Send + Sync;

/// A kind of provider.
pub struct Factory {
    /// Its name, as in `--cloud-provider`.
    pub name: &'static str,
    /// One line for `--help` and error messages.
    pub summary: &'static str,
    /// A configuration file to start from, with what a person has to know in its comments; it is one that works.
    pub template: fn() -> String,
    /// Where installations that are there already keep it; `None` puts it beside the manager's own files.
    pub place: Option<ConfigLocation>,
    /// Capabilities where the configuration allows everything; they are on the reference page of the capabilities.
    pub capabilities: fn() -> Capabilities,
    /// Metrics of this kind alone, as declared; they are on the reference page of the metrics.
    pub metrics: &'static [Metric],
    /// Reference pages of this kind, generated from its declarations.
    pub references: &'static [Reference],
    /// Makes one.
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
    /// A kind with a configuration file beside the manager's own, and neither metrics nor reference pages.
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
            place: None,
            capabilities: Capabilities::default,
            metrics: &[],
            references: &[],
            build: Box::new(build),
        }
    }

    /// Path of this reference page in the repository.
    pub fn path_of(&self, reference: &Reference) -> String {
        format!("docs/reference/{}-{}.md", self.name, reference.topic)
    }
}

/// Where a cluster has a provider's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigLocation {
    /// The Secret that it is in.
    pub secret: &'static str,
    /// The folder where the manager's container has that Secret.
    pub folder: &'static str,
    /// The file in it, which is the key of the Secret.
    pub file: &'static str,
}

/// The kinds of providers that this program has.
#[derive(Default)]
pub struct Registry {
    factories: Vec<Factory>,
}

impl Registry {
    /// With one more kind; an earlier one of the same name is replaced, so that a test can put its own in place.
    pub fn with(mut self, factory: Factory) -> Registry {
        self.factories.retain(|known| known.name != factory.name);
        self.factories.push(factory);
        self
    }

    /// The kind of that name.
    pub fn get(&self, name: &str) -> Option<&Factory> {
        self.factories.iter().find(|factory| factory.name == name)
    }

    /// All kinds, in the order they were added.
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

    #[test]
    fn the_last_factory_of_a_name_counts() {
        let registry =
            Registry::default().with(factory("a", "first")).with(factory("b", "b")).with(factory("a", "last"));
        let cluster = "kubernetes".into();
        let surroundings = Surroundings::default();
        let context = surroundings.context(None, &cluster);
        let built = (registry.get("a").unwrap().build)(&context).ok().unwrap();
        assert_eq!(built.info().name, "last");
        assert_eq!(registry.iter().map(|factory| factory.name).collect::<Vec<_>>(), ["b", "a"]);
        assert!(registry.get("c").is_none());
    }
}
