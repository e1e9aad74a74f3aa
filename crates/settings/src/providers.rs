//! Builds the cloud providers from `--cloud-provider` and `--cloud-config`.
//!
//! Nothing here calls a cloud. All errors in flags, files and the combination of providers are reported at once.

mod capabilities;
pub mod flags;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bowline_cloud::{BuildInputs, CloudProvider, Registry, Reloading};
use bowline_config::{ConfigError, ConfigErrors, ConfigFile, nearest};
use bowline_core::ClusterName;

/// A provider that the flags request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSpec {
    /// Name in `--cloud-provider`.
    pub name: String,
    /// Its file in `--cloud-config`.
    pub config: Option<PathBuf>,
}

/// Generated reference pages, by their paths in the repository: the list of providers, and the pages of each.
pub fn references(registry: &Registry) -> Vec<(String, String)> {
    let mut list = LIST_HEAD.to_owned();
    let mut files = Vec::new();
    for factory in registry.iter() {
        let mut links = Vec::new();
        for reference in factory.references {
            let path = factory.path_of(reference);
            links.push(format!("[{}]({})", reference.topic, path.trim_start_matches("docs/reference/")));
            files.push((path, (reference.page)()));
        }
        list += &format!("| `{}` | {} | {} |\n", factory.name, factory.summary, links.join(", "));
    }
    files.push(("docs/reference/providers.md".to_owned(), list));
    files.push(("docs/reference/capabilities.md".to_owned(), capabilities::page(registry)));
    files
}

const LIST_HEAD: &str = "\
# Cloud providers

<!-- Made by `cargo xtask generate` from the providers' factories; change those instead. -->

Values of `--cloud-provider`. For several clouds, name several, separated by commas.

| name | cloud | reference |
|---|---|---|
";

/// Matches the files of `--cloud-config` with the providers of `--cloud-provider`.
pub fn specs(names: &[String], configs: &[String], errors: &mut ConfigErrors) -> Vec<ProviderSpec> {
    if names.iter().all(String::is_empty) {
        let hint = "name a cloud provider, such as --cloud-provider=openstack";
        // upstream: this message, without a colon after the flag.
        errors.push(ConfigError::new("--cloud-provider cannot be empty").hint(hint));
        return Vec::new();
    }
    let mut files = Files::new(names, configs, errors);
    let specs = names.iter().map(|name| ProviderSpec { name: name.clone(), config: files.next(name) }).collect();
    files.left(errors);
    specs
}

/// Configuration files that are not assigned to a provider yet, by provider name.
struct Files(BTreeMap<String, Vec<PathBuf>>);

impl Files {
    fn new(names: &[String], configs: &[String], errors: &mut ConfigErrors) -> Files {
        let mut files = Files(BTreeMap::new());
        for entry in entries(names, configs) {
            match (split(entry, names), names) {
                (Some((name, file)), _) => files.add(name, file),
                (None, [only]) => files.add(only, entry),
                (None, _) => errors.push(nameless(entry, names)),
            }
        }
        files
    }

    fn add(&mut self, name: &str, file: &str) {
        self.0.entry(name.to_owned()).or_default().push(file.into());
    }

    /// Takes the next file for this provider. Providers of the same name get their files in order.
    fn next(&mut self, name: &str) -> Option<PathBuf> {
        let files = self.0.get_mut(name).filter(|files| !files.is_empty())?;
        Some(files.remove(0))
    }

    /// Reports files without a provider.
    fn left(self, errors: &mut ConfigErrors) {
        for (name, file) in self.0.iter().flat_map(|(name, files)| files.iter().map(move |file| (name, file))) {
            let message = format!("more files than {name} providers: {:?}", file.display().to_string());
            let hint =
                "a provider has one file; for two clouds of the same kind, list the provider twice in --cloud-provider";
            errors.push(ConfigError::flag("cloud-config", message).hint(hint));
        }
    }
}

/// Splits `--cloud-config` into entries. The path of a single provider may contain commas.
fn entries<'a>(names: &[String], configs: &'a [String]) -> Vec<&'a str> {
    let filled = configs.iter().map(String::as_str).filter(|config| !config.is_empty());
    if names.len() == 1 { filled.collect() } else { filled.flat_map(|config| config.split(',')).collect() }
}

/// Splits `NAME=FILE`, if the name is one of these.
fn split<'a>(entry: &'a str, names: &[String]) -> Option<(&'a str, &'a str)> {
    entry.split_once('=').filter(|(name, _)| names.iter().any(|known| known == name))
}

/// Error for an entry without the name of a provider, which is required with several providers.
fn nameless(entry: &str, names: &[String]) -> ConfigError {
    let known = names.join(", ");
    match entry.split_once('=') {
        Some((name, _)) => {
            let near = nearest(name, names.iter().map(String::as_str));
            let hint = near.map_or(format!("it lists {known}"), |near| format!("did you mean {near}?"));
            ConfigError::flag("cloud-config", format!("{name:?} is not in --cloud-provider")).hint(hint)
        }
        None => ConfigError::flag("cloud-config", format!("{entry:?} does not name its provider"))
            .hint(format!("with several providers use NAME=FILE, where NAME is one of {known}")),
    }
}

