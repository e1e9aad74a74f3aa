//! Syntax of gcfg, as in the Go library, and rules that all formats share.

mod both_formats;
mod yaml;

use std::time::Duration;

use proptest::prelude::*;

use super::{Example, Format, Section, Settings, Table, UnknownKeys, keys};
use crate::{ConfigErrors, ConfigFile, Environment, Secret};

keys! {
    /// For tests.
    #[derive(Debug, PartialEq)]
    struct Keys {
        text: String = "text" | "old-text" env "ACME_TEXT", "none", "For tests.";
        password: Secret = "password", "", "For tests.";
        flag: bool = "flag", "true", "For tests.";
        number: i64 = "number" env "ACME_NUMBER", "-2", "For tests.";
        count: u64 = "count", "3", "For tests.";
        time: Duration = "time", "5s", "For tests.";
        list: Vec<String> = "list" env "ACME_LIST", "", "For tests.";
    }
}

fn table() -> Table {
    let global = Section { obsolete_keys: &["use-octavia"], ..Section::of::<Keys>("Global", "Everything.") };
    let class = Section { named: true, ..Section::of::<Keys>("Class", "") };
    let sections = vec![global, class, Section::obsolete("BlockStorage")];
    Table { format: Format::Gcfg, unknown: UnknownKeys::Warn, sections }
}

fn file(text: &str) -> ConfigFile {
    ConfigFile::from_text("cloud.conf", text)
}

fn try_read(text: &str) -> Result<Settings, ConfigErrors> {
    table().read(Some(&file(text)), &Environment::default())
}

fn read(text: &str) -> Settings {
    try_read(text).unwrap()
}

fn errors(text: &str) -> ConfigErrors {
    try_read(text).unwrap_err()
}

fn global(text: &str) -> Keys {
    read(text).section("Global")
}

/// Returns the lines and fields of all errors.
fn locations(text: &str) -> Vec<(usize, String)> {
    let errors = errors(text);
    errors.iter().map(|one| (one.line.unwrap_or(0), one.field.clone().unwrap_or_default())).collect()
}

#[test]
fn values_are_parsed_as_in_git() {
    let cases = [
        ("text = a b", "a b"),
        ("text=a", "a"),
        ("\ttext \t= \t a \t", "a"),
        ("text =", ""),
        ("text = # nothing", ""),
        ("text = a ; rest", "a"),
        ("text = ab#cd", "ab"),
        ("text = \"a;b#c\"", "a;b#c"),
        ("text = \" a \"  # rest", " a "),
        ("text = \"a b\"c", "a bc"),
        ("text = a\"  \"b", "a  b"),
        ("text = \"ab#c\\\"d\\\\e\"", "ab#c\"d\\e"),
        ("text = \"a\\nb\\tc\"", "a\nb\tc"),
        ("text = a\\\"b", "a\"b"),
        ("text = a\\\n  b", "a  b"),
        ("text = a \\\nb", "a b"),
        ("text = a\\\r\nb\r", "ab"),
        ("text = a\rb", "ab"),
        ("text = $HOME", "$HOME"),
        ("text = ä ö", "ä ö"),
        ("text = [a] = b", "[a] = b"),
        ("TeXt = a", "a"),
        ("text = a\ntext = b", "b"),
        ("", "none"),
    ];
    for (line, value) in cases {
        assert_eq!(global(&format!("[Global]\n{line}\n")).text, value, "{line:?}");
        assert_eq!(global(&format!("[Global]\r\n{line}")).text, value, "{line:?}");
    }
}

#[test]
fn section_headers_may_have_whitespace_any_case_and_repetitions() {
    let text = "\u{feff}[ global ] # one\ntext = a\n[CLASS \"x\"]\ntext=c\n[Global]\nnumber = 1\n[class\"X\"];two\n\
                [class \"q\\\"\\\\\"]\nflag";
    let settings = read(text);
    let global: Keys = settings.section("Global");
    assert_eq!((global.text.as_str(), global.number), ("a", 1));
    let named: Vec<_> =
        settings.named("Class").into_iter().map(|(name, class): (_, Keys)| (name, class.text)).collect();
    assert_eq!(named, [("x", "c"), ("X", "none"), ("q\"\\", "none")].map(|(name, text)| (name, text.to_owned())));
    assert_eq!(settings.warnings(), []);
}

