//! Values, errors and misspelled keys of the common annotations, and label selectors.

use proptest::prelude::*;

use super::*;
use crate::well_known::ALLOW_DELETION;

fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Reads the settings of an object with this one annotation.
fn read_one(key: &str, value: &str) -> Result<LoadBalancerSettings, Vec<FieldError>> {
    read(&annotations(&[(key, value)]))
}

fn set(set: impl FnOnce(&mut LoadBalancerSettings)) -> LoadBalancerSettings {
    let mut settings = LoadBalancerSettings::default();
    set(&mut settings);
    settings
}

fn ranges(texts: &[&str]) -> Option<Vec<IpNet>> {
    Some(texts.iter().map(|text| text.parse().unwrap()).collect())
}

// ---- declarations

#[test]
fn every_declaration_is_valid_and_its_example_changes_a_setting() {
    assert_eq!(COMMON.validate(), [""; 0]);
    // The pause annotation is not a setting: `is_paused` reads it.
    for annotation in COMMON.rows().filter(|annotation| annotation.key != PAUSED.key) {
        let read = read_one(annotation.key, annotation.example).unwrap();
        assert_ne!(read, LoadBalancerSettings::default(), "{annotation}");
    }
}

#[test]
fn all_examples_together_set_every_setting() {
    let all = COMMON.rows().map(|known| (known.key.to_owned(), known.example.to_owned())).collect();
    // Without `..`, so that a setting without a declaration fails to compile or fails the test.
    let LoadBalancerSettings {
        internal,
        source_ranges,
        proxy_protocol,
        idle_timeout,
        health_check_path,
        health_check_port,
        health_check_interval,
        target_nodes,
        policy,
        share_group,
        ip_mode,
        adopt,
        unmanaged,
    } = read(&all).unwrap();
    assert!(internal && source_ranges.is_some() && proxy_protocol.is_some() && idle_timeout.is_some());
    assert!(health_check_path.is_some() && health_check_port.is_some() && health_check_interval.is_some());
    assert!(target_nodes.is_some() && share_group.is_some() && ip_mode.is_some() && adopt.is_some());
    assert_ne!(policy, DeletionPolicy::default());
    assert!(!unmanaged, "only a provider sets it");
}

#[test]
fn the_reference_has_every_declaration() {
    let page = COMMON.reference();
    for Annotation { key, doc, example, .. } in COMMON.rows() {
        assert!(page.contains(&format!("\n## `{key}`\n\n{doc}\n")), "{key}");
        assert!(page.contains(&format!("{key}: \"{example}\"\n")), "{key}");
    }
    assert!(page.contains("[`bowline.dev/ip-mode`](#bowlinedevip-mode)"));
}

// ---- values

#[test]
fn valid_values_are_read() {
    let cases = [
        (INTERNAL.key, "true", set(|to| to.internal = true)),
        (INTERNAL.key, " T\n", set(|to| to.internal = true)),
        (INTERNAL.key, "0", set(|_| ())),
        (SOURCE_RANGES.key, "10.0.0.0/8", set(|to| to.source_ranges = ranges(&["10.0.0.0/8"]))),
        (
            SOURCE_RANGES.key,
            " 2001:db8::1/32 ,11.0.0.0/8, 10.1.1.1/8,10.0.0.0/8 ",
            set(|to| to.source_ranges = ranges(&["10.0.0.0/8", "11.0.0.0/8", "2001:db8::/32"])),
        ),
        (PROXY_PROTOCOL.key, "v1", set(|to| to.proxy_protocol = Some(ProxyProtocol::V1))),
        (PROXY_PROTOCOL.key, "V2", set(|to| to.proxy_protocol = Some(ProxyProtocol::V2))),
        (IDLE_TIMEOUT.key, "1m30s", set(|to| to.idle_timeout = Some(Duration::from_secs(90)))),
        (HEALTH_CHECK_PATH.key, "/", set(|to| to.health_check_path = Some("/".into()))),
        (HEALTH_CHECK_PATH.key, " /a?b=c ", set(|to| to.health_check_path = Some("/a?b=c".into()))),
        (HEALTH_CHECK_PORT.key, "65535", set(|to| to.health_check_port = Some(65535))),
        (HEALTH_CHECK_INTERVAL.key, "300ms", set(|to| to.health_check_interval = Some(Duration::from_millis(300)))),
        (TARGET_NODES.key, " a=b ", set(|to| to.target_nodes = NodeSelector::parse("a=b").ok())),
        (POLICY.key, "delete", set(|_| ())),
        (POLICY.key, "Retain", set(|to| to.policy = DeletionPolicy::Retain)),
        (POLICY.key, "protect", set(|to| to.policy = DeletionPolicy::Protect)),
        (SHARE_GROUP.key, "Web.1_a", set(|to| to.share_group = Some("Web.1_a".into()))),
        (IP_MODE.key, "vip", set(|to| to.ip_mode = Some(IpMode::Vip))),
        (IP_MODE.key, "PROXY", set(|to| to.ip_mode = Some(IpMode::Proxy))),
        (ADOPT.key, "a name with spaces", set(|to| to.adopt = Some("a name with spaces".into()))),
    ];
    for (key, value, expected) in cases {
        assert_eq!(read_one(key, value), Ok(expected), "{key}: {value:?}");
    }
}

