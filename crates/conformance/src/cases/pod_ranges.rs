//! Rules about the pod ranges that a cloud leads to machines by itself.

use bowline_cloud::{ErrorKind, Result as Answer};
use bowline_core::{Instance, IpFamily};
use ipnet::IpNet;

use super::listing::everything;
use super::trouble::visible_troubles;
use crate::balancing::happens;
use crate::bench::{InducedFault, WantedMachine};
use crate::routing::{fails, range, sound};
use crate::scene::{CaseResult, Scene, broken, of, require};

/// No assignment takes more calls.
const MANY_CALLS: u16 = 100;

pub(super) async fn pod_ranges_are_told(scene: &Scene) -> CaseResult {
    // In no order that sorting would give.
    let wanted = [(IpFamily::IPv4, 9), (IpFamily::IPv6, 3), (IpFamily::IPv4, 4)];
    let pod_ranges = wanted.map(|(family, number)| range(family, number)).to_vec();
    let wanted = WantedMachine { name: "node-1".to_owned(), pod_ranges, ..WantedMachine::default() };
    let machine = scene.bench().add(&wanted).await;
    require(!machine.pod_ranges.is_empty(), || "the bench made a machine without pod ranges".to_owned())?;
    for _ in 0..3 {
        tells(scene, &machine, &machine.pod_ranges).await?;
    }
    if scene.numbers()?.list_page.is_none() {
        return Ok(());
    }
    let listed = everything(scene).await?;
    let listed: Vec<_> = listed.iter().filter_map(|state| state.instance()).map(|found| &found.pod_ranges).collect();
    require(listed == [&machine.pod_ranges], || format!("{:?} are listed as {listed:?}", machine.pod_ranges))
}

/// The machine has these pod ranges, in this order.
async fn tells(scene: &Scene, machine: &Instance, ranges: &[IpNet]) -> CaseResult {
    let found = scene.instance(&of(machine)).await?;
    require(found.pod_ranges == ranges, || format!("the pod ranges are {:?}, not {ranges:?}", found.pod_ranges))
}

async fn assign(scene: &Scene, machine: &Instance, range: IpNet) -> CaseResult<Answer<()>> {
    Ok(scene.instances()?.assign_pod_cidrs(&of(machine), range).await)
}

pub(super) async fn assigned_pod_range_is_told(scene: &Scene) -> CaseResult {
    let (a, b, gone) = (scene.add("a").await, scene.add("b").await, scene.add_and_delete("gone").await);
    let [one, other, third] = [7, 2, 5].map(|number| range(IpFamily::IPv4, number));
    let of_a = a.pod_ranges.clone();
    for (range, all) in [(one, vec![one]), (one, vec![one]), (other, vec![one, other]), (one, vec![one, other])] {
        sound(assign(scene, &a, range).await?)?;
        tells(scene, &a, &[of_a.as_slice(), &all].concat()).await?;
    }
    fails("to assign what another machine has", assign(scene, &b, one).await?, ErrorKind::AlreadyExists)?;
    if assign(scene, &gone, third).await?.is_ok() {
        return broken("a machine that is gone was assigned a range");
    }
    tells(scene, &b, &b.pod_ranges).await?;
    tells(scene, &a, &[of_a.as_slice(), &[one, other]].concat()).await
}

pub(super) async fn assignment_survives_every_crash(scene: &Scene) -> CaseResult {
    for calls in 1..MANY_CALLS {
        let (machine, range) = (scene.add(&format!("node-{calls}")).await, range(IpFamily::IPv4, calls));
        let expected = [machine.pod_ranges.as_slice(), &[range]].concat();
        let crashed = happens(scene.bench().crash_after(Some(calls.into())).await, "crash after a number of calls")?;
        let came = assign(scene, &machine, range).await?.is_ok();
        scene.bench().crash_after(None).await;
        let again = scene.bench().restarted().await;
        let Some(instances) = again.instances() else { return broken("after a restart it has no instances") };
        sound(instances.assign_pod_cidrs(&of(&machine), range).await)?;
        tells(scene, &machine, &expected).await?;
        if came || !crashed {
            return Ok(());
        }
    }
    broken(format!("it takes more than {MANY_CALLS} calls"))
}

pub(super) async fn assignment_errors_have_a_kind(scene: &Scene) -> CaseResult {
    let (machine, range) = (scene.add("node-1").await, range(IpFamily::IPv4, 1));
    // That nothing at all is shown may be taken for a machine that is gone: it fails either way.
    for (trouble, kind) in visible_troubles() {
        scene.trouble(trouble).await?;
        fails(&format!("to assign with {trouble:?}"), assign(scene, &machine, range).await?, kind)?;
        scene.mend().await;
        // Of a write whose answer makes no sense nobody knows whether it was carried out.
        if trouble != InducedFault::Garbled {
            tells(scene, &machine, &machine.pod_ranges).await?;
        }
    }
    sound(assign(scene, &machine, range).await?)?;
    tells(scene, &machine, &[machine.pod_ranges.as_slice(), &[range]].concat()).await
}

pub(super) async fn without_assignment_it_is_unsupported(scene: &Scene) -> CaseResult {
    let machine = scene.add("node-1").await;
    let answer = assign(scene, &machine, range(IpFamily::IPv4, 1)).await?;
    fails("to assign a range, which is not claimed,", answer, ErrorKind::Unsupported).map(drop)
}
