//! Faults: error responses of the vim25 API.

use bowline_simulator::{Fault as Injected, Reply};
use quick_xml::escape::escape;
use serde_json::{Value, json};

use super::envelope;
use crate::vcenter::inventory::Reference;
use crate::vcenter::schema::{Type, write_typed};

/// A fault.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::vcenter) struct Fault {
    name: &'static str,
    message: &'static str,
    fields: Value,
}

/// Fault to inject, by its name, such as `NoPermission`.
pub fn soap_fault(name: &'static str) -> Injected {
    Injected::Answer(500, Fault { name, message: "injected", fields: json!({}) }.body())
}

impl Fault {
    pub(super) fn invalid_login() -> Fault {
        let message = "Cannot complete login due to an incorrect user name or password.";
        Fault { name: "InvalidLogin", message, fields: json!({}) }
    }

    pub(super) fn not_authenticated(object: &Reference) -> Fault {
        let fields = json!({"object": object.to_value(), "privilegeId": "System.View"});
        Fault { name: "NotAuthenticated", message: "The session is not authenticated.", fields }
    }

    pub(super) fn no_permission(object: &Reference) -> Fault {
        let fields = json!({"object": object.to_value(), "privilegeId": "System.Read"});
        Fault { name: "NoPermission", message: "Permission to perform this operation was denied.", fields }
    }

    pub(super) fn not_found(object: &Reference) -> Fault {
        let message = "The object has already been deleted or has not been completely created";
        Fault { name: "ManagedObjectNotFound", message, fields: json!({"obj": object.to_value()}) }
    }

    pub(super) fn invalid_property(path: &str) -> Fault {
        Fault { name: "InvalidProperty", message: "", fields: json!({"name": path}) }
    }

    pub(super) fn invalid_argument(name: &str) -> Fault {
        let message = "A specified parameter was not correct: ";
        Fault { name: "InvalidArgument", message, fields: json!({"invalidProperty": name}) }
    }

    pub(super) fn invalid_request() -> Fault {
        Fault { name: "InvalidRequest", message: "Unable to resolve WSDL method name", fields: json!({}) }
    }

    pub(super) fn not_supported() -> Fault {
        let message = "The operation is not supported on the object.";
        Fault { name: "NotSupported", message, fields: json!({}) }
    }

    /// Reply with the fault.
    pub(super) fn reply(&self) -> Reply {
        Reply::xml(500, self.body())
    }

    fn body(&self) -> String {
        let mut detail = String::new();
        write_typed(&mut detail, &format!("{}Fault", self.name), self.declared(), &self.fields);
        let detail = detail.replacen(' ', " xmlns=\"urn:vim25\" ", 1);
        let message = escape(self.message);
        envelope(&format!(
            "<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>{message}</faultstring>\
             <detail>{detail}</detail></soapenv:Fault>"
        ))
    }

    /// Entry of a missing set.
    pub(super) fn missing(&self, path: &str) -> String {
        let mut fault = String::new();
        write_typed(&mut fault, "fault", self.declared(), &self.fields);
        let (path, message) = (escape(path), escape(self.message));
        format!(
            "<missingSet><path>{path}</path><fault>{fault}<localizedMessage>{message}</localizedMessage></fault></missingSet>"
        )
    }

    fn declared(&self) -> Type {
        Type::of(self.name)
    }
}
