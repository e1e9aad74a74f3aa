//! The page of `bowline playground`: what it shows, what it changes, and who may use it. These tests use its HTTP API, as its script
//! does; the one in `browser` uses the page itself.

mod browser;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Program, Scratch, Server, refused, within};

/// Generous timeout: the machine may be busy with other tests.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Start of the line with the URL of the page.
const READY: &str = "Console ready at ";

/// The page of a playground, as its script sees it.
pub(crate) struct Page {
    address: String,
    token: String,
    epoch: String,
    revision: u64,
    /// Items of the document by key.
    items: BTreeMap<String, Value>,
}

impl Page {
    /// Opens the page at its URL, such as `http://127.0.0.1:PORT/#token=TOKEN`.
    pub(crate) fn open(url: &str) -> Page {
        let (address, token) = url.trim().strip_prefix("http://").unwrap().split_once("/#token=").unwrap();
        let (address, token) = (address.to_owned(), token.to_owned());
        Page { address, token, epoch: String::new(), revision: 0, items: BTreeMap::new() }
    }

    /// Opens the page of a playground whose ready line was read.
    fn of(server: &mut Server) -> Page {
        let second = server.read_until("");
        Page::open(second.strip_prefix(READY).unwrap_or_else(|| panic!("the second line is {second:?}")))
    }

    /// Sends a request, and returns status and body; 0 if the server does not answer.
    fn request(&self, head: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let exchange = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(&self.address)?;
            let mut text = format!("{head} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
            headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
            stream.write_all(format!("{text}\r\n{body}").as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).map(|_| answer)
        };
        let Ok(answer) = exchange() else { return (0, Value::Null) };
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let body = if head.to_lowercase().contains("transfer-encoding: chunked") {
            join_chunks(body)
        } else {
            body.to_owned()
        };
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    fn authorized(&self, head: &str, body: &str) -> (u16, Value) {
        let token = ("X-Bowline-Token", &*self.token);
        self.request(head, &[("Host", &self.address), token, ("Content-Type", "application/json")], body)
    }

    /// Reads what has changed; `false` if the server does not answer.
    fn update(&mut self) -> bool {
        let head = format!("GET /document?epoch={}&since={}", self.epoch, self.revision);
        let (status, changes) = self.authorized(&head, "");
        if status == 0 {
            return false;
        }
        assert_eq!(status, 200, "{changes}");
        if changes["complete"] == true {
            self.items.clear();
        }
        for key in changes["removed"].as_array().into_iter().flatten() {
            self.items.remove(key.as_str().unwrap());
        }
        self.items.extend(changes["items"].as_object().unwrap().clone());
        self.epoch = changes["epoch"].as_str().unwrap().to_owned();
        self.revision = changes["revision"].as_u64().unwrap();
        true
    }

    /// Waits until the value at this pointer of an item satisfies the condition, and returns it.
    pub(crate) fn wait_for(&mut self, key: &str, pointer: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let found = within(TIMEOUT, || {
            assert!(self.update(), "the page has gone");
            self.items.get(key).and_then(|item| item.pointer(pointer)).filter(|value| holds(value)).cloned()
        });
        found.unwrap_or_else(|| panic!("{key} {pointer} is not as expected: {:#?}", self.items.get(key)))
    }

    /// Waits until there is no item with this key.
    fn wait_until_gone(&mut self, key: &str) {
        let gone = within(TIMEOUT, || {
            assert!(self.update(), "the page has gone");
            (!self.items.contains_key(key)).then_some(())
        });
        assert!(gone.is_some(), "{key} is not gone: {:#?}", self.items.get(key));
    }

    /// Performs an action, and returns the sentence with its result.
    pub(crate) fn act(&self, action: &str, target: &str) -> Result<String, String> {
        let (status, answer) =
            self.authorized("POST /actions", &json!({"action": action, "target": target}).to_string());
        let text = |key: &str| answer[key].as_str().unwrap_or_else(|| panic!("{status} {answer}")).to_owned();
        if status == 200 { Ok(text("message")) } else { Err(text("error")) }
    }
}

/// Returns the content of a body that was sent in chunks.
fn join_chunks(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        text += &rest[..length];
        body = rest[length..].trim_start_matches("\r\n");
        if length == 0 {
            break;
        }
    }
    text
}

