//! Validation of names, labels, keys and ports, with upstream's messages.
//!
//! Functions that return strings return the messages about a value, in upstream's order; a valid value has none. Functions
//! with a `field` parameter return field errors. [`address`] validates addresses and CIDRs. The kinds in `resources` decide
//! which fields are validated how.
//!
//! The formats are simple enough to match without a regex engine. The patterns appear only in the messages, as upstream prints
//! them.

pub(crate) mod address;

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::field_error::FieldError;
use crate::status::MAX_ERRORS;
use crate::value::Json;

pub(crate) use address::{is_valid_cidr_legacy, is_valid_ip_legacy};

/// Maximum length of a DNS label (RFC 1123), label key name and label value.
const LABEL_MAX: usize = 63;
/// Maximum length of a DNS subdomain (RFC 1123).
const SUBDOMAIN_MAX: usize = 253;
const PORT_NAME_MAX: usize = 15;
/// Maximum total size of an object's annotations in bytes, keys and values.
const ANNOTATIONS_MAX: usize = 256 * 1024;

pub(crate) const FIELD_IMMUTABLE: &str = "field is immutable";
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
pub(crate) const POSITIVE: &str = "must be greater than zero";

/// Protocols of ports, in the order of error messages.
pub(crate) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

// === DNS names ===

/// Replaces the trailing dash of a generateName for validation, as if the generated suffix followed.
///
/// upstream: the placeholder letter replaces the *two* last characters, so the character before the dash is not validated
/// (the generated name is validated again).
pub(crate) fn mask_trailing_dash(name: &str, prefix: bool) -> Cow<'_, str> {
    if !prefix || name.len() < 2 || !name.ends_with('-') {
        return Cow::Borrowed(name);
    }
    let kept = name.as_bytes().get(..name.len() - 2).unwrap_or_default();
    let mut masked = String::from_utf8_lossy(kept).into_owned();
    masked.push('a');
    Cow::Owned(masked)
}

/// RFC 1123 subdomain.
pub(crate) fn dns_subdomain(name: &str) -> Vec<String> {
    let form_ok = is_subdomain(name);
    check_format(name, SUBDOMAIN_MAX, form_ok, || {
        pattern_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
             and must start and end with an alphanumeric character",
            SUBDOMAIN_PATTERN,
            &["example.com"],
        )
    })
}

/// RFC 1123 label: a subdomain without dots.
pub(crate) fn dns_label(name: &str) -> Vec<String> {
    check_format(name, LABEL_MAX, is_label(name), || match is_subdomain(name) {
        true => "must not contain dots".to_owned(),
        false => pattern_error(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
             and must start and end with an alphanumeric character",
            LABEL_PATTERN,
            &["my-name", "123-abc"],
        ),
    })
}

/// A domain name of at least two labels; a final dot is allowed.
pub(crate) fn fully_qualified_domain(field: &str, name: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(field, "")];
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let errors = dns_subdomain(name);
    if !errors.is_empty() {
        return vec![FieldError::invalid(field, name, errors.join(","))];
    }
    if !name.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        return vec![FieldError::invalid(field, name, detail)];
    }
    let bad = name.split('.').map(|label| (label, dns_label(label))).find(|(_, errors)| !errors.is_empty());
    bad.map(|(label, errors)| FieldError::invalid(field, label, errors.join(","))).into_iter().collect()
}

// === Keys and labels ===

/// `name` or `dns.prefix/name`: keys of labels and annotations, finalizers, condition types.
pub(crate) fn qualified_name(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((prefix, name)) if !name.contains('/') => (Some(prefix), name),
        Some(_) => {
            let format_error = key_name_error();
            let tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {format_error} {tail}")];
        }
    };
    let mut errors: Vec<String> = match prefix {
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => dns_subdomain(prefix).iter().map(|e| format!("prefix part {e}")).collect(),
        None => Vec::new(),
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        errors.push(format!("name part {}", too_long(LABEL_MAX)));
    }
    if !is_key_name(name) {
        errors.push(format!("name part {}", key_name_error()));
    }
    errors
}

