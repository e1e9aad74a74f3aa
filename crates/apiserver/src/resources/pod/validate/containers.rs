//! The containers of a pod: ordinary ones, those that run before them, and those added for debugging.

use serde_json::Value;

use super::amounts::{self, Scope};
use super::probes::{self, PodFacts};
use super::volumes::Volumes;
use super::{PULL_POLICIES, env, mounts, security};
use crate::resources::check::{Findings, Path};
use crate::validation;
use crate::value::Json;

/// What a container's checks need to know of its pod.
pub(super) struct Pod<'a> {
    pub(super) spec: &'a Value,
    pub(super) volumes: Volumes<'a>,
}

impl Pod<'_> {
    fn facts(&self) -> PodFacts<'_> {
        PodFacts {
            grace_seconds: self.spec.int("terminationGracePeriodSeconds"),
            os: self.spec.at("os").get("name").and_then(Value::as_str),
        }
    }
}

pub(super) fn validate(pod: &Pod<'_>, at: Path<'_>, found: &mut Findings) {
    regular(pod, at.child("containers"), found);
    init(pod, at.child("initContainers"), found);
    ephemeral(pod, at.child("ephemeralContainers"), found);
}

fn regular(pod: &Pod<'_>, at: Path<'_>, found: &mut Findings) {
    let containers = pod.spec.list("containers");
    if containers.is_empty() {
        return found.required(at, "");
    }
    let mut names: Vec<&str> = Vec::new();
    for (i, container) in containers.iter().enumerate() {
        let at = at.index(i);
        common(container, pod, at, found);
        unique_name(container, &mut names, at, found);
        probes::validate(container, pod.facts(), at, found);
        restart_policy(container, at, found);
    }
    let mut taken = Vec::new();
    for (i, container) in containers.iter().enumerate() {
        host_ports(container, &mut taken, at.index(i), found);
    }
}

fn unique_name<'a>(container: &'a Value, names: &mut Vec<&'a str>, at: Path<'_>, found: &mut Findings) {
    let name = container.text("name");
    match names.contains(&name) {
        true => found.duplicate(at.child("name"), name),
        false => names.push(name),
    }
}

fn init(pod: &Pod<'_>, at: Path<'_>, found: &mut Findings) {
    const SIDECARS_ONLY: &str = "may not be set for init containers without restartPolicy=Always";
    let mut names: Vec<&str> = pod.spec.list("containers").iter().map(|c| c.text("name")).collect();
    for (i, container) in pod.spec.list("initContainers").iter().enumerate() {
        let item = at.index(i);
        common(container, pod, item, found);
        restart_policy(container, item, found);
        unique_name(container, &mut names, item, found);
        // upstream: each is looked at alone, so the error always names the first.
        host_ports(container, &mut Vec::new(), at.index(0), found);
        if container.text("restartPolicy") == "Always" {
            probes::validate(container, pod.facts(), item, found);
            continue;
        }
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if container.has(field) {
                found.forbidden(item.child(field), SIDECARS_ONLY);
            }
        }
    }
}

fn ephemeral(pod: &Pod<'_>, at: Path<'_>, found: &mut Findings) {
    const UNSUITED: &str = "cannot be set for an Ephemeral Container";
    let others: Vec<&str> =
        ["containers", "initContainers"].iter().flat_map(|list| pod.spec.list(list)).map(|c| c.text("name")).collect();
    let mut names = others.clone();
    for (i, container) in pod.spec.list("ephemeralContainers").iter().enumerate() {
        let at = at.index(i);
        common(container, pod, at, found);
        image_without_padding(container, at, found);
        unique_name(container, &mut names, at, found);
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(&target) {
            found.not_found(at.child("targetContainerName"), target);
        }
        for field in ["ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
            if container.get(field).is_some_and(|value| value != &serde_json::json!({})) {
                found.forbidden(at.child(field), UNSUITED);
            }
        }
        let mounts = at.child("volumeMounts");
        for (i, mount) in container.list("volumeMounts").iter().enumerate() {
            let at = mounts.index(i);
            for field in ["subPath", "subPathExpr"].iter().filter(|field| mount.has(field)) {
                found.forbidden(at.child(field), UNSUITED);
            }
        }
    }
}

