//! State of the simulated cloud, authorization and dispatch of requests.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use bowline_simulator::{
    Call, Clock, Fields, Ids, Job, Jobs, Locked, Operation, Record, Records, Reply, Service, Views, object,
};
use ipnet::Ipv4Net;
use serde_json::json;
use tokio::time::Instant;

use crate::fixture::{self, items};
use crate::options::Options;
use crate::wire::{Outcome, error, filter, not_found, page, singular, with_request_id};
use crate::{droplets, firewalls, load_balancers, tags};

/// Kinds of records, by their name in paths.
const KINDS: [&str; 8] =
    ["droplets", "load_balancers", "certificates", "tags", "firewalls", "vpcs", "regions", "actions"];

/// Period of the rate limit.
const PERIOD: Duration = Duration::from_secs(3600);

/// A simulated DigitalOcean account. Clones share the same state.
///
/// [`bowline_simulator::Simulator`] provides faults, the journal and the HTTP server.
#[derive(Clone)]
pub struct Simulator {
    cloud: bowline_simulator::Simulator<State>,
}

impl Deref for Simulator {
    type Target = bowline_simulator::Simulator<State>;

    fn deref(&self) -> &Self::Target {
        &self.cloud
    }
}

/// State of the cloud.
#[derive(Default)]
pub struct State {
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    pub(crate) records: Records<&'static str>,
    pub(crate) jobs: Jobs<(&'static str, String)>,
    /// Number of addresses and numeric IDs allocated so far.
    pub(crate) count: u32,
    /// Time at which each load balancer got its size.
    pub(crate) resized: BTreeMap<String, Instant>,
    requests: u64,
    /// Begin of the current period of the rate limit, and the number of requests in it.
    period: Option<(Instant, u64)>,
}

impl Simulator {
    /// Creates an account with regions and a default VPC, without Droplets.
    pub fn new(options: Options) -> Simulator {
        let mut state = State { options, ..State::default() };
        fixture::populate(&mut state);
        Simulator { cloud: bowline_simulator::Simulator::new(state) }
    }

    pub(crate) fn state(&self) -> Locked<'_, State> {
        self.cloud.service()
    }
}

impl Service for State {
    fn answer(&mut self, call: &Call) -> Reply {
        if call.segments() == ["metadata", "v1", "region"] {
            return Reply::text(200, self.options.region.clone());
        }
        let outcome = self.admit(call).and_then(|()| self.route(call));
        self.requests += 1;
        let id = format!("00000000-0000-4000-8000-{:012x}", self.requests);
        self.report_rate(with_request_id(outcome.unwrap_or_else(|error| error), &id))
    }

    /// Journal entries and faults use the path without the version: `load_balancers/{id}`. Validations are not writes.
    fn operation(&self, call: &Call) -> Operation {
        let path = resource(call);
        let template = path.iter().enumerate().map(|(at, segment)| if at == 1 { "{id}" } else { segment });
        let is_write = !call.is_read() && !load_balancers::is_validation(&call.json().map(object).unwrap_or_default());
        Operation { part: "", template: template.collect::<Vec<_>>().join("/"), path: path.join("/"), is_write }
    }

    fn settle(&mut self) {
        for job in self.jobs.due() {
            self.finish(&job);
        }
    }

    fn views(&mut self) -> Option<&mut dyn Views> {
        Some(&mut self.records)
    }
}

impl State {
    /// Checks the token, the rate limit and the scopes.
    fn admit(&mut self, call: &Call) -> Result<(), Reply> {
        if call.header("authorization") != Some(&format!("Bearer {}", self.options.token)) {
            return Err(error(401, "Unable to authenticate you."));
        }
        if !self.count_request() {
            return Err(error(429, "API rate limit exceeded."));
        }
        if scopes(call).iter().any(|scope| self.options.withheld_scopes.contains(scope)) {
            return Err(error(403, "You are not authorized to perform this operation."));
        }
        Ok(())
    }

    /// Counts a request; `false` if it exceeds the rate limit. A period begins with the first request after the last one.
    fn count_request(&mut self) -> bool {
        let current = self.period.filter(|(began, _)| began.elapsed() < PERIOD);
        let (began, used) = current.unwrap_or((Instant::now(), 0));
        self.period = Some((began, used + 1));
        used < self.options.hourly_limit
    }

    /// Adds the rate limit headers to a response.
    fn report_rate(&self, reply: Reply) -> Reply {
        let (began, used) = self.period.unwrap_or((Instant::now(), 0));
        let reset = self.clock.date_in(PERIOD.saturating_sub(began.elapsed())).as_second();
        let remaining = self.options.hourly_limit.saturating_sub(used);
        reply
            .with("ratelimit-limit", self.options.hourly_limit.to_string())
            .with("ratelimit-remaining", remaining.to_string())
            .with("ratelimit-reset", reset.to_string())
    }

