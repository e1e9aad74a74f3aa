//! Logins and sessions.

use std::time::Duration;

use bowline_vsphere_simulator::vcenter::{Machine, Options, PASSWORD};
use http::Request;
use serde_json::{Value, json};

use crate::vcenter::client::{Client, fault, texts};

const MANAGER: (&str, &str) = ("SessionManager", "SessionManager");

#[tokio::test(start_paused = true)]
async fn an_unused_session_ends() {
    let client = Client::new(Options::default()).await;
    let uuid = client.vcenter.machine("node-1").unwrap().uuid;
    for _ in 0..2 {
        tokio::time::advance(Duration::from_secs(1700)).await;
        assert!(!client.find(&uuid).await.is_empty(), "a use extends the session");
    }
    tokio::time::advance(Duration::from_secs(1801)).await;
    assert!(client.find(&uuid).await.is_empty());
    assert_eq!(client.vcenter.sessions(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn failed_logins_lock_an_account_for_five_minutes() {
    let mut client = Client::anonymous(Options::default());
    for _ in 0..5 {
        assert_eq!(fault(&client.log_in("wrong").await), "InvalidLogin");
    }
    assert_eq!(fault(&client.log_in(PASSWORD).await), "InvalidLogin");
    tokio::time::advance(Duration::from_secs(301)).await;
    assert_eq!(client.log_in(PASSWORD).await.0, 200);
}

#[tokio::test]
async fn a_successful_login_forgets_failures_and_the_lock_can_be_off() {
    let mut client = Client::anonymous(Options { lockout_after: Some(2), ..Options::default() });
    client.log_in("wrong").await;
    assert_eq!(client.log_in(PASSWORD).await.0, 200);
    let mut other = client.another();
    other.log_in("wrong").await;
    assert_eq!(other.log_in(PASSWORD).await.0, 200);
    client.vcenter.configure(|options| options.lockout_after = None);
    let mut third = client.another();
    for _ in 0..9 {
        third.log_in("wrong").await;
    }
    assert_eq!(third.log_in(PASSWORD).await.0, 200);
}

#[tokio::test]
async fn a_login_above_the_session_limit_is_answered_with_503_until_a_logout() {
    let client = Client::new(Options { session_limit: Some(1), ..Options::default() }).await;
    let mut other = client.another();
    assert_eq!(other.log_in(PASSWORD).await.0, 503);
    assert_eq!(client.call("Logout", MANAGER, "").await.0, 200);
    assert_eq!(other.log_in(PASSWORD).await.0, 200);
}

#[tokio::test]
async fn the_session_manager_issues_clone_tickets() {
    let client = Client::anonymous(Options { session_manager_token: "secret".to_owned(), ..Options::default() });
    let get = |token| Request::get("https://manager.test/session-manager").header("authorization", token);
    assert_eq!(client.send(get("Bearer wrong").body("".into()).unwrap()).await.0, 401);
    let (status, body) = client.send(get("Bearer secret").body("".into()).unwrap()).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    let ticket = format!("<cloneTicket>{}</cloneTicket>", answer["token"].as_str().unwrap());
    let mut cloned = client.another();
    assert_eq!(cloned.log_in_with("CloneSession", &ticket, "").await.0, 200);
    assert_eq!(client.vcenter.sessions(), (1, 0));
}

#[tokio::test]
async fn the_rest_api_accepts_a_soap_session_only_if_sessions_are_shared() {
    let client = Client::new(Options::default()).await;
    let id = client.cookie.split_once('=').unwrap().1.trim_matches('"');
    assert_eq!(client.rest("GET", "tagging/tag", id, Value::Null).await, (200, json!({"value": []})));
    client.vcenter.configure(|options| options.shared_sessions = false);
    assert_eq!(client.rest("GET", "tagging/tag", id, Value::Null).await.0, 401);
}

#[tokio::test]
async fn sessions_can_end_in_the_middle_of_pages() {
    let client = Client::new(Options::default()).await;
    client.vcenter.add_machine(Machine::named("node-3", "10.10.1.3")).unwrap();
    client.vcenter.end_sessions_before("ContinueRetrievePropertiesEx");
    let (_, first) = client.list(&["name"], "2").await;
    assert_eq!(texts(&first, "objects").len(), 2);
    assert_eq!(fault(&client.next_page(&first).await), "InvalidArgument");
    assert_eq!(client.vcenter.sessions(), (0, 0));
}
