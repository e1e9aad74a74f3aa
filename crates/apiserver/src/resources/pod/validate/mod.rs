//! Whether the spec of a pod, or of a pod template, makes sense.
//!
//! Errors come in the real server's order. What is not checked: the long-gone volume drivers beyond their required
//! fields, and claims for devices (`resourceClaims`) beyond their names.

mod amounts;
mod annotations;
mod containers;
mod env;
mod mounts;
mod paths;
mod probes;
mod projections;
pub(super) mod scheduling;
mod security;
mod volumes;

use serde_json::Value;

use self::amounts::Scope;
use super::defaults::CONTAINER_LISTS;
use crate::field_error::FieldError;
use crate::resources::check::{Findings, Path};
use crate::validation;
use crate::value::Json;

pub(super) use annotations::unchanged as annotations_unchanged;

const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];

/// What a spec belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner<'a> {
    /// A pod, and its name.
    Pod(&'a str),
    Template,
}

/// Checks a pod but for its metadata, on create and on update.
pub(super) fn pod(pod: &Value, found: &mut Findings) {
    let at = Path::new("spec");
    let metadata = Path::new("metadata");
    annotations::validate(pod, metadata.child("annotations"), found);
    spec(pod.at("spec"), Owner::Pod(pod.text("metadata.name")), at, found);
    let spec = pod.at("spec");
    if spec.text("serviceAccountName").is_empty() {
        no_tokens(spec, at, found);
    }
    if let Some(seconds) = spec.int("terminationGracePeriodSeconds") {
        found.not_negative(at.child("terminationGracePeriodSeconds"), seconds);
    }
    for list in ["containers", "initContainers"] {
        let list_at = at.child(list);
        for (i, container) in spec.list(list).iter().enumerate() {
            containers::image_without_padding(container, list_at.index(i), found);
        }
    }
}

