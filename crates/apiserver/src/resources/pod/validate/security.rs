//! Security contexts, of pods and of containers.

use serde_json::Value;

use super::paths;
use crate::field_error::{FieldError, go_struct};
use crate::resources::check::{Findings, Path};
use crate::validation;
use crate::value::Json;

const MAX_ID: i64 = i32::MAX as i64;
const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

fn ids(context: &Value, fields: &[&str], at: Path<'_>, found: &mut Findings) {
    for field in fields {
        if let Some(id) = context.int(field) {
            found.in_range(at.child(field), id, 0, MAX_ID);
        }
    }
}

/// Checks the security context of a pod.
pub(super) fn of_pod(spec: &Value, at: Path<'_>, found: &mut Findings) {
    let context = spec.at("securityContext");
    let at = at.child("securityContext");
    ids(context, &["fsGroup", "runAsUser", "runAsGroup"], at, found);
    let groups = at.child("supplementalGroups");
    for (i, group) in context.list("supplementalGroups").iter().enumerate() {
        found.in_range(groups.index(i), group.as_i64().unwrap_or(0), 0, MAX_ID);
    }
    sysctls(context, spec, at.child("sysctls"), found);
    optional(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], at, found);
    seccomp(context.at("seccompProfile"), at.child("seccompProfile"), found);
    windows_options(context.at("windowsOptions"), at.child("windowsOptions"), found);
    app_armor(context.at("appArmorProfile"), at.child("appArmorProfile"), found);
    optional(context, "supplementalGroupsPolicy", &["Merge", "Strict"], at, found);
    optional(context, "seLinuxChangePolicy", &["MountOption", "Recursive"], at, found);
}

fn optional(context: &Value, field: &str, supported: &[&str], at: Path<'_>, found: &mut Findings) {
    if let Some(value) = context.get(field).and_then(Value::as_str) {
        found.one_of(at.child(field), value, supported);
    }
}

fn sysctls(context: &Value, spec: &Value, at: Path<'_>, found: &mut Findings) {
    const FORM: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen: Vec<&str> = Vec::new();
    for (i, name) in context.list("sysctls").iter().map(|s| s.text("name")).enumerate() {
        let item = at.index(i);
        if name.is_empty() {
            found.required(item.child("name"), "");
        } else if !is_sysctl(name) {
            let detail = format!("must have at most 253 characters and match regex {FORM}");
            found.invalid(item.child("name"), name, detail);
        } else if seen.contains(&name) {
            found.duplicate(item.child("name"), name);
        }
        if let Some(namespace) = shared_with_host(name, spec) {
            let detail = format!("may not be specified when '{namespace}' is true");
            found.invalid(item.child("name"), name, detail);
        }
        seen.push(name);
    }
}

