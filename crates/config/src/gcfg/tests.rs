//! The rules of the dialect, one by one; what is right here was tried on the Go library, too.

use std::time::Duration;

use proptest::prelude::*;

use super::{Key, Kind, Section, Settings, reference};
use crate::{ConfigFile, Problems};

const fn key(name: &'static str, kind: Kind, default: &'static str) -> Key {
    Key { name, kind, default, meaning: "For tests." }
}

const KEYS: &[Key] = &[
    key("text", Kind::Text, "none"),
    key("password", Kind::Secret, ""),
    key("flag", Kind::Bool, "true"),
    key("number", Kind::Integer, "-2"),
    key("count", Kind::Unsigned, "3"),
    key("time", Kind::Duration, "5s"),
    key("list", Kind::List, ""),
];

const SECTIONS: &[Section] = &[
    Section { name: "Global", keys: KEYS, former: &["use-octavia"], meaning: "Everything.", ..Section::EMPTY },
    Section { name: "Class", named: true, keys: KEYS, ..Section::EMPTY },
    Section { name: "BlockStorage", ..Section::EMPTY },
];

fn file(text: &str) -> ConfigFile {
    ConfigFile::from_text("cloud.conf", text)
}

fn read(text: &str) -> Settings {
    Settings::read(&file(text), SECTIONS).unwrap()
}

fn problems(text: &str) -> Problems {
    Settings::read(&file(text), SECTIONS).unwrap_err()
}

/// The lines and fields of all problems.
fn places(text: &str) -> Vec<(usize, String)> {
    let problems = problems(text);
    problems.iter().map(|one| (one.line.unwrap_or(0), one.field.clone().unwrap_or_default())).collect()
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
        assert_eq!(read(&format!("[Global]\n{line}\n")).section("Global").text("text"), value, "{line:?}");
        assert_eq!(read(&format!("[Global]\r\n{line}")).section("Global").text("text"), value, "{line:?}");
    }
}

#[test]
fn heads_of_sections_may_have_blanks_and_any_case_and_come_again() {
    let text = "\u{feff}[ global ] # one\ntext = a\n[CLASS \"x\"]\ntext=c\n[Global]\nnumber = 1\n[class\"X\"];two\n\
                [class \"q\\\"\\\\\"]\nflag";
    let settings = read(text);
    let global = settings.section("Global");
    assert_eq!((global.text("text"), global.integer("number")), ("a", 1));
    let named: Vec<_> = settings.named("Class").iter().map(|(name, class)| (*name, class.text("text"))).collect();
    assert_eq!(named, [("x", "c"), ("X", "none"), ("q\"\\", "none")]);
    assert_eq!(settings.warnings(), []);
}

#[test]
fn types_are_those_of_go() {
    let values = |line: &str| {
        let settings = read(&format!("[Global]\n{line}\n"));
        let view = settings.section("Global");
        (view.flag("flag"), view.integer("number"), view.unsigned("count"), view.duration("time").as_millis())
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
    assert_eq!(read("[Global]\ntime = 0.5h").section("global").duration("TIME"), Duration::from_secs(1800));
}

#[test]
fn a_list_grows_with_each_line_and_a_key_alone_empties_it() {
    let list = |text: &str| read(&format!("[Global]\n{text}")).section("Global").list("list");
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
        let problems = problems(text);
        let problem = problems.iter().next().unwrap();
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
    let (settings, problems) = Settings::check(&file(text), SECTIONS).unwrap();
    let view = settings.section("Global");
    let values = (view.flag("flag"), view.integer("number"), view.unsigned("count"), view.duration("time").as_secs());
    assert_eq!((values, problems.iter().count()), ((true, -2, 3, 5), 4));
    assert!(Settings::check(&file("[Global\nflag = ja\n"), SECTIONS).is_err(), "who knows what is missing");
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
    let global = settings.section("Global");
    assert_eq!(global.problem("text", "is wrong").to_string(), "cloud.conf:4: [Global] text: is wrong");
    assert_eq!(global.problem("flag", "is missing").to_string(), "cloud.conf: [Global] flag: is missing");
    let (_, class) = settings.named("Class")[0];
    assert_eq!(class.problem("text", "is missing").to_string(), "cloud.conf: [Class \"x\"] text: is missing");
}

#[test]
fn values_are_never_printed() {
    let settings = read("[Global]\npassword = s3cr3t\n");
    let printed = format!("{settings:?} {:?}", settings.section("Global").secret("password"));
    assert!(!printed.contains("s3cr3t"), "{printed}");
}

#[test]
fn the_reference_has_a_row_for_each_key() {
    let page = reference(SECTIONS);
    assert!(page.contains("## `[Global]`\n\nEverything.\n"), "{page}");
    assert!(page.contains("## `[Class \"name\"]`") && !page.contains("BlockStorage"), "{page}");
    assert!(page.contains("| `time` | duration | `5s` | For tests. |"), "{page}");
}

/// As the Helm chart writes values.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
    format!("\"{escaped}\"")
}

proptest! {
    #[test]
    fn no_text_is_too_strange(text in "(?s)([\\[\\]\"\\\\=#;_ a\n\r\t\u{0}ü-]|Global|flag|time){0,40}") {
        let whole = Settings::read(&file(&text), SECTIONS);
        let below = Settings::read(&file(&format!("[Global]\n{text}")), SECTIONS);
        for problems in [whole.err(), below.err()].into_iter().flatten() {
            prop_assert!(problems.iter().all(|problem| problem.line.is_some() && problem.hint.is_some()));
        }
    }

    #[test]
    fn what_is_quoted_comes_back(text in "[^\\r\\x00]*") {
        let settings = read(&format!("[Global]\ntext = {} # rest\n", quoted(&text)));
        prop_assert_eq!(settings.section("Global").text("text"), text);
    }

    #[test]
    fn lines_are_counted_by_their_ends(before in "([# a\r]*\n){0,9}") {
        let problems = problems(&format!("[Global]\n{}flag = ja", before.replace('a', "# a")));
        let lines: Vec<_> = problems.iter().map(|problem| problem.line).collect();
        prop_assert_eq!(lines, [Some(before.matches('\n').count() + 2)]);
    }
}
