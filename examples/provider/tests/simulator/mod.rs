//! The Acme cloud, as far as its provider can see: servers in memory behind HTTP, and trouble on demand.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use bowline_conformance::Trouble;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

pub(crate) const TOKEN: &str = "secret";
const PAGE: usize = 50;

/// Listens until it is dropped.
pub(crate) struct Simulator {
    pub(crate) endpoint: String,
    state: Arc<Mutex<State>>,
    listening: AbortHandle,
}

#[derive(Default)]
struct State {
    servers: BTreeMap<String, Value>,
    made: u32,
    calls: u64,
    trouble: Option<Trouble>,
}

type Reply = Response<Full<Bytes>>;

impl Simulator {
    pub(crate) async fn start() -> Simulator {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let listening = tokio::spawn(listen(listener, Arc::clone(&state))).abort_handle();
        Simulator { endpoint, state, listening }
    }

    /// Makes a server and returns its ID.
    pub(crate) fn add(&self, mut server: Value) -> String {
        let mut state = self.state();
        state.made += 1;
        let id = format!("{:06x}", 0xab0000 + state.made);
        server["id"] = json!(id);
        state.servers.insert(id.clone(), server);
        id
    }

    pub(crate) fn set(&self, id: &str, field: &str, value: &str) {
        self.state().servers.get_mut(id).unwrap()[field] = json!(value);
    }

    pub(crate) fn delete(&self, id: &str) {
        self.state().servers.remove(id).unwrap();
    }

    pub(crate) fn trouble(&self, trouble: Option<Trouble>) {
        self.state().trouble = trouble;
    }

    pub(crate) fn calls(&self) -> u64 {
        self.state().calls
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn listen(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        let service = service_fn(move |request: Request<_>| {
            let reply = state.lock().unwrap().reply(&request);
            async move { Ok::<_, Infallible>(reply) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

impl State {
    fn reply<B>(&mut self, request: &Request<B>) -> Reply {
        self.calls += 1;
        let known =
            request.headers().get(header::AUTHORIZATION).is_some_and(|value| value == &format!("Bearer {TOKEN}"));
        match self.trouble {
            _ if !known => answer(401, &json!({"code": "who_are_you"})),
            Some(Trouble::Unauthenticated) => answer(401, &json!({"code": "token_expired"})),
            Some(Trouble::Forbidden) => answer(403, &json!({"code": "forbidden"})),
            Some(Trouble::Throttled(wait)) => {
                let mut reply = answer(429, &json!({"code": "slow_down"}));
                reply.headers_mut().insert(header::RETRY_AFTER, wait.as_secs().into());
                reply
            }
            Some(Trouble::Broken) => answer(503, &json!({"code": "maintenance"})),
            Some(Trouble::Garbled) => Response::new(Full::from("<html>")),
            Some(Trouble::Empty) => answer(200, &json!({"servers": []})),
            None => self.served(request.uri().path(), request.uri().query().unwrap_or_default()),
        }
    }

    fn served(&self, path: &str, query: &str) -> Reply {
        let Some(id) = path.strip_prefix("/servers/") else { return answer(200, &self.page(query)) };
        match self.servers.get(id) {
            Some(server) => answer(200, server),
            None => answer(404, &json!({"code": "server_not_found"})),
        }
    }

    /// Goes on after an ID, so that servers that come and go do not shift the pages.
    fn page(&self, query: &str) -> Value {
        let query: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let (after, name) = (query.get("after").cloned().unwrap_or_default(), query.get("name"));
        let wanted =
            |(id, server): &(&String, &Value)| **id > after && name.is_none_or(|name| server["name"] == **name);
        let mut servers: Vec<_> = self.servers.iter().filter(wanted).map(|(_, server)| server).collect();
        let more = servers.len() > PAGE;
        servers.truncate(PAGE);
        let next = servers.last().filter(|_| more).map(|last| &last["id"]);
        json!({"servers": servers, "next": next})
    }
}

fn answer(status: u16, body: &Value) -> Reply {
    Response::builder().status(status).body(Full::from(body.to_string())).unwrap()
}
