//! ServiceAccount: normalises references to Secrets.

use serde_json::{Value, json};

use super::{Strategy, WriteCx};
use crate::value::Json;

pub(crate) struct ServiceAccount;

const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

impl Strategy for ServiceAccount {
    fn prepare_create(&self, _cx: &WriteCx<'_>, obj: &mut Value) {
        strip_secret_references(obj);
    }

    fn prepare_update(&self, _cx: &WriteCx<'_>, new: &mut Value, _old: &Value) {
        strip_secret_references(new);
    }

    fn warnings(&self, _cx: &WriteCx<'_>, new: &Value, old: Option<&Value>) -> Vec<String> {
        let enforces = |account: &Value| account.at("metadata.annotations").get(ENFORCE_MOUNTABLE).is_some();
        match enforces(new) && !old.is_some_and(enforces) {
            false => Vec::new(),
            true => vec![format!(
                "metadata.annotations[{ENFORCE_MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to \
                 isolate access to mounted secrets"
            )],
        }
    }
}

/// Removes everything but the name from references to Secrets.
fn strip_secret_references(account: &mut Value) {
    for secret in account.list_mut("secrets").into_iter().flatten() {
        *secret = match secret.text("name") {
            "" => json!({}),
            name => json!({"name": name}),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_references_keep_only_the_name() {
        let mut account = json!({"secrets": [{"name": "s", "namespace": "elsewhere"}, {"kind": "Secret"}]});
        strip_secret_references(&mut account);
        assert_eq!(account, json!({"secrets": [{"name": "s"}, {}]}));
    }
}
