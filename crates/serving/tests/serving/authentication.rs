//! Who people are taken for.

use std::time::Duration;

use bowline_serving::{AuthenticationOptions, AuthorizationOptions, RequestHeaderOptions};
use serde_json::{Value, json};

use crate::pki::Authority;
use crate::visitor::{Told, Visitor};
use crate::world::{Cluster, MANAGER, Wanted, eventually};

/// Everybody may ask who they are.
fn open(wanted: Wanted) -> Wanted {
    let always_allow_paths = vec!["*".to_owned()];
    Wanted { authorization: AuthorizationOptions { always_allow_paths, ..wanted.authorization }, ..wanted }
}

fn who(told: &Told) -> (String, Vec<String>) {
    let user: Value = serde_json::from_str(&told.body).unwrap_or_else(|_| panic!("{told:?}"));
    let groups = user["groups"].as_array().unwrap().iter().map(|group| group.as_str().unwrap().to_owned());
    (user["name"].as_str().unwrap().to_owned(), groups.collect())
}

fn named(name: &str, groups: &[&str]) -> (String, Vec<String>) {
    (name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect())
}

fn bearer(token: &str) -> [(&'static str, String); 1] {
    [("authorization", format!("Bearer {token}"))]
}

async fn gets_as(visitor: &Visitor, token: &str, path: &str) -> Told {
    let [(name, value)] = bearer(token);
    visitor.gets_with(path, &[(name, &value)]).await
}

#[tokio::test]
async fn a_client_certificate_says_who_it_is_and_an_unknown_one_is_refused_after_the_handshake() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let mut wanted = open(Wanted::alone());
    let scratch = crate::pki::Scratch::new();
    wanted.authentication.client_ca_file = Some(scratch.write("ca.crt", &authority.pem()));
    let running = wanted.start().await;

    let jane = running.visitor().with(&authority.client("jane", &["dev", "ops"]));
    assert_eq!(who(&jane.gets("/who").await), named("jane", &["dev", "ops", "system:authenticated"]));
    assert_eq!(who(&running.visitor().gets("/who").await), named("system:anonymous", &["system:unauthenticated"]));
    let mallory = running.visitor().with(&stranger.client("jane", &["system:masters"]));
    for visitor in [mallory.clone(), mallory.in_version(&rustls::version::TLS12)] {
        let told = visitor.gets("/healthz").await;
        let unauthorized = "{\"apiVersion\":\"v1\",\"code\":401,\"kind\":\"Status\",\"message\":\"Unauthorized\",\
                            \"metadata\":{},\"reason\":\"Unauthorized\",\"status\":\"Failure\"}\n";
        let sorted: Value = serde_json::from_str(&told.body).unwrap();
        assert_eq!((told.status, format!("{sorted}\n")), (401, unauthorized.to_owned()));
    }
    // A certificate for servers is none for clients.
    assert_eq!(running.visitor().with(&authority.server(&["localhost"])).gets("/healthz").await.status, 401);
}

#[tokio::test]
async fn without_an_authority_a_certificate_means_nothing_and_breaks_nothing() {
    let running = open(Wanted::alone()).start().await;
    let visitor = running.visitor().with(&Authority::new("theirs").client("jane", &["system:masters"]));
    assert_eq!(who(&visitor.gets("/who").await), named("system:anonymous", &["system:unauthenticated"]));
}

#[tokio::test]
async fn the_authority_of_clients_is_read_again_when_its_file_changes() {
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    let scratch = crate::pki::Scratch::new();
    let mut wanted = open(Wanted::alone());
    wanted.authentication.client_ca_file = Some(scratch.write("ca.crt", &first.pem()));
    let running = wanted.start().await;
    let (old, new) = (first.client("old", &[]), second.client("new", &[]));
    assert_eq!(running.visitor().with(&new).gets("/who").await.status, 401);
    scratch.write("ca.crt", &format!("{}{}", first.pem(), second.pem()));
    eventually("the new authority counts", || async { running.visitor().with(&new).gets("/who").await.status == 200 })
        .await;
    assert_eq!(who(&running.visitor().with(&old).gets("/who").await).0, "old");
}

#[tokio::test]
async fn tokens_are_reviewed_once_for_a_while_good_and_bad_ones() {
    let cluster = Cluster::start().await;
    let running = open(Wanted::asking(&cluster, MANAGER)).start().await;
    for _ in 0..3 {
        let told = gets_as(&running.visitor(), "scraper-token", "/who").await;
        assert_eq!(who(&told), named("scraper", &["system:authenticated"]));
    }
    assert_eq!(cluster.asked("tokenreviews"), 1);
    for _ in 0..3 {
        assert_eq!(gets_as(&running.visitor(), "bad", "/healthz").await.status, 401);
    }
    assert_eq!(cluster.asked("tokenreviews"), 2);
    // One that is sent and says nothing is none.
    let told = running.visitor().gets_with("/who", &[("authorization", "Bearer ")]).await;
    assert_eq!(who(&told).0, "system:anonymous");
}

