//! Effective values of the manager's flags, including defaults: for the log (FLAG-5), `/flagz`, `/configz`, and the warnings about
//! flags without effect.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use crate::providers;

/// All flags, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectiveFlags(Vec<EffectiveFlag>);

/// A flag and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectiveFlag {
    /// Name without dashes.
    pub name: String,
    /// Values as set, or the default; empty without either. A repeated list flag has several.
    pub values: Vec<String>,
    /// Whether the flag may be repeated.
    pub is_list: bool,
    /// Whether the command line or `--config` sets the flag.
    pub is_given: bool,
    /// Whether a provider declares the flag.
    pub is_of_provider: bool,
}

impl EffectiveFlags {
    /// Collects the flags of the program itself, not of its subcommands.
    pub fn new(command: &Command, matches: &ArgMatches) -> EffectiveFlags {
        let mut flags: Vec<_> = command.get_arguments().filter_map(|flag| EffectiveFlag::new(flag, matches)).collect();
        flags.sort_by(|one, other| one.name.cmp(&other.name));
        EffectiveFlags(flags)
    }

    /// Iterates over the flags in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = &EffectiveFlag> {
        self.0.iter()
    }

    /// Returns the flag of this name, without dashes.
    pub fn get(&self, name: &str) -> Option<&EffectiveFlag> {
        self.0.iter().find(|flag| flag.name == name)
    }
}

impl EffectiveFlag {
    fn new(flag: &Arg, matches: &ArgMatches) -> Option<EffectiveFlag> {
        // upstream: --help is listed.
        if matches!(flag.get_action(), ArgAction::HelpLong) && flag.get_long() != Some("help") {
            return None;
        }
        let id = flag.get_id().as_str();
        let values = matches.try_get_raw(id).ok()?.into_iter().flatten();
        Some(EffectiveFlag {
            name: flag.get_long()?.to_owned(),
            values: values.map(|value| value.to_string_lossy().into_owned()).collect(),
            is_list: matches!(flag.get_action(), ArgAction::Append),
            is_given: matches.value_source(id) == Some(ValueSource::CommandLine),
            is_of_provider: flag.get_help_heading() == Some(providers::flags::HEADING),
        })
    }

    /// Value as one text; a list is comma-separated, without brackets.
    pub fn text(&self) -> String {
        self.values.join(",")
    }
}

/// Log lines of all flags, as upstream writes them (FLAG-5).
pub fn log_lines(flags: &EffectiveFlags) -> Vec<String> {
    flags.iter().map(|flag| format!("FLAG: --{}={:?}", flag.name, shown(flag))).collect()
}

/// `/flagz` as text.
// upstream: other components have this page, the Go cloud controller managers do not. It picks a random separator against parsing.
pub fn flagz(flags: &EffectiveFlags) -> String {
    let lines = flags.iter().map(|flag| format!("{}={}\n", flag.name, shown(flag)));
    lines.fold(FLAGZ_HEAD.to_owned(), |page, line| page + &line)
}

const FLAGZ_HEAD: &str = "\ncloud-controller-manager flagz\n\
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging \
purposes only.\n";

/// `/flagz` as JSON.
// upstream: the type of this document in config.k8s.io.
pub fn flagz_json(flags: &EffectiveFlags) -> Value {
    let values: serde_json::Map<_, _> = flags.iter().map(|flag| (flag.name.clone(), shown(flag).into())).collect();
    json!({
        "kind": "Flagz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": { "name": "cloud-controller-manager" },
        "flags": values,
    })
}

/// Flags that are lists here and strings in Go, printed as strings.
const TEXTS_IN_GO: [&str; 4] = ["cloud-provider", "cloud-config", "feature-gates", "vmodule"];

/// Formats the value as Go prints it: a list is in brackets.
fn shown(flag: &EffectiveFlag) -> String {
    let in_brackets = flag.is_list && !TEXTS_IN_GO.contains(&flag.name.as_str());
    if in_brackets { format!("[{}]", flag.text()) } else { flag.text() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ManagerArgs;

    fn flags() -> EffectiveFlags {
        let arguments =
            ["bowline", "--cloud-provider=local", "-v=2", "--controllers=*", "--controllers=-route", "--webhooks="];
        ManagerArgs::of(arguments.map(Into::into).to_vec()).effective
    }

    #[test]
    fn flags_are_logged_as_go_logs_them() {
        let lines = log_lines(&flags());
        let expected = [
            "FLAG: --authorization-always-allow-paths=\"[/healthz,/readyz,/livez]\"",
            "FLAG: --cloud-provider=\"local\"",
            "FLAG: --controllers=\"[*,-route]\"",
            "FLAG: --kubeconfig=\"\"",
            "FLAG: --node-monitor-period=\"5s\"",
            "FLAG: --v=\"2\"",
            "FLAG: --webhooks=\"[]\"",
        ];
        let found: Vec<_> = lines.iter().filter(|line| expected.contains(&line.as_str())).collect();
        assert_eq!(found, expected, "{lines:#?}");
    }

    #[test]
    fn flagz_has_every_flag_once_with_its_value() {
        let (flags, page) = (flags(), flagz(&flags()));
        assert!(page.starts_with("\ncloud-controller-manager flagz\nWarning: "), "{page}");
        let lines: Vec<_> = page.lines().skip(3).collect();
        assert_eq!(lines.len(), flags.iter().count());
        assert!(lines.contains(&"controllers=[*,-route]") && lines.contains(&"secure-port=10258"));
        let document = flagz_json(&flags);
        assert_eq!((&document["kind"], &document["flags"]["v"]), (&"Flagz".into(), &"2".into()));
        assert_eq!(document["flags"].as_object().unwrap().len(), lines.len());
    }

    #[test]
    fn flags_that_are_set_are_distinguished_from_defaults() {
        let flags = flags();
        let given = |name: &str| flags.get(name).unwrap().is_given;
        assert!(given("v") && given("webhooks") && !given("secure-port") && !given("kubeconfig"));
    }
}
