//! A client for the control port of moto.

use std::path::PathBuf;
use std::time::Duration;

use bowline_http::{Client, Options, Proxies, RequestError, Tls};
use bytes::Bytes;
use http::{Method, Request};
use serde_json::{Value, json};

/// Timeout, longer than any call on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running moto.
#[derive(Clone)]
pub(crate) struct Moto {
    client: Client,
    folder: PathBuf,
    /// Content of `endpoints.json`.
    endpoints: Value,
}

impl Moto {
    /// Reads the folder in `BOWLINE_AWS`; `None` if the variable is not set.
    pub(crate) fn open() -> Option<Moto> {
        let folder = PathBuf::from(std::env::var_os("BOWLINE_AWS")?);
        let endpoints = std::fs::read_to_string(folder.join("endpoints.json")).unwrap();
        Some(Moto { client: client(TIMEOUT), folder, endpoints: serde_json::from_str(&endpoints).unwrap() })
    }

    /// Folder with `cloud.conf` and `ids.json`. A reset rewrites them.
    pub(crate) fn folder(&self) -> &PathBuf {
        &self.folder
    }

    /// IDs of the resources of the cluster by name.
    pub(crate) fn ids(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.folder.join("ids.json")).unwrap()).unwrap()
    }

    /// An entry of `endpoints.json`: `endpoint`, `metadata`, `region`, `access_key` or `secret_key`.
    pub(crate) fn endpoint(&self, name: &str) -> String {
        text(&self.endpoints[name])
    }

    async fn control(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let (status, content) = self.try_control(&method, path, body).await;
        assert_eq!(status, 200, "{method} {path} {body:?}: {content}");
        serde_json::from_str(&content).unwrap()
    }

    /// Returns status and body.
    async fn try_control(&self, method: &Method, path: &str, body: Option<&Value>) -> (u16, String) {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}/{path}", text(&self.endpoints["control"])))
            .body(body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string())))
            .unwrap();
        let response = self.client.send(request).await.unwrap();
        (response.status().as_u16(), String::from_utf8_lossy(response.body()).into_owned())
    }

    /// Deletes everything, creates the resources of a cluster, and returns their IDs by name. The options are `cluster`, `nodes` and
    /// `instances`.
    pub(crate) async fn reset(&self, options: Value) -> Value {
        self.control(Method::POST, "reset", Some(&options)).await
    }

    /// Calls an API with boto3, past the proxy, and returns all pages of the response.
    pub(crate) async fn call(&self, api: &str, operation: &str, parameters: Value) -> Value {
        let call = json!({"api": api, "operation": operation, "parameters": parameters});
        self.control(Method::POST, "call", Some(&call)).await
    }

    /// The same for a resource that may have been deleted meanwhile; then returns null.
    pub(crate) async fn call_if_exists(&self, api: &str, operation: &str, parameters: Value) -> Value {
        let call = json!({"api": api, "operation": operation, "parameters": parameters});
        let (status, content) = self.try_control(&Method::POST, "call", Some(&call)).await;
        let is_gone = status == 400 && content.contains("NotFound");
        assert!(status == 200 || is_gone, "{call}: {content}");
        if is_gone { Value::Null } else { serde_json::from_str(&content).unwrap() }
    }

    /// Calls since the last reset, in their order.
    pub(crate) async fn journal(&self) -> Vec<Value> {
        list(&self.control(Method::GET, "requests", None).await).to_vec()
    }

    /// Requests whose signature or parameters the proxy has refused. A reset keeps them.
    pub(crate) async fn refused(&self) -> Vec<Value> {
        list(&self.control(Method::GET, "refused", None).await).to_vec()
    }

    pub(crate) async fn forget_refused(&self) {
        self.control(Method::DELETE, "refused", None).await;
    }

    /// Reads a path of the metadata service, as a process of the instance does.
    pub(crate) async fn metadata(&self, path: &str) -> String {
        let send = async |method: Method, path: &str, name: &str, value: &str| {
            let request = Request::builder().method(method).uri(format!("{}/latest/{path}", self.endpoint("metadata")));
            let response = self.client.send(request.header(name, value).body(Bytes::new()).unwrap()).await.unwrap();
            assert_eq!(response.status(), 200, "{path}");
            String::from_utf8_lossy(response.body()).into_owned()
        };
        let token = send(Method::PUT, "api/token", "x-aws-ec2-metadata-token-ttl-seconds", "60").await;
        send(Method::GET, path, "x-aws-ec2-metadata-token", &token).await
    }

    /// Number of calls in the journal by API and action.
    pub(crate) async fn counts(&self) -> Value {
        self.control(Method::GET, "counts", None).await
    }

    /// Number of calls and of writes since the last reset.
    pub(crate) async fn totals(&self) -> (u64, u64) {
        let totals = self.control(Method::GET, "totals", None).await;
        (totals["calls"].as_u64().unwrap(), totals["writes"].as_u64().unwrap())
    }

    /// Replaces all faults.
    pub(crate) async fn set_faults(&self, faults: Value) {
        self.clear_faults().await;
        self.control(Method::POST, "faults", Some(&faults)).await;
    }

    pub(crate) async fn clear_faults(&self) {
        self.control(Method::DELETE, "faults", None).await;
    }

    /// Limits the pages of actions: `{"DescribeInstances": 5}`.
    pub(crate) async fn limit_pages(&self, pages: Value) {
        self.control(Method::POST, "page-size", Some(&pages)).await;
    }

    /// Sends a request without signature to the checked endpoint; returns status and body.
    pub(crate) async fn unsigned(&self, form: &str) -> (u16, String) {
        self.try_unsigned(form).await.unwrap()
    }

    /// The same, with the error if there is no response.
    pub(crate) async fn try_unsigned(&self, form: &str) -> Result<(u16, String), RequestError> {
        let request = Request::builder().method(Method::POST).uri(self.endpoint("endpoint"));
        let request = request.header("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        let response = self.client.send(request.body(Bytes::from(form.to_owned())).unwrap()).await?;
        Ok((response.status().as_u16(), String::from_utf8_lossy(response.body()).into_owned()))
    }
}

