//! Health checks (HZ-1 to HZ-5) and the metrics about them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_runtime::{Metric, metrics};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use http::StatusCode;
use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use crate::answer::{self, Answer};
use crate::router::{ANY, IncomingRequest, Router};

metrics! {
    /// Metrics of health checks, at `/metrics/slis`.
    pub METRICS;
    LAST = Metric::gauge("kubernetes_healthcheck", "This metric records the result of a single healthcheck.")
        .labels(&["name", "type"]).stable();
    ALL = Metric::counter("kubernetes_healthchecks_total", "This metric records the results of all healthcheck.")
        .labels(&["name", "type", "status"]).stable();
}

/// A named health check. A failure has a one-line reason for the log.
#[derive(Clone)]
pub struct Check {
    name: String,
    run: Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
}

impl Check {
    /// Creates a check.
    pub fn new<F>(name: impl Into<String>, run: impl Fn() -> F + Send + Sync + 'static) -> Check
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Check { name: name.into(), run: Arc::new(move || run().boxed()) }
    }

    /// Creates a check that always passes.
    pub fn ping() -> Check {
        Check::new("ping", || async { Ok(()) })
    }
}

/// Returns the current checks, at each request.
type Source = Arc<dyn Fn() -> Vec<Check> + Send + Sync>;

/// The checks behind one path. Clones share them.
#[derive(Clone)]
pub struct Checks {
    /// `healthz` for `/healthz`.
    kind: &'static str,
    sources: Arc<Mutex<Vec<Source>>>,
    metrics: CheckMetrics,
}

impl Checks {
    /// Creates an endpoint without checks.
    pub fn new(kind: &'static str, metrics: &CheckMetrics) -> Checks {
        Checks { kind, sources: Arc::default(), metrics: metrics.clone() }
    }

    /// Adds a check.
    pub fn add(&self, check: Check) {
        self.add_all_of(move || vec![check.clone()]);
    }

    /// Adds all checks that `source` returns at the time of a request.
    pub fn add_all_of(&self, source: impl Fn() -> Vec<Check> + Send + Sync + 'static) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(source));
    }

    /// Adds the routes `/<kind>` for all checks and `/<kind>/<check>` for one.
    pub fn on(&self, router: Router) -> Router {
        let (all, one, kind) = (self.clone(), self.clone(), self.kind);
        let all = move |request: IncomingRequest| {
            let checks = all.clone();
            async move { checks.answer(&request).await }
        };
        let one = move |request: IncomingRequest| {
            let checks = one.clone();
            async move { checks.answer_one(request.path.trim_start_matches('/').get(kind.len() + 1..).unwrap_or("")).await }
        };
        // upstream: all methods are accepted.
        router.at(&format!("/{kind}"), ANY, all).under(&format!("/{kind}/"), ANY, one)
    }

    fn checks(&self) -> Vec<Check> {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let checks: Vec<_> = sources.iter().flat_map(|source| source()).collect();
        if checks.is_empty() { vec![Check::ping()] } else { checks }
    }

    async fn answer(&self, request: &IncomingRequest) -> Answer {
        let mut unknown: BTreeSet<&str> =
            request.query.get("exclude").into_iter().flatten().map(String::as_str).collect();
        let excluded = unknown.clone();
        let results = self.run(self.checks(), &excluded).await;
        for (name, _) in &results {
            unknown.remove(name.as_str());
        }
        let report = report(&results, &unknown);
        let is_healthy = results.iter().all(|(_, result)| !matches!(result, Outcome::Failed(_)));
        let kind = self.kind;
        match (is_healthy, request.has("verbose")) {
            (false, _) => answer::failure(StatusCode::INTERNAL_SERVER_ERROR, &format!("{report}{kind} check failed")),
            (true, false) => answer::no_sniff(answer::text(StatusCode::OK, "ok")),
            (true, true) => answer::no_sniff(answer::text(StatusCode::OK, format!("{report}{kind} check passed\n"))),
        }
    }