/// Builds the providers, and reports errors in `errors`. Each provider is rebuilt when its configuration changes; it keeps its
/// build inputs and with them its rate limiter, which is separate for each cloud.
pub fn build(
    specs: &[ProviderSpec],
    cluster: &ClusterName,
    build_inputs: impl Fn() -> BuildInputs,
    registry: &Arc<Registry>,
    errors: &mut ConfigErrors,
) -> Vec<Arc<Reloading>> {
    let mut providers = Vec::new();
    for spec in specs {
        let (cluster, build_inputs, registry) = (cluster.clone(), build_inputs(), registry.clone());
        let (config, spec) = (spec.config.clone(), spec.clone());
        let make = move || build_one(&spec, read(&spec), &cluster, &build_inputs, &registry);
        match Reloading::new(config, make) {
            Ok(provider) => providers.push(Arc::new(provider)),
            Err(found) => errors.extend(found),
        }
    }
    check_prefixes(&providers, errors);
    providers
}

fn read(spec: &ProviderSpec) -> Result<Option<ConfigFile>, ConfigError> {
    spec.config.as_deref().map(ConfigFile::read).transpose()
}

/// Builds the providers from the configuration that `read` returns for each, without reloading.
pub fn build_from(
    specs: &[ProviderSpec],
    read: impl Fn(&ProviderSpec) -> Result<Option<ConfigFile>, ConfigError>,
    cluster: &ClusterName,
    build_inputs: &BuildInputs,
    registry: &Registry,
    errors: &mut ConfigErrors,
) -> Vec<Arc<dyn CloudProvider>> {
    let mut providers = Vec::new();
    for spec in specs {
        match build_one(spec, read(spec), cluster, build_inputs, registry) {
            Ok(provider) => providers.push(provider),
            Err(found) => errors.extend(found),
        }
    }
    check_prefixes(&providers, errors);
    providers
}

fn build_one(
    spec: &ProviderSpec,
    config: Result<Option<ConfigFile>, ConfigError>,
    cluster: &ClusterName,
    build_inputs: &BuildInputs,
    registry: &Registry,
) -> Result<Arc<dyn CloudProvider>, ConfigErrors> {
    let Some(factory) = registry.get(&spec.name) else {
        let mut errors = ConfigErrors::from(unknown(&spec.name, registry));
        config.err().into_iter().for_each(|error| errors.push(error));
        return Err(errors);
    };
    let config = config?;
    (factory.build)(&build_inputs.context(config.as_ref(), cluster))
}

/// The provider of the playground, which the image does not contain.
const LOCAL: &str = "local";

fn unknown(name: &str, registry: &Registry) -> ConfigError {
    let known: Vec<_> = registry.iter().map(|factory| factory.name).collect();
    let hint = match (name, nearest(name, known.iter().copied())) {
        ("external", _) => {
            format!("external is a value for the kubelet; name the cloud provider itself: {}", known.join(", "))
        }
        (LOCAL, _) => format!("it needs a build with the feature provider-local; this build has {}", known.join(", ")),
        (_, Some(near)) => format!("did you mean {near}?"),
        (_, None) => format!("known providers: {}", known.join(", ")),
    };
    ConfigError::flag("cloud-provider", format!("unknown cloud provider {name:?}")).hint(hint)
}

/// Checks that each prefix has one owner: a node belongs to the provider with the prefix of its ID.
fn check_prefixes<P: CloudProvider + ?Sized>(providers: &[Arc<P>], errors: &mut ConfigErrors) {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for info in providers.iter().map(|provider| provider.info()) {
        // A provider may list a prefix twice.
        let own: BTreeSet<_> = info.id_prefixes.iter().map(String::as_str).collect();
        for prefix in own {
            if let Some(owner) = owners.insert(prefix, &info.name) {
                errors.push(contested(prefix, owner, &info.name));
            }
        }
    }
}

