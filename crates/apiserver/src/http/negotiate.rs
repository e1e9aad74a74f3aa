//! Content negotiation: the format of the response and of the request body.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use super::query::Query;
use crate::status::{ApiError, ApiResult};
use crate::table::Include;

/// Encodings of responses. Protobuf is supported in requests only: clients that prefer it also accept JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Json,
    Yaml,
}

/// Representation of objects in the response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Shape {
    #[default]
    Object,
    Table {
        version: String,
    },
    Partial {
        version: String,
        list: bool,
    },
}

/// The negotiated representation of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub(crate) format: Format,
    pub(crate) shape: Shape,
    pub(crate) pretty: bool,
}

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMED: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// The media types that a route can produce. The router checks them first, ignoring quality and parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// One object.
    Object,
    /// A list, which also supports watch.
    List,
    /// JSON only.
    Json,
    /// A JSON Web Key Set.
    KeySet,
}

impl Offer {
    fn has(self, media_type: &str) -> bool {
        match media_type {
            "*/*" => true,
            "application/json" => self != Offer::KeySet,
            "application/yaml" | "application/vnd.kubernetes.protobuf" => matches!(self, Offer::Object | Offer::List),
            "application/jwk-set+json" => self == Offer::KeySet,
            _ => false,
        }
    }

    fn listed(self) -> String {
        match self {
            Offer::Object => ACCEPTED.to_owned(),
            Offer::List => format!("{ACCEPTED}, {STREAMED}"),
            Offer::Json => "application/json".to_owned(),
            Offer::KeySet => "application/jwk-set+json".to_owned(),
        }
    }

    /// The router's check of the Accept header.
    pub(crate) fn check(self, headers: &HeaderMap) -> ApiResult<()> {
        let header = accept_header(headers);
        let types = header.split(',').map(|range| range.split(';').next().unwrap_or_default().trim());
        if header.is_empty() || types.into_iter().any(|t| self.has(t)) {
            return Ok(());
        }
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", self.listed());
        Err(ApiError::not_acceptable(message).with_empty_details())
    }
}

/// upstream: only the first Accept header is used.
fn accept_header(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

/// One entry of an Accept header.
#[derive(Debug, Default)]
pub(crate) struct MediaRange<'a> {
    pub(crate) kind: &'a str,
    pub(crate) subtype: &'a str,
    quality: f32,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> Option<MediaRange<'a>> {
        let mut parts = text.split(';');
        let media_type = parts.next().unwrap_or_default().trim();
        let (kind, subtype) = match media_type.split_once('/') {
            Some((kind, subtype)) if !subtype.contains('/') => (kind.trim(), subtype.trim()),
            None if media_type == "*" => ("*", "*"),
            _ => return None,
        };
        let params: Vec<_> = parts.filter_map(|p| p.split_once('=')).map(|(k, v)| (k.trim(), v.trim())).collect();
        let quality = params.iter().find(|(k, _)| *k == "q").map_or(1.0, |(_, v)| v.parse().unwrap_or(0.0));
        Some(MediaRange { kind, subtype, quality, params })
    }

    pub(crate) fn param(&self, name: &str) -> &'a str {
        self.params.iter().find(|(k, _)| *k == name).map_or("", |(_, v)| *v)
    }

    /// upstream: a more specific range precedes one with a higher quality.
    fn comes_before(&self, other: &MediaRange<'_>) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }

    fn format(&self) -> Option<Format> {
        match (self.kind, self.subtype) {
            ("application", "json" | "vnd.kubernetes.protobuf" | "*") | ("*", "*") => Some(Format::Json),
            ("application", "yaml") => Some(Format::Yaml),
            _ => None,
        }
    }

    /// Whether the range accepts an OpenAPI document as JSON. Clients that accept protobuf get JSON, too.
    pub(crate) fn allows_json(&self) -> bool {
        let subtype =
            self.subtype.starts_with("com.github.proto-openapi.spec.v3") || matches!(self.subtype, "json" | "*");
        matches!(self.kind, "application" | "*") && subtype
    }

    /// Whether the `stream` and `sv` parameters, if any, are supported.
    fn is_servable(&self, format: Format) -> bool {
        let stream = match self.param("stream") {
            "" => true,
            stream => stream == "watch" && format == Format::Json,
        };
        stream && matches!(self.param("sv"), "" | "v1")
    }

    fn is_plain(&self) -> bool {
        ["as", "g", "v"].iter().all(|name| self.params.iter().all(|(k, _)| k != name))
    }

    fn shape(&self) -> Option<Shape> {
        if self.is_plain() {
            return Some(Shape::Object);
        }
        let version = self.param("v");
        if self.param("g") != "meta.k8s.io" || !matches!(version, "v1" | "v1beta1") {
            return None;
        }
        let version = version.to_owned();
        match self.param("as") {
            // Tables have no protobuf form.
            "Table" if self.subtype != "vnd.kubernetes.protobuf" => Some(Shape::Table { version }),
            "PartialObjectMetadata" => Some(Shape::Partial { version, list: false }),
            "PartialObjectMetadataList" => Some(Shape::Partial { version, list: true }),
            _ => None,
        }
    }
}