fn is(expected: &str) -> impl Fn(&Value) -> bool + '_ {
    move |value| value == expected
}

#[test]
fn a_machine_that_is_stopped_on_the_page_is_stopped_on_it() {
    let mut server = Server::start_command("console-machine", "playground", &["--no-tour", "--nodes=2"]);
    let mut page = Page::of(&mut server);
    page.wait_for("step/02", "/state", is("passed"));
    page.wait_for("step/03", "/state", is("todo"));
    page.wait_for("node/node-2", "/ready", is("True"));
    page.wait_for("machine/local/m-2", "/state", is("running"));
    let stopped = page.act("stopMachine", "m-2").unwrap();
    assert!(stopped.starts_with("The machine m-2 is stopped") && stopped.contains("node-2"), "{stopped}");
    page.wait_for("machine/local/m-2", "/health/reason", is("Stopped"));
    page.wait_for("node/node-2", "/ready", is("Unknown"));
    let shutdown = |taints: &Value| taints.to_string().contains("node.cloudprovider.kubernetes.io/shutdown");
    page.wait_for("node/node-2", "/taints", shutdown);
    assert_eq!(page.act("stopMachine", "m-2").unwrap(), "The machine m-2 is already stopped.");
    page.act("startMachine", "m-2").unwrap();
    page.wait_for("node/node-2", "/ready", is("True"));
    page.act("deleteMachine", "m-2").unwrap();
    page.wait_until_gone("machine/local/m-2");
    page.wait_until_gone("node/node-2");
    let unknown = page.act("stopMachine", "m-9").unwrap_err();
    assert!(unknown.contains("\"m-9\"") && unknown.contains("Fix: "), "{unknown}");
    assert!(server.stop("-INT").success());
}

#[test]
fn an_example_gets_an_address_and_traffic_and_is_deleted_again() {
    let mut server = Server::start_command("console-example", "playground", &["--no-tour", "--nodes=2"]);
    let mut page = Page::of(&mut server);
    page.wait_for("step/02", "/state", is("passed"));
    assert_eq!(page.act("createExample", "hello").unwrap(), "Created pod/hello-1, pod/hello-2 and service/hello.");
    let addresses = page.wait_for("service/default/hello", "/addresses", |found| found[0].is_string());
    let key = within(TIMEOUT, || {
        page.update();
        let of_hello =
            |(_, item): &(&String, &Value)| item["service"] == "default/hello" && item["listeners"].is_array();
        page.items.iter().filter(|(key, _)| key.starts_with("loadBalancer/")).find(of_hello).map(|(key, _)| key.clone())
    });
    let key = key.expect("the load balancer is in the document");
    let port = page.wait_for(&key, "/listeners/0/port", Value::is_string);
    page.wait_for(&key, "/listeners/0/targets/0/node", |node| {
        node.as_str().is_some_and(|node| node.starts_with("node-"))
    });
    let address = format!("{}:{}", addresses[0].as_str().unwrap(), port.as_str().unwrap().trim_start_matches("TCP "));
    let answered = within(TIMEOUT, || {
        let mut stream = TcpStream::connect(&address).ok()?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.contains("hello from hello-").then_some(())
    });
    assert!(answered.is_some(), "nothing answers at {address}");
    page.wait_for(&key, "/connections", |count| count.as_u64() > Some(0));
    page.wait_for(&key, "/bytes", |count| count.as_u64() > Some(0));
    let again = page.act("createExample", "hello").unwrap();
    assert_eq!(again, "Applied pod/hello-1, pod/hello-2 and service/hello, which existed already.");
    assert_eq!(page.act("deleteExample", "hello").unwrap(), "Deleted pod/hello-1, pod/hello-2 and service/hello.");
    page.wait_until_gone("service/default/hello");
    page.wait_until_gone(&key);
    let none = page.act("deleteExample", "hello").unwrap();
    assert_eq!(none, "There is nothing to delete: no object of the example hello exists.");
    let unknown = page.act("createExample", "halo").unwrap_err();
    assert!(unknown.contains("the examples are hello, hello-udp, service"), "{unknown}");
    assert!(server.stop("-INT").success());
}

