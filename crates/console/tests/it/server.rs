//! The server of the page over HTTP: what it serves, and what it rejects.

use bowline_console::page::Action;
use bowline_console::{Document, Position};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::page::Page;
use crate::sample;

/// Files of the page.
const FILES: &[&str] = &[
    "/",
    "/console.css",
    "/icon.svg",
    "/format.js",
    "/dom.js",
    "/explain.js",
    "/route.js",
    "/feed.js",
    "/charts.js",
    "/parts.js",
    "/attention.js",
    "/overview.js",
    "/grid.js",
    "/lists.js",
    "/now.js",
    "/playground.js",
    "/details.js",
    "/console.js",
];

struct Response {
    status: u16,
    headers: String,
    body: String,
}

impl Response {
    fn header(&self, name: &str) -> &str {
        let line = self.headers.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Sends a request with exactly these headers, as no browser would.
async fn send(page: &Page, request: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let mut stream = TcpStream::connect(page.address).await.unwrap();
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\n{lines}content-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server may respond and close before it has read a large body.
    let _written = stream.write_all(body.as_bytes()).await;
    let mut received = Vec::new();
    let _closed = stream.read_to_end(&mut received).await;
    let received = String::from_utf8(received).unwrap();
    let (headers, body) = received.split_once("\r\n\r\n").unwrap_or((&received, ""));
    let status = headers.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    Response { status, headers: headers.to_ascii_lowercase(), body: body.to_owned() }
}

/// Sends a request with the right host and token.
async fn get(page: &Page, path: &str) -> Response {
    let host = page.address.to_string();
    send(page, &format!("GET {path}"), &[("host", &host), ("x-bowline-token", page.token())], "").await
}

async fn act(page: &Page, headers: &[(&str, &str)], body: &Value) -> Response {
    let host = page.address.to_string();
    let headers: Vec<_> = [("host", host.as_str())].into_iter().chain(headers.iter().copied()).collect();
    send(page, "POST /actions", &headers, &body.to_string()).await
}

#[tokio::test]
async fn every_response_has_a_strict_policy_and_is_stored_nowhere() {
    let page = Page::serve(sample::small());
    let answers = FILES.iter().copied().chain(["/session", "/document", "/missing", "/actions"]);
    for path in answers {
        let response = get(&page, path).await;
        let policy = response.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'none'"), "{path}: {policy}");
        assert_eq!(response.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(response.header("cache-control"), "no-store", "{path}");
        assert_eq!(response.header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(response.header("cross-origin-resource-policy"), "same-origin", "{path}");
        assert_eq!(response.header("access-control-allow-origin"), "", "{path}");
    }
}

#[tokio::test]
async fn files_need_no_token_and_have_neither_data_nor_inline_code_nor_other_origins() {
    let page = Page::serve(sample::small());
    let host = page.address.to_string();
    let mut size = 0;
    for path in FILES {
        let response = send(&page, &format!("GET {path}"), &[("host", &host)], "").await;
        assert_eq!(response.status, 200, "{path}");
        let text = response.body.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !text.contains("http://") && !text.contains("https://") && !text.contains("//cdn"),
            "{path} names another origin"
        );
        assert!(
            !text.contains("innerHTML") && !text.contains("insertAdjacentHTML") && !text.contains("document.write"),
            "{path}"
        );
        assert!(!text.contains("eval(") && !text.contains("new Function"), "{path}");
        size += response.body.len();
    }
    println!("the page has {size} bytes in {} files", FILES.len());
    let html = send(&page, "GET /", &[("host", &host)], "").await.body;
    assert!(!html.contains(" style=") && !html.contains(" on") && !html.contains("<style"), "no inline code");
    assert_eq!(html.matches("<script").count(), 1);
    assert!(html.contains(r#"<script type="module" src="/console.js"></script>"#));
}

#[tokio::test]
async fn every_module_that_is_imported_is_served() {
    let page = Page::serve(Document::default());
    for path in FILES.iter().filter(|path| path.ends_with(".js")) {
        for line in get(&page, path).await.body.lines().filter(|line| line.contains(" from \"")) {
            let module = line.split('"').nth(1).unwrap().trim_start_matches('.').to_owned();
            assert!(FILES.contains(&module.as_str()), "{path} imports {module}");
        }
    }
}

#[tokio::test]
async fn data_and_actions_need_the_token() {
    let page = Page::serve(sample::small());
    let (host, stop) = (page.address.to_string(), json!({ "action": "stopMachine", "target": "m-000b" }));
    for token in ["", "wrong", &page.token()[1..], &format!("{}0", page.token())] {
        for path in ["/session", "/document"] {
            let response =
                send(&page, &format!("GET {path}"), &[("host", &host), ("x-bowline-token", token)], "").await;
            assert_eq!(response.status, 401, "{path} with {token:?}");
            assert!(response.json()["error"].as_str().unwrap().contains("open the URL"), "{}", response.body);
        }
        assert_eq!(
            act(&page, &[("x-bowline-token", token), ("content-type", "application/json")], &stop).await.status,
            401
        );
    }
    // Not in the query either, which would be logged.
    let response = send(&page, &format!("GET /document?token={}", page.token()), &[("host", &host)], "").await;
    assert_eq!(response.status, 401);
    assert_eq!(get(&page, "/document").await.status, 200);
    assert!(page.performed.take().is_empty());
    let other = Page::serve(sample::small());
    assert_ne!(other.token(), page.token());
    assert_eq!(page.token().len(), 40);
}

#[tokio::test]
async fn another_host_is_rejected_even_with_the_token() {
    let page = Page::serve(sample::small());
    let port = page.address.port();
    let hosts = [
        "attacker.example".to_owned(),
        format!("attacker.example:{port}"),
        format!("127.0.0.1.attacker.example:{port}"),
        format!("localhost.attacker.example:{port}"),
        format!("10.0.0.1:{port}"),
        format!("127.0.0.1:{}", port.wrapping_add(1)),
        "127.0.0.1".to_owned(),
        String::new(),
    ];
    for host in &hosts {
        for path in ["/", "/console.js", "/session", "/document"] {
            let headers = [("host", host.as_str()), ("x-bowline-token", page.token())];
            let response = send(&page, &format!("GET {path}"), &headers, "").await;
            assert_eq!(response.status, 421, "{path} of {host:?}");
            assert!(!response.body.contains("worker-1"), "no data for {host:?}");
        }
    }
    for host in
        [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}"), format!("127.0.0.2:{port}")]
    {
        let headers = [("host", host.as_str()), ("x-bowline-token", page.token())];
        assert_eq!(send(&page, "GET /document", &headers, "").await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn a_page_of_another_origin_cannot_act() {
    let page = Page::serve(sample::small());
    let stop = json!({ "action": "stopMachine", "target": "m-000b" });
    let (token, json) = (("x-bowline-token", page.token()), ("content-type", "application/json"));
    let origin = format!("http://{}", page.address);
    let cases: [(&[(&str, &str)], u16); 9] = [
        (&[json, ("origin", "http://attacker.example")], 401),
        (&[token, json, ("origin", "http://attacker.example")], 403),
        (&[token, json, ("origin", "null")], 403),
        (&[token, json, ("origin", "http://127.0.0.1:1")], 403),
        (&[token, json, ("sec-fetch-site", "cross-site")], 403),
        (&[token, json, ("sec-fetch-site", "same-site")], 403),
        (&[token, ("content-type", "application/x-www-form-urlencoded")], 415),
        (&[token, ("content-type", "text/plain")], 415),
        (&[token], 415),
    ];
    for (headers, status) in cases {
        assert_eq!(act(&page, headers, &stop).await.status, status, "{headers:?}");
    }
    assert!(page.performed.take().is_empty());
    assert_eq!(
        act(&page, &[token, json, ("origin", &origin), ("sec-fetch-site", "same-origin")], &stop).await.status,
        200
    );
    assert_eq!(act(&page, &[token, ("content-type", "application/json; charset=utf-8")], &stop).await.status, 200);
    let stopped = Action::StopMachine("m-000b".to_owned());
    assert_eq!(page.performed.take(), [stopped.clone(), stopped]);
}

#[tokio::test]
async fn an_action_responds_with_its_result() {
    let page = Page::serve(sample::small());
    let headers = [("x-bowline-token", page.token()), ("content-type", "application/json")];
    let response = act(&page, &headers, &json!({ "action": "startFault", "target": "slow" })).await;
    assert_eq!(
        (response.status, response.json()["message"].as_str().unwrap()),
        (200, "Performed StartFault(\"slow\").")
    );
    let response = act(&page, &headers, &json!({ "action": "startFault", "target": "broken" })).await;
    assert_eq!(
        (response.status, response.json()["error"].as_str().unwrap()),
        (409, "the cloud is broken; repair it first")
    );
    page.performed.take();
    let invalid = [
        json!({}),
        json!([]),
        json!({ "action": "format", "target": "c" }),
        json!({ "action": "stopMachine" }),
        json!({ "action": "stopMachine", "target": 1 }),
    ];
    for body in invalid {
        assert_eq!(act(&page, &headers, &body).await.status, 400, "{body}");
    }
    let large = json!({ "action": "stopMachine", "target": "x".repeat(5_000) });
    assert_eq!(act(&page, &headers, &large).await.status, 413);
    let huge = json!({ "action": "stopMachine", "target": "x".repeat(9 << 20) });
    assert!(matches!(act(&page, &headers, &huge).await.status, 0 | 413));
    assert!(page.performed.take().is_empty());
}

#[tokio::test]
async fn a_page_without_actions_has_no_such_path() {
    let page = Page::serve_read_only(sample::small());
    let headers = [("x-bowline-token", page.token()), ("content-type", "application/json")];
    let response = act(&page, &headers, &json!({ "action": "stopMachine", "target": "m-000b" })).await;
    assert_eq!(response.status, 404);
    assert!(response.body.contains("read-only"), "{}", response.body);
    let session = get(&page, "/session").await.json();
    assert_eq!((&session["source"], &session["actions"]), (&json!("cluster"), &json!(false)));
}

#[tokio::test]
async fn other_methods_and_paths_are_rejected() {
    let page = Page::serve(sample::small());
    let host = page.address.to_string();
    let headers = [("host", host.as_str()), ("x-bowline-token", page.token())];
    for request in ["POST /", "POST /document", "PUT /session", "DELETE /actions", "GET /actions", "OPTIONS /actions"] {
        assert_eq!(send(&page, request, &headers, "").await.status, 405, "{request}");
    }
    for path in
        ["/missing", "/favicon.ico", "/console.css/", "/../Cargo.toml", "/assets/console.js", "//", "/document/"]
    {
        assert_eq!(get(&page, path).await.status, 404, "{path}");
    }
    let head = send(&page, "HEAD /console.js", &headers, "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[tokio::test]
async fn a_client_gets_the_document_and_then_its_changes() {
    let page = Page::serve(sample::small());
    let whole = get(&page, "/document").await.json();
    assert_eq!(whole["complete"], json!(true));
    assert_eq!(whole["items"]["service/shop/web"]["addresses"], json!(["203.0.113.200"]));
    let position =
        Position { epoch: whole["epoch"].as_str().unwrap().to_owned(), revision: whole["revision"].as_u64().unwrap() };
    page.sample.document().fault.remove("slow");
    let path = format!("/document?epoch={}&since={}", position.epoch, position.revision);
    let changes = loop {
        let changes = get(&page, &path).await.json();
        if changes["removed"] != Value::Null {
            break changes;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert_eq!(
        (&changes["complete"], &changes["items"], &changes["removed"]),
        (&json!(false), &json!({}), &json!(["fault/slow"]))
    );
    page.feed.set(Err("the API server does not respond"));
    let response = get(&page, &path).await;
    assert_eq!((response.status, response.json()), (502, json!({ "error": "the API server does not respond" })));
}
