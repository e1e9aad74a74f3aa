//! A client for the control ports of the simulated vCenters.

use std::path::PathBuf;
use std::time::Duration;

use bowline_http::{Client, Options, Proxies, Tls};
use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};

/// Timeout, longer than any call on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running vCenter.
#[derive(Clone)]
pub(crate) struct Vcsim {
    client: Client,
    folder: PathBuf,
    /// Content of the file with its addresses, credentials and VMs.
    values: Value,
}

impl Vcsim {
    /// Reads the folder in `BOWLINE_VSPHERE`; `None` if the variable is not set. The name is `vcenter-1` or `vcenter-2`.
    pub(crate) fn open(name: &str) -> Option<Vcsim> {
        let folder = PathBuf::from(std::env::var_os("BOWLINE_VSPHERE")?);
        let values = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        Some(Vcsim { client: client(), folder, values: serde_json::from_str(&values).unwrap() })
    }

    /// Folder with `vsphere.conf`, `vsphere.yaml` and `ca.pem`.
    pub(crate) fn folder(&self) -> &PathBuf {
        &self.folder
    }

    /// A value of the file: `host`, `port`, `control`, `user`, `password`, `ca`, `sha1` or `sha256`.
    pub(crate) fn value(&self, name: &str) -> String {
        text(&self.values[name])
    }

    async fn control(&self, method: Method, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let request = Request::builder().method(method).uri(format!("{}/{path}", self.value("control")));
        let response = self.client.send(request.body(body).unwrap()).await.unwrap();
        let content = String::from_utf8_lossy(response.body()).into_owned();
        assert_eq!(response.status(), 200, "{path}: {content}");
        serde_json::from_str(&content).unwrap()
    }

    /// Restores the inventory and the password, and deletes journal, faults, sessions and limits.
    pub(crate) async fn reset(&self) {
        self.control(Method::POST, "reset", &Value::Null).await;
    }

    /// Number of calls in the journal by method.
    pub(crate) async fn counts(&self) -> Value {
        self.control(Method::GET, "counts", &Value::Null).await
    }

    /// Calls in their order.
    pub(crate) async fn journal(&self) -> Vec<Value> {
        self.control(Method::GET, "calls", &Value::Null).await.as_array().unwrap().clone()
    }

    pub(crate) async fn clear_journal(&self) {
        self.control(Method::DELETE, "calls", &Value::Null).await;
    }

    /// Live SOAP and REST sessions, and logins since the last reset.
    pub(crate) async fn sessions(&self) -> Value {
        self.control(Method::GET, "sessions", &Value::Null).await
    }

    /// Ends all sessions, as an expiry does.
    pub(crate) async fn end_sessions(&self) {
        self.control(Method::DELETE, "sessions", &Value::Null).await;
    }

    /// Sets the maximum number of objects on a page.
    pub(crate) async fn limit_pages(&self, limit: usize) {
        self.control(Method::POST, "pages", &json!({ "limit": limit })).await;
    }

    /// Replaces all faults.
    pub(crate) async fn set_faults(&self, faults: &Value) {
        self.clear_faults().await;
        self.control(Method::POST, "faults", faults).await;
    }

    pub(crate) async fn clear_faults(&self) {
        self.control(Method::DELETE, "faults", &Value::Null).await;
    }

    /// Changes the password, and ends all sessions.
    pub(crate) async fn set_password(&self, password: &str) {
        self.control(Method::POST, "password", &json!({ "password": password })).await;
    }

    /// All VMs by name.
    pub(crate) async fn machines(&self) -> Value {
        self.control(Method::GET, "machines", &Value::Null).await
    }

    /// Creates a VM, or changes the given fields of one, and returns it.
    pub(crate) async fn put_machine(&self, name: &str, fields: &Value) -> Value {
        self.control(Method::POST, &format!("machines/{name}"), fields).await
    }

    pub(crate) async fn delete_machine(&self, name: &str) {
        self.control(Method::DELETE, &format!("machines/{name}"), &Value::Null).await;
    }
}

/// A client that uses no proxy.
fn client() -> Client {
    Client::new(Options { tls: Tls::default(), proxies: Proxies::default(), timeout: TIMEOUT }).unwrap()
}

/// Returns a text; empty if it is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
