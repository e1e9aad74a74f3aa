//! Authentication requests to Keystone, built from `cloud.conf`, and the lifetime of tokens.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{CloudProvider as _, ErrorKind};
use serde_json::{Value, json};

use super::{ApiResponse, Cloud, GLOBAL, provider};
use crate::api::{network, octavia};

/// Returns the request body with this `[Global]`.
async fn sent(lines: &str) -> Value {
    let cloud = Cloud::answering([]);
    let provider = provider(&cloud, &format!("[Global]\nauth-url = http://keystone:5000\n{lines}"));
    provider.session.access().await.unwrap();
    let received = cloud.received().remove(0);
    assert_eq!((received.method.as_str(), received.url.as_str()), ("POST", "http://keystone:5000/v3/auth/tokens"));
    assert_eq!(received.token, "");
    received.body["auth"].clone()
}

fn password(user: Value) -> Value {
    json!({"methods": ["password"], "password": {"user": user}})
}

#[tokio::test]
async fn case_023_an_application_credential_is_sent_without_scope() {
    let auth = sent("application-credential-id = a\napplication-credential-secret = s\ntenant-id = t\n").await;
    let proof = json!({"id": "a", "secret": "s"});
    let identity = json!({"methods": ["application_credential"], "application_credential": proof});
    assert_eq!(auth, json!({"identity": identity}));
}

#[tokio::test]
async fn an_application_credential_by_name_is_sent_with_its_user() {
    let auth = sent(
        "application-credential-name = a\napplication-credential-secret = s\nusername = n\nuser-domain-name = D\n\
         tenant-name = t\n",
    )
    .await;
    let proof = json!({"name": "a", "user": {"name": "n", "domain": {"name": "D"}}, "secret": "s"});
    let identity = json!({"methods": ["application_credential"], "application_credential": proof});
    assert_eq!(auth, json!({"identity": identity}));
}

#[tokio::test]
async fn case_024_a_password_takes_precedence_over_an_application_credential() {
    let auth =
        sent("user-id = u\npassword = w\napplication-credential-id = a\napplication-credential-secret = s\n").await;
    assert_eq!(auth["identity"], password(json!({"id": "u", "password": "w"})));
}

#[tokio::test]
async fn case_025_user_and_project_have_their_own_domains() {
    let auth = sent("username = n\npassword = w\ntenant-name = t\ndomain-name = D\nuser-domain-name = U\n").await;
    let identity = password(json!({"name": "n", "password": "w", "domain": {"name": "U"}}));
    let scope = json!({"project": {"name": "t", "domain": {"name": "D"}}});
    assert_eq!(auth, json!({"identity": identity, "scope": scope}));
}

#[tokio::test]
async fn case_026_a_trust_is_the_only_scope() {
    let auth = sent("user-id = u\npassword = w\ntrust-id = x\ntenant-id = t\n").await;
    let identity = password(json!({"id": "u", "password": "w"}));
    assert_eq!(auth, json!({"identity": identity, "scope": {"OS-TRUST:trust": {"id": "x"}}}));
}

#[tokio::test]
async fn case_027_a_trustee_replaces_the_user() {
    let auth = sent("trust-id = x\ntrustee-id = e\ntrustee-password = ew\nuser-id = u\npassword = w\n").await;
    let identity = password(json!({"id": "e", "password": "ew"}));
    assert_eq!(auth, json!({"identity": identity, "scope": {"OS-TRUST:trust": {"id": "x"}}}));
}

#[tokio::test]
async fn a_token_is_exchanged_for_one_of_the_project_or_the_domain() {
    let auth = sent("token = T\ntenant-id = t\nusername = n\npassword = w\n").await;
    let identity = json!({"methods": ["token"], "token": {"id": "T"}});
    assert_eq!(auth, json!({"identity": identity, "scope": {"project": {"id": "t"}}}));
    let auth = sent("token = T\ndomain-id = d\n").await;
    assert_eq!(auth["scope"], json!({"domain": {"id": "d"}}));
}

#[tokio::test]
async fn a_project_by_id_is_sent_without_its_domain() {
    let auth = sent("user-id = u\npassword = w\ntenant-id = t\ntenant-name = n\ntenant-domain-id = d\n").await;
    assert_eq!(auth["scope"], json!({"project": {"id": "t"}}));
}

