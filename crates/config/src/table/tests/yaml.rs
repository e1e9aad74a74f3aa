//! Syntax of YAML and JSON.

use bowline_core::IpFamily;

use super::*;

keys! {
    /// For tests.
    #[derive(Debug, PartialEq)]
    struct Document {
        endpoint: String = "endpoint", "http://127.0.0.1", "For tests.";
        token: Option<Secret> = "token", "", "For tests.";
        page_size: usize = "pageSize", "100", "For tests.";
        quick: bool = "quick", "false", "For tests.";
        ..
        /// For tests.
        limits: Limits;
        ["routes"] routes: Routes, "For tests.";
    }
}

keys! {
    /// For tests.
    #[derive(Debug, PartialEq)]
    struct Limits {
        most: Option<usize> = "most", "", "For tests.";
    }
}

keys! {
    /// For tests.
    #[derive(Debug, PartialEq)]
    struct Routes {
        families: Vec<IpFamily> = "families", "IPv4, IPv6", "For tests.";
        quick: bool = "quick", "true", "For tests.";
    }
}

fn documents(format: Format, unknown: UnknownKeys) -> Table {
    let server = Section { named: true, ..Section::of::<Limits>("servers", "For tests.") };
    Table { format, unknown, sections: [Section::document::<Document>(), vec![server]].concat() }
}

fn strict(text: &str) -> Result<Settings, ConfigErrors> {
    documents(Format::Yaml, UnknownKeys::Reject)
        .read(Some(&ConfigFile::from_text("a.yaml", text)), &Environment::default())
}

fn document(text: &str) -> Document {
    strict(text).unwrap().section("")
}

#[test]
fn an_empty_document_has_the_defaults() {
    for text in ["", "# later\n", "{}", "token:\nroutes:\n", "routes: {families: }"] {
        assert_eq!(document(text), Document::default(), "{text:?}");
    }
    assert_eq!(Document::default().routes.families, [IpFamily::IPv4, IpFamily::IPv6]);
    assert_eq!((Document::default().limits.most, Document::default().page_size), (None, 100));
    assert_eq!(Document::default().token, None);
}

#[test]
fn yaml_and_json_are_equivalent() {
    let yaml = "endpoint: 'x'\npageSize: 7\nmost: 3\nroutes:\n  families:\n  - IPv6\n  quick: no\n";
    let json = r#"{"endpoint": "x", "pageSize": 7, "most": 3, "routes": {"families": ["IPv6"], "quick": false}}"#;
    for text in [yaml, json] {
        let Document { endpoint, page_size, limits, routes, .. } = document(text);
        assert_eq!((endpoint.as_str(), page_size, limits), ("x", 7, Limits { most: Some(3) }), "{text}");
        assert_eq!(routes, Routes { families: vec![IpFamily::IPv6], quick: false }, "{text}");
    }
}

#[test]
fn a_string_may_be_written_as_a_number_and_keeps_its_spelling() {
    assert_eq!(document("endpoint: 007\n").endpoint, "007");
    assert_eq!(document("\nendpoint: 1.10 # ä\n").endpoint, "1.10");
    assert_eq!(document("# ä\ntoken: true\n").token, Some(Secret::from("true")));
    assert!(document("routes: {families: []}").routes.families.is_empty());
}

#[test]
fn subsections_are_mappings_in_a_mapping() {
    let settings = strict("servers:\n  b: {most: 1}\n  a:\n    most: 2\n").unwrap();
    let named: Vec<_> =
        settings.named("servers").into_iter().map(|(name, keys): (_, Limits)| (name, keys.most)).collect();
    assert_eq!(named, [("b", Some(1)), ("a", Some(2))]);
}

#[test]
fn all_errors_are_reported_at_once_with_line_key_and_hint() {
    let cases = [
        ("endpoint: x\nendpont: y\n", "2: endpont: unknown key; did you mean endpoint?"),
        (
            "\ncolour: blue\n",
            "2: colour: unknown key; expected one of endpoint, token, pageSize, quick, most, routes, servers",
        ),
        ("rotues: {}\n", "1: rotues: unknown key; did you mean routes?"),
        ("routes: {fast: true}\n", "1: routes.fast: unknown key; expected one of families, quick"),
        (
            "pageSize: many\n",
            "1: pageSize: \"many\" is not a whole number, or too large; write a whole number that is not",
        ),
        ("pageSize: \"7\"\n", "1: pageSize: expected a whole number that is not negative; write a plain value"),
        (
            "{\n \"pageSize\": -1\n}",
            "2: pageSize: \"-1\" is not a whole number, or too large; write a whole number that",
        ),
        ("quick: soon\n", "1: quick: \"soon\" is neither true nor false; write true or false"),
        ("token: [s3cr3t]\n", "1: token: expected a string; write a plain value"),
        ("endpoint: {a: b}\n", "1: endpoint: expected a string; write a plain value"),
        ("quick: \"true\"\n", "1: quick: expected true or false; write a plain value"),
        ("routes: {quick: {a: b}}\n", "1: routes.quick: expected true or false; write a plain value"),
        ("routes: 5\n", "1: routes: expected a mapping; write key: value below it"),
        ("routes:\n  families: IPv4\n", "2: routes.families: expected a list; write [a, b]"),
        (
            "routes:\n  families: [IPv4,\n    IPv5]\n",
            "2: routes.families: \"IPv5\" is not a valid value; did you mean IPv4?",
        ),
        ("routes:\n  families: [[IPv4]]\n", "2: routes.families: expected a list; write [a, b]"),
        ("quick: true\nquick: true\n", "2: quick: duplicate key; keep one of them"),
        ("- a\n", "1: expected a mapping, such as key: value"),
        ("servers: {a: {most: x}}\n", "1: servers.a.most: \"x\" is not a whole number"),
    ];
    for (text, expected) in cases {
        let errors = strict(text).unwrap_err();
        assert!(errors.to_string().starts_with(&format!("a.yaml:{expected}")), "{text:?}: {errors}");
        assert!(!errors.to_string().contains("s3cr3t"), "{errors}");
    }
    assert_eq!(strict("a: 1\nquick: 3\nroutes:\n  quick: 4\n").unwrap_err().iter().count(), 3);
}

