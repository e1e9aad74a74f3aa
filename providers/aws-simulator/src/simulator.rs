//! State of the simulated account, authorization and dispatch of requests.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use bowline_simulator::{Call, Clock, Fields, Ids, Jobs, Locked, Operation, Record, Records, Reply, Service, Views};
use tokio::time::Instant;

use crate::auth::{self, AccessKey};
use crate::fixture::{self, Fixture};
use crate::metadata::{self, Endpoint};
use crate::options::Options;
use crate::params::Params;
use crate::wire::{Api, Failure, Outcome, field, form, require, response};
use crate::{ec2, elb, elbv2, sts};

/// A simulated AWS account. Clones share the same state.
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

/// State of the account.
#[derive(Default)]
pub struct State {
    pub(crate) options: Options,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    pub(crate) fixture: Fixture,
    pub(crate) records: Records<&'static str>,
    /// New load balancers of ELBv2 that are still `provisioning`.
    pub(crate) jobs: Jobs<String>,
    /// Access keys, by ID.
    pub(crate) keys: BTreeMap<String, AccessKey>,
    /// ARN of the identity that made the current request.
    pub(crate) caller: String,
    /// Tokens of the metadata service, with their expiry.
    pub(crate) tokens: BTreeMap<String, Instant>,
    /// Instance that the metadata service describes; empty if there is none.
    pub(crate) own_instance: String,
    /// Draining targets with the end of the draining, by ARN of the target group, ID and port.
    pub(crate) draining: BTreeMap<(String, String, String), Instant>,
    /// Security groups that interfaces of deleted load balancers use, until this time.
    pub(crate) lingering: Vec<(String, Instant)>,
    /// New resources that reads do not show, with the number of these reads.
    hidden: Vec<(&'static str, String, u64)>,
    /// Number of addresses allocated so far.
    pub(crate) count: u32,
    requests: u64,
}

/// Kinds of records that can be hidden, each with a part of the names of the actions that read them.
const READERS: [(&str, &str); 3] =
    [("security_group", "SecurityGroup"), ("load_balancer", "LoadBalancer"), ("target_group", "Target")];

/// An action of an API.
pub(crate) struct Action {
    pub(crate) name: &'static str,
    /// Parameters, as [`Params`] describes them.
    pub(crate) patterns: &'static str,
    pub(crate) run: fn(&mut State, &Params) -> Outcome,
}

impl Action {
    pub(crate) const fn new(
        name: &'static str,
        patterns: &'static str,
        run: fn(&mut State, &Params) -> Outcome,
    ) -> Action {
        Action { name, patterns, run }
    }
}

impl Simulator {
    /// Creates an account with the fixture.
    pub fn new(options: Options) -> Simulator {
        let mut state = State { options, ..State::default() };
        state.keys.extend([AccessKey::of_account(&state.options.account)]);
        fixture::populate(&mut state);
        Simulator { cloud: bowline_simulator::Simulator::new(state) }
    }

    pub(crate) fn state(&self) -> Locked<'_, State> {
        self.cloud.service()
    }
}

impl Service for State {
    fn answer(&mut self, call: &Call) -> Reply {
        if let Some(endpoint) = Endpoint::of(call) {
            return metadata::answer(self, call, endpoint);
        }
        self.requests += 1;
        let request = format!("00000000-0000-4000-8000-{:012x}", self.requests);
        let form = form(call);
        let (api, action) = (Api::of_version(field(&form, "Version")), field(&form, "Action"));
        let reply = match self.query(call, api, action, &form) {
            Ok((api, content)) => response(api, action, &content, &request),
            Err(failure) => failure.reply(api, &request),
        };
        let date = self.clock.date_in(Duration::ZERO).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        reply.with("x-amzn-requestid", request).with("date", date)
    }

    /// Journal entries and faults use the API and the action: `ec2 DescribeInstances`. A dry run is no write.
    fn operation(&self, call: &Call) -> Operation {
        let (part, name, is_write) = match Endpoint::of(call) {
            Some(endpoint) => (endpoint.name(), call.path.get(1..).unwrap_or_default().join("/"), false),
            None => {
                let form = form(call);
                let (api, action) = (Api::of_version(field(&form, "Version")), field(&form, "Action"));
                let reads = ["Describe", "Get", "Assume"];
                let is_read = reads.iter().any(|prefix| action.starts_with(prefix));
                let is_write = !is_read && field(&form, "DryRun") != "true";
                (api.map_or("unknown", Api::name), action.to_owned(), is_write)
            }
        };
        let template = format!("{part} {name}");
        Operation { part, path: template.clone(), template, is_write }
    }