fn is_sysctl(name: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let segment = |s: &str| {
        let bytes = s.as_bytes();
        bytes.first().copied().is_some_and(word)
            && bytes.last().copied().is_some_and(word)
            && bytes.iter().all(|&b| word(b) || matches!(b, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

/// The host namespace a pod shares that this setting would change.
fn shared_with_host(sysctl: &str, spec: &Value) -> Option<&'static str> {
    let dotted = sysctl.replace('/', ".");
    let ipc =
        ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| dotted.starts_with(p)) || dotted == "kernel.sem";
    match (dotted.starts_with("net."), ipc) {
        (true, _) if spec.at("hostNetwork") == true => Some("hostNetwork"),
        (_, true) if spec.at("hostIPC") == true => Some("hostIPC"),
        _ => None,
    }
}

/// Checks the security context of a container.
pub(super) fn of_container(context: &Value, host_users: bool, at: Path<'_>, found: &mut Findings) {
    ids(context, &["runAsUser", "runAsGroup"], at, found);
    if let Some(mount) = context.get("procMount").and_then(Value::as_str) {
        found.one_of(at.child("procMount"), mount, &["Default", "Unmasked"]);
        if host_users && mount == "Unmasked" {
            found.invalid(at.child("procMount"), mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(context.at("seccompProfile"), at.child("seccompProfile"), found);
    if context.at("allowPrivilegeEscalation") == false {
        escalation(context, at, found);
    }
    windows_options(context.at("windowsOptions"), at.child("windowsOptions"), found);
    app_armor(context.at("appArmorProfile"), at.child("appArmorProfile"), found);
}

fn escalation(context: &Value, at: Path<'_>, found: &mut Findings) {
    let mut refuse = |detail: &str| found.push(FieldError::invalid_as(at, shown(context), detail));
    if context.at("privileged") == true {
        refuse("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
    }
    if context.texts("capabilities.add").contains(&"CAP_SYS_ADMIN") {
        refuse("cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN");
    }
}

/// A container's security context as Go shows it.
fn shown(context: &Value) -> String {
    const FIELDS: [(&str, &str); 12] = [
        ("Capabilities", "capabilities"),
        ("Privileged", "privileged"),
        ("SELinuxOptions", "seLinuxOptions"),
        ("WindowsOptions", "windowsOptions"),
        ("RunAsUser", "runAsUser"),
        ("RunAsGroup", "runAsGroup"),
        ("RunAsNonRoot", "runAsNonRoot"),
        ("ReadOnlyRootFilesystem", "readOnlyRootFilesystem"),
        ("AllowPrivilegeEscalation", "allowPrivilegeEscalation"),
        ("ProcMount", "procMount"),
        ("SeccompProfile", "seccompProfile"),
        ("AppArmorProfile", "appArmorProfile"),
    ];
    let capabilities = context.get("capabilities").map(|c| {
        // Both fields sort the way Go declares them.
        serde_json::json!({"Add": c.at("add"), "Drop": c.at("drop")})
    });
    let fields: Vec<(&str, Value)> = FIELDS
        .iter()
        .map(|(go, json)| match (*json, &capabilities) {
            ("capabilities", Some(capabilities)) => (*go, capabilities.clone()),
            _ => (*go, context.at(json).clone()),
        })
        .collect();
    go_struct(&fields)
}

fn seccomp(profile: &Value, at: Path<'_>, found: &mut Findings) {
    if profile.is_null() {
        return;
    }
    let (kind, file) = (profile.text("type"), profile.get("localhostProfile").and_then(Value::as_str));
    match kind {
        "" => found.required(at.child("type"), "type is required when seccompProfile is set"),
        _ => found.one_of(at.child("type"), kind, PROFILES),
    }
    let file_at = at.child("localhostProfile");
    match (kind, file) {
        ("Localhost", None) => found.required(file_at, "must be set when seccomp type is Localhost"),
        ("Localhost", Some(file)) => paths::descending(file, file_at, found),
        (_, Some(file)) => {
            let shown = go_struct(&[("Type", kind.into()), ("LocalhostProfile", file.into())]);
            found.push(FieldError::invalid_as(file_at, shown, "can only be set when seccomp type is Localhost"));
        }
        (_, None) => {}
    }
}

fn windows_options(options: &Value, at: Path<'_>, found: &mut Findings) {
    if let Some(name) = options.get("gmsaCredentialSpecName").and_then(Value::as_str) {
        found.form(at.child("gmsaCredentialSpecName"), name, validation::dns_subdomain(name));
    }
    for field in ["gmsaCredentialSpec", "runAsUserName"] {
        if options.get(field).and_then(Value::as_str) == Some("") {
            found.invalid(at.child(field), "", format!("{field} cannot be an empty string"));
        }
    }
}

fn app_armor(profile: &Value, at: Path<'_>, found: &mut Findings) {
    if profile.is_null() {
        return;
    }
    let file_at = at.child("localhostProfile");
    let file = profile.get("localhostProfile").and_then(Value::as_str);
    match (profile.text("type"), file) {
        ("", _) => found.required(at.child("type"), "type is required when appArmorProfile is set"),
        ("Localhost", Some(file)) if file.trim() != file => {
            found.invalid(file_at, file, "must not be padded with whitespace");
        }
        ("Localhost", None | Some("")) => found.required(file_at, "must be set when AppArmor type is Localhost"),
        ("Localhost", Some(file)) if file.len() > 4095 => found.push(FieldError::too_long(file_at, 4095)),
        ("RuntimeDefault" | "Unconfined", Some(file)) => {
            found.invalid(file_at, file, "can only be set when AppArmor type is Localhost");
        }
        (kind, _) => found.one_of(at.child("type"), kind, PROFILES),
    }
}

/// Checks that a windows pod asks for nothing only Linux has, and the other way round.
pub(super) fn of_os(spec: &Value, at: Path<'_>, found: &mut Findings) {
    const POD: [&str; 11] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ];
    const CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let windows = spec.text("os.name") == "windows";
    let detail =
        if windows { "cannot be set for a windows pod" } else { "windows options cannot be set for a linux pod" };
    let (of_pod, of_container): (&[&str], &[&str]) =
        if windows { (&POD, &CONTAINER) } else { (&["windowsOptions"], &["windowsOptions"]) };
    let mut unset = |context: &Value, fields: &[&str], at: Path<'_>| {
        for field in fields.iter().filter(|field| context.has(field)) {
            found.forbidden(at.child(field), detail);
        }
    };
    unset(spec.at("securityContext"), of_pod, at.child("securityContext"));
    if windows {
        unset(spec, &["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"], at);
    }
    super::each_container(spec, at, |container, at| {
        unset(container.at("securityContext"), of_container, at.child("securityContext"));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn complaints(check: impl FnOnce(&mut Findings)) -> Vec<String> {
        let mut found = Findings::default();
        check(&mut found);
        found.into_errors().iter().map(ToString::to_string).collect()
    }

    fn container(context: Value) -> Vec<String> {
        complaints(|found| of_container(&context, true, Path::new("sc"), found))
    }

    #[test]
    fn ids_are_positive_and_small() {
        assert_eq!(
            container(json!({"runAsUser": -1})),
            ["sc.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"]
        );
        assert_eq!(container(json!({"runAsUser": 0, "runAsGroup": 5})), Vec::<String>::new());
    }

    #[test]
    fn a_privileged_container_cannot_forbid_escalation() {
        assert_eq!(
            container(json!({"allowPrivilegeEscalation": false, "privileged": true})),
            ["sc: Invalid value: {\"Capabilities\":null,\"Privileged\":true,\"SELinuxOptions\":null,\
              \"WindowsOptions\":null,\"RunAsUser\":null,\"RunAsGroup\":null,\"RunAsNonRoot\":null,\
              \"ReadOnlyRootFilesystem\":null,\"AllowPrivilegeEscalation\":false,\"ProcMount\":null,\
              \"SeccompProfile\":null,\"AppArmorProfile\":null}: cannot set `allowPrivilegeEscalation` to false and \
              `privileged` to true"]
        );
    }

    #[test]
    fn only_localhost_profiles_name_a_file() {
        let table = [
            (json!({"type": "RuntimeDefault"}), 0),
            (json!({"type": "Localhost", "localhostProfile": "a/b"}), 0),
            (json!({"type": "Localhost"}), 1),
            (json!({"type": "Unconfined", "localhostProfile": "a"}), 1),
            (json!({"type": ""}), 1),
            (json!({"type": "Odd"}), 1),
        ];
        for (profile, expected) in table {
            assert_eq!(container(json!({"seccompProfile": profile})).len(), expected, "seccomp {profile}");
            assert_eq!(container(json!({"appArmorProfile": profile})).len(), expected, "AppArmor {profile}");
        }
    }

    #[test]
    fn sysctls_of_the_host_are_out_of_reach() {
        let spec = |names: &[&str]| {
            let list: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
            json!({"hostNetwork": true, "securityContext": {"sysctls": list}})
        };
        let check = |names: &[&str]| complaints(|found| of_pod(&spec(names), Path::new("spec"), found)).len();
        assert_eq!(check(&["kernel.shm_rmid_forced"]), 0);
        assert_eq!(check(&["net.ipv4.tcp_syncookies"]), 1);
        assert_eq!(check(&["kernel.a", "kernel.a"]), 1);
        assert_eq!(check(&["Kernel..a"]), 1);
    }

    #[test]
    fn each_system_keeps_to_its_own_options() {
        let spec = |os: &str| {
            json!({
                "os": {"name": os}, "securityContext": {"runAsUser": 1, "windowsOptions": {}},
                "containers": [{"name": "c", "securityContext": {"windowsOptions": {}, "privileged": true}}],
            })
        };
        let check = |os: &str| complaints(|found| of_os(&spec(os), Path::new("spec"), found));
        assert_eq!(
            check("windows"),
            [
                "spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
                "spec.containers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod"
            ]
        );
        assert_eq!(check("linux").len(), 2);
    }
}