    /// Responds to a request for one check. This response contains the reason of a failure.
    async fn answer_one(&self, name: &str) -> Answer {
        let Some(check) = self.checks().into_iter().find(|check| check.name == name) else {
            return answer::failure(StatusCode::NOT_FOUND, "404 page not found");
        };
        match self.run(vec![check], &BTreeSet::new()).await.pop() {
            Some((_, Outcome::Failed(reason))) => {
                let reason = answer::escape_html(&reason);
                answer::failure(StatusCode::INTERNAL_SERVER_ERROR, &format!("internal server error: {reason}"))
            }
            _ => answer::no_sniff(answer::text(StatusCode::OK, "ok")),
        }
    }

    /// Runs the checks concurrently, so that one that hangs does not delay the others.
    async fn run(&self, checks: Vec<Check>, excluded: &BTreeSet<&str>) -> Vec<(String, Outcome)> {
        let run = |check: Check| async move {
            if excluded.contains(check.name.as_str()) {
                return (check.name, Outcome::Excluded);
            }
            let outcome = (check.run)().await.map_or_else(Outcome::Failed, |()| Outcome::Passed);
            self.metrics.observe(&check.name, self.kind, &outcome);
            if let Outcome::Failed(reason) = &outcome {
                tracing::warn!(check = check.name, kind = self.kind, reason, "a health check failed");
            }
            (check.name, outcome)
        };
        join_all(checks.into_iter().map(run)).await
    }
}

/// Result of a check.
enum Outcome {
    Passed,
    Excluded,
    Failed(String),
}

