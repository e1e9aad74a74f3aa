//! The clouds that the manager serves: from names and files to providers.
//!
//! Nothing here calls a cloud. Whatever is wrong, with flags, with files and among the providers themselves, is told at
//! once.

mod capabilities;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bowline_cloud::{CloudProvider, Registry, Reloading, Surroundings};
use bowline_config::{ConfigError, ConfigErrors, ConfigFile, nearest};
use bowline_core::ClusterName;

/// A provider that the flags ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// As in `--cloud-provider`.
    pub name: String,
    /// Its `--cloud-config`.
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

/// Brings `--cloud-provider` and `--cloud-config` together.
pub fn wanted(names: &[String], configs: &[String], errors: &mut ConfigErrors) -> Vec<Wanted> {
    if names.iter().all(String::is_empty) {
        let hint = "name a cloud, such as --cloud-provider=local";
        // upstream: these words, without a mark between the flag and the rest.
        errors.push(ConfigError::new("--cloud-provider cannot be empty").hint(hint));
        return Vec::new();
    }
    let mut files = Files::new(names, configs, errors);
    let wanted = names.iter().map(|name| Wanted { name: name.clone(), config: files.next(name) }).collect();
    files.left(errors);
    wanted
}

/// Configuration files that have not found their provider yet.
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

    /// The next file for this provider. The first of a name that is there twice gets the first file.
    fn next(&mut self, name: &str) -> Option<PathBuf> {
        let files = self.0.get_mut(name).filter(|files| !files.is_empty())?;
        Some(files.remove(0))
    }

    /// Says which files have no provider.
    fn left(self, errors: &mut ConfigErrors) {
        for (name, file) in self.0.iter().flat_map(|(name, files)| files.iter().map(move |file| (name, file))) {
            let message = format!("{:?} is one file too many for {name}", file.display().to_string());
            let hint = "a provider has one file; for two clouds of a kind, name it twice in --cloud-provider";
            errors.push(ConfigError::flag("cloud-config", message).hint(hint));
        }
    }
}

/// The entries of the flag. The path of a single provider may have a comma in it.
fn entries<'a>(names: &[String], configs: &'a [String]) -> Vec<&'a str> {
    let filled = configs.iter().map(String::as_str).filter(|config| !config.is_empty());
    if names.len() == 1 { filled.collect() } else { filled.flat_map(|config| config.split(',')).collect() }
}

/// `NAME=FILE`, where the name is one of these.
fn split<'a>(entry: &'a str, names: &[String]) -> Option<(&'a str, &'a str)> {
    entry.split_once('=').filter(|(name, _)| names.iter().any(|known| known == name))
}

/// With several providers, an entry must say whose it is.
fn nameless(entry: &str, names: &[String]) -> ConfigError {
    let known = names.join(", ");
    match entry.split_once('=') {
        Some((name, _)) => {
            let near = nearest(name, names.iter().map(String::as_str));
            let hint = near.map_or(format!("named are {known}"), |near| format!("did you mean {near}?"));
            ConfigError::flag("cloud-config", format!("{name:?} is not in --cloud-provider")).hint(hint)
        }
        None => ConfigError::flag("cloud-config", format!("{entry:?} does not say which provider it is for"))
            .hint(format!("with several providers write NAME=FILE, with a name of {known}")),
    }
}

/// Makes the providers; what is wrong goes to `problems`. Each can be made anew when its configuration changes, and keeps its
/// surroundings, and so its gate for calls, which each cloud has for itself.
pub fn build(
    wanted: &[Wanted],
    cluster: &ClusterName,
    surroundings: impl Fn() -> Surroundings,
    registry: &Arc<Registry>,
    errors: &mut ConfigErrors,
) -> Vec<Arc<Reloading>> {
    let mut providers = Vec::new();
    for wanted in wanted {
        let (cluster, surroundings, registry) = (cluster.clone(), surroundings(), registry.clone());
        let (config, wanted) = (wanted.config.clone(), wanted.clone());
        let make = move || build_one(&wanted, read(&wanted), &cluster, &surroundings, &registry);
        match Reloading::new(config, make) {
            Ok(provider) => providers.push(Arc::new(provider)),
            Err(wrong) => errors.extend(wrong),
        }
    }
    check_prefixes(&providers, errors);
    providers
}

fn read(wanted: &Wanted) -> Result<Option<ConfigFile>, ConfigError> {
    wanted.config.as_deref().map(ConfigFile::read).transpose()
}

/// Makes the providers from what `read` has for each, once and for all.
pub fn build_from(
    wanted: &[Wanted],
    read: impl Fn(&Wanted) -> Result<Option<ConfigFile>, ConfigError>,
    cluster: &ClusterName,
    surroundings: &Surroundings,
    registry: &Registry,
    errors: &mut ConfigErrors,
) -> Vec<Arc<dyn CloudProvider>> {
    let mut providers = Vec::new();
    for wanted in wanted {
        match build_one(wanted, read(wanted), cluster, surroundings, registry) {
            Ok(provider) => providers.push(provider),
            Err(wrong) => errors.extend(wrong),
        }
    }
    check_prefixes(&providers, errors);
    providers
}