// ---- instances

impl Moto {
    /// Starts an instance of the cluster in the subnet with this name, and returns its ID.
    pub(crate) async fn run_instance(&self, ids: &Value, subnet: &str, cluster: &str) -> String {
        let tag = json!({"Key": format!("kubernetes.io/cluster/{cluster}"), "Value": "owned"});
        let parameters = json!({
            "ImageId": ids["image"], "InstanceType": "t3.medium", "MinCount": 1, "MaxCount": 1,
            "SubnetId": ids[subnet], "SecurityGroupIds": [ids["sg-nodes"]],
            "TagSpecifications": [{"ResourceType": "instance", "Tags": [tag]}],
        });
        text(&self.call("ec2", "run_instances", parameters).await["Instances"][0]["InstanceId"])
    }

    /// Returns an instance as boto3 shows it.
    pub(crate) async fn instance(&self, id: &str) -> Value {
        let found = self.call("ec2", "describe_instances", json!({"InstanceIds": [id]})).await;
        found["Reservations"][0]["Instances"][0].clone()
    }

    /// Changes `state`, `ipv4`, `ipv6` or `private_dns_name` of an instance.
    pub(crate) async fn change_instance(&self, id: &str, change: Value) {
        self.control(Method::POST, &format!("instances/{id}"), Some(&change)).await;
    }
}

/// A client that uses no proxy.
pub(crate) fn client(timeout: Duration) -> Client {
    Client::new(Options { tls: Tls::default(), proxies: Proxies::default(), timeout }).unwrap()
}

/// Returns a text; empty if it is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns a list; empty if it is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