#[test]
fn values_are_converted_as_in_go() {
    let values = |line: &str| {
        let Keys { flag, number, count, time, .. } = global(&format!("[Global]\n{line}\n"));
        (flag, number, count, time.as_millis())
    };
    let cases = [
        ("", (true, -2, 3, 5000)),
        ("flag", (true, -2, 3, 5000)),
        ("flag = off\nflag", (true, -2, 3, 5000)),
        ("flag = No", (false, -2, 3, 5000)),
        ("flag = \"0\"", (false, -2, 3, 5000)),
        ("number = +7", (true, 7, 3, 5000)),
        ("number = -0x1f", (true, -31, 3, 5000)),
        ("number = \" 010 \"", (true, 10, 3, 5000)),
        ("count = 0x10", (true, -2, 16, 5000)),
        ("time = 1m30s", (true, -2, 3, 90_000)),
        ("time = 1500ms", (true, -2, 3, 1500)),
        ("time = 0", (true, -2, 3, 0)),
    ];
    for (line, expected) in cases {
        assert_eq!(values(line), expected, "{line:?}");
    }
    assert_eq!(global("[Global]\nTIME = 0.5h").time, Duration::from_secs(1800));
}

#[test]
fn a_list_grows_with_each_line_and_a_key_without_a_value_clears_it() {
    let list = |text: &str| global(&format!("[Global]\n{text}")).list;
    assert_eq!(list("list = a\nlist = b\n[Class \"x\"]\nlist = c\n[Global]\nlist = d"), ["a", "b", "d"]);
    assert_eq!(list("list = a\nlist\nlist = b"), ["b"]);
    assert_eq!(list("list ="), [""]);
    assert!(list("").is_empty());
}

