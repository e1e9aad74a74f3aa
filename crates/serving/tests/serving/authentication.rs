//! Authentication of clients.

use std::time::Duration;

use bowline_serving::{AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions};
use serde_json::{Value, json};

use crate::client::{Response, TestClient};
use crate::pki::Authority;
use crate::world::{Cluster, MANAGER, ServerSpec, eventually};

/// Authorizes every client for every path.
fn open(spec: ServerSpec) -> ServerSpec {
    let always_allow_paths = vec!["*".to_owned()];
    ServerSpec { authorization: AuthorizationOptions { always_allow_paths, ..spec.authorization }, ..spec }
}

fn who(response: &Response) -> (String, Vec<String>) {
    let user: Value = serde_json::from_str(&response.body).unwrap_or_else(|_| panic!("{response:?}"));
    let groups = user["groups"].as_array().unwrap().iter().map(|group| group.as_str().unwrap().to_owned());
    (user["name"].as_str().unwrap().to_owned(), groups.collect())
}

fn named(name: &str, groups: &[&str]) -> (String, Vec<String>) {
    (name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect())
}

fn bearer(token: &str) -> [(&'static str, String); 1] {
    [("authorization", format!("Bearer {token}"))]
}

async fn get_as(client: &TestClient, token: &str, path: &str) -> Response {
    let [(name, value)] = bearer(token);
    client.get_with(path, &[(name, &value)]).await
}

#[tokio::test]
async fn a_client_certificate_identifies_the_user_and_an_untrusted_one_gets_a_401() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let mut spec = open(ServerSpec::without_reviews());
    let scratch = crate::pki::Scratch::new();
    spec.authentication.client_ca_file = Some(scratch.write("ca.crt", &authority.pem()));
    let running = spec.start().await;

    let jane = running.client().with(&authority.client("jane", &["dev", "ops"]));
    assert_eq!(who(&jane.get("/who").await), named("jane", &["dev", "ops", "system:authenticated"]));
    assert_eq!(who(&running.client().get("/who").await), named("system:anonymous", &["system:unauthenticated"]));
    let mallory = running.client().with(&stranger.client("jane", &["system:masters"]));
    for client in [mallory.clone(), mallory.with_tls_version(&rustls::version::TLS12)] {
        let response = client.get("/healthz").await;
        let unauthorized = "{\"apiVersion\":\"v1\",\"code\":401,\"kind\":\"Status\",\"message\":\"Unauthorized\",\
                            \"metadata\":{},\"reason\":\"Unauthorized\",\"status\":\"Failure\"}\n";
        let sorted: Value = serde_json::from_str(&response.body).unwrap();
        assert_eq!((response.status, format!("{sorted}\n")), (401, unauthorized.to_owned()));
    }
    // A server certificate is not accepted as a client certificate.
    assert_eq!(running.client().with(&authority.server(&["localhost"])).get("/healthz").await.status, 401);
}

#[tokio::test]
async fn without_a_client_ca_a_certificate_is_ignored() {
    let running = open(ServerSpec::without_reviews()).start().await;
    let client = running.client().with(&Authority::new("theirs").client("jane", &["system:masters"]));
    assert_eq!(who(&client.get("/who").await), named("system:anonymous", &["system:unauthenticated"]));
}

#[tokio::test]
async fn the_client_ca_is_reloaded_when_its_file_changes() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let scratch = crate::pki::Scratch::new();
    let mut spec = open(ServerSpec::without_reviews());
    spec.authentication.client_ca_file = Some(scratch.write("ca.crt", &first.pem()));
    let running = spec.start().await;
    let (old, new) = (first.client("old", &[]), second.client("new", &[]));
    assert_eq!(running.client().with(&new).get("/who").await.status, 401);
    scratch.write("ca.crt", &format!("{}{}", first.pem(), second.pem()));
    eventually("the new CA is trusted", || async { running.client().with(&new).get("/who").await.status == 200 }).await;
    assert_eq!(who(&running.client().with(&old).get("/who").await).0, "old");
}

#[tokio::test]
async fn reviews_of_valid_and_invalid_tokens_are_cached() {
    let cluster = Cluster::start().await;
    let running = open(ServerSpec::with_reviews(&cluster, MANAGER)).start().await;
    for _ in 0..3 {
        let response = get_as(&running.client(), "scraper-token", "/who").await;
        assert_eq!(who(&response), named("scraper", &["system:authenticated"]));
    }
    assert_eq!(cluster.created("tokenreviews"), 1);
    for _ in 0..3 {
        assert_eq!(get_as(&running.client(), "bad", "/healthz").await.status, 401);
    }
    assert_eq!(cluster.created("tokenreviews"), 2);
    // An empty token counts as no token.
    let response = running.client().get_with("/who", &[("authorization", "Bearer ")]).await;
    assert_eq!(who(&response).0, "system:anonymous");
}

