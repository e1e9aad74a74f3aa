//! The cases about loops with a loop that follows Services: a firewall with a rule for each node port.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{
    Capabilities, CloudProvider, ClusterSnapshot, Error, ErrorKind, LoopPlan, LoopTriggers, ProviderInfo, ProviderLoop,
    Result, TypedProviderLoop,
};
use bowline_conformance::{Bench, BenchResult, InducedFault, LoopBench, Outcome, WantedMachine, cases, run_one};
use bowline_core::{FieldChange, Instance, ProviderId, Step, Verb};

type Rules = BTreeSet<String>;

/// Change of the desired rules by a flaw of the loop, from the observed ones.
type Flaw = fn(&Rules, &mut Rules);

#[derive(Default)]
struct State {
    rules: Rules,
    calls: u64,
    writes: u64,
    fault: Option<InducedFault>,
    /// Number of calls until the crash.
    calls_left: Option<u64>,
}

/// Firewall of a cloud, which several clusters share.
struct Firewall {
    info: ProviderInfo,
    capabilities: Capabilities,
    state: Arc<Mutex<State>>,
    flaw: Flaw,
}

/// The loop.
struct NodePorts {
    state: Arc<Mutex<State>>,
    flaw: Flaw,
}

/// Makes a call, unless a fault prevents it.
fn call<T>(state: &Mutex<State>, effect: impl FnOnce(&mut State) -> T) -> Result<T> {
    let mut state = state.lock().unwrap();
    state.calls += 1;
    let kind = state.fault.map(|fault| match fault {
        InducedFault::Unauthenticated => ErrorKind::Unauthenticated,
        InducedFault::Forbidden => ErrorKind::PermissionDenied,
        InducedFault::Throttled(_) => ErrorKind::RateLimited,
        InducedFault::Broken => ErrorKind::Unavailable,
        _ => ErrorKind::Unexpected,
    });
    let failed = |kind| Error::new(kind, "firewall", "induced");
    let left = state.calls_left;
    state.calls_left = left.map(|left| left.saturating_sub(1));
    match (kind, left) {
        (Some(kind), _) => Err(failed(kind)),
        (None, Some(0)) => Err(failed(ErrorKind::Unavailable)),
        (None, Some(1)) => {
            effect(&mut state);
            Err(failed(ErrorKind::Unavailable))
        }
        (None, _) => Ok(effect(&mut state)),
    }
}

/// New rules of one cluster.
#[derive(Debug, Clone, PartialEq)]
struct NewRules {
    prefix: String,
    rules: Rules,
}

#[async_trait]
impl TypedProviderLoop for NodePorts {
    type Change = NewRules;

    fn name(&self) -> &str {
        "node-ports"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn triggers(&self) -> LoopTriggers {
        LoopTriggers::SERVICES
    }

    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<NewRules>> {
        let prefix = format!("{} ", cluster.name);
        let observed: Rules = call(&self.state, |state| rules_of(state, &prefix))?;
        let mut rules = desired(cluster);
        (self.flaw)(&observed, &mut rules);
        let changes: Vec<_> = observed.symmetric_difference(&rules).map(|rule| change(rule, &rules)).collect();
        let step = Step::new(Verb::Update, "firewall", cluster.name.to_string(), changes, NewRules { prefix, rules });
        Ok(LoopPlan::new("", (!step.changes.is_empty()).then_some(step).into_iter().collect()))
    }

    async fn apply(&self, NewRules { prefix, rules }: &NewRules) -> Result<()> {
        call(&self.state, |state| {
            state.writes += 1;
            state.rules.retain(|rule| !rule.starts_with(prefix));
            state.rules.extend(rules.iter().cloned());
        })
    }
}

fn rules_of(state: &State, prefix: &str) -> Rules {
    state.rules.iter().filter(|rule| rule.starts_with(prefix)).cloned().collect()
}

fn desired(cluster: &ClusterSnapshot) -> Rules {
    let ports = cluster.services.iter().flat_map(|service| &service.ports);
    ports.filter_map(|port| Some(format!("{} {} {}", cluster.name, port.protocol, port.node_port?))).collect()
}

fn change(rule: &String, rules: &Rules) -> FieldChange {
    let (removed, added) = if rules.contains(rule) { (None, Some(rule)) } else { (Some(rule), None) };
    FieldChange { field: "rule".to_owned(), from: removed.cloned(), to: added.cloned() }
}

#[async_trait]
impl CloudProvider for Firewall {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        vec![Arc::new(NodePorts { state: self.state.clone(), flaw: self.flaw })]
    }

