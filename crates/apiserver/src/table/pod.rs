//! Printer of Pod. The status column is derived from the container states, not from the phase alone.
//!
//! ```text
//!  phase or reason ──► init containers, up to the first incomplete one ──► "Init:…", stop
//!                                                                  └──► containers ──► waiting, exit, Running
//!                  ──► being deleted ──► "Terminating"
//! ```

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::{Clock, timestamp};
use super::{AGE, Column, NAME, Printer, name, or, text, wide};
use crate::value::Json;

pub(super) static POD: Printer = Printer { columns: COLUMNS, cells, conditions: Some(conditions) };

const COLUMNS: &[Column] = &[
    NAME,
    text("Ready", "Number of ready containers and of all containers, including sidecars."),
    text("Status", "Status of the pod, from the states of its containers."),
    text("Restarts", "Number of container restarts, and the time since the last one."),
    AGE,
    wide("IP", "First IP address of the pod."),
    wide("Node", "Node of the pod."),
    wide("Nominated Node", "Node that the pod will be scheduled to after preemption."),
    wide("Readiness Gates", "Number of readiness gates that are true, and of all."),
];

fn cells(pod: &Value, clock: Clock) -> Vec<Value> {
    let summary = Summary::of(pod);
    vec![
        name(pod),
        format!("{}/{}", summary.ready, long_running_containers(pod)).into(),
        summary.status.into(),
        summary.restarts.cell(clock).into(),
        clock.age(pod),
        or(pod.list("status.podIPs").first().map_or("", |ip| ip.text("ip")), "<none>").into(),
        or(pod.text("spec.nodeName"), "<none>").into(),
        or(pod.text("status.nominatedNodeName"), "<none>").into(),
        readiness_gates(pod).into(),
    ]
}

/// Returns the row condition by which kubectl recognises completed Pods.
fn conditions(pod: &Value) -> Option<Value> {
    let message = match pod.text("status.phase") {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    let reason = pod.text("status.phase");
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// Returns the number of containers that run for the lifetime of the Pod, including sidecars.
fn long_running_containers(pod: &Value) -> usize {
    let sidecars = pod.list("spec.initContainers").iter().filter(|c| restarts_always(c)).count();
    pod.list("spec.containers").len() + sidecars
}

fn restarts_always(container: &Value) -> bool {
    container.text("restartPolicy") == "Always"
}

fn is_sidecar(pod: &Value, name: &str) -> bool {
    pod.list("spec.initContainers").iter().rfind(|c| c.text("name") == name).is_some_and(restarts_always)
}

fn condition<'a>(pod: &'a Value, ty: &str) -> Option<&'a Value> {
    pod.list("status.conditions").iter().find(|c| c.text("type") == ty)
}

fn is_true(pod: &Value, ty: &str) -> bool {
    condition(pod, ty).is_some_and(|c| c.text("status") == "True")
}

fn readiness_gates(pod: &Value) -> String {
    let gates = pod.list("spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let met = gates.iter().filter(|gate| is_true(pod, gate.text("conditionType"))).count();
    format!("{met}/{}", gates.len())
}

/// Number of container restarts, and the time of the last one.
#[derive(Debug, Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += container.int("restartCount").unwrap_or(0);
        self.last = self.last.max(timestamp(container.at("lastState.terminated.finishedAt")));
    }

    fn cell(self, clock: Clock) -> String {
        match self.last {
            Some(last) if self.count != 0 => format!("{} ({} ago)", self.count, clock.elapsed(last)),
            _ => self.count.to_string(),
        }
    }
}

/// Summary of all containers.
struct Summary {
    status: String,
    ready: usize,
    restarts: Restarts,
}

impl Summary {
    fn of(pod: &Value) -> Summary {
        let mut summary = Summary { status: pod_status(pod), ready: 0, restarts: Restarts::default() };
        let initializing = summary.add_init_containers(pod);
        if !initializing || is_true(pod, "Initialized") {
            summary.add_containers(pod);
        }
        if let Some(status) = deletion_status(pod) {
            summary.status = status.to_owned();
        }
        summary
    }

