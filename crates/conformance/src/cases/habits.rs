//! Rules about how a provider makes its calls, whatever they are about.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bowline_cloud::CloudProvider;

use super::trouble::visible_troubles;
use crate::balancing::{Balancing, gone};
use crate::bench::InducedFault;
use crate::probes::Probe;
use crate::scene::{CaseFailure, CaseResult, Scene, broken, require};

/// Bodies of answers 404 that are not the cloud's own: of a proxy, of an API gateway, of a web server that is no cloud.
const FOREIGN: [&str; 3] =
    ["<html><body><h1>404 Not Found</h1></body></html>", r#"{"message":"no Route matched with those values"}"#, ""];

/// Delay of a slow cloud: long enough to tell a blocked thread from a busy machine.
const SLOW: Duration = Duration::from_millis(200);

/// A busy machine may stop any thread for a while, but not each time.
const TRIES: usize = 3;

pub(super) async fn foreign_404_is_no_answer(scene: &Scene) -> CaseResult {
    let probes = Probe::all(scene).await?;
    for body in FOREIGN {
        for probe in &probes {
            scene.trouble(InducedFault::NotFound(body)).await?;
            let probed = probe.run(scene.provider()).await;
            scene.mend().await;
            require(probed.failed, || {
                format!("{}: 404 from elsewhere ({body:?}) is an answer: {}", probe.name(), probed.text)
            })?;
        }
    }
    Ok(())
}

pub(super) async fn failed_calls_are_not_repeated(scene: &Scene) -> CaseResult {
    let probes = Probe::all(scene).await?;
    for probe in probes.iter().filter(|probe| !probe.writes()) {
        // The first time, a provider may have to log in.
        probe.run(scene.provider()).await;
        let sound = calls(scene, probe).await?;
        for (trouble, _) in visible_troubles().filter(|(trouble, _)| *trouble != InducedFault::Unauthenticated) {
            scene.trouble(trouble).await?;
            let failed = calls(scene, probe).await?;
            scene.mend().await;
            require(failed <= sound, || {
                format!("{}: {sound} calls to a sound cloud, and {failed} with {trouble:?}", probe.name())
            })?;
        }
    }
    for probe in probes.iter().filter(|probe| probe.writes()) {
        scene.trouble(InducedFault::Broken).await?;
        let failed = calls(scene, probe).await?;
        scene.mend().await;
        require(failed <= 1, || {
            format!("{}: {failed} calls to a broken cloud, which failed at the first", probe.name())
        })?;
    }
    Ok(())
}

/// Number of calls to the cloud that this one takes.
async fn calls(scene: &Scene, probe: &Probe) -> CaseResult<u64> {
    let count = || async { scene.calls().await.ok_or_else(|| CaseFailure::BenchCannot("count calls".to_owned())) };
    let before = count().await?;
    probe.run(scene.provider()).await;
    Ok(count().await? - before)
}

pub(super) async fn secrets_stay_secret(scene: &Scene) -> CaseResult {
    let probes = Probe::all(scene).await?;
    let provider = scene.provider();
    hides(scene, "info", &format!("{:?} {:?}", provider.info(), provider.capabilities()))?;
    for trouble in visible_troubles().map(|(trouble, _)| trouble).chain(FOREIGN.map(InducedFault::NotFound)) {
        scene.trouble(trouble).await?;
        for probe in &probes {
            hides(scene, &probe.name(), &probe.run(provider).await.text)?;
        }
        scene.mend().await;
    }
    for probe in &probes {
        hides(scene, &probe.name(), &probe.run(provider).await.text)?;
    }
    plans_hide(scene).await
}

/// Plans and their notices show no secret either.
async fn plans_hide(scene: &Scene) -> CaseResult {
    if scene.provider().capabilities().load_balancers.is_none() {
        return Ok(());
    }
    let work = Balancing::of(scene)?;
    let desired = work.everything("hidden", &[work.node("node-9").await])?;
    for wanted in [&desired, &gone(&desired)] {
        let plan = work.plan(wanted).await?;
        hides(scene, "plan", &format!("{plan} {plan:?}"))?;
        work.converge(wanted).await?;
    }
    Ok(())
}

fn hides(scene: &Scene, what: &str, text: &str) -> CaseResult {
    let secrets = scene.bench().secrets();
    let shown = secrets.iter().find(|secret| !secret.is_empty() && text.contains(secret.as_str()));
    match shown {
        // The text is not repeated: reports end up in logs.
        Some(secret) => broken(format!("{what} shows a secret that starts with {:?}", secret.chars().next())),
        None => Ok(()),
    }
}

pub(super) async fn no_call_blocks_the_thread(scene: &Scene) -> CaseResult {
    let probes = Probe::all(scene).await?;
    scene.trouble(InducedFault::Slow(SLOW)).await?;
    for probe in probes.into_iter().filter(|probe| !probe.writes()) {
        let mut longest = Duration::MAX;
        for _ in 0..TRIES {
            longest = longest.min(longest_poll(scene.bench().provider(), probe.clone()).await?);
            if longest < SLOW {
                break;
            }
        }
        require(longest < SLOW, || format!("{} blocks its thread for {longest:?}", probe.name()))?;
    }
    scene.mend().await;
    Ok(())
}

/// The longest time that the call keeps its thread without waiting. It has a thread of its own, with a runtime of its own, so
/// that a call that blocks does not keep the cloud's simulator from answering.
async fn longest_poll(provider: Arc<dyn CloudProvider>, probe: Probe) -> CaseResult<Duration> {
    let call = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok::<_, std::io::Error>(runtime.block_on(timed(probe.run(&*provider))))
    };
    match tokio::task::spawn_blocking(call).await {
        Ok(Ok(longest)) => Ok(longest),
        Ok(Err(error)) => Err(CaseFailure::BenchCannot(format!("make a runtime: {error}"))),
        Err(error) => broken(format!("the call does not end well on another thread: {error}")),
    }
}

async fn timed(call: impl Future) -> Duration {
    let (mut call, mut longest) = (pin!(call), Duration::ZERO);
    std::future::poll_fn(|context| {
        let start = Instant::now();
        let polled = call.as_mut().poll(context);
        longest = longest.max(start.elapsed());
        if polled.is_ready() { Poll::Ready(longest) } else { Poll::Pending }
    })
    .await
}
