//! The service account of a pod: which one it is, what may be mounted with it, and its token.

use serde_json::{Value, json};
use uuid::Uuid;

use super::admission::{append, containers, refused};
use crate::resources::WriteCx;
use crate::status::ApiResult;
use crate::value::Json;

/// Marks the API's picture of a pod that a kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME: &str = "kube-api-access-";

pub(super) fn admit(cx: &WriteCx<'_>, pod: &mut Value) -> ApiResult<()> {
    if pod.at("metadata.annotations").get(MIRROR).is_some() {
        return mirror_rules(&pod["spec"]).map_err(|why| refused(cx, pod, why));
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
    let account = account.value();
    equip(&mut pod["spec"], &account);
    mountable_secrets(&pod["spec"], &account).map_err(|why| refused(cx, pod, &why))
}

/// A mirror pod was started without asking the server, so it can have nothing that the server would have to give.
fn mirror_rules(spec: &Value) -> Result<(), &'static str> {
    let token = |volume: &Value| {
        volume.list("projected.sources").iter().any(|source| source.get("serviceAccountToken").is_some())
    };
    if !spec.text("serviceAccountName").is_empty() {
        Err("a mirror pod may not reference service accounts")
    } else if references_secrets(spec) {
        Err("a mirror pod may not reference secrets")
    } else if spec.list("volumes").iter().any(token) {
        Err("a mirror pod may not use ServiceAccountToken volume projections")
    } else {
        Ok(())
    }
}

fn references_secrets(spec: &Value) -> bool {
    const SOURCES: [&str; 10] = [
        "secret",
        "azureFile.secretName",
        "cephfs.secretRef",
        "cinder.secretRef",
        "csi.nodePublishSecretRef",
        "flexVolume.secretRef",
        "iscsi.secretRef",
        "rbd.secretRef",
        "scaleIO.secretRef",
        "storageos.secretRef",
    ];
    let by_volume = |volume: &Value| {
        SOURCES.iter().any(|source| volume.has(source))
            || volume.list("projected.sources").iter().any(|source| source.get("secret").is_some())
    };
    !spec.list("imagePullSecrets").is_empty()
        || containers(spec).any(|(_, container)| secrets_in_environment(container).next().is_some())
        || spec.list("volumes").iter().any(by_volume)
}

/// The secrets a container's environment comes from, with the variable if it is a single one.
fn secrets_in_environment(container: &Value) -> impl Iterator<Item = (Option<&str>, &str)> {
    let single = container.list("env").iter().filter_map(|variable| {
        let secret = variable.at("valueFrom.secretKeyRef");
        secret.is_object().then(|| (Some(variable.text("name")), secret.text("name")))
    });
    let whole = container.list("envFrom").iter().filter_map(|source| {
        let secret = source.at("secretRef");
        secret.is_object().then(|| (None, secret.text("name")))
    });
    single.chain(whole)
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

/// An account may say that its pods use only the secrets it lists.
fn mountable_secrets(spec: &Value, account: &Value) -> Result<(), String> {
    let annotation = account.at("metadata.annotations").get(ENFORCE_MOUNTABLE).and_then(Value::as_str);
    if !matches!(annotation, Some("1" | "t" | "T" | "true" | "TRUE" | "True")) {
        return Ok(());
    }
    let account_name = account.text("metadata.name");
    let listed = |field: &str, name: &str| account.list(field).iter().any(|secret| secret.text("name") == name);
    let refusal = |what: String| {
        format!("{what} is not allowed because service account {account_name} does not reference that secret")
    };
    for volume in spec.list("volumes").iter().filter(|volume| volume.has("secret")) {
        let secret = volume.text("secret.secretName");
        if !listed("secrets", secret) {
            return Err(refusal(format!("volume with secret.secretName=\"{secret}\"")));
        }
    }
    for (list, container) in containers(spec) {
        for (variable, secret) in secrets_in_environment(container) {
            if !listed("secrets", secret) {
                return Err(refusal(environment_use(list, container.text("name"), variable, secret)));
            }
        }
    }
    for (i, secret) in spec.list("imagePullSecrets").iter().map(|s| s.text("name")).enumerate() {
        if !listed("imagePullSecrets", secret) {
            return Err(format!(
                "imagePullSecrets[{i}].name=\"{secret}\" is not allowed because service account {account_name} \
                 does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn environment_use(list: &str, container: &str, variable: Option<&str>, secret: &str) -> String {
    let sort = match list {
        "initContainers" => "init container",
        "ephemeralContainers" => "ephemeral container",
        _ => "container",
    };
    let how = match variable {
        Some(name) => format!("envVar {name}"),
        None => "envFrom".to_owned(),
    };
    format!("{sort} {container} with {how} referencing secret.secretName=\"{secret}\"")
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

    #[test]
    fn mirror_pods_bring_everything_themselves() {
        assert_eq!(mirror_rules(&bare()), Ok(()));
        for spec in [
            json!({"serviceAccountName": "x"}),
            json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}),
            json!({"containers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}),
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}),
        ] {
            assert!(mirror_rules(&spec).is_err(), "{spec}");
        }
    }

    #[test]
    fn an_enforcing_account_limits_the_secrets() {
        let account = json!({
            "metadata": {"name": "bot", "annotations": {ENFORCE_MOUNTABLE: "true"}},
            "secrets": [{"name": "mine"}],
        });
        let spec = |secret: &str| json!({"volumes": [{"name": "v", "secret": {"secretName": secret}}]});
        assert_eq!(mountable_secrets(&spec("mine"), &account), Ok(()));
        assert_eq!(
            mountable_secrets(&spec("other"), &account),
            Err("volume with secret.secretName=\"other\" is not allowed because service account bot does not \
                 reference that secret"
                .to_owned())
        );
        assert_eq!(mountable_secrets(&spec("other"), &json!({"metadata": {"name": "bot"}})), Ok(()));
    }
}
