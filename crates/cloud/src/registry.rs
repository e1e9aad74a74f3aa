//! The providers that a program has, by name. A value, built by the program; nothing registers itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bowline_config::{ConfigFile, Problem, Problems};
use bowline_core::ClusterName;

use crate::CloudProvider;

/// What a provider is made from.
#[derive(Debug)]
pub struct BuildContext<'a> {
    /// Its `--cloud-config`, read already; `None` if none was given.
    pub config: Option<&'a ConfigFile>,
    /// `--cluster-name`.
    pub cluster: &'a ClusterName,
}

/// Makes a provider. It reads its configuration and says all that is wrong with it; it makes no call and starts nothing.
pub type Build = dyn Fn(&BuildContext<'_>) -> Result<Arc<dyn CloudProvider>, Problems> + Send + Sync;

/// A kind of provider.
pub struct Factory {
    /// Its name, as in `--cloud-provider`.
    pub name: &'static str,
    /// One line for `--help` and error messages.
    pub summary: &'static str,
    /// Makes one.
    pub build: Box<Build>,
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

/// Makes the providers of these names, in this order, each from its file in `configs` (by the provider's name). All that
/// is wrong is told at once; nothing is called and nothing started.
pub fn build_clouds(
    registry: &Registry,
    names: &[String],
    configs: &BTreeMap<String, ConfigFile>,
    cluster: &ClusterName,
) -> Result<Vec<Arc<dyn CloudProvider>>, Problems> {
    let mut problems = Problems::new();
    let mut providers: Vec<Arc<dyn CloudProvider>> = Vec::new();
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            problems.push(Problem::flag(FLAG, format!("{name} is given twice")).hint("name each provider once"));
            continue;
        }
        match registry.build(name, &BuildContext { config: configs.get(name), cluster }) {
            Ok(provider) => providers.push(provider),
            Err(found) => problems.extend(found),
        }
    }
    for (name, config) in configs.iter().filter(|(name, _)| !seen.contains(name)) {
        let problem = Problem::file(config.path(), None, format!("is for the provider {name}, which is not used"));
        problems.push(problem.hint(format!("add it to --{FLAG} or leave the file out")));
    }
    problems.extend(shared_prefixes(&providers));
    if problems.is_empty() { Ok(providers) } else { Err(problems) }
}

/// Where providers are named.
const FLAG: &str = "cloud-provider";

impl Registry {
    fn build(&self, name: &str, context: &BuildContext<'_>) -> Result<Arc<dyn CloudProvider>, Problems> {
        match self.get(name) {
            Some(factory) => (factory.build)(context),
            None => Err(self.unknown(name).into()),
        }
    }

    fn unknown(&self, name: &str) -> Problem {
        let known: Vec<_> = self.iter().map(|factory| factory.name).collect();
        let list =
            if known.is_empty() { "this program has none".to_owned() } else { format!("known: {}", known.join(", ")) };
        let problem = Problem::flag(FLAG, format!("there is no provider {name:?}"));
        match nearest(name, &known) {
            Some(near) => problem.hint(format!("did you mean {near}? ({list})")),
            None => problem.hint(list),
        }
    }
}

/// A prefix says whose a machine is; two owners would both act on it.
fn shared_prefixes(providers: &[Arc<dyn CloudProvider>]) -> Problems {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    let mut problems = Problems::new();
    for info in providers.iter().map(|provider| provider.info()) {
        // Naming one prefix twice harms nobody.
        let own: BTreeSet<_> = info.id_prefixes.iter().map(String::as_str).collect();
        for prefix in own {
            if let Some(other) = owners.insert(prefix, &info.name) {
                let message = format!("{other} and {} both own provider IDs that start with {prefix}://", info.name);
                problems.push(Problem::flag(FLAG, message).hint("use one of them"));
            }
        }
    }
    problems
}

