//! Query parameters and request options.

use crate::field_error::FieldError;
use crate::go_text;
use crate::resources::Resource;
use crate::selectors::{FieldSelector, LabelSelector};
use crate::status::{ApiError, ApiResult, Named};
use crate::store::Stored;
use crate::table::Include;

/// The decoded query string. Empty pairs (`?&watch=true`) are skipped.
///
/// upstream: pairs with a semicolon or a malformed escape are skipped, too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Query {
        let valid = text.split('&').filter(|pair| !pair.contains(';') && has_valid_escapes(pair));
        let pairs = valid.flat_map(|pair| form_urlencoded::parse(pair.as_bytes()).into_owned());
        Query { pairs: pairs.filter(|(k, _)| !k.is_empty()).collect() }
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    /// All values of a parameter.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.pairs.iter().filter(|(k, _)| k == name).map(|(_, v)| v.as_str()).collect()
    }

    fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// upstream: every value except `false` and `0` is true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or(false)
    }

    pub(crate) fn optional_flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    pub(crate) fn int(&self, name: &str) -> ApiResult<Option<i64>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|e| ApiError::bad_request(go_text::number_error("ParseInt", text, &e)))
    }

    /// The `includeObject` parameter of a Table request.
    pub(crate) fn include(&self) -> ApiResult<Include> {
        match self.text("includeObject") {
            "" | "Metadata" => Ok(Include::Metadata),
            "Object" => Ok(Include::Object),
            "None" => Ok(Include::None),
            other => {
                let why = "must be 'Metadata', 'Object', 'None', or empty";
                let error = FieldError::invalid("includeObject", other, why);
                Err(ApiError::bad_request(format!("Unable to convert to Table as requested: {error}")))
            }
        }
    }
}

/// Whether each `%` is followed by two hexadecimal digits.
fn has_valid_escapes(text: &str) -> bool {
    let is_valid = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|b| b.is_ascii_hexdigit());
    text.split('%').skip(1).all(is_valid)
}

/// The `resourceVersionMatch` parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    NotOlderThan,
    Exact,
}

