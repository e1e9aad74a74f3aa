//! Compares the declared metrics with the registered ones, and dashboard and alerts with the declared ones.

use std::collections::BTreeSet;
use std::path::Path;

use bowline_runtime::{Buckets, Shape};
use prometheus::{Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramVec};

use super::*;

/// Providers with metrics of their own, or that dashboards use.
fn providers() -> bowline_cloud::Registry {
    bowline_cloud::Registry::default().with(bowline_local::factory())
}

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn metric_names_are_unique_and_follow_the_naming_conventions() {
    let declared = declared(&providers());
    let names: BTreeSet<_> = declared.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), declared.len(), "declared twice");
    for metric in &declared {
        let is_counter = metric.shape == Shape::Counter;
        let is_total = metric.name.ends_with("_total");
        assert_eq!(is_counter, is_total, "{}", metric.name);
        if metric.stability == Stability::Unspecified {
            assert!(metric.name.starts_with("process_"), "{} has no stability level", metric.name);
        }
        if let Shape::Histogram(bounds) = metric.shape {
            let values = bounds.values();
            assert!(!values.is_empty() && values.is_sorted(), "{}: {values:?}", metric.name);
        }
    }
}

/// Metrics of the Go managers that exist here.
#[test]
fn the_metrics_of_the_go_managers_are_declared_with_the_same_properties() {
    const A: Stability = Stability::Alpha;
    const B: Stability = Stability::Beta;
    let histogram = |bounds: &'static [f64]| Shape::Histogram(Buckets::Listed(bounds));
    let delays = histogram(&[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]);
    let powers = Shape::Histogram(Buckets::Exponential { first: 1.0, factor: 2.0, count: 15 });
    let queue = Shape::Histogram(Buckets::Exponential { first: 1e-8, factor: 10.0, count: 10 });
    let rest = histogram(&[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]);
    let sizes =
        histogram(&[64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0]);
    let pass = Shape::Histogram(Buckets::Exponential { first: 0.001, factor: 2.0, count: 15 });
    let tries = Shape::Histogram(Buckets::Exponential { first: 1.0, factor: 5.0, count: 5 });
    let hooks = histogram(&[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0]);
    let build = "major minor git_version git_commit git_tree_state build_date go_version compiler platform";
    let (counter, gauge) = (Shape::Counter, Shape::Gauge);
    let table = [
        ("node_controller_cloud_provider_taint_removal_delay_seconds", delays, "", A),
        ("node_controller_initial_node_sync_delay_seconds", delays, "", A),
        ("cloud_node_lifecycle_controller_monitor_nodes_duration_seconds", pass, "", A),
        ("cloud_node_lifecycle_controller_cloud_provider_calls_total", counter, "operation result", A),
        ("service_controller_loadbalancer_sync_total", counter, "", A),
        ("service_controller_nodesync_error_total", counter, "", A),
        ("service_controller_nodesync_latency_seconds", powers, "", A),
        ("service_controller_update_loadbalancer_host_latency_seconds", powers, "", A),
        ("route_controller_route_sync_total", counter, "outcome trigger", A),
        ("node_ipam_controller_cidrset_cidrs_allocations_total", counter, "clusterCIDR", A),
        ("node_ipam_controller_cidrset_cidrs_releases_total", counter, "clusterCIDR", A),
        ("node_ipam_controller_cirdset_max_cidrs", gauge, "clusterCIDR", A),
        ("node_ipam_controller_cidrset_usage_cidrs", gauge, "clusterCIDR", A),
        ("node_ipam_controller_cidrset_allocation_tries_per_request", tries, "clusterCIDR", A),
        ("cloud_provider_webhook_request_total", counter, "code webhook", A),
        ("cloud_provider_webhook_request_duration_seconds", hooks, "code webhook", A),
        ("kubernetes_healthcheck", gauge, "name type", Stability::Stable),
        ("kubernetes_healthchecks_total", counter, "name type status", Stability::Stable),
        ("running_managed_controllers", gauge, "name manager", B),
        ("leader_election_master_status", gauge, "name", A),
        ("leader_election_slowpath_total", counter, "name", A),
        ("workqueue_depth", gauge, "name", B),
        ("workqueue_adds_total", counter, "name", B),
        ("workqueue_retries_total", counter, "name", B),
        ("workqueue_queue_duration_seconds", queue, "name", B),
        ("workqueue_work_duration_seconds", queue, "name", B),
        ("workqueue_unfinished_work_seconds", gauge, "name", B),
        ("workqueue_longest_running_processor_seconds", gauge, "name", B),
        ("rest_client_requests_total", counter, "code method host", A),
        ("rest_client_request_duration_seconds", rest, "verb host", A),
        ("rest_client_rate_limiter_duration_seconds", rest, "verb host", A),
        ("rest_client_request_size_bytes", sizes, "verb host", A),
        ("rest_client_response_size_bytes", sizes, "verb host", A),
        ("rest_client_request_retries_total", counter, "code verb host", A),
        ("kubernetes_build_info", gauge, build, B),
        ("registered_metrics_total", counter, "stability_level deprecated_version", B),
        ("disabled_metrics_total", counter, "", B),
        ("hidden_metrics_total", counter, "", B),
    ];
    let mut declared = declared(&providers());
    declared.extend(bowline_serving::CHECK_METRICS);
    for (name, shape, labels, stability) in table {
        let metric = declared.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(metric.labels.join(" "), labels, "{name}");
        assert_eq!((metric.shape, metric.stability, metric.const_label), (shape, stability, None), "{name}");
        let prefix = format!("[{}] ", stability.label());
        assert!(metric.help().starts_with(&prefix), "{name}: {}", metric.help());
    }
}

