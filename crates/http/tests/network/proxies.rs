//! Through proxies. Their exceptions have their tests beside them.

use std::sync::{Arc, Mutex};

use bowline_config::Environment;
use bowline_http::{Failure, Proxies, Tls};
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::server::{Behaviour, Server, read_request};
use super::tls::{acceptor, authority, for_names, signed, trusting};
use super::{client, get};

/// A proxy that wants a password, and knows every name as this machine.
struct Proxy {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

/// `sailor:s3cret` as it is sent.
const PROOF: &str = "Basic c2FpbG9yOnMzY3JldA==";

impl Proxy {
    async fn start() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, heads) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
        let seen = heads.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass(stream, seen.clone()));
            }
        });
        Proxy { port, heads }
    }

    fn environment(&self, user: &str, exceptions: &str) -> Proxies {
        let proxy = format!("http://{user}127.0.0.1:{}", self.port);
        let variables = [("HTTP_PROXY", proxy.as_str()), ("https_proxy", proxy.as_str()), ("NO_PROXY", exceptions)];
        Proxies::from_environment(&Environment::from_iter(variables)).unwrap()
    }

    fn lines(&self) -> Vec<String> {
        self.heads.lock().unwrap().iter().map(|head| head.lines().next().unwrap_or_default().to_owned()).collect()
    }
}

async fn pass(mut client: TcpStream, seen: Arc<Mutex<Vec<String>>>) {
    let Some(head) = read_request(&mut client).await else { return };
    seen.lock().unwrap().push(head.clone());
    if !head.to_ascii_lowercase().contains(&format!("proxy-authorization: {PROOF}").to_ascii_lowercase()) {
        let _ = client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n").await;
        return;
    }
    let target = head.split_whitespace().nth(1).unwrap_or_default();
    let port = target.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port.unwrap_or(0))).await else { return };
    if head.starts_with("CONNECT ") {
        let _ = client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await;
    } else {
        let _ = server.write_all(head.as_bytes()).await;
    }
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

#[tokio::test]
async fn what_is_encrypted_goes_through_a_tunnel_under_its_own_name() {
    let (authority, proxy) = (authority(), Proxy::start().await);
    let server = Server::secure(acceptor(&signed(for_names(&["keystone.example.com"]), &authority), None)).await;
    let client = client(trusting(authority.pem()), proxy.environment("sailor:s3%63ret@", ""));
    let (_, body) = get(&client, &server.at("keystone.example.com", "/v3")).await.unwrap();
    assert_eq!(body, "GET /v3 HTTP/1.1");
    assert_eq!(proxy.lines(), [format!("CONNECT keystone.example.com:{} HTTP/1.1", server.port())]);
    assert!(!proxy.heads.lock().unwrap()[0].contains("/v3"));
}

#[tokio::test]
async fn what_is_not_encrypted_is_read_by_the_proxy() {
    let (server, proxy) = (Server::start(Behaviour::Keeps).await, Proxy::start().await);
    let client = client(Tls::default(), proxy.environment("sailor:s3cret@", ""));
    let url = server.at("keystone.example.com", "/");
    let (_, body) = get(&client, &url).await.unwrap();
    assert_eq!(body, format!("GET {url} HTTP/1.1"));
    assert_eq!(proxy.lines(), [format!("GET {url} HTTP/1.1")]);
}

#[tokio::test]
async fn exceptions_and_this_machine_itself_are_asked_without_a_proxy() {
    let (server, proxy) = (Server::start(Behaviour::Keeps).await, Proxy::start().await);
    let client = client(Tls::default(), proxy.environment("", "localhost.localdomain,10.0.0.0/8"));
    for host in ["127.0.0.1", "localhost"] {
        assert!(get(&client, &server.at(host, "/")).await.is_ok(), "{host}");
    }
    assert!(proxy.lines().is_empty());
}

#[tokio::test]
async fn a_proxy_that_refuses_is_told_by_its_place_and_not_by_its_password() {
    let proxy = Proxy::start().await;
    let client = client(Tls::default(), proxy.environment("sailor:wrong@", ""));
    let failure = get(&client, "https://keystone.example.com/v3").await.unwrap_err();
    let expected = format!(
        "cannot connect: the proxy 127.0.0.1:{}: it does not connect to keystone.example.com:443: \
         HTTP/1.1 407 Proxy Authentication Required",
        proxy.port
    );
    assert_eq!(failure.to_string(), expected);
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_told_as_such() {
    let url = Server::nobody().await;
    let proxies = Proxies::from_environment(&Environment::from_iter([("HTTPS_PROXY", url.as_str())])).unwrap();
    let failure = get(&client(Tls::default(), proxies), "https://keystone.example.com/v3").await.unwrap_err();
    assert!(matches!(&failure, Failure::Connect(why) if why.starts_with("the proxy 127.0.0.1:")), "{failure:?}");
}
