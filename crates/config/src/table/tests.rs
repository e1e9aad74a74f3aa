//! The rules of gcfg, one by one, as the Go library has them, and the rules that all formats share.

mod yaml;

use std::time::Duration;

use proptest::prelude::*;

use super::{Example, Format, Section, Settings, Table, Unknown, keys};
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
    let global = Section { former: &["use-octavia"], ..Section::of::<Keys>("Global", "Everything.") };
    let class = Section { named: true, ..Section::of::<Keys>("Class", "") };
    let sections = vec![global, class, Section::retired("BlockStorage")];
    Table { format: Format::Gcfg, unknown: Unknown::Warn, sections }
}

fn file(text: &str) -> ConfigFile {
    ConfigFile::from_text("cloud.conf", text)
}

fn attempt(text: &str) -> Result<Settings, ConfigErrors> {
    table().read(Some(&file(text)), &Environment::default())
}

fn read(text: &str) -> Settings {
    attempt(text).unwrap()
}

fn errors(text: &str) -> ConfigErrors {
    attempt(text).unwrap_err()
}

fn global(text: &str) -> Keys {
    read(text).section("Global")
}

/// The lines and fields of all problems.
fn places(text: &str) -> Vec<(usize, String)> {
    let errors = errors(text);
    errors.iter().map(|one| (one.line.unwrap_or(0), one.field.clone().unwrap_or_default())).collect()
}

