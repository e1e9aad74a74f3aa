//! Flags that providers declare ([`ProviderFlag`]).

use std::collections::BTreeSet;

use bowline_cloud::{FlagSyntax, FlagValues, ProviderFlag, Registry};
use clap::{Arg, ArgAction, Command};

use crate::effective::EffectiveFlags;
use crate::flags::Switch as _;

/// Heading of the flags in `--help`.
pub(crate) const HEADING: &str = "Flags of cloud providers";

/// Adds the flags of all providers to a command with the flags of the manager.
pub fn add_to(command: Command, registry: &Registry) -> Command {
    let mut names = BTreeSet::new();
    let declared = registry.iter().flat_map(|factory| factory.flags).filter(|flag| names.insert(flag.name));
    command.args(declared.map(argument))
}

/// Returns the controllers that providers declare, each with the name of its provider.
pub fn controllers(registry: &Registry) -> Vec<(&'static str, &'static str)> {
    let of = |factory: &bowline_cloud::Factory| factory.controllers.iter().map(|name| (factory.name, *name)).collect();
    registry.iter().flat_map(|factory| -> Vec<_> { of(factory) }).collect()
}

/// Returns the values of the providers' flags that the command line sets.
pub(crate) fn values(flags: &EffectiveFlags) -> FlagValues {
    let given = flags.iter().filter(|flag| flag.is_given && flag.is_of_provider);
    FlagValues::new(given.map(|flag| (flag.name.clone(), flag.values.clone())))
}

fn argument(flag: &ProviderFlag) -> Arg {
    let argument = Arg::new(flag.name).long(flag.name).help(flag.summary).help_heading(HEADING).hide_short_help(true);
    let argument = if flag.default.is_empty() { argument } else { argument.default_value(flag.default) };
    match flag.syntax {
        FlagSyntax::Single => argument.value_name(flag.value).action(ArgAction::Set),
        FlagSyntax::Repeated => argument.value_name(flag.value).action(ArgAction::Append),
        FlagSyntax::Switch => argument.switch(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bowline_cloud::{Factory, ProviderInfo};
    use bowline_config::ConfigErrors;

    use super::*;
    use crate::argv;
    use crate::cli::ManagerArgs;
    use crate::idle::Idle;
    use crate::settings::Settings;

    const TAGS: ProviderFlag =
        ProviderFlag { name: "tags", value: "TAGS", default: "", summary: "Tags.", syntax: FlagSyntax::Repeated };
    const LIMIT: ProviderFlag =
        ProviderFlag { name: "limit", value: "N", default: "1", summary: "Limit.", syntax: FlagSyntax::Single };
    const BATCHES: ProviderFlag = ProviderFlag {
        name: "batches",
        value: "",
        default: "false",
        summary: "Whether writes are batched.",
        syntax: FlagSyntax::Switch,
    };

    fn registry() -> Registry {
        let factory = |name: &'static str| {
            let info = ProviderInfo { name: name.to_owned(), id_prefixes: vec![name.to_owned()] };
            let build = move |_: &bowline_cloud::BuildContext<'_>| -> Result<_, ConfigErrors> {
                Ok(Arc::new(Idle { info: info.clone(), ..Idle::default() }) as Arc<dyn bowline_cloud::CloudProvider>)
            };
            Factory::new(name, "for tests", String::new, build)
        };
        let harbour = Factory { flags: &[TAGS, LIMIT, BATCHES], controllers: &["tagging"], ..factory("harbour") };
        Registry::default().with(harbour).with(factory("pier"))
    }

    /// Resolves the flags. Returns the values of providers, whether loops run, and the errors.
    fn resolved(arguments: &[&str]) -> (FlagValues, bool, Vec<String>) {
        let registry = registry();
        let mut definition = add_to(ManagerArgs::definition("bowline"), &registry);
        let arguments = ["bowline", "--authentication-skip-lookup"].iter().chain(arguments);
        let argv = argv::normalize(arguments.map(Into::into).collect(), &mut definition);
        let mut args = ManagerArgs::read(&mut definition, argv).unwrap();
        args.provider_controllers = controllers(&registry);
        let mut errors = ConfigErrors::new();
        let settings = Settings::resolve(&args, &mut errors);
        let errors = errors.iter().map(ToString::to_string).filter(|error| error.contains("controllers")).collect();
        (settings.reach.flags, settings.manager.provider_loops.is_some(), errors)
    }

    #[test]
    fn the_values_of_declared_flags_reach_the_provider() {
        let (flags, _, _) = resolved(&["--cloud-provider=harbour", "--tags=a=1,b=2", "--tags", "c=3", "--batches"]);
        assert_eq!(flags.all(&TAGS), ["a=1,b=2", "c=3"]);
        assert_eq!((flags.last(&LIMIT), flags.last(&BATCHES)), ("1", "true"));
        let (flags, _, _) = resolved(&["--cloud-provider=harbour", "--limit=5", "--limit=7"]);
        assert_eq!((flags.last(&LIMIT), flags.last(&BATCHES)), ("7", "false"));
        assert!(flags.all(&TAGS).is_empty());
    }

    #[test]
    fn a_controller_of_a_provider_is_enabled_by_its_name_only() {
        for (controllers, enabled, runs_loops) in [
            ("*", false, true),
            ("*,tagging", true, true),
            ("*,-tagging,tagging", false, true),
            ("tagging", true, true),
            ("*,-provider-loops", false, false),
            ("*,-provider-loops,tagging", true, true),
            ("service", false, false),
        ] {
            let flag = format!("--controllers={controllers}");
            let (flags, loops, errors) = resolved(&["--cloud-provider=harbour", &flag]);
            assert_eq!((flags.has_controller("tagging"), loops), (enabled, runs_loops), "{controllers}");
            assert_eq!(errors, Vec::<String>::new(), "{controllers}");
        }
    }

    #[test]
    fn a_controller_of_another_provider_is_unknown() {
        let (flags, _, errors) = resolved(&["--cloud-provider=pier", "--controllers=*,tagging"]);
        assert!(!flags.has_controller("tagging"));
        assert!(errors.iter().any(|error| error.contains("\"tagging\" is not in the list of known")), "{errors:?}");
    }
}