#[test]
fn errors_have_line_key_and_hint() {
    let cases = [
        ("text = a", 1, "text", "outside any section", "[Global]"),
        ("[Global]\nfloating_network_id = x", 2, "[Global] floating_network_id", "'_'", "write floating-network-id"),
        (
            "[Global]\n\npassword = ab\\cd",
            3,
            "[Global] password",
            "backslash outside quotes",
            "write the backslash as \\\\",
        ),
        ("[Global]\npassword = ab\\", 2, "[Global] password", "backslash outside quotes", "quotes"),
        (
            "[Global]\npassword = \"ab\\cd\"",
            2,
            "[Global] password",
            "invalid escape sequence",
            "\\\\, \\\", \\n or \\t",
        ),
        ("[Global]\npassword = \"ab\ncd\"", 2, "[Global] password", "not closed on its line", "close it"),
        ("[Global]\npassword = \"ab", 2, "[Global] password", "not closed on its line", "close it"),
        ("[Global]\npassword = \"ab\\\ncd\"", 2, "[Global] password", "invalid escape sequence", "inside quotes"),
        ("[Global]\ntext a", 2, "[Global] text", "expected '='", "key = value"),
        ("[Global]\nte.xt = a", 2, "[Global] te", "expected '='", "key = value"),
        ("[Global]\n1text = a", 2, "", "cannot begin with '1'", "[Section]"),
        ("[Global]\n= a", 2, "", "cannot begin with '='", "[Section]"),
        ("[Global]\n\"text\" = a", 2, "", "cannot begin with '\"'", "[Section]"),
        ("[a.b]\ntext = a", 1, "", "a name of letters, digits and '-'", "[Name]"),
        ("[a_b]", 1, "", "a name of letters, digits and '-'", "[Name]"),
        ("[a \"\"]", 1, "", "is empty", "between the quotes"),
        ("[a \"b\" \"c\"]", 1, "", "at most one quoted subsection name", "[Name \"subsection\"]"),
        ("[a \"b", 1, "", "not closed on its line", "close it"),
        ("[a \"b\\n\"]", 1, "", "invalid escape sequence", "subsection name"),
        ("[]", 1, "", "must begin with a letter", "[Name]"),
        ("[1]", 1, "", "must begin with a letter", "[Name]"),
        ("[Global", 1, "", "at most one quoted subsection name", "[Name]"),
        ("[Global\n]", 1, "", "at most one quoted subsection name", "[Name]"),
        ("[Global] text = a", 1, "", "unexpected text after", "next line"),
        ("[Global]\n# a\0b", 2, "", "NUL byte", "plain text"),
        ("[Global]\ntext = a\\\nb\\c", 3, "[Global] text", "backslash outside quotes", "quotes"),
        ("[Global]\ntext", 2, "[Global] text", "has no value", "write = and a string"),
        ("[Global]\nnumber", 2, "[Global] number", "has no value", "a whole number"),
        ("[Global]\ntime", 2, "[Global] time", "has no value", "30s"),
        ("[Global]\nflag = ja", 2, "[Global] flag", "\"ja\" is neither", "true or false"),
        ("[Global]\nflag =", 2, "[Global] flag", "neither", "true or false"),
        ("[Global]\nflag = \" true\"", 2, "[Global] flag", "neither", "true or false"),
        ("[Global]\nnumber = 5x", 2, "[Global] number", "\"5x\" is not a whole number", "write a whole number"),
        ("[Global]\nnumber = 0X5", 2, "[Global] number", "not a whole number", "write a whole number"),
        ("[Global]\nnumber = 1.5", 2, "[Global] number", "not a whole number", "write a whole number"),
        ("[Global]\nnumber = 9223372036854775808", 2, "[Global] number", "too large", "write a whole number"),
        ("[Global]\nnumber =", 2, "[Global] number", "not a whole number", "write a whole number"),
        ("[Global]\ncount = -1", 2, "[Global] count", "not a whole number", "not negative"),
        ("[Global]\ncount = +1", 2, "[Global] count", "not a whole number", "not negative"),
        ("[Global]\ntime = 10", 2, "[Global] time", "\"10\" has no unit", "write 10s"),
        ("[Global]\ntime = 1d", 2, "[Global] time", "not a duration", "24h"),
        ("[Global]\ntime =", 2, "[Global] time", "not a duration", "expected"),
        ("[Class \"DMZ\"]\nflag = ja", 2, "[Class \"DMZ\"] flag", "neither", "true or false"),
        ("[Global]\nflag = ja\nflag = true", 2, "[Global] flag", "neither", "true or false"),
        ("[global]\nFLAG = ja", 2, "[Global] flag", "neither", "true or false"),
    ];
    for (text, line, field, message, hint) in cases {
        let errors = errors(text);
        let error = errors.iter().next().unwrap();
        assert_eq!(error.file.as_deref(), Some(std::path::Path::new("cloud.conf")), "{text:?}");
        assert_eq!((error.line, error.field.as_deref().unwrap_or_default()), (Some(line), field), "{text:?}");
        assert!(error.message.contains(message), "{text:?}: {error}");
        assert!(error.hint.as_deref().is_some_and(|text| text.contains(hint)), "{text:?}: {error}");
        assert!(!error.to_string().contains("cd"), "a password is not printed: {error}");
    }
}

#[test]
fn all_errors_are_reported_at_once() {
    let syntax = "text = a\n[a.b]\nx = 1\n[Global]\na_b = 1\ntext = \"x\nflag = ja\n";
    let expected = [(1, "text"), (2, ""), (5, "[Global] a_b"), (6, "[Global] text"), (7, "[Global] flag")];
    assert_eq!(locations(syntax), expected.map(|(line, field)| (line, field.to_owned())));
    let values = "[Global]\nflag = ja\n[Class \"b\"]\ntime = 5\nnumber = x\n";
    let expected = [(2, "[Global] flag"), (4, "[Class \"b\"] time"), (5, "[Class \"b\"] number")];
    assert_eq!(locations(values), expected.map(|(line, field)| (line, field.to_owned())));
}

#[test]
fn an_invalid_value_has_the_default_for_further_checks() {
    let text = "[Global]\nflag = ja\nnumber = x\ncount = -1\ntime = 9\n";
    let check = |text| table().check(Some(&file(text)), &Environment::default());
    let (settings, errors) = check(text).unwrap();
    assert_eq!((settings.section::<Keys>("Global"), errors.iter().count()), (Keys::default(), 4));
    assert!(check("[Global\nflag = ja\n").is_err(), "a syntax error returns no settings");
}

