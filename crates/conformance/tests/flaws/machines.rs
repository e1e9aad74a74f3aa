//! A cloud of machines, and what may be wrong with its provider.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bowline_cloud::{
    Capabilities, CloudProvider, Error, ErrorKind, Identity, InstanceCapabilities, InstancePage, Instances, PageToken,
    ProviderInfo, Result, Retry, Seen,
};
use bowline_conformance::{
    Bench, Capability, Complaint, Group, Hand, Need, Outcome, Report, Trouble, WantedMachine, cases, run,
};
use bowline_core::{Address, AddressType, Instance, InstanceRef, InstanceState, ProviderId};
use ipnet::IpNet;

use crate::refusal;

/// What is wrong with the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    DropsAnAnswer,
    AnswersInItsOwnOrder,
    ErrorIsGone,
    ErrorIsNobodyOfThatName,
    ErrorSeesTheGone,
    LeftOutIsGone,
    StoppedIsGone,
    StoppedIsRunning,
    NameBeforeId,
    NameAfterId,
    CutsIdsOtherwise,
    ReadsOneSpelling,
    TakesForeignIds,
    AsksAboutForeignIds,
    MalformedIsGone,
    FirstOfOneName,
    ForgetsNames,
    ClaimsNoNames,
    ListsOnlyRunning,
    SkipsOnChange,
    ListsForEver,
    FirstPageOnly,
    IdFromName,
    WritesForeignPrefix,
    SortsAddresses,
    ForgetsZones,
    ForgetsLabels,
    OneByOne,
    AsksForNothing,
    EverythingUnexpected,
    ListsInTrouble,
    ForgetsDelay,
    ChecksNothing,
    ClaimsRoutes,
    MixesUpConcurrent,
    ListsUnclaimed,
    SortsPodRanges,
    AssignsTwice,
    RefusesTheSecondTime,
    TakesRangesFromOthers,
    AssignsToNobody,
    AssignsInTrouble,
    AssignsUnclaimed,
    Panics,
}

#[derive(Clone)]
struct Machine {
    instance: Instance,
    stopped: bool,
}

/// A cloud and its provider in one.
struct Toy {
    flaw: Flaw,
    info: ProviderInfo,
    capabilities: Capabilities,
    machines: Mutex<Vec<Machine>>,
    made: AtomicU64,
    calls: AtomicU64,
    under_way: AtomicU64,
    trouble: Mutex<Option<Trouble>>,
    /// How many calls are left until the manager crashes.
    crash: Mutex<Option<u64>>,
}

const PAGE: usize = 3;

impl Toy {
    fn new(flaw: Flaw, instances: InstanceCapabilities) -> Toy {
        let routes = (flaw == Flaw::ClaimsRoutes).then(Default::default);
        Toy {
            flaw,
            info: ProviderInfo { name: format!("toy ({flaw:?})"), id_prefixes: vec!["toy".to_owned()] },
            capabilities: Capabilities { instances: Some(instances), load_balancers: None, routes },
            machines: Mutex::default(),
            made: AtomicU64::default(),
            calls: AtomicU64::default(),
            under_way: AtomicU64::default(),
            trouble: Mutex::default(),
            crash: Mutex::default(),
        }
    }