#[test]
fn an_invalid_value_is_reported_with_the_expected_one() {
    let long = "x".repeat(64);
    let cases = [
        (INTERNAL.key, "yes", "\"yes\" is not true or false"),
        (SOURCE_RANGES.key, "10.0.0.1", "\"10.0.0.1\" is an address and not a CIDR; write 10.0.0.1/32"),
        (SOURCE_RANGES.key, "10.0.0.0/8,", "\"\" is not a CIDR such as 10.0.0.0/8 or 2001:db8::/32"),
        (PROXY_PROTOCOL.key, "true", "\"true\" is not v1 or v2"),
        (IDLE_TIMEOUT.key, "60", "\"60\" is not a duration: missing unit"),
        (IDLE_TIMEOUT.key, "-1s", "\"-1s\" is not a duration: a duration must not be negative"),
        (IDLE_TIMEOUT.key, "0s", "\"0s\" is not longer than zero; remove the annotation to get the default"),
        (HEALTH_CHECK_PATH.key, "healthz", "\"healthz\" is not a path that starts with /"),
        (HEALTH_CHECK_PATH.key, "/a b", "contains a space or a control character; write a space as %20"),
        (HEALTH_CHECK_PATH.key, "/a\r\nHost: x", "contains a space or a control character"),
        (HEALTH_CHECK_PORT.key, "0", "\"0\" is not a port from 1 to 65535"),
        (HEALTH_CHECK_PORT.key, "65536", "\"65536\" is not a port from 1 to 65535"),
        (HEALTH_CHECK_PORT.key, "+80", "\"+80\" is not a port from 1 to 65535"),
        (HEALTH_CHECK_PORT.key, "http", "\"http\" is not a port from 1 to 65535"),
        (HEALTH_CHECK_INTERVAL.key, "1d", "write 24h for a day"),
        (
            TARGET_NODES.key,
            "zone in a",
            "\"zone in a\": expected '(' and a list of values, such as (a, b), found \"a\"",
        ),
        (POLICY.key, "keep", "\"keep\" is not delete, retain or protect"),
        (SHARE_GROUP.key, "a/b", "\"a/b\" is not a name of at most 63 letters"),
        (SHARE_GROUP.key, &long, "is not a name of at most 63 letters"),
        (IP_MODE.key, "NAT", "\"NAT\" is not VIP or Proxy"),
        (ADOPT.key, "a\u{7}b", "contains a control character"),
    ];
    for (key, value, expected) in cases {
        let errors = read_one(key, value).unwrap_err();
        assert_eq!(errors.len(), 1, "{key}: {errors:?}");
        assert_eq!(errors[0].field, key);
        assert!(errors[0].message.contains(expected), "{key}: expected {expected:?} in {:?}", errors[0].message);
    }
}

#[test]
fn an_empty_value_is_an_error_with_the_expected_value() {
    for annotation in COMMON.all.iter().filter(|annotation| annotation.row().key != PAUSED.key) {
        let (key, form) = (annotation.row().key, annotation.form());
        for value in ["", " \t\n"] {
            let [error] = &read_one(key, value).unwrap_err()[..] else { panic!("{key}") };
            let expected = format!("the value is empty; expected {form}, or remove the annotation to get the default");
            assert_eq!((&*error.field, &error.message), (key, &expected));
        }
    }
}

#[test]
fn all_errors_are_reported_at_once_and_valid_values_are_read() {
    let given = annotations(&[
        (POLICY.key, "keep"),
        (SOURCE_RANGES.key, "a,10.0.0.0/8,b"),
        (INTERNAL.key, "true"),
        (ADOPT.key, ""),
    ]);
    let (settings, errors) = read_leniently(&given);
    let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, [SOURCE_RANGES.key, SOURCE_RANGES.key, POLICY.key, ADOPT.key], "in the order of the reference");
    assert_eq!(settings, set(|to| to.internal = true));
    assert_eq!(read(&given), Err(errors));
}