/// The name that a typing error would make of, if one is near enough.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distances = known.iter().map(|known| (distance(&name.to_lowercase(), &known.to_lowercase()), *known));
    let near = distances.filter(|(distance, known)| *distance <= 1 + known.chars().count() / 4);
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// How many letters have to be put in, taken out or replaced to get from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for ((b, costs), left) in b.iter().zip(row.windows(2)).zip(0..) {
            let [diagonal, above] = [costs.first(), costs.last()].map(|cost| cost.copied().unwrap_or_default());
            let beside = next.get(left).copied().unwrap_or_default();
            next.push((diagonal + usize::from(a != *b)).min(above + 1).min(beside + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn factory(
        name: &'static str,
        build: impl Fn(&BuildContext<'_>) -> Result<Fake, Problems> + Send + Sync + 'static,
    ) -> Factory {
        Factory { name, summary: "for tests", build: Box::new(move |context| Ok(Arc::new(build(context)?))) }
    }

    /// `alpha` wants no configuration, `beta` finds fault with any, `alpha-too` owns the IDs of `alpha`.
    fn registry() -> Registry {
        let wants = |context: &BuildContext<'_>| match context.config {
            Some(config) => Err(Problem::file(config.path(), Some(3), "is wrong").into()),
            None => Err(Problem::flag("cloud-config", "beta needs one").into()),
        };
        Registry::default()
            .with(factory("alpha", |_| Ok(Fake::new("alpha"))))
            .with(factory("beta", wants))
            .with(factory("alpha-too", |_| Ok(Fake::new("alpha-too").prefix("alpha"))))
            .with(factory("gamma", |context| Ok(Fake::new(context.cluster.as_str()))))
    }

    fn build(names: &[&str], configs: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let file = |(name, path): &(&str, &str)| ((*name).to_owned(), ConfigFile::from_text(*path, ""));
        let built = build_clouds(&registry(), &names, &configs.iter().map(file).collect(), &"kubernetes".into());
        built
            .map(|clouds| clouds.iter().map(|cloud| cloud.info().name.clone()).collect())
            .map_err(|all| all.to_string())
    }

    #[test]
    fn providers_are_made_in_their_order_from_what_they_are_given() {
        assert_eq!(build(&["gamma", "alpha"], &[]).unwrap(), ["kubernetes", "alpha"]);
        assert_eq!(build(&[], &[]).unwrap(), [""; 0]);
    }

    #[test]
    fn an_unknown_name_is_told_with_the_nearest_and_all_known_ones() {
        let all = "known: alpha, beta, alpha-too, gamma";
        let table = [
            ("alpa", format!("did you mean alpha? ({all})")),
            ("Gamma", format!("did you mean gamma? ({all})")),
            ("openstack", all.to_owned()),
            ("", all.to_owned()),
        ];
        for (name, hint) in table {
            let expected = format!("--cloud-provider: there is no provider {name:?}; {hint}");
            assert_eq!(build(&[name], &[]).unwrap_err(), expected);
        }
        let none = build_clouds(&Registry::default(), &["x".to_owned()], &BTreeMap::new(), &"k".into());
        let text = none.err().unwrap().to_string();
        assert_eq!(text, "--cloud-provider: there is no provider \"x\"; this program has none");
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let names = ["alpha", "nonsense", "beta", "alpha", "alpha-too"];
        let told = build(&names, &[("beta", "beta.yaml"), ("gamma", "gamma.yaml")]).unwrap_err();
        let expected = "\
--cloud-provider: there is no provider \"nonsense\"; known: alpha, beta, alpha-too, gamma
beta.yaml:3: is wrong
--cloud-provider: alpha is given twice; name each provider once
gamma.yaml: is for the provider gamma, which is not used; add it to --cloud-provider or leave the file out
--cloud-provider: alpha and alpha-too both own provider IDs that start with alpha://; use one of them";
        assert_eq!(told, expected);
    }

    #[test]
    fn the_last_factory_of_a_name_counts() {
        let registry = registry().with(factory("alpha", |_| Ok(Fake::new("replaced"))));
        let built = build_clouds(&registry, &["alpha".to_owned()], &BTreeMap::new(), &"k".into()).ok().unwrap();
        assert_eq!(built[0].info().name, "replaced");
        assert_eq!(registry.iter().count(), 4);
    }

    #[test]
    fn the_distance_of_two_names_counts_typing_errors() {
        let table =
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("aws", "aws", 0), ("kitten", "sitting", 3), ("äb", "b", 1)];
        for (a, b, expected) in table {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
