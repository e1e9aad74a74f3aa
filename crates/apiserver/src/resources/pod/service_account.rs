//! The service account of a pod and its token volume.

use serde_json::{Value, json};
use uuid::Uuid;

use super::admission::{append, refused};
use crate::resources::WriteCx;
use crate::status::ApiResult;
use crate::value::Json;

/// Marks the API's picture of a pod that a kubelet runs from a file.
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
        return Err(refused(cx, pod, &why));
    };
    equip(&mut pod["spec"], &account.value());
    Ok(())
}

/// Gives the pod what its account brings along: a token, and secrets for pulling images.
fn equip(spec: &mut Value, account: &Value) {
    let wanted = |object: &Value| object.at("automountServiceAccountToken").as_bool();
    if wanted(spec).or(wanted(account)).unwrap_or(true) {
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
                // The odd seven seconds tell automatic tokens from requested ones.
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ],
        },
    })
}

/// Five characters from the alphabet of generated names.
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
    fn every_container_gets_the_token() {
        let mut spec = bare();
        equip(&mut spec, &json!({"imagePullSecrets": [{"name": "p"}]}));
        let volume = spec["volumes"][0]["name"].clone();
        assert!(volume.as_str().is_some_and(|name| name.starts_with(TOKEN_VOLUME) && name.len() == 21), "{volume}");
        let mount = json!([{"name": volume, "readOnly": true, "mountPath": TOKEN_PATH}]);
        assert_eq!(spec["containers"][0]["volumeMounts"], mount);
        assert_eq!(spec["initContainers"][0]["volumeMounts"], mount);
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "p"}]));
        assert_eq!(spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
    }

    #[test]
    fn the_pod_decides_before_the_account() {
        let table = [
            (None, None, true),
            (None, Some(false), false),
            (Some(true), Some(false), true),
            (Some(false), None, false),
        ];
        for (pod, account, expected) in table {
            let mut spec = bare();
            spec["automountServiceAccountToken"] = json!(pod);
            equip(&mut spec, &json!({"automountServiceAccountToken": account}));
            assert_eq!(spec.has("volumes"), expected, "{pod:?} {account:?}");
        }
    }

    #[test]
    fn a_container_with_something_at_that_path_keeps_it() {
        let own = json!([{"name": "v", "mountPath": TOKEN_PATH}]);
        let mut spec = json!({"containers": [{"name": "c", "volumeMounts": own.clone()}]});
        mount_token(&mut spec);
        assert_eq!(spec, json!({"containers": [{"name": "c", "volumeMounts": own}]}));
    }
}