fn contested(prefix: &str, first: &str, second: &str) -> ConfigError {
    let message = format!("both {first} and {second} claim nodes whose provider ID starts with \"{prefix}://\"");
    let hint = "remove one of them, or set another prefix in its --cloud-config";
    ConfigError::flag("cloud-provider", message).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idle::Idle;
    use bowline_cloud::{BuildContext, Factory, ProviderInfo};

    fn parse(names: &[&str], configs: &[&str]) -> Result<Vec<(String, Option<String>)>, String> {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut errors = ConfigErrors::new();
        let specs = specs(&owned(names), &owned(configs), &mut errors);
        let pair = |spec: ProviderSpec| (spec.name, spec.config.map(|path| path.display().to_string()));
        if errors.is_empty() { Ok(specs.into_iter().map(pair).collect()) } else { Err(errors.to_string()) }
    }

    #[test]
    fn each_provider_gets_its_own_file() {
        type Pairs<'a> = &'a [(&'a str, Option<&'a str>)];
        let cases: [(&[&str], &[&str], Pairs<'_>); 9] = [
            (&["local"], &[], &[("local", None)]),
            (&["local"], &[""], &[("local", None)]),
            (&["local"], &["a.yaml"], &[("local", Some("a.yaml"))]),
            (&["local"], &["a,b=c.yaml"], &[("local", Some("a,b=c.yaml"))]),
            (&["local"], &["local=a.yaml"], &[("local", Some("a.yaml"))]),
            (&["aws", "gce"], &["gce=g.yaml"], &[("aws", None), ("gce", Some("g.yaml"))]),
            (&["aws", "gce"], &["gce=g,aws=a"], &[("aws", Some("a")), ("gce", Some("g"))]),
            (&["aws", "gce"], &["gce=g", "aws=a"], &[("aws", Some("a")), ("gce", Some("g"))]),
            (&["local", "local"], &["local=1,local=2"], &[("local", Some("1")), ("local", Some("2"))]),
        ];
        for (names, configs, expected) in cases {
            let expected = expected.iter().map(|(name, file)| (name.to_string(), file.map(str::to_owned))).collect();
            assert_eq!(parse(names, configs), Ok(expected), "{names:?} {configs:?}");
        }
    }

    #[test]
    fn a_file_without_a_provider_is_rejected() {
        let cases: [(&[&str], &[&str], &str); 6] = [
            (&[], &["a.yaml"], "--cloud-provider cannot be empty"),
            (&["aws", "gce"], &["a.yaml"], "does not name its provider; with several providers use NAME=FILE"),
            (&["aws", "gce"], &["asw=a.yaml"], "\"asw\" is not in --cloud-provider; did you mean aws?"),
            (&["aws", "gce"], &["harbour=a.yaml"], "it lists aws, gce"),
            (&["local"], &["a.yaml", "b.yaml"], "more files than local providers: \"b.yaml\""),
            (&["aws", "gce"], &["aws=a,aws=b"], "more files than aws providers: \"b\""),
        ];
        for (names, configs, expected) in cases {
            let errors = parse(names, configs).unwrap_err();
            assert!(errors.contains(expected), "{names:?} {configs:?} should say {expected:?}: {errors}");
        }
    }

    fn kind(name: &'static str, prefixes: &'static [&'static str]) -> Factory {
        let id_prefixes = prefixes.iter().map(ToString::to_string).collect();
        let info = ProviderInfo { name: name.to_owned(), id_prefixes };
        let build = move |_: &BuildContext<'_>| -> Result<Arc<dyn CloudProvider>, ConfigErrors> {
            Ok(Arc::new(Idle { info: info.clone(), ..Idle::default() }))
        };
        Factory::new(name, "for tests", String::new, build)
    }

    fn built(names: &[&str]) -> Result<Vec<String>, String> {
        let kinds = [kind("aws", &["aws"]), kind("outpost", &["outpost", "aws"]), kind("gce", &["gce", "gce"])];
        let registry = Arc::new(kinds.into_iter().fold(Registry::default(), Registry::with));
        let specs: Vec<_> = names.iter().map(|name| ProviderSpec { name: name.to_string(), config: None }).collect();
        let mut errors = ConfigErrors::new();
        let providers = build(&specs, &ClusterName::from("kubernetes"), BuildInputs::default, &registry, &mut errors);
        let names = providers.iter().map(|provider| provider.info().name.clone()).collect();
        if errors.is_empty() { Ok(names) } else { Err(errors.to_string()) }
    }

    #[test]
    fn providers_are_built_in_the_order_of_the_flag() {
        assert_eq!(built(&["gce", "aws"]), Ok(vec!["gce".to_owned(), "aws".to_owned()]));
    }

    #[test]
    fn an_unknown_provider_is_rejected_with_a_suggestion() {
        let cases = [
            ("gec", "--cloud-provider: unknown cloud provider \"gec\"; did you mean gce?"),
            ("harbour", "unknown cloud provider \"harbour\"; known providers: aws, outpost, gce"),
            ("external", "external is a value for the kubelet"),
            ("local", "it needs a build with the feature provider-local; this build has aws, outpost, gce"),
            ("", "unknown cloud provider \"\""),
        ];
        for (name, expected) in cases {
            let errors = built(&[name]).unwrap_err();
            assert!(errors.contains(expected), "{name}: {errors}");
        }
    }

    #[test]
    fn a_prefix_has_one_owner() {
        let errors = built(&["aws", "gce", "outpost"]).unwrap_err();
        assert!(
            errors.contains("both aws and outpost claim nodes whose provider ID starts with \"aws://\""),
            "{errors}"
        );
        assert!(built(&["aws", "aws"]).is_err());
    }
}
