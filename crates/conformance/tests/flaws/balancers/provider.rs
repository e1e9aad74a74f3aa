//! The toy's provider, with whatever flaw is put into it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bowline_cloud::{
    Applied, Capabilities, CloudProvider, Error, ErrorKind, LoadBalancerCapabilities, LoadBalancers, ProviderInfo,
    Result, Retry,
};
use bowline_core::{
    ClusterName, Ingress, LoadBalancerKey, LoadBalancerState, LoadBalancerStatus, LoadBalancerWish, Plan, Protocol,
    Step,
};
use serde::{Deserialize, Serialize};

use super::Flaw;
use super::cloud::{Balancer, Cloud, Listener};
use super::plan::{Op, balancer_name, plan};

pub(super) struct Toy {
    pub(super) flaw: Flaw,
    pub(super) cloud: Arc<Cloud>,
    info: ProviderInfo,
    capabilities: Capabilities,
    /// What a manager would know until it crashes.
    memory: Mutex<Vec<String>>,
    busy: AtomicBool,
}

/// Where the toy notes the ID of a Service's balancer.
const NOTE: &str = "toy.example/balancer";

/// What a plan is made from: what is ours, and what may stand in the way of something new.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct View {
    pub(super) balancer: Option<Balancer>,
    pub(super) listeners: Vec<Listener>,
    /// The ports of others on the same balancer.
    pub(super) others: Vec<(Protocol, u16)>,
    /// What has the name that ours would have.
    pub(super) named: Option<Balancer>,
    /// The Service's annotation leads to it, and it is not there.
    pub(super) missing: Option<String>,
    /// What is to be adopted.
    pub(super) adoptable: Option<Balancer>,
    /// Who has the address that is asked for.
    pub(super) holder: Option<String>,
    /// For a flaw: whatever nobody owns.
    pub(super) nobodys: Option<Balancer>,
}

impl Toy {
    pub(super) fn new(flaw: Flaw, balancers: LoadBalancerCapabilities) -> Toy {
        let most = match flaw {
            Flaw::ClaimsOnePortTooMany => (balancers.max_ports.unwrap_or(9) - 1, 99),
            Flaw::ClaimsOneTargetTooMany => (99, balancers.max_targets.unwrap_or(9) - 1),
            _ => (99, 99),
        };
        let careless = matches!(flaw, Flaw::GivesOutTakenAddresses | Flaw::ChoosesAddressesItself);
        Toy {
            flaw,
            cloud: Arc::new(Cloud::new(most, careless)),
            info: ProviderInfo { name: format!("toy ({flaw:?})"), id_prefixes: vec!["toy".to_owned()] },
            capabilities: Capabilities { instances: None, load_balancers: Some(balancers), routes: None },
            memory: Mutex::default(),
            busy: AtomicBool::default(),
        }
    }

    pub(super) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    pub(super) fn numbers(&self) -> LoadBalancerCapabilities {
        self.capabilities.load_balancers.clone().unwrap_or_default()
    }

    pub(super) fn forget(&self) {
        self.memory.lock().unwrap().clear();
    }

    /// What things are marked with for this key.
    pub(super) fn mark(&self, key: &LoadBalancerKey) -> LoadBalancerKey {
        let tells_uid = self.numbers().marks_uid || self.has(Flaw::MarksTheUid);
        LoadBalancerKey { uid: if tells_uid { key.uid.clone() } else { String::new() }, ..key.clone() }
    }

    fn marked(&self, wish: &LoadBalancerWish) -> LoadBalancerWish {
        LoadBalancerWish { key: self.mark(&wish.key), ..wish.clone() }
    }

    /// Whether this mark is that of the key.
    pub(super) fn is(&self, mark: &LoadBalancerKey, key: &LoadBalancerKey) -> bool {
        match self.flaw {
            Flaw::FindsByUid => mark.uid == key.uid,
            Flaw::FindsByName => {
                (&mark.cluster, &mark.namespace, &mark.service) == (&key.cluster, &key.namespace, &key.service)
            }
            _ => mark == key,
        }
    }

    /// An error of the cloud, as this provider reads it.
    fn read(&self, error: Error) -> Error {
        match self.flaw {
            Flaw::EverythingUnexpected => Error::new(ErrorKind::Unexpected, "toy", "?"),
            Flaw::ForgetsDelay => error.retry(Retry::Backoff),
            _ => error,
        }
    }

