//! Delivery of Secrets to the providers that refer to them. A cloud without Secrets causes no request.

use bowline_cloud::{Cloud, Clouds, Error, ErrorKind, SecretData, SecretRef};
use bowline_kube::{Permission, SecretError, SecretValues, secret_permission, watch_secret};
use futures::StreamExt as _;
use futures::future::join_all;

/// Permissions for these Secrets.
pub fn permissions(secrets: impl IntoIterator<Item = SecretRef>) -> Vec<Permission> {
    secrets.into_iter().map(|secret| secret_permission(&secret.namespace, &secret.name)).collect()
}

/// Watches the Secrets of a cloud and delivers each change, forever. Only one of several concurrent callers per cloud watches; the
/// rest wait.
pub async fn follow(cloud: &Cloud, client: &kube::Client) {
    let secrets = cloud.secrets();
    if secrets.is_empty() {
        return;
    }
    let _followed = cloud.follow_secrets().await;
    join_all(secrets.iter().map(|secret| async move {
        let mut answers = watch_secret(client.clone(), &secret.namespace, &secret.name).boxed();
        while let Some(answer) = answers.next().await {
            deliver(cloud, secret, answer).await;
        }
    }))
    .await;
}

/// Reads the Secrets of all clouds once and delivers them, for one-shot commands. A read error is reported when the cloud starts.
pub async fn read(clouds: &Clouds, client: &kube::Client) {
    let all = clouds.iter().flat_map(|cloud| cloud.secrets().into_iter().map(move |secret| (cloud, secret)));
    join_all(all.map(|(cloud, secret)| async move {
        let mut answers = watch_secret(client.clone(), &secret.namespace, &secret.name).boxed();
        if let Some(answer) = answers.next().await {
            deliver(cloud, &secret, answer).await;
        }
    }))
    .await;
}

async fn deliver(cloud: &Cloud, secret: &SecretRef, answer: Result<Option<SecretValues>, SecretError>) {
    let data = answer.map(|values| values.map(SecretData::from_iter)).map_err(|why| unread(secret, why));
    cloud.deliver_secret(secret, data).await;
}

fn unread(secret: &SecretRef, why: SecretError) -> Error {
    let SecretError { is_forbidden, message } = why;
    let SecretRef { namespace, name } = secret;
    if !is_forbidden {
        let message = format!("cannot read Secret {secret}: {message}");
        return Error::new(ErrorKind::Unavailable, "read Secret", message);
    }
    let message = format!(
        "cannot read Secret {secret}: {message}; fix: add a Role in namespace {namespace} that allows list and watch of secrets \
         with resourceNames [{name}], as `bowline manifests` prints it"
    );
    Error::new(ErrorKind::PermissionDenied, "read Secret", message)
}