/// Checks whether a metric is registered by registering it a second time: a metric with labels is not exposed before it is first
/// recorded.
fn is_registered(metric: &Metric, registry: &Registry, owner: &str) -> bool {
    let again: Box<dyn Collector> = match (metric.shape, metric.labels.is_empty()) {
        (Shape::Counter, true) => Box::new(Counter::make(metric, Some(owner)).unwrap()),
        (Shape::Counter, false) => Box::new(CounterVec::make(metric, Some(owner)).unwrap()),
        (Shape::Gauge, true) => Box::new(Gauge::make(metric, Some(owner)).unwrap()),
        (Shape::Gauge, false) => Box::new(GaugeVec::make(metric, Some(owner)).unwrap()),
        (Shape::Histogram(_), true) => Box::new(Histogram::make(metric, Some(owner)).unwrap()),
        (Shape::Histogram(_), false) => Box::new(HistogramVec::make(metric, Some(owner)).unwrap()),
    };
    matches!(registry.register(again), Err(prometheus::Error::AlreadyReg))
}

mod live {
    use std::sync::Arc;
    use std::time::Duration;

    use bowline_apiserver::ApiServer;
    use bowline_cloud::layers::LayerOptions;
    use bowline_cloud::{CloudProvider, Clouds};
    use bowline_controllers::manager::{self, Dependencies, ManagerOptions};
    use bowline_controllers::{node_ipam, provider_loops, route};
    use bowline_core::ipam::ClusterCidr;
    use bowline_kube::{ElectionMetrics, RestMetrics};
    use bowline_local::{CloudOptions, Config, LocalCloud, LocalProvider};
    use bowline_runtime::{Clock, Reloader, Shutdown};

    use super::*;

    /// Registry of a manager with all controllers.
    async fn registry() -> Registry {
        let (registry, shutdown) = (Registry::new(), Shutdown::new());
        register(&registry, Fence::open(), &providers()).unwrap();
        RestMetrics::register(&registry).unwrap();
        ElectionMetrics::register(&registry).unwrap();
        Reloader::register(&registry).unwrap();
        bowline_serving::webhook::WebhookMetrics::register(&registry).unwrap();
        let cloud = LocalCloud::open(CloudOptions::default()).unwrap();
        let config = Config { tag_machines: true, ..Config::default() };
        let provider: Arc<dyn CloudProvider> = Arc::new(LocalProvider::in_process(cloud, &config));
        let clouds = Clouds::with_layers([provider], &LayerOptions::default(), &registry);
        let range = "10.120.0.0/16".parse().unwrap();
        let options = ManagerOptions {
            route: Some(route::Options::new("kubernetes".into(), vec![range])),
            node_ipam: Some(node_ipam::Options {
                cluster_cidrs: vec![ClusterCidr::new(range, 24).unwrap()],
                service_cidrs: Vec::new(),
                allocator: node_ipam::AllocatorType::Range,
            }),
            provider_loops: Some(provider_loops::Options { cluster: "kubernetes".into() }),
            ..ManagerOptions::default()
        };
        let server = ApiServer::start(bowline_apiserver::Options::default()).await.unwrap();
        let client = server.in_process_client();
        let dependencies = Dependencies::new(client, clouds, Clock::system(), registry.clone());
        let running = tokio::spawn(manager::run(dependencies, options, shutdown.clone()));
        // A controller counts as running once it has registered its metrics.
        for _ in 0..600 {
            let families = registry.gather();
            let running = families.iter().find(|family| family.name() == "running_managed_controllers");
            if running.is_some_and(|running| running.get_metric().len() == 6) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        shutdown.request();
        running.await.unwrap().unwrap();
        registry
    }

    #[tokio::test]
    async fn a_manager_registers_the_declared_metrics() {
        let (registry, declared) = (registry().await, declared(&providers()));
        let provider_metrics = of_providers(&providers());
        let own = declared.iter().filter(|metric| !provider_metrics.contains(metric));
        let missing: Vec<_> = own.filter(|metric| !is_registered(metric, &registry, "local")).collect();
        assert!(missing.is_empty(), "declared and not registered: {missing:#?}");
        for family in registry.gather() {
            let metric = declared.iter().find(|metric| metric.name == family.name());
            let metric = metric.unwrap_or_else(|| panic!("{} is not declared", family.name()));
            assert_eq!(family.help(), metric.help(), "{}", metric.name);
        }
    }
}

// ---- dashboard and alerts

/// Returns the metric names in a PromQL expression, without functions, labels and keywords.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = expression;
    while let Some(letter) = rest.chars().next() {
        let (word, behind) = split_word(rest);
        rest = match (letter, word) {
            // Labels, ranges, strings and variables contain no metrics.
            ('{', _) => after(rest, '}'),
            ('[', _) => after(rest, ']'),
            ('"', _) => after(rest.trim_start_matches('"'), '"'),
            ('$', _) => split_word(after(rest, '$')).1,
            (_, "") => after(rest, letter),
            (_, "by" | "without" | "on" | "ignoring" | "group_left" | "group_right") => after(behind, ')'),
            (_, "or" | "and" | "unless" | "bool" | "offset") => behind,
            // The grouping of an aggregation may come first: sum by (x) (…).
            (_, "sum" | "max" | "min" | "avg" | "count" | "topk") => behind,
            ('0'..='9', _) => behind,
            _ if behind.trim_start().starts_with('(') => behind,
            (_, name) => {
                names.insert(name.to_owned());
                behind
            }
        };
    }
    names
}

