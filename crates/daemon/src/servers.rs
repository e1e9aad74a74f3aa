//! HTTP servers of the manager: health checks, metrics, settings, flags and webhooks.
//!
//! ```text
//! --bind-address:--secure-port    HTTPS, delegated authentication and authorization    all endpoints
//! --metrics-listen                plain HTTP on a loopback address                     /metrics
//! ```

mod console;
mod debug;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use bowline_console::{Publisher, access};
use bowline_kube::{Access, ClientOptions, Probe, RestMetrics};
use bowline_runtime::{Entry, Kind, Metric, Shutdown, StatusBoard, metrics};
use bowline_serving::answer::{self, Answer};
use bowline_serving::webhook::{self, Webhook, WebhookMetrics};
use bowline_serving::{
    ANY, AccessControl, AudienceToken, AuthenticationOptions, Authenticator, AuthorizationOptions, Authorizer, Check,
    CheckMetrics, Checks, IncomingRequest, READ_METHODS, Router, Server, ServingOptions,
};
use bowline_settings::Settings;
use bowline_telemetry::{exposition, process};
use http::header::ACCEPT;
use http::{HeaderName, Method, StatusCode};
use prometheus::{Gauge, Registry};
use serde_json::Value;

/// Content type of metrics, as in the Go managers.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// Name of the health check of the Lease (HZ-1).
const LEADER_ELECTION: &str = "leaderElection";

metrics! {
    /// Metrics of `/metrics/slis` in addition to the health checks.
    METRICS;
    START = Metric::gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.");
}

/// Options of the servers.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerOptions {
    /// HTTPS; `None` with `--secure-port=0`.
    pub(crate) secure: Option<ServingOptions>,
    pub(crate) authentication: AuthenticationOptions,
    pub(crate) authorization: AuthorizationOptions,
    /// `--profiling`: `/debug/`.
    pub(crate) profiling: bool,
    /// `--metrics-listen`.
    pub(crate) plain: Option<SocketAddr>,
    /// Webhook server; `None` if no webhook is selected.
    pub(crate) webhooks: Option<ServingOptions>,
    /// Metrics of the requests to the API server.
    pub(crate) requests: Option<RestMetrics>,
}

impl From<&Settings> for ServerOptions {
    fn from(settings: &Settings) -> ServerOptions {
        let serving = &settings.serving;
        ServerOptions {
            secure: serving.https.clone(),
            authentication: serving.authentication.clone(),
            authorization: serving.authorization.clone(),
            profiling: serving.profiling,
            plain: settings.metrics_listen,
            webhooks: serving.webhooks.https.clone(),
            requests: settings.reach.client.metrics.clone(),
        }
    }
}

/// Token of a client that reaches the console's document through the API server's pod proxy.
const CONSOLE_TOKEN: AudienceToken = AudienceToken {
    path: access::PATH,
    header: HeaderName::from_static(access::TOKEN_HEADER),
    audience: access::AUDIENCE,
};

/// A document that is generated for each request.
pub(crate) type Document = Arc<dyn Fn() -> Value + Send + Sync>;

/// A page that is generated for each request, as text and as JSON.
pub(crate) type Page = Arc<dyn Fn() -> (String, Value) + Send + Sync>;

/// Content of the endpoints.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) board: StatusBoard,
    pub(crate) metrics: Registry,
    pub(crate) configz: Document,
    pub(crate) flagz: Page,
    pub(crate) statusz: Page,
    pub(crate) console: Publisher,
    pub(crate) set_verbosity: Arc<dyn Fn(i32) + Send + Sync>,
}

/// Bound servers. Connections wait in the backlog until [`Servers::serve`].
pub(crate) struct Servers {
    secure: Option<(Server, AccessControl)>,
    reviewers: Reviewers,
    plain: Option<Server>,
    webhooks: Option<(Server, Vec<Webhook>)>,
    profiling: bool,
}

impl Servers {
    /// Binds the addresses, loads or creates certificates, and sets up authentication. `webhooks` are the selected ones.
    pub(crate) async fn bind(options: &ServerOptions, webhooks: &[Webhook]) -> anyhow::Result<Servers> {
        let plain = options.plain.map(Server::bind_plain).transpose()?;
        let mut reviewers = Reviewers::default();
        let secure = match &options.secure {
            // The address first, because it needs no request to the API server.
            Some(serving) => {
                let server = Server::bind(serving)?;
                reviewers = Reviewers::new(options).await?;
                Some((server, access_control(options, &reviewers).await?))
            }
            None => None,
        };
        let server = options.webhooks.as_ref().map(|serving| webhook::bind(serving, webhooks)).transpose()?.flatten();
        let webhooks = server.map(|server| (server, webhooks.to_vec()));
        Ok(Servers { secure, reviewers, plain, webhooks, profiling: options.profiling })
    }

