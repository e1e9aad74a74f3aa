//! `pods/proxy`, over the API server's TLS port and HTTP/1 and HTTP/2 clients.

use std::net::SocketAddr;
use std::sync::Arc;

use bowline_apiserver::{ApiServer, AuthorizationMode, Options};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::Failure;

/// Responds with the request it received, as JSON.
async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Failure> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let headers = |name: &str| {
        let values = head.headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect::<Vec<_>>().join(";")
    };
    let names: Vec<&str> = head.headers.keys().map(|name| name.as_str()).collect();
    let seen = json!({
        "method": head.method.as_str(),
        "target": head.uri.to_string(),
        "body": String::from_utf8_lossy(&body),
        "names": names,
        "token": headers("x-token"),
        "forwardedFor": headers("x-forwarded-for"),
        "forwardedUri": headers("x-forwarded-uri"),
        "forwardedProto": headers("x-forwarded-proto"),
        "host": headers("host"),
        "forwardedHost": headers("x-forwarded-host"),
    });
    let status = if head.uri.path() == "/teapot" { StatusCode::IM_A_TEAPOT } else { StatusCode::OK };
    let response = Response::builder().status(status).header("access-control-allow-origin", "*");
    Ok(response.header("x-from", "pod").header("connection", "close").body(Full::new(seen.to_string().into()))?)
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(echo)).await;
}

/// Starts a server on loopback, with TLS and an untrusted certificate if `tls` is set.
async fn start_pod(tls: bool) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let acceptor = if tls { Some(self_signed()?) } else { None };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                match acceptor {
                    None => serve(stream).await,
                    Some(acceptor) => {
                        if let Ok(stream) = acceptor.accept(stream).await {
                            serve(stream).await;
                        }
                    }
                }
            });
        }
    });
    Ok(address)
}

fn self_signed() -> Result<TlsAcceptor, Failure> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["other.example".to_owned()])?.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn server(loopback_endpoints: bool) -> Result<ApiServer, Failure> {
    let options = Options { authorization: AuthorizationMode::Rbac, loopback_endpoints, ..Options::default() };
    Ok(ApiServer::start(options).await?)
}

/// Creates the Pod `web`, with this address in its status.
async fn create_pod(server: &ApiServer, ip: Option<&str>) -> Result<(), Failure> {
    let pods: Api<Pod> = Api::namespaced(server.client().await?, "default");
    let pod = json!({
        "metadata": {"name": "web"},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "web", "image": "web"}]},
    });
    loop {
        match pods.create(&PostParams::default(), &serde_json::from_value(pod.clone())?).await {
            // The built-in controller has not created the default service account yet.
            Err(kube::Error::Api(status)) if status.code == 403 => tokio::task::yield_now().await,
            other => break drop(other?),
        }
    }
    if let Some(ip) = ip {
        let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
        pods.patch_status("web", &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    Ok(())
}

/// A client that does not retry when a service is unavailable.
async fn client(server: &ApiServer, user: &str, groups: &[&str]) -> Result<kube::Client, Failure> {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(&server.kubeconfig_for(user, groups)?)?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

async fn admin(server: &ApiServer) -> Result<kube::Client, Failure> {
    client(server, "admin", &["system:masters"]).await
}

/// A response of the API server.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| json!({"text": self.body}))
    }

    fn message(&self) -> (u16, String) {
        (self.status, self.json()["message"].as_str().unwrap_or_default().to_owned())
    }
}

async fn send(client: &kube::Client, request: Request<Vec<u8>>) -> Result<Answer, Failure> {
    let (head, body) = client.send(request.map(kube::client::Body::from)).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: String::from_utf8(body.to_vec())? })
}

async fn get(client: &kube::Client, path: &str) -> Result<Answer, Failure> {
    send(client, Request::get(format!("/api/v1/namespaces/default/pods/{path}")).body(Vec::new())?).await
}

#[tokio::test]
async fn a_request_reaches_the_pod_without_the_credentials_of_the_client() -> Result<(), Failure> {
    let (server, pod) = (server(true).await?, start_pod(false).await?);
    create_pod(&server, Some("127.0.0.1")).await?;
    let path = format!("/api/v1/namespaces/default/pods/web:{}/proxy/a%20b/c/?x=1&y=%2F", pod.port());
    let request = Request::post(&path)
        .header("authorization", "Bearer secret")
        .header("impersonate-user", "jane")
        .header("impersonate-group", "system:masters")
        .header("x-token", "Bearer for-the-pod")
        .header("x-forwarded-for", "192.0.2.1")
        .body(b"hello".to_vec())?;
    let answer = send(&admin(&server).await?, request).await?;
    assert_eq!((answer.status, answer.headers["x-from"].to_str()?), (200, "pod"), "{}", answer.body);
    assert!(!answer.headers.contains_key("access-control-allow-origin") && answer.headers.contains_key("audit-id"));
    let seen = answer.json();
    assert_eq!(
        (&seen["method"], &seen["target"], &seen["body"]),
        (&json!("POST"), &json!("/a%20b/c/?x=1&y=%2F"), &json!("hello"))
    );
    assert_eq!((&seen["token"], &seen["forwardedFor"]), (&json!("Bearer for-the-pod"), &json!("192.0.2.1, 127.0.0.1")));
    assert_eq!((&seen["forwardedUri"], &seen["forwardedProto"]), (&json!(path.split('?').next()), &json!("https")));
    assert_eq!(seen["host"], seen["forwardedHost"]);
    let names = seen["names"].to_string();
    assert!(!names.contains("authorization") && !names.contains("impersonate"), "{names}");
    Ok(())
}

