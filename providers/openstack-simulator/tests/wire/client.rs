//! A generic JSON client of the simulator.

use std::sync::Mutex;

use bowline_openstack_simulator::{Lost, Service, Simulator};
use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};

/// An authenticated client.
pub(crate) struct Client {
    cloud: Simulator,
    token: String,
    /// First token that a test requested through this client.
    pub(crate) subject: Mutex<Option<String>>,
    /// Service catalog of the client's token.
    pub(crate) catalog: Vec<Value>,
}

impl Client {
    /// Authenticates with the fixture's application credential.
    pub(crate) async fn new(cloud: &Simulator) -> Client {
        let fixture = cloud.fixture();
        let credential = json!({"id": fixture.application_credential, "secret": fixture.application_secret});
        let identity = json!({"methods": ["application_credential"], "application_credential": credential});
        let request = Request::post("http://openstack.test/identity/v3/auth/tokens");
        let request = request.body(json!({"auth": {"identity": identity}}).to_string().into()).unwrap();
        let answer = cloud.answer(request).await.unwrap();
        let token = answer.headers()["x-subject-token"].to_str().unwrap().to_owned();
        let body: Value = serde_json::from_slice(answer.body()).unwrap();
        let catalog = body["token"]["catalog"].as_array().unwrap().clone();
        Client { cloud: cloud.clone(), token, subject: Mutex::default(), catalog }
    }

    /// Sends a request with additional headers. A response body that is not JSON is returned as a string.
    pub(crate) async fn send_with(
        &self,
        method: Method,
        service: Service,
        path: &str,
        headers: &[(String, String)],
        body: Bytes,
    ) -> Result<(u16, Value), Lost> {
        let mut request =
            Request::builder().method(method).uri(format!("http://openstack.test/{}{path}", service.kind()));
        if headers.iter().all(|(name, _)| !name.eq_ignore_ascii_case("x-auth-token")) {
            request = request.header("x-auth-token", &self.token);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = self.cloud.answer(request.body(body).unwrap()).await?;
        if let Some(token) = answer.headers().get("x-subject-token") {
            self.subject.lock().unwrap().get_or_insert_with(|| token.to_str().unwrap().to_owned());
        }
        let text = String::from_utf8_lossy(answer.body()).into_owned();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok((answer.status().as_u16(), body))
    }

    /// Sends a request; `null` sends no body.
    pub(crate) async fn send(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Value,
    ) -> Result<(u16, Value), Lost> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        self.send_with(method, service, path, &[], body).await
    }

    /// Sends a request as [`send`](Client::send) does, and panics if the response is lost.
    pub(crate) async fn call(&self, method: Method, service: Service, path: &str, body: Value) -> (u16, Value) {
        self.send(method, service, path, body).await.unwrap()
    }

    /// Sends a GET request.
    pub(crate) async fn get(&self, service: Service, path: &str) -> (u16, Value) {
        self.call(Method::GET, service, path, Value::Null).await
    }
}