    fn route(&mut self, call: &Call) -> Outcome {
        match (call.method.as_str(), resource(call).as_slice()) {
            ("GET", ["account"]) => Ok(Reply::one(200, "account", fixture::fields("account", Record::new()))),
            ("POST", ["droplets", id, "actions"]) => droplets::act(self, call, id),
            ("POST", ["load_balancers"]) => load_balancers::create(self, call),
            ("PUT", ["load_balancers", id]) => load_balancers::update(self, call, id),
            ("POST" | "DELETE", ["load_balancers", id, list @ ("droplets" | "forwarding_rules")]) => {
                load_balancers::change_list(self, call, id, list)
            }
            ("POST", ["tags"]) => tags::create(self, call),
            ("POST" | "DELETE", ["tags", name, "resources"]) => tags::change_resources(self, call, name),
            ("POST", ["firewalls"]) => firewalls::write(self, call, None),
            ("PUT", ["firewalls", id]) => firewalls::write(self, call, Some(id)),
            ("DELETE", [kind @ ("load_balancers" | "firewalls" | "tags"), id]) => self.delete(known(kind)?, id),
            ("GET", [kind]) => self.list(call, known(kind)?),
            ("GET", [kind, id]) => self.show(200, known(kind)?, id),
            _ => Err(unknown_path()),
        }
    }

    fn list(&self, call: &Call, kind: &'static str) -> Outcome {
        let mut rows = self.records.of(kind).oldest_first();
        rows.retain(|row| match kind {
            "droplets" => droplets::matches(call, &row.record),
            "certificates" => filter(call, "name").is_none_or(|name| row.record.text("name") == name),
            _ => true,
        });
        page(call, kind, &rows, self.options.max_page, |row| self.view(kind, &row.record))
    }

    /// Response with a single record.
    pub(crate) fn show(&self, status: u16, kind: &'static str, id: &str) -> Outcome {
        let record = self.records.get(kind, id).ok_or_else(|| not_found(kind))?;
        Ok(Reply::one(status, singular(kind), self.view(kind, record)))
    }

    /// Record as a response shows it.
    pub(crate) fn view(&self, kind: &str, record: &Record) -> Record {
        let mut view = record.clone();
        match kind {
            "droplets" | "actions" => view.set("id", record.text("id").parse::<u64>().unwrap_or_default()),
            "regions" => drop(view.remove("id")),
            "tags" => view = tags::view(self, record.text("id")),
            _ => {}
        }
        view
    }

    fn delete(&mut self, kind: &'static str, id: &str) -> Outcome {
        self.records.of_mut(kind).remove(id).ok_or_else(|| not_found(kind))?;
        if kind == "tags" {
            tags::remove_from_all(self, id);
        }
        Ok(Reply::empty(204))
    }

    /// Completes a change.
    pub(crate) fn finish(&mut self, job: &Job<(&'static str, String)>) {
        let (kind, id) = &job.change;
        if *kind == "load_balancers" {
            load_balancers::finish(self, id, job.fails);
        } else if let Some(firewall) = self.records.get_mut(kind, id) {
            firewall.set("status", if job.fails { "failed" } else { "succeeded" });
            firewall.set("pending_changes", json!([]));
        }
    }

    /// Address range of a VPC.
    pub(crate) fn range(&self, vpc: &str) -> Option<Ipv4Net> {
        self.records.get("vpcs", vpc)?.text("ip_range").parse().ok()
    }
}

/// Path without the version; empty if the version is unknown.
fn resource(call: &Call) -> Vec<&str> {
    call.segments().strip_prefix(&["v2"]).unwrap_or_default().to_vec()
}

fn known(kind: &str) -> Result<&'static str, Reply> {
    KINDS.into_iter().find(|known| *known == kind).ok_or_else(unknown_path)
}

fn unknown_path() -> Reply {
    error(404, "The resource you were accessing could not be found.")
}

/// Scopes that a request requires.
fn scopes(call: &Call) -> Vec<String> {
    let path = resource(call);
    let kind = path.first().copied().unwrap_or_default();
    let name = if ["regions", "actions"].contains(&kind) { kind } else { singular(kind) };
    let verb = match (call.method.as_str(), path.as_slice()) {
        ("GET", _) => "read",
        ("PUT", _) | (_, ["droplets" | "load_balancers", _, _]) => "update",
        ("DELETE", _) => "delete",
        _ => "create",
    };
    let body = call.json().map(object).unwrap_or_default();
    let tagged = items(&body, "resources").iter().filter_map(|resource| tags::kind(&object(resource.clone())));
    let tagged = tagged.map(|kind| format!("{}:update", singular(kind)));
    [format!("{name}:{verb}")].into_iter().chain(tagged).collect()
}
