//! What can be asked for, and who answers.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, HeaderValue};
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body_util::Full;

use crate::answer::{self, Answer};
use crate::user::User;

/// A question, as a handler gets it.
#[derive(Debug, Clone)]
pub struct IncomingRequest {
    /// The verb.
    pub method: Method,
    /// The path, decoded.
    pub path: String,
    /// What follows the question mark, by name, decoded; each name with all its values.
    pub query: BTreeMap<String, Vec<String>>,
    /// The headers, without those that say who is asking.
    pub headers: HeaderMap,
    /// What came with it.
    pub body: Bytes,
    /// Who is asking.
    pub user: User,
}

impl IncomingRequest {
    /// A question without headers or body, by nobody in particular.
    pub fn new(method: Method, uri: &Uri) -> IncomingRequest {
        let (path, query) = (decoded(uri.path()), parameters(uri.query().unwrap_or_default()));
        IncomingRequest { method, path, query, headers: HeaderMap::new(), body: Bytes::new(), user: User::anonymous() }
    }

    /// The parameter was given, with whatever value.
    pub fn has(&self, parameter: &str) -> bool {
        self.query.contains_key(parameter)
    }
}

fn decoded(path: &str) -> String {
    percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned()
}

fn parameters(query: &str) -> BTreeMap<String, Vec<String>> {
    let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        parameters.entry(name.into_owned()).or_default().push(value.into_owned());
    }
    parameters
}

/// Answers questions.
pub type Handler = Arc<dyn Fn(IncomingRequest) -> BoxFuture<'static, Answer> + Send + Sync>;

/// A place with its handler.
#[derive(Clone)]
struct Place {
    /// None for all.
    methods: &'static [Method],
    handler: Handler,
}

/// All places. Nothing in a path is tidied up before it is compared, so that `/healthz/../metrics` is no place, whoever may
/// ask for what begins with `/healthz`.
#[derive(Clone, Default)]
pub struct Router {
    exact: BTreeMap<String, Place>,
    prefixes: BTreeMap<String, Place>,
}

/// The verbs that only look.
pub const READ_METHODS: &[Method] = &[Method::GET, Method::HEAD];

/// All verbs.
pub const ANY: &[Method] = &[];

impl Router {
    /// No places.
    pub fn new() -> Router {
        Router::default()
    }

    /// One more place, for these verbs; `HEAD` is answered as `GET` is, without the body.
    pub fn at<F>(
        mut self,
        path: &str,
        methods: &'static [Method],
        handler: impl Fn(IncomingRequest) -> F + Send + Sync + 'static,
    ) -> Router
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        self.exact.insert(path.to_owned(), Place::new(methods, handler));
        self
    }

    /// One more place for all that begins like this and is no place itself; the longest beginning wins.
    pub fn under<F>(
        mut self,
        prefix: &str,
        methods: &'static [Method],
        handler: impl Fn(IncomingRequest) -> F + Send + Sync + 'static,
    ) -> Router
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        self.prefixes.insert(prefix.to_owned(), Place::new(methods, handler));
        self
    }

    /// The answer. A handler that panics answers 500.
    pub async fn answer(&self, asked: IncomingRequest) -> Answer {
        let (is_head, path) = (asked.method == Method::HEAD, asked.path.clone());
        let answer = match self.place(&path) {
            None => answer::failure(StatusCode::NOT_FOUND, "404 page not found"),
            Some(place) if !place.takes(&asked.method) => place.refuse(),
            Some(place) => AssertUnwindSafe((place.handler)(asked)).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(path, "a handler panicked");
                answer::failure(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "This request caused an internal error; see the log.",
                )
            }),
        };
        finished(answer, is_head)
    }

    fn place(&self, path: &str) -> Option<&Place> {
        let under = || self.prefixes.iter().rev().find(|(prefix, _)| path.starts_with(prefix.as_str()));
        self.exact.get(path).or_else(|| under().map(|(_, place)| place))
    }
}

/// What is due to every answer.
pub(crate) fn finished(mut answer: Answer, is_head: bool) -> Answer {
    answer.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if is_head {
        let length = hyper::body::Body::size_hint(answer.body()).lower();
        answer.headers_mut().insert(CONTENT_LENGTH, length.into());
        *answer.body_mut() = Full::default();
    }
    answer
}

impl Place {
    fn new<F>(methods: &'static [Method], handler: impl Fn(IncomingRequest) -> F + Send + Sync + 'static) -> Place
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Place { methods, handler: Arc::new(move |asked| handler(asked).boxed()) }
    }

    fn takes(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.contains(method)
    }

    fn refuse(&self) -> Answer {
        let mut answer = answer::failure(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed");
        let allowed = self.methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        if let Ok(allowed) = HeaderValue::from_str(&allowed) {
            answer.headers_mut().insert(ALLOW, allowed);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn ask(site: &Router, method: Method, uri: &'static str) -> (u16, String, HeaderMap) {
        let answer = site.answer(IncomingRequest::new(method, &Uri::from_static(uri))).await;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), String::from_utf8(body.to_vec()).unwrap(), head.headers)
    }

    fn site() -> Router {
        let say = |what: &'static str| move |_: IncomingRequest| async move { answer::text(StatusCode::OK, what) };
        let broken = |asked: IncomingRequest| async move {
            assert!(asked.has("well"), "as the test wants it");
            answer::text(StatusCode::OK, "well")
        };
        let site = Router::new().at("/a", READ_METHODS, say("a")).under("/a/", ANY, say("under")).under(
            "/a/b/",
            READ_METHODS,
            say("deep"),
        );
        site.at("/broken", READ_METHODS, broken)
    }

    #[tokio::test]
    async fn the_exact_place_wins_then_the_longest_beginning() {
        let cases = [
            ("/a", 200, "a"),
            ("/a?x=1", 200, "a"),
            ("/%61", 200, "a"),
            ("/a/", 200, "under"),
            ("/a/x", 200, "under"),
            ("/a/b/c", 200, "deep"),
            ("/a/../a", 200, "under"),
            ("//a", 404, "404 page not found\n"),
            ("/", 404, "404 page not found\n"),
        ];
        for (uri, status, body) in cases {
            let (got, said, headers) = ask(&site(), Method::GET, uri).await;
            assert_eq!((got, said.as_str()), (status, body), "{uri}");
            assert_eq!(headers[CACHE_CONTROL], "no-cache, private");
        }
    }

    #[tokio::test]
    async fn verbs_count_and_head_is_get_without_a_body() {
        let (status, _, headers) = ask(&site(), Method::POST, "/a").await;
        assert_eq!((status, &headers[ALLOW]), (405, &HeaderValue::from_static("GET, HEAD")));
        assert_eq!(ask(&site(), Method::DELETE, "/a/x").await.0, 200);
        let (status, body, headers) = ask(&site(), Method::HEAD, "/a/x").await;
        assert_eq!((status, body.as_str(), &headers[CONTENT_LENGTH]), (200, "", &HeaderValue::from_static("5")));
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_and_not_the_end() {
        assert_eq!(ask(&site(), Method::GET, "/broken").await.0, 500);
        assert_eq!(ask(&site(), Method::GET, "/broken?well").await.1, "well");
    }
}
