//! Rules about a cloud that goes wrong.

use std::time::Duration;

use bowline_cloud::{ErrorKind, Retry};
use bowline_core::InstanceState;

use crate::bench::InducedFault;
use crate::scene::{CaseResult, Scene, broken, by_name, of, require};

const SEVEN: Duration = Duration::from_secs(7);

/// Each trouble, and the kind of error that it is.
const TROUBLES: [(InducedFault, ErrorKind); 6] = [
    (InducedFault::Unauthenticated, ErrorKind::Unauthenticated),
    (InducedFault::Forbidden, ErrorKind::PermissionDenied),
    (InducedFault::Throttled(SEVEN), ErrorKind::RateLimited),
    (InducedFault::Broken, ErrorKind::Unavailable),
    (InducedFault::Empty, ErrorKind::Unexpected),
    (InducedFault::Garbled, ErrorKind::Unexpected),
];

/// Those that a listing shows, too: that there is nothing at all cannot be told from an empty account.
pub(super) fn visible_troubles() -> impl Iterator<Item = (InducedFault, ErrorKind)> {
    TROUBLES.into_iter().filter(|(trouble, _)| *trouble != InducedFault::Empty)
}

pub(super) async fn gone_is_certain(scene: &Scene) -> CaseResult {
    let (here, gone) = (scene.add("here").await, scene.add_and_delete("gone").await);
    let state = scene.state(&of(&gone)).await?;
    require(state == InstanceState::Gone, || format!("a machine that was deleted is {state:?}"))?;
    scene.trouble(InducedFault::Empty).await?;
    scene.error(&of(&here)).await?;
    scene.error(&of(&gone)).await?;
    scene.mend().await;
    scene.instance(&of(&here)).await.map(drop)
}

pub(super) async fn error_is_no_answer(scene: &Scene) -> CaseResult {
    let (here, gone) = (scene.add("here").await, scene.add_and_delete("gone").await);
    let by_id = [of(&here), of(&gone)];
    let names = if scene.numbers()?.lookup_by_name { vec![by_name("here"), by_name("gone")] } else { Vec::new() };
    for (trouble, _) in TROUBLES {
        scene.trouble(trouble).await?;
        // A search for a name that finds nothing cannot be told from a cloud that shows nothing.
        let names = names.iter().filter(|_| trouble != InducedFault::Empty);
        let asked: Vec<_> = by_id.iter().chain(names).cloned().collect();
        for (asked, answer) in asked.iter().zip(scene.find(&asked).await?) {
            match answer {
                Ok(state) => return broken(format!("in spite of {trouble:?} it answered {state:?}")),
                Err(error) if error.seen().is_some() && asked.node == *"gone" => {
                    return broken(format!("{trouble:?} makes it see a machine that was deleted: {error}"));
                }
                Err(_) => {}
            }
        }
    }
    scene.mend().await;
    scene.instance(&of(&here)).await.map(drop)
}

pub(super) async fn errors_have_a_kind(scene: &Scene) -> CaseResult {
    let here = scene.add("here").await;
    for (trouble, kind) in TROUBLES {
        scene.trouble(trouble).await?;
        let error = scene.error(&of(&here)).await?;
        require(error.kind() == kind, || format!("{trouble:?} is {:?} instead of {kind:?}: {error}", error.kind()))?;
    }
    Ok(())
}

pub(super) async fn listing_errors_have_a_kind(scene: &Scene) -> CaseResult {
    scene.add("here").await;
    // That is why a list alone never proves "gone".
    for (trouble, kind) in visible_troubles() {
        scene.trouble(trouble).await?;
        match scene.instances()?.list(None).await {
            Ok(page) => return broken(format!("in spite of {trouble:?} it listed {} machines", page.instances.len())),
            Err(error) => require(error.kind() == kind, || {
                format!("{trouble:?} is {:?} instead of {kind:?}: {error}", error.kind())
            })?,
        }
    }
    Ok(())
}

pub(super) async fn throttling_carries_its_delay(scene: &Scene) -> CaseResult {
    let here = scene.add("here").await;
    scene.trouble(InducedFault::Throttled(SEVEN)).await?;
    let advice = scene.error(&of(&here)).await?.retry_advice();
    require(advice == Retry::After(SEVEN), || format!("the cloud said {SEVEN:?}, and the advice is {advice:?}"))
}
