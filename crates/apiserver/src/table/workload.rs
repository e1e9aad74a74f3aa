//! Deployments, daemon sets and the scale of either.

use serde_json::Value;

use super::age::Clock;
use super::{AGE, Column, NAME, Printer, count, labels, name, number, or, text, wide};
use crate::resources::label_selector;
use crate::value::Json;

pub(super) static DEPLOYMENT: Printer = Printer::new(
    &[
        NAME,
        text("Ready", "Ready replicas, of those wanted."),
        text("Up-to-date", "Replicas made from the current template."),
        text("Available", "Replicas that have been ready for long enough."),
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
        number("Desired", "Nodes that should run the pod."),
        number("Current", "Nodes that should run the pod and have it."),
        number("Ready", "Nodes whose pod is ready."),
        number("Up-to-date", "Nodes whose pod is made from the current template."),
        number("Available", "Nodes whose pod has been ready for long enough."),
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
        // upstream: the one name column that is not marked as a name.
        Column { format: "", ..NAME },
        number("Desired", "Replicas wanted."),
        number("Available", "Replicas seen."),
        AGE,
    ],
    |scale, clock| vec![name(scale), count(scale, "spec.replicas"), count(scale, "status.replicas"), clock.age(scale)],
);

pub(super) static DISRUPTION_BUDGET: Printer = Printer::new(
    &[
        NAME,
        text("Min Available", "Pods that must stay available."),
        text("Max Unavailable", "Pods that may be unavailable."),
        number("Allowed Disruptions", "Pods that may be disrupted now."),
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

const CONTAINERS: Column = wide("Containers", "The containers of the template.");
const IMAGES: Column = wide("Images", "The images of the template.");
const SELECTOR: Column = wide("Selector", "Labels of the pods that belong to it.");

fn deployment(deployment: &Value, clock: Clock) -> Vec<Value> {
    let ready = deployment.int("status.readyReplicas").unwrap_or(0);
    let wanted = deployment.int("spec.replicas").unwrap_or(0);
    vec![
        name(deployment),
        format!("{ready}/{wanted}").into(),
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
    fn a_deployment_compares_ready_with_wanted() {
        let object = json!({"metadata": {"name": "a"}, "spec": spec(), "status": {"readyReplicas": 1}});
        assert_eq!(row(&DEPLOYMENT, object), json!(["a", "1/3", 0, 0, "<unknown>", "c,d", "i,j", "a=b"]));
    }

    #[test]
    fn a_daemon_set_counts_nodes() {
        let object = json!({"metadata": {"name": "a"}, "spec": spec(), "status": {
            "desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2,
            "numberAvailable": 1}});
        let expected = json!(["a", 5, 4, 3, 2, 1, "<none>", "<unknown>", "c,d", "i,j", "a=b"]);
        assert_eq!(row(&DAEMON_SET, object), expected);
    }

    #[test]
    fn a_scale_shows_wanted_and_seen() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"replicas": 3}, "status": {"replicas": 2}});
        assert_eq!(row(&SCALE, object), json!(["a", 3, 2, "<unknown>"]));
    }
}
