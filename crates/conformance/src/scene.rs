//! What a case works with: a bench, and ways to ask that fail the case in plain words.

use std::sync::Arc;

use bowline_cloud::{CloudProvider, Error, InstanceCapabilities, InstancePage, Instances, PageToken, Result as Answer};
use bowline_core::{Instance, InstanceRef, InstanceState, ProviderId};

use crate::bench::{Bench, InducedFault, WantedMachine};

/// How a case ends.
pub type CaseResult<T = ()> = Result<T, CaseFailure>;

/// Why a case did not pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaseFailure {
    /// The provider breaks the rule.
    #[error("{0}")]
    Broken(String),
    /// The bench cannot do what the case is about, so nothing was shown.
    #[error("the bench cannot {0}")]
    BenchCannot(String),
    /// The provider or its cloud has nothing that the rule is about.
    #[error("{0}")]
    NotApplicable(&'static str),
}

/// A bench in use by a case.
pub struct Scene {
    bench: Box<dyn Bench>,
    provider: Arc<dyn CloudProvider>,
    kind: Option<&'static str>,
}

/// The provider breaks the rule, because of this.
pub(crate) fn broken<T>(why: impl Into<String>) -> CaseResult<T> {
    Err(CaseFailure::Broken(why.into()))
}

/// The provider breaks the rule unless `holds`.
pub(crate) fn require(holds: bool, why: impl FnOnce() -> String) -> CaseResult {
    if holds { Ok(()) } else { broken(why()) }
}

/// How a Node asks that has this name and no provider ID.
pub(crate) fn by_name(name: &str) -> InstanceRef {
    InstanceRef { node: name.into(), provider_id: None, system_uuid: None }
}

/// How a Node asks that has this name and this provider ID.
pub(crate) fn by_id(name: &str, id: Option<&ProviderId>) -> InstanceRef {
    InstanceRef { node: name.into(), provider_id: id.cloned(), system_uuid: None }
}

/// How the Node of this machine asks once it has its provider ID.
pub(crate) fn of(instance: &Instance) -> InstanceRef {
    by_id(&instance.name, instance.provider_id.as_ref())
}

impl Scene {
    pub(crate) fn new(bench: Box<dyn Bench>, kind: Option<&'static str>) -> Scene {
        let provider = bench.provider();
        Scene { bench, provider, kind }
    }

    /// Kind of load balancer that the case is about; `None` is the first.
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
        instances.map_or_else(|| broken("it claims to tell of instances, and hands out no Instances"), Ok)
    }

    pub(crate) fn numbers(&self) -> CaseResult<&InstanceCapabilities> {
        let numbers = self.provider.capabilities().instances.as_ref();
        numbers.map_or_else(|| broken("it has no capabilities for instances any more"), Ok)
    }

    /// Makes a machine of this name.
    pub(crate) async fn add(&self, name: &str) -> Instance {
        self.bench.add(&WantedMachine { name: name.to_owned(), ..WantedMachine::default() }).await
    }

    /// Makes a machine and removes it again: one of which the cloud knows for certain that it is gone.
    pub(crate) async fn add_and_delete(&self, name: &str) -> Instance {
        let instance = self.add(name).await;
        self.bench.delete(&instance).await;
        instance
    }

    /// The cloud goes wrong like this from now on.
    pub(crate) async fn trouble(&self, trouble: InducedFault) -> CaseResult {
        if self.bench.trouble(Some(trouble)).await {
            return Ok(());
        }
        Err(CaseFailure::BenchCannot(format!("make this trouble: {trouble:?}")))
    }

    /// The cloud is sound again.
    pub(crate) async fn mend(&self) {
        self.bench.trouble(None).await;
    }

    /// Asks about all of these, in batches as large as the provider takes.
    pub(crate) async fn find(&self, asked: &[InstanceRef]) -> CaseResult<Vec<Answer<InstanceState>>> {
        let (instances, batch) = (self.instances()?, self.numbers()?.batch_lookup.max(1));
        let mut answers = Vec::with_capacity(asked.len());
        for batch in asked.chunks(batch) {
            let some = instances.find(batch).await;
            require(some.len() == batch.len(), || format!("{} answers to {} questions", some.len(), batch.len()))?;
            answers.extend(some);
        }
        Ok(answers)
    }

    /// Asks about one.
    pub(crate) async fn find_one(&self, asked: &InstanceRef) -> CaseResult<Answer<InstanceState>> {
        let answer = self.find(std::slice::from_ref(asked)).await?.pop();
        answer.map_or_else(|| broken("no answer"), Ok)
    }

    /// Asks about one, with which nothing is wrong.
    pub(crate) async fn state(&self, asked: &InstanceRef) -> CaseResult<InstanceState> {
        self.find_one(asked).await?.or_else(|error| broken(format!("an error from a sound cloud: {error}")))
    }

    /// Asks about one machine, which must exist.
    pub(crate) async fn instance(&self, asked: &InstanceRef) -> CaseResult<Arc<Instance>> {
        let state = self.state(asked).await?;
        state.instance().cloned().map_or_else(|| broken(format!("a machine that exists is {state:?}")), Ok)
    }

    /// Asks about one, which must fail.
    pub(crate) async fn error(&self, asked: &InstanceRef) -> CaseResult<Error> {
        match self.find_one(asked).await? {
            Err(error) => Ok(error),
            Ok(state) => broken(format!("an error was called for, and it answered {state:?}")),
        }
    }

    /// One page, from a sound cloud.
    pub(crate) async fn page(&self, token: Option<&PageToken>) -> CaseResult<InstancePage> {
        let mut page = sound(self.instances()?.list(token).await)?;
        let (ids, brief): (Vec<_>, Vec<_>) = std::mem::take(&mut page.brief).into_iter().unzip();
        let described = if brief.is_empty() { Vec::new() } else { self.instances()?.describe(&brief, &[]).await };
        require(described.len() == ids.len(), || {
            format!("{} descriptions of {} machines", described.len(), ids.len())
        })?;
        for (id, state) in ids.into_iter().zip(described) {
            let state = sound(state)?;
            let is_it = |listed: &&mut InstanceState| listed.instance().is_some_and(|instance| instance.id == id);
            page.instances.iter_mut().filter(is_it).for_each(|listed| *listed = state.clone());
        }
        Ok(page)
    }

    /// Calls made so far; `None` if the cloud does not count.
    pub(crate) async fn calls(&self) -> Option<u64> {
        self.bench.calls().await
    }
}

/// The answer of a sound cloud.
fn sound<T>(answer: Answer<T>) -> CaseResult<T> {
    answer.or_else(|error| broken(format!("an error from a sound cloud: {error}")))
}
