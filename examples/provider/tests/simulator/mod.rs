//! The Acme cloud, as far as its provider can see: servers, served over HTTP, and faults on demand.

use bowline_conformance::Trouble;
use bowline_simulator::{Call, Fault, FaultSpec, Fields, Page, Record, Records, Reply, Server, Service, Views, object};
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "secret";
const PAGE: usize = 50;

/// Listens until it is dropped.
pub(crate) struct Simulator {
    pub(crate) endpoint: String,
    cloud: bowline_simulator::Simulator<Acme>,
    _server: Server,
}

#[derive(Default)]
struct Acme {
    records: Records<&'static str>,
    made: u32,
}

impl Simulator {
    pub(crate) async fn start() -> Simulator {
        let cloud = bowline_simulator::Simulator::new(Acme::default());
        let server = cloud.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
        Simulator { endpoint: server.url(), cloud, _server: server }
    }

    /// Makes a server and returns its ID.
    pub(crate) fn add(&self, server: Value) -> String {
        let acme = &mut *self.cloud.service();
        acme.made += 1;
        let (id, mut server) = (format!("{:06x}", 0xab0000 + acme.made), object(server));
        server.set("id", id.clone());
        acme.records.of_mut("server").insert("", server);
        id
    }

    pub(crate) fn set(&self, id: &str, field: &str, value: &str) {
        self.cloud.service().records.get_mut("server", id).unwrap().set(field, value);
    }

    pub(crate) fn delete(&self, id: &str) {
        self.cloud.service().records.of_mut("server").remove(id).unwrap();
    }

    pub(crate) fn trouble(&self, trouble: Option<Trouble>) {
        let refused = |status, code| Fault::Answer(status, json!({"code": code}).to_string());
        self.cloud.repair_all();
        let fault = match trouble {
            None => return,
            Some(Trouble::Unauthenticated) => refused(401, "token_expired"),
            Some(Trouble::Forbidden) => refused(403, "forbidden"),
            Some(Trouble::Throttled(wait)) => Fault::Throttled(Some(wait)),
            Some(Trouble::Broken) => refused(503, "maintenance"),
            Some(Trouble::Garbled) => Fault::Garbled,
            Some(Trouble::Empty) => Fault::Empty,
            Some(Trouble::NotFound(body)) => Fault::Answer(404, body.to_owned()),
            Some(Trouble::Slow(delay)) => Fault::Slow(delay),
        };
        self.cloud.inject(FaultSpec::always(fault));
    }

    pub(crate) fn calls(&self) -> u64 {
        self.cloud.calls()
    }
}

impl Service for Acme {
    fn answer(&mut self, call: &Call) -> Reply {
        if call.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return Reply::json(401, json!({"code": "who_are_you"}));
        }
        match call.segments().as_slice() {
            ["servers"] => self.page(call),
            ["servers", id] => match self.records.get("server", id) {
                Some(server) => Reply::json(200, server.clone().into()),
                None => Reply::json(404, json!({"code": "server_not_found"})),
            },
            _ => Reply::text(404, "no such path"),
        }
    }

    fn views(&mut self) -> Option<&mut dyn Views> {
        Some(&mut self.records)
    }
}

impl Acme {
    /// Goes on after an ID, whether there is still such a server or not.
    fn page(&self, call: &Call) -> Reply {
        let (after, name) = (call.value("after").unwrap_or_default(), call.value("name"));
        let servers = self.records.of("server").iter().map(|row| &row.record);
        let is_wanted =
            |server: &&Record| server.text("id") > after && name.is_none_or(|name| server.text("name") == name);
        let Some(page) = Page::after(servers.filter(is_wanted).cloned().collect(), None, Some(PAGE)) else {
            return Reply::json(400, json!({"code": "bad_page"}));
        };
        let next = page.last().filter(|_| page.has_more);
        Reply::json(200, json!({"servers": page.records, "next": next}))
    }
}
