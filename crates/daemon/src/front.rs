//! What the manager tells about itself: its board, metrics, settings and flags as pages of a site, and the servers of it.
//!
//! ```text
//! --bind-address:--secure-port    HTTPS, delegated authentication and authorization    everything
//! --metrics-listen                plain HTTP, for this machine                         /metrics
//! ```

mod debug;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use bowline_kube::{Access, ClientOptions, Probe, RestMetrics};
use bowline_runtime::{Entry, Kind, Metric, Shutdown, StatusBoard, metrics};
use bowline_serving::answer::{self, Answer};
use bowline_serving::webhook::{self, Webhook, WebhookMetrics};
use bowline_serving::{
    ANY, AccessControl, AuthenticationOptions, Authenticator, AuthorizationOptions, Authorizer, Check, CheckMetrics,
    Checks, IncomingRequest, READ_METHODS, Router, Server, ServingOptions,
};
use bowline_settings::Settings;
use bowline_telemetry::{exposition, process};
use http::header::ACCEPT;
use http::{Method, StatusCode};
use prometheus::{Gauge, Registry};
use serde_json::Value;

/// The format of metrics, as Go's managers name it.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// The check of the right to lead (HZ-1).
const LEADER_ELECTION: &str = "leaderElection";

metrics! {
    /// What `/metrics/slis` has beside the checks.
    METRICS;
    START = Metric::gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.");
}

/// Where to serve what, and to whom.
#[derive(Debug, Clone, Default)]
pub(crate) struct FrontOptions {
    /// HTTPS; none with `--secure-port=0`.
    pub(crate) secure: Option<ServingOptions>,
    pub(crate) authentication: AuthenticationOptions,
    pub(crate) authorization: AuthorizationOptions,
    /// `--profiling`: `/debug/`.
    pub(crate) profiling: bool,
    /// `--metrics-listen`.
    pub(crate) plain: Option<SocketAddr>,
    /// Where webhooks are served; none if nobody wants any.
    pub(crate) webhooks: Option<ServingOptions>,
    /// Where questions to the API server are counted, if they are.
    pub(crate) requests: Option<RestMetrics>,
}

impl From<&Settings> for FrontOptions {
    fn from(settings: &Settings) -> FrontOptions {
        let serving = &settings.serving;
        FrontOptions {
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

/// A document that is made when somebody asks for it.
pub(crate) type Document = Arc<dyn Fn() -> Value + Send + Sync>;

/// The same for people, and for programs.
pub(crate) type Page = Arc<dyn Fn() -> (String, Value) + Send + Sync>;

/// What is told.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) board: StatusBoard,
    pub(crate) metrics: Registry,
    pub(crate) configz: Document,
    pub(crate) flagz: Page,
    pub(crate) statusz: Page,
    pub(crate) set_verbosity: Arc<dyn Fn(i32) + Send + Sync>,
}

/// Addresses that are taken. Connections wait until they are served.
pub(crate) struct Front {
    secure: Option<(Server, AccessControl)>,
    reviewers: Reviewers,
    plain: Option<Server>,
    webhooks: Option<(Server, Vec<Arc<dyn Webhook>>)>,
    profiling: bool,
}

impl Front {
    /// Takes the addresses, reads or makes certificates, and finds out how people are to be recognised.
    /// `webhooks` are those that are wanted.
    pub(crate) async fn bind(options: &FrontOptions, webhooks: &[Arc<dyn Webhook>]) -> anyhow::Result<Front> {
        let plain = options.plain.map(Server::bind_plain).transpose()?;
        let mut reviewers = Reviewers::default();
        let secure = match &options.secure {
            // The address first: whether the port is free does not depend on the API server.
            Some(serving) => {
                let server = Server::bind(serving)?;
                reviewers = Reviewers::new(options).await?;
                Some((server, door(options, &reviewers).await?))
            }
            None => None,
        };
        let host = options.webhooks.as_ref().map(|serving| webhook::bind(serving, webhooks)).transpose()?.flatten();
        let webhooks = host.map(|server| (server, webhooks.to_vec()));
        Ok(Front { secure, reviewers, plain, webhooks, profiling: options.profiling })
    }

    /// Where HTTPS is served, if it is.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.secure.as_ref().map(|(server, _)| server.address())
    }

    /// The ways on which it asks about people, each by what it is for.
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
                    server.serve(metrics_site(&pages.metrics), AccessControl::open(), shutdown.clone()).await
                }
                None => Ok(()),
            }
        };
        let secure = async {
            match self.secure {
                Some((server, door)) => server.serve(site(&pages, self.profiling), door, shutdown.clone()).await,
                None => Ok(()),
            }
        };
        let webhooks = async {
            match self.webhooks {
                Some((server, hooks)) => match WebhookMetrics::register(&pages.metrics) {
                    Ok(metrics) => {
                        server.serve(webhook::site(&hooks, &metrics), AccessControl::open(), shutdown.clone()).await
                    }
                    Err(error) => {
                        tracing::error!(%error, "cannot count what webhooks do, and serves none");
                        Ok(())
                    }
                },
                None => Ok(()),
            }
        };
        let (Ok(()), Ok(()), Ok(())) = tokio::join!(plain, secure, webhooks);
        shutdown.requested().await;
        Ok(())
    }
}

