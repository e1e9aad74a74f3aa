//! Simulator of the Acme cloud: servers, load balancers and a route table, served over HTTP, and faults on demand.

mod load_balancers;
mod routes;

use bowline_conformance::InducedFault;
use bowline_simulator::{Call, Fault, FaultSpec, Fields, Page, Record, Records, Reply, Server, Service, Views, object};
use serde_json::{Value, json};

pub(crate) const TOKEN: &str = "secret";
const PAGE: usize = 50;
pub(crate) const SMALL_PAGE: usize = 5;

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
        self.cloud.service().insert("server", object(server)).text("id").to_owned()
    }

    pub(crate) fn set(&self, id: &str, field: &str, value: &str) {
        self.cloud.service().records.get_mut("server", id).unwrap().set(field, value);
    }

    pub(crate) fn delete(&self, id: &str) {
        let acme = &mut *self.cloud.service();
        acme.records.of_mut("server").remove(id).unwrap();
        acme.remove_target(id);
    }

    pub(crate) fn induce(&self, fault: Option<InducedFault>) {
        let refused = |status, code| Fault::Answer(status, json!({"code": code}).to_string());
        self.cloud.repair_all();
        let fault = match fault {
            None => return,
            Some(InducedFault::Unauthenticated) => refused(401, "token_expired"),
            Some(InducedFault::Forbidden) => refused(403, "forbidden"),
            Some(InducedFault::Throttled(wait)) => Fault::Throttled(Some(wait)),
            Some(InducedFault::Broken) => refused(503, "maintenance"),
            Some(InducedFault::Garbled) => Fault::Garbled,
            Some(InducedFault::Empty) => Fault::Empty,
            Some(InducedFault::NotFound(body)) => Fault::Answer(404, body.to_owned()),
            Some(InducedFault::Slow(delay)) => Fault::Slow(delay),
        };
        self.cloud.inject(FaultSpec::always(fault));
    }

    pub(crate) fn calls(&self) -> u64 {
        self.cloud.calls()
    }

    pub(crate) fn writes(&self) -> u64 {
        self.cloud.writes().len() as u64
    }

    pub(crate) fn crash_after(&self, calls: Option<u64>) {
        self.cloud.repair_all();
        if let Some(calls) = calls {
            self.cloud.crash_after(calls);
        }
    }

    /// All records of this kind.
    pub(crate) fn all(&self, kind: &'static str) -> Vec<Record> {
        self.cloud.service().records.of(kind).iter().map(|row| row.record.clone()).collect()
    }

    /// Creates a load balancer as another client would.
    pub(crate) fn add_load_balancer(&self, settings: Value) -> Record {
        self.cloud.service().create_load_balancer(object(settings))
    }

    /// Creates a route as another client would.
    pub(crate) fn add_route(&self, route: Value) -> Record {
        self.cloud.service().insert("route", object(route))
    }
}

impl Service for Acme {
    fn answer(&mut self, call: &Call) -> Reply {
        if call.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            return error(401, "who_are_you");
        }
        match call.segments().as_slice() {
            ["servers", rest @ ..] => self.servers(call, rest),
            ["load_balancers", rest @ ..] => self.load_balancers(call, rest),
            ["routes", rest @ ..] => self.routes(call, rest),
            _ => Reply::text(404, "no such path"),
        }
    }

    fn views(&mut self) -> Option<&mut dyn Views> {
        Some(&mut self.records)
    }
}

impl Acme {
    fn servers(&self, call: &Call, rest: &[&str]) -> Reply {
        let name = call.value("name");
        match rest {
            [] => self.page(call, "server", PAGE, |server| name.is_none_or(|name| server.text("name") == name)),
            [id] => self.records.get("server", id).map_or_else(|| not_found("server"), found),
            _ => Reply::text(404, "no such path"),
        }
    }

    /// Adds a record with a new ID.
    fn insert(&mut self, kind: &'static str, mut record: Record) -> Record {
        self.made += 1;
        record.set("id", format!("{:06x}", 0xab0000 + self.made));
        self.records.of_mut(kind).insert("", record.clone());
        record
    }

    /// The next records that the caller wants, after the ID in `after`, whether that record still exists or not.
    fn page(&self, call: &Call, kind: &'static str, limit: usize, is_wanted: impl Fn(&Record) -> bool) -> Reply {
        let after = call.value("after").unwrap_or_default();
        let records = self.records.of(kind).iter().map(|row| &row.record);
        let rest = records.filter(|record| record.text("id") > after && is_wanted(record));
        let Some(page) = Page::after(rest.cloned().collect(), None, Some(limit)) else {
            return error(400, "bad_page");
        };
        let next = page.last().filter(|_| page.has_more);
        Reply::json(200, json!({format!("{kind}s"): page.records, "next": next}))
    }
}

fn found(record: &Record) -> Reply {
    Reply::json(200, record.clone().into())
}

fn not_found(kind: &str) -> Reply {
    error(404, &format!("{kind}_not_found"))
}

fn error(status: u16, code: &str) -> Reply {
    Reply::json(status, json!({"code": code}))
}