    async fn check(&self) -> Result<()> {
        call(&self.state, |_| ())
    }
}

struct FirewallBench(Arc<Firewall>);

#[async_trait]
impl Bench for FirewallBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.0.clone()
    }

    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    fn loops(&self) -> Option<&dyn LoopBench> {
        Some(self)
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let (id, name) = (machine.name.clone(), machine.name.clone());
        Instance { provider_id: Some(ProviderId::of("firewall", &id)), id, name, ..Instance::default() }
    }

    async fn stop(&self, _: &Instance) {}

    async fn start(&self, _: &Instance) {}

    async fn delete(&self, _: &Instance) {}

    async fn inject_fault(&self, fault: Option<InducedFault>) -> bool {
        self.0.state.lock().unwrap().fault = fault;
        true
    }

    async fn crash_after(&self, calls: Option<u64>) -> BenchResult {
        self.0.state.lock().unwrap().calls_left = calls;
        BenchResult::Done
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.0.state.lock().unwrap().calls)
    }
}

#[async_trait]
impl LoopBench for FirewallBench {
    async fn writes(&self) -> u64 {
        self.0.state.lock().unwrap().writes
    }

    async fn check(&self, cluster: &ClusterSnapshot) -> std::result::Result<(), String> {
        let prefix = format!("{} ", cluster.name);
        let (rules, desired) = (rules_of(&self.0.state.lock().unwrap(), &prefix), desired(cluster));
        if rules == desired { Ok(()) } else { Err(format!("the rules are {rules:?}, not {desired:?}")) }
    }

    async fn put_foreign(&self, _: &Instance) {
        self.0.state.lock().unwrap().rules.insert("conformance-2 TCP 30080".to_owned());
    }

    async fn foreign(&self) -> Vec<String> {
        let state = self.0.state.lock().unwrap();
        state.rules.iter().filter(|rule| !rule.starts_with("conformance ")).cloned().collect()
    }
}

async fn outcome(case: &str, flaw: Flaw) -> Option<Outcome> {
    let info = || ProviderInfo { name: "firewall".to_owned(), id_prefixes: vec!["firewall".to_owned()] };
    let bench = || async {
        let (capabilities, state) = (Capabilities::default(), Arc::default());
        Box::new(FirewallBench(Arc::new(Firewall { info: info(), capabilities, state, flaw }))) as Box<dyn Bench>
    };
    run_one(case, bench).await
}

#[tokio::test]
async fn a_loop_that_follows_services_passes() {
    let about_loops: Vec<_> = cases().iter().map(|case| case.name).filter(|name| name.contains("loop")).collect();
    assert_eq!(about_loops.len(), 8, "{about_loops:?}");
    for case in about_loops {
        assert_eq!(outcome(case, |_, _| ()).await, Some(Outcome::Passed), "{case}");
    }
}

#[tokio::test]
async fn a_loop_that_ignores_changes_of_services_fails() {
    let flaws: [(&str, Flaw); 3] = [
        ("keeps the rules of removed Services", |observed, rules| rules.extend(observed.iter().cloned())),
        ("changes no rule once there are some", |observed, rules| {
            if !observed.is_empty() {
                rules.clone_from(observed);
            }
        }),
        ("ignores UDP", |_, rules| rules.retain(|rule| !rule.contains("UDP"))),
    ];
    for (name, flaw) in flaws {
        let outcome = outcome("loops_follow_the_cluster", flaw).await;
        assert!(matches!(outcome, Some(Outcome::Failed(_))), "a loop that {name}: {outcome:?}");
    }
}