    fn view(
        &self,
        key: &LoadBalancerKey,
        wish: Option<&LoadBalancerWish>,
        all: &(Vec<Balancer>, Vec<Listener>),
    ) -> Option<View> {
        let (balancers, listeners) = all;
        let ours = |one: &&Balancer| one.owners.iter().any(|mark| self.is(mark, key));
        let remembered =
            |one: &&Balancer| !self.has(Flaw::Remembers) || self.memory.lock().unwrap().contains(&one.name);
        let noted = wish.and_then(|wish| wish.annotations.get(NOTE).filter(|_| wish.spec.is_some()));
        let leads = |one: &&Balancer| noted.is_none_or(|id| one.id == *id);
        let balancer = balancers.iter().filter(ours).filter(leads).find(remembered).cloned();
        let missing = noted.filter(|_| balancer.is_none()).cloned();
        let mut view = View { balancer, missing, ..View::default() };
        let wish = wish.filter(|wish| wish.spec.is_some() && view.balancer.is_none());
        if let Some(wish) = wish {
            self.look_around(&mut view, wish, balancers);
        }
        let home = view.balancer.as_ref().or(view.adoptable.as_ref()).map(|home| home.id.clone());
        let named = view.named.as_ref().map(|named| named.id.clone());
        for one in listeners {
            let mine = one.owner.as_ref().is_some_and(|mark| self.is(mark, key));
            let here = Some(&one.balancer) == home.as_ref();
            let found = mine && (home.is_some() || !self.has(Flaw::ReleasesFromTheTop));
            let taken =
                here && one.owner.is_none() && (view.balancer.is_none() || !self.has(Flaw::ForgetsWhatItAdopted));
            if found || taken {
                view.listeners.push(one.clone());
            } else if here || Some(&one.balancer) == named.as_ref() {
                view.others.push((one.settings.protocol, one.settings.port));
            }
        }
        (view != View::default()).then_some(view)
    }

    /// What has to be known because of what is wished, as long as there is nothing.
    fn look_around(&self, view: &mut View, wish: &LoadBalancerWish, balancers: &[Balancer]) {
        let (ours, adopt) = (balancer_name(wish, self), wish.settings.adopt.as_ref());
        view.named = balancers.iter().find(|one| one.name == ours).cloned();
        view.adoptable = balancers.iter().find(|one| Some(&one.name) == adopt).cloned();
        let address = wish.spec.as_ref().and_then(|spec| spec.requested_address.as_ref()?.parse().ok());
        let holder = balancers.iter().find(|one| address.is_some_and(|address| one.addresses.contains(&address)));
        view.holder = holder.map(|one| one.name.clone());
        if self.has(Flaw::AdoptsUnasked) {
            view.nobodys = balancers.iter().find(|one| one.owners.is_empty()).cloned();
        }
    }

    fn notes(&self, view: &View, is_wished: bool) -> BTreeMap<String, String> {
        let is_told = is_wished || !self.has(Flaw::LeadsToTheGone);
        let balancer = view.balancer.as_ref().filter(|_| is_told);
        balancer.map(|balancer| (NOTE.to_owned(), balancer.id.clone())).into_iter().collect()
    }

    fn state(&self, view: View, is_wished: bool) -> LoadBalancerState {
        let addresses = view.balancer.iter().flat_map(|balancer| &balancer.addresses);
        let ingress =
            addresses.map(|address| Ingress { ip: Some(address.to_string()), ..Ingress::default() }).collect();
        let annotations = self.notes(&view, is_wished);
        let resources = serde_json::to_value(view).unwrap();
        LoadBalancerState { status: LoadBalancerStatus { ingress }, problems: Vec::new(), annotations, resources }
    }

    async fn look(&self) -> Result<(Vec<Balancer>, Vec<Listener>)> {
        self.cloud.look().await.map_err(|error| self.read(error))
    }

    /// What a step does, in one writing call.
    async fn act(&self, key: &LoadBalancerKey, op: Op) -> Result<()> {
        match op {
            Op::Create(new) => self.create(key, new).await,
            Op::Own { id, owners } => self.cloud.own(&id, owners).await,
            Op::Delete { id } => self.cloud.delete(&id).await,
            Op::Listen(mut listener) => {
                let (balancers, _) = self.look().await?;
                let home = balancers.into_iter().find(|one| one.owners.iter().any(|mark| self.is(mark, key)));
                let late = || Error::new(ErrorKind::InProgress, "toy", "the balancer is not shown yet");
                listener.balancer = home.ok_or_else(late)?.id;
                self.cloud.listen(listener).await
            }
            Op::Change(listener) => self.cloud.change(listener).await,
            Op::Silence { id } => self.cloud.silence(&id).await,
        }
    }

