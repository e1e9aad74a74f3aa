//! Flaws of providers in what they say of machines.

use std::collections::BTreeMap;

use bowline_cloud::{
    Absence, Capabilities, ErrorKind, Facts, Identity, InstancePage, KnownState, PageToken, Result, Retry,
    RouteCapabilities,
};
use bowline_core::{InstanceRef, InstanceState, ProviderId};

use crate::flaws::bench::UNLISTED;
use crate::flaws::broken::Break::{
    Asked, Assign, Check, Claims, Config, Error, Find, Found, Identity as Identify, Instance, List, Start,
};
use crate::flaws::broken::{Broken, Flaw, fails, flaws, later};

fn provider_id(prefix: &str, rest: &str) -> Option<ProviderId> {
    Some(ProviderId::of(prefix, rest))
}

/// Takes an error of this kind for gone.
fn gone_if(kind: ErrorKind, answer: Result<InstanceState>) -> Result<InstanceState> {
    if answer.as_ref().is_err_and(|error| error.kind() == kind) { Ok(InstanceState::Gone) } else { answer }
}

/// Nothing is broken.
pub(crate) static SOUND: Flaw = Flaw { name: "nothing", cases: &[], breaks: &[] };

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

/// Page without the machines that are not to be listed.
async fn listed(it: &Broken, page: Option<&PageToken>) -> Result<InstancePage> {
    let mut page = it.machines().list(page).await?;
    page.instances.retain(is_listed);
    Ok(page)
}

fn is_listed(state: &InstanceState) -> bool {
    state.instance().is_none_or(|instance| !instance.labels.contains_key(UNLISTED))
}

/// Finds a machine under its name, if the ID has none.
async fn by_name(it: &Broken, asked: &InstanceRef) -> Result<InstanceState> {
    let named = InstanceRef { provider_id: None, ..asked.clone() };
    it.machines().find(&[named]).await.pop().unwrap()
}

