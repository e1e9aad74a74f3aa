//! Flags of the controller `tagging`.

use bowline_cloud::{FlagSyntax, FlagValues, ProviderFlag};
use bowline_config::{ConfigError, ConfigErrors};

use crate::api::Tags;

/// Name of the controller in `--controllers`, which must be listed to be enabled.
pub(crate) const CONTROLLER: &str = "tagging";

/// The only kind of resource that is tagged.
const INSTANCE: &str = "instance";

const fn flag(name: &'static str, value: &'static str, default: &'static str, summary: &'static str) -> ProviderFlag {
    ProviderFlag { name, value, default, summary, syntax: FlagSyntax::Single }
}

const TAGS: ProviderFlag = ProviderFlag {
    syntax: FlagSyntax::Repeated,
    ..flag("tags", "KEY=VALUE,…", "", "AWS: tags that the controller tagging adds to the instances of Nodes.")
};
const RESOURCES: ProviderFlag = ProviderFlag {
    syntax: FlagSyntax::Repeated,
    ..flag("resources", "KIND", "", "AWS: kind of resources that the controller tagging tags: instance.")
};
const RATE: ProviderFlag = flag(
    "tagging-controller-rate-limit",
    "N",
    "0",
    "AWS: steady-state number of calls per second of the controller tagging. No limit without the burst limit.",
);
const BURST: ProviderFlag = flag(
    "tagging-controller-burst-limit",
    "N",
    "0",
    "AWS: burst of calls of the controller tagging. No limit without the rate limit.",
);
const SYNCS: ProviderFlag = flag(
    "tagging-controller-concurrent-node-syncs",
    "N",
    "1",
    "AWS: no effect, because the controller tagging changes many instances per call.",
);
const BATCHING: ProviderFlag = ProviderFlag {
    syntax: FlagSyntax::Switch,
    ..flag(
        "tagging-controller-enable-batching",
        "",
        "false",
        "AWS: no effect, because the controller tagging always changes many instances per call.",
    )
};

/// All flags.
pub(crate) const FLAGS: &[ProviderFlag] = &[TAGS, RESOURCES, RATE, BURST, SYNCS, BATCHING];

/// Options of the controller.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    /// Tags of instances.
    pub(crate) tags: Tags,
    /// Calls per second, and burst; `None` for no limit.
    pub(crate) rate: Option<(f64, u32)>,
}

impl Options {
    /// Reads the flags; `None` if the controller is disabled, and then the flags are not checked.
    pub(crate) fn read(flags: &FlagValues) -> Result<Option<Options>, ConfigErrors> {
        if !flags.has_controller(CONTROLLER) {
            return Ok(None);
        }
        let mut errors = ConfigErrors::new();
        let mut failed = |why: String| {
            errors.push(ConfigError::new(format!("Tagging controller inputs are not properly set: {why}")));
        };
        let tags = tags(&flags.all(&TAGS)).map_err(&mut failed).unwrap_or_default();
        check_resources(&flags.all(&RESOURCES)).err().into_iter().for_each(&mut failed);
        let rate = number(flags, &RATE, 0.0).map_err(&mut failed).unwrap_or_default();
        let burst = number(flags, &BURST, 0_i64).map_err(&mut failed).unwrap_or_default();
        if number(flags, &SYNCS, i64::MIN).map_err(&mut failed).is_ok_and(|syncs| syncs < 1) {
            failed(format!("--{} must be a positive number", SYNCS.name));
        }
        let rate = u32::try_from(burst).ok().filter(|burst| rate > 0.0 && *burst > 0).map(|burst| (rate, burst));
        if errors.is_empty() { Ok(Some(Options { tags, rate })) } else { Err(errors) }
    }
}

/// Parses tags: `KEY=VALUE`, or several with commas between them.
fn tags(values: &[&str]) -> Result<Tags, String> {
    let mut tags = Tags::new();
    for value in values {
        // upstream: a comma does not separate tags if there is only one `=`.
        let items =
            if value.matches('=').count() == 1 { vec![value.trim_matches('"').to_owned()] } else { fields(value) };
        for item in items {
            let (key, value) = item.split_once('=').ok_or_else(|| format!("{item} must be formatted as key=value"))?;
            tags.insert(key.to_owned(), value.to_owned());
        }
    }
    let missing = || "--tags must not be empty and must be a form of key=value".to_owned();
    if tags.is_empty() { Err(missing()) } else { Ok(tags) }
}

/// Splits a line of CSV: a field in quotes may contain commas, and two quotes for one.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' if is_quoted && rest.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if is_quoted || field.is_empty() => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

