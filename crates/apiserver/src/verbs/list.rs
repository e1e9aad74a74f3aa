//! GET of one object or of a collection: resourceVersion semantics, selectors, paging.

use std::sync::Arc;
use std::time::Duration;

use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine as _};
use serde::Serialize;
use serde_json::Value;

use super::{Call, ok};
use crate::field_error::FieldError;
use crate::go_text;
use crate::http::query::{ListOptions, Match};
use crate::http::respond::{List, Object, ResponseContent};
use crate::patch::json_kind;
use crate::status::{ApiError, ApiResult};
use crate::store::{Key, Snapshot, Stored};
use crate::value::Json;

/// upstream: Go ignores unused trailing bits.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Maximum time that a read waits for a future revision.
pub(super) const REVISION_TIMEOUT: Duration = Duration::from_secs(3);

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. \
    You can start a new list without the continue parameter, or use the continue token in this response to retrieve \
    the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that \
    were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

pub(super) async fn get(call: &mut Call) -> ApiResult<ResponseContent> {
    if let Some(text) = call.query.get("resourceVersion").filter(|v| !v.is_empty()) {
        let revision = parse_version(text).map_err(ApiError::plain)?;
        reach(call, revision).await?;
    }
    Ok(ok(Object::Stored(call.stored_or_404()?)))
}

pub(super) async fn list(call: &mut Call) -> ApiResult<ResponseContent> {
    let options = ListOptions::parse(call.resource(), &call.query)?;
    Ok(ResponseContent::List(page(call, &options).await?))
}

/// One page of the objects that `options` select.
pub(super) async fn page(call: &Call, options: &ListOptions) -> ApiResult<List> {
    if options.continue_token.is_empty() && !options.resource_version.is_empty() {
        let revision = parse_version(&options.resource_version)
            .map_err(|e| ApiError::bad_request(format!("invalid resource version: {e}")))?;
        reach(call, revision).await?;
    }
    let page = Page::start(call, options).await?;
    Ok(page.fill(call, options))
}

pub(super) fn parse_version(text: &str) -> Result<u64, String> {
    go_text::parse_uint(text).map_err(|why| FieldError::invalid("resourceVersion", text, why).to_string())
}

/// Waits for a future revision, up to the timeout.
pub(super) async fn reach(call: &Call, revision: u64) -> ApiResult<()> {
    let reached = call.state.store.reached(revision, REVISION_TIMEOUT).await;
    reached.map_err(|current| ApiError::too_large_resource_version(revision, current))
}

/// The namespace of a collection request; `None` for all namespaces.
pub(super) fn namespace(call: &Call) -> Option<&str> {
    Some(call.path.namespace.as_str()).filter(|ns| !ns.is_empty())
}

/// The objects of a collection request, before selectors and paging.
fn snapshot(call: &Call, options: &ListOptions) -> ApiResult<Snapshot> {
    let (store, storage) = (&call.state.store, call.resource().storage);
    match exact_version(options) {
        Some(revision) => store
            .list_at(storage, namespace(call), revision)
            .map_err(|_| ApiError::expired("The resourceVersion for the provided list is too old.")),
        None => Ok(store.list(storage, namespace(call))),
    }
}

/// upstream: a list with limit and resourceVersion is served from exactly that version, unless resourceVersionMatch is set.
fn exact_version(options: &ListOptions) -> Option<u64> {
    let revision = options.resource_version.parse().ok().filter(|r| *r != 0)?;
    match options.version_match {
        Some(Match::Exact) => Some(revision),
        None if options.limit > 0 => Some(revision),
        _ => None,
    }
}

// === Paging ===

/// The position and revision at which a list continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ContinueToken {
    v: String,
    /// -1: the latest state.
    rv: i64,
    /// The first key not yet listed, relative to the collection.
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

impl ContinueToken {
    /// A token that continues after `key`.
    fn after(key: &Key, namespaced: bool, revision: i64) -> ContinueToken {
        let start = if namespaced || key.namespace.is_empty() {
            format!("/{}\0", key.name)
        } else {
            format!("/{}/{}\0", key.namespace, key.name)
        };
        ContinueToken { v: TOKEN_VERSION.into(), rv: revision, start }
    }

