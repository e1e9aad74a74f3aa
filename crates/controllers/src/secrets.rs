//! Delivers to providers the Secrets that they name. A cloud without Secrets costs no request.

use bowline_cloud::{Cloud, Clouds, Error, ErrorKind, SecretData, SecretRef};
use bowline_kube::{Permission, SecretValues, Unreadable, secret_permission, watch_secret};
use futures::StreamExt as _;
use futures::future::join_all;

/// Permissions for these Secrets.
pub fn permissions(secrets: impl IntoIterator<Item = SecretRef>) -> Vec<Permission> {
    secrets.into_iter().map(|secret| secret_permission(&secret.namespace, &secret.name)).collect()
}

/// Watches the Secrets of a cloud and delivers each change, for ever. Of several callers for one cloud, one does.
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

/// Reads the Secrets of all clouds once and delivers them, for commands that end. What cannot be read shows when the cloud is
/// started.
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

async fn deliver(cloud: &Cloud, secret: &SecretRef, answer: Result<Option<SecretValues>, Unreadable>) {
    let data = answer.map(|values| values.map(SecretData::from_iter)).map_err(|why| unread(secret, why));
    cloud.deliver_secret(secret, data).await;
}

fn unread(secret: &SecretRef, why: Unreadable) -> Error {
    let Unreadable { is_forbidden, message } = why;
    let SecretRef { namespace, name } = secret;
    if !is_forbidden {
        let message = format!("the Secret {secret} cannot be read: {message}");
        return Error::new(ErrorKind::Unavailable, "read the Secret", message);
    }
    let message = format!(
        "the Secret {secret} cannot be read: {message}. It takes a Role in the namespace {namespace} that allows list and watch of \
         secrets with resourceNames [{name}]; bowline manifests prints it"
    );
    Error::new(ErrorKind::PermissionDenied, "read the Secret", message)
}