#[tokio::test]
async fn what_is_remembered_is_asked_again_when_it_is_old() {
    let cluster = Cluster::start().await;
    let mut wanted = open(Wanted::asking(&cluster, MANAGER));
    wanted.authentication.cache_ttl = Duration::ZERO;
    let running = wanted.start().await;
    for _ in 0..3 {
        assert_eq!(gets_as(&running.visitor(), "scraper-token", "/who").await.status, 200);
    }
    assert_eq!(cluster.asked("tokenreviews"), 3);
}

#[tokio::test]
async fn without_reviews_tokens_are_not_looked_at() {
    let running = open(Wanted::alone()).start().await;
    let told = gets_as(&running.visitor(), "anything", "/who").await;
    assert_eq!(who(&told), named("system:anonymous", &["system:unauthenticated"]));
}

#[tokio::test]
async fn a_token_that_cannot_be_reviewed_is_refused() {
    let cluster = Cluster::without_rights().await;
    let running = open(Wanted::asking(&cluster, "nobody")).start().await;
    assert_eq!(gets_as(&running.visitor(), "scraper-token", "/healthz").await.status, 401);
    assert_eq!(running.visitor().gets("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_front_proxy_is_believed_for_its_certificate_and_its_name() {
    let (proxies, clients) = (Authority::new("proxies"), Authority::new("clients"));
    let scratch = crate::pki::Scratch::new();
    let mut wanted = open(Wanted::alone());
    wanted.authentication = AuthenticationOptions {
        client_ca_file: Some(scratch.write("clients.crt", &clients.pem())),
        request_header: RequestHeaderOptions {
            client_ca_file: Some(scratch.write("proxies.crt", &proxies.pem())),
            allowed_names: vec!["front-proxy-client".to_owned()],
            ..RequestHeaderOptions::default()
        },
        ..AuthenticationOptions::default()
    };
    let running = wanted.start().await;
    let said: &[(&str, &str)] = &[
        ("X-Remote-User", "jane"),
        ("X-Remote-Group", "dev"),
        ("X-Remote-Group", "ops"),
        ("X-Remote-Extra-Scopes", "all"),
    ];
    let from = |pair| running.visitor().with(&pair);
    let jane = from(proxies.client("front-proxy-client", &[])).gets_with("/who", said).await;
    assert_eq!(who(&jane), named("jane", &["dev", "ops", "system:authenticated"]));
    let told: Value = serde_json::from_str(&jane.body).unwrap();
    assert_eq!(told["extra"], json!({ "scopes": ["all"] }));
    // The wrong name, the wrong authority, none at all.
    assert_eq!(from(proxies.client("somebody", &[])).gets_with("/who", said).await.status, 401);
    let client = from(clients.client("bob", &[])).gets_with("/who", said).await;
    assert_eq!(who(&client), named("bob", &["system:authenticated"]));
    let nobody = running.visitor().gets_with("/who", said).await;
    assert_eq!(who(&nobody).0, "system:anonymous");
    // What proved it does not reach a handler.
    let seen = from(proxies.client("front-proxy-client", &[])).gets_with("/headers", said).await.body;
    assert!(!seen.contains("x-remote"), "{seen}");
}

#[tokio::test]
async fn the_api_servers_settings_are_looked_up_and_followed() {
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
    let mut wanted = open(Wanted::asking(&cluster, MANAGER));
    wanted.authentication.skip_lookup = false;
    let running = wanted.start().await;
    let said = &[("X-Remote-User", "jane")];
    let bob = running.visitor().with(&clients.client("bob", &[])).gets("/who").await;
    assert_eq!(who(&bob).0, "bob");
    let jane = running.visitor().with(&proxies.client("proxy", &[])).gets_with("/who", said).await;
    assert_eq!(who(&jane).0, "jane");

    let others = Authority::new("others");
    let other = running.visitor().with(&others.client("proxy", &[]));
    assert_eq!(other.gets_with("/who", said).await.status, 401);
    cluster.settings(settings(&others)).await;
    eventually("the new settings count", || async { other.gets_with("/who", said).await.status == 200 }).await;
    // What makes no sense changes nothing, and what makes sense again counts.
    cluster.settings(json!({ "requestheader-client-ca-file": "rubbish" })).await;
    cluster.settings(settings(&proxies)).await;
    eventually("the first settings count again", || async { other.gets_with("/who", said).await.status == 401 }).await;
}

#[tokio::test]
async fn settings_that_cannot_be_read_are_fatal_unless_that_is_tolerated_or_nobody_looks() {
    let cluster = Cluster::without_rights().await;
    let mut wanted = open(Wanted::asking(&cluster, "nobody"));
    wanted.authentication.skip_lookup = false;
    let error = wanted.door().await.map(drop).unwrap_err().to_string();
    assert!(error.contains("request-header-client-ca-file") && error.contains("--authentication-tolerate"), "{error}");
    wanted.authentication.tolerate_lookup_failure = true;
    wanted.door().await.map(drop).unwrap();
    // Only the authority of clients is looked up then, and that it is not there is no reason not to start.
    wanted.authentication.tolerate_lookup_failure = false;
    wanted.authentication.request_header.client_ca_file =
        Some(cluster.scratch.write("proxies.crt", &Authority::new("proxies").pem()));
    wanted.door().await.map(drop).unwrap();
}