    pub(crate) fn encode(&self) -> String {
        BASE64.encode(serde_json::to_string(self).unwrap_or_default())
    }

    pub(crate) fn decode(text: &str) -> ApiResult<ContinueToken> {
        let invalid =
            |why: String| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        let raw = LENIENT_BASE64.decode(&text).map_err(|e| invalid(base64_error(&e, text.len())))?;
        let value = serde_json::from_slice(&raw).map_err(|e| invalid(crate::schema::json_error(&raw, &e)))?;
        let token = ContinueToken::from_value(&value).map_err(invalid)?;
        if token.v != TOKEN_VERSION {
            return Err(invalid(format!("server does not recognize this encoded version {}", token.v)));
        }
        if token.rv == 0 {
            return Err(invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".into()));
        }
        if token.start.is_empty() {
            return Err(invalid("encoded start key empty (version meta.k8s.io/v1)".into()));
        }
        match token.is_within_collection() {
            true => Ok(token),
            false => Err(invalid(token.start)),
        }
    }

    /// Absent and null fields are empty.
    fn from_value(value: &Value) -> Result<ContinueToken, String> {
        if !value.is_object() && !value.is_null() {
            let found = json_kind(value);
            return Err(format!("json: cannot unmarshal {found} into Go value of type storage.continueToken"));
        }
        let text = |name: &str| match value.at(name) {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            other => Err(wrong_field(json_kind(other), name, "string")),
        };
        let rv = match value.at("rv") {
            Value::Null => 0,
            Value::Number(n) => n.as_i64().ok_or_else(|| wrong_field(&format!("number {n}"), "rv", "int64"))?,
            other => return Err(wrong_field(json_kind(other), "rv", "int64")),
        };
        Ok(ContinueToken { v: text("v")?, rv, start: text("start")? })
    }

    /// Whether the key stays within its collection: it has no empty, `.` or `..` parts.
    fn is_within_collection(&self) -> bool {
        let start = self.start.strip_prefix('/').unwrap_or(&self.start);
        start.is_empty() || !start.split('/').any(|part| matches!(part, "" | "." | ".."))
    }

    /// The first key of the next page.
    fn key(&self, namespace: Option<&str>, namespaced: bool) -> Key {
        let start = self.start.strip_prefix('/').unwrap_or(&self.start);
        match (namespace, start.split_once('/')) {
            (Some(namespace), _) => Key::new(namespace, start),
            (None, Some((namespace, name))) if namespaced => Key::new(namespace, name),
            (None, _) if namespaced => Key::new(start, ""),
            (None, _) => Key::new("", start),
        }
    }
}

fn wrong_field(found: &str, name: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal {found} into Go struct field continueToken.{name} of type {wanted}")
}

/// Go's error for invalid base64.
fn base64_error(error: &DecodeError, length: usize) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => *at,
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => length.saturating_sub(1),
    };
    format!("illegal base64 data at input byte {at}")
}

/// A page of a list while it is built.
struct Page {
    found: Snapshot,
    first: usize,
    limit: usize,
}

