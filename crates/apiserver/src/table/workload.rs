//! Printers of Deployment, DaemonSet, Scale and PodDisruptionBudget.

use serde_json::Value;

use super::age::Clock;
use super::{AGE, Column, NAME, Printer, count, labels, name, number, or, text, wide};
use crate::resources::label_selector;
use crate::value::Json;

pub(super) static DEPLOYMENT: Printer = Printer::new(
    &[
        NAME,
        text("Ready", "Number of ready and of desired replicas."),
        text("Up-to-date", "Number of replicas created from the current template."),
        text("Available", "Number of replicas ready for at least minReadySeconds."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    deployment,
);

pub(super) static DAEMON_SET: Printer = Printer::new(
    &[
        NAME,
        number("Desired", "Number of nodes that should run the pod."),
        number("Current", "Number of nodes that should run the pod and do."),
        number("Ready", "Number of nodes with a ready pod."),
        number("Up-to-date", "Number of nodes with a pod created from the current template."),
        number("Available", "Number of nodes with a pod ready for at least minReadySeconds."),
        text("Node Selector", "Labels of the nodes that should run the pod."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    daemon_set,
);

pub(super) static SCALE: Printer = Printer::new(
    &[
        // upstream: this name column does not have the format `name`.
        Column { format: "", ..NAME },
        number("Desired", "Number of desired replicas."),
        number("Available", "Number of observed replicas."),
        AGE,
    ],
    |scale, clock| vec![name(scale), count(scale, "spec.replicas"), count(scale, "status.replicas"), clock.age(scale)],
);

pub(super) static DISRUPTION_BUDGET: Printer = Printer::new(
    &[
        NAME,
        text("Min Available", "Minimum number or percentage of available pods."),
        text("Max Unavailable", "Maximum number or percentage of unavailable pods."),
        number("Allowed Disruptions", "Number of pods that may be disrupted now."),
        AGE,
    ],
    |budget, clock| {
        let amount = |field: &str| match budget.at("spec").at(field) {
            Value::Null => "N/A".into(),
            Value::String(text) => text.clone().into(),
            number => Value::from(number.to_string()),
        };
        let allowed = count(budget, "status.disruptionsAllowed");
        vec![name(budget), amount("minAvailable"), amount("maxUnavailable"), allowed, clock.age(budget)]
    },
);

const CONTAINERS: Column = wide("Containers", "Container names of the template.");
const IMAGES: Column = wide("Images", "Container images of the template.");
const SELECTOR: Column = wide("Selector", "Label selector of the pods.");

fn deployment(deployment: &Value, clock: Clock) -> Vec<Value> {
    let ready = deployment.int("status.readyReplicas").unwrap_or(0);
    let desired = deployment.int("spec.replicas").unwrap_or(0);
    vec![
        name(deployment),
        format!("{ready}/{desired}").into(),
        count(deployment, "status.updatedReplicas"),
        count(deployment, "status.availableReplicas"),
        clock.age(deployment),
        of_containers(deployment, "name").into(),
        of_containers(deployment, "image").into(),
        label_selector::text(deployment.at("spec.selector")).unwrap_or_else(|| "<invalid>".to_owned()).into(),
    ]
}

fn daemon_set(set: &Value, clock: Clock) -> Vec<Value> {
    let selector = label_selector::text(set.at("spec.selector")).unwrap_or_else(|| "<error>".to_owned());
    vec![
        name(set),
        count(set, "status.desiredNumberScheduled"),
        count(set, "status.currentNumberScheduled"),
        count(set, "status.numberReady"),
        count(set, "status.updatedNumberScheduled"),
        count(set, "status.numberAvailable"),
        labels(set.map("spec.template.spec.nodeSelector")).into(),
        clock.age(set),
        of_containers(set, "name").into(),
        of_containers(set, "image").into(),
        or(&selector, "<none>").into(),
    ]
}

fn of_containers(workload: &Value, field: &str) -> String {
    let containers = workload.list("spec.template.spec.containers").iter();
    containers.map(|c| c.text(field)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(printer: &Printer, object: Value) -> Value {
        Value::Array((printer.cells)(&object, Clock::at("2024-01-01T00:00:00Z".parse().unwrap())))
    }

    fn spec() -> Value {
        json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": [
            {"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}}})
    }

    #[test]
    fn deployment_has_ready_and_desired_replicas() {
        let object = json!({"metadata": {"name": "a"}, "spec": spec(), "status": {"readyReplicas": 1}});
        assert_eq!(row(&DEPLOYMENT, object), json!(["a", "1/3", 0, 0, "<unknown>", "c,d", "i,j", "a=b"]));
    }

    #[test]
    fn daemon_set_counts_nodes() {
        let object = json!({"metadata": {"name": "a"}, "spec": spec(), "status": {
            "desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2,
            "numberAvailable": 1}});
        let expected = json!(["a", 5, 4, 3, 2, 1, "<none>", "<unknown>", "c,d", "i,j", "a=b"]);
        assert_eq!(row(&DAEMON_SET, object), expected);
    }

    #[test]
    fn scale_has_desired_and_observed_replicas() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"replicas": 3}, "status": {"replicas": 2}});
        assert_eq!(row(&SCALE, object), json!(["a", 3, 2, "<unknown>"]));
    }
}
