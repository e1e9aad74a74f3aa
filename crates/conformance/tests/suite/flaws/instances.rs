//! Flaws in machine lookups and listings.

use std::collections::BTreeMap;

use bowline_cloud::{
    Absence, Capabilities, ErrorKind, Facts, Identity, InstancePage, KnownState, PageToken, Result, Retry,
    RouteCapabilities,
};
use bowline_core::{InstanceRef, InstanceState, ProviderId};

use crate::flaws::bench::UNLISTED;
use crate::flaws::broken::Break::{
    Assign, Check, Claims, Config, Error, Find, Found, Identity as Identify, Instance, List, Reference, Start,
};
use crate::flaws::broken::{Broken, Flaw, fails, flaws, later};

fn provider_id(prefix: &str, rest: &str) -> Option<ProviderId> {
    Some(ProviderId::of(prefix, rest))
}

/// Reports an error of this kind as gone.
fn gone_if(kind: ErrorKind, answer: Result<InstanceState>) -> Result<InstanceState> {
    if answer.as_ref().is_err_and(|error| error.kind() == kind) { Ok(InstanceState::Gone) } else { answer }
}

/// No flaw.
pub(crate) static CORRECT: Flaw = Flaw { name: "has no flaw", cases: &[], breaks: &[] };

/// All machines of the cloud.
async fn all(it: &Broken) -> Result<Vec<InstanceState>> {
    let (mut all, mut token) = (Vec::new(), None);
    loop {
        let page = it.machines().list(token.as_ref()).await?;
        all.extend(page.instances);
        token = page.next;
        if token.is_none() {
            return Ok(all);
        }
    }
}

/// Page without the machines that the bench has hidden.
async fn listed(it: &Broken, page: Option<&PageToken>) -> Result<InstancePage> {
    let mut page = it.machines().list(page).await?;
    page.instances.retain(is_listed);
    Ok(page)
}

fn is_listed(state: &InstanceState) -> bool {
    state.instance().is_none_or(|instance| !instance.labels.contains_key(UNLISTED))
}

/// Looks up a machine by name.
async fn by_name(it: &Broken, reference: &InstanceRef) -> Result<InstanceState> {
    let named = InstanceRef { provider_id: None, ..reference.clone() };
    it.machines().find(&[named]).await.pop().unwrap()
}

