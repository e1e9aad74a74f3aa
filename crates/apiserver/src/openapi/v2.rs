//! OpenAPI v2 for kubectl: an empty document, as JSON and as protobuf.
//!
//! kubectl requests it, as protobuf only, where OpenAPI v3 is not enough: for `apply` of a `List`, and before 1.29 for every
//! manifest. Without the document, apply fails. With a document without definitions, kubectl skips client-side validation, and
//! the server validates each object because kubectl sends `fieldValidation=Strict`.

use bytes::Bytes;
use serde_json::json;

use crate::http::negotiate::MediaRange;

/// Media type of the protobuf format, in both spellings that clients use.
const PROTOBUF: [&str; 2] =
    ["com.github.proto-openapi.spec.v2@v1.0+protobuf", "com.github.proto-openapi.spec.v2.v1.0+protobuf"];

const TITLE: &str = "Kubernetes";

/// The document with its media type, in the first format that the client accepts; `None` if it accepts neither.
pub(crate) fn document(accepted: &[MediaRange<'_>], version: &str) -> Option<(&'static str, Bytes)> {
    let format = |range: &MediaRange<'_>| match (range.kind, range.subtype) {
        ("application", subtype) if PROTOBUF.contains(&subtype) => {
            Some(("application/com.github.proto-openapi.spec.v2.v1.0+protobuf", protobuf(version)))
        }
        ("application", "json" | "*") | ("*", "*") => Some(("application/json", json(version))),
        _ => None,
    };
    match accepted {
        [] => Some(("application/json", json(version))),
        accepted => accepted.iter().find_map(format),
    }
}

fn json(version: &str) -> Bytes {
    let info = json!({"title": TITLE, "version": version});
    json!({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}).to_string().into()
}

/// An `openapi.v2.Document` of gnostic: 1 swagger, 2 info (1 title, 2 version), 8 paths, 9 definitions. Encoded by hand, because
/// four fields do not justify a dependency.
fn protobuf(version: &str) -> Bytes {
    let info = [field(1, TITLE.as_bytes()), field(2, version.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info), field(8, b""), field(9, b"")].concat().into()
}

/// A length-delimited field; field numbers and lengths here fit into one byte.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap_or(0).min(0x7f);
    let value = value.get(..usize::from(length)).unwrap_or_default();
    [&[number << 3 | 2, length], value].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;
    use http::header::ACCEPT;

    fn document_for(accept: &'static str) -> Option<(&'static str, Bytes)> {
        let headers = HeaderMap::from_iter([(ACCEPT, http::HeaderValue::from_static(accept))]);
        document(&crate::http::negotiate::accept(&headers), "v1.38.0")
    }

    #[test]
    fn kubectl_gets_protobuf_and_other_clients_get_json() {
        let expected = b"\x0a\x032.0\x12\x15\x0a\x0aKubernetes\x12\x07v1.38.0\x42\x00\x4a\x00";
        for accept in PROTOBUF {
            let accept: &'static str = format!("application/{accept}").leak();
            assert_eq!(document_for(accept).unwrap().1, &expected[..], "{accept}");
        }
        for accept in ["*/*", "application/json", "text/html, application/json"] {
            let (media_type, bytes) = document_for(accept).unwrap();
            assert_eq!((media_type, bytes[0]), ("application/json", b'{'), "{accept}");
        }
        assert_eq!(document_for("text/html"), None);
        assert_eq!(document(&[], "v1").unwrap().0, "application/json");
    }
}
