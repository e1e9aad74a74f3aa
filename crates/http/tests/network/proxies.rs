//! Tests of proxies. The exceptions have unit tests.

use std::sync::{Arc, Mutex};

use bowline_config::Environment;
use bowline_http::{Proxies, RequestError, Tls};
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::server::{Behaviour, Server, read_request};
use super::tls::{acceptor, for_names, new_ca, signed, trusting};
use super::{client, get};

/// A proxy that requires a password, and resolves every name to this machine.
struct Proxy {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

/// Header value of `sailor:s3cret`.
const CREDENTIALS: &str = "Basic c2FpbG9yOnMzY3JldA==";

impl Proxy {
    async fn start() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, heads) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
        let recorded = heads.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(forward(stream, recorded.clone()));
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

async fn forward(mut client: TcpStream, recorded: Arc<Mutex<Vec<String>>>) {
    let Some(head) = read_request(&mut client).await else { return };
    recorded.lock().unwrap().push(head.clone());
    if !head.to_ascii_lowercase().contains(&format!("proxy-authorization: {CREDENTIALS}").to_ascii_lowercase()) {
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
async fn https_uses_a_tunnel_and_the_name_of_the_server() {
    let (ca, proxy) = (new_ca(), Proxy::start().await);
    let server = Server::secure(acceptor(&signed(for_names(&["keystone.example.com"]), &ca), None)).await;
    let client = client(trusting(ca.pem()), proxy.environment("sailor:s3%63ret@", ""));
    let (_, body) = get(&client, &server.at("keystone.example.com", "/v3")).await.unwrap();
    assert_eq!(body, "GET /v3 HTTP/1.1");
    assert_eq!(proxy.lines(), [format!("CONNECT keystone.example.com:{} HTTP/1.1", server.port())]);
    assert!(!proxy.heads.lock().unwrap()[0].contains("/v3"));
}

#[tokio::test]
async fn http_is_forwarded_by_the_proxy() {
    let (server, proxy) = (Server::start(Behaviour::KeepAlive).await, Proxy::start().await);
    let client = client(Tls::default(), proxy.environment("sailor:s3cret@", ""));
    let url = server.at("keystone.example.com", "/");
    let (_, body) = get(&client, &url).await.unwrap();
    assert_eq!(body, format!("GET {url} HTTP/1.1"));
    assert_eq!(proxy.lines(), [format!("GET {url} HTTP/1.1")]);
}

#[tokio::test]
async fn exceptions_and_localhost_bypass_the_proxy() {
    let (server, proxy) = (Server::start(Behaviour::KeepAlive).await, Proxy::start().await);
    let client = client(Tls::default(), proxy.environment("", "localhost.localdomain,10.0.0.0/8"));
    for host in ["127.0.0.1", "localhost"] {
        assert!(get(&client, &server.at(host, "/")).await.is_ok(), "{host}");
    }
    assert!(proxy.lines().is_empty());
}

#[tokio::test]
async fn a_rejecting_proxy_is_reported_by_address_without_its_password() {
    let proxy = Proxy::start().await;
    let client = client(Tls::default(), proxy.environment("sailor:wrong@", ""));
    let error = get(&client, "https://keystone.example.com/v3").await.unwrap_err();
    let expected = format!(
        "cannot connect: proxy 127.0.0.1:{}: CONNECT keystone.example.com:443 failed: \
         HTTP/1.1 407 Proxy Authentication Required",
        proxy.port
    );
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn an_unreachable_proxy_is_reported() {
    let url = Server::closed_port().await;
    let proxies = Proxies::from_environment(&Environment::from_iter([("HTTPS_PROXY", url.as_str())])).unwrap();
    let error = get(&client(Tls::default(), proxies), "https://keystone.example.com/v3").await.unwrap_err();
    assert!(matches!(&error, RequestError::Connect(why) if why.starts_with("proxy 127.0.0.1:")), "{error:?}");
}
