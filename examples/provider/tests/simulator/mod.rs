//! The Acme cloud, as far as its provider can see: servers and load balancers, served over HTTP, and faults on demand.

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

    pub(crate) fn load_balancers(&self) -> Vec<Record> {
        self.cloud.service().records.of("load_balancer").iter().map(|row| row.record.clone()).collect()
    }

    /// Creates a load balancer as another client would.
    pub(crate) fn add_load_balancer(&self, settings: Value) -> Record {
        self.cloud.service().create(object(settings))
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
            ["load_balancers"] if call.method == "POST" => {
                Reply::json(200, self.create(call.json().map(object).unwrap_or_default()).into())
            }
            ["load_balancers"] => self.load_balancers(call),
            ["load_balancers", id] => self.load_balancer(call, id),
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

    /// The load balancer of this owner, which is created if there is none.
    fn create(&mut self, settings: Record) -> Record {
        let all = self.records.of_mut("load_balancer");
        let owner = settings.get("owner").filter(|owner| !owner.is_null());
        let existing = all.iter().find(|row| owner.is_some() && row.record.get("owner") == owner);
        if let Some(row) = existing {
            return row.record.clone();
        }
        self.made += 1;
        let mut new = object(json!({"id": format!("{:06x}", self.made), "servers": [], "ports": [], "owner": null}));
        new.set("ip", format!("203.0.113.{}", self.made % 250));
        new.extend(settings);
        all.insert("", new.clone());
        new
    }

    fn load_balancer(&mut self, call: &Call, id: &str) -> Reply {
        let Some(found) = self.records.get_mut("load_balancer", id) else {
            return Reply::json(404, json!({"code": "load_balancer_not_found"}));
        };
        if call.method == "DELETE" {
            self.records.of_mut("load_balancer").remove(id);
            return Reply::empty(204);
        }
        found.extend(call.json().map(object).unwrap_or_default());
        Reply::json(200, found.clone().into())
    }

    /// By cluster and UID of the owner.
    fn load_balancers(&self, call: &Call) -> Reply {
        let after = call.value("after").unwrap_or_default();
        let has = |record: &Record, field: &str| {
            call.value(field).is_none_or(|value| record.get("owner").is_some_and(|owner| owner[field] == value))
        };
        let all = self.records.of("load_balancer").iter().map(|row| &row.record);
        let found = all.filter(|one| one.text("id") > after && has(one, "cluster") && has(one, "uid"));
        let Some(page) = Page::after(found.cloned().collect(), None, Some(SMALL_PAGE)) else {
            return Reply::json(400, json!({"code": "bad_page"}));
        };
        let next = page.last().filter(|_| page.has_more);
        Reply::json(200, json!({"load_balancers": page.records, "next": next}))
    }
}
