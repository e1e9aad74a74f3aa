//! Rules about batches of routes.

use bowline_cloud::Result as Answer;
use bowline_core::{Instance, Route, RouteSpec};

use crate::context::{CaseContext, CaseResult, expect_ok, fail, require};
use crate::route_fixture::RouteFixture;

/// Maximum batch size of a case; a larger batch would only take time.
const MAX_BATCH: usize = 16;

pub(in crate::cases) async fn one_route_answer_each(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let [a, b] = [fixture.add_machine("node-1").await, fixture.add_machine("node-2").await];
    let gone = context.add_and_delete("node-3").await;
    let mut specs = [fixture.spec(1, &a)?, fixture.spec(2, &gone)?, fixture.spec(3, &b)?];
    if !fixture.capabilities()?.knows_machines {
        // Such a cloud rejects only a Node without an address.
        specs[1].node_addresses.clear();
    }
    let answers = fixture.try_create_all(&specs).await?;
    let destinations: Vec<_> =
        answers.iter().map(|created| created.as_ref().ok().map(|route| route.destination)).collect();
    let wanted = [Some(specs[0].destination), None, Some(specs[2].destination)];
    require(destinations == wanted, || {
        format!("the second of three machines is gone: expected {wanted:?}, got {answers:?}")
    })?;
    fixture.verify_in_table(&specs[0], &a).await?;
    fixture.verify_in_table(&specs[2], &b).await?;
    let created: Vec<Route> = answers.into_iter().flatten().collect();
    fixture.delete_and_verify(&created[0]).await?;
    // The first route is already deleted, which must not fail.
    let deleted = fixture.try_delete_all(&created).await?;
    require(deleted.iter().all(Answer::is_ok), || {
        format!("deleting an existing and a deleted route returned {deleted:?}")
    })?;
    fixture.verify_unchanged(&[]).await
}

pub(in crate::cases) async fn batched_routes_save_calls(context: &CaseContext) -> CaseResult {
    let fixture = RouteFixture::new(context)?;
    let machines = fixture.add_machines(fixture.capacity(fixture.capabilities()?.batch.min(MAX_BATCH))?).await;
    // The first writes also fetch what the provider caches, such as a token.
    calls_to_write(context, &fixture, &machines[..1]).await?;
    let alone = calls_to_write(context, &fixture, &machines[..1]).await?;
    let Some((alone, together)) = alone.zip(calls_to_write(context, &fixture, &machines).await?) else { return Ok(()) };
    let count = machines.len() as u64;
    for (what, alone, together) in [("created", alone[0], together[0]), ("deleted", alone[1], together[1])] {
        let limit = alone * count - (count - 1);
        require(together <= limit, || {
            format!(
                "{count} routes were {what} in {together} calls; with {alone} calls for one route, at most {limit} are allowed"
            )
        })?;
    }
    Ok(())
}

/// Number of calls to create a route to each machine, and to delete these routes.
async fn calls_to_write(
    context: &CaseContext,
    fixture: &RouteFixture<'_>,
    machines: &[Instance],
) -> CaseResult<Option<[u64; 2]>> {
    let specs = (1..).zip(machines).map(|(number, machine)| fixture.spec(number, machine));
    let specs = specs.collect::<CaseResult<Vec<RouteSpec>>>()?;
    let before = context.calls().await;
    let created =
        fixture.try_create_all(&specs).await?.into_iter().map(expect_ok).collect::<CaseResult<Vec<Route>>>()?;
    let between = context.calls().await;
    fixture.try_delete_all(&created).await?.into_iter().try_for_each(expect_ok)?;
    let after = context.calls().await;
    match (before, between, after) {
        (Some(before), Some(between), Some(after)) => Ok(Some([between - before, after - between])),
        (None, None, None) => Ok(None),
        _ => fail("the bench counts calls only sometimes"),
    }
}