fn report(results: &[(String, Outcome)], unknown: &BTreeSet<&str>) -> String {
    let mut report = String::new();
    for (name, outcome) in results {
        report.push_str(&match outcome {
            Outcome::Passed => format!("[+]{name} ok\n"),
            Outcome::Excluded => format!("[+]{name} excluded: ok\n"),
            Outcome::Failed(_) => format!("[-]{name} failed: reason withheld\n"),
        });
    }
    if !unknown.is_empty() {
        let names: Vec<_> = unknown.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(", ");
        report.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    report
}

/// Metrics of check results, served at `/metrics/slis`.
#[derive(Clone)]
pub struct CheckMetrics {
    last: IntGaugeVec,
    all: IntCounterVec,
}

impl CheckMetrics {
    /// Registers the metrics.
    pub fn register(registry: &Registry) -> prometheus::Result<CheckMetrics> {
        Ok(CheckMetrics { last: LAST.register(registry)?, all: ALL.register(registry)? })
    }

    /// Removes all recorded results.
    pub fn reset(&self) {
        self.last.reset();
        self.all.reset();
    }

    fn observe(&self, name: &str, kind: &str, outcome: &Outcome) {
        let is_healthy = !matches!(outcome, Outcome::Failed(_));
        self.last.with_label_values(&[name, kind]).set(is_healthy.into());
        self.all.with_label_values(&[name, kind, if is_healthy { "success" } else { "error" }]).inc();
    }
}

#[cfg(test)]
mod tests {
    use http::{Method, Uri};
    use http_body_util::BodyExt as _;
    use tokio::sync::Barrier;

    use super::*;

    fn checks() -> Checks {
        Checks::new("healthz", &CheckMetrics::register(&Registry::new()).unwrap())
    }

    fn passing(name: &'static str) -> Check {
        Check::new(name, || async { Ok(()) })
    }

    fn failing(name: &'static str) -> Check {
        Check::new(name, || async { Err("the secret reason".to_owned()) })
    }

    async fn ask(checks: &Checks, uri: &'static str) -> (u16, String) {
        let answer = checks.on(Router::new()).answer(IncomingRequest::new(Method::GET, &Uri::from_static(uri))).await;
        let (head, body) = answer.into_parts();
        if head.status != StatusCode::NOT_FOUND {
            assert_eq!(head.headers["content-type"], "text/plain; charset=utf-8");
            assert_eq!(head.headers["x-content-type-options"], "nosniff");
        }
        (head.status.as_u16(), String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }

    #[tokio::test]
    async fn v7_no_checks_or_passing_checks_are_healthy() {
        let checks = checks();
        assert_eq!(ask(&checks, "/healthz").await, (200, "ok".to_owned()));
        let ping = "[+]ping ok\nhealthz check passed\n";
        assert_eq!(ask(&checks, "/healthz?verbose").await, (200, ping.to_owned()));
        checks.add(passing("good"));
        assert_eq!(ask(&checks, "/healthz").await, (200, "ok".to_owned()));
        let named = "[+]good ok\nhealthz check passed\n";
        assert_eq!(ask(&checks, "/healthz?verbose=false").await, (200, named.to_owned()));
    }

    #[tokio::test]
    async fn v8_a_failed_check_is_listed_without_its_reason() {
        let checks = checks();
        checks.add_all_of(|| vec![passing("good"), failing("bad")]);
        let expected = "[+]good ok\n[-]bad failed: reason withheld\nhealthz check failed\n";
        assert_eq!(ask(&checks, "/healthz").await, (500, expected.to_owned()));
        let checks = self::checks();
        checks.add(passing("good"));
        checks.add(failing("bad"));
        assert_eq!(ask(&checks, "/healthz").await, (500, expected.to_owned()));
    }

    #[tokio::test]
    async fn v9_a_check_applies_once_it_is_added() {
        let checks = checks();
        checks.add(passing("good"));
        assert_eq!(ask(&checks, "/healthz").await.0, 200);
        checks.add(failing("bad"));
        assert_eq!(ask(&checks, "/healthz").await.0, 500);
    }

    #[tokio::test]
    async fn v10_five_concurrent_requests_run_concurrently() {
        let (checks, all_arrived) = (checks(), Arc::new(Barrier::new(5)));
        checks.add(Check::new("blocks", move || {
            let all_arrived = all_arrived.clone();
            async move {
                all_arrived.wait().await;
                Ok(())
            }
        }));
        let answers = join_all((0..5).map(|_| ask(&checks, "/healthz"))).await;
        assert_eq!(answers, vec![(200, "ok".to_owned()); 5]);
    }

    #[tokio::test]
    async fn checks_are_excluded_by_name_and_unknown_names_are_reported() {
        let checks = checks();
        checks.add_all_of(|| vec![passing("good"), failing("bad")]);
        assert_eq!(ask(&checks, "/healthz?exclude=bad").await, (200, "ok".to_owned()));
        let expected = "[+]good ok\n[+]bad excluded: ok\nhealthz check passed\n";
        assert_eq!(ask(&checks, "/healthz?exclude=bad&verbose").await, (200, expected.to_owned()));
        let expected = "[+]good ok\n[-]bad failed: reason withheld\n\
                        warn: some health checks cannot be excluded: no matches for \"x\", \"y\"\nhealthz check failed\n";
        assert_eq!(ask(&checks, "/healthz?exclude=y&exclude=x").await, (500, expected.to_owned()));
    }

    #[tokio::test]
    async fn the_path_of_a_check_returns_the_reason() {
        let checks = checks();
        checks.add_all_of(|| vec![passing("good"), failing("bad")]);
        assert_eq!(ask(&checks, "/healthz/good").await, (200, "ok".to_owned()));
        assert_eq!(ask(&checks, "/healthz/bad").await, (500, "internal server error: the secret reason\n".to_owned()));
        assert_eq!(ask(&checks, "/healthz/other").await.0, 404);
    }

    #[tokio::test]
    async fn results_are_counted_until_they_are_reset() {
        let registry = Registry::new();
        let metrics = CheckMetrics::register(&registry).unwrap();
        let checks = Checks::new("livez", &metrics);
        checks.add_all_of(|| vec![passing("good"), failing("bad")]);
        let (_, _) = (ask(&checks, "/livez").await, ask(&checks, "/livez?exclude=bad").await);
        assert_eq!(metrics.all.with_label_values(&["good", "livez", "success"]).get(), 2);
        assert_eq!(metrics.all.with_label_values(&["bad", "livez", "error"]).get(), 1);
        assert_eq!(metrics.last.with_label_values(&["good", "livez"]).get(), 1);
        assert_eq!(metrics.last.with_label_values(&["bad", "livez"]).get(), 0);
        metrics.reset();
        assert!(registry.gather().is_empty());
    }
}