#[tokio::test]
async fn an_expired_review_is_repeated() {
    let cluster = Cluster::start().await;
    let mut spec = open(ServerSpec::with_reviews(&cluster, MANAGER));
    spec.authentication.cache_ttl = Duration::ZERO;
    let running = spec.start().await;
    for _ in 0..3 {
        assert_eq!(get_as(&running.client(), "scraper-token", "/who").await.status, 200);
    }
    assert_eq!(cluster.created("tokenreviews"), 3);
}

#[tokio::test]
async fn without_reviews_tokens_are_ignored() {
    let running = open(ServerSpec::without_reviews()).start().await;
    let response = get_as(&running.client(), "anything", "/who").await;
    assert_eq!(who(&response), named("system:anonymous", &["system:unauthenticated"]));
}

#[tokio::test]
async fn a_token_for_an_audience_is_accepted_in_its_header_on_its_path_only() {
    let cluster = Cluster::start().await;
    let running = open(ServerSpec::with_reviews(&cluster, MANAGER)).start().await;
    let token = format!("Bearer {}", cluster.account_token("viewer", Some("console")).await);
    let get = |path: &'static str, header: &'static str, token: &str| {
        let (client, token) = (running.client(), token.to_owned());
        async move { client.get_with(path, &[(header, &token)]).await }
    };
    let viewer = "system:serviceaccount:default:viewer";
    for _ in 0..3 {
        assert_eq!(who(&get("/console", "x-console-token", &token).await).0, viewer);
    }
    assert_eq!(cluster.created("tokenreviews"), 1, "the review is cached");
    assert_eq!(who(&get("/who", "x-console-token", &token).await).0, "system:anonymous", "another path");
    for path in ["/console", "/who"] {
        // The usual header is reviewed for the API server's audience, and the cached review of the other one is not used.
        assert_eq!(get(path, "authorization", &token).await.status, 401, "{path}");
    }
    assert_eq!(cluster.created("tokenreviews"), 2);
    let names = get("/console/headers", "x-console-token", &token).await.body;
    assert!(!names.contains("x-console-token"), "no handler sees the token: {names}");
}

#[tokio::test]
async fn a_token_of_another_audience_is_rejected_in_the_header_whatever_else_the_request_has() {
    let cluster = Cluster::start().await;
    let running = open(ServerSpec::with_reviews(&cluster, MANAGER)).start().await;
    let usual = format!("Bearer {}", cluster.account_token("viewer", None).await);
    assert_eq!(running.client().get_with("/console", &[("authorization", &usual)]).await.status, 200);
    let other = format!("Bearer {}", cluster.account_token("viewer", Some("other")).await);
    for token in [usual.as_str(), other.as_str(), "Bearer garbage", "Bearer scraper-token"] {
        let headers = [("x-console-token", token), ("authorization", usual.as_str())];
        assert_eq!(running.client().get_with("/console", &headers).await.status, 401, "{token}");
    }
    // A header without a token counts as absent.
    let response = running.client().get_with("/console", &[("x-console-token", "Bearer ")]).await;
    assert_eq!(who(&response).0, "system:anonymous");
}

#[tokio::test]
async fn the_user_of_an_audience_token_needs_permission_for_the_path() {
    let cluster = Cluster::start().await;
    let running = ServerSpec::with_reviews(&cluster, MANAGER).start().await;
    let rule = json!([{ "nonResourceURLs": ["/console"], "verbs": ["get"] }]);
    cluster.grant("console", "system:serviceaccount:default:viewer", &rule).await;
    for (account, status) in [("viewer", 200), ("other", 403)] {
        let token = format!("Bearer {}", cluster.account_token(account, Some("console")).await);
        let response = running.client().get_with("/console", &[("x-console-token", &token)]).await;
        assert_eq!(response.status, status, "{account}: {response:?}");
    }
}

#[tokio::test]
async fn without_reviews_an_audience_token_is_ignored() {
    let running = open(ServerSpec::without_reviews()).start().await;
    let response = running.client().get_with("/console", &[("x-console-token", "Bearer anything")]).await;
    assert_eq!(who(&response).0, "system:anonymous");
}