    /// What stands behind the prefix, with or without a slash in front.
    fn own_id<'a>(&self, id: &'a ProviderId) -> &'a str {
        let rest = id.rest().unwrap_or_default();
        if self.has(Flaw::ReadsOneSpelling) { rest } else { rest.trim_start_matches('/') }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// A call to the cloud: counted, and refused if there is trouble.
    fn call(&self) -> Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let Some(trouble) = *self.trouble.lock().unwrap() else { return Ok(()) };
        let error = refusal(trouble);
        match self.flaw {
            Flaw::EverythingUnexpected => Err(Error::new(ErrorKind::Unexpected, "toy", "?")),
            Flaw::ForgetsDelay => Err(error.retry(Retry::Backoff)),
            Flaw::ErrorSeesTheGone => Err(error.but_seen(Seen::Running)),
            _ => Err(error),
        }
    }

    /// A call that changes something, as [`Toy::call`]: `true` if it is carried out and its answer lost.
    fn write(&self) -> Result<bool> {
        self.call()?;
        match self.crash.lock().unwrap().as_mut() {
            None => Ok(false),
            Some(0) => Err(Error::new(ErrorKind::Unavailable, "toy", "crashed")),
            Some(left) => {
                *left -= 1;
                Ok(*left == 0)
            }
        }
    }

    /// What is wrong with this assignment; `Ok(true)` if there is nothing to do.
    fn check_range(&self, machines: &[Machine], id: &str, range: IpNet) -> Result<bool> {
        let holder = machines.iter().find(|machine| machine.instance.pod_ranges.contains(&range));
        let (known, own) =
            (machines.iter().any(|machine| machine.instance.id == id), holder.map(|one| &one.instance.id));
        let error = |kind| Err(Error::new(kind, "toy", format!("{range}: {own:?}")));
        match own {
            _ if !known && self.has(Flaw::AssignsToNobody) => Ok(true),
            _ if !known => error(ErrorKind::NotFound),
            Some(own) if own == id && self.has(Flaw::RefusesTheSecondTime) => error(ErrorKind::AlreadyExists),
            Some(own) if own == id => Ok(!self.has(Flaw::AssignsTwice)),
            Some(_) if !self.has(Flaw::TakesRangesFromOthers) => error(ErrorKind::AlreadyExists),
            _ => Ok(false),
        }
    }

    fn failed(&self, error: Error) -> Result<InstanceState> {
        let empty = *self.trouble.lock().unwrap() == Some(Trouble::Empty);
        if self.has(Flaw::ErrorIsGone) && !empty || self.has(Flaw::LeftOutIsGone) && empty {
            return Ok(InstanceState::Gone);
        }
        Err(error)
    }

    fn state(&self, machine: &Machine) -> InstanceState {
        let mut instance = machine.instance.clone();
        if self.has(Flaw::SortsAddresses) {
            instance.addresses.sort_by(|a, b| a.address.cmp(&b.address));
        }
        if self.has(Flaw::SortsPodRanges) {
            instance.pod_ranges.sort();
        }
        if self.has(Flaw::ForgetsZones) {
            instance.zone.clear();
        }
        if self.has(Flaw::ForgetsLabels) {
            instance.labels.clear();
        }
        if self.has(Flaw::WritesForeignPrefix) {
            instance.provider_id = Some(ProviderId::of("toys", &instance.id));
        }
        if self.has(Flaw::IdFromName) {
            instance.provider_id = Some(ProviderId::of("toy", &instance.name));
        }
        match machine.stopped {
            true if self.has(Flaw::StoppedIsGone) => InstanceState::Gone,
            true if !self.has(Flaw::StoppedIsRunning) => InstanceState::Stopped(Arc::new(instance)),
            _ => InstanceState::Running(Arc::new(instance)),
        }
    }

    fn one(&self, asked: &InstanceRef) -> Result<InstanceState> {
        let machines = self.machines.lock().unwrap().clone();
        let name = asked.node.as_str();
        let named: Vec<_> = machines.iter().filter(|machine| machine.instance.name == name).collect();
        let gone = Ok(InstanceState::Gone);
        let Some(id) = asked.provider_id.as_ref().filter(|_| !self.has(Flaw::NameBeforeId) || named.is_empty()) else {
            return match named.as_slice() {
                _ if self.has(Flaw::ForgetsNames) => gone,
                [] => gone,
                [_, _, ..] if !self.has(Flaw::FirstOfOneName) => {
                    let ids: Vec<_> = named.iter().map(|machine| machine.instance.id.clone()).collect();
                    Err(Error::new(ErrorKind::InvalidConfig, "toy", ids.join(" and ")))
                }
                [machine, ..] => Ok(self.state(machine)),
            };
        };
        let rest = self.own_id(id);
        let found = machines.iter().find(|machine| machine.instance.id == rest);
        match found.or(named.first().copied().filter(|_| self.has(Flaw::NameAfterId))) {
            Some(machine) => Ok(self.state(machine)),
            None => gone,
        }
    }

    /// The answer that needs no call, if there is one.
    fn settled(&self, asked: &InstanceRef) -> Option<Result<InstanceState>> {
        let by_name = self.capabilities.instances.as_ref().is_some_and(|numbers| numbers.lookup_by_name);
        match &asked.provider_id {
            None if self.has(Flaw::ClaimsNoNames) => None,
            None => (!by_name).then_some(Ok(InstanceState::NotMine)),
            Some(id) if id.prefix() != Some("toy") && !self.has(Flaw::TakesForeignIds) => {
                Some(Ok(InstanceState::NotMine))
            }
            Some(id) if self.own_id(id).is_empty() && !self.has(Flaw::MalformedIsGone) => {
                Some(Err(Error::new(ErrorKind::InvalidConfig, "toy", "no ID")))
            }
            Some(_) => None,
        }
    }

    fn answer(&self, asked: &InstanceRef, called: &Result<()>) -> Result<InstanceState> {
        match (self.settled(asked), called) {
            (Some(settled), _) => settled,
            (None, Err(_)) if self.has(Flaw::ErrorIsNobodyOfThatName) && asked.provider_id.is_none() => {
                Ok(InstanceState::Gone)
            }
            (None, Err(error)) => self.failed(error.clone()),
            (None, Ok(())) => self.one(asked),
        }
    }
}