flaws! {
    "drops an answer", [one_answer_each],
        Find(later!(|it, reference| {
            let mut answers = it.machines().find(reference).await;
            answers.truncate(reference.len().saturating_sub(1).max(1));
            answers
        }));
    "answers in another order", [one_answer_each],
        Find(later!(|it, reference| { it.machines().find(reference).await.into_iter().rev().collect() }));
    "reports an error as gone", [error_is_no_answer], Found(|_, answer| answer.or(Ok(InstanceState::Gone)));
    "reports an error as a name that no machine has", [error_is_no_answer],
        Found(|reference, answer| match reference.provider_id {
            None => answer.or(Ok(InstanceState::Gone)),
            Some(_) => answer,
        });
    "claims to know the state of a deleted machine", [error_is_no_answer], Error(|error| error.with_known_state(KnownState::Running));
    "reports a machine that an answer leaves out as gone", [gone_is_certain],
        Found(|_, answer| gone_if(ErrorKind::Unexpected, answer));
    "reports stopped as gone", [stopped_is_not_gone mixed_batch],
        Found(|_, answer| match answer { Ok(InstanceState::Stopped(_)) => Ok(InstanceState::Gone), answer => answer });
    "reports stopped as running", [stopped_is_reported],
        Found(|_, answer| match answer {
            Ok(InstanceState::Stopped(instance)) => Ok(InstanceState::Running(instance)),
            answer => answer,
        });
    "looks up by name only", [id_before_name], Reference(|reference| reference.provider_id = None);
    "falls back to the name after the ID", [id_before_name deleted_then_recreated_same_name_is_another_id],
        Find(later!(|it, reference| {
            let mut answers = it.machines().find(reference).await;
            for (answer, reference) in answers.iter_mut().zip(reference) {
                if matches!(answer, Ok(InstanceState::Gone)) {
                    *answer = by_name(it, reference).await;
                }
            }
            answers
        }));
    "identifies by the whole ID", [id_is_recognised],
        Identify(|reference, identity| match &reference.provider_id {
            Some(id) => Identity::Id(id.to_string()),
            None => identity,
        });
    "knows one spelling of its IDs", [id_is_recognised], Reference(|_| ());
    "accepts foreign IDs", [foreign_id_is_not_mine],
        Reference(|reference| {
            reference.provider_id = reference.provider_id.as_ref().and_then(|id| provider_id("local", id.rest()?));
        });
    "makes a call for foreign IDs", [foreign_id_is_not_mine],
        Find(later!(|it, reference| { let _ = it.call().await; it.machines().find(reference).await }));
    "reports a malformed ID as gone", [malformed_id_is_an_error],
        Found(|_, answer| gone_if(ErrorKind::InvalidConfig, answer));
    "returns the first machine with the name", [ambiguous_name_is_an_error],
        Find(later!(|it, reference| {
            let mut answers = it.machines().find(reference).await;
            for (answer, reference) in answers.iter_mut().zip(reference).filter(|(answer, _)| answer.is_err()) {
                let named = |state: &InstanceState| state.instance().is_some_and(|one| reference.node == *one.name);
                *answer = all(it).await.map(|all| all.into_iter().find(named).unwrap());
            }
            answers
        }));
    "finds no names", [name_finds_the_machine],
        Found(|reference, answer| match reference.provider_id { None => Ok(InstanceState::Gone), Some(_) => answer });
    "finds names without claiming it", [without_name_lookup_nothing_is_found],
        Claims(|claims| claims.instances.as_mut().unwrap().lookup_by_name = false);
    "lists without claiming it", [without_listing_it_is_unsupported],
        Claims(|claims| claims.instances.as_mut().unwrap().list_page = None);
    "numbers its pages and takes absence for proof", [pages_are_complete],
        Claims(|claims| claims.instances.as_mut().unwrap().numbered_pages = true);
    "assigns without claiming it", [without_assignment_it_is_unsupported],
        Claims(|claims| claims.instances.as_mut().unwrap().assign_pod_cidrs = false);
    "lists only running machines", [listing_agrees_with_find],
        List(later!(|it, page| {
            let mut page = it.machines().list(page).await?;
            page.instances.retain(|state| matches!(state, InstanceState::Running(_)));
            Ok(page)
        }));
    "omits machines from its listing", [absence_is_as_declared],
        List(later!(|it, page| { listed(it, page).await }));
    "uses its listing for lookups", [absence_is_as_declared],
        Claims(|claims| claims.instances.as_mut().unwrap().absence = Absence::Question),
        List(later!(|it, page| { listed(it, page).await })),
        Found(|_, answer| answer.map(|state| if is_listed(&state) { state } else { InstanceState::Gone }));
    "finds names that it claims to be absent", [absence_is_as_declared],
        Claims(|claims| claims.instances.as_mut().unwrap().absence = Absence::ProofForNames),
        List(later!(|it, page| { listed(it, page).await }));
    "pages by offset", [pages_are_complete],
        List(later!(|it, page| {
            let (all, start) = (all(it).await?, page.map_or(0, |token| token.0.parse().unwrap()));
            let next = (all.len() > start + 7).then(|| PageToken((start + 7).to_string()));
            let instances = all.into_iter().skip(start).take(7).collect();
            Ok(InstancePage { instances, next, ..InstancePage::default() })
        }));
    "never ends its listing", [pages_are_complete],
        List(later!(|it, _page| {
            let page = it.machines().list(None).await?;
            Ok(InstancePage { next: Some(PageToken(String::new())), ..page })
        }));
    "lists only the first page", [pages_are_complete],
        List(later!(|it, page| { Ok(InstancePage { next: None, ..it.machines().list(page).await? }) }));
    "derives the ID from the name", [provider_id_is_stable deleted_then_recreated_same_name_is_another_id],
        Instance(|instance| instance.provider_id = provider_id("local", &instance.name));
    "writes another prefix", [prefix_is_owned],
        Instance(|instance| instance.provider_id = provider_id("locals", &instance.id));
    "sorts addresses", [addresses_keep_their_order],
        Instance(|instance| instance.addresses.sort_by(|a, b| a.address.cmp(&b.address)));
    "reports no zones", [zones_are_reported], Instance(|instance| instance.zone.clear());
    "reports no labels", [labels_are_reported], Instance(|instance| instance.labels = BTreeMap::new());
    "reports no annotations", [annotations_are_reported], Instance(|instance| instance.annotations = BTreeMap::new());
    "looks up one by one", [batch_limit_is_honoured],
        Find(later!(|it, reference| {
            let mut answers = Vec::new();
            for one in reference {
                answers.extend(it.machines().find(std::slice::from_ref(one)).await);
            }
            answers
        }));
    "makes a call for an empty lookup", [empty_lookup_makes_no_call],
        Find(later!(|it, reference| { let _ = it.call().await; it.machines().find(reference).await }));
    "returns every error as unexpected",
        [errors_have_a_kind listing_errors_have_a_kind assignment_errors_have_a_kind load_balancer_errors_have_a_kind
         route_errors_have_a_kind],
        Error(|error| bowline_cloud::Error::new(ErrorKind::Unexpected, "flaw", error.to_string()));
    "lists nothing instead of an error", [listing_errors_have_a_kind],
        List(later!(|it, page| {
            it.machines().list(page).await.or(Ok(InstancePage::default()))
        }));
    "ignores the requested delay", [throttling_carries_its_delay load_balancer_throttling_carries_its_delay route_errors_have_a_kind],
        Error(|error| error.retry(Retry::Backoff));
    "returns other facts after each start", [start_is_repeatable],
        Start(later!(|it| {
            let mut memory = it.memory();
            memory.starts += 1;
            Ok(Facts { region: Some(memory.starts.to_string()), ..Facts::default() })
        }));
    "reports rejected credentials as an unavailable cloud", [start_errors_have_a_kind],
        Start(later!(|it| {
            let checked = it.call().await;
            let down = |error: bowline_cloud::Error| bowline_cloud::Error::new(ErrorKind::Unavailable, "start", error.message());
            checked.map(|()| Facts::default()).map_err(down)
        }));
    "has more capabilities after its start than it claims", [facts_only_lower_capabilities],
        Claims(|capabilities| capabilities.routes = None),
        Start(later!(|_it| {
            let capabilities = Capabilities { routes: Some(RouteCapabilities::default()), ..Capabilities::default() };
            Ok(Facts { capabilities: Some(capabilities), ..Facts::default() })
        }));
    "checks nothing", [check_calls_the_cloud], Check(later!(|_it| { Ok(()) }));
    "claims routes without implementing them", [capabilities_match_traits],
        Config(|config| config.routes.enabled = false),
        Claims(|claims| claims.routes = Some(Default::default()));
    "mixes up concurrent lookups", [concurrent_lookups],
        Find(later!(|it, reference| {
            it.memory().in_progress += 1;
            tokio::task::yield_now().await;
            let is_concurrent = std::mem::take(&mut it.memory().in_progress) > 1;
            let mut answers = it.machines().find(reference).await;
            if is_concurrent {
                answers.fill(Ok(InstanceState::Gone));
            }
            answers
        }));
    "sorts pod CIDRs", [pod_cidrs_are_reported], Instance(|instance| instance.pod_cidrs.sort());
    "reports every pod CIDR twice", [assigned_pod_cidr_is_reported assignment_survives_every_crash],
        Instance(|instance| instance.pod_cidrs.extend(instance.pod_cidrs.clone()));
    "refuses to assign a second time", [assigned_pod_cidr_is_reported assignment_survives_every_crash],
        Assign(later!(|it, reference, range| {
            let found = it.machines().find(std::slice::from_ref(reference)).await.pop().unwrap()?;
            if found.instance().is_some_and(|found| found.pod_cidrs.contains(&range)) {
                return fails(ErrorKind::AlreadyExists);
            }
            it.machines().assign_pod_cidrs(reference, range).await
        }));
    "takes pod CIDRs from other machines", [assigned_pod_cidr_is_reported],
        Assign(later!(|it, reference, range| {
            let own = reference.provider_id.as_ref().and_then(|id| id.rest()).unwrap();
            for other in it.cloud.machines().into_iter().filter(|machine| machine.spec.id != own) {
                it.cloud.change(&other.spec.id, |spec| spec.pod_ranges.retain(|theirs| *theirs != range)).unwrap();
            }
            it.machines().assign_pod_cidrs(reference, range).await
        }));
    "assigns to no machine", [assigned_pod_cidr_is_reported],
        Assign(later!(|it, reference, range| {
            match it.machines().assign_pod_cidrs(reference, range).await {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                assigned => assigned,
            }
        }));
    "reports an error as an assignment", [assignment_errors_have_a_kind],
        Assign(later!(|it, reference, range| { it.machines().assign_pod_cidrs(reference, range).await.or(Ok(())) }));
    "reports any 404 as gone", [foreign_404_is_no_answer],
        Found(|_, answer| match answer {
            Err(error) if error.to_string().contains("404") => Ok(InstanceState::Gone),
            answer => answer,
        });
    "retries by itself", [failed_calls_are_not_repeated],
        Find(later!(|it, reference| {
            let answers = it.machines().find(reference).await;
            if answers.iter().any(Result::is_err) { it.machines().find(reference).await } else { answers }
        }));
    "shows its token in errors", [secrets_stay_secret], Error(|error| error.context("token", crate::flaws::bench::SECRET));
    "blocks its thread", [no_call_blocks_the_thread],
        Find(later!(|it, reference| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            std::thread::scope(|scope| scope.spawn(|| runtime.block_on(it.machines().find(reference))).join().unwrap())
        }));
    "panics", [mixed_batch], Find(|_, _| panic!("broken on purpose"));
}
