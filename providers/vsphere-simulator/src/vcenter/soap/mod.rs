//! Methods of the vim25 API.

mod collector;
mod fault;
mod reader;
mod search;
mod sessions;
mod views;

use bowline_simulator::{Call, Reply};
use serde_json::{Value, json};

pub(super) use collector::Pages;
pub(super) use fault::Fault;
pub use fault::soap_fault;
pub(super) use sessions::{SESSION_COOKIE, session_cookie};
pub(super) use views::View;

use super::inventory::{Access, Reference};
use super::schema::{self, Type};
use super::simulator::State;
use super::xml::{self, Element};

/// Path of the API.
pub(super) const PATH: &str = "sdk";

/// Methods that need no session. The property collector reports a missing session in its result.
const ANONYMOUS: [&str; 9] = [
    "RetrieveServiceContent",
    "Login",
    "LoginByToken",
    "CloneSession",
    "RetrieveProperties",
    "RetrievePropertiesEx",
    "ContinueRetrievePropertiesEx",
    "CancelRetrievePropertiesEx",
    "Fetch",
];

/// A call of a method.
pub(super) struct Request {
    pub(super) method: String,
    pub(super) this: Reference,
    /// Element of the method, with the arguments.
    pub(super) arguments: Element,
    pub(super) header: Option<Element>,
    /// ID of the session, whether it exists or not.
    pub(super) session: String,
}

/// Result of a method.
pub(super) enum Returned {
    Nothing,
    Value(Type, Value),
    /// Elements `returnval`.
    Xml(String),
    /// A new session: its ID, and the value that the method returns.
    Session(String, Value),
}

pub(super) type Outcome = Result<Returned, Fault>;

impl Request {
    /// Parses a request; `None` if it is not a SOAP message with a method.
    pub(super) fn read(call: &Call) -> Option<Request> {
        let mut envelope = Element::parse(std::str::from_utf8(&call.body).ok()?)?;
        let at = envelope.children.iter().position(|child| child.name == "Body")?;
        let arguments = envelope.children.swap_remove(at).children.into_iter().next()?;
        let header = envelope.children.into_iter().find(|child| child.name == "Header");
        let this = arguments.child("_this")?.reference()?;
        Some(Request { method: arguments.name.clone(), this, arguments, header, session: session_cookie(call) })
    }

    fn reference(&self, name: &str) -> Option<Reference> {
        self.arguments.child(name)?.reference().filter(|reference| !reference.id.is_empty())
    }
}

/// Name of the method that a request calls: the first element of the body.
pub(super) fn method(call: &Call) -> Option<String> {
    xml::first_in(std::str::from_utf8(&call.body).ok()?, "Body")
}

/// Answers a request.
pub(super) fn answer(state: &mut State, call: &Call) -> Reply {
    if call.method == "GET" {
        return if call.segments() == [PATH, "vimServiceVersions.xml"] { versions(state) } else { Reply::empty(404) };
    }
    let Some(request) = Request::read(call) else { return Fault::invalid_request().reply() };
    if sessions::is_login(&request.method) && state.is_full() {
        return Reply::text(503, "503 Service Unavailable (too many sessions)");
    }
    state.touch(&request.session);
    match dispatch(state, &request) {
        Ok(returned) => respond(&request.method, returned),
        Err(fault) => fault.reply(),
    }
}

fn dispatch(state: &mut State, request: &Request) -> Outcome {
    let method = request.method.as_str();
    let Some(receiver) = receiver(method) else { return Err(Fault::invalid_request()) };
    if !receiver.is_empty() && receiver != request.this.id {
        return Err(Fault::not_found(&request.this));
    }
    if !ANONYMOUS.contains(&method) && !state.sessions.contains_key(&request.session) {
        return Err(Fault::not_authenticated(&request.this));
    }
    match method {
        "RetrieveServiceContent" => Ok(Returned::Value(Type::of("ServiceContent"), content(state))),
        "CurrentTime" => Ok(Returned::Value(Type::of("dateTime"), state.now().into())),
        "HasPrivilegeOnEntities" => Ok(privileges(state, request)),
        "CreateContainerView" => views::create(state, request),
        "DestroyView" => views::destroy(state, request),
        "FindByUuid" | "FindAllByUuid" | "FindAllByDnsName" | "FindByDnsName" | "FindByIp" | "FindAllByIp" => {
            search::find(state, request)
        }
        "RetrieveProperties" => collector::retrieve(state, request),
        "RetrievePropertiesEx" => collector::retrieve_page(state, request),
        "ContinueRetrievePropertiesEx" => collector::next_page(state, request),
        "CancelRetrievePropertiesEx" => collector::cancel(state, request),
        "Fetch" => collector::fetch(state, request),
        _ => sessions::call(state, request),
    }
}