#[async_trait]
impl CloudProvider for Toy {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        if self.has(Flaw::ChecksNothing) { Ok(()) } else { self.call() }
    }
}

#[async_trait]
impl Instances for Toy {
    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        Ok(match &asked.provider_id {
            Some(id) if self.has(Flaw::CutsIdsOtherwise) => Identity::Id(id.to_string()),
            Some(id) => Identity::Id(self.own_id(id).to_owned()),
            None => Identity::Name(asked.node.to_string()),
        })
    }

    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        assert!(!self.has(Flaw::Panics), "the toy breaks");
        let open = asked.iter().filter(|asked| self.settled(asked).is_none()).count();
        let mut calls = usize::from(open > 0 || self.has(Flaw::AsksForNothing) || self.has(Flaw::AsksAboutForeignIds));
        if self.has(Flaw::AsksAboutForeignIds) && asked.is_empty() {
            calls = 0;
        }
        if self.has(Flaw::OneByOne) {
            calls = open;
        }
        let called = (0..calls).try_for_each(|_| self.call());
        let crowded = self.under_way.fetch_add(1, Ordering::SeqCst) > 0;
        tokio::task::yield_now().await;
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        let mut answers: Vec<_> = asked.iter().map(|asked| self.answer(asked, &called)).collect();
        if self.has(Flaw::DropsAnAnswer) && answers.len() > 1 {
            answers.pop();
        }
        if self.has(Flaw::AnswersInItsOwnOrder) {
            answers.reverse();
        }
        if self.has(Flaw::MixesUpConcurrent) && crowded {
            answers.fill(Ok(InstanceState::Gone));
        }
        answers
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let listing = self.capabilities.instances.as_ref().is_some_and(|numbers| numbers.list_page.is_some());
        if !listing && !self.has(Flaw::ListsUnclaimed) {
            return Err(Error::new(ErrorKind::Unsupported, "toy", "no"));
        }
        let called = self.call();
        if *self.trouble.lock().unwrap() != Some(Trouble::Empty) && !self.has(Flaw::ListsInTrouble) {
            called?;
        }
        let mut machines = self.machines.lock().unwrap().clone();
        machines.retain(|machine| !(self.has(Flaw::ListsOnlyRunning) && machine.stopped));
        // The sound way goes on after an ID, the flawed one after a number of machines.
        let after = page.map(|token| token.0.clone()).unwrap_or_default();
        let start = match self.has(Flaw::SkipsOnChange) {
            true => after.parse().unwrap_or(0),
            false => machines.iter().filter(|machine| machine.instance.id <= after).count(),
        };
        let some: Vec<_> = machines.iter().skip(start).take(PAGE).collect();
        let next = match (some.last(), self.has(Flaw::SkipsOnChange)) {
            _ if self.has(Flaw::FirstPageOnly) => None,
            _ if self.has(Flaw::ListsForEver) => Some(String::new()),
            (Some(_), true) => Some((start + PAGE).to_string()),
            (Some(last), false) => Some(last.instance.id.clone()),
            (None, _) => None,
        };
        let instances = some.into_iter().map(|machine| self.state(machine)).collect();
        Ok(InstancePage { instances, next: next.map(PageToken) })
    }

    async fn assign_pod_range(&self, asked: &InstanceRef, range: IpNet) -> Result<()> {
        let claimed = self.capabilities.instances.as_ref().is_some_and(|numbers| numbers.assign_pod_ranges);
        if !claimed && !self.has(Flaw::AssignsUnclaimed) {
            return Err(Error::new(ErrorKind::Unsupported, "toy", "no"));
        }
        let lost = match self.write() {
            Err(_) if self.has(Flaw::AssignsInTrouble) => return Ok(()),
            written => written?,
        };
        let id = asked.provider_id.as_ref().map(|id| self.own_id(id)).unwrap_or_default();
        let mut machines = self.machines.lock().unwrap();
        if !self.check_range(&machines, id, range)? {
            let machine = machines.iter_mut().find(|machine| machine.instance.id == id).unwrap();
            machine.instance.pod_ranges.push(range);
        }
        if lost { Err(Error::new(ErrorKind::Unavailable, "toy", "no answer")) } else { Ok(()) }
    }
}