#[test]
fn unknown_keys_are_warnings_if_the_go_program_ignores_them() {
    let table = documents(Format::AnyCaseYaml, UnknownKeys::Warn);
    let text = "EndPoint: x\nendpont: y\nelsewhere: {a: b}\n";
    let settings = table.read(Some(&ConfigFile::from_text("a.json", text)), &Environment::default()).unwrap();
    assert_eq!(settings.section::<Document>("").endpoint, "x");
    let warnings: Vec<_> = settings.warnings().iter().map(ToString::to_string).collect();
    let expected = [
        "a.json:2: endpont: unknown key, ignored; did you mean endpoint?",
        "a.json:3: elsewhere: unknown key, ignored",
    ];
    assert_eq!(warnings, expected);
}

keys! {
    /// For tests.
    #[derive(Debug, PartialEq)]
    struct Entry {
        url: String = "auth.url", "", "Base URL.";
        token: Secret = "auth.token", "", "Credential.";
        region: String = "region", "north", "Region of the cloud.";
    }
}

fn entries(unknown: UnknownKeys, text: &str) -> Result<Settings, ConfigErrors> {
    let clouds = Section { named: true, ..Section::of::<Entry>("clouds", "Everything.") };
    let table = Table { format: Format::Yaml, unknown, sections: vec![clouds] };
    table.read(Some(&ConfigFile::from_text("a.yaml", text)), &Environment::default())
}

#[test]
fn a_group_of_keys_is_a_mapping_in_its_section() {
    let text = "clouds:\n  a: {auth: {url: http://a, token: 007}, region: south}\n  b: {auth: {url: http://b}}\n";
    let settings = entries(UnknownKeys::Reject, text).unwrap();
    let token = Secret::from("007");
    let a = Entry { url: "http://a".to_owned(), token, region: "south".to_owned() };
    let b = Entry { url: "http://b".to_owned(), ..Entry::default() };
    assert_eq!(settings.named::<Entry>("clouds"), [("a", a), ("b", b)]);
    let errors: Vec<_> = settings.views("clouds").iter().map(|(_, view)| view.error(&Entry::url, "x")).collect();
    assert_eq!(errors[1].to_string(), "a.yaml:3: clouds.b.auth.url: x");
    let merged = "base: &base {auth: {url: http://c}}\nclouds:\n  c: {<<: *base, region: east}\n";
    let merged = entries(UnknownKeys::Warn, merged).unwrap();
    assert_eq!(merged.named::<Entry>("clouds")[0].1.url, "http://c");
}

#[test]
fn errors_in_a_group_have_their_line() {
    let cases = [
        ("clouds:\n  a:\n    auth: [1]\n", "a.yaml:3: clouds.a.auth: expected a mapping"),
        ("clouds:\n  a:\n    auth:\n      url: [x]\n", "a.yaml:4: clouds.a.auth.url: expected a string"),
        (
            "clouds:\n  a:\n    auth:\n      ulr: x\n",
            "a.yaml:4: clouds.a.auth.ulr: unknown key; did you mean auth.url?",
        ),
        ("clouds:\n  a:\n    region: {x: y}\n", "a.yaml:3: clouds.a.region: expected a string"),
    ];
    for (text, expected) in cases {
        let errors = entries(UnknownKeys::Reject, text).unwrap_err().to_string();
        assert!(errors.starts_with(expected), "{text:?}: {errors}");
    }
}

#[test]
fn a_yaml_template_has_the_keys_of_the_document_and_then_the_sections() {
    let table = documents(Format::Yaml, UnknownKeys::Reject);
    let shown = [Example::Set(Document::endpoint, "http://x"), Example::Optional(Document::quick, "true")];
    let template = table.template(&[("", &shown), ("routes", &[Example::Set(Routes::quick, "false")])]);
    let expected = "# For tests.\nendpoint: http://x\n# For tests.\n#quick: true\n\n\
                    # For tests.\nroutes:\n  # For tests.\n  quick: false\n";
    assert_eq!(template, expected);
    let read = document(&template);
    assert_eq!((read.endpoint.as_str(), read.quick, read.routes.quick), ("http://x", false, false));
}