/// ID of the object that has a method; empty if there are several such objects, `None` for an unknown method.
fn receiver(method: &str) -> Option<&'static str> {
    Some(match method {
        "RetrieveServiceContent" | "CurrentTime" => "ServiceInstance",
        "Login" | "LoginByToken" | "CloneSession" | "AcquireCloneTicket" | "Logout" | "SessionIsActive" => {
            "SessionManager"
        }
        "HasPrivilegeOnEntities" => "AuthorizationManager",
        "CreateContainerView" => "ViewManager",
        _ if method.starts_with("Find") => "SearchIndex",
        _ if method.contains("RetrieveProperties") => "propertyCollector",
        "DestroyView" | "Fetch" => "",
        _ => return None,
    })
}

fn respond(method: &str, returned: Returned) -> Reply {
    let mut content = String::new();
    let mut cookie = None;
    match returned {
        Returned::Nothing => {}
        Returned::Value(declared, value) => schema::write(&mut content, "returnval", declared, &value),
        Returned::Xml(xml) => content = xml,
        Returned::Session(id, value) => {
            schema::write(&mut content, "returnval", Type::of("UserSession"), &value);
            cookie = Some(format!("{SESSION_COOKIE}=\"{id}\"; Path=/; HttpOnly; Secure;"));
        }
    }
    let reply =
        Reply::xml(200, envelope(&format!("<{method}Response xmlns=\"urn:vim25\">{content}</{method}Response>")));
    cookie.into_iter().fold(reply, |reply, cookie| reply.with("set-cookie", cookie))
}

/// Envelope with this body.
pub(super) fn envelope(body: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <soapenv:Envelope xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\
         <soapenv:Body>{body}</soapenv:Body></soapenv:Envelope>"
    )
}

/// Versions of the API, by which clients choose theirs.
fn versions(state: &State) -> Reply {
    let prior =
        ["8.0.1.0", "8.0.0.1", "7.0.3.0", "7.0", "6.7", "6.5"].map(|version| format!("<version>{version}</version>"));
    Reply::xml(
        200,
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><namespaces version=\"1.0\"><namespace><name>urn:vim25</name>\
             <version>{}</version><priorVersions>{}</priorVersions></namespace></namespaces>",
            state.options.api_version,
            prior.concat()
        ),
    )
}

/// Entry points of the API.
pub(super) fn content(state: &State) -> Value {
    let version = &state.options.api_version;
    let about = json!({
        "name": "VMware vCenter Server", "fullName": format!("VMware vCenter Server {version} (simulator)"),
        "vendor": "VMware, Inc.", "version": version, "build": "1", "osType": "linux-x64", "productLineId": "vpx",
        "apiType": "VirtualCenter", "apiVersion": version, "instanceUuid": state.options.instance_uuid,
    });
    json!({
        "rootFolder": state.root.to_value(), "propertyCollector": "PropertyCollector:propertyCollector",
        "viewManager": "ViewManager:ViewManager", "about": about, "sessionManager": "SessionManager:SessionManager",
        "authorizationManager": "AuthorizationManager:AuthorizationManager", "searchIndex": "SearchIndex:SearchIndex",
    })
}

/// Which privileges the user has on objects.
fn privileges(state: &State, request: &Request) -> Returned {
    let wanted = request.arguments.texts("privId");
    let entities = request.arguments.all("entity").filter_map(Element::reference);
    let entry = |entity: Reference| {
        let is_granted = |privilege: &str| {
            let is_denied = match state.inventory.access(&entity) {
                Access::Full => false,
                Access::NoRead => privilege != "System.View",
                Access::NoView => true,
            };
            !is_denied && !state.options.withheld_privileges.contains(privilege)
        };
        let granted = wanted.iter().map(|privilege| json!({"privId": privilege, "isGranted": is_granted(privilege)}));
        json!({"entity": entity.to_value(), "privAvailability": granted.collect::<Vec<_>>()})
    };
    Returned::Value(Type::of("EntityPrivilege[]"), entities.map(entry).collect())
}