fn split_word(text: &str) -> (&str, &str) {
    let is_in_word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':');
    text.split_at(text.find(|letter| !is_in_word(letter)).unwrap_or(text.len()))
}

fn after(text: &str, end: char) -> &str {
    text.split_once(end).map_or("", |(_, behind)| behind)
}

#[test]
fn only_metric_names_are_found_in_expressions() {
    let found = |expression: &str| metrics_in(expression).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(found("sum by (a, b) (rate(x_total{c=~\"y_total|$z\"}[5m])) > 0.5"), "x_total");
    assert_eq!(found("histogram_quantile(0.9, sum by (le) (rate(x_bucket[$__rate_interval]))) > 1e3"), "x_bucket");
    assert_eq!(found("sum(a) / (sum(b) + max by (n) (c)) == 0 or absent(d)"), "a b c d");
    assert_eq!(found("label_values(a{job=~\"$job\"}, instance)"), "a instance");
}

fn check(place: &str, expression: &str, also: &[&str]) {
    let (declared, checks) = (declared(&providers()), bowline_serving::CHECK_METRICS);
    let known: BTreeSet<String> = declared.iter().chain(checks).flat_map(Metric::sample_names).collect();
    let used = metrics_in(expression);
    assert!(!used.is_empty(), "{place}: {expression:?} has no metric");
    for name in used.iter().filter(|name| !also.contains(&name.as_str())) {
        assert!(known.contains(name), "{place}: there is no metric {name}: {expression}");
    }
}

#[test]
fn the_dashboard_uses_declared_metrics_only() {
    let dashboard: serde_json::Value = serde_json::from_str(&file("deploy/grafana/bowline.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let with_queries = panels.iter().filter(|panel| panel["type"] != "row");
    let mut queries = 0;
    for panel in with_queries {
        for target in panel["targets"].as_array().unwrap() {
            check(panel["title"].as_str().unwrap(), target["expr"].as_str().unwrap(), &[]);
            queries += 1;
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            check("variable", query, &["job", "instance"]);
        }
    }
    assert!(queries > 20, "{queries}");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same ID");
}

#[test]
fn alerts_use_declared_metrics_only_and_link_to_a_runbook() {
    let path = "deploy/prometheus/alerts.yaml";
    let alerts: serde_json::Value = bowline_config::ConfigFile::from_text(path, file(path)).yaml().unwrap();
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() > 5);
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        check(name, rule["expr"].as_str().unwrap(), &[]);
        for key in ["summary", "description"] {
            assert!(rule["annotations"][key].as_str().is_some_and(|text| text.len() > 20), "{name}: {key}");
        }
        let runbook = format!("docs/guides/alerts.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], runbook, "{name}");
        assert!(file("docs/guides/alerts.md").contains(&format!("\n## {name}\n")), "{name} has no section");
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
    }
}