/// The value of a label.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    check_format(value, LABEL_MAX, value.is_empty() || is_key_name(value), || {
        pattern_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
             and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        )
    })
}

/// A key of a ConfigMap or Secret.
pub(crate) fn config_key(key: &str) -> Vec<String> {
    let chars_ok = !key.is_empty() && key.bytes().all(is_key_inner);
    let mut errors = check_format(key, SUBDOMAIN_MAX, chars_ok, || {
        pattern_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        )
    });
    match key {
        "." => errors.push("must not be '.'".to_owned()),
        ".." => errors.push("must not be '..'".to_owned()),
        _ if key.starts_with("..") => errors.push("must not start with '..'".to_owned()),
        _ => {}
    }
    errors
}

/// A name that is valid as a URL path segment; the only rule for events and RBAC kinds.
pub(crate) fn path_segment(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%'].iter().filter(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// Errors for every key and value of a label map, all with the field path of the map.
pub(crate) fn labels(field: &str, labels: Option<&Map<String, Value>>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        if errors.len() > MAX_ERRORS {
            break;
        }
        errors.extend(invalid_each(field, key, qualified_name(key)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(invalid_each(field, value, label_value(value)));
    }
    errors
}

/// Errors for the keys and the total size of annotations. Unlike for labels, upper case is allowed in keys.
pub(crate) fn annotations(field: &str, annotations: Option<&Map<String, Value>>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        if errors.len() <= MAX_ERRORS {
            errors.extend(invalid_each(field, key, qualified_name(&lower_case(key))));
        }
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(field, ANNOTATIONS_MAX));
    }
    errors
}

fn lower_case(key: &str) -> Cow<'_, str> {
    match key.chars().any(char::is_uppercase) {
        true => Cow::Owned(key.to_lowercase()),
        false => Cow::Borrowed(key),
    }
}

/// Errors in a label selector object (`matchLabels` and `matchExpressions`).
pub(crate) fn label_selector(field: &str, selector: &Value) -> Vec<FieldError> {
    let mut errors = labels(&format!("{field}.matchLabels"), selector.map("matchLabels"));
    for (i, requirement) in selector.list("matchExpressions").iter().enumerate() {
        errors.extend(selector_requirement(&format!("{field}.matchExpressions[{i}]"), requirement));
    }
    errors
}

fn selector_requirement(field: &str, requirement: &Value) -> Vec<FieldError> {
    let values = requirement.texts("values");
    let values_field = format!("{field}.values");
    let mut errors = Vec::new();
    match requirement.text("operator") {
        "In" | "NotIn" if values.is_empty() => errors
            .push(FieldError::required(values_field.as_str(), "must be specified when `operator` is 'In' or 'NotIn'")),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
            values_field.as_str(),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            errors.push(FieldError::invalid(format!("{field}.operator"), other, "not a valid selector operator"));
        }
    }
    let key = requirement.text("key");
    errors.extend(invalid_each(&format!("{field}.key"), key, qualified_name(key)));
    for (i, value) in values.iter().enumerate() {
        errors.extend(invalid_each(&format!("{values_field}[{i}]"), value, label_value(value)));
    }
    errors
}

// === Ports and percentages ===

/// A port number other than 0.
pub(crate) fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

/// A number within an inclusive range.
pub(crate) fn in_range(value: i64, low: i64, high: i64) -> Vec<String> {
    match (low..=high).contains(&value) {
        true => Vec::new(),
        false => vec![format!("must be between {low} and {high}, inclusive")],
    }
}

