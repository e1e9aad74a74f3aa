//! Which form of answer a client wants, and which form its body has.

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};

use super::query::Query;
use crate::status::{ApiError, ApiResult};

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

const OFFERED: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf";
const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// One entry of an Accept header.
#[derive(Debug, Default)]
pub(crate) struct MediaRange<'a> {
    pub(crate) kind: &'a str,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> MediaRange<'a> {
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let params = parts.filter_map(|p| p.split_once('=')).map(|(k, v)| (k.trim(), v.trim())).collect();
        MediaRange { kind, params }
    }

    pub(crate) fn param(&self, name: &str) -> &'a str {
        self.params.iter().find(|(k, _)| *k == name).map_or("", |(_, v)| *v)
    }

    fn quality(&self) -> f32 {
        self.param("q").parse().unwrap_or(1.0)
    }

    fn format(&self) -> Option<Format> {
        match self.kind {
            "application/json" | "*/*" | "application/vnd.kubernetes.protobuf" => Some(Format::Json),
            "application/yaml" => Some(Format::Yaml),
            _ => None,
        }
    }

    fn shape(&self) -> Option<Shape> {
        let (name, group, version) = (self.param("as"), self.param("g"), self.param("v"));
        if name.is_empty() && group.is_empty() && version.is_empty() {
            return Some(Shape::Object);
        }
        if group != "meta.k8s.io" || !matches!(version, "v1" | "v1beta1") {
            return None;
        }
        let version = version.to_owned();
        match name {
            "Table" => Some(Shape::Table { version }),
            "PartialObjectMetadata" => Some(Shape::Partial { version, list: false }),
            "PartialObjectMetadataList" => Some(Shape::Partial { version, list: true }),
            _ => None,
        }
    }
}

/// The entries of the Accept header, best first.
pub(crate) fn accept(headers: &HeaderMap) -> Vec<MediaRange<'_>> {
    let values = headers.get_all(ACCEPT).into_iter().filter_map(|v| v.to_str().ok());
    let mut ranges: Vec<_> =
        values.flat_map(|v| v.split(',')).map(|r| MediaRange::parse(r.trim())).filter(|r| !r.kind.is_empty()).collect();
    ranges.sort_by(|a, b| b.quality().total_cmp(&a.quality()));
    ranges
}

impl Wants {
    /// What errors look like before (or whether or not) negotiation succeeds.
    pub(crate) fn for_errors(headers: &HeaderMap, query: &Query) -> Wants {
        let format = accept(headers).iter().find_map(MediaRange::format).unwrap_or_default();
        Wants { format, shape: Shape::Object, pretty: pretty(headers, query) }
    }

    /// Negotiates the answer to a request for objects.
    pub(crate) fn negotiate(headers: &HeaderMap, query: &Query) -> ApiResult<Wants> {
        let ranges = accept(headers);
        let mut known_type = ranges.is_empty();
        for range in &ranges {
            let Some(format) = range.format() else { continue };
            known_type = true;
            if let Some(shape) = range.shape() {
                let asked = range.param("pretty");
                let pretty = matches!(asked, "1" | "true") || pretty(headers, query);
                return Ok(Wants { format, shape, pretty });
            }
        }
        match (ranges.is_empty(), known_type) {
            (true, _) => Ok(Wants { pretty: pretty(headers, query), ..Wants::default() }),
            (false, true) => {
                Err(ApiError::not_acceptable(format!("only the following media types are accepted: {ACCEPTED}")))
            }
            (false, false) => Err(ApiError::not_acceptable(OFFERED).with_empty_details()),
        }
    }

    /// Negotiates a watch, which is never YAML.
    pub(crate) fn negotiate_watch(headers: &HeaderMap, query: &Query) -> ApiResult<Wants> {
        let wants = Wants::negotiate(headers, query)?;
        match wants.format {
            Format::Json => Ok(wants),
            Format::Yaml => Err(ApiError::not_acceptable(
                "only the following media types are accepted: application/json;stream=watch, \
                 application/vnd.kubernetes.protobuf;stream=watch",
            )),
        }
    }
}

/// Browsers and the like get indented JSON unless they say otherwise.
fn pretty(headers: &HeaderMap, query: &Query) -> bool {
    match query.get("pretty") {
        Some(value) => !matches!(value, "0" | "false" | "FALSE" | "False" | "f" | "F"),
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
    let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// The type of an object body.
pub(crate) fn body_type(headers: &HeaderMap) -> ApiResult<BodyType> {
    match content_type(headers) {
        "" | "application/json" => Ok(BodyType::Json),
        "application/yaml" => Ok(BodyType::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(BodyType::Protobuf),
        _ => Err(ApiError::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: {ACCEPTED}"
        ))),
    }
}

/// The type of a PATCH.
pub(crate) fn patch_type(headers: &HeaderMap) -> ApiResult<PatchType> {
    match content_type(headers) {
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchType::Strategic),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        _ => Err(ApiError::unsupported_media_type("415: Unsupported Media Type").with_empty_details()),
    }
}