struct ToyBench {
    toy: Arc<Toy>,
    can: bool,
}

impl ToyBench {
    fn edit(&self, instance: &Instance, edit: impl FnOnce(&mut Machine)) {
        let mut machines = self.toy.machines.lock().unwrap();
        edit(machines.iter_mut().find(|machine| machine.instance.id == instance.id).unwrap());
    }
}

#[async_trait]
impl Bench for ToyBench {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.toy.clone()
    }

    async fn add(&self, machine: &WantedMachine) -> Instance {
        let id = format!("m{:04}", self.toy.made.fetch_add(1, Ordering::SeqCst));
        let mut addresses = machine.addresses.clone();
        if addresses.is_empty() {
            addresses.push(Address::new(AddressType::InternalIP, "10.0.0.1"));
        }
        let instance = Instance {
            provider_id: Some(ProviderId::of("toy", &id)),
            id,
            name: machine.name.clone(),
            instance_type: "t".to_owned(),
            zone: "z".to_owned(),
            region: "r".to_owned(),
            addresses,
            labels: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            pod_ranges: machine.pod_ranges.clone(),
        };
        self.toy.machines.lock().unwrap().push(Machine { instance: instance.clone(), stopped: false });
        instance
    }

    async fn stop(&self, instance: &Instance) {
        self.edit(instance, |machine| machine.stopped = true);
    }

    async fn start(&self, instance: &Instance) {
        self.edit(instance, |machine| machine.stopped = false);
    }

    async fn delete(&self, instance: &Instance) {
        self.toy.machines.lock().unwrap().retain(|machine| machine.instance.id != instance.id);
    }

    async fn rename(&self, instance: &Instance, name: &str) -> bool {
        self.edit(instance, |machine| machine.instance.name = name.to_owned());
        true
    }

    async fn trouble(&self, trouble: Option<Trouble>) -> bool {
        *self.toy.trouble.lock().unwrap() = trouble;
        self.can
    }

    async fn crash_after(&self, calls: Option<u64>) -> Hand {
        *self.toy.crash.lock().unwrap() = calls;
        if self.can { Hand::Done } else { Hand::Cannot }
    }

    fn spellings(&self, instance: &Instance) -> Vec<ProviderId> {
        vec![ProviderId::of("toy", &format!("/{}", instance.id))]
    }

    async fn calls(&self) -> Option<u64> {
        Some(self.toy.calls.load(Ordering::SeqCst))
    }
}

fn everything() -> InstanceCapabilities {
    InstanceCapabilities {
        batch_lookup: 5,
        list_page: Some(PAGE),
        max_parallel: 4,
        lookup_by_name: true,
        unique_ids: true,
        shutdown_state: true,
        zones: true,
        additional_labels: true,
        pod_ranges: true,
        assign_pod_ranges: true,
    }
}

async fn report(flaw: Flaw, numbers: InstanceCapabilities) -> Report {
    let bench =
        || async { Box::new(ToyBench { toy: Arc::new(Toy::new(flaw, numbers.clone())), can: true }) as Box<dyn Bench> };
    run(bench).await
}

