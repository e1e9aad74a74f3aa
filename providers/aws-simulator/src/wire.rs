//! The query protocol: APIs, XML responses and errors.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bowline_simulator::{Call, Entry, Fault, Reply};
use serde_json::Value;

/// One of the AWS APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Ec2,
    Elb,
    Elbv2,
    Sts,
}

impl Api {
    /// API of a request, by its `Version`.
    pub(crate) fn of_version(version: &str) -> Option<Api> {
        [Api::Ec2, Api::Elb, Api::Elbv2, Api::Sts].into_iter().find(|api| api.version() == version)
    }

    fn version(self) -> &'static str {
        match self {
            Api::Ec2 => "2016-11-15",
            Api::Elb => "2012-06-01",
            Api::Elbv2 => "2015-12-01",
            Api::Sts => "2011-06-15",
        }
    }

    /// Name in journal entries and faults.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Api::Ec2 => "ec2",
            Api::Elb => "elb",
            Api::Elbv2 => "elbv2",
            Api::Sts => "sts",
        }
    }

    /// Service name in signatures and IAM actions.
    pub(crate) fn signing_name(self) -> &'static str {
        match self {
            Api::Elb | Api::Elbv2 => "elasticloadbalancing",
            other => other.name(),
        }
    }

    fn namespace(self) -> String {
        match self {
            Api::Ec2 => format!("http://ec2.amazonaws.com/doc/{}/", self.version()),
            Api::Sts => format!("https://sts.amazonaws.com/doc/{}/", self.version()),
            Api::Elb | Api::Elbv2 => format!("http://elasticloadbalancing.amazonaws.com/doc/{}/", self.version()),
        }
    }
}

/// Error of an API.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u16,
    code: String,
    message: String,
}

/// Content of a successful response, or an error.
pub(crate) type Outcome = Result<Value, Failure>;

impl Failure {
    /// Error with status 400.
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Failure {
        Failure { status: 400, code: code.to_owned(), message: message.into() }
    }

    /// Error with another status.
    pub(crate) fn with_status(self, status: u16) -> Failure {
        Failure { status, ..self }
    }

    /// Whether the error has this code.
    pub(crate) fn is(&self, code: &str) -> bool {
        self.code == code
    }

    /// Invalid parameter of EC2.
    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure::new("InvalidParameterValue", message)
    }

    /// Invalid parameter of ELB.
    pub(crate) fn validation(message: impl Into<String>) -> Failure {
        Failure::new("ValidationError", message)
    }

    /// Missing required parameter.
    pub(crate) fn missing(api: Api, name: &str) -> Failure {
        match api {
            Api::Ec2 => Failure::new("MissingParameter", format!("The request must contain the parameter {name}")),
            _ => Failure::validation(format!("{name} is required")),
        }
    }

    /// Response with this error; `None` is a request of an unknown API, which EC2 answers.
    pub(crate) fn reply(&self, api: Option<Api>, request: &str) -> Reply {
        Reply::xml(self.status, error_body(api.unwrap_or(Api::Ec2), &self.code, &self.message, request, self.status))
    }
}

/// Returns an error unless the condition holds.
pub(crate) fn require(condition: bool, failure: impl FnOnce() -> Failure) -> Result<(), Failure> {
    if condition { Ok(()) } else { Err(failure()) }
}

/// Fault that answers with an error in the format of EC2.
pub fn ec2_fault(status: u16, code: &str, message: &str) -> Fault {
    Fault::Answer(status, error_body(Api::Ec2, code, message, "injected", status))
}

/// Fault that answers with an error in the format of both ELB APIs.
pub fn elb_fault(status: u16, code: &str, message: &str) -> Fault {
    Fault::Answer(status, error_body(Api::Elbv2, code, message, "injected", status))
}

/// Fault that answers with an error in the format of STS.
pub fn sts_fault(status: u16, code: &str, message: &str) -> Fault {
    Fault::Answer(status, error_body(Api::Sts, code, message, "injected", status))
}

/// Parameters of a recorded call, by name.
pub fn parameters(entry: &Entry) -> BTreeMap<String, String> {
    let body = entry.body.as_str().unwrap_or_default();
    form_urlencoded::parse(body.as_bytes()).into_owned().collect()
}

/// Fields of the form in the body, or in the query of a GET.
pub(crate) fn form(call: &Call) -> Vec<(String, String)> {
    if call.is_read() { call.query.clone() } else { call.form() }
}

/// First value of a field of a form; empty if it is missing.
pub(crate) fn field<'a>(form: &'a [(String, String)], name: &str) -> &'a str {
    form.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
}

// ---- XML

const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

fn error_body(api: Api, code: &str, message: &str, request: &str, status: u16) -> String {
    let (code, message) = (escaped(code), escaped(message));
    let error = format!("<Code>{code}</Code><Message>{message}</Message>");
    if api == Api::Ec2 {
        let errors = format!("<Errors><Error>{error}</Error></Errors>");
        return format!("{DECLARATION}<Response>{errors}<RequestID>{request}</RequestID></Response>");
    }
    let (fault, namespace) = (if status < 500 { "Sender" } else { "Receiver" }, api.namespace());
    let error = format!("<Error><Type>{fault}</Type>{error}</Error><RequestId>{request}</RequestId>");
    format!("{DECLARATION}<ErrorResponse xmlns=\"{namespace}\">{error}</ErrorResponse>")
}

/// Successful response. Lists have `item` elements in EC2, and `member` elements in the other APIs.
pub(crate) fn response(api: Api, action: &str, content: &Value, request: &str) -> Reply {
    let mut body = String::new();
    if api == Api::Ec2 {
        let _ = write!(body, "<requestId>{request}</requestId>");
        write_fields(&mut body, content, "item");
    } else {
        write_element(&mut body, &format!("{action}Result"), content, "member");
        let _ = write!(body, "<ResponseMetadata><RequestId>{request}</RequestId></ResponseMetadata>");
    }
    let namespace = api.namespace();
    Reply::xml(200, format!("{DECLARATION}<{action}Response xmlns=\"{namespace}\">{body}</{action}Response>"))
}

fn write_element(xml: &mut String, name: &str, value: &Value, item: &str) {
    if value.is_null() {
        return;
    }
    let _ = write!(xml, "<{name}>");
    match value {
        Value::Array(list) => list.iter().for_each(|value| write_element(xml, item, value, item)),
        Value::Object(_) => write_fields(xml, value, item),
        Value::String(text) => xml.push_str(&escaped(text)),
        other => xml.push_str(&other.to_string()),
    }
    let _ = write!(xml, "</{name}>");
}

/// Writes the fields of an object. The key `id`, and names with an underscore, are internal.
fn write_fields(xml: &mut String, value: &Value, item: &str) {
    let fields = value.as_object().into_iter().flatten();
    let is_shown = |name: &str| name != "id" && !name.starts_with('_');
    fields.filter(|(name, _)| is_shown(name)).for_each(|(name, value)| write_element(xml, name, value, item));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