    /// Address of the HTTPS server.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.secure.as_ref().map(|(server, _)| server.address())
    }

    /// API server clients of authentication and authorization, by purpose.
    pub(crate) fn reviewers(&self) -> Vec<(&'static str, Access)> {
        let Reviewers { authentication, authorization } = self.reviewers.clone();
        let named = [("authentication", authentication), ("authorization", authorization)];
        named.into_iter().filter_map(|(what, access)| Some((what, access?))).collect()
    }

    /// Serves until shutdown is requested.
    pub(crate) async fn serve(self, pages: Pages, shutdown: Shutdown) -> Result<(), Infallible> {
        if let Some(address) = self.address() {
            tracing::info!(%address, "serving securely");
        }
        if let Some(server) = &self.plain {
            tracing::info!(address = %server.address(), "serving /metrics");
        }
        let plain = async {
            match self.plain {
                Some(server) => {
                    server.serve(metrics_router(&pages.metrics), AccessControl::open(), shutdown.clone()).await
                }
                None => Ok(()),
            }
        };
        let secure = async {
            match self.secure {
                Some((server, access)) => server.serve(router(&pages, self.profiling), access, shutdown.clone()).await,
                None => Ok(()),
            }
        };
        let webhooks = async {
            match self.webhooks {
                Some((server, hooks)) => match WebhookMetrics::register(&pages.metrics) {
                    Ok(metrics) => {
                        server.serve(webhook::router(&hooks, &metrics), AccessControl::open(), shutdown.clone()).await
                    }
                    Err(error) => {
                        tracing::error!(%error, "cannot register the webhook metrics; webhooks are not served");
                        Ok(())
                    }
                },
                None => Ok(()),
            }
        };
        let release = shutdown.or(pages.console.release_when_idle());
        let (Ok(()), Ok(()), Ok(()), _) = tokio::join!(plain, secure, webhooks, release);
        shutdown.requested().await;
        Ok(())
    }
}

/// API server clients for TokenReviews and SubjectAccessReviews. `None` outside of a cluster without the kubeconfig flags.
#[derive(Clone, Default)]
struct Reviewers {
    authentication: Option<Access>,
    authorization: Option<Access>,
}

impl Reviewers {
    async fn new(options: &ServerOptions) -> anyhow::Result<Reviewers> {
        let (authentication, authorization) = (&options.authentication.kubeconfig, &options.authorization.kubeconfig);
        let open = |kubeconfig: &Option<PathBuf>, user| reviewer(kubeconfig.clone(), user, options.requests.clone());
        Ok(Reviewers {
            authentication: open(authentication, "authentication").await.context("--authentication-kubeconfig")?,
            authorization: open(authorization, "authorization").await.context("--authorization-kubeconfig")?,
        })
    }
}

async fn reviewer(
    kubeconfig: Option<PathBuf>,
    user: &str,
    metrics: Option<RestMetrics>,
) -> anyhow::Result<Option<Access>> {
    let kubeconfig = kubeconfig.filter(|path| !path.as_os_str().is_empty());
    // upstream: --kubeconfig is not used here.
    if kubeconfig.is_none() && kube::Config::incluster().is_err() {
        return Ok(None);
    }
    // The user may have no permission to read Nodes.
    let probe = Probe::Version;
    let options = ClientOptions { kubeconfig, user: user.to_owned(), metrics, probe, ..ClientOptions::default() };
    Ok(Some(Access::open(&options).await?))
}

async fn access_control(options: &ServerOptions, reviewers: &Reviewers) -> anyhow::Result<AccessControl> {
    let reviews = reviewers.authentication.as_ref().map(Access::client);
    let authenticator = Authenticator::new(&options.authentication, reviews).await?;
    let reviews = reviewers.authorization.as_ref().map(Access::client);
    if reviews.is_none() {
        tracing::warn!(
            "no client for SubjectAccessReviews: only system:masters and --authorization-always-allow-paths have access; set --authorization-kubeconfig"
        );
    }
    let authenticator = authenticator.accepting(CONSOLE_TOKEN);
    Ok(AccessControl::protected(authenticator, Authorizer::new(&options.authorization, reviews)?))
}

