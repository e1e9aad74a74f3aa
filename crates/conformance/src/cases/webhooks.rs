//! Rules about admission webhooks and plain HTTP endpoints. They are not applicable to a provider without them.

use bowline_cloud::{AdmissionRequest, AdmissionResponse, CloudProvider};

use crate::context::{CaseContext, CaseFailure, CaseResult, require};

const NO_WEBHOOKS: CaseFailure = CaseFailure::NotApplicable("no webhooks");

/// Names and paths of the webhooks.
fn declared(provider: &dyn CloudProvider) -> Vec<(String, String)> {
    provider.webhooks().iter().map(|one| (one.name().to_owned(), one.path().to_owned())).collect()
}

fn is_name(name: &str) -> bool {
    let is_allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(is_allowed)
}

fn is_path(path: &str) -> bool {
    path.starts_with('/') && !path.contains(['?', '#', '%']) && !path.contains(char::is_whitespace)
}

pub(super) async fn webhooks_are_declared(context: &CaseContext) -> CaseResult {
    let first = declared(context.provider());
    if first.is_empty() {
        return Err(NO_WEBHOOKS);
    }
    for (name, path) in &first {
        require(is_name(name), || format!("{name:?} is not a name for --webhooks"))?;
        require(is_path(path), || format!("{path:?} is not a path"))?;
        let same = |(other, at): &&(String, String)| other == name || at == path;
        let count = first.iter().filter(same).count();
        require(count == 1, || format!("{count} webhooks have the name {name} or the path {path}"))?;
    }
    for again in [declared(context.provider()), declared(&*context.bench().restarted().await)] {
        require(again == first, || format!("the declared webhooks changed from {first:?} to {again:?}"))?;
    }
    Ok(())
}

pub(super) async fn empty_review_is_not_allowed(context: &CaseContext) -> CaseResult {
    let webhooks = context.provider().webhooks();
    if webhooks.is_empty() {
        return Err(NO_WEBHOOKS);
    }
    for webhook in webhooks {
        let response = webhook.review(AdmissionRequest::default()).await;
        let is_allowed = matches!(response, AdmissionResponse::Allow(_));
        require(!is_allowed, || format!("the webhook {} allows a request without an object", webhook.name()))?;
        require(!response.message().is_empty(), || format!("the webhook {} gives no reason", webhook.name()))?;
    }
    Ok(())
}

pub(super) async fn endpoints_are_declared(context: &CaseContext) -> CaseResult {
    let first = context.provider().endpoints();
    if first.is_empty() {
        return Err(CaseFailure::NotApplicable("no endpoints"));
    }
    for endpoint in &first {
        let address = &endpoint.address;
        let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        require(matches!(port, Some(Ok(_))), || format!("{address:?} is not HOST:PORT"))?;
        let count = first.iter().filter(|other| other.address == *address).count();
        require(count == 1, || format!("{count} endpoints have the address {address}"))?;
    }
    for again in [context.provider().endpoints(), context.bench().restarted().await.endpoints()] {
        require(again == first, || format!("the declared endpoints changed from {first:?} to {again:?}"))?;
    }
    Ok(())
}