/// Checks what only a new pod must be.
pub(super) fn new_pod(pod: &Value, found: &mut Findings) {
    let (spec, at) = (pod.at("spec"), Path::new("spec"));
    if !spec.list("ephemeralContainers").is_empty() {
        found.forbidden(at.child("ephemeralContainers"), "cannot be set on create");
    }
    if !spec.text("nodeName").is_empty() && !spec.list("schedulingGates").is_empty() {
        found.forbidden(at.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

/// Checks the template of pods.
pub(crate) fn template(template: &Value, at: Path<'_>, found: &mut Findings) {
    // upstream: both are reported as if they stood beside `metadata`.
    found.extend(validation::labels(&at.child("labels").to_string(), template.map("metadata.labels")));
    let annotations = at.child("annotations");
    found.extend(validation::annotations(&annotations.to_string(), template.map("metadata.annotations")));
    annotations::validate(template, annotations, found);
    spec(template.at("spec"), Owner::Template, at.child("spec"), found);
    if !template.list("spec.ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        found.forbidden(at.child("spec.ephemeralContainers"), detail);
    }
}

/// Visits all containers of a spec, those that run first first.
fn each_container(spec: &Value, at: Path<'_>, mut visit: impl FnMut(&Value, Path<'_>)) {
    for list in CONTAINER_LISTS {
        let list_at = at.child(list);
        for (i, container) in spec.list(list).iter().enumerate() {
            visit(container, list_at.index(i));
        }
    }
}

fn no_tokens(spec: &Value, at: Path<'_>, found: &mut Findings) {
    let volumes = at.child("volumes");
    for (i, volume) in spec.list("volumes").iter().enumerate() {
        let volume_at = volumes.index(i);
        let sources = volume_at.child("projected.sources");
        for (i, source) in volume.list("projected.sources").iter().enumerate() {
            if source.has("serviceAccountToken") {
                let detail = "must not be specified when serviceAccountName is not set";
                found.forbidden(sources.index(i).child("serviceAccountToken"), detail);
            }
        }
    }
}

fn spec(spec: &Value, owner: Owner<'_>, at: Path<'_>, found: &mut Findings) {
    let pod_name = match owner {
        Owner::Pod(name) => Some(name),
        Owner::Template => None,
    };
    let volumes = volumes::validate(spec.list("volumes"), pod_name, at.child("volumes"), found);
    resource_claims(spec.list("resourceClaims"), at.child("resourceClaims"), found);
    containers::validate(&containers::Pod { spec, volumes }, at, found);
    if spec.has("resources") {
        amounts::validate(spec.at("resources"), Scope::Pod, at.child("resources"), found);
    }
    host_network(spec, owner, at, found);
    let restart = spec.text("restartPolicy");
    found.required_one_of(at.child("restartPolicy"), restart, &["Always", "OnFailure", "Never"]);
    const DNS: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    found.required_one_of(at.child("dnsPolicy"), spec.text("dnsPolicy"), DNS);
    if let Some(selector) = spec.map("nodeSelector") {
        found.extend(validation::labels(&at.child("nodeSelector").to_string(), Some(selector)));
    }
    security::of_pod(spec, at, found);
    if spec.at("shareProcessNamespace") == true && spec.at("hostPID") == true {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        found.invalid(at.child("shareProcessNamespace"), true, detail);
    }
    scheduling::affinity(spec.at("affinity"), at.child("affinity"), found);
    dns_config(spec, at.child("dnsConfig"), found);
    gates(spec, at, found);
    scheduling::spread_constraints(
        spec.list("topologySpreadConstraints"),
        at.child("topologySpreadConstraints"),
        found,
    );
    host_users(spec, at, found);
    names(spec, at, found);
    scheduling::tolerations(spec.list("tolerations"), at.child("tolerations"), found);
    host_aliases(spec.list("hostAliases"), at.child("hostAliases"), found);
    classes(spec, at, found);
    operating_system(spec, at, found);
    file_key_volumes(spec, at, found);
}

fn resource_claims(claims: &[Value], at: Path<'_>, found: &mut Findings) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, claim) in claims.iter().enumerate() {
        let name_at = at.index(i);
        let name_at = name_at.child("name");
        match claim.text("name") {
            "" => found.required(name_at, ""),
            name if seen.contains(&name) => found.duplicate(name_at, name),
            name => {
                found.form(name_at, name, validation::dns_label(name));
                seen.push(name);
            }
        }
    }
}

/// On the host's network, a port of the container is a port of the host.
fn host_network(spec: &Value, owner: Owner<'_>, at: Path<'_>, found: &mut Findings) {
    if spec.at("hostNetwork") != true {
        return;
    }
    let containers = at.child("containers");
    for (i, container) in spec.list("containers").iter().enumerate() {
        let container_at = containers.index(i);
        let ports = container_at.child("ports");
        for (i, port) in container.list("ports").iter().enumerate() {
            let (host, own) = (port.int("hostPort").unwrap_or(0), port.int("containerPort").unwrap_or(0));
            if host != own && (host != 0 || owner != Owner::Template) {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                found.invalid(ports.index(i).child("hostPort"), host, detail);
            }
        }
    }
}

fn dns_config(spec: &Value, at: Path<'_>, found: &mut Findings) {
    let config = spec.at("dnsConfig");
    let servers = config.texts("nameservers");
    let servers_at = at.child("nameservers");
    if spec.text("dnsPolicy") == "None" {
        if config.is_null() {
            return found.required(at, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return found.required(servers_at, detail);
        }
    }
    if servers.len() > 3 {
        found.invalid(servers_at, config.at("nameservers").clone(), "must not have more than 3 nameservers");
    }
    for (i, server) in servers.iter().enumerate() {
        found.extend(validation::is_valid_ip_legacy(&servers_at.index(i).to_string(), server, &[]));
    }
    dns_searches(config, at.child("searches"), found);
    let options = at.child("options");
    for (i, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            found.required(options.index(i), "must not be empty");
        }
    }
}

fn dns_searches(config: &Value, at: Path<'_>, found: &mut Findings) {
    let searches = config.texts("searches");
    let shown = || config.at("searches").clone();
    if searches.len() > 32 {
        found.invalid(at, shown(), "must not have more than 32 search paths");
    }
    if searches.join(" ").len() > 2048 {
        let detail = "must not have more than 2048 characters (including spaces) in the search list";
        found.invalid(at, shown(), detail);
    }
    for (i, search) in searches.iter().enumerate().filter(|(_, search)| **search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        found.form(at.index(i), search, validation::dns_subdomain_with_underscore(search));
    }
}

/// What a pod waits for before it is ready, and before it is scheduled.
fn gates(spec: &Value, at: Path<'_>, found: &mut Findings) {
    let readiness = at.child("readinessGates");
    for (i, gate) in spec.list("readinessGates").iter().enumerate() {
        let condition = gate.text("conditionType");
        let item = readiness.index(i);
        found.form(item.child("conditionType"), condition, validation::qualified_name(condition));
    }
    let scheduling = at.child("schedulingGates");
    let mut seen: Vec<&str> = Vec::new();
    for (i, gate) in spec.list("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        found.form(scheduling.index(i), name, validation::qualified_name(name));
        if seen.contains(&name) {
            found.duplicate(scheduling.index(i), name);
        }
        seen.push(name);
    }
}

/// A pod with users of its own shares no other namespace with the host.
fn host_users(spec: &Value, at: Path<'_>, found: &mut Findings) {
    const DETAIL: &str = "when `hostUsers` is false";
    if spec.at("hostUsers") != false {
        return;
    }
    for (field, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.at(field) == true {
            found.forbidden(at.child(shown), DETAIL);
        }
    }
    each_container(spec, at, |container, at| {
        if container.has("volumeDevices") {
            found.forbidden(at.child("volumeDevices"), DETAIL);
        }
    });
}

fn names(spec: &Value, at: Path<'_>, found: &mut Findings) {
    if let Some(name) = spec.get("hostnameOverride").and_then(Value::as_str) {
        hostname_override(name, spec, at.child("hostnameOverride"), found);
    }
    for field in ["serviceAccountName", "nodeName"] {
        optional_form(spec, field, validation::dns_subdomain, at, found);
    }
    if let Some(seconds) = spec.int("activeDeadlineSeconds") {
        found.in_range(at.child("activeDeadlineSeconds"), seconds, 1, i64::from(i32::MAX));
    }
    for field in ["hostname", "subdomain"] {
        optional_form(spec, field, validation::dns_label, at, found);
    }
}

fn optional_form(spec: &Value, field: &str, form: fn(&str) -> Vec<String>, at: Path<'_>, found: &mut Findings) {
    let text = spec.text(field);
    if !text.is_empty() {
        found.form(at.child(field), text, form(text));
    }
}

fn hostname_override(name: &str, spec: &Value, at: Path<'_>, found: &mut Findings) {
    for field in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.at(field) == true {
            found.forbidden(at, format!("may not be specified when {field} is true"));
        }
    }
    if name.len() > 64 {
        found.push(FieldError::too_long(at, 64));
    }
    found.form(at, name, validation::dns_subdomain(name));
}