impl Page {
    async fn start(call: &Call, options: &ListOptions) -> ApiResult<Page> {
        // upstream: lists from the cache (resourceVersion "0") are not paged.
        let limit = if options.resource_version == "0" || options.limit == 0 { usize::MAX } else { options.limit };
        if options.continue_token.is_empty() {
            return Ok(Page { found: snapshot(call, options)?, first: 0, limit });
        }
        let token = ContinueToken::decode(&options.continue_token)?;
        if !matches!(options.resource_version.as_str(), "" | "0") {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        if let Ok(revision) = u64::try_from(token.rv) {
            reach(call, revision).await?;
        }
        let found = Page::resume(call, &token)?;
        let key = token.key(namespace(call), call.resource().namespaced);
        let first = found.objects.partition_point(|o| o.key < key);
        Ok(Page { found, first, limit })
    }

    fn resume(call: &Call, token: &ContinueToken) -> ApiResult<Snapshot> {
        let (store, storage) = (&call.state.store, call.resource().storage);
        let Ok(revision) = u64::try_from(token.rv) else {
            return Ok(store.list(storage, namespace(call)));
        };
        store.list_at(storage, namespace(call), revision).map_err(|_| {
            let mut error = ApiError::expired(CONTINUE_EXPIRED);
            error.continue_token = Some(ContinueToken { rv: -1, ..token.clone() }.encode());
            error
        })
    }

    fn fill(self, call: &Call, options: &ListOptions) -> List {
        let selects = !options.labels.is_empty() || !options.fields.is_empty();
        let mut objects: Vec<Arc<Stored>> = Vec::new();
        let mut next = self.first;
        let total = self.found.objects.len();
        for object in &self.found.objects[self.first.min(total)..] {
            if objects.len() == self.limit {
                break;
            }
            next += 1;
            if options.matches(object) {
                objects.push(object.clone());
            }
        }
        let remaining = total.saturating_sub(next);
        let last = self.found.objects.get(next.wrapping_sub(1)).filter(|_| remaining > 0);
        let revision = i64::try_from(self.found.revision).unwrap_or(i64::MAX);
        let namespaced = namespace(call).is_some();
        let token = last.map(|o| ContinueToken::after(&o.key, namespaced, revision).encode());
        List {
            objects,
            revision: self.found.revision,
            remaining: token.as_ref().filter(|_| !selects).map(|_| remaining),
            continue_token: token,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_continues_after_the_last_key() {
        let last = Key::new("ns", "b");
        let token = ContinueToken::after(&last, false, 7);
        let decoded = ContinueToken::decode(&token.encode()).unwrap();
        assert_eq!(decoded, token);
        let key = decoded.key(None, true);
        assert!(last < key && key < Key::new("ns", "ba"));
        assert!(key < Key::new("ns", "c"));
    }

    #[test]
    fn invalid_tokens_are_rejected_with_upstream_messages() {
        let token = |text: &str| BASE64.encode(text);
        for (given, want) in [
            ("e30=".to_owned(), "illegal base64 data at input byte 3"),
            ("a b".to_owned(), "illegal base64 data at input byte 1"),
            ("abcde".to_owned(), "illegal base64 data at input byte 4"),
            (token("[]"), "json: cannot unmarshal array into Go value of type storage.continueToken"),
            (
                token(r#"{"rv":"5"}"#),
                "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
            (token("null"), "server does not recognize this encoded version "),
            (token("{}"), "server does not recognize this encoded version "),
            (
                token(r#"{"v":"meta.k8s.io/v1","start":"a"}"#),
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (token(r#"{"v":"meta.k8s.io/v1","rv":5}"#), "encoded start key empty (version meta.k8s.io/v1)"),
            (token(r#"{"v":"meta.k8s.io/v1","rv":5,"start":"../a"}"#), "../a"),
        ] {
            let message = ContinueToken::decode(&given).unwrap_err().message;
            assert_eq!(message, format!("invalid continue token: continue key is not valid: {want}"), "{given}");
        }
    }

    #[test]
    fn keys_are_ordered_by_namespace_and_name_joined() {
        let mut keys = ["pa/b", "pa-b/a", "pb/a", "pa/a", "pa/a.b", "pa/a-b"].map(|key| {
            let (namespace, name) = key.split_once('/').unwrap();
            Key::new(namespace, name)
        });
        keys.sort();
        let sorted = keys.map(|key| format!("{}/{}", key.namespace, key.name));
        assert_eq!(sorted, ["pa-b/a", "pa/a", "pa/a-b", "pa/a.b", "pa/b", "pb/a"]);
    }

    #[test]
    fn versions_are_unsigned_integers() {
        assert_eq!(parse_version("7"), Ok(7));
        for (text, why) in
            [("+7", "invalid syntax"), ("", "invalid syntax"), ("99999999999999999999", "value out of range")]
        {
            assert!(parse_version(text).unwrap_err().ends_with(why), "{text}");
        }
    }

    #[test]
    fn tokens_are_accepted_without_the_leading_slash() {
        let token = ContinueToken::decode("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Miwic3RhcnQiOiJhXHUwMDAwIn0").unwrap();
        assert_eq!(token.key(Some("n"), true), Key::new("n", "a\0"));
    }
}