#[tokio::test]
async fn a_token_that_cannot_be_reviewed_gets_a_401() {
    let cluster = Cluster::without_permissions().await;
    let running = open(ServerSpec::with_reviews(&cluster, "unprivileged")).start().await;
    assert_eq!(get_as(&running.client(), "scraper-token", "/healthz").await.status, 401);
    assert_eq!(running.client().get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_front_proxy_is_trusted_by_its_ca_and_its_common_name() {
    let (proxies, clients) = (Authority::new("proxies"), Authority::new("clients"));
    let scratch = crate::pki::Scratch::new();
    let mut spec = open(ServerSpec::without_reviews());
    spec.authentication = AuthenticationOptions {
        client_ca_file: Some(scratch.write("clients.crt", &clients.pem())),
        request_header: RequestHeaderOptions {
            client_ca_file: Some(scratch.write("proxies.crt", &proxies.pem())),
            allowed_names: vec!["front-proxy-client".to_owned()],
            ..RequestHeaderOptions::default()
        },
        ..AuthenticationOptions::default()
    };
    let running = spec.start().await;
    let sent: &[(&str, &str)] = &[
        ("X-Remote-User", "jane"),
        ("X-Remote-Group", "dev"),
        ("X-Remote-Group", "ops"),
        ("X-Remote-Extra-Scopes", "all"),
    ];
    let from = |pair| running.client().with(&pair);
    let jane = from(proxies.client("front-proxy-client", &[])).get_with("/who", sent).await;
    assert_eq!(who(&jane), named("jane", &["dev", "ops", "system:authenticated"]));
    let response: Value = serde_json::from_str(&jane.body).unwrap();
    assert_eq!(response["extra"], json!({ "scopes": ["all"] }));
    // Wrong name, wrong CA, no certificate.
    assert_eq!(from(proxies.client("other", &[])).get_with("/who", sent).await.status, 401);
    let client = from(clients.client("bob", &[])).get_with("/who", sent).await;
    assert_eq!(who(&client), named("bob", &["system:authenticated"]));
    let anonymous = running.client().get_with("/who", sent).await;
    assert_eq!(who(&anonymous).0, "system:anonymous");
    // The proxy headers do not reach a handler.
    let seen = from(proxies.client("front-proxy-client", &[])).get_with("/headers", sent).await.body;
    assert!(!seen.contains("x-remote"), "{seen}");
}

#[tokio::test]
async fn the_api_servers_settings_are_read_and_watched() {
    let (cluster, proxies, clients) = (Cluster::start().await, Authority::new("proxies"), Authority::new("clients"));
    let settings = |authority: &Authority| {
        json!({
            "client-ca-file": clients.pem(),
            "requestheader-client-ca-file": authority.pem(),
            "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            "requestheader-allowed-names": "[\"proxy\"]",
        })
    };
    cluster.settings(settings(&proxies)).await;
    let mut spec = open(ServerSpec::with_reviews(&cluster, MANAGER));
    spec.authentication.skip_lookup = false;
    let running = spec.start().await;
    let sent = &[("X-Remote-User", "jane")];
    let bob = running.client().with(&clients.client("bob", &[])).get("/who").await;
    assert_eq!(who(&bob).0, "bob");
    let jane = running.client().with(&proxies.client("proxy", &[])).get_with("/who", sent).await;
    assert_eq!(who(&jane).0, "jane");

    let others = Authority::new("others");
    let other = running.client().with(&others.client("proxy", &[]));
    assert_eq!(other.get_with("/who", sent).await.status, 401);
    cluster.settings(settings(&others)).await;
    eventually("the new settings apply", || async { other.get_with("/who", sent).await.status == 200 }).await;
    // Invalid settings are ignored; the next valid ones apply.
    cluster.settings(json!({ "requestheader-client-ca-file": "rubbish" })).await;
    cluster.settings(settings(&proxies)).await;
    eventually("the first settings apply again", || async { other.get_with("/who", sent).await.status == 401 }).await;
}

#[tokio::test]
async fn unreadable_settings_are_fatal_unless_tolerated_or_not_needed() {
    let cluster = Cluster::without_permissions().await;
    let mut spec = open(ServerSpec::with_reviews(&cluster, "unprivileged"));
    spec.authentication.skip_lookup = false;
    let error = spec.access_control().await.map(drop).unwrap_err().to_string();
    assert!(error.contains("request-header-client-ca-file") && error.contains("--authentication-tolerate"), "{error}");
    spec.authentication.tolerate_lookup_failure = true;
    spec.access_control().await.map(drop).unwrap();
    // Only the client CA is read then, and a missing one does not prevent the start.
    spec.authentication.tolerate_lookup_failure = false;
    spec.authentication.request_header.client_ca_file =
        Some(cluster.scratch.write("proxies.crt", &Authority::new("proxies").pem()));
    spec.access_control().await.map(drop).unwrap();
}
