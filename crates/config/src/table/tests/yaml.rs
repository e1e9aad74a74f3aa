//! The rules of YAML and JSON.

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

fn documents(format: Format, unknown: Unknown) -> Table {
    let server = Section { named: true, ..Section::of::<Limits>("servers", "For tests.") };
    Table { format, unknown, sections: [Section::document::<Document>(), vec![server]].concat() }
}

fn strict(text: &str) -> Result<Settings, ConfigErrors> {
    documents(Format::Yaml, Unknown::Refuse).read(Some(&ConfigFile::from_text("a.yaml", text)), &Environment::default())
}

fn document(text: &str) -> Document {
    strict(text).unwrap().section("")
}

#[test]
fn nothing_to_read_means_the_defaults() {
    for text in ["", "# later\n", "{}", "token:\nroutes:\n", "routes: {families: }"] {
        assert_eq!(document(text), Document::default(), "{text:?}");
    }
    assert_eq!(Document::default().routes.families, [IpFamily::IPv4, IpFamily::IPv6]);
    assert_eq!((Document::default().limits.most, Document::default().page_size), (None, 100));
    assert_eq!(Document::default().token, None);
}

#[test]
fn yaml_and_json_say_the_same() {
    let yaml = "endpoint: 'x'\npageSize: 7\nmost: 3\nroutes:\n  families:\n  - IPv6\n  quick: no\n";
    let json = r#"{"endpoint": "x", "pageSize": 7, "most": 3, "routes": {"families": ["IPv6"], "quick": false}}"#;
    for text in [yaml, json] {
        let Document { endpoint, page_size, limits, routes, .. } = document(text);
        assert_eq!((endpoint.as_str(), page_size, limits), ("x", 7, Limits { most: Some(3) }), "{text}");
        assert_eq!(routes, Routes { families: vec![IpFamily::IPv6], quick: false }, "{text}");
    }
}

#[test]
fn a_text_may_be_written_as_a_number_and_is_taken_as_it_is_written() {
    assert_eq!(document("endpoint: 007\n").endpoint, "007");
    assert_eq!(document("\nendpoint: 1.10 # ä\n").endpoint, "1.10");
    assert_eq!(document("# ä\ntoken: true\n").token, Some(Secret::from("true")));
    assert!(document("routes: {families: []}").routes.families.is_empty());
}

#[test]
fn sections_with_names_of_their_own_are_mappings_in_a_mapping() {
    let settings = strict("servers:\n  b: {most: 1}\n  a:\n    most: 2\n").unwrap();
    let named: Vec<_> =
        settings.named("servers").into_iter().map(|(name, keys): (_, Limits)| (name, keys.most)).collect();
    assert_eq!(named, [("b", Some(1)), ("a", Some(2))]);
}

#[test]
fn everything_that_is_wrong_is_reported_at_once_with_line_key_and_remedy() {
    let cases = [
        ("endpoint: x\nendpont: y\n", "2: endpont: there is no such key; did you mean endpoint?"),
        (
            "\ncolour: blue\n",
            "2: colour: there is no such key; known are endpoint, token, pageSize, quick, most, routes, servers",
        ),
        ("rotues: {}\n", "1: rotues: there is no such key; did you mean routes?"),
        ("routes: {fast: true}\n", "1: routes.fast: there is no such key; known are families, quick"),
        (
            "pageSize: many\n",
            "1: pageSize: \"many\" is no whole number, or too large; write a whole number that is not",
        ),
        ("pageSize: \"7\"\n", "1: pageSize: a whole number that is not negative is wanted here; write it plainly"),
        ("{\n \"pageSize\": -1\n}", "2: pageSize: \"-1\" is no whole number, or too large; write a whole number that"),
        ("quick: soon\n", "1: quick: \"soon\" is neither true nor false; write true or false"),
        ("token: [s3cr3t]\n", "1: token: a text is wanted here; write it plainly"),
        ("endpoint: {a: b}\n", "1: endpoint: a text is wanted here; write it plainly"),
        ("quick: \"true\"\n", "1: quick: true or false is wanted here; write it plainly"),
        ("routes: {quick: {a: b}}\n", "1: routes.quick: true or false is wanted here; write it plainly"),
        ("routes: 5\n", "1: routes: keys with values are wanted here; write key: value below it"),
        ("routes:\n  families: IPv4\n", "2: routes.families: a list is wanted here; write [a, b]"),
        (
            "routes:\n  families: [IPv4,\n    IPv5]\n",
            "2: routes.families: \"IPv5\" is no choice here; did you mean IPv4?",
        ),
        ("routes:\n  families: [[IPv4]]\n", "2: routes.families: a list is wanted here; write [a, b]"),
        ("quick: true\nquick: true\n", "2: quick: the key is there twice; keep one of them"),
        ("- a\n", "1: expected keys with values, such as key: value"),
        ("servers: {a: {most: x}}\n", "1: servers.a.most: \"x\" is no whole number"),
    ];
    for (text, expected) in cases {
        let errors = strict(text).unwrap_err();
        assert!(errors.to_string().starts_with(&format!("a.yaml:{expected}")), "{text:?}: {errors}");
        assert!(!errors.to_string().contains("s3cr3t"), "{errors}");
    }
    assert_eq!(strict("a: 1\nquick: 3\nroutes:\n  quick: 4\n").unwrap_err().iter().count(), 3);
}