    async fn create(&self, key: &LoadBalancerKey, mut new: super::cloud::NewBalancer) -> Result<()> {
        self.memory.lock().unwrap().push(new.name.clone());
        if self.has(Flaw::NamesNothing) {
            // Nothing that the cloud would know again.
            new.name = format!("{}-{}", new.name, self.cloud.counts().1);
        }
        if self.has(Flaw::ChoosesAddressesItself) && new.address.is_none() && new.families.len() == 1 {
            let (balancers, _) = self.look().await?;
            tokio::task::yield_now().await;
            let last = u8::try_from(balancers.len()).unwrap_or(u8::MAX);
            new.address = new.families.first().map(|family| match family {
                bowline_core::IpFamily::IPv4 => std::net::IpAddr::from([203, 0, 113, last]),
                bowline_core::IpFamily::IPv6 => std::net::IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, u16::from(last)]),
            });
        }
        if self.has(Flaw::MarksLater) {
            let owners = std::mem::take(&mut new.owners);
            let name = new.name.clone();
            self.cloud.create(new).await?;
            let (balancers, _) = self.look().await?;
            let made = balancers.into_iter().find(|one| one.name == name);
            return match made {
                Some(made) => self.cloud.own(&made.id, owners).await,
                None => Err(Error::new(ErrorKind::InProgress, "toy", format!("{key:?} is not shown yet"))),
            };
        }
        self.cloud.create(new).await
    }
}

#[async_trait]
impl CloudProvider for Toy {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        self.cloud.look().await.map(drop)
    }
}

#[async_trait]
impl LoadBalancers for Toy {
    async fn observe(&self, wishes: &[LoadBalancerWish]) -> Vec<Result<Option<LoadBalancerState>>> {
        if wishes.is_empty() {
            return Vec::new();
        }
        if self.has(Flaw::ObservesOneByOne) {
            for _ in wishes.iter().skip(1) {
                let _ = self.look().await;
            }
        }
        let all = self.look().await;
        let answer = |wish: &LoadBalancerWish| match &all {
            Ok(all) => {
                let wish = self.marked(wish);
                Ok(self.view(&wish.key, Some(&wish), all).map(|view| self.state(view, wish.spec.is_some())))
            }
            Err(_) if self.has(Flaw::ErrorIsNothing) => Ok(None),
            Err(error) => Err(error.clone()),
        };
        let mut answers: Vec<_> = wishes.iter().map(answer).collect();
        if self.has(Flaw::AnswersInItsOwnOrder) {
            answers.reverse();
        }
        answers
    }

    async fn list(&self, cluster: &ClusterName) -> Result<Vec<LoadBalancerKey>> {
        let (balancers, listeners) = self.look().await?;
        let whole = |mark: &LoadBalancerKey| listeners.iter().any(|one| one.owner.as_ref() == Some(mark));
        let marks = balancers.into_iter().flat_map(|one| one.owners);
        let marks = marks.chain(listeners.iter().filter_map(|one| one.owner.clone()));
        let mut keys: Vec<LoadBalancerKey> = Vec::new();
        for mark in marks.filter(|mark| mark.cluster == *cluster || self.has(Flaw::ListsAllClusters)) {
            if !keys.contains(&mark) && (!self.has(Flaw::ListsOnlyWhole) || whole(&mark)) {
                keys.push(mark);
            }
        }
        Ok(keys)
    }

    fn plan(&self, wish: &LoadBalancerWish, state: Option<&LoadBalancerState>) -> Result<Plan> {
        if self.has(Flaw::PlansWithACall) {
            self.cloud.count_a_call();
        }
        let view = state.map(|state| serde_json::from_value(state.resources.clone()).unwrap()).unwrap_or_default();
        plan(self, &self.marked(wish), &view)
    }

    async fn apply(&self, key: &LoadBalancerKey, step: &Step) -> Result<Applied> {
        let (key, op) = (&self.mark(key), serde_json::from_value::<Op>(step.payload.clone()).unwrap());
        let before = self.cloud.everything();
        if self.has(Flaw::StaysBusy) && self.busy.swap(true, Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::InProgress, "toy", "another call is under way"));
        }
        let deletes = matches!(op, Op::Delete { .. } | Op::Silence { .. });
        let creates = matches!(op, Op::Create(_));
        if self.has(Flaw::WritesTwice) {
            self.act(key, op.clone()).await?;
        }
        if self.has(Flaw::RefusesTheSecondTime)
            && matches!(&op, Op::Create(new) if before.0.iter().any(|one| one.name == new.name))
        {
            return Err(Error::new(ErrorKind::AlreadyExists, "toy", "it is there already"));
        }
        let acted = self.act(key, op).await.map_err(|error| self.read(error));
        self.busy.store(false, Ordering::SeqCst);
        match acted {
            Err(error) if deletes && error.kind() == ErrorKind::NotFound && !self.has(Flaw::GoneIsAnError) => {}
            other => other?,
        }
        let seen = if self.has(Flaw::SeesTooEarly) { before } else { self.cloud.everything() };
        let view = self.view(key, None, &seen);
        if creates {
            let mut notes = view.map(|view| self.notes(&view, true)).unwrap_or_default();
            if self.has(Flaw::NotesSomethingElse) {
                notes.values_mut().for_each(|id| id.push('?'));
            }
            return Ok(Applied::Noted(notes));
        }
        Ok(Applied::Seen(view.map(|view| self.state(view, true))))
    }
}
