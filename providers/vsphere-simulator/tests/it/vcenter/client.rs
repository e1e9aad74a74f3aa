//! A client of the simulator.

use bowline_vsphere_simulator::vcenter::{Machine, Options, PASSWORD, USER, Vcenter};
use http::Request;
use serde_json::Value;

/// A vCenter with two machines, and a client of it.
pub(crate) struct Client {
    pub(crate) vcenter: Vcenter,
    pub(crate) cookie: String,
}

/// Status and body of a response.
pub(crate) type Answer = (u16, String);

impl Client {
    /// Client with a session.
    pub(crate) async fn new(options: Options) -> Client {
        let mut client = Client::anonymous(options);
        assert_eq!(client.log_in(PASSWORD).await.0, 200);
        client
    }

    pub(crate) fn anonymous(options: Options) -> Client {
        let vcenter = Vcenter::new(options);
        for number in 1..=2 {
            let machine = Machine::named(&format!("node-{number}"), &format!("10.10.1.{number}"));
            assert!(vcenter.add_machine(machine).is_some());
        }
        Client { vcenter, cookie: String::new() }
    }

    /// Another client of the same vCenter.
    pub(crate) fn another(&self) -> Client {
        Client { vcenter: self.vcenter.clone(), cookie: String::new() }
    }

    pub(crate) async fn log_in(&mut self, password: &str) -> Answer {
        let password = password.replace('&', "&amp;").replace('<', "&lt;");
        let arguments = format!("<userName>{USER}</userName><password>{password}</password><locale>en_US</locale>");
        self.log_in_with("Login", &arguments, "").await
    }

    /// Calls a method that opens a session, and keeps its cookie.
    pub(crate) async fn log_in_with(&mut self, method: &str, arguments: &str, header: &str) -> Answer {
        let body = envelope(&call_of(method, "SessionManager", "SessionManager", arguments), header);
        let request = Request::post("https://vc.test/sdk").header("cookie", &self.cookie).body(body.into()).unwrap();
        let response = self.vcenter.answer(request).await.unwrap();
        if let Some(cookie) = response.headers().get("set-cookie") {
            self.cookie = cookie.to_str().unwrap().split(';').next().unwrap().to_owned();
        }
        (response.status().as_u16(), String::from_utf8(response.body().to_vec()).unwrap())
    }

    /// Calls a method of an object.
    pub(crate) async fn call(&self, method: &str, this: (&str, &str), arguments: &str) -> Answer {
        let body = envelope(&call_of(method, this.0, this.1, arguments), "");
        self.send(Request::post("https://vc.test/sdk").header("cookie", &self.cookie).body(body.into()).unwrap()).await
    }

    pub(crate) async fn send(&self, request: Request<bytes::Bytes>) -> Answer {
        let (head, body) = self.vcenter.answer(request).await.unwrap().into_parts();
        (head.status.as_u16(), String::from_utf8(body.to_vec()).unwrap())
    }

    /// Searches by UUID. Returns the ID of the machine; empty if there is none.
    pub(crate) async fn find(&self, uuid: &str) -> String {
        let arguments = format!("<uuid>{uuid}</uuid><vmSearch>true</vmSearch>");
        let (_, body) = self.call("FindByUuid", ("SearchIndex", "SearchIndex"), &arguments).await;
        texts(&body, "returnval").concat()
    }

    /// Reads a page of properties of all machines.
    pub(crate) async fn list(&self, paths: &[&str], limit: &str) -> Answer {
        let arguments = format!(
            "<container type='Folder'>{}</container><type>VirtualMachine</type><recursive>true</recursive>",
            self.vcenter.root().id
        );
        let (_, created) = self.call("CreateContainerView", ("ViewManager", "ViewManager"), &arguments).await;
        let object = format!(
            "<obj type='ContainerView'>{}</obj><skip>true</skip><selectSet xsi:type='TraversalSpec'>\
             <type>ContainerView</type><path>view</path></selectSet>",
            texts(&created, "returnval").concat()
        );
        self.retrieve(&object, paths, limit).await
    }

    /// Reads properties of machines from an object set.
    pub(crate) async fn retrieve(&self, object: &str, paths: &[&str], limit: &str) -> Answer {
        let paths: String = paths.iter().map(|path| format!("<pathSet>{path}</pathSet>")).collect();
        let arguments = format!(
            "<specSet><propSet><type>VirtualMachine</type>{paths}</propSet><objectSet>{object}</objectSet></specSet>\
             <options><maxObjects>{limit}</maxObjects></options>"
        );
        self.call("RetrievePropertiesEx", COLLECTOR, &arguments).await
    }

    pub(crate) async fn next_page(&self, body: &str) -> Answer {
        let token = texts(body, "token").concat();
        self.call("ContinueRetrievePropertiesEx", COLLECTOR, &format!("<token>{token}</token>")).await
    }

    /// Sends a request to the REST API with this session.
    pub(crate) async fn rest(&self, method: &str, path: &str, session: &str, body: Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(format!("https://vc.test/rest/com/vmware/cis/{path}"));
        let request = request.header("vmware-api-session-id", session).body(body.to_string().into()).unwrap();
        let (status, body) = self.send(request).await;
        (status, serde_json::from_str(&body).unwrap_or_default())
    }
}

pub(crate) const COLLECTOR: (&str, &str) = ("PropertyCollector", "propertyCollector");

fn call_of(method: &str, kind: &str, id: &str, arguments: &str) -> String {
    format!("<{method} xmlns='urn:vim25'><_this type='{kind}'>{id}</_this>{arguments}</{method}>")
}

pub(crate) fn envelope(body: &str, header: &str) -> String {
    format!(
        "<?xml version='1.0'?><s:Envelope xmlns:s='http://schemas.xmlsoap.org/soap/envelope/' \
         xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance'><s:Header>{header}</s:Header><s:Body>{body}</s:Body></s:Envelope>"
    )
}

/// Contents of all elements with this name that have no elements of this name in them.
pub(crate) fn texts<'a>(xml: &'a str, name: &str) -> Vec<&'a str> {
    let (mut found, mut rest) = (Vec::new(), xml);
    while let Some(at) = rest.find(&format!("<{name}")) {
        let (_, behind) = rest[at..].split_once('>').unwrap();
        let (content, behind) = behind.split_once(&format!("</{name}>")).unwrap();
        found.push(content);
        rest = behind;
    }
    found
}

/// Name of the fault in a response.
pub(crate) fn fault(answer: &Answer) -> &str {
    assert_eq!(answer.0, 500, "{}", answer.1);
    let detail = answer.1.split_once("<detail><").unwrap().1;
    detail.split_once("Fault").unwrap().0
}
