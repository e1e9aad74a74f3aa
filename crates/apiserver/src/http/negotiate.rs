//! Which form of answer a client wants, and which form its body has.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use super::query::Query;
use crate::status::{ApiError, ApiResult};
use crate::table::Include;

/// The encodings we write. Protobuf is read but never written: clients that prefer it also accept JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Json,
    Yaml,
}

/// What the client wants objects turned into.
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

/// The negotiated form of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) format: Format,
    pub(crate) shape: Shape,
    pub(crate) pretty: bool,
}

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMED: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// What a route says it can answer with. The router looks at this first, and knows neither quality nor parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// One object.
    Object,
    /// A list, which may also be watched.
    List,
    /// JSON and nothing else.
    Json,
    /// A set of keys.
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

    /// The router's own check of the Accept header.
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

/// upstream: of several Accept headers only the first counts.
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

    /// upstream: what is more special wins over what is more wanted.
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

    /// Whether it lets an OpenAPI document pass as JSON. Those who ask for protobuf get JSON, too.
    pub(crate) fn allows_json(&self) -> bool {
        let subtype =
            self.subtype.starts_with("com.github.proto-openapi.spec.v3") || matches!(self.subtype, "json" | "*");
        matches!(self.kind, "application" | "*") && subtype
    }

    /// Whether the stream and server version it names, if any, exist.
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

/// The entries of the Accept header, best first. Put in order one by one, because `comes_before` is no total order.
pub(crate) fn accept(headers: &HeaderMap) -> Vec<MediaRange<'_>> {
    let mut sorted: Vec<MediaRange<'_>> = Vec::new();
    for range in accept_header(headers).split(',').filter_map(MediaRange::parse) {
        let after = sorted.iter().rposition(|earlier| !range.comes_before(earlier));
        sorted.insert(after.map_or(0, |at| at + 1), range);
    }
    sorted
}

impl Wants {
    /// What errors look like before (or whether or not) negotiation succeeds.
    pub(crate) fn for_errors(headers: &HeaderMap, query: &Query) -> Wants {
        Wants::plain(headers, query).unwrap_or(Wants { pretty: true, ..Wants::default() })
    }

    /// Negotiates the answer of an endpoint that turns objects into nothing else.
    pub(crate) fn untransformed(headers: &HeaderMap, query: &Query) -> ApiResult<Wants> {
        Wants::plain(headers, query).ok_or_else(not_acceptable)
    }

    fn plain(headers: &HeaderMap, query: &Query) -> Option<Wants> {
        if accept_header(headers).is_empty() {
            return Some(Wants { pretty: pretty(headers, query), ..Wants::default() });
        }
        accept(headers).iter().filter(|range| range.is_plain()).find_map(|range| range.wants(headers, query))
    }

    /// Negotiates the answer to a request for objects.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &Query, offer: Offer) -> ApiResult<Wants> {
        offer.check(headers)?;
        if accept_header(headers).is_empty() {
            return Ok(Wants { pretty: pretty(headers, query), ..Wants::default() });
        }
        accept(headers).iter().find_map(|range| range.wants(headers, query)).ok_or_else(not_acceptable)
    }

    /// Negotiates a watch, which is never YAML.
    pub(crate) fn negotiate_watch(headers: &HeaderMap, query: &Query) -> ApiResult<Wants> {
        let wants = Wants::negotiate(headers, query, Offer::List)?;
        match wants.format {
            Format::Json => Ok(wants),
            Format::Yaml => {
                Err(ApiError::not_acceptable(format!("only the following media types are accepted: {STREAMED}")))
            }
        }
    }

    /// What the rows of a Table hold; of no interest for other shapes.
    pub(crate) fn include(&self, query: &Query) -> ApiResult<Include> {
        match self.shape {
            Shape::Table { .. } => query.include(),
            _ => Ok(Include::default()),
        }
    }
}

impl MediaRange<'_> {
    fn wants(&self, headers: &HeaderMap, query: &Query) -> Option<Wants> {
        let format = self.format().filter(|format| self.is_servable(*format))?;
        let pretty = self.param("pretty") == "1" || pretty(headers, query);
        Some(Wants { format, shape: self.shape()?, pretty })
    }
}

fn not_acceptable() -> ApiError {
    ApiError::not_acceptable(format!("only the following media types are accepted: {ACCEPTED}"))
}

/// Browsers and the like get indented JSON unless they say otherwise.
fn pretty(headers: &HeaderMap, query: &Query) -> bool {
    match query.get("pretty").filter(|value| !value.is_empty()) {
        Some(value) => matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        None => {
            let agent = headers.get(USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|known| agent.starts_with(known))
        }
    }
}

/// What a request body is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyType {
    Json,
    Yaml,
    Protobuf,
}

/// The kinds of PATCH.
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

/// The media type in lower case; `None` if a parameter makes no sense.
fn media_type(header: &str) -> Option<String> {
    let (media_type, params) = header.split_once(';').unwrap_or((header, ""));
    let params = params.trim().strip_suffix(';').unwrap_or(params).trim();
    let sound = params.is_empty() || params.split(';').all(is_parameter);
    sound.then(|| media_type.trim().to_ascii_lowercase())
}

fn is_parameter(text: &str) -> bool {
    let Some((name, value)) = text.trim().split_once('=') else { return false };
    let quoted = value.len() > 1 && value.starts_with('"') && value.ends_with('"');
    let is_token = |text: &str| !text.is_empty() && !text.contains([' ', '"', ',', '/', '=']);
    is_token(name) && (quoted || is_token(value))
}

/// The type of an object body.
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

/// The type of a PATCH.
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

    fn negotiated(accept: &str) -> Result<(Format, Shape), String> {
        let wants = Wants::negotiate(&headers(accept), &Query::default(), Offer::Object).map_err(|e| e.message)?;
        Ok((wants.format, wants.shape))
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
            assert_eq!(negotiated(accept), Ok((format, shape)), "{accept}");
        }
    }

    #[test]
    fn content_types_are_read_as_go_reads_them() {
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
    fn refusals_name_what_there_is() {
        let router = "406: Not Acceptable\n\nAvailable representations: ";
        let negotiator = "only the following media types are accepted: ";
        for (accept, start) in [
            ("application/xml", router),
            ("application/*", router),
            ("application/json;stream=tv", negotiator),
            ("application/json;sv=v2", negotiator),
            ("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", negotiator),
        ] {
            assert_eq!(negotiated(accept), Err(format!("{start}{ACCEPTED}")), "{accept}");
        }
        let list = Offer::List.check(&headers("text/html")).unwrap_err();
        assert_eq!(list.message, format!("{router}{ACCEPTED}, {STREAMED}"));
    }

    #[test]
    fn errors_are_indented_json_for_those_who_accept_only_other_shapes() {
        let wants = Wants::for_errors(&headers("application/yaml;as=Table;g=meta.k8s.io;v=v1"), &Query::default());
        assert_eq!((wants.format, wants.pretty), (Format::Json, true));
    }
}