// ---- URL

#[tokio::test]
async fn the_version_of_auth_url_is_ignored_and_its_path_is_kept() {
    let table = [
        ("http://k:5000", "http://k:5000/v3/auth/tokens"),
        ("http://k:5000/", "http://k:5000/v3/auth/tokens"),
        ("http://k:5000/v3", "http://k:5000/v3/auth/tokens"),
        ("http://k:5000/v3/", "http://k:5000/v3/auth/tokens"),
        ("http://k:5000/v2.0", "http://k:5000/v3/auth/tokens"),
        ("https://k/identity", "https://k/identity/v3/auth/tokens"),
        ("https://k/identity/v3/", "https://k/identity/v3/auth/tokens"),
        ("https://k/venus", "https://k/venus/v3/auth/tokens"),
        ("https://v3/", "https://v3/v3/auth/tokens"),
    ];
    for (written, received) in table {
        let cloud = Cloud::answering([]);
        let text = format!("[Global]\nauth-url = {written}\nuser-id = u\npassword = w\ntenant-id = t\n");
        provider(&cloud, &text).session.access().await.unwrap();
        assert_eq!(cloud.received()[0].url, received, "{written}");
    }
}

#[tokio::test]
async fn every_request_has_the_user_agent_with_the_last_flag_first() {
    let cloud = Cloud::answering([ApiResponse::new(200, json!({"ports": []}))]);
    network::PORTS.list(&provider(&cloud, GLOBAL).session, &[]).await.unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!("the second first openstack-cloud-controller-manager/{version} bowline/{version}");
    for received in cloud.received() {
        assert_eq!(received.user_agent, expected, "{}", received.url);
    }
}

// ---- lifetime

fn ok() -> ApiResponse {
    ApiResponse::new(200, json!({"loadbalancer": {"id": "l"}}))
}