    /// Adds the init containers up to the first incomplete one. Returns true if there is one. While the Pod initialises,
    /// restarts of all init containers count, afterwards only those of sidecars.
    fn add_init_containers(&mut self, pod: &Value) -> bool {
        let mut sidecar_restarts = Restarts::default();
        for (i, container) in pod.list("status.initContainerStatuses").iter().enumerate() {
            let sidecar = is_sidecar(pod, container.text("name"));
            self.restarts.add(container);
            if sidecar {
                sidecar_restarts.add(container);
            }
            if container.int("state.terminated.exitCode") == Some(0) {
                continue;
            }
            if sidecar && container.at("started") == true {
                self.ready += usize::from(container.at("ready") == true);
                continue;
            }
            self.status = init_status(container, i, pod.list("spec.initContainers").len());
            if is_true(pod, "Initialized") {
                self.restarts = sidecar_restarts;
            }
            return true;
        }
        self.restarts = sidecar_restarts;
        false
    }

    fn add_containers(&mut self, pod: &Value) {
        let (mut running, mut error) = (false, None);
        // In reverse order, so that the first container with a status takes precedence.
        for container in pod.list("status.containerStatuses").iter().rev() {
            self.restarts.add(container);
            let state = container.at("state");
            if !state.text("waiting.reason").is_empty() {
                self.status = state.text("waiting.reason").to_owned();
            } else if state.has("terminated") {
                self.status = exit_status(state.at("terminated"));
                if state.int("terminated.exitCode").unwrap_or(0) != 0 {
                    error = Some(self.status.clone());
                }
            } else if container.at("ready") == true && state.has("running") {
                running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" {
            self.status = completed_status(running, is_true(pod, "Ready"), error);
        }
    }
}

/// Returns the status of the Pod itself, without its containers.
fn pod_status(pod: &Value) -> String {
    let gated = pod
        .list("status.conditions")
        .iter()
        .any(|c| c.text("type") == "PodScheduled" && c.text("reason") == "SchedulingGated");
    if gated {
        return "SchedulingGated".to_owned();
    }
    or(pod.text("status.reason"), pod.text("status.phase")).to_owned()
}

/// Returns the Pod status for an incomplete init container.
fn init_status(container: &Value, index: usize, of: usize) -> String {
    let state = container.at("state");
    if state.has("terminated") {
        return format!("Init:{}", exit_status(state.at("terminated")));
    }
    match state.text("waiting.reason") {
        "" | "PodInitializing" => format!("Init:{index}/{of}"),
        reason => format!("Init:{reason}"),
    }
}

fn exit_status(terminated: &Value) -> String {
    match (terminated.text("reason"), terminated.int("signal").unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", terminated.int("exitCode").unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// Returns the status of a Pod of which at least one container has completed.
fn completed_status(running: bool, pod_ready: bool, error: Option<String>) -> String {
    match error {
        _ if running && pod_ready => "Running".to_owned(),
        Some(error) => error,
        None if running => "NotReady".to_owned(),
        None => "Completed".to_owned(),
    }
}

fn deletion_status(pod: &Value) -> Option<&'static str> {
    if !pod.has("metadata.deletionTimestamp") {
        return None;
    }
    match (pod.text("status.reason"), pod.text("status.phase")) {
        ("NodeLost", _) => Some("Unknown"),
        (_, "Succeeded" | "Failed") => None,
        _ => Some("Terminating"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cells Ready, Status and Restarts of a Pod with two containers, an init container and a sidecar.
    fn columns(status: Value) -> [String; 3] {
        pod_columns(json!({"metadata": {"name": "a"}, "status": status}))
    }

    fn pod_columns(mut pod: Value) -> [String; 3] {
        pod["spec"] = json!({"containers": [{"name": "c"}, {"name": "d"}],
                             "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]});
        let cells = cells(&pod, Clock::at("2024-01-01T00:01:00Z".parse().unwrap()));
        [1, 2, 3].map(|i| cells[i].as_str().unwrap().to_owned())
    }

    fn running(restarts: i64) -> Value {
        json!({"ready": true, "restartCount": restarts, "state": {"running": {"startedAt": null}}})
    }

    fn exited(code: i64, reason: &str) -> Value {
        json!({"ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code, "reason": reason}}})
    }

    #[test]
    fn pod_without_container_statuses_has_its_phase_or_reason() {
        assert_eq!(columns(json!({"phase": "Pending"})), ["0/3", "Pending", "0"]);
        assert_eq!(columns(json!({"phase": "Failed", "reason": "Evicted"})), ["0/3", "Evicted", "0"]);
    }

    #[test]
    fn gated_pod_has_status_scheduling_gated() {
        let status = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]});
        assert_eq!(columns(status)[1], "SchedulingGated");
    }

    #[test]
    fn running_containers_and_restarts_are_counted() {
        let mut restarted = running(2);
        restarted["lastState"] = json!({"terminated": {"exitCode": 1, "finishedAt": "2024-01-01T00:00:00Z"}});
        let status = json!({"phase": "Running", "containerStatuses": [running(1), restarted]});
        assert_eq!(columns(status), ["2/3", "Running", "3 (60s ago)"]);
    }

    #[test]
    fn status_is_that_of_the_first_failing_container() {
        let waiting = |reason| json!({"ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}});
        let cases = [
            (json!([waiting("ImagePullBackOff"), waiting("Other")]), "ImagePullBackOff"),
            (json!([running(0), waiting("CrashLoopBackOff")]), "CrashLoopBackOff"),
            (json!([exited(0, "Completed"), exited(3, "")]), "ExitCode:3"),
            (json!([exited(0, "Completed"), running(0)]), "NotReady"),
            (json!([exited(0, "Completed"), exited(0, "Completed")]), "Completed"),
            (json!([{"state": {"terminated": {"exitCode": 137, "signal": 9}}}]), "Signal:9"),
        ];
        for (containers, text) in cases {
            assert_eq!(columns(json!({"phase": "Running", "containerStatuses": containers}))[1], text, "{containers}");
        }
    }

    #[test]
    fn ready_pod_with_a_completed_container_is_running() {
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                            "containerStatuses": [exited(0, "Completed"), running(0)]});
        assert_eq!(columns(status), ["1/3", "Running", "0"]);
    }

    #[test]
    fn incomplete_init_containers_take_precedence() {
        let named = |name: &str, mut container: Value| {
            container["name"] = name.into();
            container
        };
        let waiting = json!({"state": {"waiting": {"reason": "PodInitializing"}}, "restartCount": 1});
        let failing = json!({"state": {"waiting": {"reason": "ErrImagePull"}}, "restartCount": 0});
        let cases = [
            (json!([named("i", waiting)]), ["0/3", "Init:0/2", "1"]),
            (json!([named("i", failing)]), ["0/3", "Init:ErrImagePull", "0"]),
            (json!([named("i", exited(2, ""))]), ["0/3", "Init:ExitCode:2", "0"]),
            (json!([named("i", exited(0, "Completed")), named("s", running(0))]), ["0/3", "Init:1/2", "0"]),
        ];
        for (containers, expected) in cases {
            let status = json!({"phase": "Pending", "initContainerStatuses": containers});
            assert_eq!(columns(status), expected, "{containers}");
        }
    }

    #[test]
    fn started_sidecar_counts_as_a_container() {
        let mut sidecar = running(4);
        sidecar["name"] = "s".into();
        sidecar["started"] = true.into();
        let mut init = exited(0, "Completed");
        init["name"] = "i".into();
        init["restartCount"] = 9.into();
        let status = json!({"phase": "Running", "initContainerStatuses": [init, sidecar],
                            "containerStatuses": [running(0), running(0)]});
        assert_eq!(columns(status), ["3/3", "Running", "4"]);
    }

    #[test]
    fn deleted_pod_is_terminating_unless_completed_or_lost() {
        let deleted = |status: Value| {
            pod_columns(json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}, "status": status}))[1].clone()
        };
        assert_eq!(deleted(json!({"phase": "Running"})), "Terminating");
        assert_eq!(deleted(json!({"phase": "Succeeded"})), "Succeeded");
        assert_eq!(deleted(json!({"phase": "Running", "reason": "NodeLost"})), "Unknown");
    }

    #[test]
    fn readiness_gates_count_true_conditions() {
        let pod = json!({
            "spec": {"readinessGates": [{"conditionType": "x"}, {"conditionType": "y"}]},
            "status": {"conditions": [{"type": "x", "status": "True"}, {"type": "y", "status": "False"}]}});
        assert_eq!(readiness_gates(&pod), "1/2");
    }

    #[test]
    fn row_of_a_completed_pod_has_a_condition() {
        assert_eq!(conditions(&json!({"status": {"phase": "Failed"}})).unwrap()[0]["reason"], "Failed");
        assert_eq!(conditions(&json!({"status": {"phase": "Running"}})), None);
    }
}