#[test]
fn annotations_with_other_prefixes_are_ignored() {
    let foreign = annotations(&[("example.com/internal", "x"), ("internal", "x"), ("sub.bowline.dev/internal", "x")]);
    assert_eq!(read(&foreign), Ok(LoadBalancerSettings::default()));
    assert_eq!(COMMON.unknown(&foreign), []);
}

// ---- unknown keys

#[test]
fn an_unknown_key_is_reported_with_the_most_similar_known_one() {
    let cases = [
        ("bowline.dev/intenal", Some(INTERNAL.key)),
        ("bowline.dev/idletimeout", Some(IDLE_TIMEOUT.key)),
        ("bowline.dev/Internal", Some(INTERNAL.key)),
        ("Bowline.dev/internal", Some(INTERNAL.key)),
        ("bowline.dev/health-check-prot", Some(HEALTH_CHECK_PORT.key)),
        ("bowline.dev/source-range", Some(SOURCE_RANGES.key)),
        ("bowline.dev/colour", None),
        ("bowline.dev/abc", None),
        ("bowline.dev/", None),
        (ALLOW_DELETION, None),
        ("bowline.dev/unmanaged", None),
    ];
    for (key, nearest) in cases {
        let expected = UnknownAnnotation { key: key.to_owned(), nearest };
        assert_eq!(COMMON.unknown(&annotations(&[(key, "true")])), [expected], "{key}");
    }
}

#[test]
fn known_keys_are_not_reported_as_unknown() {
    let all = COMMON.rows().map(|known| (known.key.to_owned(), "rubbish".to_owned())).collect();
    assert_eq!(COMMON.unknown(&all), []);
}

#[test]
fn a_warning_suggests_the_intended_key() {
    let warning = |key: &str| COMMON.unknown(&annotations(&[(key, "")]))[0].to_string();
    assert_eq!(
        warning("bowline.dev/polciy"),
        "unknown annotation bowline.dev/polciy; did you mean bowline.dev/policy?"
    );
    assert_eq!(warning("bowline.dev/colour"), "unknown annotation bowline.dev/colour");
}

// ---- selectors

fn labels(text: &str) -> BTreeMap<String, String> {
    text.split_whitespace().map(|label| label.split_once('=').unwrap()).map(|(k, v)| (k.into(), v.into())).collect()
}

#[test]
fn a_selector_matches_as_in_kubectl() {
    let cases = [
        ("", "", true),
        ("", "a=b", true),
        ("a=b", "a=b", true),
        ("a==b", "a=b", true),
        ("a = b", "a=b", true),
        ("a=b", "a=c", false),
        ("a=b", "", false),
        ("a!=b", "a=b", false),
        ("a!=b", "a=c", true),
        ("a!=b", "", true),
        ("a", "a=", true),
        ("a", "b=a", false),
        ("!a", "a=", false),
        ("! a", "b=a", true),
        ("a in (b, c)", "a=c", true),
        ("a in(b,c)", "a=d", false),
        ("a in (b)", "", false),
        ("a notin (b,c)", "a=c", false),
        ("a notin (b,c)", "a=d", true),
        ("a notin (b,c)", "", true),
        ("a=", "a=", true),
        ("a=", "a=b", false),
        ("a=,b", "a= b=", true),
        ("a in ()", "a=", true),
        ("a in (b,)", "a=", true),
        ("a in (,b)", "a=b", true),
        ("in in (in, notin)", "in=notin", true),
        ("notin", "notin=x", true),
        ("a=in", "a=in", true),
        ("a=b,c", "a=b c=", true),
        ("a=b,c", "a=b", false),
        ("a=b , !c , d in (e)", "a=b d=e", true),
        ("a\t=\nb", "a=b", true),
        ("a,a=b", "a=b", true),
        ("topology.kubernetes.io/zone=eu-1.a", "topology.kubernetes.io/zone=eu-1.a", true),
    ];
    for (selector, given, expected) in cases {
        let parsed = NodeSelector::parse(selector).unwrap();
        assert_eq!(parsed.matches(&labels(given)), expected, "{selector:?} on {given:?}");
    }
}

