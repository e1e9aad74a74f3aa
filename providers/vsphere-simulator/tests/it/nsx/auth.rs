//! All ways to authenticate.

use std::time::Duration;

use bowline_vsphere_simulator::nsx::{CERTIFICATE_HEADER, Options, PASSWORD, REFRESH_TOKEN, Scheme, USER};
use http::Method;
use serde_json::{Value, json};
use tokio::time::advance;

use super::{Client, basic, code};

const POOLS: &str = "/infra/lb-pools";

fn accepting(scheme: Scheme) -> Options {
    Options { schemes: [scheme].into(), ..Options::default() }
}

#[tokio::test]
async fn a_request_without_credentials_is_unauthenticated() {
    let mut client = Client::over_http(Options::default()).await;
    client.headers.clear();
    assert_eq!(client.get(POOLS).await.0, 401);
    client.headers = vec![("authorization", "Bearer x".to_owned())];
    assert_eq!(code(client.get(POOLS).await), (403, 403));
}

#[tokio::test]
async fn basic_and_remote_are_different_schemes() {
    let mut client = Client::over_http(accepting(Scheme::Remote)).await;
    assert_eq!(code(client.get(POOLS).await), (403, 403));
    client.headers[0].1 = client.headers[0].1.replace("Basic", "Remote");
    assert_eq!(client.get(POOLS).await.0, 200);
    client.nsx.configure(|options| options.schemes = [Scheme::Basic].into());
    assert_eq!(code(client.get(POOLS).await), (403, 403));
}

#[tokio::test]
async fn five_wrong_passwords_lock_the_account() {
    let mut client = Client::paused(Options::default());
    client.headers = basic(USER, "wrong");
    for _ in 0..5 {
        assert_eq!(code(client.get(POOLS).await), (403, 403));
    }
    client.headers = basic(USER, PASSWORD);
    assert_eq!(code(client.get(POOLS).await), (403, 403), "the account is locked");
    advance(Duration::from_secs(900)).await;
    assert_eq!(client.get(POOLS).await.0, 200);
}

#[tokio::test]
async fn a_client_certificate_is_a_header_or_a_setting() {
    let mut client = Client::over_http(accepting(Scheme::Certificate)).await;
    client.nsx.configure(|options| options.principals = ["ccm".to_owned()].into());
    client.headers = vec![(CERTIFICATE_HEADER, "ccm".to_owned())];
    assert_eq!(client.get(POOLS).await.0, 200);
    client.headers = vec![(CERTIFICATE_HEADER, "unknown".to_owned())];
    assert_eq!(code(client.get(POOLS).await), (403, 403));
    client.headers.clear();
    client.nsx.present_certificate(Some("ccm"));
    assert_eq!(client.create("/infra/lb-pools/p", json!({})).await["_create_user"], "ccm");
    client.nsx.present_certificate(None);
    assert_eq!(client.get(POOLS).await.0, 401);
}

#[tokio::test]
async fn vmc_exchanges_a_refresh_token_for_an_access_token_that_expires() {
    let mut client = Client::paused(accepting(Scheme::Vmc));
    let path = "/csp/gateway/am/api/auth/api-tokens/authorize";
    client.headers = vec![("content-type", "application/x-www-form-urlencoded".to_owned())];
    assert_eq!(client.send(Method::POST, path, "refresh_token=wrong").await.unwrap().0, 400);
    let (status, _, body) = client.send(Method::POST, path, &format!("refresh_token={REFRESH_TOKEN}")).await.unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &answer["expires_in"], &answer["token_type"]), (200, &json!(1800), &json!("bearer")));
    client.headers = vec![("csp-auth-token", answer["access_token"].as_str().unwrap().to_owned())];
    assert_eq!(client.get(POOLS).await.0, 200);
    advance(Duration::from_secs(1800)).await;
    assert_eq!(client.get(POOLS).await.0, 401);
    client.nsx.configure(|options| options.token_lifetime_as_text = true);
    client.headers = vec![("content-type", "application/x-www-form-urlencoded".to_owned())];
    let (_, _, body) = client.send(Method::POST, path, &format!("refresh_token={REFRESH_TOKEN}")).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["expires_in"], "1800");
}

#[tokio::test]
async fn a_session_needs_its_cookie_and_its_xsrf_token() {
    let mut client = Client::paused(Options::default());
    client.headers.clear();
    let body = format!("j_username={USER}&j_password=VMware1%21VMware1%21");
    let (status, headers, _) = client.send(Method::POST, "/api/session/create", &body).await.unwrap();
    assert_eq!(status, 200);
    let cookie = headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    client.headers = vec![("cookie", cookie)];
    assert_eq!(code(client.get(POOLS).await), (403, 98));
    client.headers.push(("x-xsrf-token", headers["x-xsrf-token"].to_str().unwrap().to_owned()));
    assert_eq!(client.get(POOLS).await.0, 200);
    assert!(client.nsx.journal().iter().all(|entry| entry.headers.is_empty()), "the journal has no credentials");
    advance(Duration::from_secs(1800)).await;
    assert_eq!(client.get(POOLS).await.0, 401);
    let (status, _, _) =
        client.send(Method::POST, "/api/session/create", "j_username=admin&j_password=x").await.unwrap();
    assert_eq!(status, 403);
}

#[tokio::test]
async fn a_revoked_token_is_unauthenticated() {
    let mut client = Client::over_http(accepting(Scheme::Vmc)).await;
    client.headers = vec![("content-type", "application/x-www-form-urlencoded".to_owned())];
    let path = "/csp/gateway/am/api/auth/api-tokens/authorize";
    let (_, _, body) = client.send(Method::POST, path, &format!("refresh_token={REFRESH_TOKEN}")).await.unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap();
    client.headers = vec![("csp-auth-token", answer["access_token"].as_str().unwrap().to_owned())];
    assert_eq!(client.get(POOLS).await.0, 200);
    client.nsx.revoke_tokens();
    assert_eq!(client.get(POOLS).await.0, 401);
}

#[tokio::test]
async fn a_read_only_account_cannot_write() {
    let client = Client::over_http(Options { read_only: true, ..Options::default() }).await;
    assert_eq!(client.get(POOLS).await.0, 200);
    assert_eq!(code(client.put("/infra/lb-pools/p", json!({})).await), (403, 289));
}
