//! A JSON client of the simulator.

use bowline_digitalocean_simulator::{NewDroplet, Options, Simulator, TOKEN};
use http::{HeaderMap, Method, Request};
use serde_json::{Value, json};

/// A cloud with two Droplets, and a client of it.
pub(crate) struct Client {
    pub(crate) cloud: Simulator,
    pub(crate) token: String,
    pub(crate) droplets: [u64; 2],
}

impl Client {
    pub(crate) fn new(options: Options) -> Client {
        let cloud = Simulator::new(options);
        let droplets = ["node-1", "node-2"].map(|name| cloud.add_droplet(NewDroplet::named(name)));
        Client { cloud, token: TOKEN.to_owned(), droplets }
    }

    /// Sends a request; `null` sends no body. An empty response body is `null`.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Value) -> (u16, HeaderMap, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(format!("http://do.test{path}"));
        let request = request.header("authorization", format!("Bearer {}", self.token)).body(body.into()).unwrap();
        let (head, body) = self.cloud.answer(request).await.unwrap().into_parts();
        (head.status.as_u16(), head.headers, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let (status, _, body) = self.send(method, path, body).await;
        (status, body)
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.call(Method::GET, path, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::POST, path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> (u16, Value) {
        self.call(Method::PUT, path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> (u16, Value) {
        self.call(Method::DELETE, path, Value::Null).await
    }

    /// Fields of a create request for a load balancer, with these changes.
    pub(crate) fn web(&self, changes: Value) -> Value {
        let rule = json!({"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 30080});
        let mut body =
            json!({"name": "web", "region": "nyc3", "forwarding_rules": [rule], "droplet_ids": self.droplets});
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        body
    }

    /// Creates a load balancer and returns its path.
    pub(crate) async fn create(&self, changes: Value) -> String {
        let (status, created) = self.post("/v2/load_balancers", self.web(changes)).await;
        assert_eq!(status, 202, "{created}");
        format!("/v2/load_balancers/{}", created["load_balancer"]["id"].as_str().unwrap())
    }
}