#[test]
fn unknown_keys_are_warnings_where_the_go_program_ignores_them() {
    let table = documents(Format::AnyCaseYaml, Unknown::Warn);
    let text = "EndPoint: x\nendpont: y\nelsewhere: {a: b}\n";
    let settings = table.read(Some(&ConfigFile::from_text("a.json", text)), &Environment::default()).unwrap();
    assert_eq!(settings.section::<Document>("").endpoint, "x");
    let warnings: Vec<_> = settings.warnings().iter().map(ToString::to_string).collect();
    let expected = [
        "a.json:2: endpont: nobody knows this key, so it is ignored; did you mean endpoint?",
        "a.json:3: elsewhere: nobody knows this key, so it is ignored",
    ];
    assert_eq!(warnings, expected);
}

keys! {
    /// For tests.
    #[derive(Debug, PartialEq)]
    struct Entry {
        url: String = "auth.url", "", "Base URL.";
        token: Secret = "auth.token", "", "Credential.";
        region: String = "region", "north", "Where it is.";
    }
}

fn entries(unknown: Unknown, text: &str) -> Result<Settings, ConfigErrors> {
    let clouds = Section { named: true, ..Section::of::<Entry>("clouds", "Everything.") };
    let table = Table { format: Format::Yaml, unknown, sections: vec![clouds] };
    table.read(Some(&ConfigFile::from_text("a.yaml", text)), &Environment::default())
}

#[test]
fn a_group_of_keys_is_a_mapping_in_its_section() {
    let text = "clouds:\n  a: {auth: {url: http://a, token: 007}, region: south}\n  b: {auth: {url: http://b}}\n";
    let settings = entries(Unknown::Refuse, text).unwrap();
    let token = Secret::from("007");
    let a = Entry { url: "http://a".to_owned(), token, region: "south".to_owned() };
    let b = Entry { url: "http://b".to_owned(), ..Entry::default() };
    assert_eq!(settings.named::<Entry>("clouds"), [("a", a), ("b", b)]);
    let places: Vec<_> = settings.views("clouds").iter().map(|(_, view)| view.problem(&Entry::url, "x")).collect();
    assert_eq!(places[1].to_string(), "a.yaml:3: clouds.b.auth.url: x");
    let merged = "base: &base {auth: {url: http://c}}\nclouds:\n  c: {<<: *base, region: east}\n";
    let merged = entries(Unknown::Warn, merged).unwrap();
    assert_eq!(merged.named::<Entry>("clouds")[0].1.url, "http://c");
}

#[test]
fn what_is_wrong_with_a_group_is_told_with_its_line() {
    let cases = [
        ("clouds:\n  a:\n    auth: [1]\n", "a.yaml:3: clouds.a.auth: keys with values are wanted here"),
        ("clouds:\n  a:\n    auth:\n      url: [x]\n", "a.yaml:4: clouds.a.auth.url: a text is wanted here"),
        (
            "clouds:\n  a:\n    auth:\n      ulr: x\n",
            "a.yaml:4: clouds.a.auth.ulr: there is no such key; did you mean auth.url?",
        ),
        ("clouds:\n  a:\n    region: {x: y}\n", "a.yaml:3: clouds.a.region: a text is wanted here"),
    ];
    for (text, expected) in cases {
        let told = entries(Unknown::Refuse, text).unwrap_err().to_string();
        assert!(told.starts_with(expected), "{text:?}: {told}");
    }
}

#[test]
fn a_template_in_yaml_has_sections_below_the_document() {
    let table = documents(Format::Yaml, Unknown::Refuse);
    let shown = [Example::Set(Document::endpoint, "http://x"), Example::Optional(Document::quick, "true")];
    let template = table.template(&[("", &shown), ("routes", &[Example::Set(Routes::quick, "false")])]);
    let expected = "# For tests.\nendpoint: http://x\n# For tests.\n#quick: true\n\n\
                    # For tests.\nroutes:\n  # For tests.\n  quick: false\n";
    assert_eq!(template, expected);
    let read = document(&template);
    assert_eq!((read.endpoint.as_str(), read.quick, read.routes.quick), ("http://x", false, false));
}
