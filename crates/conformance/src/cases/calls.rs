//! Rules about all calls of a provider.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bowline_cloud::CloudProvider;

use super::faults::visible_faults;
use crate::bench::InducedFault;
use crate::context::{CaseContext, CaseFailure, CaseResult, fail, require};
use crate::load_balancer_fixture::{LoadBalancerFixture, without_spec};
use crate::probes::Probe;

/// Bodies of 404 responses that do not come from the cloud: from a proxy, an API gateway, another web server.
const FOREIGN: [&str; 3] =
    ["<html><body><h1>404 Not Found</h1></body></html>", r#"{"message":"no Route matched with those values"}"#, ""];

/// Delay of a slow cloud, long enough to distinguish a blocked thread from a busy machine.
const SLOW: Duration = Duration::from_millis(200);

/// Attempts to measure a call, because a busy machine may suspend any thread for a while.
const TRIES: usize = 3;

pub(super) async fn foreign_404_is_no_answer(context: &CaseContext) -> CaseResult {
    let probes = Probe::all(context).await?;
    for body in FOREIGN {
        for probe in &probes {
            context.inject(InducedFault::NotFound(body)).await?;
            let probed = probe.run(context.provider()).await;
            context.clear_faults().await;
            require(probed.failed, || {
                format!("{}: a foreign 404 ({body:?}) is taken for an answer: {}", probe.name(), probed.text)
            })?;
        }
    }
    Ok(())
}

pub(super) async fn failed_calls_are_not_repeated(context: &CaseContext) -> CaseResult {
    let probes = Probe::all(context).await?;
    for probe in probes.iter().filter(|probe| !probe.writes()) {
        // The first call may have to authenticate.
        probe.run(context.provider()).await;
        let healthy = calls(context, probe).await?;
        for (fault, _) in visible_faults(context).filter(|(fault, _)| *fault != InducedFault::Unauthenticated) {
            context.inject(fault).await?;
            let failed = calls(context, probe).await?;
            context.clear_faults().await;
            require(failed <= healthy, || {
                format!("{}: {failed} calls with {fault:?}, {healthy} calls to a healthy cloud", probe.name())
            })?;
        }
    }
    for probe in probes.iter().filter(|probe| probe.writes()) {
        context.inject(InducedFault::Broken).await?;
        let failed = calls(context, probe).await?;
        context.clear_faults().await;
        require(failed <= 1, || format!("{}: {failed} calls although the first one failed", probe.name()))?;
    }
    Ok(())
}

/// Number of calls to the cloud that this probe makes.
async fn calls(context: &CaseContext, probe: &Probe) -> CaseResult<u64> {
    let count = || async { context.calls().await.ok_or_else(|| CaseFailure::BenchCannot("count calls".to_owned())) };
    let before = count().await?;
    probe.run(context.provider()).await;
    Ok(count().await? - before)
}

pub(super) async fn secrets_stay_secret(context: &CaseContext) -> CaseResult {
    let probes = Probe::all(context).await?;
    let provider = context.provider();
    hides(context, "info", &format!("{:?} {:?}", provider.info(), provider.capabilities()))?;
    // Reads come first: a failed write may have taken effect, and then there is less to read.
    for probe in probes.iter().filter(|probe| !probe.writes()) {
        hides(context, &probe.name(), &probe.run(provider).await.text)?;
    }
    for fault in visible_faults(context).map(|(fault, _)| fault).chain(FOREIGN.map(InducedFault::NotFound)) {
        context.inject(fault).await?;
        for probe in &probes {
            hides(context, &probe.name(), &probe.run(provider).await.text)?;
        }
        context.clear_faults().await;
    }
    for probe in &probes {
        hides(context, &probe.name(), &probe.run(provider).await.text)?;
    }
    plans_hide(context).await
}

/// Verifies that plans and their warnings contain no secret.
async fn plans_hide(context: &CaseContext) -> CaseResult {
    for (number, fixture) in LoadBalancerFixture::each_kind(context)?.into_iter().enumerate() {
        let node = fixture.node(&format!("hidden-{number}")).await;
        let desired = fixture.full_featured(&format!("hidden-{number}"), &[node])?;
        for wanted in [&desired, &without_spec(&desired)] {
            let plan = fixture.plan(wanted).await?;
            hides(context, "plan", &format!("{plan} {plan:?}"))?;
            fixture.sync(wanted).await?;
        }
    }
    Ok(())
}

fn hides(context: &CaseContext, what: &str, text: &str) -> CaseResult {
    let secrets = context.bench().secrets();
    let shown = secrets.iter().find(|secret| !secret.is_empty() && text.contains(secret.as_str()));
    match shown {
        // The text is not quoted, because reports end up in logs.
        Some(secret) => fail(format!("{what} contains a secret that starts with {:?}", secret.chars().next())),
        None => Ok(()),
    }
}

pub(super) async fn no_call_blocks_the_thread(context: &CaseContext) -> CaseResult {
    let probes = Probe::all(context).await?;
    if context.bench().can_occur(InducedFault::Slow(SLOW)) {
        context.inject(InducedFault::Slow(SLOW)).await?;
    }
    for probe in probes.into_iter().filter(|probe| !probe.writes()) {
        let mut longest = Duration::MAX;
        for _ in 0..TRIES {
            longest = longest.min(longest_poll(context.bench().provider(), probe.clone()).await?);
            if longest < SLOW {
                break;
            }
        }
        require(longest < SLOW, || format!("{} blocks its thread for {longest:?}", probe.name()))?;
    }
    context.clear_faults().await;
    Ok(())
}

/// Longest time that the call occupies its thread between two awaits. The call has its own thread and runtime, so that a blocking
/// call does not stop the simulator.
async fn longest_poll(provider: Arc<dyn CloudProvider>, probe: Probe) -> CaseResult<Duration> {
    let call = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok::<_, std::io::Error>(runtime.block_on(timed(probe.run(&*provider))))
    };
    match tokio::task::spawn_blocking(call).await {
        Ok(Ok(longest)) => Ok(longest),
        Ok(Err(error)) => Err(CaseFailure::BenchCannot(format!("start a runtime: {error}"))),
        Err(error) => fail(format!("the call failed on another thread: {error}")),
    }
}

async fn timed(call: impl Future) -> Duration {
    let (mut call, mut longest) = (pin!(call), Duration::ZERO);
    std::future::poll_fn(|task| {
        let start = Instant::now();
        let polled = call.as_mut().poll(task);
        longest = longest.max(start.elapsed());
        if polled.is_ready() { Poll::Ready(longest) } else { Poll::Pending }
    })
    .await
}