#[test]
fn values_are_read_as_git_reads_them() {
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
fn heads_of_sections_may_have_blanks_and_any_case_and_come_again() {
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
fn types_are_those_of_go() {
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
fn a_list_grows_with_each_line_and_a_key_alone_empties_it() {
    let list = |text: &str| global(&format!("[Global]\n{text}")).list;
    assert_eq!(list("list = a\nlist = b\n[Class \"x\"]\nlist = c\n[Global]\nlist = d"), ["a", "b", "d"]);
    assert_eq!(list("list = a\nlist\nlist = b"), ["b"]);
    assert_eq!(list("list ="), [""]);
    assert!(list("").is_empty());
}

#[test]
fn what_cannot_be_read_is_told_with_line_key_and_way_out() {
    let cases = [
        ("text = a", 1, "text", "before any section", "[Global]"),
        ("[Global]\nfloating_network_id = x", 2, "[Global] floating_network_id", "'_'", "write floating-network-id"),
        (
            "[Global]\n\npassword = ab\\cd",
            3,
            "[Global] password",
            "backslash outside quotes",
            "write the backslash as \\\\",
        ),
        ("[Global]\npassword = ab\\", 2, "[Global] password", "backslash outside quotes", "quotes"),
        ("[Global]\npassword = \"ab\\cd\"", 2, "[Global] password", "escapes nothing", "\\\\, \\\", \\n or \\t"),
        ("[Global]\npassword = \"ab\ncd\"", 2, "[Global] password", "does not end on its line", "close it"),
        ("[Global]\npassword = \"ab", 2, "[Global] password", "does not end on its line", "close it"),
        ("[Global]\npassword = \"ab\\\ncd\"", 2, "[Global] password", "escapes nothing", "inside quotes"),
        ("[Global]\ntext a", 2, "[Global] text", "no '='", "key = value"),
        ("[Global]\nte.xt = a", 2, "[Global] te", "no '='", "key = value"),
        ("[Global]\n1text = a", 2, "", "cannot begin with '1'", "[Section]"),
        ("[Global]\n= a", 2, "", "cannot begin with '='", "[Section]"),
        ("[Global]\n\"text\" = a", 2, "", "cannot begin with '\"'", "[Section]"),
        ("[a.b]\ntext = a", 1, "", "a name of letters, digits and '-'", "[Name]"),
        ("[a_b]", 1, "", "a name of letters, digits and '-'", "[Name]"),
        ("[a \"\"]", 1, "", "is empty", "between the quotes"),
        ("[a \"b\" \"c\"]", 1, "", "at most one quoted name", "[Name \"own name\"]"),
        ("[a \"b", 1, "", "does not end on its line", "close it"),
        ("[a \"b\\n\"]", 1, "", "escapes nothing", "section's name"),
        ("[]", 1, "", "begins with a letter", "[Name]"),
        ("[1]", 1, "", "begins with a letter", "[Name]"),
        ("[Global", 1, "", "at most one quoted name", "[Name]"),
        ("[Global\n]", 1, "", "at most one quoted name", "[Name]"),
        ("[Global] text = a", 1, "", "something follows", "next line"),
        ("[Global]\n# a\0b", 2, "", "zero byte", "plain text"),
        ("[Global]\ntext = a\\\nb\\c", 3, "[Global] text", "backslash outside quotes", "quotes"),
        ("[Global]\ntext", 2, "[Global] text", "has no value", "write = and a text"),
        ("[Global]\nnumber", 2, "[Global] number", "has no value", "a whole number"),
        ("[Global]\ntime", 2, "[Global] time", "has no value", "30s"),
        ("[Global]\nflag = ja", 2, "[Global] flag", "\"ja\" is neither", "true or false"),
        ("[Global]\nflag =", 2, "[Global] flag", "neither", "true or false"),
        ("[Global]\nflag = \" true\"", 2, "[Global] flag", "neither", "true or false"),
        ("[Global]\nnumber = 5x", 2, "[Global] number", "\"5x\" is no whole number", "write a whole number"),
        ("[Global]\nnumber = 0X5", 2, "[Global] number", "no whole number", "write a whole number"),
        ("[Global]\nnumber = 1.5", 2, "[Global] number", "no whole number", "write a whole number"),
        ("[Global]\nnumber = 9223372036854775808", 2, "[Global] number", "too large", "write a whole number"),
        ("[Global]\nnumber =", 2, "[Global] number", "no whole number", "write a whole number"),
        ("[Global]\ncount = -1", 2, "[Global] count", "no whole number", "not negative"),
        ("[Global]\ncount = +1", 2, "[Global] count", "no whole number", "not negative"),
        ("[Global]\ntime = 10", 2, "[Global] time", "\"10\" has no unit", "write 10s"),
        ("[Global]\ntime = 1d", 2, "[Global] time", "no duration", "24h"),
        ("[Global]\ntime =", 2, "[Global] time", "no duration", "expected"),
        ("[Class \"DMZ\"]\nflag = ja", 2, "[Class \"DMZ\"] flag", "neither", "true or false"),
        ("[Global]\nflag = ja\nflag = true", 2, "[Global] flag", "neither", "true or false"),
        ("[global]\nFLAG = ja", 2, "[Global] flag", "neither", "true or false"),
    ];
    for (text, line, field, message, hint) in cases {
        let errors = errors(text);
        let problem = errors.iter().next().unwrap();
        assert_eq!(problem.file.as_deref(), Some(std::path::Path::new("cloud.conf")), "{text:?}");
        assert_eq!((problem.line, problem.field.as_deref().unwrap_or_default()), (Some(line), field), "{text:?}");
        assert!(problem.message.contains(message), "{text:?}: {problem}");
        assert!(problem.hint.as_deref().is_some_and(|told| told.contains(hint)), "{text:?}: {problem}");
        assert!(!problem.to_string().contains("cd"), "a password is not printed: {problem}");
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let syntax = "text = a\n[a.b]\nx = 1\n[Global]\na_b = 1\ntext = \"x\nflag = ja\n";
    let expected = [(1, "text"), (2, ""), (5, "[Global] a_b"), (6, "[Global] text"), (7, "[Global] flag")];
    assert_eq!(places(syntax), expected.map(|(line, field)| (line, field.to_owned())));
    let values = "[Global]\nflag = ja\n[Class \"b\"]\ntime = 5\nnumber = x\n";
    let expected = [(2, "[Global] flag"), (4, "[Class \"b\"] time"), (5, "[Class \"b\"] number")];
    assert_eq!(places(values), expected.map(|(line, field)| (line, field.to_owned())));
}

#[test]
fn where_a_value_is_wrong_the_default_holds_for_whoever_reads_on() {
    let text = "[Global]\nflag = ja\nnumber = x\ncount = -1\ntime = 9\n";
    let check = |text| table().check(Some(&file(text)), &Environment::default());
    let (settings, errors) = check(text).unwrap();
    assert_eq!((settings.section::<Keys>("Global"), errors.iter().count()), (Keys::default(), 4));
    assert!(check("[Global\nflag = ja\n").is_err(), "nothing is known about what is missing");
}

#[test]
fn what_nobody_knows_is_a_warning_with_the_nearest_name() {
    let text = "[Globl]\nflag = ja\n[Global]\ntxet = a\nuse-octavia = maybe\n[Global \"x\"]\nflag = ja\n\
                [BlockStorage]\nbs-version = v3\n[Class]\ntext = a\n[Elsewhere]\nkey\n";
    let warnings: Vec<_> = read(text).warnings().iter().map(ToString::to_string).collect();
    let expected = [
        "cloud.conf:1: [Globl]: nobody knows this section, so it is ignored; did you mean [Global]?",
        "cloud.conf:4: [Global] txet: nobody knows this key, so it is ignored; did you mean text?",
        "cloud.conf:6: [Global \"x\"]: a name of its own is not expected here, so it is ignored; write [Global]",
        "cloud.conf:10: [Class]: it has no name of its own, so nothing can refer to it; write [Class \"name\"]",
        "cloud.conf:12: [Elsewhere]: nobody knows this section, so it is ignored",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn a_problem_of_the_readers_own_points_to_the_last_time_that_the_key_is_there() {
    let settings = read("[Global]\ntext = a\n\ntext = b\n[Class \"x\"]\n");
    let view = settings.view("Global");
    assert_eq!(view.problem(&Keys::text, "is wrong").to_string(), "cloud.conf:4: [Global] text: is wrong");
    assert_eq!(view.problem(&Keys::flag, "is missing").to_string(), "cloud.conf: [Global] flag: is missing");
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
    assert!(page.contains("| `text`, `old-text` | `ACME_TEXT` | text | `none` | For tests. |"), "{page}");
}

#[test]
fn an_alias_means_the_same_and_the_last_of_both_counts() {
    assert_eq!(global("[Global]\nOld-Text = a").text, "a");
    assert_eq!(global("[Global]\ntext = a\nold-text = b").text, "b");
    assert_eq!(read("[Global]\nold-text = a").warnings(), []);
}

#[test]
fn the_environment_goes_before_the_file_and_its_values_are_checked_too() {
    let read = |variables: &[(&str, &str)], text: Option<&str>| {
        let environment = variables.iter().copied().collect();
        table().read(text.map(file).as_ref(), &environment).map(|settings| settings.section::<Keys>("Global"))
    };
    let file = "[Global]\ntext = a\nlist = x\n";
    let both = read(&[("ACME_TEXT", "b"), ("ACME_NUMBER", ""), ("ACME_LIST", "y, z")], Some(file)).unwrap();
    assert_eq!((both.text.as_str(), both.number, both.list), ("b", -2, vec!["y".to_owned(), "z".to_owned()]));
    assert_eq!(read(&[], Some(file)).unwrap().text, "a");
    assert_eq!(read(&[("ACME_NUMBER", "7")], None).unwrap().number, 7, "without a file");
    let wrong = read(&[("ACME_NUMBER", "many")], None).unwrap_err();
    assert_eq!(wrong.to_string(), "ACME_NUMBER: \"many\" is no whole number, or too large; write a whole number");
}

#[test]
fn unknown_keys_are_refused_where_the_go_program_refuses_them() {
    let strict = Table { unknown: Unknown::Refuse, ..table() };
    let errors = strict.read(Some(&file("[Global]\ntxet = a\n[Globl]\n")), &Environment::default()).unwrap_err();
    let expected = [
        "cloud.conf:2: [Global] txet: there is no such key; did you mean text?",
        "cloud.conf:3: [Globl]: there is no such section; did you mean Global?",
    ];
    assert_eq!(errors.to_string(), expected.join("\n"));
}

keys! {
    /// For tests.
    #[derive(Debug, PartialEq)]
    struct Variables {
        steps: u64 = "ACME_STEPS", "23", "How many steps.";
    }
}

fn with_variables() -> Table {
    let sections = [table().sections, vec![Section::environment::<Variables>("No other is read.")]].concat();
    Table { sections, ..table() }
}

#[test]
fn environment_variables_of_their_own_are_declared_checked_and_documented() {
    let read = |value: &str, text: &str| {
        let environment = [("ACME_STEPS", value)].into_iter().collect();
        with_variables().read(Some(&file(text)), &environment)
    };
    let steps = |settings: Settings| settings.section::<Variables>(Section::ENVIRONMENT).steps;
    assert_eq!((steps(read("30", "").unwrap()), steps(read("", "").unwrap())), (30, 23));
    let wrong = read("many", "").unwrap_err().to_string();
    assert!(wrong.starts_with("ACME_STEPS: \"many\" is no whole number"), "{wrong}");
    let in_file = read("", "[environment]\nACME-STEPS = 1\n").unwrap();
    assert_eq!((in_file.warnings().len(), steps(in_file)), (1, 23), "no file sets it");
    let page = with_variables().reference();
    let expected = "## Environment variables\n\nNo other is read.\n\n| variable | type | default | meaning |\n|---|---|---|---|\n\
                    | `ACME_STEPS` | integer, not negative | `23` | How many steps. |\n";
    assert!(page.contains(expected), "{page}");
}

#[test]
fn a_key_says_what_it_is_called_in_a_second_file() {
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
fn a_template_shows_keys_below_what_they_are_for() {
    let shown = [Example::Set(Keys::text, "a"), Example::Optional(Keys::number, "7")];
    let template = table().template(&[("Global", &shown)]);
    let (text, number) = (Keys::text.doc, Keys::number.doc);
    assert!(template.starts_with("# A value with # ; \" or \\ in it goes in quotes.\n\n# "), "{template}");
    assert!(template.ends_with(&format!("[Global]\n# {text}\ntext = a\n# {number}\n#number = 7\n")), "{template}");
    assert_eq!((global(&template).text.as_str(), global(&template).number), ("a", -2));
}

/// As the Helm chart writes values.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
    format!("\"{escaped}\"")
}

proptest! {
    #[test]
    fn no_text_is_too_strange(text in "(?s)([\\[\\]\"\\\\=#;_ a\n\r\t\u{0}ü-]|Global|flag|time){0,40}") {
        let whole = attempt(&text);
        let below = attempt(&format!("[Global]\n{text}"));
        for errors in [whole.err(), below.err()].into_iter().flatten() {
            prop_assert!(errors.iter().all(|problem| problem.line.is_some() && problem.hint.is_some()));
        }
    }

    #[test]
    fn what_is_quoted_comes_back(text in "[^\\r\\x00]*") {
        prop_assert_eq!(global(&format!("[Global]\ntext = {} # rest\n", quoted(&text))).text, text);
    }

    #[test]
    fn lines_are_counted_by_their_ends(before in "([# a\r]*\n){0,9}") {
        let errors = errors(&format!("[Global]\n{}flag = ja", before.replace('a', "# a")));
        let lines: Vec<_> = errors.iter().map(|problem| problem.line).collect();
        prop_assert_eq!(lines, [Some(before.matches('\n').count() + 2)]);
    }
}
