//! Connects the admission webhooks of the clouds to the server that calls them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_cloud::{AdmissionRequest, AdmissionResponse, Cloud, CloudProvider, Clouds};
use bowline_config::{ConfigError, ConfigErrors};
use bowline_serving::webhook::{Response, ReviewError, Webhook};
use futures::FutureExt as _;
use serde_json::{Map, Value};

/// Returns the webhooks of all clouds. Each request is reviewed by the provider that is current at that time.
pub fn of(clouds: &Clouds) -> Vec<Webhook> {
    let of_cloud = |cloud: &Cloud| cloud.layers().webhooks().iter().map(|hook| webhook(cloud, &**hook)).collect();
    clouds.iter().flat_map::<Vec<_>, _>(of_cloud).collect()
}

fn webhook(cloud: &Cloud, declared: &dyn bowline_cloud::Webhook) -> Webhook {
    let (cloud, name) = (cloud.clone(), declared.name().to_owned());
    let (webhook, path) = (name.clone(), declared.path().to_owned());
    let review = move |request| {
        let (cloud, webhook) = (cloud.clone(), webhook.clone());
        async move { review(&cloud, &webhook, request).await }.boxed()
    };
    Webhook { name, path, review: Arc::new(review) }
}

async fn review(cloud: &Cloud, webhook: &str, request: Map<String, Value>) -> Result<Response, ReviewError> {
    let undecodable =
        |error| ReviewError { code: 400, message: format!("failed to decode admission request: {error}") };
    let request: AdmissionRequest = serde_json::from_value(Value::Object(request)).map_err(undecodable)?;
    match cloud.layers().review(webhook, request).await {
        AdmissionResponse::Error { code, message } => Err(ReviewError { code, message }),
        response => Ok(response.to_json()),
    }
}

/// Name and path of a webhook.
pub(crate) type Declaration = (String, String);

/// Returns the names and paths of all webhooks of these providers.
pub(crate) fn declarations(providers: &[Arc<dyn CloudProvider>]) -> Vec<Declaration> {
    let webhooks = providers.iter().flat_map(|provider| provider.webhooks());
    webhooks.map(|webhook| (webhook.name().to_owned(), webhook.path().to_owned())).collect()
}

/// Returns an error message if two webhooks have the same name or path, as those of two clouds of one kind have.
pub(crate) fn conflict(declarations: &[Declaration]) -> Option<String> {
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    declarations.iter().find_map(|(name, path)| {
        let what = if !names.insert(name) {
            format!("the name {name:?}")
        } else if !paths.insert(path) {
            format!("the path {path:?}")
        } else {
            return None;
        };
        Some(format!("two webhooks have {what}"))
    })
}

/// Checks the providers of an admission server: it serves all their webhooks, and has no Kubernetes client to read Secrets with.
pub fn check_standalone(providers: &[Arc<dyn CloudProvider>], errors: &mut ConfigErrors) {
    let mut reject = |message: String, hint: &str| errors.push(ConfigError::flag("cloud-provider", message).hint(hint));
    let declarations = declarations(providers);
    if let Some(message) = conflict(&declarations) {
        reject(message, "run an admission server for each of the clouds");
    }
    if declarations.is_empty() && !providers.is_empty() {
        let names: Vec<_> = providers.iter().map(|provider| provider.info().name.as_str()).collect();
        let message = format!("{} has no admission webhooks", names.join(", "));
        reject(message, "this cloud needs no admission server");
    }
    for provider in providers.iter().filter(|provider| !provider.secrets().is_empty()) {
        let message = format!("the configuration of {} refers to Secrets of the cluster", provider.info().name);
        reject(message, "the admission server has no access to the API server; use a file or the environment");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idle::Idle;

    #[test]
    fn an_admission_server_needs_a_cloud_with_webhooks() {
        let mut errors = ConfigErrors::new();
        check_standalone(&[Arc::new(Idle::default())], &mut errors);
        let expected = "--cloud-provider: idle has no admission webhooks; this cloud needs no admission server";
        assert_eq!(errors.to_string(), expected);
    }
}
