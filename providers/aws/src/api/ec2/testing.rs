//! EC2 with scripted responses, for tests of decisions between calls.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_cloud::Calls;
use bowline_config::Secret;
use bowline_http::{Bearer, Client};
use bytes::Bytes;
use http::{HeaderValue, Request, Response};

use super::{API, Ec2};
use crate::api::Service;

/// A request: the action, and the values of its parameters in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) action: String,
    pub(crate) parameters: Vec<(String, String)>,
}

impl Call {
    /// Returns the values of a list, such as `InstanceId`.
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        let is_item = |key: &str| key.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        self.parameters.iter().filter(|(key, _)| is_item(key)).map(|(_, value)| value.as_str()).collect()
    }
}

/// All calls, in order.
pub(crate) type Journal = Arc<Mutex<Vec<Call>>>;

/// Returns EC2 with these responses: the elements of a success, or code and message of an error.
pub(crate) fn scripted(
    answer: impl Fn(&Call) -> Result<String, (&'static str, String)> + Send + Sync + 'static,
) -> (Ec2, Journal) {
    let journal = Journal::default();
    let calls = journal.clone();
    let handler = move |request: Request<Bytes>| {
        let call = decoded(request.body());
        let (status, body) = match answer(&call) {
            Ok(elements) => (200, format!("<Response><requestId>r</requestId>{elements}</Response>")),
            Err((code, message)) => {
                let error = format!("<Code>{code}</Code><Message>{message}</Message>");
                (400, format!("<Response><Errors><Error>{error}</Error></Errors></Response>"))
            }
        };
        calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        let response = Response::builder().status(status).body(Bytes::from(body)).expect("a response");
        std::future::ready(Ok(response))
    };
    let client = Client::in_process(Arc::new(handler), Duration::from_secs(30));
    let signer = Bearer::new(&Secret::from("token".to_owned())).expect("a token");
    let service = Service::new(client, &Calls::default(), API, HeaderValue::from_static("test"), signer);
    (Ec2(service), journal)
}

fn decoded(body: &[u8]) -> Call {
    let mut parameters = Vec::new();
    let mut action = String::new();
    for pair in String::from_utf8_lossy(body).split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "Action" => action = value.to_owned(),
            "Version" => {}
            key => parameters.push((key.to_owned(), value.to_owned())),
        }
    }
    Call { action, parameters }
}
