//! Authentication requests to Keystone, built from `cloud.conf`, and how long a token is used.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{CloudProvider as _, ErrorKind};
use serde_json::{Value, json};

use super::{ApiResponse, Cloud, GLOBAL, provider};
use crate::api::{network, octavia};

/// What is sent with this `[Global]`.
async fn sent(lines: &str) -> Value {
    let cloud = Cloud::answering([]);
    let provider = provider(&cloud, &format!("[Global]\nauth-url = http://keystone:5000\n{lines}"));
    provider.session.access().await.unwrap();
    let asked = cloud.asked().remove(0);
    assert_eq!((asked.method.as_str(), asked.url.as_str()), ("POST", "http://keystone:5000/v3/auth/tokens"));
    assert_eq!(asked.token, "");
    asked.body["auth"].clone()
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
async fn an_application_credential_by_name_is_its_users() {
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
async fn case_024_a_password_beats_an_application_credential() {
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
async fn case_026_a_trust_is_the_whole_scope() {
    let auth = sent("user-id = u\npassword = w\ntrust-id = x\ntenant-id = t\n").await;
    let identity = password(json!({"id": "u", "password": "w"}));
    assert_eq!(auth, json!({"identity": identity, "scope": {"OS-TRUST:trust": {"id": "x"}}}));
}

#[tokio::test]
async fn case_027_a_trustee_takes_the_place_of_the_user() {
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

// ---- where that is asked

#[tokio::test]
async fn the_version_of_an_auth_url_does_not_matter_and_its_path_does() {
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
    for (written, asked) in table {
        let cloud = Cloud::answering([]);
        let text = format!("[Global]\nauth-url = {written}\nuser-id = u\npassword = w\ntenant-id = t\n");
        provider(&cloud, &text).session.access().await.unwrap();
        assert_eq!(cloud.asked()[0].url, asked, "{written}");
    }
}

#[tokio::test]
async fn everybody_is_told_who_asks_the_last_flag_first() {
    let cloud = Cloud::answering([ApiResponse::new(200, json!({"ports": []}))]);
    network::PORTS.list(&provider(&cloud, GLOBAL).session, &[]).await.unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!("the second first openstack-cloud-controller-manager/{version} bowline/{version}");
    for asked in cloud.asked() {
        assert_eq!(asked.user_agent, expected, "{}", asked.url);
    }
}

// ---- how long a token is used

fn ok() -> ApiResponse {
    ApiResponse::new(200, json!({"loadbalancer": {"id": "l"}}))
}

#[tokio::test(start_paused = true)]
async fn one_token_serves_many_calls() {
    let cloud = Cloud::answering([ok(), ok(), ok()]);
    let provider = provider(&cloud, GLOBAL);
    for _ in 0..3 {
        octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    }
    assert_eq!(cloud.authentications(), 1);
    assert!(cloud.calls().iter().all(|asked| asked.token == "t1"));
}

#[tokio::test(start_paused = true)]
async fn many_who_find_no_token_ask_keystone_once() {
    let cloud = Cloud::answering(vec![ok(); 20]);
    let provider = provider(&cloud, GLOBAL);
    let calls = (0..20).map(|_| octavia::LOAD_BALANCERS.get(&provider.session, "l"));
    futures::future::try_join_all(calls).await.unwrap();
    assert_eq!((cloud.authentications(), cloud.calls().len()), (1, 20));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_about_to_end_is_renewed_while_it_still_serves() {
    let cloud = Cloud::answering(vec![ok(); 4]).with_life(Duration::from_secs(1000));
    let provider = provider(&cloud, GLOBAL);
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    tokio::time::advance(Duration::from_secs(890)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    assert_eq!(cloud.authentications(), 1, "there is time yet");
    tokio::time::advance(Duration::from_secs(20)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    until(|| cloud.authentications() == 2).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    let tokens: Vec<_> = cloud.calls().into_iter().map(|asked| asked.token).collect();
    assert_eq!(tokens, ["t1", "t1", "t1", "t2"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_does_not_say_when_it_was_issued_serves_until_it_is_refused() {
    let body = json!({"token": {"expires_at": "2001-01-01T00:00:00Z", "catalog": super::everything()}});
    let token = ApiResponse::new(201, body).header("X-Subject-Token", "t1");
    let cloud = Cloud::answering(vec![ok(); 3]).refusing([token]);
    let provider = provider(&cloud, GLOBAL);
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    tokio::time::advance(Duration::from_secs(1000)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    assert_eq!(cloud.authentications(), 1, "what our clock says does not matter");
    let cloud = cloud.taking("t2");
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    assert_eq!(cloud.authentications(), 2);
}

/// Polls until it is so.
async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            // The outcome is in its place a moment after the question was put.
            tokio::time::sleep(Duration::from_millis(1)).await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it does not happen");
}

#[tokio::test(start_paused = true)]
async fn a_keystone_that_is_away_matters_only_when_the_token_has_ended() {
    let away = || ApiResponse::new(503, "away");
    let cloud = Cloud::answering(vec![ok(); 20]).with_life(Duration::from_secs(1000));
    let provider = provider(&cloud, GLOBAL);
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    let cloud = cloud.refusing([away(), away(), away(), away()]);
    tokio::time::advance(Duration::from_secs(950)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    until(|| cloud.authentications() == 2).await;
    for _ in 0..10 {
        octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    }
    assert_eq!(cloud.authentications(), 2, "it is left in peace for a while");
    tokio::time::advance(Duration::from_secs(11)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    until(|| cloud.authentications() == 3).await;
    tokio::time::advance(Duration::from_secs(60)).await;
    let error = octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap_err();
    assert_eq!(error.status(), Some(503), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_ends_in_flight_is_renewed_once_and_the_call_made_again() {
    let cloud = Cloud::answering([ok()]).taking("t2");
    let provider = provider(&cloud, GLOBAL);
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    let tokens: Vec<_> = cloud.calls().into_iter().map(|asked| asked.token).collect();
    assert_eq!((tokens.as_slice(), cloud.authentications()), (&["t1".to_owned(), "t2".to_owned()][..], 2));
}

#[tokio::test(start_paused = true)]
async fn many_whose_token_ends_in_flight_ask_keystone_once() {
    let cloud = Cloud::answering(vec![ok(); 20]).taking("t2");
    let provider = provider(&cloud, GLOBAL);
    let calls = (0..20).map(|_| octavia::LOAD_BALANCERS.get(&provider.session, "l"));
    futures::future::try_join_all(calls).await.unwrap();
    assert_eq!(cloud.authentications(), 2);
    assert!(cloud.calls().len() <= 40, "each is made twice at most");
}

#[tokio::test(start_paused = true)]
async fn case_029_a_second_401_is_an_error_after_one_authentication() {
    let cloud = Cloud::answering([]).taking("nobody's");
    let error = octavia::LOAD_BALANCERS.get(&provider(&cloud, GLOBAL).session, "l").await.unwrap_err();
    assert_eq!(error.status(), Some(401));
    assert_eq!(error.during("get a balancer").kind(), ErrorKind::Unauthenticated);
    assert_eq!((cloud.authentications(), cloud.calls().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_we_were_given_ends_for_good() {
    let refusal = ApiResponse::new(404, json!({"error": {"code": 404, "message": "Could not find token"}}));
    let cloud = Cloud::answering([ok(), ok()]).with_life(Duration::from_secs(100));
    let provider = provider(&cloud, "[Global]\nauth-url = http://k:5000\ntoken = T0K3N\ntenant-id = t\n");
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    tokio::time::advance(Duration::from_secs(95)).await;
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
    assert_eq!(cloud.authentications(), 1, "a new one would end with the old one");
    cloud.refusing([refusal]).taking("nobody's");
    let error = octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap_err().during("get a balancer");
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.to_string().contains("HTTP 404") && !error.to_string().contains("T0K3N"), "{error}");
}

#[tokio::test]
async fn a_cloud_that_was_away_is_used_when_it_is_back() {
    let cloud = Cloud::answering([ok()]).refusing([ApiResponse::new(502, ""), ApiResponse::new(401, "{}")]);
    let provider = provider(&cloud, GLOBAL);
    for kind in [ErrorKind::Unavailable, ErrorKind::Unauthenticated] {
        let error = octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap_err();
        assert_eq!(error.during("get a balancer").kind(), kind);
    }
    octavia::LOAD_BALANCERS.get(&provider.session, "l").await.unwrap();
}

#[tokio::test]
async fn an_answer_of_something_else_than_keystone_is_not_understood() {
    let table = [
        ApiResponse::new(200, "<html>a page to log in</html>"),
        ApiResponse::new(200, "{}").header("X-Subject-Token", "t"),
        ApiResponse::new(201, json!({"token": {}})),
    ];
    for answer in table {
        let cloud = Cloud::answering([]).refusing([answer]);
        let error = provider(&cloud, GLOBAL).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
    }
}

#[tokio::test]
async fn nothing_that_is_printed_has_a_secret_in_it() {
    let cloud: Arc<Cloud> = Cloud::answering([]).refusing([ApiResponse::new(401, "{}")]);
    let provider = provider(&cloud, GLOBAL);
    let error = provider.start().await.unwrap_err();
    let printed = format!("{error} {error:?} {:?} {:?}", provider.session, provider.config);
    assert!(!printed.contains("s3cret"), "{printed}");
}