/// What all containers have in common.
fn common(container: &Value, pod: &Pod<'_>, at: Path<'_>, found: &mut Findings) {
    match container.text("name") {
        "" => found.required(at.child("name"), ""),
        name => found.form(at.child("name"), name, validation::dns_label(name)),
    }
    if container.text("image").is_empty() {
        found.required(at.child("image"), "");
    }
    let message = container.text("terminationMessagePolicy");
    found.required_one_of(at.child("terminationMessagePolicy"), message, &["File", "FallbackToLogsOnError"]);
    ports(container.list("ports"), at.child("ports"), found);
    env::variables(container.list("env"), at.child("env"), found);
    env::sources(container.list("envFrom"), at.child("envFrom"), found);
    mounts::validate(container, &pod.volumes, at, found);
    found.required_one_of(at.child("imagePullPolicy"), container.text("imagePullPolicy"), PULL_POLICIES);
    amounts::validate(container.at("resources"), Scope::Container, at.child("resources"), found);
    resize_policies(container, pod.spec.text("restartPolicy"), at.child("resizePolicy"), found);
    let host_users = pod.spec.at("hostUsers") != false;
    security::of_container(container.at("securityContext"), host_users, at.child("securityContext"), found);
}

/// upstream: only pods refuse a padded image; templates may carry one.
pub(super) fn image_without_padding(container: &Value, at: Path<'_>, found: &mut Findings) {
    let image = container.text("image");
    if image.trim() != image {
        found.invalid(at.child("image"), image, "must not have leading or trailing whitespace");
    }
}

fn ports(ports: &[Value], at: Path<'_>, found: &mut Findings) {
    let mut names: Vec<&str> = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let at = at.index(i);
        let name = port.text("name");
        let complaints = if name.is_empty() { Vec::new() } else { validation::is_valid_port_name(name) };
        if complaints.is_empty() && !name.is_empty() {
            match names.contains(&name) {
                true => found.duplicate(at.child("name"), name),
                false => names.push(name),
            }
        }
        found.form(at.child("name"), name, complaints);
        match port.int("containerPort").unwrap_or(0) {
            0 => found.required(at.child("containerPort"), ""),
            number => found.in_range(at.child("containerPort"), number, 1, 65535),
        }
        if let Some(number) = port.int("hostPort").filter(|number| *number != 0) {
            found.in_range(at.child("hostPort"), number, 1, 65535);
        }
        found.required_one_of(at.child("protocol"), port.text("protocol"), validation::PROTOCOLS);
    }
}

/// Two containers cannot have the same port of the node.
fn host_ports(container: &Value, taken: &mut Vec<String>, at: Path<'_>, found: &mut Findings) {
    let ports = at.child("ports");
    for (i, port) in container.list("ports").iter().enumerate() {
        let Some(number) = port.int("hostPort").filter(|number| *number != 0) else { continue };
        let claim = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
        match taken.contains(&claim) {
            true => found.duplicate(ports.index(i).child("hostPort"), claim),
            false => taken.push(claim),
        }
    }
}

fn resize_policies(container: &Value, pod_policy: &str, at: Path<'_>, found: &mut Findings) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, policy) in container.list("resizePolicy").iter().enumerate() {
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if seen.contains(&resource) {
            found.duplicate(at.index(i), resource);
        }
        seen.push(resource);
        found.required_one_of(at, resource, &["cpu", "memory"]);
        found.required_one_of(at, restart, &["NotRequired", "RestartContainer"]);
        if pod_policy == "Never" && restart != "NotRequired" {
            found.invalid(at, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

/// A container's own restart policy, and the rules that refine it.
fn restart_policy(container: &Value, at: Path<'_>, found: &mut Findings) {
    let rules = container.list("restartPolicyRules");
    match container.get("restartPolicy").and_then(Value::as_str) {
        Some(policy) => found.one_of(at.child("restartPolicy"), policy, &["Always", "Never", "OnFailure"]),
        None if rules.is_empty() => return,
        None => found.required(at.child("restartPolicy"), "must specify restartPolicy when restart rules are used"),
    }
    let rules_at = at.child("restartPolicyRules");
    if rules.len() > 20 {
        found.push(crate::field_error::FieldError::too_many(rules_at, rules.len(), 20));
    }
    for (i, rule) in rules.iter().enumerate() {
        let at = rules_at.index(i);
        found.one_of(at.child("action"), rule.text("action"), &["Restart", "RestartAllContainers"]);
        match rule.has("exitCodes") {
            true => found.one_of(at.child("exitCodes.operator"), rule.text("exitCodes.operator"), &["In", "NotIn"]),
            false => found.required(at.child("exitCodes"), "must be specified"),
        }
    }
}