fn host_aliases(aliases: &[Value], at: Path<'_>, found: &mut Findings) {
    for (i, alias) in aliases.iter().enumerate() {
        let at = at.index(i);
        found.extend(validation::is_valid_ip_legacy(&at.child("ip").to_string(), alias.text("ip"), &[]));
        let hostnames = at.child("hostnames");
        for (i, hostname) in alias.texts("hostnames").iter().enumerate() {
            found.form(hostnames.index(i), hostname, validation::dns_subdomain(hostname));
        }
    }
}

/// Priority and runtime.
fn classes(spec: &Value, at: Path<'_>, found: &mut Findings) {
    optional_form(spec, "priorityClassName", validation::dns_subdomain, at, found);
    if let Some(name) = spec.get("runtimeClassName").and_then(Value::as_str) {
        found.form(at.child("runtimeClassName"), name, validation::dns_subdomain(name));
    }
    if let Some(policy) = spec.get("preemptionPolicy").and_then(Value::as_str) {
        found.required_one_of(at.child("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
    amounts::validate_limits(spec.at("overhead"), at.child("overhead"), found);
}

fn operating_system(spec: &Value, at: Path<'_>, found: &mut Findings) {
    if !spec.has("os") {
        return;
    }
    match spec.text("os.name") {
        "" => found.required(at.child("os.name"), ""),
        "linux" | "windows" => security::of_os(spec, at, found),
        other => found.one_of(at.child("os"), other, &["linux", "windows"]),
    }
}

/// A variable can come from a file only in a volume that starts out empty.
fn file_key_volumes(spec: &Value, at: Path<'_>, found: &mut Findings) {
    each_container(spec, at, |container, at| {
        let variables = at.child("env");
        for (i, variable) in container.list("env").iter().enumerate() {
            if !variable.has("valueFrom.fileKeyRef") {
                continue;
            }
            let item = variables.index(i);
            let name_at = item.child("valueFrom.fileKeyRef.volumeName");
            let name = variable.text("valueFrom.fileKeyRef.volumeName");
            match spec.list("volumes").iter().find(|volume| volume.text("name") == name) {
                None => found.not_found(name_at, name),
                Some(volume) if !volume.has("emptyDir") => {
                    found.invalid(name_at, name, "referenced volume must be of type emptyDir");
                }
                Some(_) => {}
            }
        }
    });
}
