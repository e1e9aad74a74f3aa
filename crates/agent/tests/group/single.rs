//! A group of one agent: traffic, state file, socket.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::group::{Group, asking, eventually};

/// Server that sends its name and closes.
async fn target(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(name.as_bytes()).await;
        }
    });
    address
}

async fn get(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    if text.is_empty() { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(text) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_has_the_same_addresses_and_targets_at_once() {
    let mut group = Group::start(1, "").await;
    let node = target("one").await;
    let ip = group.create("front", 8080, &[node]).await.unwrap();
    let address = format!("{ip}:8080");
    assert_eq!(get(&address).await.unwrap(), "one");
    for _ in 0..3 {
        let load = address.clone();
        let load = tokio::spawn(async move {
            let (mut failed, start) = (None, Instant::now());
            while start.elapsed() < Duration::from_secs(2) {
                match get(&load).await {
                    Ok(_) if failed.is_some() => return failed.map(|failed: Instant| failed.elapsed()),
                    Ok(_) => {}
                    Err(_) => failed = failed.or(Some(Instant::now())),
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            None
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        group.kill(0);
        group.run(0).await.unwrap();
        // Without delay: the sockets are bound when the agent runs, unless the machine is busy.
        let restarted = Instant::now();
        while get(&address).await.is_err() {
            assert!(restarted.elapsed() < Duration::from_secs(30), "{address} does not respond");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        eprintln!("connections failed for {:?}", load.await.unwrap());
    }
    let found = group.observe("front").await.unwrap();
    assert_eq!(found["balancer"]["targets"][0]["addresses"], json!(["127.0.0.1"]));
    let owner = "namespace=\"web\",";
    let accepted =
        &format!("bowline_agent_connections_total{{balancer=\"front\",{owner}result=\"accepted\",service=\"front\"}}");
    assert!(group.metric(0, accepted).await >= 1.0);
    let bytes = format!("bowline_agent_bytes_total{{balancer=\"front\",direction=\"out\",{owner}service=\"front\"}}");
    assert!(group.metric(0, &bytes).await >= 3.0);
    assert_eq!(group.metric(0, "bowline_agent_addresses_held").await, 1.0);
    assert_eq!(group.metric(0, "bowline_agent_role{role=\"active\"}").await, 1.0);
    assert_eq!(group.metrics(0, "/healthz").await.0.as_u16(), 200);
    assert_eq!(group.metrics(0, "/readyz").await.0.as_u16(), 200);
    assert_eq!(group.metrics(0, "/").await.0.as_u16(), 404);
}

fn create_address(service: &str) -> Value {
    json!({"asking": asking(service), "change": {"call": "create-address", "desired": {"family": "IPv4"}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_cannot_be_stored_is_an_error_and_changes_nothing() {
    let group = Group::start(1, "").await;
    let ip = group.create("front", 8080, &[]).await.unwrap();
    let path = group.state_file("lb-1");
    let before = std::fs::read(&path).unwrap();
    // A directory in the place of the temporary file, because root ignores permissions.
    let obstacle = path.with_file_name("state.json.new");
    std::fs::create_dir(&obstacle).unwrap();
    let (status, body) = group.post(0, "/v1/balancers/change", &create_address("b")).await.unwrap();
    assert_eq!((status.as_u16(), &body["error"]["code"]), (500, &json!("storage")), "{body}");
    assert!(body["error"]["message"].as_str().unwrap().contains("check the disk"), "{body}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(group.observe("b").await.unwrap()["addresses"], json!([]));
    let found = group.observe("front").await.unwrap();
    assert_eq!(found["addresses"][0]["ip"], json!(ip));
    assert!(found["warnings"].to_string().contains("cannot be written"), "{found}");
    assert_eq!(group.metrics(0, "/readyz").await.0.as_u16(), 503);
    std::fs::remove_dir(&obstacle).unwrap();
    let (status, _) = group.post(0, "/v1/balancers/change", &create_address("b")).await.unwrap();
    assert_eq!(status.as_u16(), 200);
    assert_eq!(group.status(0).await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_state_file_prevents_the_start_and_stays_as_it_is() {
    let mut group = Group::start(1, "").await;
    group.create("front", 8080, &[]).await.unwrap();
    group.kill(0);
    let path = group.state_file("lb-1");
    let good = std::fs::read_to_string(&path).unwrap();
    for text in ["", &good[..good.len() / 2], "{\"format\": 1}"] {
        std::fs::write(&path, text).unwrap();
        let error = group.run(0).await.unwrap_err().to_string();
        assert!(error.contains("state.json is damaged: ") && error.contains("at line "), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::write(&path, &good).unwrap();
    group.run(0).await.unwrap();
    group.settled().await;
    assert_eq!(group.observe("front").await.unwrap()["balancer"]["name"], json!("front"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_in_the_pool_is_rejected_with_the_name_of_the_node() {
    let group = Group::start(1, "").await;
    let ip = group.create("front", 8080, &[]).await.unwrap();
    let error = group.create("back", 8081, &[format!("{ip}:30000").parse().unwrap()]).await.unwrap_err();
    let expected = format!("the Node \\\"node-{ip}\\\" has the address {ip}, which is in the pool ");
    assert!(
        error.contains("400") && error.contains(&expected) && error.contains("fix: remove it from `pool`"),
        "{error}"
    );
    assert_eq!(group.observe("back").await.unwrap()["balancer"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_is_for_its_owner_only() {
    let mut group = Group::new(1, "").await;
    let socket = group.scratch.0.join("agent.sock");
    let state = group.state_file("lb-1");
    group.nodes[0].config = format!(
        "name: lb-1\nlisten: unix:{}\nstateFile: {}\nmetricsListen: 127.0.0.1:0\nroutes: {{enabled: false}}\npool: [127.1.99.0/24]\n",
        socket.display(),
        state.display()
    );
    // A socket of an earlier process is replaced.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    group.run(0).await.unwrap();
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let second = group.run(0).await.unwrap_err().to_string();
    assert!(second.contains("is in use by another agent"), "{second}");
    let request = |path: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nBowline-Agent-API: 1\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    for (path, status) in [("/v1/balancers/find", "200 OK"), ("/v1/peer/state", "403 Forbidden")] {
        // The agent is not active at once.
        let responds = async || {
            let mut stream = UnixStream::connect(&socket).await.unwrap();
            stream.write_all(request(path, "{\"asking\": []}").as_bytes()).await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text.starts_with(&format!("HTTP/1.1 {status}"))
        };
        eventually(responds, || format!("{path}: not {status}")).await;
    }
}