#[tokio::test(start_paused = true)]
async fn many_calls_share_one_token() {
    let cloud = Cloud::answering([ok(), ok(), ok()]);
    let provider = provider(&cloud, GLOBAL);
    for _ in 0..3 {
        octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    }
    assert_eq!(cloud.authentications(), 1);
    assert!(cloud.calls().iter().all(|received| received.token == "t1"));
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_without_a_token_authenticate_once() {
    let cloud = Cloud::answering(vec![ok(); 20]);
    let provider = provider(&cloud, GLOBAL);
    let calls = (0..20).map(|_| octavia::LOAD_BALANCERS.get(&provider.session, "l"));
    futures::future::try_join_all(calls).await.unwrap();
    assert_eq!((cloud.authentications(), cloud.calls().len()), (1, 20));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_it_expires() {
    let cloud = Cloud::answering(vec![ok(); 4]).with_lifetime(Duration::from_secs(1000));
    let provider = provider(&cloud, GLOBAL);
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    tokio::time::advance(Duration::from_secs(890)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    assert_eq!(cloud.authentications(), 1, "it is valid for long enough");
    tokio::time::advance(Duration::from_secs(20)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    until(|| cloud.authentications() == 2).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    let tokens: Vec<_> = cloud.calls().into_iter().map(|received| received.token).collect();
    assert_eq!(tokens, ["t1", "t1", "t1", "t2"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_without_an_issue_time_is_used_until_it_is_rejected() {
    let body = json!({"token": {"expires_at": "2001-01-01T00:00:00Z", "catalog": super::full_catalog()}});
    let token = ApiResponse::new(201, body).header("X-Subject-Token", "t1");
    let cloud = Cloud::answering(vec![ok(); 3]).rejecting([token]);
    let provider = provider(&cloud, GLOBAL);
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    tokio::time::advance(Duration::from_secs(1000)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    assert_eq!(cloud.authentications(), 1, "the local clock does not matter");
    let cloud = cloud.accepting("t2");
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    assert_eq!(cloud.authentications(), 2);
}

/// Waits until the condition holds.
async fn until(holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            // The result is stored shortly after the request.
            tokio::time::sleep(Duration::from_millis(1)).await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the condition does not hold in time");
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_keystone_matters_only_after_the_token_has_expired() {
    let unavailable = || ApiResponse::new(503, "unavailable");
    let cloud = Cloud::answering(vec![ok(); 20]).with_lifetime(Duration::from_secs(1000));
    let provider = provider(&cloud, GLOBAL);
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    let cloud = cloud.rejecting([unavailable(), unavailable(), unavailable(), unavailable()]);
    tokio::time::advance(Duration::from_secs(950)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    until(|| cloud.authentications() == 2).await;
    for _ in 0..10 {
        octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    }
    assert_eq!(cloud.authentications(), 2, "a failed renewal is not repeated at once");
    tokio::time::advance(Duration::from_secs(11)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    until(|| cloud.authentications() == 3).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    let error = octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap_err();
    assert_eq!(error.status(), Some(503), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_expires_in_flight_is_renewed_once_and_the_call_repeated() {
    let cloud = Cloud::answering([ok()]).accepting("t2");
    let provider = provider(&cloud, GLOBAL);
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    let tokens: Vec<_> = cloud.calls().into_iter().map(|received| received.token).collect();
    assert_eq!((tokens.as_slice(), cloud.authentications()), (&["t1".to_owned(), "t2".to_owned()][..], 2));
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_with_an_expired_token_authenticate_once() {
    let cloud = Cloud::answering(vec![ok(); 20]).accepting("t2");
    let provider = provider(&cloud, GLOBAL);
    let calls = (0..20).map(|_| octavia::LOAD_BALANCERS.get(&provider.session, "l"));
    futures::future::try_join_all(calls).await.unwrap();
    assert_eq!(cloud.authentications(), 2);
    assert!(cloud.calls().len() <= 40, "each is sent at most twice");
}

#[tokio::test(start_paused = true)]
async fn case_029_a_second_401_is_an_error_after_one_authentication() {
    let cloud = Cloud::answering([]).accepting("other");
    let error = octavia::LOAD_BALANCERS.get(&provider(&cloud, GLOBAL).session, "l").await.unwrap_err();
    assert_eq!(error.status(), Some(401));
    assert_eq!(error.during("get a load balancer").kind(), ErrorKind::Unauthenticated);
    assert_eq!((cloud.authentications(), cloud.calls().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_configured_token_cannot_be_renewed() {
    let rejection = ApiResponse::new(404, json!({"error": {"code": 404, "message": "Could not find token"}}));
    let cloud = Cloud::answering([ok(), ok()]).with_lifetime(Duration::from_secs(100));
    let provider = provider(&cloud, "[Global]\nauth-url = http://k:5000\ntoken = T0K3N\ntenant-id = t\n");
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    tokio::time::advance(Duration::from_secs(95)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    assert_eq!(cloud.authentications(), 1, "a new one would expire with the old one");
    cloud.rejecting([rejection]).accepting("other");
    let error = octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap_err().during("get a load balancer");
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.to_string().contains("HTTP 404") && !error.to_string().contains("T0K3N"), "{error}");
}

#[tokio::test]
async fn a_cloud_is_used_after_it_recovers() {
    let cloud = Cloud::answering([ok()]).rejecting([ApiResponse::new(502, ""), ApiResponse::new(401, "{}")]);
    let provider = provider(&cloud, GLOBAL);
    for kind in [ErrorKind::Unavailable, ErrorKind::Unauthenticated] {
        let error = octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap_err();
        assert_eq!(error.during("get a load balancer").kind(), kind);
    }
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
}

#[tokio::test]
async fn a_response_that_is_not_keystones_is_an_error() {
    let table = [
        ApiResponse::new(200, "<html>a page to log in</html>"),
        ApiResponse::new(200, "{}").header("X-Subject-Token", "t"),
        ApiResponse::new(201, json!({"token": {}})),
    ];
    for answer in table {
        let cloud = Cloud::answering([]).rejecting([answer]);
        let error = provider(&cloud, GLOBAL).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
    }
}

#[tokio::test]
async fn secrets_are_not_printed() {
    let cloud: Arc<Cloud> = Cloud::answering([]).rejecting([ApiResponse::new(401, "{}")]);
    let provider = provider(&cloud, GLOBAL);
    let error = provider.start().await.unwrap_err();
    let printed = format!("{error} {error:?} {:?} {:?}", provider.session, provider.config);
    assert!(!printed.contains("s3cret"), "{printed}");
}