/// The options of list, watch and deletecollection.
#[derive(Debug, Clone)]
pub(crate) struct ListOptions {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    /// The parameter as sent: unset, "0" and other numbers have different meanings.
    pub(crate) resource_version: String,
    pub(crate) version_match: Option<Match>,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) timeout_seconds: Option<i64>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Parses the options in upstream's order, which determines the first error: numbers, selectors, validation rules, then
    /// whether the kind supports the selected fields.
    pub(crate) fn parse(resource: &Resource, query: &Query) -> ApiResult<ListOptions> {
        let timeout_seconds = query.int("timeoutSeconds")?;
        let limit = query.int("limit")?.unwrap_or(0);
        let options = ListOptions {
            labels: LabelSelector::parse(query.text("labelSelector"))?,
            fields: FieldSelector::parse_unchecked(query.text("fieldSelector"))?,
            resource_version: query.text("resourceVersion").to_owned(),
            version_match: None,
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: query.text("continue").to_owned(),
            timeout_seconds,
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.optional_flag("sendInitialEvents"),
        };
        let mut options = options.with_match(query.text("resourceVersionMatch"), query.flag("watch"))?;
        options.fields = options.fields.for_resource(resource)?;
        Ok(options)
    }

    /// Whether the selectors match the object.
    pub(crate) fn matches(&self, object: &Stored) -> bool {
        self.labels.matches(&object.labels) && self.fields.matches(object)
    }

    fn with_match(mut self, text: &str, watch: bool) -> ApiResult<ListOptions> {
        let text = if watch { self.with_initial_events(text) } else { text };
        let errors = if watch { self.watch_errors(text) } else { self.list_errors(text) };
        if !errors.is_empty() {
            return Err(ApiError::invalid(Named { group: "meta.k8s.io", kind: "ListOptions" }, "", &errors));
        }
        self.version_match = match text {
            "Exact" => Some(Match::Exact),
            "NotOlderThan" => Some(Match::NotOlderThan),
            _ => None,
        };
        Ok(self)
    }

    fn list_errors(&self, text: &str) -> Vec<FieldError> {
        let field = "resourceVersionMatch";
        let mut errors = Vec::new();
        if !text.is_empty() {
            if self.resource_version.is_empty() {
                errors.push(FieldError::forbidden(
                    field,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                errors
                    .push(FieldError::forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(text, "Exact" | "NotOlderThan") {
                errors.push(FieldError::not_supported(field, text, &["Exact", "NotOlderThan", ""]));
            }
            if text == "Exact" && self.resource_version == "0" {
                errors.push(FieldError::forbidden(
                    field,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if self.send_initial_events.is_some() {
            errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        errors
    }

    /// upstream: a watch without a resource version, or with "0", implies `sendInitialEvents`.
    fn with_initial_events<'t>(&mut self, text: &'t str) -> &'t str {
        let from_any_version = matches!(self.resource_version.as_str(), "" | "0");
        if self.send_initial_events.is_some() || !text.is_empty() || !from_any_version {
            return text;
        }
        self.send_initial_events = Some(true);
        "NotOlderThan"
    }

    fn watch_errors(&self, text: &str) -> Vec<FieldError> {
        let field = "resourceVersionMatch";
        let initial = self.send_initial_events.is_some();
        let mut errors = Vec::new();
        if initial && text != "NotOlderThan" {
            errors.push(FieldError::forbidden(
                field,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if text.is_empty() {
            return errors;
        }
        if !initial {
            errors.push(FieldError::forbidden(
                field,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if text != "NotOlderThan" {
            errors.push(FieldError::not_supported(field, text, &["NotOlderThan"]));
        }
        if !self.continue_token.is_empty() {
            errors.push(FieldError::forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
        }
        errors
    }
}

/// Handling of unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Strict,
    Warn,
    Ignore,
}

/// The options that create, update and patch share.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_manager: Option<String>,
    pub(crate) field_validation: FieldValidation,
    pub(crate) force: Option<bool>,
}

impl WriteOptions {
    /// `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`; `apply` is set for server-side apply.
    pub(crate) fn parse(query: &Query, kind: &str, apply: bool) -> ApiResult<WriteOptions> {
        let mut errors = Vec::new();
        let force = query.optional_flag("force");
        let manager = query.text("fieldManager");
        if kind == "PatchOptions" && !apply && force.is_some() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        if apply && manager.is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        errors.extend(manager_errors(manager));
        errors.extend(dry_run_errors(&query.all("dryRun")));
        let field_validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            "Ignore" => FieldValidation::Ignore,
            other => {
                errors.push(FieldError::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Ignore
            }
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid(Named { group: "meta.k8s.io", kind }, "", &errors));
        }
        Ok(WriteOptions {
            dry_run: query.get("dryRun").is_some(),
            field_manager: Some(manager.to_owned()).filter(|m| !m.is_empty()),
            field_validation,
            force,
        })
    }
}

fn manager_errors(manager: &str) -> Vec<FieldError> {
    const MAX_LENGTH: usize = 128;
    let too_long = (manager.len() > MAX_LENGTH).then(|| FieldError::too_long("fieldManager", MAX_LENGTH));
    let unprintable = manager.char_indices().filter(|(_, c)| !go_text::is_printable(*c)).map(|(position, c)| {
        let why = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        FieldError::invalid("fieldManager", manager, why)
    });
    too_long.into_iter().chain(unprintable).collect()
}

pub(crate) fn dry_run_errors(values: &[&str]) -> Option<FieldError> {
    if values.iter().all(|v| *v == "All") {
        return None;
    }
    let shown: Vec<serde_json::Value> = values.iter().map(|v| (*v).into()).collect();
    Some(FieldError::not_supported("dryRun", serde_json::Value::Array(shown), &["All"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::RESOURCES;

    fn options(query: &str) -> ApiResult<ListOptions> {
        let resource = RESOURCES.iter().find(|r| r.plural == "configmaps").unwrap();
        ListOptions::parse(resource, &Query::parse(query))
    }

    #[test]
    fn numbers_are_parsed_as_in_go() {
        for (query, want) in [
            ("limit=abc", "strconv.ParseInt: parsing \"abc\": invalid syntax"),
            ("limit=", "strconv.ParseInt: parsing \"\": invalid syntax"),
            ("limit=99999999999999999999", "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"),
            ("limit=abc&timeoutSeconds=x", "strconv.ParseInt: parsing \"x\": invalid syntax"),
            ("limit=abc&labelSelector==", "strconv.ParseInt: parsing \"abc\": invalid syntax"),
        ] {
            assert_eq!(options(query).unwrap_err().message, want, "{query}");
        }
    }

    #[test]
    fn malformed_pairs_are_skipped() {
        let query = Query::parse("&a=1;b=2&c=%zz&d=%4&e=%41&=x&f");
        assert_eq!(query.pairs, [("e".to_owned(), "A".to_owned()), ("f".to_owned(), String::new())]);
    }

    #[test]
    fn option_errors_precede_unknown_field_errors() {
        let error = options("resourceVersionMatch=Exact&fieldSelector=x=y").unwrap_err();
        assert_eq!(error.code, 422);
    }

    #[test]
    fn watches_from_any_version_send_initial_events() {
        let initial = |query| options(query).unwrap().send_initial_events;
        assert_eq!(initial("watch=1"), Some(true));
        assert_eq!(initial("watch=1&resourceVersion=0"), Some(true));
        assert_eq!(initial("watch=1&resourceVersion=5"), None);
        assert_eq!(initial("resourceVersion=0"), None);
        assert!(options("watch=1&continue=abc").is_err());
        assert!(options("watch=1&resourceVersion=5&continue=abc").is_ok());
    }

    #[test]
    fn a_watch_reports_all_errors_of_its_version_match() {
        let error = options("watch=1&resourceVersionMatch=Exact&resourceVersion=5").unwrap_err();
        assert!(
            error.message.contains("forbidden for watch unless sendInitialEvents is provided"),
            "{}",
            error.message
        );
        assert!(error.message.contains("Unsupported value: \"Exact\": supported values: \"NotOlderThan\""));
    }
}
