//! Rules about listing machines.

use std::collections::BTreeMap;

use bowline_cloud::{Absence, ErrorKind, PageToken};
use bowline_core::{Instance, InstanceState};

use crate::bench::BenchResult;
use crate::context::{CaseContext, CaseFailure, CaseResult, by_name, fail, instance_ref, require};

/// Maximum page size that a case fills; larger pages would only take time.
const MAX_PAGE_SIZE: usize = 200;

/// Page limit for the few machines of a case.
const MAX_PAGES: usize = 1_000;

pub(super) async fn listing_agrees_with_find(context: &CaseContext) -> CaseResult {
    let (running, stopped, gone) =
        (context.add("running").await, context.add("stopped").await, context.add_and_delete("gone").await);
    context.bench().stop(&stopped).await;
    let listed = list_all(context).await?;
    for instance in [&running, &stopped] {
        let Some(listed) = listed.iter().find(|state| is_instance(state, instance)) else {
            return fail(format!("{:?} is not listed", instance.id));
        };
        let found = context.state(&instance_ref(instance)).await?;
        require(*listed == found, || format!("`list` returns {listed:?}, `find` returns {found:?}"))?;
    }
    require(!listed.iter().any(|state| is_instance(state, &gone)), || {
        format!("the deleted machine {:?} is listed", gone.id)
    })
}

pub(super) async fn pages_are_complete(context: &CaseContext) -> CaseResult {
    let capabilities = context.instance_capabilities()?;
    let (page, is_numbered) = (capabilities.list_page.unwrap_or(1).min(MAX_PAGE_SIZE), capabilities.numbered_pages);
    require(!is_numbered || capabilities.absence == Absence::Question, || {
        format!("numbered pages may miss a machine, but absence is {:?}", capabilities.absence)
    })?;
    // The oldest and the newest machines are deleted, so that some are on the first page in either sort order and the later pages
    // have the others. A listing that pages by offset then misses one of these.
    let mut leaving = add_all(context, "leaves-early", 3).await;
    let staying = add_all(context, "stays", 2 * page + 1).await;
    leaving.extend(add_all(context, "leaves-late", 3).await);
    let (mut seen, mut token) = (BTreeMap::new(), None);
    for round in 0..MAX_PAGES {
        let page = context.page(token.as_ref()).await?;
        count(&page.instances, &mut seen);
        token = page.next;
        if token.is_none() {
            return verify_listed_once(&staying, &seen);
        }
        if !leaving.is_empty() && !is_numbered {
            change_machines(context, &mut leaving, &seen, round).await;
        }
    }
    fail("the listing does not end")
}

async fn add_all(context: &CaseContext, name: &str, count: usize) -> Vec<Instance> {
    let mut instances = Vec::with_capacity(count);
    for index in 0..count {
        instances.push(context.add(&format!("{name}-{index}")).await);
    }
    instances
}

/// Counts how often each machine was listed.
fn count(instances: &[InstanceState], seen: &mut BTreeMap<String, usize>) {
    for instance in instances.iter().filter_map(InstanceState::instance) {
        *seen.entry(instance.id.clone()).or_default() += 1;
    }
}

/// Deletes a machine that was listed and one that was not, and creates a new one, between two pages. Ends with the machines in `leaving`:
/// with a page size of one, the listing would never catch up.
async fn change_machines(
    context: &CaseContext,
    leaving: &mut Vec<Instance>,
    seen: &BTreeMap<String, usize>,
    round: usize,
) {
    for listed in [true, false] {
        if let Some(index) = leaving.iter().position(|instance| seen.contains_key(&instance.id) == listed) {
            context.bench().delete(&leaving.swap_remove(index)).await;
        }
    }
    context.add(&format!("comes-{round}")).await;
}

fn verify_listed_once(staying: &[Instance], seen: &BTreeMap<String, usize>) -> CaseResult {
    for instance in staying {
        let times = seen.get(&instance.id).copied().unwrap_or_default();
        require(times == 1, || format!("{:?} existed all the time and is listed {times} times", instance.id))?;
    }
    Ok(())
}

pub(super) async fn absence_is_as_declared(context: &CaseContext) -> CaseResult {
    let capabilities = context.instance_capabilities()?;
    let (_listed, unlisted) = (context.add("listed").await, context.add("unlisted").await);
    if context.bench().unlist(&unlisted).await == BenchResult::Cannot {
        return Err(CaseFailure::BenchCannot("omit a machine from a listing".to_owned()));
    }
    if list_all(context).await?.iter().any(|state| is_instance(state, &unlisted)) {
        return Ok(());
    }
    require(capabilities.absence != Absence::Proof, || {
        format!("absence is declared as proof, but {:?} exists and is not listed", unlisted.id)
    })?;
    let found = context.state(&instance_ref(&unlisted)).await?;
    require(is_instance(&found, &unlisted), || {
        format!("{:?} exists and is not listed; a lookup by ID returns {found:?}", unlisted.id)
    })?;
    if capabilities.lookup_by_name && capabilities.absence == Absence::ProofForNames {
        let named = context.state(&by_name(&unlisted.name)).await?;
        require(named == InstanceState::Gone, || {
            format!("absence is declared as proof for names; a lookup by name returns {named:?}")
        })?;
    }
    Ok(())
}

pub(super) async fn without_listing_it_is_unsupported(context: &CaseContext) -> CaseResult {
    match context.instances()?.list(None).await {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        Err(error) => fail(format!("listing is not claimed: expected `Unsupported`, got {:?}: {error}", error.kind())),
        Ok(_) => fail("it is not claimed, and works"),
    }
}

pub(super) async fn list_all(context: &CaseContext) -> CaseResult<Vec<InstanceState>> {
    let (mut all, mut token) = (Vec::new(), None::<PageToken>);
    for _ in 0..MAX_PAGES {
        let page = context.page(token.as_ref()).await?;
        all.extend(page.instances);
        token = page.next;
        if token.is_none() {
            return Ok(all);
        }
    }
    fail("the listing does not end")
}

fn is_instance(state: &InstanceState, instance: &Instance) -> bool {
    state.instance().is_some_and(|found| found.id == instance.id)
}