fn check_resources(resources: &[&str]) -> Result<(), String> {
    if resources.is_empty() {
        return Err("--resources must not be empty".to_owned());
    }
    let other = resources.iter().find(|resource| **resource != INSTANCE);
    other.map_or(Ok(()), |other| {
        Err(format!("{other} is not a supported resource. Current supported resources [{INSTANCE}]"))
    })
}

/// Parses a number that is not below `least`.
fn number<T: std::str::FromStr + PartialOrd>(flags: &FlagValues, flag: &ProviderFlag, least: T) -> Result<T, String> {
    let text = flags.last(flag);
    let number = text.parse::<T>().map_err(|_| format!("invalid argument {text:?} for \"--{}\" flag", flag.name))?;
    if number >= least { Ok(number) } else { Err(format!("--{} should not be less than zero", flag.name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads flags in the form `NAME=VALUE`.
    fn read(flags: &[&str]) -> Result<Option<Options>, String> {
        let mut values = std::collections::BTreeMap::<String, Vec<String>>::new();
        for (name, value) in flags.iter().filter_map(|flag| flag.split_once('=')) {
            values.entry(name.to_owned()).or_default().push(value.to_owned());
        }
        Options::read(&FlagValues::new(values).with_controllers([CONTROLLER])).map_err(|errors| errors.to_string())
    }

    fn tags_of(pairs: &[(&str, &str)]) -> Tags {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn flags_are_not_checked_while_the_controller_is_disabled() {
        let flags = FlagValues::new([("resources".to_owned(), vec!["volume".to_owned()])]);
        assert_eq!(Options::read(&flags), Ok(None));
    }

    #[test]
    fn tags_are_separated_by_commas_or_flags() {
        for (flags, expected) in [
            (&["tags=a=1,b=2"][..], &[("a", "1"), ("b", "2")][..]),
            (&["tags=a=1", "tags=b=2"], &[("a", "1"), ("b", "2")]),
            (&["tags=a=1", "tags=a=2"], &[("a", "2")]),
            (&["tags=a=1,2"], &[("a", "1,2")]),
            (&["tags=a="], &[("a", "")]),
            (&["tags=a=b=c,d=1"], &[("a", "b=c"), ("d", "1")]),
            (&["tags=\"a=1,2\",b=\"3"], &[("a", "1,2"), ("b", "\"3")]),
        ] {
            let flags = [flags, &["resources=instance"]].concat();
            assert_eq!(read(&flags), Ok(Some(Options { tags: tags_of(expected), rate: None })), "{flags:?}");
        }
    }

    #[test]
    fn both_limits_are_needed() {
        for (limits, expected) in [
            (&["tagging-controller-rate-limit=5", "tagging-controller-burst-limit=10"][..], Some((5.0, 10))),
            (&["tagging-controller-rate-limit=5"], None),
            (&["tagging-controller-burst-limit=10"], None),
        ] {
            let flags = [limits, &["tags=a=1", "resources=instance"]].concat();
            assert_eq!(read(&flags).unwrap().unwrap().rate, expected, "{limits:?}");
        }
    }

    #[test]
    fn invalid_flags_are_reported_with_the_texts_of_the_go_manager() {
        let valid = ["tags=a=1", "resources=instance"];
        for (flags, expected) in [
            (vec!["resources=instance"], "--tags must not be empty and must be a form of key=value"),
            (vec!["tags=a", "resources=instance"], "a must be formatted as key=value"),
            (vec!["tags=a=1,b=2,c", "resources=instance"], "c must be formatted as key=value"),
            (vec!["tags=a=1"], "--resources must not be empty"),
            (
                vec!["tags=a=1", "resources=instance", "resources=volume"],
                "volume is not a supported resource. Current supported resources [instance]",
            ),
            (
                [&valid[..], &["tagging-controller-rate-limit=-1"]].concat(),
                "--tagging-controller-rate-limit should not be less than zero",
            ),
            (
                [&valid[..], &["tagging-controller-burst-limit=-1"]].concat(),
                "--tagging-controller-burst-limit should not be less than zero",
            ),
            (
                [&valid[..], &["tagging-controller-concurrent-node-syncs=0"]].concat(),
                "--tagging-controller-concurrent-node-syncs must be a positive number",
            ),
            (
                [&valid[..], &["tagging-controller-concurrent-node-syncs=x"]].concat(),
                "invalid argument \"x\" for \"--tagging-controller-concurrent-node-syncs\" flag",
            ),
        ] {
            let error = read(&flags).unwrap_err();
            let expected = format!("Tagging controller inputs are not properly set: {expected}");
            assert_eq!(error, expected, "{flags:?}");
        }
        assert_eq!(read(&[]).unwrap_err().lines().count(), 2, "all errors at once");
    }
}