fn build_one(
    wanted: &Wanted,
    config: Result<Option<ConfigFile>, ConfigError>,
    cluster: &ClusterName,
    surroundings: &Surroundings,
    registry: &Registry,
) -> Result<Arc<dyn CloudProvider>, ConfigErrors> {
    let Some(factory) = registry.get(&wanted.name) else {
        let mut errors = ConfigErrors::from(unknown(&wanted.name, registry));
        config.err().into_iter().for_each(|problem| errors.push(problem));
        return Err(errors);
    };
    let config = config?;
    (factory.build)(&surroundings.context(config.as_ref(), cluster))
}

/// The provider of the playground's cloud, which the image leaves out.
const LOCAL: &str = "local";

fn unknown(name: &str, registry: &Registry) -> ConfigError {
    let known: Vec<_> = registry.iter().map(|factory| factory.name).collect();
    let hint = match (name, nearest(name, known.iter().copied())) {
        ("external", _) => {
            format!("external is what a kubelet is told; here the cloud itself is named: {}", known.join(", "))
        }
        (LOCAL, _) => format!("it is in builds with the feature provider-local; this one has {}", known.join(", ")),
        (_, Some(near)) => format!("did you mean {near}?"),
        (_, None) => format!("known are {}", known.join(", ")),
    };
    ConfigError::flag("cloud-provider", format!("unknown cloud provider {name:?}")).hint(hint)
}

/// A node belongs to the provider whose prefix its ID has, so a prefix must have one owner.
fn check_prefixes<P: CloudProvider + ?Sized>(providers: &[Arc<P>], errors: &mut ConfigErrors) {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for info in providers.iter().map(|provider| provider.info()) {
        // Naming one prefix twice harms nobody.
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
    let hint = "leave one of them out, or give one another prefix in its --cloud-config";
    ConfigError::flag("cloud-provider", message).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idle::Idle;
    use bowline_cloud::{BuildContext, Capabilities, Factory, ProviderInfo};

    fn asked(names: &[&str], configs: &[&str]) -> Result<Vec<(String, Option<String>)>, String> {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut errors = ConfigErrors::new();
        let wanted = wanted(&owned(names), &owned(configs), &mut errors);
        let pair = |wanted: Wanted| (wanted.name, wanted.config.map(|path| path.display().to_string()));
        if errors.is_empty() { Ok(wanted.into_iter().map(pair).collect()) } else { Err(errors.to_string()) }
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
            assert_eq!(asked(names, configs), Ok(expected), "{names:?} {configs:?}");
        }
    }

    #[test]
    fn a_file_that_belongs_to_nobody_is_refused() {
        let cases: [(&[&str], &[&str], &str); 6] = [
            (&[], &["a.yaml"], "--cloud-provider cannot be empty"),
            (
                &["aws", "gce"],
                &["a.yaml"],
                "does not say which provider it is for; with several providers write NAME=FILE",
            ),
            (&["aws", "gce"], &["asw=a.yaml"], "\"asw\" is not in --cloud-provider; did you mean aws?"),
            (&["aws", "gce"], &["harbour=a.yaml"], "named are aws, gce"),
            (&["local"], &["a.yaml", "b.yaml"], "\"b.yaml\" is one file too many for local"),
            (&["aws", "gce"], &["aws=a,aws=b"], "\"b\" is one file too many for aws"),
        ];
        for (names, configs, says) in cases {
            let errors = asked(names, configs).unwrap_err();
            assert!(errors.contains(says), "{names:?} {configs:?} should say {says:?}: {errors}");
        }
    }

    fn kind(name: &'static str, prefixes: &'static [&'static str]) -> Factory {
        let id_prefixes = prefixes.iter().map(ToString::to_string).collect();
        let info = ProviderInfo { name: name.to_owned(), id_prefixes };
        let build = move |_: &BuildContext<'_>| -> Result<Arc<dyn CloudProvider>, ConfigErrors> {
            Ok(Arc::new(Idle(info.clone(), Capabilities::default())))
        };
        Factory::new(name, "for tests", String::new, build)
    }

    fn built(names: &[&str]) -> Result<Vec<String>, String> {
        let kinds = [kind("aws", &["aws"]), kind("outpost", &["outpost", "aws"]), kind("gce", &["gce", "gce"])];
        let registry = Arc::new(kinds.into_iter().fold(Registry::default(), Registry::with));
        let wanted: Vec<_> = names.iter().map(|name| Wanted { name: name.to_string(), config: None }).collect();
        let mut errors = ConfigErrors::new();
        let providers = build(&wanted, &ClusterName::from("kubernetes"), Surroundings::default, &registry, &mut errors);
        let names = providers.iter().map(|provider| provider.info().name.clone()).collect();
        if errors.is_empty() { Ok(names) } else { Err(errors.to_string()) }
    }

    #[test]
    fn providers_are_built_in_the_order_of_the_flag() {
        assert_eq!(built(&["gce", "aws"]), Ok(vec!["gce".to_owned(), "aws".to_owned()]));
    }

    #[test]
    fn a_provider_that_nobody_knows_is_refused_with_the_nearest() {
        let cases = [
            ("gec", "--cloud-provider: unknown cloud provider \"gec\"; did you mean gce?"),
            ("harbour", "unknown cloud provider \"harbour\"; known are aws, outpost, gce"),
            ("external", "external is what a kubelet is told"),
            ("local", "it is in builds with the feature provider-local; this one has aws, outpost, gce"),
            ("", "unknown cloud provider \"\""),
        ];
        for (name, says) in cases {
            let errors = built(&[name]).unwrap_err();
            assert!(errors.contains(says), "{name}: {errors}");
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
