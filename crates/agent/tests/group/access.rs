//! Certificates, permissions and versions.

use bowline_agent::{NewCertificates, Usage, create_certificates};
use bytes::Bytes;
use http::{Method, Request};
use serde_json::json;

use crate::group::{Group, client, eventually, send};

#[tokio::test(flavor = "multi_thread")]
async fn only_listed_names_with_certificates_of_the_ca_are_served() {
    let group = Group::start(2, "").await;
    let (active, _) = group.settled().await;
    let (pki, address) = (group.scratch.0.join("pki"), group.nodes[active].address);
    let find = json!({"asking": []});
    let post = |name: Option<&str>, path: &'static str| {
        let (client, find) = (client(&pki, name), find.clone());
        async move { send(&client, address, Method::POST, path, Some(&find)).await }
    };
    let missing = post(None, "/v1/balancers/find").await.unwrap_err();
    assert!(!missing.is_empty());
    let table = [
        ("bowline", "/v1/balancers/find", 200),
        ("intruder", "/v1/balancers/find", 403),
        ("lb-2", "/v1/balancers/find", 403),
        ("bowline", "/v1/peer/state", 403),
        ("bowline", "/v1/balancers", 404),
        ("bowline", "/v1/status", 405),
    ];
    for (name, path, expected) in table {
        let (mut status, mut body) = post(Some(name), path).await.unwrap();
        // On a busy machine, the agent may be fenced for a moment, which concerns only calls that are permitted.
        for _ in 0..600 {
            if expected != 200 || ![421, 503].contains(&status.as_u16()) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            let (active, _) = group.settled().await;
            let client = client(&pki, Some(name));
            let again = send(&client, group.nodes[active].address, Method::POST, path, Some(&find)).await;
            (status, body) = again.unwrap();
        }
        assert_eq!(status.as_u16(), expected, "{name} {path}: {body}");
        if expected == 403 && name == "intruder" {
            let message = body["error"]["message"].as_str().unwrap();
            assert_eq!(body["error"]["code"], json!("forbidden"));
            assert!(message.contains("[\"intruder\"]") && message.contains("`clients`"), "{message}");
        }
    }
    // A certificate of another CA with the right name.
    let foreign = group.scratch.0.join("foreign");
    let new =
        NewCertificates { directory: foreign.clone(), agents: vec![], clients: vec!["bowline".to_owned()], days: 1 };
    create_certificates(&new).unwrap();
    std::fs::copy(pki.join("ca.crt"), foreign.join("ca.crt")).unwrap();
    let rejected =
        send(&client(&foreign, Some("bowline")), address, Method::POST, "/v1/balancers/find", Some(&find)).await;
    assert!(rejected.is_err(), "{rejected:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_of_the_api_is_rejected_with_advice() {
    let group = Group::start(1, "").await;
    group.settled().await;
    for (version, advice) in [(Some("2"), "upgrade this side"), (Some("0"), "upgrade that side"), (None, "no header")] {
        let uri = format!("https://{}/v1/balancers/find", group.nodes[0].address);
        let mut request = Request::post(uri).header("Content-Type", "application/json");
        if let Some(version) = version {
            request = request.header("Bowline-Agent-API", version);
        }
        let response =
            group.client("bowline").send(request.body(Bytes::from_static(b"{\"asking\":[]}")).unwrap()).await.unwrap();
        let text = String::from_utf8_lossy(response.body()).into_owned();
        assert_eq!(response.status().as_u16(), 400, "{text}");
        assert!(text.contains("apiVersion") && text.contains(advice), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_get_an_error_with_a_code() {
    let group = Group::start(1, "").await;
    group.settled().await;
    let (status, body) = group.post(0, "/v1/balancers/find", &json!({"asking": [{"kee": 1}]})).await.unwrap();
    assert_eq!((status.as_u16(), &body["error"]["code"]), (400, &json!("invalid")), "{body}");
    let large = json!({"asking": [], "padding": "a".repeat(17 << 20)});
    let (status, body) = group.post(0, "/v1/balancers/find", &large).await.unwrap();
    assert_eq!((status.as_u16(), &body["error"]["code"]), (413, &json!("too_large")));
    let request = Request::post(format!("https://{}/v1/balancers/find", group.nodes[0].address));
    let request = request.header("Bowline-Agent-API", "1").body(Bytes::new()).unwrap();
    assert_eq!(group.client("bowline").send(request).await.unwrap().status().as_u16(), 415);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_certificates_are_used_without_a_restart() {
    let group = Group::start(2, "").await;
    group.settled().await;
    let pki = group.scratch.0.join("pki");
    let new = NewCertificates {
        directory: group.scratch.0.join("next"),
        agents: ["lb-1", "lb-2"]
            .map(|name| {
                (
                    name.to_owned(),
                    vec![
                        "127.0.0.1".to_owned(),
                        group.nodes[0].address.ip().to_string(),
                        group.nodes[1].address.ip().to_string(),
                    ],
                )
            })
            .to_vec(),
        clients: vec!["bowline".to_owned()],
        days: 1,
    };
    let files = create_certificates(&new).unwrap();
    // Both CAs are trusted for a while.
    let both = ["pki", "next"]
        .map(|name| std::fs::read_to_string(group.scratch.0.join(name).join("ca.crt")).unwrap())
        .concat();
    let mixed = group.scratch.0.join("mixed");
    std::fs::create_dir(&mixed).unwrap();
    for (from, file) in [(&pki, "ca.crt"), (&new.directory, "bowline.crt"), (&new.directory, "bowline.key")] {
        std::fs::copy(from.join(file), mixed.join(file)).unwrap();
    }
    std::fs::write(pki.join("ca.crt"), both).unwrap();
    let old_server = client(&mixed, Some("bowline"));
    for node in &group.nodes {
        let is_served = async || send(&old_server, node.address, Method::GET, "/v1/status", None).await.is_ok();
        eventually(is_served, || "the second CA is not trusted".to_owned()).await;
    }
    let of_agents = files.iter().filter(|file| file.usage != Usage::Authority);
    for file in of_agents.flat_map(|file| [&file.certificate, &file.key]) {
        std::fs::copy(file, pki.join(file.file_name().unwrap())).unwrap();
    }
    let only_next = client(&group.scratch.0.join("next"), Some("bowline"));
    for node in &group.nodes {
        let is_served = async || send(&only_next, node.address, Method::GET, "/v1/status", None).await.is_ok();
        eventually(is_served, || "the next certificate is not used".to_owned()).await;
    }
    let (active, _) = group.settled().await;
    let is_reached = async || group.status(active).await.unwrap().peers[0].reachable;
    eventually(is_reached, || "the agents do not reach each other with the next certificates".to_owned()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_with_another_name_prevents_the_start() {
    let mut group = Group::new(2, "").await;
    group.nodes[0].config = group.nodes[0].config.replace("lb-1.crt", "lb-2.crt");
    let error = group.run(0).await.unwrap_err().to_string();
    assert!(error.contains("lb-2.crt: the certificate has the names [\"lb-2\"") && error.contains("lb-1"), "{error}");
    group.nodes[0].config = group.nodes[0].config.replace("lb-2.crt", "lb-1.crt").replace("lb-1.key", "lb-2.key");
    let error = group.run(0).await.unwrap_err().to_string();
    assert!(error.contains("lb-2.key: does not fit the certificate"), "{error}");
}

/// A follower reads beats. The term that it claims would make the agents reject each other's changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_a_follower_has_no_effect() {
    let group = Group::start(2, "followers: [intruder]\n").await;
    group.settled().await;
    let claim = json!({"name": "lb-2", "term": u64::MAX, "version": {"seq": 9, "by": {"term": 9, "nonce": 0}}});
    for node in &group.nodes {
        let request = Request::get(format!("https://{}/v1/peer/beat", node.address)).header("Bowline-Agent-API", "1");
        let request = request.header("bowline-agent-claim", claim.to_string()).body(Bytes::new()).unwrap();
        let response = group.client("intruder").send(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{:?}", response.body());
    }
    group.create("front", 8080, &[]).await.unwrap();
    for index in 0..2 {
        let term = group.status(index).await.unwrap().term;
        assert!(term < 1000, "{term}");
    }
}