flaws! {
    "drops an answer", [one_answer_each],
        Find(later!(|it, asked| {
            let mut answers = it.machines().find(asked).await;
            answers.truncate(asked.len().saturating_sub(1).max(1));
            answers
        }));
    "answers in its own order", [one_answer_each],
        Find(later!(|it, asked| { it.machines().find(asked).await.into_iter().rev().collect() }));
    "takes an error for gone", [error_is_no_answer], Found(|_, answer| answer.or(Ok(InstanceState::Gone)));
    "takes an error for a name that no machine has", [error_is_no_answer],
        Found(|asked, answer| match asked.provider_id {
            None => answer.or(Ok(InstanceState::Gone)),
            Some(_) => answer,
        });
    "sees what is gone", [error_is_no_answer], Error(|error| error.with_known_state(KnownState::Running));
    "takes what is left out for gone", [gone_is_certain],
        Found(|_, answer| gone_if(ErrorKind::Unexpected, answer));
    "takes stopped for gone", [stopped_is_not_gone mixed_batch],
        Found(|_, answer| match answer { Ok(InstanceState::Stopped(_)) => Ok(InstanceState::Gone), answer => answer });
    "takes stopped for running", [stopped_is_told],
        Found(|_, answer| match answer {
            Ok(InstanceState::Stopped(instance)) => Ok(InstanceState::Running(instance)),
            answer => answer,
        });
    "goes by names", [id_before_name], Asked(|asked| asked.provider_id = None);
    "tries the name after the ID", [id_before_name deleted_then_recreated_same_name_is_another_id],
        Find(later!(|it, asked| {
            let mut answers = it.machines().find(asked).await;
            for (answer, asked) in answers.iter_mut().zip(asked) {
                if matches!(answer, Ok(InstanceState::Gone)) {
                    *answer = by_name(it, asked).await;
                }
            }
            answers
        }));
    "identifies by the whole ID", [id_is_recognised],
        Identify(|asked, identity| match &asked.provider_id {
            Some(id) => Identity::Id(id.to_string()),
            None => identity,
        });
    "reads one spelling", [id_is_recognised], Asked(|_| ());
    "takes foreign IDs", [foreign_id_is_not_mine],
        Asked(|asked| {
            asked.provider_id = asked.provider_id.as_ref().and_then(|id| provider_id("local", id.rest()?));
        });
    "asks about foreign IDs", [foreign_id_is_not_mine],
        Find(later!(|it, asked| { let _ = it.call().await; it.machines().find(asked).await }));
    "takes a malformed ID for gone", [malformed_id_is_an_error],
        Found(|_, answer| gone_if(ErrorKind::InvalidConfig, answer));
    "takes the first of one name", [two_of_one_name_is_an_error],
        Find(later!(|it, asked| {
            let mut answers = it.machines().find(asked).await;
            for (answer, asked) in answers.iter_mut().zip(asked).filter(|(answer, _)| answer.is_err()) {
                let named = |state: &InstanceState| state.instance().is_some_and(|one| asked.node == *one.name);
                *answer = all(it).await.map(|all| all.into_iter().find(named).unwrap());
            }
            answers
        }));
    "finds no names", [name_finds_the_machine],
        Found(|asked, answer| match asked.provider_id { None => Ok(InstanceState::Gone), Some(_) => answer });
    "finds names and does not claim it", [without_name_lookup_nothing_is_claimed],
        Claims(|claims| claims.instances.as_mut().unwrap().lookup_by_name = false);
    "lists and does not claim it", [without_listing_it_is_unsupported],
        Claims(|claims| claims.instances.as_mut().unwrap().list_page = None);
    "assigns and does not claim it", [without_assignment_it_is_unsupported],
        Claims(|claims| claims.instances.as_mut().unwrap().assign_pod_ranges = false);
    "lists only what runs", [listing_agrees_with_find],
        List(later!(|it, page| {
            let mut page = it.machines().list(page).await?;
            page.instances.retain(|state| matches!(state, InstanceState::Running(_)));
            Ok(page)
        }));
    "leaves machines out of its listing", [absence_is_as_declared],
        List(later!(|it, page| { listed(it, page).await }));
    "looks up in its listing", [absence_is_as_declared],
        Claims(|claims| claims.instances.as_mut().unwrap().absence = Absence::Question),
        List(later!(|it, page| { listed(it, page).await })),
        Found(|_, answer| answer.map(|state| if is_listed(&state) { state } else { InstanceState::Gone }));
    "finds names that it claims to be absent", [absence_is_as_declared],
        Claims(|claims| claims.instances.as_mut().unwrap().absence = Absence::ProofForNames),
        List(later!(|it, page| { listed(it, page).await }));
    "lists by number", [pages_are_complete],
        List(later!(|it, page| {
            let (all, start) = (all(it).await?, page.map_or(0, |token| token.0.parse().unwrap()));
            let next = (all.len() > start + 7).then(|| PageToken((start + 7).to_string()));
            let instances = all.into_iter().skip(start).take(7).collect();
            Ok(InstancePage { instances, next, ..InstancePage::default() })
        }));
    "lists for ever", [pages_are_complete],
        List(later!(|it, _page| {
            let page = it.machines().list(None).await?;
            Ok(InstancePage { next: Some(PageToken(String::new())), ..page })
        }));
    "lists the first page", [pages_are_complete],
        List(later!(|it, page| { Ok(InstancePage { next: None, ..it.machines().list(page).await? }) }));
    "makes the ID of the name", [provider_id_is_stable deleted_then_recreated_same_name_is_another_id],
        Instance(|instance| instance.provider_id = provider_id("local", &instance.name));
    "writes another prefix", [prefix_is_owned],
        Instance(|instance| instance.provider_id = provider_id("locals", &instance.id));
    "sorts addresses", [addresses_keep_their_order],
        Instance(|instance| instance.addresses.sort_by(|a, b| a.address.cmp(&b.address)));
    "forgets zones", [zones_are_told], Instance(|instance| instance.zone.clear());
    "forgets labels", [labels_are_told], Instance(|instance| instance.labels = BTreeMap::new());
    "forgets annotations", [annotations_are_reported], Instance(|instance| instance.annotations = BTreeMap::new());
    "finds one by one", [batch_limit_is_honoured],
        Find(later!(|it, asked| {
            let mut answers = Vec::new();
            for one in asked {
                answers.extend(it.machines().find(std::slice::from_ref(one)).await);
            }
            answers
        }));
    "calls for nothing", [empty_question_makes_no_call],
        Find(later!(|it, asked| { let _ = it.call().await; it.machines().find(asked).await }));
    "finds every error unexpected",
        [errors_have_a_kind listing_errors_have_a_kind assignment_errors_have_a_kind balancer_errors_have_a_kind
         route_faults_are_told],
        Error(|error| bowline_cloud::Error::new(ErrorKind::Unexpected, "flaw", error.to_string()));
    "lists nothing in place of an error", [listing_errors_have_a_kind],
        List(later!(|it, page| {
            it.machines().list(page).await.or(Ok(InstancePage::default()))
        }));
    "forgets the delay", [throttling_carries_its_delay balancer_throttling_carries_its_delay route_faults_are_told],
        Error(|error| error.retry(Retry::Backoff));
    "starts with other facts each time", [start_may_come_again],
        Start(later!(|it| {
            let mut memory = it.memory();
            memory.starts += 1;
            Ok(Facts { region: Some(memory.starts.to_string()), ..Facts::default() })
        }));
    "takes refused credentials for a cloud that is down", [start_tells_why_it_fails],
        Start(later!(|it| {
            let checked = it.call().await;
            let down = |error: bowline_cloud::Error| bowline_cloud::Error::new(ErrorKind::Unavailable, "start", error.message());
            checked.map(|()| Facts::default()).map_err(down)
        }));
    "has more after its start than it claims", [facts_only_lower_capabilities],
        Claims(|capabilities| capabilities.routes = None),
        Start(later!(|_it| {
            let capabilities = Capabilities { routes: Some(RouteCapabilities::default()), ..Capabilities::default() };
            Ok(Facts { capabilities: Some(capabilities), ..Facts::default() })
        }));
    "checks nothing", [check_asks_the_cloud], Check(later!(|_it| { Ok(()) }));
    "claims routes and has none", [capabilities_match_traits],
        Config(|config| config.routes.enabled = false),
        Claims(|claims| claims.routes = Some(Default::default()));
    "mixes up concurrent questions", [concurrent_questions],
        Find(later!(|it, asked| {
            it.memory().under_way += 1;
            tokio::task::yield_now().await;
            let crowded = std::mem::take(&mut it.memory().under_way) > 1;
            let mut answers = it.machines().find(asked).await;
            if crowded {
                answers.fill(Ok(InstanceState::Gone));
            }
            answers
        }));
    "sorts pod ranges", [pod_ranges_are_told], Instance(|instance| instance.pod_ranges.sort());
    "has every pod range twice", [assigned_pod_range_is_told assignment_survives_every_crash],
        Instance(|instance| instance.pod_ranges.extend(instance.pod_ranges.clone()));
    "refuses to assign a second time", [assigned_pod_range_is_told assignment_survives_every_crash],
        Assign(later!(|it, asked, range| {
            let found = it.machines().find(std::slice::from_ref(asked)).await.pop().unwrap()?;
            if found.instance().is_some_and(|found| found.pod_ranges.contains(&range)) {
                return fails(ErrorKind::AlreadyExists);
            }
            it.machines().assign_pod_cidrs(asked, range).await
        }));
    "takes pod ranges from others", [assigned_pod_range_is_told],
        Assign(later!(|it, asked, range| {
            let own = asked.provider_id.as_ref().and_then(|id| id.rest()).unwrap();
            for other in it.cloud.machines().into_iter().filter(|machine| machine.spec.id != own) {
                it.cloud.change(&other.spec.id, |spec| spec.pod_ranges.retain(|theirs| *theirs != range)).unwrap();
            }
            it.machines().assign_pod_cidrs(asked, range).await
        }));
    "assigns to no machine", [assigned_pod_range_is_told],
        Assign(later!(|it, asked, range| {
            match it.machines().assign_pod_cidrs(asked, range).await {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                assigned => assigned,
            }
        }));
    "takes an error for an assignment", [assignment_errors_have_a_kind],
        Assign(later!(|it, asked, range| { it.machines().assign_pod_cidrs(asked, range).await.or(Ok(())) }));
    "takes any 404 for gone", [foreign_404_is_no_answer],
        Found(|_, answer| match answer {
            Err(error) if error.to_string().contains("404") => Ok(InstanceState::Gone),
            answer => answer,
        });
    "tries again by itself", [failed_calls_are_not_repeated],
        Find(later!(|it, asked| {
            let answers = it.machines().find(asked).await;
            if answers.iter().any(Result::is_err) { it.machines().find(asked).await } else { answers }
        }));
    "shows its token", [secrets_stay_secret], Error(|error| error.context("token", crate::flaws::bench::SECRET));
    "blocks its thread", [no_call_blocks_the_thread],
        Find(later!(|it, asked| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            std::thread::scope(|scope| scope.spawn(|| runtime.block_on(it.machines().find(asked))).join().unwrap())
        }));
    "panics", [mixed_batch], Find(|_, _| panic!("broken on purpose"));
}