#[test]
fn an_invalid_selector_is_reported_with_the_expected_token() {
    let (long, long_prefix) = ("x".repeat(64), format!("{}x/y", "x.".repeat(127)));
    let cases = [
        (",", "expected a label key, found ','"),
        ("a,", "expected a label key, found the end"),
        (",a", "expected a label key, found ','"),
        ("a,,b", "expected a label key, found ','"),
        ("=b", "expected a label key, found '='"),
        ("!", "expected a label key, found the end"),
        ("!!a", "expected a label key, found '!'"),
        ("!a=b", "expected ',' or the end, found '='"),
        ("a b", "expected one of =, ==, !=, in, notin, or ',', found \"b\""),
        ("a=b c", "expected ',' or the end, found \"c\""),
        ("a===b", "expected a value, found '='"),
        ("a=(b)", "expected a value, found '('"),
        ("a in", "expected '(' and a list of values, such as (a, b), found the end"),
        ("a in b", "expected '(' and a list of values, such as (a, b), found \"b\""),
        ("a in (b", "expected ',' or ')', found the end"),
        ("a in (b c)", "expected ',' or ')', found \"c\""),
        ("a in ((b))", "expected ',' or ')', found '('"),
        ("a in (b))", "expected ',' or the end, found ')'"),
        ("a IN (b)", "expected one of =, ==, !=, in, notin, or ',', found \"IN\""),
        ("a>1", "'>' is not supported; use =, !=, in or notin"),
        ("a<1", "'<' is not supported"),
        ("-a", "\"-a\" is not a valid label key"),
        ("a/b/c", "\"a/b/c\" is not a valid label key"),
        ("/a", "\"/a\" is not a valid label key"),
        ("a/", "\"a/\" is not a valid label key"),
        ("A.io/b", "\"A.io/b\" is not a valid label key"),
        ("a..b/c", "\"a..b/c\" is not a valid label key"),
        (&long, "is not a valid label key"),
        (&long_prefix, "is not a valid label key"),
        ("a=\"b\"", "is not a valid label value: at most 63 letters, digits and any of -_. in between, without quotes"),
        ("a=-b", "\"-b\" is not a valid label value"),
        ("a in (b, ż)", "\"ż\" is not a valid label value"),
    ];
    for (text, expected) in cases {
        let error = NodeSelector::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text:?}: expected {expected:?} in {error:?}");
    }
}

#[test]
fn a_selector_returns_its_label_keys_and_is_serialised_as_text() {
    let selector =
        NodeSelector::parse("zone in (b, a), !spot, size=large, os!=x, gpu, disk notin(,c), arch in (d)").unwrap();
    assert_eq!(selector.keys().collect::<Vec<_>>(), ["zone", "spot", "size", "os", "gpu", "disk", "arch"]);
    let text = serde_json::to_string(&selector).unwrap();
    assert_eq!(text, r#""zone in (a,b),!spot,size=large,os!=x,gpu,disk notin (,c),arch=d""#);
    assert_eq!(serde_json::from_str::<NodeSelector>(&text).unwrap(), selector);
}

proptest! {
    #[test]
    fn parsing_a_selector_never_panics_and_formatting_round_trips(
        text in "([ab!](=|!=| in | notin |,)?\\(?[ab]?,?[ab]?\\)?,?){0,3}|[a-c!=,() ]{0,20}|.*",
    ) {
        if let Ok(selector) = NodeSelector::parse(&text) {
            prop_assert_eq!(NodeSelector::parse(&selector.to_string()), Ok(selector));
        }
    }

    #[test]
    fn in_and_notin_are_opposites(text in "[ab]( in | notin |=|!=)\\(?[ab]?,?[ab]?\\)?", value in "[ab]?") {
        let opposite = if text.contains("notin") { text.replace("notin", "in") }
            else if text.contains("!=") { text.replace("!=", "=") }
            else if text.contains('=') { text.replace('=', "!=") }
            else { text.replace(" in ", " notin ") };
        if let (Ok(one), Ok(other)) = (NodeSelector::parse(&text), NodeSelector::parse(&opposite)) {
            // Several requirements have no simple opposite.
            prop_assume!(one.keys().count() == 1);
            let given = ["a", "b"].map(|key| (key.to_owned(), value.clone())).into();
            prop_assert_ne!(one.matches(&given), other.matches(&given));
        }
    }

    #[test]
    fn reading_a_value_never_panics(value in ".*", key in prop::sample::select(COMMON.rows().collect::<Vec<_>>())) {
        let _ = read_one(key.key, &value);
    }
}