/// The entries of the Accept header, best first. Uses insertion sort, because `comes_before` is not a total order.
pub(crate) fn accept(headers: &HeaderMap) -> Vec<MediaRange<'_>> {
    let mut sorted: Vec<MediaRange<'_>> = Vec::new();
    for range in accept_header(headers).split(',').filter_map(MediaRange::parse) {
        let after = sorted.iter().rposition(|earlier| !range.comes_before(earlier));
        sorted.insert(after.map_or(0, |at| at + 1), range);
    }
    sorted
}

impl Negotiated {
    /// The representation of errors, which does not depend on a successful negotiation.
    pub(crate) fn for_errors(headers: &HeaderMap, query: &Query) -> Negotiated {
        Negotiated::plain(headers, query).unwrap_or(Negotiated { pretty: true, ..Negotiated::default() })
    }

    /// Negotiates the response of an endpoint without Tables or partial metadata.
    pub(crate) fn untransformed(headers: &HeaderMap, query: &Query) -> ApiResult<Negotiated> {
        Negotiated::plain(headers, query).ok_or_else(not_acceptable)
    }

    fn plain(headers: &HeaderMap, query: &Query) -> Option<Negotiated> {
        if accept_header(headers).is_empty() {
            return Some(Negotiated { pretty: pretty(headers, query), ..Negotiated::default() });
        }
        accept(headers).iter().filter(|range| range.is_plain()).find_map(|range| range.to_negotiated(headers, query))
    }

    /// Negotiates the response of a request for objects.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &Query, offer: Offer) -> ApiResult<Negotiated> {
        offer.check(headers)?;
        if accept_header(headers).is_empty() {
            return Ok(Negotiated { pretty: pretty(headers, query), ..Negotiated::default() });
        }
        accept(headers).iter().find_map(|range| range.to_negotiated(headers, query)).ok_or_else(not_acceptable)
    }

    /// Negotiates a watch, which does not support YAML.
    pub(crate) fn negotiate_watch(headers: &HeaderMap, query: &Query) -> ApiResult<Negotiated> {
        let negotiated = Negotiated::negotiate(headers, query, Offer::List)?;
        match negotiated.format {
            Format::Json => Ok(negotiated),
            Format::Yaml => {
                Err(ApiError::not_acceptable(format!("only the following media types are accepted: {STREAMED}")))
            }
        }
    }

    /// The `includeObject` parameter of a Table; the default for other representations.
    pub(crate) fn include(&self, query: &Query) -> ApiResult<Include> {
        match self.shape {
            Shape::Table { .. } => query.include(),
            _ => Ok(Include::default()),
        }
    }
}

impl MediaRange<'_> {
    fn to_negotiated(&self, headers: &HeaderMap, query: &Query) -> Option<Negotiated> {
        let format = self.format().filter(|format| self.is_servable(*format))?;
        let pretty = self.param("pretty") == "1" || pretty(headers, query);
        Some(Negotiated { format, shape: self.shape()?, pretty })
    }
}

fn not_acceptable() -> ApiError {
    ApiError::not_acceptable(format!("only the following media types are accepted: {ACCEPTED}"))
}

/// Whether to indent JSON: as the `pretty` parameter says, else for curl, Wget and browsers.
fn pretty(headers: &HeaderMap, query: &Query) -> bool {
    match query.get("pretty").filter(|value| !value.is_empty()) {
        Some(value) => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => {
            let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|known| agent.starts_with(known))
        }
    }
}

/// Encoding of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyType {
    Json,
    Yaml,
    Protobuf,
}