#[tokio::test]
async fn a_sound_provider_has_nothing_to_answer_for() {
    for numbers in [everything(), InstanceCapabilities::default()] {
        let report = report(Flaw::None, numbers).await;
        assert_eq!(report.complaints(), [], "{report}");
    }
}

#[tokio::test]
async fn each_flaw_is_caught_by_the_case_for_it() {
    let table = [
        (Flaw::DropsAnAnswer, "one_answer_each"),
        (Flaw::AnswersInItsOwnOrder, "one_answer_each"),
        (Flaw::ErrorIsGone, "error_is_no_answer"),
        (Flaw::ErrorIsNobodyOfThatName, "error_is_no_answer"),
        (Flaw::ErrorSeesTheGone, "error_is_no_answer"),
        (Flaw::LeftOutIsGone, "gone_is_certain"),
        (Flaw::StoppedIsGone, "stopped_is_not_gone"),
        (Flaw::StoppedIsRunning, "stopped_is_told"),
        (Flaw::NameBeforeId, "id_before_name"),
        (Flaw::NameAfterId, "id_before_name"),
        (Flaw::CutsIdsOtherwise, "id_is_recognised"),
        (Flaw::ReadsOneSpelling, "id_is_recognised"),
        (Flaw::TakesForeignIds, "foreign_id_is_not_mine"),
        (Flaw::AsksAboutForeignIds, "foreign_id_is_not_mine"),
        (Flaw::MalformedIsGone, "malformed_id_is_an_error"),
        (Flaw::FirstOfOneName, "two_of_one_name_is_an_error"),
        (Flaw::ForgetsNames, "name_finds_the_machine"),
        (Flaw::ListsOnlyRunning, "listing_agrees_with_find"),
        (Flaw::SkipsOnChange, "pages_are_complete"),
        (Flaw::ListsForEver, "pages_are_complete"),
        (Flaw::FirstPageOnly, "pages_are_complete"),
        (Flaw::IdFromName, "provider_id_is_stable"),
        (Flaw::IdFromName, "deleted_then_recreated_same_name_is_another_id"),
        (Flaw::WritesForeignPrefix, "prefix_is_owned"),
        (Flaw::SortsAddresses, "addresses_keep_their_order"),
        (Flaw::ForgetsZones, "zones_are_told"),
        (Flaw::ForgetsLabels, "labels_are_told"),
        (Flaw::OneByOne, "batch_limit_is_honoured"),
        (Flaw::AsksForNothing, "empty_question_makes_no_call"),
        (Flaw::EverythingUnexpected, "errors_have_a_kind"),
        (Flaw::EverythingUnexpected, "listing_errors_have_a_kind"),
        (Flaw::ListsInTrouble, "listing_errors_have_a_kind"),
        (Flaw::ForgetsDelay, "throttling_carries_its_delay"),
        (Flaw::ChecksNothing, "check_asks_the_cloud"),
        (Flaw::ClaimsRoutes, "capabilities_match_traits"),
        (Flaw::MixesUpConcurrent, "concurrent_questions"),
        (Flaw::SortsPodRanges, "pod_ranges_are_told"),
        (Flaw::AssignsTwice, "assigned_pod_range_is_told"),
        (Flaw::RefusesTheSecondTime, "assigned_pod_range_is_told"),
        (Flaw::TakesRangesFromOthers, "assigned_pod_range_is_told"),
        (Flaw::AssignsToNobody, "assigned_pod_range_is_told"),
        (Flaw::RefusesTheSecondTime, "assignment_survives_every_crash"),
        (Flaw::AssignsTwice, "assignment_survives_every_crash"),
        (Flaw::AssignsInTrouble, "assignment_errors_have_a_kind"),
        (Flaw::EverythingUnexpected, "assignment_errors_have_a_kind"),
        (Flaw::StoppedIsGone, "mixed_batch"),
        (Flaw::Panics, "mixed_batch"),
    ];
    for (flaw, case) in table {
        let report = report(flaw, everything()).await;
        assert!(report.failed().contains(&case), "{flaw:?} gets past {case}\n{report}");
    }
    for (flaw, case) in [
        (Flaw::ClaimsNoNames, "without_name_lookup_nothing_is_claimed"),
        (Flaw::ListsUnclaimed, "without_listing_it_is_unsupported"),
        (Flaw::AssignsUnclaimed, "without_assignment_it_is_unsupported"),
    ] {
        let report = report(flaw, InstanceCapabilities::default()).await;
        assert_eq!(report.failed(), [case], "{report}");
    }
    let caught: Vec<_> = table.iter().map(|(_, case)| *case).collect();
    let about_machines = cases().iter().filter(|case| case.needs.iter().all(|need| need.group() == Group::Instances));
    let uncaught: Vec<_> = about_machines.map(|case| case.name).filter(|name| !caught.contains(name)).collect();
    let without = ["without_name_lookup_nothing_is_claimed", "without_assignment_it_is_unsupported"];
    assert_eq!(uncaught, [&without[..], &["without_listing_it_is_unsupported"]].concat());
}