#[test]
fn unknown_names_are_warnings_with_the_most_similar_name() {
    let text = "[Globl]\nflag = ja\n[Global]\ntxet = a\nuse-octavia = maybe\n[Global \"x\"]\nflag = ja\n\
                [BlockStorage]\nbs-version = v3\n[Class]\ntext = a\n[Elsewhere]\nkey\n";
    let warnings: Vec<_> = read(text).warnings().iter().map(ToString::to_string).collect();
    let expected = [
        "cloud.conf:1: [Globl]: unknown section, ignored; did you mean [Global]?",
        "cloud.conf:4: [Global] txet: unknown key, ignored; did you mean text?",
        "cloud.conf:6: [Global \"x\"]: the section takes no subsection name, and is ignored; write [Global]",
        "cloud.conf:10: [Class]: the subsection name is missing, so nothing can refer to the section; write [Class \"name\"]",
        "cloud.conf:12: [Elsewhere]: unknown section, ignored",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn an_error_for_a_key_points_to_its_last_occurrence() {
    let settings = read("[Global]\ntext = a\n\ntext = b\n[Class \"x\"]\n");
    let view = settings.view("Global");
    assert_eq!(view.error(&Keys::text, "is wrong").to_string(), "cloud.conf:4: [Global] text: is wrong");
    assert_eq!(view.error(&Keys::flag, "is missing").to_string(), "cloud.conf: [Global] flag: is missing");
    assert!(view.has(&Keys::text) && !view.has(&Keys::flag));
}

#[test]
fn values_are_never_printed() {
    let settings = read("[Global]\npassword = s3cr3t\n");
    let printed = format!("{settings:?} {:?}", settings.section::<Keys>("Global"));
    assert!(!printed.contains("s3cr3t"), "{printed}");
}

#[test]
fn the_reference_has_a_row_for_each_key() {
    let page = table().reference();
    assert!(page.contains("## `[Global]`\n\nEverything.\n"), "{page}");
    assert!(page.contains("## `[Class \"name\"]`") && !page.contains("BlockStorage"), "{page}");
    assert!(page.contains("| `time` |  | duration | `5s` | For tests. |"), "{page}");
    assert!(page.contains("| `text`, `old-text` | `ACME_TEXT` | string | `none` | For tests. |"), "{page}");
}

#[test]
fn an_alias_is_equivalent_and_the_last_occurrence_counts() {
    assert_eq!(global("[Global]\nOld-Text = a").text, "a");
    assert_eq!(global("[Global]\ntext = a\nold-text = b").text, "b");
    assert_eq!(read("[Global]\nold-text = a").warnings(), []);
}

#[test]
fn the_environment_takes_precedence_over_the_file_and_is_validated() {
    let read = |variables: &[(&str, &str)], text: Option<&str>| {
        let environment = variables.iter().copied().collect();
        table().read(text.map(file).as_ref(), &environment).map(|settings| settings.section::<Keys>("Global"))
    };
    let file = "[Global]\ntext = a\nlist = x\n";
    let both = read(&[("ACME_TEXT", "b"), ("ACME_NUMBER", ""), ("ACME_LIST", "y, z")], Some(file)).unwrap();
    assert_eq!((both.text.as_str(), both.number, both.list), ("b", -2, vec!["y".to_owned(), "z".to_owned()]));
    assert_eq!(read(&[], Some(file)).unwrap().text, "a");
    assert_eq!(read(&[("ACME_NUMBER", "7")], None).unwrap().number, 7, "without a file");
    let errors = read(&[("ACME_NUMBER", "many")], None).unwrap_err();
    assert_eq!(errors.to_string(), "ACME_NUMBER: \"many\" is not a whole number, or too large; write a whole number");
}

#[test]
fn unknown_keys_are_errors_if_the_go_program_rejects_them() {
    let strict = Table { unknown: UnknownKeys::Reject, ..table() };
    let errors = strict.read(Some(&file("[Global]\ntxet = a\n[Globl]\n")), &Environment::default()).unwrap_err();
    let expected = [
        "cloud.conf:2: [Global] txet: unknown key; did you mean text?",
        "cloud.conf:3: [Globl]: unknown section; did you mean Global?",
    ];
    assert_eq!(errors.to_string(), expected.join("\n"));
}

keys! {
    /// For tests.
    #[derive(Debug, PartialEq)]
    struct Variables {
        steps: u64 = "ACME_STEPS", "23", "Number of steps.";
    }
}

fn with_variables() -> Table {
    let sections = [table().sections, vec![Section::environment::<Variables>("No other is read.")]].concat();
    Table { sections, ..table() }
}

#[test]
fn environment_variables_without_a_key_are_declared_validated_and_documented() {
    let read = |value: &str, text: &str| {
        let environment = [("ACME_STEPS", value)].into_iter().collect();
        with_variables().read(Some(&file(text)), &environment)
    };
    let steps = |settings: Settings| settings.section::<Variables>(Section::ENVIRONMENT).steps;
    assert_eq!((steps(read("30", "").unwrap()), steps(read("", "").unwrap())), (30, 23));
    let error = read("many", "").unwrap_err().to_string();
    assert!(error.starts_with("ACME_STEPS: \"many\" is not a whole number"), "{error}");
    let in_file = read("", "[environment]\nACME-STEPS = 1\n").unwrap();
    assert_eq!((in_file.warnings().len(), steps(in_file)), (1, 23), "no file sets it");
    let page = with_variables().reference();
    let expected = "## Environment variables\n\nNo other is read.\n\n| variable | type | default | meaning |\n|---|---|---|---|\n\
                    | `ACME_STEPS` | integer, not negative | `23` | Number of steps. |\n";
    assert!(page.contains(expected), "{page}");
}

#[test]
fn a_key_has_its_names_in_a_second_file() {
    keys! {
        /// For tests.
        struct Two {
            region: String = "region" or "region_name" or "area", "north", "Where it is.";
            other: String = "other", "", "Something else.";
        }
    }
    let section = Section::of::<Two>("Global", "");
    let second: Vec<_> = section.second().map(|(here, key)| (here.name, here.default, key.name)).collect();
    assert_eq!(second, [("region_name", "", "region"), ("area", "", "region")]);
    let Two { region, other } = Two::default();
    assert_eq!((region.as_str(), other.as_str()), ("north", ""));
}

#[test]
fn a_template_shows_keys_below_their_descriptions() {
    let shown = [Example::Set(Keys::text, "a"), Example::Optional(Keys::number, "7")];
    let template = table().template(&[("Global", &shown)]);
    let (text, number) = (Keys::text.doc, Keys::number.doc);
    assert!(template.starts_with("# Quote values that contain # ; \" or \\.\n\n# "), "{template}");
    assert!(template.ends_with(&format!("[Global]\n# {text}\ntext = a\n# {number}\n#number = 7\n")), "{template}");
    assert_eq!((global(&template).text.as_str(), global(&template).number), ("a", -2));
}

/// Quotes a value as the Helm chart does.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
    format!("\"{escaped}\"")
}

proptest! {
    #[test]
    fn parsing_never_panics_and_errors_have_line_and_hint(text in "(?s)([\\[\\]\"\\\\=#;_ a\n\r\t\u{0}ü-]|Global|flag|time){0,40}") {
        let whole = try_read(&text);
        let below = try_read(&format!("[Global]\n{text}"));
        for errors in [whole.err(), below.err()].into_iter().flatten() {
            prop_assert!(errors.iter().all(|error| error.line.is_some() && error.hint.is_some()));
        }
    }

    #[test]
    fn quoted_values_round_trip(text in "[^\\r\\x00]*") {
        prop_assert_eq!(global(&format!("[Global]\ntext = {} # rest\n", quoted(&text))).text, text);
    }

    #[test]
    fn lines_are_counted_by_their_ends(before in "([# a\r]*\n){0,9}") {
        let errors = errors(&format!("[Global]\n{}flag = ja", before.replace('a', "# a")));
        let lines: Vec<_> = errors.iter().map(|error| error.line).collect();
        prop_assert_eq!(lines, [Some(before.matches('\n').count() + 2)]);
    }
}
