//! Rules about pod CIDRs that the cloud itself routes to machines.

use bowline_cloud::{ErrorKind, Result as Answer};
use bowline_core::{Instance, IpFamily};
use ipnet::IpNet;

use super::faults::visible_faults;
use super::listing::list_all;
use crate::bench::{InducedFault, WantedMachine};
use crate::context::{CaseContext, CaseResult, expect_ok, fail, instance_ref, require};
use crate::load_balancer_fixture::was_induced;
use crate::route_fixture::{expect_error, pod_cidr};

/// Maximum number of calls for one assignment.
const MAX_CALLS: u16 = 100;

pub(super) async fn pod_cidrs_are_reported(context: &CaseContext) -> CaseResult {
    // Not sorted.
    let wanted = [(IpFamily::IPv4, 9), (IpFamily::IPv6, 3), (IpFamily::IPv4, 4)];
    let pod_cidrs = wanted.map(|(family, number)| pod_cidr(family, number)).to_vec();
    let wanted = WantedMachine { name: "node-1".to_owned(), pod_cidrs, ..WantedMachine::default() };
    let machine = context.bench().add(&wanted).await;
    require(!machine.pod_cidrs.is_empty(), || "the bench created a machine without pod CIDRs".to_owned())?;
    for _ in 0..3 {
        verify_pod_cidrs(context, &machine, &machine.pod_cidrs).await?;
    }
    if context.instance_capabilities()?.list_page.is_none() {
        return Ok(());
    }
    let listed = list_all(context).await?;
    let listed: Vec<_> = listed.iter().filter_map(|state| state.instance()).map(|found| &found.pod_cidrs).collect();
    require(listed == [&machine.pod_cidrs], || {
        format!("the listing has the pod CIDRs {listed:?}, expected {:?}", machine.pod_cidrs)
    })
}

/// Verifies that the machine is reported with these pod CIDRs, in this order.
async fn verify_pod_cidrs(context: &CaseContext, machine: &Instance, ranges: &[IpNet]) -> CaseResult {
    let found = context.instance(&instance_ref(machine)).await?;
    require(found.pod_cidrs == ranges, || format!("expected the pod CIDRs {ranges:?}, got {:?}", found.pod_cidrs))
}

async fn assign(context: &CaseContext, machine: &Instance, range: IpNet) -> CaseResult<Answer<()>> {
    Ok(context.instances()?.assign_pod_cidrs(&instance_ref(machine), range).await)
}

pub(super) async fn assigned_pod_cidr_is_reported(context: &CaseContext) -> CaseResult {
    let (a, b, gone) = (context.add("a").await, context.add("b").await, context.add_and_delete("gone").await);
    let [one, other, third] = [7, 2, 5].map(|number| pod_cidr(IpFamily::IPv4, number));
    let of_a = a.pod_cidrs.clone();
    for (range, all) in [(one, vec![one]), (one, vec![one]), (other, vec![one, other]), (one, vec![one, other])] {
        expect_ok(assign(context, &a, range).await?)?;
        verify_pod_cidrs(context, &a, &[of_a.as_slice(), &all].concat()).await?;
    }
    expect_error(
        "assigning the pod CIDR of another machine",
        assign(context, &b, one).await?,
        ErrorKind::AlreadyExists,
    )?;
    if assign(context, &gone, third).await?.is_ok() {
        return fail("a pod CIDR was assigned to a deleted machine");
    }
    verify_pod_cidrs(context, &b, &b.pod_cidrs).await?;
    verify_pod_cidrs(context, &a, &[of_a.as_slice(), &[one, other]].concat()).await
}

pub(super) async fn assignment_survives_every_crash(context: &CaseContext) -> CaseResult {
    for calls in 1..MAX_CALLS {
        let (machine, range) = (context.add(&format!("node-{calls}")).await, pod_cidr(IpFamily::IPv4, calls));
        let expected = [machine.pod_cidrs.as_slice(), &[range]].concat();
        let crashed =
            was_induced(context.bench().crash_after(Some(calls.into())).await, "crash after a number of calls")?;
        let succeeded = assign(context, &machine, range).await?.is_ok();
        context.bench().crash_after(None).await;
        let again = context.bench().restarted().await;
        let Some(instances) = again.instances() else { return fail("the restarted provider has no `Instances`") };
        expect_ok(instances.assign_pod_cidrs(&instance_ref(&machine), range).await)?;
        verify_pod_cidrs(context, &machine, &expected).await?;
        if succeeded || !crashed {
            return Ok(());
        }
    }
    fail(format!("not complete after {MAX_CALLS} calls"))
}

pub(super) async fn assignment_errors_have_a_kind(context: &CaseContext) -> CaseResult {
    let (machine, range) = (context.add("node-1").await, pod_cidr(IpFamily::IPv4, 1));
    // `Empty` is left out: the provider may take it for a deleted machine, which is another error.
    for (fault, kind) in visible_faults(context) {
        context.inject(fault).await?;
        expect_error(&format!("assigning a pod CIDR with {fault:?}"), assign(context, &machine, range).await?, kind)?;
        context.clear_faults().await;
        // After a garbled response the outcome of the write is unknown.
        if fault != InducedFault::Garbled {
            verify_pod_cidrs(context, &machine, &machine.pod_cidrs).await?;
        }
    }
    expect_ok(assign(context, &machine, range).await?)?;
    verify_pod_cidrs(context, &machine, &[machine.pod_cidrs.as_slice(), &[range]].concat()).await
}

pub(super) async fn without_assignment_it_is_unsupported(context: &CaseContext) -> CaseResult {
    let machine = context.add("node-1").await;
    let answer = assign(context, &machine, pod_cidr(IpFamily::IPv4, 1)).await?;
    expect_error("assigning a pod CIDR, which is not claimed,", answer, ErrorKind::Unsupported).map(drop)
}