/// Patch types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

/// The media type in lower case; `None` if a parameter is malformed.
fn media_type(header: &str) -> Option<String> {
    let (media_type, params) = header.split_once(';').unwrap_or((header, ""));
    let params = params.trim().strip_suffix(';').unwrap_or(params).trim();
    let valid = params.is_empty() || params.split(';').all(is_parameter);
    valid.then(|| media_type.trim().to_ascii_lowercase())
}

fn is_parameter(text: &str) -> bool {
    let Some((name, value)) = text.trim().split_once('=') else { return false };
    let quoted = value.len() > 1 && value.starts_with('"') && value.ends_with('"');
    let is_token = |text: &str| !text.is_empty() && !text.contains([' ', '"', ',', '/', '=']);
    is_token(name) && (quoted || is_token(value))
}

/// The encoding of an object body.
pub(crate) fn body_type(headers: &HeaderMap) -> ApiResult<BodyType> {
    match media_type(content_type(headers)).as_deref() {
        Some("" | "application/json") => Ok(BodyType::Json),
        Some("application/yaml") => Ok(BodyType::Yaml),
        Some("application/vnd.kubernetes.protobuf") => Ok(BodyType::Protobuf),
        _ => Err(ApiError::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {ACCEPTED}"
        ))),
    }
}

/// The patch type of a PATCH request.
pub(crate) fn patch_type(headers: &HeaderMap) -> ApiResult<PatchType> {
    match content_type(headers).split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchType::Strategic),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        _ => Err(ApiError::unsupported_media_type("415: Unsupported Media Type").with_empty_details()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT, HeaderValue::from_str(accept).unwrap())])
    }

    fn negotiate_object(accept: &str) -> Result<(Format, Shape), String> {
        let negotiated =
            Negotiated::negotiate(&headers(accept), &Query::default(), Offer::Object).map_err(|e| e.message)?;
        Ok((negotiated.format, negotiated.shape))
    }

    #[test]
    fn the_best_servable_range_wins() {
        let table = Shape::Table { version: "v1".into() };
        for (accept, format, shape) in [
            ("*/*", Format::Json, Shape::Object),
            ("*/*,application/yaml", Format::Yaml, Shape::Object),
            ("application/yaml;q=0.1,application/json", Format::Json, Shape::Object),
            ("application/*,application/json", Format::Json, Shape::Object),
            ("application/json;as=Table;g=meta.k8s.io;v=v1,application/json", Format::Json, table),
            ("application/json;as=Table;g=meta.k8s.io;v=v9,application/yaml", Format::Yaml, Shape::Object),
            ("application/yaml;stream=watch,application/json", Format::Json, Shape::Object),
        ] {
            assert_eq!(negotiate_object(accept), Ok((format, shape)), "{accept}");
        }
    }

    #[test]
    fn content_types_are_parsed_as_in_go() {
        for (given, want) in [
            ("application/JSON", Some("application/json")),
            ("application/json; charset=utf-8", Some("application/json")),
            ("application/json;", Some("application/json")),
            ("application/json;a=\"b c\"", Some("application/json")),
            ("application/json; charset", None),
            ("application/json;;a=b", None),
            ("application/json;charset=\"", None),
        ] {
            assert_eq!(media_type(given).as_deref(), want, "{given}");
        }
    }

    #[test]
    fn errors_list_the_available_media_types() {
        let router = "406: Not Acceptable\n\nAvailable representations: ";
        let negotiator = "only the following media types are accepted: ";
        for (accept, start) in [
            ("application/xml", router),
            ("application/*", router),
            ("application/json;stream=tv", negotiator),
            ("application/json;sv=v2", negotiator),
            ("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", negotiator),
        ] {
            assert_eq!(negotiate_object(accept), Err(format!("{start}{ACCEPTED}")), "{accept}");
        }
        let list = Offer::List.check(&headers("text/html")).unwrap_err();
        assert_eq!(list.message, format!("{router}{ACCEPTED}, {STREAMED}"));
    }

    #[test]
    fn errors_are_indented_json_if_only_other_representations_are_accepted() {
        let negotiated =
            Negotiated::for_errors(&headers("application/yaml;as=Table;g=meta.k8s.io;v=v1"), &Query::default());
        assert_eq!((negotiated.format, negotiated.pretty), (Format::Json, true));
    }
}