#[test]
fn a_fault_is_shown_while_it_is_on() {
    let mut server = Server::start_command("console-fault", "playground", &["--no-tour", "--nodes=1"]);
    let mut page = Page::of(&mut server);
    page.wait_for("step/02", "/state", is("passed"));
    page.wait_for("fault/empty", "/on", |on| on == false);
    assert!(
        page.act("startFault", "empty").unwrap().starts_with("The fault empty is on. The cloud returns empty lists")
    );
    page.wait_for("fault/empty", "/on", |on| on == true);
    page.wait_for("machine/local/m-1", "/hidden", |hidden| hidden == true);
    assert_eq!(page.act("stopFault", "empty").unwrap(), "The fault empty is off.");
    page.wait_for("fault/empty", "/on", |on| on == false);
    assert!(page.act("startFault", "storm").unwrap_err().contains("the faults are empty"));
    assert!(server.stop("-INT").success());
}

#[test]
fn the_steps_of_the_automatic_tour_are_ticked_as_they_happen() {
    let flags = ["--script", "--nodes=1", "--cluster-cidr=10.244.0.0/16"];
    let mut server = Server::start_command("console-tour", "playground", &flags);
    let mut page = Page::of(&mut server);
    let mut passed = Vec::new();
    while page.update() {
        for (key, step) in page.items.iter().filter(|(key, _)| key.starts_with("step/")) {
            let checks = step["checks"].as_array().unwrap();
            if step["state"] == "passed" && !passed.contains(key) {
                assert!(checks.iter().all(|check| check[1] == true) && !checks.is_empty(), "{step}");
                assert!(step["result"].as_str().unwrap().starts_with("Passed after "), "{step}");
                passed.push(key.clone());
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let all: Vec<_> = page.items.keys().filter(|key| key.starts_with("step/")).cloned().collect();
    // The playground may end before the page has seen the last step.
    assert!(passed.len() + 1 >= all.len() && all.starts_with(&passed), "{passed:?} of {all:?}");
    assert!(server.rest_of_output().contains(" steps passed."));
}

#[test]
fn the_page_needs_the_token_and_its_own_address() {
    let mut server = Server::start_command("console-token", "playground", &["--no-tour", "--nodes=1"]);
    let page = Page::of(&mut server);
    let action = json!({"action": "deleteMachine", "target": "m-1"}).to_string();
    let (host, token) = (("Host", &*page.address), ("X-Bowline-Token", &*page.token));
    for (headers, expected) in
        [(vec![host], 401), (vec![host, ("X-Bowline-Token", "0")], 401), (vec![("Host", "evil.example"), token], 421)]
    {
        for (head, body) in [("GET /document", ""), ("GET /session", ""), ("POST /actions", &*action)] {
            assert_eq!(page.request(head, &headers, body).0, expected, "{head} {headers:?}");
        }
    }
    let (status, session) = page.authorized("GET /session", "");
    assert_eq!((status, &session["source"], &session["actions"]), (200, &json!("playground"), &json!(true)));
    assert_eq!(session["examples"], json!(["hello", "hello-udp", "service"]));
    assert!(session["title"].as_str().unwrap().starts_with("kubectl --kubeconfig "), "{session}");
    assert!(server.stop("-INT").success());
}

#[test]
fn the_page_is_on_a_loopback_address_or_off() {
    for address in ["0.0.0.0:0", "192.0.2.1:8080", "8080", "on"] {
        refused(&["playground", &format!("--console={address}")], 2, &["--console", "127.0.0.1:0", "or off"]);
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let scratch = Scratch::new("console-taken");
    let flags = [format!("--console={address}"), format!("--kubeconfig={}", scratch.path("kubeconfig").display())];
    let mut program = Program::start("console-taken", &["playground", "--no-tour", &flags[0], &flags[1]]);
    let status = within(TIMEOUT, || program.ended()).expect("the address is in use");
    let output = program.output();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains(&format!("--console {address}: ")) && output.contains("--console off"), "{output}");
    let mut server = Server::start_command("console-off", "playground", &["--no-tour", "--nodes=1", "--console=off"]);
    let output = server.read_until("Press Ctrl-C");
    assert!(!output.contains(READY) && output.contains("Press Ctrl-C"), "{output}");
    assert!(server.stop("-INT").success());
}