/// Router with `/metrics` only.
pub(crate) fn metrics_router(metrics: &Registry) -> Router {
    let metrics = metrics.clone();
    Router::new().at("/metrics", READ_METHODS, move |_| std::future::ready(exposed(&metrics)))
}

/// Router with all endpoints.
fn router(pages: &Pages, profiling: bool) -> Router {
    let slis = Registry::new();
    let metrics = pages.metrics.clone();
    // upstream: all methods get the same response.
    let mut router = Router::new().at("/metrics", ANY, move |_| std::future::ready(exposed(&metrics)));
    match CheckMetrics::register(&slis) {
        Ok(checks) => {
            router = with_checks(router, &pages.board, &checks);
            router = with_slis(router, slis, checks);
        }
        // Cannot happen: the registry is empty and the names differ.
        Err(error) => tracing::error!(%error, "cannot register the health check metrics; health checks are not served"),
    }
    let configz = pages.configz.clone();
    router = router.at("/configz", READ_METHODS, move |_| {
        std::future::ready(answer::no_sniff(answer::json(StatusCode::OK, &configz())))
    });
    for (path, page) in [("/flagz", pages.flagz.clone()), ("/statusz", pages.statusz.clone())] {
        router = router.at(path, READ_METHODS, move |request| std::future::ready(rendered(&request, &page)));
    }
    router = console::with_console(router, &pages.console);
    if profiling { debug::with_pages(router, pages.set_verbosity.clone()) } else { router }
}

fn exposed(metrics: &Registry) -> Answer {
    answer::of_type(StatusCode::OK, METRICS_TYPE, exposition::text(&metrics.gather()))
}

/// Renders JSON on request (`Accept: application/json` or `?format=json`), otherwise text.
fn rendered(request: &IncomingRequest, page: &Page) -> Answer {
    let (text, json) = page();
    let accept = request.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = request.query.get("format").and_then(|values| values.last()).map(String::as_str);
    let answer = match format == Some("json") || accept.contains("application/json") {
        true => answer::json(StatusCode::OK, &json),
        false => answer::text(StatusCode::OK, text),
    };
    answer::no_sniff(answer)
}

// === Health ===