    fn is_read(&self, call: &Call) -> bool {
        !self.operation(call).is_write
    }

    fn settle(&mut self) {
        for job in self.jobs.due() {
            elbv2::finish(self, &job);
        }
        self.draining.retain(|_, end| *end > Instant::now());
        self.lingering.retain(|(_, end)| *end > Instant::now());
    }

    fn views(&mut self) -> Option<&mut dyn Views> {
        Some(&mut self.records)
    }
}

impl State {
    fn query(
        &mut self,
        call: &Call,
        api: Option<Api>,
        name: &str,
        form: &[(String, String)],
    ) -> Result<(Api, serde_json::Value), Failure> {
        let unknown = || Failure::new("InvalidAction", format!("The action {name} is not valid for this web service."));
        let api = api.ok_or_else(unknown)?;
        let actions = match api {
            Api::Ec2 => ec2::ACTIONS,
            Api::Elb => elb::ACTIONS,
            Api::Elbv2 => elbv2::ACTIONS,
            Api::Sts => sts::ACTIONS,
        };
        let action = actions.iter().find(|action| action.name == name).ok_or_else(unknown)?;
        if name != "AssumeRoleWithWebIdentity" {
            self.caller = auth::check(self, api, call)?;
        }
        let params = Params::read(api, form, action.patterns)?;
        self.permit(api, name)?;
        let dry_run = || {
            Failure::new("DryRunOperation", "Request would have succeeded, but DryRun flag is set.").with_status(412)
        };
        require(params.text("DryRun") != "true", dry_run)?;
        let content = if self.is_read(call) { self.run_hiding(action, &params) } else { (action.run)(self, &params) };
        Ok((api, content?))
    }

    fn permit(&self, api: Api, action: &str) -> Result<(), Failure> {
        let name = format!("{}:{action}", api.signing_name());
        require(!self.options.denied.contains(&name), || {
            let message = format!("User: {} is not authorized to perform: {name}", self.caller);
            let code = if api == Api::Ec2 { "UnauthorizedOperation" } else { "AccessDenied" };
            Failure::new(code, message).with_status(403)
        })
    }

    // ---- eventual consistency

    /// Hides a new resource from the next reads.
    pub(crate) fn hide(&mut self, kind: &'static str, id: &str) {
        if self.options.hidden_reads > 0 {
            self.hidden.push((kind, id.to_owned(), self.options.hidden_reads));
        }
    }

    /// Shows all hidden resources.
    pub(crate) fn show_hidden(&mut self) {
        self.hidden.clear();
    }

    /// Runs a read on records without the hidden ones.
    fn run_hiding(&mut self, action: &Action, params: &Params) -> Outcome {
        if self.hidden.is_empty() {
            return (action.run)(self, params);
        }
        let complete = self.records.clone();
        for (kind, id, reads) in &mut self.hidden {
            self.records.of_mut(kind).remove(id);
            *reads -= u64::from(READERS.iter().any(|(read, name)| read == kind && action.name.contains(name)));
        }
        self.hidden.retain(|(_, _, reads)| *reads > 0);
        let outcome = (action.run)(self, params);
        self.records = complete;
        outcome
    }

    // ---- records

    /// Stores a record under this ID.
    pub(crate) fn store(&mut self, kind: &'static str, owner: &str, id: &str, mut record: Record) {
        record.set("id", id);
        self.records.of_mut(kind).insert(owner, record);
    }

    /// New ID with this prefix, such as `sg-0123456789abcdef0`.
    pub(crate) fn new_id(&mut self, prefix: &str) -> String {
        format!("{prefix}-0{}", self.ids.hex().get(..16).unwrap_or_default())
    }

    /// Whether the records of the account are hidden, as in a view without records: IDs are then not found without an error.
    pub(crate) fn is_empty_view(&self) -> bool {
        self.records.of("vpc").is_empty()
    }
}
