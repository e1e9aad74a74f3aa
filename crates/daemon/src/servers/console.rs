//! `/consolez?epoch=E&since=N`: what has changed in the console's document since this position.

use std::io::Write as _;

use bowline_console::{Position, Publisher};
use bowline_serving::answer::{self, Answer};
use bowline_serving::{IncomingRequest, READ_METHODS, Router};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, VARY};
use http::{HeaderMap, StatusCode};

/// Minimum size of a response that is compressed, in bytes: a smaller one is one packet anyway.
const MIN_COMPRESSED: usize = 1_400;

/// Adds the endpoint.
pub(super) fn with_console(router: Router, publisher: &Publisher) -> Router {
    let publisher = publisher.clone();
    router.at("/consolez", READ_METHODS, move |request| changes(publisher.clone(), request))
}

async fn changes(publisher: Publisher, request: IncomingRequest) -> Answer {
    let (position, compresses) = (Position::of_query(&request.query), accepts_gzip(&request.headers));
    // A large document takes tens of milliseconds, in which other requests are served.
    let body = tokio::task::spawn_blocking(move || body(&publisher, &position, compresses)).await;
    match body.map_err(anyhow::Error::from).flatten() {
        Ok((body, is_compressed)) => {
            let answer = answer::of_type(StatusCode::OK, "application/json", body);
            let answer = answer::with_header(answer, CACHE_CONTROL, "no-store");
            let answer = answer::no_sniff(answer::with_header(answer, VARY, "Accept-Encoding"));
            if is_compressed { answer::with_header(answer, CONTENT_ENCODING, "gzip") } else { answer }
        }
        Err(error) => {
            tracing::error!(%error, "cannot make the document of the console");
            answer::failure(StatusCode::INTERNAL_SERVER_ERROR, "cannot make the document; see the log of the manager")
        }
    }
}

/// Returns the response, and whether it is compressed.
fn body(publisher: &Publisher, position: &Position, compresses: bool) -> anyhow::Result<(Vec<u8>, bool)> {
    let body = serde_json::to_vec(&publisher.changes(position)?)?;
    if !compresses || body.len() < MIN_COMPRESSED {
        return Ok((body, false));
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&body)?;
    Ok((encoder.finish()?, true))
}

/// Whether the client accepts gzip: it is listed, and not with a weight of zero.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        is_gzip && !parts.filter_map(|part| part.strip_prefix("q=")).any(|weight| weight.parse() == Ok(0.0))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use bowline_console::Sources;
    use bowline_console::document::{Document, Watch};
    use bowline_runtime::Clock;
    use http::{HeaderValue, Method, Uri};
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};

    use super::*;

    /// Router with a document of this many watches.
    fn router(watches: usize) -> Router {
        let sources = Sources::new();
        sources.add(move |document: &mut Document| {
            document.watch.extend((0..watches).map(|number| (format!("w{number}"), Watch::default())));
        });
        with_console(Router::new(), &Publisher::new(sources, Clock::system()))
    }

    /// Status, headers and body of the response.
    async fn get(router: &Router, path: &str, encoding: &'static str) -> (u16, HeaderMap, Vec<u8>) {
        let mut request = IncomingRequest::new(Method::GET, &path.parse::<Uri>().unwrap());
        request.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
        let (parts, body) = router.answer(request).await.into_parts();
        (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }

    #[tokio::test]
    async fn a_client_gets_the_complete_document_and_then_only_changes() {
        let router = router(2);
        let (status, headers, body) = get(&router, "/consolez", "").await;
        let document: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (status, &document["complete"], document["items"].as_object().unwrap().len()),
            (200, &json!(true), 2)
        );
        for (name, value) in [("content-type", "application/json"), ("x-content-type-options", "nosniff")] {
            assert_eq!(headers.get(name).unwrap(), value);
        }
        let (epoch, revision) = (document["epoch"].as_str().unwrap(), document["revision"].as_u64().unwrap());
        let (_, _, body) = get(&router, &format!("/consolez?epoch={epoch}&since={revision}"), "").await;
        let changes: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&changes["complete"], &changes["items"]), (&json!(false), &json!({})));
        let (_, _, body) = get(&router, "/consolez?epoch=another&since=x", "").await;
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["complete"], true);
    }

    #[tokio::test]
    async fn a_large_response_is_compressed_if_the_client_accepts_that() {
        let large = router(100);
        let (_, headers, body) = get(&large, "/consolez", "br, gzip;q=0.5").await;
        assert_eq!(headers.get(CONTENT_ENCODING).unwrap(), "gzip");
        let mut text = String::new();
        flate2::read::GzDecoder::new(body.as_slice()).read_to_string(&mut text).unwrap();
        assert!(text.contains("\"watch/w99\"") && text.len() > 3 * body.len(), "{text}");
        for (router, encoding) in [(&large, ""), (&large, "gzip;q=0"), (&router(1), "gzip")] {
            assert!(!get(router, "/consolez", encoding).await.1.contains_key(CONTENT_ENCODING), "{encoding}");
        }
    }

    #[tokio::test]
    async fn the_document_is_read_only() {
        let request = IncomingRequest::new(Method::POST, &Uri::from_static("/consolez"));
        assert_eq!(router(1).answer(request).await.status(), 405);
    }
}
