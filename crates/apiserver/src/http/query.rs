//! Query parameters and the options they carry.

use crate::field_error::FieldError;
use crate::go_text;
use crate::resources::Resource;
use crate::selectors::{FieldSelector, LabelSelector};
use crate::status::{ApiError, ApiResult, Named};
use crate::store::Stored;
use crate::table::Include;

/// The decoded query string; empty pairs (`?&watch=true`) are passed over.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Query {
        let pairs = form_urlencoded::parse(text.as_bytes()).map(|(k, v)| (k.into_owned(), v.into_owned()));
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

    /// upstream: anything but an explicit no counts as yes.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or(false)
    }

    pub(crate) fn optional_flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    pub(crate) fn int(&self, name: &str) -> ApiResult<Option<i64>> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))),
        }
    }

    /// What `includeObject` asks for in a Table.
    pub(crate) fn include(&self) -> ApiResult<Include> {
        match self.text("includeObject") {
            "" | "Metadata" => Ok(Include::Metadata),
            "Object" => Ok(Include::Object),
            "None" => Ok(Include::None),
            other => Err(ApiError::bad_request(format!("unrecognized includeObject value: {other:?}"))),
        }
    }
}

/// How the resourceVersion of a list is meant.
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
    /// As given: unset and "0" differ from each other and from a number.
    pub(crate) resource_version: String,
    pub(crate) version_match: Option<Match>,
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
    pub(crate) timeout_seconds: Option<i64>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl ListOptions {
    pub(crate) fn parse(resource: &Resource, query: &Query, watch: bool) -> ApiResult<ListOptions> {
        let limit = query.int("limit")?.unwrap_or(0);
        let options = ListOptions {
            labels: LabelSelector::parse(query.text("labelSelector"))?,
            fields: FieldSelector::parse(resource, query.text("fieldSelector"))?,
            resource_version: query.text("resourceVersion").to_owned(),
            version_match: None,
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: query.text("continue").to_owned(),
            timeout_seconds: query.int("timeoutSeconds")?,
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: query.optional_flag("sendInitialEvents"),
        };
        options.with_match(query.text("resourceVersionMatch"), watch)
    }

    /// The selectors let the object through.
    pub(crate) fn matches(&self, object: &Stored) -> bool {
        self.labels.matches(&object.labels) && self.fields.matches(object)
    }

    fn with_match(mut self, text: &str, watch: bool) -> ApiResult<ListOptions> {
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

    fn watch_errors(&self, text: &str) -> Vec<FieldError> {
        let field = "resourceVersionMatch";
        let mut errors = Vec::new();
        match (self.send_initial_events.is_some(), text) {
            (true, "NotOlderThan") | (false, "") => {}
            (true, "") => errors.push(FieldError::forbidden(
                field,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )),
            (true, other) => {
                errors.push(FieldError::forbidden(
                    field,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
                errors.push(FieldError::not_supported(field, other, &["NotOlderThan"]));
            }
            (false, _) => errors.push(FieldError::forbidden(
                field,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )),
        }
        if !self.continue_token.is_empty() {
            errors.push(FieldError::forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
        }
        errors
    }
}

/// How unknown and duplicate fields are met.
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
    const LONGEST: usize = 128;
    let too_long = (manager.len() > LONGEST).then(|| FieldError::too_long("fieldManager", LONGEST));
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
