//! Declarations of programs that read both YAML and gcfg.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::*;

keys! {
    /// For tests.
    #[derive(Debug, PartialEq)]
    struct Shared {
        ca_file: String = "caFile" gcfg "ca-file" env "ACME_CA", "", "CA certificates.";
        tags: BTreeMap<String, String> = "tags", "", "For tests.";
        tries: Option<NonZeroU64> = "tries", "", "For tests.";
    }
}

fn check(format: Format, text: &str) -> Result<Settings, String> {
    let zone = Section { named: true, ..Section::of::<Shared>("zone", "For tests.") };
    let table =
        Table { format, unknown: UnknownKeys::Warn, sections: vec![Section::of::<Shared>("all", "All zones."), zone] };
    table.read(Some(&file(text)), &Environment::default()).map_err(|errors| errors.to_string())
}

fn all(format: Format, text: &str) -> Shared {
    check(format, text).unwrap().section("all")
}

#[test]
fn a_key_has_another_name_in_gcfg_which_yaml_accepts_as_well() {
    let expected = Shared { ca_file: "/ca".to_owned(), ..Shared::default() };
    for (format, text) in [
        (Format::Gcfg, "[all]\nCA-File = /ca"),
        (Format::Yaml, "all: {caFile: /ca}"),
        (Format::Yaml, "all: {ca-file: /ca}"),
    ] {
        let settings = check(format, text).unwrap();
        assert_eq!(settings.section::<Shared>("all"), expected, "{text}");
        assert!(settings.warnings().is_empty(), "{text}");
    }
    let settings = check(Format::Gcfg, "[all]\ncaFile = /ca\n").unwrap();
    assert_eq!(settings.section::<Shared>("all"), Shared::default());
    assert!(settings.warnings()[0].to_string().ends_with("[all] caFile: unknown key, ignored; did you mean ca-file?"));
    let error = |format| check(format, "").unwrap().view("all").error(&Shared::ca_file, "x").field;
    assert_eq!(
        (error(Format::Gcfg).as_deref(), error(Format::Yaml).as_deref()),
        (Some("[all] ca-file"), Some("all.caFile"))
    );
    assert_eq!(
        check(Format::Gcfg, "[all]\nca-file\n").unwrap_err().split(';').next(),
        Some("cloud.conf:2: [all] ca-file: has no value")
    );
}

#[test]
fn a_mapping_of_strings_is_a_json_object_in_gcfg() {
    let expected = BTreeMap::from([("a b".to_owned(), "1".to_owned()), ("c".to_owned(), "\"x\"".to_owned())]);
    let gcfg = "[all]\ntags = {\\\"a b\\\": \\\"1\\\", \\\"c\\\": \"\\\"\\\\\\\"x\\\\\\\"\\\"\"}\n";
    assert_eq!(all(Format::Gcfg, gcfg).tags, expected);
    assert_eq!(all(Format::Yaml, "all:\n  tags:\n    a b: 1\n    c: '\"x\"'\n").tags, expected);
    assert_eq!(all(Format::Gcfg, "[all]\ntags = \"\"\n").tags, BTreeMap::new());
    assert_eq!(all(Format::Yaml, "all: {tags: }\n").tags, BTreeMap::new());
    for (format, text, message) in [
        (Format::Gcfg, "[all]\ntags = a\n", "cloud.conf:2: [all] tags: is not a JSON object of strings"),
        (Format::Gcfg, "[all]\ntags = {\\\"a\\\": 1}\n", "cloud.conf:2: [all] tags: is not a JSON object of strings"),
        (Format::Yaml, "all: {tags: a}\n", "cloud.conf:1: all.tags: expected a mapping of strings"),
        (Format::Yaml, "all: {tags: [a]}\n", "cloud.conf:1: all.tags: expected a mapping of strings"),
        (Format::Yaml, "all:\n  tags: {a: {b: c}}\n", "cloud.conf:2: all.tags: is not a mapping of strings"),
    ] {
        let error = check(format, text).unwrap_err();
        assert!(error.starts_with(message), "{text}: {error}");
    }
}

#[test]
fn zero_and_in_gcfg_an_empty_text_mean_the_default_of_a_count() {
    for (format, text, expected) in [
        (Format::Gcfg, "[all]\ntries = \"\"\n", None),
        (Format::Gcfg, "[all]\ntries = 0\n", None),
        (Format::Gcfg, "[all]\ntries = 0x10\n", NonZeroU64::new(16)),
        (Format::Yaml, "all: {tries: 0}", None),
        (Format::Yaml, "all: {tries: 7}", NonZeroU64::new(7)),
    ] {
        assert_eq!(all(format, text).tries, expected, "{text}");
    }
    for (format, text) in [
        (Format::Gcfg, "[all]\ntries = -1"),
        (Format::Yaml, "all: {tries: \"\"}"),
        (Format::Yaml, "all: {tries: \"1\"}"),
    ] {
        assert!(check(format, text).unwrap_err().contains("a whole number"), "{text}");
    }
}

#[test]
fn a_subsection_may_be_empty_and_needs_a_name() {
    let settings = check(Format::Yaml, "zone:\n  a:\n  b: {}\n").unwrap();
    assert_eq!(settings.named::<Shared>("zone"), [("a", Shared::default()), ("b", Shared::default())]);
    assert_eq!(settings.views("zone")[0].1.error(&Shared::tries, "x").field.as_deref(), Some("zone.a.tries"));
    let warning = |format, text| check(format, text).unwrap().warnings()[0].to_string();
    assert!(warning(Format::Yaml, "zone: {tries: 1}").ends_with("; write the keys below zone.NAME"));
    assert!(warning(Format::Gcfg, "[zone]\n").ends_with("; write [zone \"name\"]"));
}

#[test]
fn a_document_of_sections_has_no_keys_of_its_own() {
    let settings = check(Format::Yaml, "a: 1\nal: {tries: 1}\n").unwrap();
    let warnings: Vec<_> = settings.warnings().iter().map(ToString::to_string).collect();
    let expected =
        ["cloud.conf:1: a: unknown key, ignored", "cloud.conf:2: al: unknown section, ignored; did you mean all?"];
    assert_eq!(warnings, expected);
    let error = check(Format::Yaml, "all: 1\n").unwrap_err();
    assert_eq!(error, "cloud.conf:1: all: expected a mapping; write key: value below it");
}

#[test]
fn a_template_has_the_names_of_its_format() {
    let shown = [Example::Set(Shared::ca_file, "/ca"), Example::Optional(Shared::tries, "2")];
    for (format, expected) in [
        (
            Format::Yaml,
            "# For tests.\nzone:\n  north:\n    # CA certificates.\n    caFile: /ca\n    # For tests.\n#    tries: 2\n",
        ),
        (Format::Gcfg, "# For tests.\n[zone \"north\"]\n# CA certificates.\nca-file = /ca\n# For tests.\n#tries = 2\n"),
    ] {
        let zone = Section { named: true, ..Section::of::<Shared>("zone", "For tests.") };
        let table = Table { format, unknown: UnknownKeys::Warn, sections: vec![zone] };
        let template = table.template(&[("zone.north", &shown)]);
        assert!(template.ends_with(expected), "{template}");
        assert!(table.reference().contains("| `caFile`, `ca-file` | `ACME_CA` | string |"), "{}", table.reference());
    }
}