/// The name of a container port, also in a Service's targetPort (RFC 6335).
pub(crate) fn is_valid_port_name(name: &str) -> Vec<String> {
    let charset_ok = !name.is_empty() && name.bytes().all(|b| is_lower_alnum(b) || b == b'-');
    let checks = [
        (name.len() > PORT_NAME_MAX, "must be no more than 15 characters"),
        (!charset_ok, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"),
        (!name.contains(|c: char| c.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen"),
    ];
    checks.iter().filter(|(wrong, _)| *wrong).map(|(_, text)| (*text).to_owned()).collect()
}

/// `25%`.
pub(crate) fn percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    match !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        true => Vec::new(),
        false => vec![pattern_error(
            "a valid percent string must be a numeric string followed by an ending '%'",
            "[0-9]+%",
            &["1%", "93%"],
        )],
    }
}

// === Errors ===

/// One `Invalid` error per message.
pub(crate) fn invalid_each(field: &str, value: &str, texts: Vec<String>) -> Vec<FieldError> {
    texts.into_iter().map(|text| FieldError::invalid(field, value, text)).collect()
}

/// An error if an immutable field changed.
pub(crate) fn immutable(field: &str, new: &Value, old: &Value) -> Option<FieldError> {
    (new != old).then(|| FieldError::invalid(field, new.clone(), FIELD_IMMUTABLE))
}

/// An error if a number is negative.
pub(crate) fn not_negative(field: &str, value: i64) -> Option<FieldError> {
    (value < 0).then(|| FieldError::invalid(field, value, NOT_NEGATIVE))
}

/// An error if a protocol is missing or unknown.
pub(crate) fn protocol(field: &str, protocol: &str) -> Option<FieldError> {
    match protocol {
        "" => Some(FieldError::required(field, "")),
        known if PROTOCOLS.contains(&known) => None,
        other => Some(FieldError::not_supported(field, other, PROTOCOLS)),
    }
}

/// The messages for a format with a maximum length and a pattern.
fn check_format(value: &str, max: usize, matches: bool, mismatch: impl FnOnce() -> String) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > max {
        errors.push(too_long(max));
    }
    if !matches {
        errors.push(mismatch());
    }
    errors
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// upstream: examples are separated by a comma *and* ` or `.
fn pattern_error(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn key_name_error() -> String {
    pattern_error(
        "must consist of alphanumeric characters, '-', '_' or '.', \
         and must start and end with an alphanumeric character",
        "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
        &["MyName", "my.name", "123-abc"],
    )
}

// === Matching ===

const LABEL_PATTERN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_PATTERN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

fn is_lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_key_inner(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')
}

/// Whether the text starts and ends with `edge` and contains only `inner`.
fn is_enclosed(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let edges_ok = bytes.first().is_some_and(|&b| edge(b)) && bytes.last().is_some_and(|&b| edge(b));
    edges_ok && bytes.iter().all(|&b| inner(b))
}

fn is_label(text: &str) -> bool {
    is_enclosed(text, is_lower_alnum, |b| is_lower_alnum(b) || b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_key_name(text: &str) -> bool {
    is_enclosed(text, |b| b.is_ascii_alphanumeric(), is_key_inner)
}

/// Whether the resource name is qualified by a domain outside kubernetes.io: `example.com/gpu`.
pub(crate) fn is_extended_resource(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/") || name.starts_with("requests.");
    !native && qualified_name(&format!("requests.{name}")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn subdomains_are_lower_case_labels_joined_by_dots() {
        for good in ["a", "a.b", "1-a.2", &"a".repeat(253)] {
            assert_eq!(dns_subdomain(good), Vec::<String>::new(), "{good}");
        }
        for bad in ["", "UPPER", "-a", "a-", "a..b", ".a", "a/b", "a_b", "ä"] {
            assert_eq!(dns_subdomain(bad).len(), 1, "{bad}");
        }
        assert_eq!(dns_subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
        assert_eq!(
            dns_subdomain("A_b"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
    }

    #[test]
    fn a_label_with_dots_is_rejected() {
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(
            dns_label("UPPER"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert!(dns_label("1a").is_empty());
    }

    #[test]
    fn a_generate_name_is_masked_over_its_last_two_characters() {
        assert_eq!(mask_trailing_dash("pre-", true), "pra");
        assert_eq!(mask_trailing_dash("pre-", false), "pre-");
        assert_eq!(mask_trailing_dash("A-", true), "a");
        assert_eq!(mask_trailing_dash("-", true), "-");
        assert_eq!(mask_trailing_dash("Bad_", true), "Bad_");
    }

    #[test]
    fn qualified_names_have_at_most_one_slash() {
        let name_part = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        assert!(qualified_name("kubernetes.io/x").is_empty());
        assert_eq!(qualified_name("a b"), [name_part]);
        assert_eq!(qualified_name(""), ["name part must be non-empty", name_part]);
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name(&"a".repeat(64)), ["name part must be no more than 63 characters"]);
        assert_eq!(
            qualified_name("a/b/c"),
            [
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ]
        );
        let both = qualified_name("bad_/x y");
        assert!(both.len() == 2 && both[0].starts_with("prefix part a lowercase RFC 1123 subdomain"), "{both:?}");
    }

    #[test]
    fn errors_of_labels_and_annotations_name_the_whole_map() {
        let map = json!({"a b": "c", "x": "b c"});
        let found = labels("metadata.labels", map.as_object());
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|e| e.field == "metadata.labels"));
        let upper = json!({"UPPER.example/Key": "anything at all"});
        assert_eq!(annotations("metadata.annotations", upper.as_object()), []);
        let long = json!({"k": "x".repeat(ANNOTATIONS_MAX)});
        let found = annotations("metadata.annotations", long.as_object());
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["metadata.annotations: Too long: may not be more than 262144 bytes"]
        );
    }

    #[test]
    fn config_keys_may_not_be_relative_paths() {
        assert!(config_key("key.name").is_empty());
        assert_eq!(config_key("."), ["must not be '.'"]);
        assert_eq!(config_key(".."), ["must not be '..'"]);
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
        assert_eq!(config_key("a/b").len(), 1);
    }

    #[test]
    fn port_name_errors_are_all_reported() {
        assert!(is_valid_port_name("http-2").is_empty());
        assert_eq!(
            is_valid_port_name("-80--"),
            [
                "must contain at least one letter (a-z)",
                "must not contain consecutive hyphens",
                "must not begin or end with a hyphen"
            ]
        );
        assert_eq!(is_valid_port_name("abcdefghijklmnop"), ["must be no more than 15 characters"]);
    }

    #[test]
    fn path_segments_exclude_only_dots_and_separators() {
        assert!(path_segment("system:Any_Thing", false).is_empty());
        assert_eq!(path_segment("..", false), ["may not be '..'"]);
        assert!(path_segment("..", true).is_empty());
        assert_eq!(path_segment("a/b%", false), ["may not contain '/'", "may not contain '%'"]);
    }

    #[test]
    fn a_domain_needs_two_labels() {
        let texts =
            |name: &str| -> Vec<String> { fully_qualified_domain("f", name).iter().map(ToString::to_string).collect() };
        assert_eq!(texts("a.example."), Vec::<String>::new());
        assert_eq!(texts(""), ["f: Required value"]);
        let single = "f: Invalid value: \"a\": should be a domain with at least two segments separated by dots";
        assert_eq!(texts("a"), [single]);
    }

    #[test]
    fn selectors_are_validated_by_operator_key_and_values() {
        let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [
            {"key": "k", "operator": "In"}, {"key": "k", "operator": "Exists", "values": ["v"]}, {"key": "", "operator": "Is"},
        ]});
        let fields: Vec<String> = label_selector("spec.selector", &selector).into_iter().map(|e| e.field).collect();
        assert_eq!(
            fields,
            [
                "spec.selector.matchExpressions[0].values",
                "spec.selector.matchExpressions[1].values",
                "spec.selector.matchExpressions[2].operator",
                "spec.selector.matchExpressions[2].key",
                "spec.selector.matchExpressions[2].key",
            ]
        );
    }
}