#[tokio::test]
async fn https_is_used_without_verification_and_the_status_of_the_pod_is_passed_on() -> Result<(), Failure> {
    let (server, pod) = (server(true).await?, start_pod(true).await?);
    create_pod(&server, Some("127.0.0.1")).await?;
    let client = admin(&server).await?;
    let answer = get(&client, &format!("https:web:{}/proxy/teapot", pod.port())).await?;
    assert_eq!((answer.status, &answer.json()["target"]), (418, &json!("/teapot")));
    // Without a path, the client is redirected, so that relative links work.
    let answer = get(&client, &format!("https:web:{}/proxy?x=1", pod.port())).await?;
    let location = format!("/api/v1/namespaces/default/pods/https:web:{}/proxy/?x=1", pod.port());
    assert_eq!((answer.status, answer.headers["location"].to_str()?), (301, location.as_str()));
    // A Pod with TLS that is addressed without it closes the connection, or answers with rubbish.
    let (status, message) = get(&client, &format!("web:{}/proxy/", pod.port())).await?.message();
    assert!(status == 503 && message.starts_with("error trying to reach service: "), "{message}");
    Ok(())
}

#[tokio::test]
async fn an_http2_client_has_its_host_passed_on() -> Result<(), Failure> {
    let (server, pod) = (server(true).await?, start_pod(false).await?);
    create_pod(&server, Some("127.0.0.1")).await?;
    server.add_token("admin", "admin", &["system:masters"]);
    let stream = crate::connections::connect(&server, b"h2").await?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let uri = format!("https://cluster.example/api/v1/namespaces/default/pods/web:{}/proxy/", pod.port());
    let request = Request::get(uri).header("authorization", "Bearer admin").body(Full::<Bytes>::default())?;
    let body = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
    let seen: Value = serde_json::from_slice(&body)?;
    assert_eq!((&seen["host"], &seen["target"]), (&json!("cluster.example"), &json!("/")));
    Ok(())
}

#[tokio::test]
async fn failures_have_the_messages_of_a_real_server() -> Result<(), Failure> {
    let server = server(true).await?;
    create_pod(&server, None).await?;
    let client = admin(&server).await?;
    let closed = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let gone = get(&client, "gone:80/proxy/").await?;
    assert_eq!(
        (gone.message(), &gone.json()["reason"]),
        ((404, "pods \"gone\" not found".to_owned()), &json!("NotFound"))
    );
    assert_eq!(
        get(&client, "ftp:web:80/proxy/").await?.message(),
        (400, "invalid pod request \"ftp:web:80\"".to_owned())
    );
    assert_eq!(get(&client, "web:80/proxy/").await?.message(), (400, "address not allowed".to_owned()));
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let status = json!({"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}});
    pods.patch_status("web", &PatchParams::default(), &Patch::Merge(status)).await?;
    let refused = get(&client, &format!("web:{}/proxy/", closed.port())).await?;
    let message = format!("error trying to reach service: dial tcp {closed}: connect: connection refused");
    assert_eq!((refused.message(), &refused.json()["reason"]), ((503, message), &json!("ServiceUnavailable")));
    let (status, message) = get(&client, "web:http/proxy/").await?.message();
    assert!(status == 503 && message.contains("unknown port tcp/http"), "{message}");
    Ok(())
}

#[tokio::test]
async fn loopback_addresses_need_the_option() -> Result<(), Failure> {
    let (server, pod) = (server(false).await?, start_pod(false).await?);
    create_pod(&server, Some("127.0.0.1")).await?;
    let answer = get(&admin(&server).await?, &format!("web:{}/proxy/", pod.port())).await?;
    assert_eq!(answer.message(), (400, "address not allowed".to_owned()));
    Ok(())
}

#[tokio::test]
async fn the_method_decides_which_verb_on_the_subresource_a_user_needs() -> Result<(), Failure> {
    let (server, pod) = (server(true).await?, start_pod(false).await?);
    create_pod(&server, Some("127.0.0.1")).await?;
    let admin = admin(&server).await?;
    let role = json!({
        "metadata": {"name": "viewer"},
        "rules": [{"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}],
    });
    let binding = json!({
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    let jane = client(&server, "jane", &[]).await?;
    let path = format!("web:{}/proxy/a", pod.port());
    let (status, message) = get(&jane, &path).await?.message();
    assert!(status == 403 && message.contains("cannot get resource \"pods/proxy\" in API group \"\""), "{message}");
    Api::<ClusterRole>::all(admin.clone()).create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    Api::<ClusterRoleBinding>::all(admin).create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    assert_eq!(get(&jane, &path).await?.status, 200);
    let uri = format!("/api/v1/namespaces/default/pods/{path}");
    assert_eq!(send(&jane, Request::head(&uri).body(Vec::new())?).await?.status, 200);
    for (method, verb) in [("POST", "create"), ("PUT", "update"), ("PATCH", "patch"), ("DELETE", "delete")] {
        let answer = send(&jane, Request::builder().method(method).uri(&uri).body(Vec::new())?).await?;
        let (status, message) = answer.message();
        assert!(status == 403 && message.contains(&format!("cannot {verb} resource \"pods/proxy\"")), "{message}");
    }
    Ok(())
}

#[tokio::test]
async fn discovery_lists_the_subresource() -> Result<(), Failure> {
    let server = server(false).await?;
    let resources = server.client().await?.list_core_api_resources("v1").await?;
    let proxy = resources.resources.iter().find(|resource| resource.name == "pods/proxy").ok_or("not listed")?;
    assert_eq!((proxy.kind.as_str(), proxy.namespaced), ("PodProxyOptions", true));
    assert_eq!(proxy.verbs, ["create", "delete", "get", "patch", "update"]);
    Ok(())
}