/// The API server, twice: it is asked who somebody is, and what they may do. None outside of a pod, unless flags name one.
#[derive(Clone, Default)]
struct Reviewers {
    authentication: Option<Access>,
    authorization: Option<Access>,
}

impl Reviewers {
    async fn new(options: &FrontOptions) -> anyhow::Result<Reviewers> {
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
    // upstream: --kubeconfig does not count here.
    if kubeconfig.is_none() && kube::Config::incluster().is_err() {
        return Ok(None);
    }
    // Whoever may ask about others need not see Nodes.
    let probe = Probe::Version;
    let options = ClientOptions { kubeconfig, user: user.to_owned(), metrics, probe, ..ClientOptions::default() };
    Ok(Some(Access::open(&options).await?))
}

async fn door(options: &FrontOptions, reviewers: &Reviewers) -> anyhow::Result<AccessControl> {
    let reviews = reviewers.authentication.as_ref().map(Access::client);
    let authenticator = Authenticator::new(&options.authentication, reviews).await?;
    let reviews = reviewers.authorization.as_ref().map(Access::client);
    if reviews.is_none() {
        tracing::warn!(
            "no client for SubjectAccessReviews, since there is no --authorization-kubeconfig: only system:masters and the paths in --authorization-always-allow-paths are let in"
        );
    }
    Ok(AccessControl::protected(authenticator, Authorizer::new(&options.authorization, reviews)?))
}

/// `/metrics` alone.
fn metrics_site(metrics: &Registry) -> Router {
    let metrics = metrics.clone();
    Router::new().at("/metrics", READ_METHODS, move |_| std::future::ready(exposed(&metrics)))
}

/// Everything.
fn site(pages: &Pages, profiling: bool) -> Router {
    let slis = Registry::new();
    let metrics = pages.metrics.clone();
    // upstream: all verbs are answered alike.
    let mut site = Router::new().at("/metrics", ANY, move |_| std::future::ready(exposed(&metrics)));
    match CheckMetrics::register(&slis) {
        Ok(checks) => {
            site = with_checks(site, &pages.board, &checks);
            site = with_slis(site, slis, checks);
        }
        // Two names that differ are taken by an empty registry.
        Err(error) => tracing::error!(%error, "cannot count health checks, and serves none"),
    }
    let configz = pages.configz.clone();
    site = site.at("/configz", READ_METHODS, move |_| {
        std::future::ready(answer::no_sniff(answer::json(StatusCode::OK, &configz())))
    });
    for (path, page) in [("/flagz", pages.flagz.clone()), ("/statusz", pages.statusz.clone())] {
        site = site.at(path, READ_METHODS, move |asked| std::future::ready(shown(&asked, &page)));
    }
    if profiling { debug::with_pages(site, pages.set_verbosity.clone()) } else { site }
}

fn exposed(metrics: &Registry) -> Answer {
    answer::of_type(StatusCode::OK, METRICS_TYPE, exposition::text(&metrics.gather()))
}

/// For programs if they ask for it (`Accept: application/json` or `?format=json`), else for people.
fn shown(asked: &IncomingRequest, page: &Page) -> Answer {
    let (text, json) = page();
    let accept = asked.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let wanted = asked.query.get("format").and_then(|values| values.last()).map(String::as_str);
    let answer = match wanted == Some("json") || accept.contains("application/json") {
        true => answer::json(StatusCode::OK, &json),
        false => answer::text(StatusCode::OK, text),
    };
    answer::no_sniff(answer)
}

// === Health ===

/// Alive is who leads or waits, and whose loops get on. Ready is who, beside that, sees the cluster, and whose clouds have
/// started; a standby does not look at the cluster yet, and is ready all the same: it is ready to take over.
fn with_checks(site: Router, board: &StatusBoard, metrics: &CheckMetrics) -> Router {
    let kinds: [(&str, &'static [Kind]); 3] = [
        ("healthz", &[Kind::Lease, Kind::Controller]),
        ("livez", &[Kind::Lease, Kind::Controller]),
        ("readyz", &[Kind::Lease, Kind::Controller, Kind::Watch, Kind::Cloud]),
    ];
    kinds.into_iter().fold(site, |site, (name, kinds)| {
        let (checks, board) = (Checks::new(name, metrics), board.clone());
        checks.add_all_of(move || checks_of(&board, kinds));
        checks.on(site)
    })
}

fn checks_of(board: &StatusBoard, kinds: &[Kind]) -> Vec<Check> {
    let mut leases = 0;
    let entries = board.entries().into_iter().filter(|entry| kinds.contains(&entry.kind));
    let check = |Entry { kind, name, part }| {
        let name = match kind {
            Kind::Lease => {
                leases += 1;
                // upstream: the first has this name, and the second, of a migration, none.
                if leases == 1 { LEADER_ELECTION.to_owned() } else { format!("{LEADER_ELECTION}-{name}") }
            }
            Kind::Watch => format!("watch-{name}"),
            Kind::Cloud => format!("cloud-{name}"),
            _ => name,
        };
        Check::new(name, move || std::future::ready(part.health()))
    };
    entries.map(check).collect()
}

// === Metrics about health ===

fn with_slis(site: Router, registry: Registry, checks: CheckMetrics) -> Router {
    if let Ok(start) = START.register::<Gauge>(&registry) {
        start.set(process::start_time().unwrap_or_default());
    }
    site.at("/metrics/slis", ANY, move |asked| {
        std::future::ready(match asked.method {
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

    use bowline_runtime::Part;
    use http::{HeaderValue, Uri};
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn the_token_that_asks_about_people_may_stand_in_a_file_on_a_line_of_its_own() {
        let server = bowline_apiserver::ApiServer::start(bowline_apiserver::Options::default()).await.unwrap();
        server.add_token("the-token", "asker", &[]);
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

    struct Is(Result<(), &'static str>);

    impl Part for Is {
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
            statusz: Arc::new(|| ("all is well\n".to_owned(), json!({ "well": true }))),
            set_verbosity: Arc::new(move |v| verbosity.store(v, Ordering::SeqCst)),
        }
    }

    fn some_pages() -> Pages {
        pages(&Arc::default())
    }

    async fn answered(site: &Router, asked: IncomingRequest) -> (u16, String) {
        let answer = site.answer(asked).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn said(site: &Router, method: Method, uri: &'static str) -> (u16, String) {
        answered(site, IncomingRequest::new(method, &Uri::from_static(uri))).await
    }

    #[tokio::test]
    async fn metrics_are_told_in_the_format_that_prometheus_reads() {
        let metrics = Registry::new();
        let counter = prometheus::IntCounter::new("knots_total", "Knots tied.").unwrap();
        metrics.register(Box::new(counter.clone())).unwrap();
        counter.inc_by(7);
        let site = metrics_site(&metrics);
        let text = "# HELP knots_total Knots tied.\n# TYPE knots_total counter\nknots_total 7\n";
        assert_eq!(said(&site, Method::GET, "/metrics").await, (200, text.to_owned()));
        assert_eq!(said(&site, Method::GET, "/").await.0, 404);
        assert_eq!(said(&site, Method::POST, "/metrics").await.0, 405);
    }

    #[tokio::test]
    async fn the_board_is_what_health_checks_look_at() {
        let pages = some_pages();
        let site = site(&pages, true);
        let verbose = |kind: &str, names: &[&str]| {
            let lines: String = names.iter().map(|name| format!("[+]{name} ok\n")).collect();
            (200, format!("{lines}{kind} check passed\n"))
        };
        assert_eq!(said(&site, Method::GET, "/healthz?verbose").await, verbose("healthz", &["ping"]));
        pages.board.put(Kind::Controller, "service-lb-controller", Arc::new(Is(Ok(()))));
        pages.board.put(Kind::Lease, "cloud-controller-manager", Arc::new(Is(Ok(()))));
        pages.board.put(Kind::Lease, "migration", Arc::new(Is(Ok(()))));
        let names = ["leaderElection", "leaderElection-migration", "service-lb-controller"];
        assert_eq!(said(&site, Method::GET, "/healthz?verbose").await, verbose("healthz", &names));
        assert_eq!(said(&site, Method::GET, "/livez?verbose").await, verbose("livez", &names));
        assert_eq!(said(&site, Method::GET, "/healthz/leaderElection").await, (200, "ok".to_owned()));
        pages.board.put(Kind::Watch, "nodes", Arc::new(Is(Err("not synced"))));
        assert_eq!(said(&site, Method::GET, "/livez").await.0, 200);
        let (status, report) = said(&site, Method::GET, "/readyz").await;
        assert!(status == 500 && report.contains("[-]watch-nodes failed: reason withheld\n"), "{report}");
        pages.board.put(Kind::Controller, "service-lb-controller", Arc::new(Is(Err("stuck"))));
        assert_eq!(said(&site, Method::GET, "/healthz").await.0, 500);
    }

    #[tokio::test]
    async fn v11_a_standby_is_well_and_ready() {
        let pages = some_pages();
        pages.board.put(Kind::Lease, "cloud-controller-manager", Arc::new(Is(Ok(()))));
        let site = site(&pages, false);
        for path in ["/healthz", "/livez", "/readyz"] {
            assert_eq!(said(&site, Method::GET, path).await, (200, "ok".to_owned()));
        }
    }

    #[tokio::test]
    async fn checks_are_counted_and_forgotten_on_request() {
        let site = site(&some_pages(), false);
        said(&site, Method::GET, "/healthz").await;
        let (_, text) = said(&site, Method::GET, "/metrics/slis").await;
        assert!(text.contains("\nkubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1\n"), "{text}");
        let total = "\nkubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} 1\n";
        assert!(text.contains(total) && text.contains("\nprocess_start_time_seconds "), "{text}");
        assert_eq!(said(&site, Method::DELETE, "/metrics/slis").await, (200, "metrics reset\n".to_owned()));
        assert!(!said(&site, Method::GET, "/metrics/slis").await.1.contains("kubernetes_healthcheck{"));
    }

    #[tokio::test]
    async fn pages_are_for_people_unless_a_program_asks() {
        let site = site(&some_pages(), false);
        assert_eq!(said(&site, Method::GET, "/statusz").await, (200, "all is well\n".to_owned()));
        assert_eq!(said(&site, Method::GET, "/flagz?format=json").await, (200, "{\"v\":\"2\"}".to_owned()));
        let mut asked = IncomingRequest::new(Method::GET, &Uri::from_static("/statusz"));
        asked.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        assert_eq!(answered(&site, asked).await, (200, "{\"well\":true}".to_owned()));
        let configz = "{\"cloudcontrollermanager.config.k8s.io\":{}}";
        assert_eq!(said(&site, Method::GET, "/configz").await, (200, configz.to_owned()));
    }

    #[tokio::test]
    async fn verbosity_is_set_by_a_put_of_a_number() {
        let verbosity = Arc::default();
        let site = site(&pages(&verbosity), true);
        let put = |body: &'static str| {
            let asked = IncomingRequest::new(Method::PUT, &Uri::from_static("/debug/flags/v"));
            answered(&site, IncomingRequest { body: body.into(), ..asked })
        };
        let done = "successfully set klog.logging.verbosity to 4\n";
        assert_eq!(put("4").await, (200, done.to_owned()));
        let refused = "strconv.ParseUint: parsing \"x\": invalid syntax\n";
        assert_eq!(put("x").await, (400, refused.to_owned()));
        assert_eq!(put("99999999999").await.0, 400);
        assert_eq!(said(&site, Method::GET, "/debug/flags/v").await, (406, "unsupported http method\n".to_owned()));
        assert_eq!(verbosity.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn profiles_say_what_they_are_not_and_can_be_switched_off() {
        let with = site(&some_pages(), true);
        assert_eq!(said(&with, Method::GET, "/debug/pprof").await.0, 302);
        assert_eq!(said(&with, Method::GET, "/debug/pprof/").await.0, 200);
        assert_eq!(said(&with, Method::GET, "/debug/pprof/heap").await.0, 501);
        assert_eq!(said(&with, Method::GET, "/debug/pprof/moon").await, (404, "Unknown profile\n".to_owned()));
        assert!(said(&with, Method::GET, "/debug/flags").await.1.contains('v'));
        let without = site(&some_pages(), false);
        for path in ["/debug/pprof", "/debug/pprof/", "/debug/flags/v"] {
            assert_eq!(said(&without, Method::GET, path).await.0, 404);
        }
    }

    #[tokio::test]
    async fn v1_what_cannot_be_used_is_an_error_before_anything_is_served() {
        let kubeconfig = Some("/nowhere/kubeconfig".into());
        let secure = Some(ServingOptions {
            bind_address: std::net::Ipv4Addr::LOCALHOST.into(),
            port: 0,
            ..ServingOptions::default()
        });
        let authentication = AuthenticationOptions { kubeconfig, ..AuthenticationOptions::default() };
        let options = FrontOptions { secure, authentication, ..FrontOptions::default() };
        let error = format!("{:#}", Front::bind(&options, &[]).await.map(drop).unwrap_err());
        let wanted = "--authentication-kubeconfig: the kubeconfig /nowhere/kubeconfig cannot be used: ";
        assert!(error.starts_with(wanted), "{error}");
    }
}
