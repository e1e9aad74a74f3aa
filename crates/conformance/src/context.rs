//! Context of a case: the bench, and calls to the provider that fail the case with a readable reason.

use std::sync::Arc;

use bowline_cloud::{CloudProvider, Error, InstanceCapabilities, InstancePage, Instances, PageToken, Result as Answer};
use bowline_core::{Instance, InstanceRef, InstanceState, ProviderId};

use crate::bench::{Bench, InducedFault, WantedMachine};

/// Result of a case.
pub type CaseResult<T = ()> = Result<T, CaseFailure>;

/// Reason why a case did not pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaseFailure {
    /// The provider violates the rule.
    #[error("{0}")]
    Failed(String),
    /// The bench cannot set up what the case tests, so the case proves nothing.
    #[error("the bench cannot {0}")]
    BenchCannot(String),
    /// The provider or its cloud has nothing that the rule applies to.
    #[error("{0}")]
    NotApplicable(&'static str),
}

/// Bench and provider of one run of a case.
pub struct CaseContext {
    bench: Box<dyn Bench>,
    provider: Arc<dyn CloudProvider>,
    kind: Option<&'static str>,
}

/// Fails the case.
pub(crate) fn fail<T>(why: impl Into<String>) -> CaseResult<T> {
    Err(CaseFailure::Failed(why.into()))
}

/// Fails the case unless `holds`.
pub(crate) fn require(holds: bool, why: impl FnOnce() -> String) -> CaseResult {
    if holds { Ok(()) } else { fail(why()) }
}

/// Reference from a Node with this name and no provider ID.
pub(crate) fn by_name(name: &str) -> InstanceRef {
    InstanceRef { node: name.into(), provider_id: None, system_uuid: None }
}

/// Reference from a Node with this name and provider ID.
pub(crate) fn by_id(name: &str, id: Option<&ProviderId>) -> InstanceRef {
    InstanceRef { node: name.into(), provider_id: id.cloned(), system_uuid: None }
}

/// Reference from the initialised Node of this machine.
pub(crate) fn instance_ref(instance: &Instance) -> InstanceRef {
    by_id(&instance.name, instance.provider_id.as_ref())
}

impl CaseContext {
    pub(crate) fn new(bench: Box<dyn Bench>, kind: Option<&'static str>) -> CaseContext {
        let provider = bench.provider();
        CaseContext { bench, provider, kind }
    }

    /// Kind of load balancer that the case is run for; `None` means the first.
    pub(crate) fn kind(&self) -> Option<&'static str> {
        self.kind
    }

    pub(crate) fn provider(&self) -> &dyn CloudProvider {
        &*self.provider
    }

    pub(crate) fn bench(&self) -> &dyn Bench {
        &*self.bench
    }

    pub(crate) fn instances(&self) -> CaseResult<&dyn Instances> {
        let instances = self.provider.instances();
        instances.map_or_else(|| fail("the provider claims instances and returns no `Instances`"), Ok)
    }

    pub(crate) fn instance_capabilities(&self) -> CaseResult<&InstanceCapabilities> {
        let capabilities = self.provider.capabilities().instances.as_ref();
        capabilities.map_or_else(|| fail("the provider no longer has capabilities for instances"), Ok)
    }

    /// Creates a machine with this name.
    pub(crate) async fn add(&self, name: &str) -> Instance {
        self.bench.add(&WantedMachine { name: name.to_owned(), ..WantedMachine::default() }).await
    }

    /// Creates a machine and deletes it, so that the cloud knows for certain that it is gone.
    pub(crate) async fn add_and_delete(&self, name: &str) -> Instance {
        let instance = self.add(name).await;
        self.bench.delete(&instance).await;
        instance
    }

    /// Makes every call to the cloud fail with this fault from now on.
    pub(crate) async fn inject(&self, fault: InducedFault) -> CaseResult {
        if self.bench.inject_fault(Some(fault)).await {
            return Ok(());
        }
        Err(CaseFailure::BenchCannot(format!("inject the fault {fault:?}")))
    }

    /// Makes the cloud healthy again.
    pub(crate) async fn clear_faults(&self) {
        self.bench.inject_fault(None).await;
    }

    /// Looks up these machines, in batches of the size that the provider claims.
    pub(crate) async fn find(&self, references: &[InstanceRef]) -> CaseResult<Vec<Answer<InstanceState>>> {
        let (instances, batch) = (self.instances()?, self.instance_capabilities()?.batch_lookup.max(1));
        let mut answers = Vec::with_capacity(references.len());
        for batch in references.chunks(batch) {
            let some = instances.find(batch).await;
            require(some.len() == batch.len(), || format!("{} answers for {} machines", some.len(), batch.len()))?;
            answers.extend(some);
        }
        Ok(answers)
    }

    /// Looks up one machine.
    pub(crate) async fn find_one(&self, reference: &InstanceRef) -> CaseResult<Answer<InstanceState>> {
        let answer = self.find(std::slice::from_ref(reference)).await?.pop();
        answer.map_or_else(|| fail("no answer"), Ok)
    }

    /// Looks up one machine in a healthy cloud.
    pub(crate) async fn state(&self, reference: &InstanceRef) -> CaseResult<InstanceState> {
        expect_ok(self.find_one(reference).await?)
    }

    /// Looks up one machine, which must exist.
    pub(crate) async fn instance(&self, reference: &InstanceRef) -> CaseResult<Arc<Instance>> {
        let state = self.state(reference).await?;
        state.instance().cloned().map_or_else(|| fail(format!("a machine that exists is reported as {state:?}")), Ok)
    }

    /// Looks up one machine, and expects an error.
    pub(crate) async fn error(&self, reference: &InstanceRef) -> CaseResult<Error> {
        match self.find_one(reference).await? {
            Err(error) => Ok(error),
            Ok(state) => fail(format!("expected an error, got {state:?}")),
        }
    }

    /// Reads one page of the listing of a healthy cloud.
    pub(crate) async fn page(&self, token: Option<&PageToken>) -> CaseResult<InstancePage> {
        let mut page = expect_ok(self.instances()?.list(token).await)?;
        let (ids, brief): (Vec<_>, Vec<_>) = std::mem::take(&mut page.brief).into_iter().unzip();
        let described = if brief.is_empty() { Vec::new() } else { self.instances()?.describe(&brief, &[]).await };
        require(described.len() == ids.len(), || {
            format!("{} descriptions for {} machines", described.len(), ids.len())
        })?;
        for (id, state) in ids.into_iter().zip(described) {
            let state = expect_ok(state)?;
            let is_it = |listed: &&mut InstanceState| listed.instance().is_some_and(|instance| instance.id == id);
            page.instances.iter_mut().filter(is_it).for_each(|listed| *listed = state.clone());
        }
        Ok(page)
    }

    /// Number of calls made so far; `None` if the cloud does not count them.
    pub(crate) async fn calls(&self) -> Option<u64> {
        self.bench.calls().await
    }
}

/// Answer of a call to a healthy cloud.
pub(crate) fn expect_ok<T>(answer: Answer<T>) -> CaseResult<T> {
    answer.or_else(|error| fail(format!("a healthy cloud returned an error: {error}")))
}