/// Adds the health checks. A process is live if its lease state is valid and its controllers make progress. It is ready if in
/// addition its watches are synced and its clouds are started. A standby has no watches yet and is ready to take over.
fn with_checks(router: Router, board: &StatusBoard, metrics: &CheckMetrics) -> Router {
    let kinds: [(&str, &'static [Kind]); 3] = [
        ("healthz", &[Kind::Lease, Kind::Controller]),
        ("livez", &[Kind::Lease, Kind::Controller]),
        ("readyz", &[Kind::Lease, Kind::Controller, Kind::Watch, Kind::Cloud]),
    ];
    kinds.into_iter().fold(router, |router, (name, kinds)| {
        let (checks, board) = (Checks::new(name, metrics), board.clone());
        checks.add_all_of(move || checks_of(&board, kinds));
        checks.on(router)
    })
}

fn checks_of(board: &StatusBoard, kinds: &[Kind]) -> Vec<Check> {
    let mut leases = 0;
    let entries = board.entries().into_iter().filter(|entry| kinds.contains(&entry.kind));
    let check = |Entry { kind, name, component }| {
        let name = match kind {
            Kind::Lease => {
                leases += 1;
                // upstream: the first Lease has this name, and the second one, for leader migration, has no check.
                if leases == 1 { LEADER_ELECTION.to_owned() } else { format!("{LEADER_ELECTION}-{name}") }
            }
            Kind::Watch => format!("watch-{name}"),
            Kind::Cloud => format!("cloud-{name}"),
            _ => name,
        };
        Check::new(name, move || std::future::ready(component.health()))
    };
    entries.map(check).collect()
}

// === Health check metrics ===

fn with_slis(router: Router, registry: Registry, checks: CheckMetrics) -> Router {
    if let Ok(start) = START.register::<Gauge>(&registry) {
        start.set(process::start_time().unwrap_or_default());
    }
    router.at("/metrics/slis", ANY, move |request| {
        std::future::ready(match request.method {
            Method::DELETE => {
                checks.reset();
                answer::no_sniff(answer::text(StatusCode::OK, "metrics reset\n"))
            }
            _ => exposed(&registry),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use bowline_console::Sources;
    use bowline_runtime::{Clock, Component};
    use http::{HeaderValue, Uri};
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_reviewer_token_file_may_end_with_a_newline() {
        let server = bowline_apiserver::ApiServer::start(bowline_apiserver::Options::default()).await.unwrap();
        server.add_token("the-token", "reviewer", &[]);
        let folder = std::env::temp_dir().join(format!("bowline-front-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (token, file) = (folder.join("token"), folder.join("kubeconfig"));
        std::fs::write(&token, "the-token\n").unwrap();
        let mut kubeconfig = kube::config::Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        for user in &mut kubeconfig.auth_infos {
            user.auth_info = serde_json::from_value(json!({ "tokenFile": token })).unwrap();
        }
        std::fs::write(&file, serde_json::to_string(&kubeconfig).unwrap()).unwrap();
        let access = reviewer(Some(file), "authentication", None).await;
        std::fs::remove_dir_all(&folder).unwrap();
        access.unwrap().unwrap().client().apiserver_version().await.unwrap();
    }

    struct FixedHealth(Result<(), &'static str>);

    impl Component for FixedHealth {
        fn status(&self) -> Value {
            json!({})
        }

        fn health(&self) -> Result<(), String> {
            self.0.map_err(str::to_owned)
        }
    }

    fn pages(verbosity: &Arc<AtomicI32>) -> Pages {
        let verbosity = verbosity.clone();
        Pages {
            board: StatusBoard::new(),
            metrics: Registry::new(),
            configz: Arc::new(|| json!({ "cloudcontrollermanager.config.k8s.io": {} })),
            flagz: Arc::new(|| ("v=2\n".to_owned(), json!({ "v": "2" }))),
            statusz: Arc::new(|| ("healthy\n".to_owned(), json!({ "healthy": true }))),
            console: Publisher::new(Sources::new(), Clock::system()),
            set_verbosity: Arc::new(move |v| verbosity.store(v, Ordering::SeqCst)),
        }
    }

    fn some_pages() -> Pages {
        pages(&Arc::default())
    }

    async fn response(router: &Router, request: IncomingRequest) -> (u16, String) {
        let answer = router.answer(request).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn send(router: &Router, method: Method, uri: &'static str) -> (u16, String) {
        response(router, IncomingRequest::new(method, &Uri::from_static(uri))).await
    }

    #[tokio::test]
    async fn metrics_are_served_in_the_prometheus_text_format() {
        let metrics = Registry::new();
        let counter = prometheus::IntCounter::new("knots_total", "Knots tied.").unwrap();
        metrics.register(Box::new(counter.clone())).unwrap();
        counter.inc_by(7);
        let router = metrics_router(&metrics);
        let text = "# HELP knots_total Knots tied.\n# TYPE knots_total counter\nknots_total 7\n";
        assert_eq!(send(&router, Method::GET, "/metrics").await, (200, text.to_owned()));
        assert_eq!(send(&router, Method::GET, "/").await.0, 404);
        assert_eq!(send(&router, Method::POST, "/metrics").await.0, 405);
    }

    #[tokio::test]
    async fn health_checks_read_the_status_board() {
        let pages = some_pages();
        let router = router(&pages, true);
        let verbose = |kind: &str, names: &[&str]| {
            let lines: String = names.iter().map(|name| format!("[+]{name} ok\n")).collect();
            (200, format!("{lines}{kind} check passed\n"))
        };
        assert_eq!(send(&router, Method::GET, "/healthz?verbose").await, verbose("healthz", &["ping"]));
        pages.board.put(Kind::Controller, "service-lb-controller", Arc::new(FixedHealth(Ok(()))));
        pages.board.put(Kind::Lease, "cloud-controller-manager", Arc::new(FixedHealth(Ok(()))));
        pages.board.put(Kind::Lease, "migration", Arc::new(FixedHealth(Ok(()))));
        let names = ["leaderElection", "leaderElection-migration", "service-lb-controller"];
        assert_eq!(send(&router, Method::GET, "/healthz?verbose").await, verbose("healthz", &names));
        assert_eq!(send(&router, Method::GET, "/livez?verbose").await, verbose("livez", &names));
        assert_eq!(send(&router, Method::GET, "/healthz/leaderElection").await, (200, "ok".to_owned()));
        pages.board.put(Kind::Watch, "nodes", Arc::new(FixedHealth(Err("not synced"))));
        assert_eq!(send(&router, Method::GET, "/livez").await.0, 200);
        let (status, report) = send(&router, Method::GET, "/readyz").await;
        assert!(status == 500 && report.contains("[-]watch-nodes failed: reason withheld\n"), "{report}");
        pages.board.put(Kind::Controller, "service-lb-controller", Arc::new(FixedHealth(Err("stuck"))));
        assert_eq!(send(&router, Method::GET, "/healthz").await.0, 500);
    }

    #[tokio::test]
    async fn v11_a_standby_is_healthy_and_ready() {
        let pages = some_pages();
        pages.board.put(Kind::Lease, "cloud-controller-manager", Arc::new(FixedHealth(Ok(()))));
        let router = router(&pages, false);
        for path in ["/healthz", "/livez", "/readyz"] {
            assert_eq!(send(&router, Method::GET, path).await, (200, "ok".to_owned()));
        }
    }

    #[tokio::test]
    async fn health_check_metrics_can_be_reset() {
        let router = router(&some_pages(), false);
        send(&router, Method::GET, "/healthz").await;
        let (_, text) = send(&router, Method::GET, "/metrics/slis").await;
        assert!(text.contains("\nkubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1\n"), "{text}");
        let total = "\nkubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} 1\n";
        assert!(text.contains(total) && text.contains("\nprocess_start_time_seconds "), "{text}");
        assert_eq!(send(&router, Method::DELETE, "/metrics/slis").await, (200, "metrics reset\n".to_owned()));
        assert!(!send(&router, Method::GET, "/metrics/slis").await.1.contains("kubernetes_healthcheck{"));
    }

    #[tokio::test]
    async fn pages_are_text_unless_json_is_requested() {
        let router = router(&some_pages(), false);
        assert_eq!(send(&router, Method::GET, "/statusz").await, (200, "healthy\n".to_owned()));
        assert_eq!(send(&router, Method::GET, "/flagz?format=json").await, (200, "{\"v\":\"2\"}".to_owned()));
        let mut request = IncomingRequest::new(Method::GET, &Uri::from_static("/statusz"));
        request.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        assert_eq!(response(&router, request).await, (200, "{\"healthy\":true}".to_owned()));
        let configz = "{\"cloudcontrollermanager.config.k8s.io\":{}}";
        assert_eq!(send(&router, Method::GET, "/configz").await, (200, configz.to_owned()));
    }

    #[tokio::test]
    async fn verbosity_is_set_by_put() {
        let verbosity = Arc::default();
        let router = router(&pages(&verbosity), true);
        let put = |body: &'static str| {
            let request = IncomingRequest::new(Method::PUT, &Uri::from_static("/debug/flags/v"));
            response(&router, IncomingRequest { body: body.into(), ..request })
        };
        let done = "successfully set klog.logging.verbosity to 4\n";
        assert_eq!(put("4").await, (200, done.to_owned()));
        let refused = "strconv.ParseUint: parsing \"x\": invalid syntax\n";
        assert_eq!(put("x").await, (400, refused.to_owned()));
        assert_eq!(put("99999999999").await.0, 400);
        assert_eq!(send(&router, Method::GET, "/debug/flags/v").await, (406, "unsupported http method\n".to_owned()));
        assert_eq!(verbosity.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn profiles_are_not_implemented_and_can_be_disabled() {
        let with = router(&some_pages(), true);
        assert_eq!(send(&with, Method::GET, "/debug/pprof").await.0, 302);
        assert_eq!(send(&with, Method::GET, "/debug/pprof/").await.0, 200);
        assert_eq!(send(&with, Method::GET, "/debug/pprof/heap").await.0, 501);
        assert_eq!(send(&with, Method::GET, "/debug/pprof/moon").await, (404, "Unknown profile\n".to_owned()));
        assert!(send(&with, Method::GET, "/debug/flags").await.1.contains('v'));
        let without = router(&some_pages(), false);
        for path in ["/debug/pprof", "/debug/pprof/", "/debug/flags/v"] {
            assert_eq!(send(&without, Method::GET, path).await.0, 404);
        }
    }

    #[tokio::test]
    async fn v1_an_invalid_kubeconfig_is_an_error_before_serving() {
        let kubeconfig = Some("/nowhere/kubeconfig".into());
        let secure = Some(ServingOptions {
            bind_address: std::net::Ipv4Addr::LOCALHOST.into(),
            port: 0,
            ..ServingOptions::default()
        });
        let authentication = AuthenticationOptions { kubeconfig, ..AuthenticationOptions::default() };
        let options = ServerOptions { secure, authentication, ..ServerOptions::default() };
        let error = format!("{:#}", Servers::bind(&options, &[]).await.map(drop).unwrap_err());
        let expected = "--authentication-kubeconfig: cannot load the kubeconfig /nowhere/kubeconfig: ";
        assert!(error.starts_with(expected), "{error}");
    }
}
