//! Routes requests to handlers.

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

/// A request, as a handler receives it.
#[derive(Debug, Clone)]
pub struct IncomingRequest {
    /// HTTP method.
    pub method: Method,
    /// Decoded path.
    pub path: String,
    /// Decoded query parameters, each with all its values.
    pub query: BTreeMap<String, Vec<String>>,
    /// Headers, without credentials.
    pub headers: HeaderMap,
    /// Request body.
    pub body: Bytes,
    /// Authenticated user.
    pub user: User,
}

impl IncomingRequest {
    /// Creates a request of the anonymous user, without headers and body.
    pub fn new(method: Method, uri: &Uri) -> IncomingRequest {
        let (path, query) = (decoded(uri.path()), parameters(uri.query().unwrap_or_default()));
        IncomingRequest { method, path, query, headers: HeaderMap::new(), body: Bytes::new(), user: User::anonymous() }
    }

    /// Whether the query parameter is present, with any value.
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

/// Handles requests.
pub type Handler = Arc<dyn Fn(IncomingRequest) -> BoxFuture<'static, Answer> + Send + Sync>;

/// A handler and the methods it accepts.
#[derive(Clone)]
struct Route {
    /// Empty for all methods.
    methods: &'static [Method],
    handler: Handler,
}

/// Routes by path. Paths are compared without normalisation: a client that is authorized for the prefix `/healthz` cannot reach
/// `/metrics` as `/healthz/../metrics`.
#[derive(Clone, Default)]
pub struct Router {
    exact: BTreeMap<String, Route>,
    prefixes: BTreeMap<String, Route>,
    oversized: Option<Arc<dyn Fn() -> Answer + Send + Sync>>,
}

/// Methods that only read.
pub const READ_METHODS: &[Method] = &[Method::GET, Method::HEAD];

/// All methods.
pub const ANY: &[Method] = &[];

impl Router {
    /// Creates a router without routes.
    pub fn new() -> Router {
        Router::default()
    }

    /// Adds a route for an exact path. `HEAD` is handled like `GET`, without the body.
    pub fn at<F>(
        mut self,
        path: &str,
        methods: &'static [Method],
        handler: impl Fn(IncomingRequest) -> F + Send + Sync + 'static,
    ) -> Router
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        self.exact.insert(path.to_owned(), Route::new(methods, handler));
        self
    }

    /// Adds a route for all paths with this prefix that have no exact route. The longest prefix wins.
    pub fn under<F>(
        mut self,
        prefix: &str,
        methods: &'static [Method],
        handler: impl Fn(IncomingRequest) -> F + Send + Sync + 'static,
    ) -> Router
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        self.prefixes.insert(prefix.to_owned(), Route::new(methods, handler));
        self
    }

    /// Sets the response to a request body that exceeds the server's limit. Default: 413.
    pub fn oversized(mut self, answer: impl Fn() -> Answer + Send + Sync + 'static) -> Router {
        self.oversized = Some(Arc::new(answer));
        self
    }

    /// Responds to a request whose body exceeds the server's limit.
    pub(crate) fn answer_oversized(&self) -> Answer {
        let default = || answer::failure(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large");
        self.oversized.as_ref().map_or_else(default, |answer| answer())
    }

    /// Handles a request. A handler that panics results in a 500.
    pub async fn answer(&self, request: IncomingRequest) -> Answer {
        let (is_head, path) = (request.method == Method::HEAD, request.path.clone());
        let answer = match self.route(&path) {
            None => answer::failure(StatusCode::NOT_FOUND, "404 page not found"),
            Some(route) if !route.accepts(&request.method) => route.method_not_allowed(),
            Some(route) => AssertUnwindSafe((route.handler)(request)).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(path, "a handler panicked");
                answer::failure(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "This request caused an internal error; see the log.",
                )
            }),
        };
        finished(answer, is_head)
    }

    fn route(&self, path: &str) -> Option<&Route> {
        let under = || self.prefixes.iter().rev().find(|(prefix, _)| path.starts_with(prefix.as_str()));
        self.exact.get(path).or_else(|| under().map(|(_, route)| route))
    }
}

/// Applies the headers that every response has, and drops the body of a response to `HEAD`.
pub(crate) fn finished(mut answer: Answer, is_head: bool) -> Answer {
    answer.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if is_head {
        let length = hyper::body::Body::size_hint(answer.body()).lower();
        answer.headers_mut().insert(CONTENT_LENGTH, length.into());
        *answer.body_mut() = Full::default();
    }
    answer
}

impl Route {
    fn new<F>(methods: &'static [Method], handler: impl Fn(IncomingRequest) -> F + Send + Sync + 'static) -> Route
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Route { methods, handler: Arc::new(move |request| handler(request).boxed()) }
    }

    fn accepts(&self, method: &Method) -> bool {
        self.methods.is_empty() || self.methods.contains(method)
    }

    fn method_not_allowed(&self) -> Answer {
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

    async fn ask(router: &Router, method: Method, uri: &'static str) -> (u16, String, HeaderMap) {
        let answer = router.answer(IncomingRequest::new(method, &Uri::from_static(uri))).await;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), String::from_utf8(body.to_vec()).unwrap(), head.headers)
    }

    fn router() -> Router {
        let respond = |what: &'static str| move |_: IncomingRequest| async move { answer::text(StatusCode::OK, what) };
        let broken = |request: IncomingRequest| async move {
            assert!(request.has("well"), "the test panics here");
            answer::text(StatusCode::OK, "well")
        };
        let router = Router::new().at("/a", READ_METHODS, respond("a")).under("/a/", ANY, respond("under")).under(
            "/a/b/",
            READ_METHODS,
            respond("deep"),
        );
        router.at("/broken", READ_METHODS, broken)
    }

    #[tokio::test]
    async fn the_exact_route_wins_then_the_longest_prefix() {
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
            let (got, text, headers) = ask(&router(), Method::GET, uri).await;
            assert_eq!((got, text.as_str()), (status, body), "{uri}");
            assert_eq!(headers[CACHE_CONTROL], "no-cache, private");
        }
    }

    #[tokio::test]
    async fn methods_are_checked_and_head_is_get_without_a_body() {
        let (status, _, headers) = ask(&router(), Method::POST, "/a").await;
        assert_eq!((status, &headers[ALLOW]), (405, &HeaderValue::from_static("GET, HEAD")));
        assert_eq!(ask(&router(), Method::DELETE, "/a/x").await.0, 200);
        let (status, body, headers) = ask(&router(), Method::HEAD, "/a/x").await;
        assert_eq!((status, body.as_str(), &headers[CONTENT_LENGTH]), (200, "", &HeaderValue::from_static("5")));
    }

    #[tokio::test]
    async fn a_panicking_handler_results_in_a_500() {
        assert_eq!(ask(&router(), Method::GET, "/broken").await.0, 500);
        assert_eq!(ask(&router(), Method::GET, "/broken?well").await.1, "well");
    }
}
