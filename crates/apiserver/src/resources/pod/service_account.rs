//! ServiceAccount admission: the account of a Pod, its token volume and image pull secrets.

use serde_json::{Value, json};
use uuid::Uuid;

use super::admission::{append, forbidden};
use crate::resources::WriteCx;
use crate::status::ApiResult;
use crate::value::Json;

/// Annotation of mirror Pods, which represent a kubelet's static Pods.
const MIRROR: &str = "kubernetes.io/config.mirror";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";

pub(super) fn admit(cx: &WriteCx<'_>, pod: &mut Value) -> ApiResult<()> {
    if pod.at("metadata.annotations").get(MIRROR).is_some() {
        return Ok(());
    }
    if pod.text("spec.serviceAccountName").is_empty() {
        pod.put("spec.serviceAccountName", "default");
        pod.put("spec.serviceAccount", "default");
    }
    let name = pod.text("spec.serviceAccountName");
    let Some(account) = cx.state.store.get("serviceaccounts", cx.namespace, name) else {
        let namespace = cx.namespace;
        let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(forbidden(cx, pod, &why));
    };
    apply_account(&mut pod["spec"], &account.value());
    Ok(())
}

/// Mounts the account's token and adds its image pull secrets.
fn apply_account(spec: &mut Value, account: &Value) {
    let automount = |object: &Value| object.at("automountServiceAccountToken").as_bool();
    if automount(spec).or(automount(account)).unwrap_or(true) {
        mount_token(spec);
    }
    if spec.list("imagePullSecrets").is_empty() {
        let names = account.list("imagePullSecrets").iter().map(|secret| json!({"name": secret.text("name")}));
        let secrets: Vec<Value> = names.collect();
        if !secrets.is_empty() {
            spec.put("imagePullSecrets", secrets);
        }
    }
}

fn mount_token(spec: &mut Value) {
    let given = spec.list("volumes").iter().map(|v| v.text("name")).find(|name| name.starts_with(TOKEN_VOLUME));
    let (volume, present) = match given {
        Some(name) => (name.to_owned(), true),
        None => (format!("{TOKEN_VOLUME}{}", random_suffix()), false),
    };
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec.list_mut(list).into_iter().flatten() {
            if container.list("volumeMounts").iter().all(|mount| mount.text("mountPath") != TOKEN_PATH) {
                let mount = json!({"name": volume, "readOnly": true, "mountPath": TOKEN_PATH});
                append(container, "volumeMounts", mount);
                mounted = true;
            }
        }
    }
    if mounted && !present {
        append(spec, "volumes", token_volume(&volume));
    }
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                // The extra seven seconds distinguish automatic tokens from requested ones.
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
        },
    })
}

/// Returns five characters from the alphabet of generated names.
fn random_suffix() -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = Uuid::new_v4();
    let pick = |byte: &u8| ALPHABET.get(usize::from(*byte) % ALPHABET.len()).map(|b| char::from(*b));
    random.as_bytes().iter().take(5).filter_map(pick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare() -> Value {
        json!({"containers": [{"name": "c", "image": "i"}], "initContainers": [{"name": "d", "image": "i"}]})
    }

    #[test]
    fn token_is_mounted_in_every_container() {
        let mut spec = bare();
        apply_account(&mut spec, &json!({"imagePullSecrets": [{"name": "p"}]}));
        let volume = spec["volumes"][0]["name"].clone();
        assert!(volume.as_str().is_some_and(|name| name.starts_with(TOKEN_VOLUME) && name.len() == 21), "{volume}");
        let mount = json!([{"name": volume, "readOnly": true, "mountPath": TOKEN_PATH}]);
        assert_eq!(spec["containers"][0]["volumeMounts"], mount);
        assert_eq!(spec["initContainers"][0]["volumeMounts"], mount);
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "p"}]));
        assert_eq!(spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
    }

    #[test]
    fn automount_of_the_pod_takes_precedence() {
        let table = [
            (None, None, true),
            (None, Some(false), false),
            (Some(true), Some(false), true),
            (Some(false), None, false),
        ];
        for (pod, account, expected) in table {
            let mut spec = bare();
            spec["automountServiceAccountToken"] = json!(pod);
            apply_account(&mut spec, &json!({"automountServiceAccountToken": account}));
            assert_eq!(spec.has("volumes"), expected, "{pod:?} {account:?}");
        }
    }

    #[test]
    fn existing_mount_at_the_token_path_is_kept() {
        let own = json!([{"name": "v", "mountPath": TOKEN_PATH}]);
        let mut spec = json!({"containers": [{"name": "c", "volumeMounts": own.clone()}]});
        mount_token(&mut spec);
        assert_eq!(spec, json!({"containers": [{"name": "c", "volumeMounts": own}]}));
    }
}