#[tokio::test]
async fn a_flaw_in_one_thing_is_not_held_against_others() {
    for (flaw, cases) in [
        (Flaw::ForgetsDelay, vec!["throttling_carries_its_delay"]),
        (Flaw::NameAfterId, vec!["id_before_name", "deleted_then_recreated_same_name_is_another_id"]),
        (Flaw::TakesRangesFromOthers, vec!["assigned_pod_range_is_told"]),
        (Flaw::SortsPodRanges, vec!["pod_ranges_are_told", "assigned_pod_range_is_told"]),
        (Flaw::LeftOutIsGone, vec!["gone_is_certain", "error_is_no_answer", "errors_have_a_kind"]),
    ] {
        assert_eq!(report(flaw, everything()).await.failed(), cases, "{flaw:?}");
    }
}

#[tokio::test]
async fn the_least_of_providers_skips_what_it_does_not_claim() {
    let report = report(Flaw::None, InstanceCapabilities { max_parallel: 1, ..InstanceCapabilities::default() }).await;
    let skipped = [
        ("stopped_is_told", Capability::ShutdownState),
        ("name_finds_the_machine", Capability::LookupByName),
        ("two_of_one_name_is_an_error", Capability::LookupByName),
        ("deleted_then_recreated_same_name_is_another_id", Capability::UniqueIds),
        ("zones_are_told", Capability::Zones),
        ("labels_are_told", Capability::AdditionalLabels),
        ("batch_limit_is_honoured", Capability::BatchLookup),
        ("concurrent_questions", Capability::Parallel),
        ("pod_ranges_are_told", Capability::PodRanges),
        ("assigned_pod_range_is_told", Capability::AssignPodRanges),
        ("assignment_survives_every_crash", Capability::AssignPodRanges),
        ("assignment_errors_have_a_kind", Capability::AssignPodRanges),
        ("listing_agrees_with_find", Capability::Listing),
        ("pages_are_complete", Capability::Listing),
        ("listing_errors_have_a_kind", Capability::Listing),
    ];
    assert_eq!(report.skipped(), skipped.map(|(case, _)| case));
    for (case, capability) in skipped {
        assert_eq!(report.outcome(case), Some(&Outcome::Skipped(Need::Has(capability))));
    }
    let text = report.to_string();
    assert!(text.contains("skipped: no listing") && text.contains("15 skipped"), "{text}");
}

#[tokio::test]
async fn a_bench_that_cannot_break_its_cloud_shows_less_and_says_so() {
    let toy = || Arc::new(Toy::new(Flaw::None, everything()));
    let report = run(|| async { Box::new(ToyBench { toy: toy(), can: false }) as Box<dyn Bench> }).await;
    let complaints = report.complaints();
    assert!(complaints.iter().all(|complaint| matches!(complaint, Complaint::BenchCannot(..))), "{complaints:?}");
    assert!(matches!(report.outcome("error_is_no_answer"), Some(Outcome::BenchCannot(_))), "{report}");
    assert_eq!(report.failed(), [""; 0]);
}

#[test]
fn every_capability_has_a_case_that_runs_because_of_it() {
    for capability in Capability::ALL {
        let proof = cases().iter().any(|case| case.needs.contains(&Need::Has(capability)));
        assert!(proof, "{capability}");
    }
}
