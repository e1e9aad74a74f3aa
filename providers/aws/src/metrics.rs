//! Metrics of API calls and of the controller `tagging`, with the names of the Go manager.

mod tagging;

use std::time::Duration;

use bowline_cloud::{Error, register_or_replace};
use bowline_runtime::{Buckets, Instrument as _, Metric, metrics};
use prometheus::{HistogramVec, IntCounterVec, Registry};

use crate::endpoints::ApiName;
pub(crate) use tagging::TaggingMetrics;

/// As in the Go manager.
const SECONDS: Buckets = Buckets::Listed(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);

metrics! {
    /// Metrics of API calls and of the controller `tagging`.
    pub(crate) METRICS;
    DURATIONS = Metric::histogram(
        "cloudprovider_aws_api_request_duration_seconds", "Duration of successful calls, for some actions of EC2.", SECONDS,
    ).labels(&["request"]);
    ERRORS = Metric::counter("cloudprovider_aws_api_request_errors", "Failed calls, for some actions of EC2.")
        .labels(&["request"]);
    THROTTLED = Metric::counter("cloudprovider_aws_api_throttled_requests_total", "Calls that failed with RequestLimitExceeded.")
        .labels(&["operation_name"]);
    STATUSES = Metric::counter("cloudprovider_aws_api_response_status_total", "Failed calls by HTTP status, 400 and above.")
        .labels(&["service", "operation", "status_code"]);
    // upstream: the instance ID is a label, so that the number of series grows with the instances that fail.
    TAGGING_ERRORS = Metric::counter(
        "cloudprovider_aws_tagging_controller_work_item_errors_total",
        "Instances whose tags could not be changed: each failure, and each instance that failed nine times.",
    ).labels(&["error_type", "instance_id"]);
    // upstream: spelled like this.
    TAGGING_DELAY = Metric::histogram(
        "tagging_controller_inital_node_tagging_delay_seconds",
        "Age of a Node when its instance got the tags for the first time.",
        Buckets::Listed(&[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]),
    );
}

/// Values of the label `request`, by action. Other actions are not in the first two metrics.
const REQUESTS: [(&str, &str); 6] = [
    ("DescribeInstances", "describe_instance"),
    ("DescribeNetworkInterfaces", "describe_network_interfaces"),
    ("DescribeSecurityGroups", "describe_security_groups"),
    ("DescribeRouteTables", "describe_route_tables"),
    ("CreateTags", "create_tags"),
    ("DeleteTags", "delete_tags"),
];

/// Metrics of all providers of one factory. Clones share their counters.
#[derive(Clone)]
pub(crate) struct Metrics {
    durations: HistogramVec,
    errors: IntCounterVec,
    throttled: IntCounterVec,
    statuses: IntCounterVec,
    pub(crate) tagging: TaggingMetrics,
}

/// Metrics of the calls to one API.
#[derive(Clone)]
pub(crate) struct CallMetrics {
    metrics: Metrics,
    api: ApiName,
}

impl Metrics {
    /// Creates unregistered metrics.
    pub(crate) fn new() -> Metrics {
        Metrics {
            durations: valid(HistogramVec::make(&DURATIONS, None)),
            errors: valid(IntCounterVec::make(&ERRORS, None)),
            throttled: valid(IntCounterVec::make(&THROTTLED, None)),
            statuses: valid(IntCounterVec::make(&STATUSES, None)),
            tagging: valid(TaggingMetrics::new()),
        }
    }

    /// Registers them; repeated calls have no effect.
    pub(crate) fn register(&self, registry: &Registry) {
        let outcome = register_or_replace(registry, &self.durations)
            .and_then(|()| register_or_replace(registry, &self.errors))
            .and_then(|()| register_or_replace(registry, &self.throttled))
            .and_then(|()| register_or_replace(registry, &self.statuses))
            .and_then(|()| self.tagging.register(registry));
        if let Err(error) = outcome {
            tracing::warn!(%error, "some AWS metrics will be missing");
        }
    }

    /// Returns the metrics of the calls to an API.
    pub(crate) fn of(&self, api: ApiName) -> CallMetrics {
        CallMetrics { metrics: self.clone(), api }
    }
}

impl CallMetrics {
    /// Records a call with all its attempts.
    pub(crate) fn record(&self, action: &str, took: Duration, error: Option<&Error>) {
        let Metrics { durations, errors, throttled, statuses, .. } = &self.metrics;
        let known = REQUESTS.iter().find(|(name, _)| *name == action).filter(|_| self.api == ApiName::Ec2);
        if let Some((_, request)) = known {
            match error {
                None => durations.with_label_values(&[request]).observe(took.as_secs_f64()),
                Some(_) => errors.with_label_values(&[request]).inc(),
            }
        }
        let Some(error) = error else { return };
        if error.code() == Some("RequestLimitExceeded") {
            throttled.with_label_values(&[action]).inc();
        }
        if let Some(status) = error.status().filter(|status| *status >= 400) {
            statuses.with_label_values(&[self.api.identifier(), action, &status.to_string()]).inc();
        }
    }
}

/// Metrics of constants either always succeed or never, and the tests create them.
#[allow(clippy::expect_used)] // no input reaches it
fn valid<T>(created: prometheus::Result<T>) -> T {
    created.expect("names, labels and buckets of the metrics are valid")
}

#[cfg(test)]
mod tests {
    use bowline_cloud::ErrorKind;

    use super::*;

    #[test]
    fn calls_are_recorded_with_the_names_of_the_go_manager() {
        let (metrics, registry) = (Metrics::new(), Registry::new());
        metrics.register(&registry);
        metrics.register(&registry);
        let error =
            |status, code: &str| Error::new(ErrorKind::Unexpected, "x", "y").with_status(status).with_code(code);
        let (ec2, elb) = (metrics.of(ApiName::Ec2), metrics.of(ApiName::ElbV2));
        let took = Duration::from_millis(20);
        ec2.record("DescribeInstances", took, None);
        ec2.record("DescribeInstances", took, Some(&error(503, "RequestLimitExceeded")));
        ec2.record("DescribeSubnets", took, None);
        ec2.record("DescribeSubnets", took, Some(&Error::new(ErrorKind::Unavailable, "x", "no response")));
        elb.record("CreateListener", took, Some(&error(400, "Throttling")));
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let counts: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("cloudprovider") && !line.contains("_bucket") && !line.contains("_sum"))
            .collect();
        assert_eq!(
            counts,
            [
                r#"cloudprovider_aws_api_request_duration_seconds_count{request="describe_instance"} 1"#,
                r#"cloudprovider_aws_api_request_errors{request="describe_instance"} 1"#,
                r#"cloudprovider_aws_api_response_status_total{operation="CreateListener",service="Elastic Load Balancing v2",status_code="400"} 1"#,
                r#"cloudprovider_aws_api_response_status_total{operation="DescribeInstances",service="EC2",status_code="503"} 1"#,
                r#"cloudprovider_aws_api_throttled_requests_total{operation_name="DescribeInstances"} 1"#,
            ]
        );
    }
}
