//! Several clouds in one cluster: which provider a node belongs to.
//!
//! A node with a provider ID belongs to the provider whose prefix the ID has. A node without one is offered to the
//! providers in their configured order, and the first that knows a machine for it claims it. A provider that cannot
//! answer stops the offering: the node may be its own. Only a machine whose ID is the node's system UUID is certainly the right
//! one, and may be claimed by a later provider all the same. Whatever belongs to nobody is left alone.
//!
//! Clouds share no fate: answers come cloud by cloud, and one that hangs holds up no Node that another one owns.

use std::sync::Arc;

use bowline_core::{Instance, InstanceRef, InstanceState, ProviderId};
use bowline_runtime::Part;
use futures::future::join_all;
use futures::stream::{self, FuturesUnordered, Stream, StreamExt as _};
use tokio::sync::watch;

use crate::layers::{LayerOptions, Layered};
use crate::{CloudProvider, Error, ErrorKind, Freshness, ProviderInfo, Readiness, Result, SecretData, SecretRef};

/// The providers of this process, in their configured order.
#[derive(Clone)]
pub struct Clouds {
    clouds: Arc<[Cloud]>,
}

/// One provider with its layers around it.
#[derive(Clone)]
pub struct Cloud {
    name: Arc<str>,
    layered: Arc<Layered>,
}

/// Where a node belongs, and what is known of its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// It belongs to the provider of this name, which says this. Never [`InstanceState::NotMine`].
    Owned {
        /// The provider's name.
        provider: Arc<str>,
        /// What it says.
        state: InstanceState,
    },
    /// It belongs to nobody here.
    NoOwner(NoOwner),
}

/// Why a node belongs to nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoOwner {
    /// Its provider ID has a prefix that no configured provider owns, or none.
    ForeignId(ProviderId),
    /// It has no provider ID, and no provider knows a machine of its name.
    Unclaimed,
    /// The provider that owns the prefix declines it.
    Declined(Arc<str>),
}

impl Clouds {
    /// These, in this order, each with the layers around it. Prefixes must be distinct, which whoever makes the providers
    /// sees to. Where two are of one kind, their prefixes tell them apart in Events, logs and metrics, and their Nodes are
    /// not counted together.
    pub fn around(
        providers: impl IntoIterator<Item = Arc<dyn CloudProvider>>,
        options: &LayerOptions,
        metrics: &prometheus::Registry,
    ) -> Clouds {
        let providers: Vec<_> = providers.into_iter().collect();
        let kinds: Vec<_> = providers.iter().map(|provider| provider.info().name.clone()).collect();
        let cloud = |provider: Arc<dyn CloudProvider>| {
            let kind = &provider.info().name;
            let is_only = kinds.iter().filter(|other| *other == kind).count() == 1;
            let name = if is_only { kind.clone() } else { distinct_name(provider.info()) };
            let layered = Layered::new(provider, &name, options, metrics);
            Cloud { name: name.into(), layered: Arc::new(layered) }
        };
        Clouds { clouds: providers.into_iter().map(cloud).collect() }
    }

    /// All of them, in their configured order.
    pub fn iter(&self) -> impl Iterator<Item = &Cloud> {
        self.clouds.iter()
    }

    /// The one that owns this ID.
    pub fn owner(&self, id: &ProviderId) -> Option<&Cloud> {
        self.clouds.get(self.position(id)?)
    }

    /// Asks each provider about its own. Answers come as each cloud gives them, with the places of their questions; one answer
    /// per question.
    pub fn observe<'a>(
        &'a self,
        asked: &'a [InstanceRef],
        freshness: Freshness,
    ) -> impl Stream<Item = Indexed> + Send + 'a {
        let Questions { owned, nameless, foreign } = self.sort(asked);
        let owned: FuturesUnordered<_> = self
            .clouds
            .iter()
            .zip(owned)
            .filter(|(_, indexes)| !indexes.is_empty())
            .map(|(cloud, indexes)| async move {
                let answers = cloud.instances(&pick(asked, &indexes), freshness).await;
                let sightings = answers.into_iter().map(|answer| cloud.owned_sighting(answer));
                complete(indexes, sightings)
            })
            .collect();
        let offered = self.offer(asked, nameless, freshness);
        stream::iter(foreign).chain(stream::select(owned, offered).flat_map(stream::iter))
    }

    /// The same once all clouds have answered, in the order of the questions.
    pub async fn observe_all(&self, asked: &[InstanceRef], freshness: Freshness) -> Vec<Result<Ownership>> {
        let mut answers: Vec<_> = self.observe(asked, freshness).collect().await;
        answers.sort_by_key(|(index, _)| *index);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Attempts to start each, all at once. Those that fail say so when something is asked of them.
    pub async fn start(&self) {
        join_all(self.clouds.iter().map(|cloud| cloud.layered.start())).await;
    }

    /// Whom each question is for.
    fn sort(&self, asked: &[InstanceRef]) -> Questions {
        let mut questions = Questions { owned: vec![Vec::new(); self.clouds.len()], ..Questions::default() };
        for (index, asked) in asked.iter().enumerate() {
            let Some(id) = &asked.provider_id else {
                questions.nameless.push(index);
                continue;
            };
            match self.position(id).and_then(|position| questions.owned.get_mut(position)) {
                Some(own) => own.push(index),
                None => questions.foreign.push((index, Ok(Ownership::NoOwner(NoOwner::ForeignId(id.clone()))))),
            }
        }
        questions
    }

    /// The place among all of the one that owns this ID.
    pub fn position(&self, id: &ProviderId) -> Option<usize> {
        self.clouds.iter().position(|cloud| cloud.layered.owns(id))
    }

    /// Offers nodes without an ID to one provider after the other, each time all that are still nobody's. Yields what each
    /// round settles.
    fn offer<'a>(
        &'a self,
        asked: &'a [InstanceRef],
        nameless: Vec<usize>,
        freshness: Freshness,
    ) -> impl Stream<Item = Vec<Indexed>> + Send + 'a {
        let open: Vec<_> = nameless.into_iter().map(|index| Offered { index, doubt: None }).collect();
        stream::unfold((open, self.clouds.iter()), move |(open, mut clouds)| async move {
            if open.is_empty() {
                return None;
            }
            let Some(cloud) = clouds.by_ref().find(|cloud| cloud.has_instances()) else {
                return Some((open.into_iter().map(Offered::unclaimed).collect(), (Vec::new(), clouds)));
            };
            let indexes: Vec<_> = open.iter().map(|offered| offered.index).collect();
            let mut answers = cloud.instances(&pick(asked, &indexes), freshness).await.into_iter();
            let (mut settled, mut still_open) = (Vec::new(), Vec::new());
            for offered in open {
                let answer = answers.next().unwrap_or_else(|| Err(silence()));
                match cloud.claim(asked.get(offered.index), offered, answer) {
                    Ok(sighting) => settled.push(sighting),
                    Err(offered) => still_open.push(offered),
                }
            }
            Some((settled, (still_open, clouds)))
        })
    }
}

/// A node without an ID that is nobody's yet.
struct Offered {
    index: usize,
    /// An earlier provider could not say whether it is its own.
    doubt: Option<Error>,
}

impl Offered {
    /// No provider has claimed it.
    fn unclaimed(self) -> Indexed {
        (self.index, self.doubt.map_or(Ok(Ownership::NoOwner(NoOwner::Unclaimed)), Err))
    }
}

/// No other cloud can have this machine: the firmware's UUID is its ID.
fn is_proven(asked: &InstanceRef, instance: &Instance) -> bool {
    asked.system_uuid.as_ref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(&instance.id))
}

/// Its kind and what its IDs start with.
fn distinct_name(info: &ProviderInfo) -> String {
    let prefix = info.id_prefixes.first().map_or("", String::as_str);
    format!("{}-{prefix}", info.name)
}

/// Questions by whom they are for, each as its place among all.
#[derive(Default)]
struct Questions {
    /// For each provider, those with an ID of its own.
    owned: Vec<Vec<usize>>,
    /// Without an ID.
    nameless: Vec<usize>,
    /// With an ID that is nobody's, and so answered already.
    foreign: Vec<Indexed>,
}

/// An answer and the place of its question.
pub type Indexed = (usize, Result<Ownership>);

fn pick(asked: &[InstanceRef], indexes: &[usize]) -> Vec<InstanceRef> {
    indexes.iter().filter_map(|index| asked.get(*index)).cloned().collect()
}

/// Each question with its answer. One without an answer gets an error, because silence must not be taken for absence.
fn complete(indexes: Vec<usize>, mut answers: impl Iterator<Item = Result<Ownership>>) -> Vec<Indexed> {
    let mut answer = || answers.next().unwrap_or_else(|| Err(silence()));
    indexes.into_iter().map(|index| (index, answer())).collect()
}

fn silence() -> Error {
    Error::new(ErrorKind::Unexpected, "find instances", "the provider left the question unanswered")
}

impl Cloud {
    /// Its name, different from that of every other cloud here.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its layers, for what is not about machines.
    pub fn layers(&self) -> &Layered {
        &self.layered
    }

    /// Attempts to start until that succeeds.
    pub async fn start_with_retries(&self) {
        self.layered.starter().start_with_retries().await;
    }

    /// Secrets that its provider needs.
    pub fn secrets(&self) -> Vec<SecretRef> {
        self.layered.starter().secrets()
    }

    /// Gives the contents of a Secret, or the reason why it cannot be read, to its provider.
    pub async fn deliver_secret(&self, secret: &SecretRef, data: Result<Option<SecretData>>) {
        self.layered.deliver_secret(secret, data).await;
    }

    /// Waits until no other task follows its Secrets.
    pub async fn follow_secrets(&self) -> impl Drop + Send {
        self.layered.starter().follow_secrets().await
    }

    /// How far it has started, and each change of that.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.layered.starter().readiness()
    }

    /// How it can be looked at.
    pub fn part(&self) -> Arc<dyn Part> {
        self.layered.clone()
    }

    /// It balances load.
    pub fn has_load_balancers(&self) -> bool {
        self.layered.capabilities().load_balancers.is_some()
    }

    /// It leads pod ranges to machines.
    pub fn has_routes(&self) -> bool {
        self.layered.capabilities().routes.is_some()
    }

    /// It can tell what machines there are.
    fn has_instances(&self) -> bool {
        self.layered.capabilities().instances.is_some()
    }

    /// What it is.
    pub fn info(&self) -> &ProviderInfo {
        self.layered.info()
    }

    /// Asks about these machines, as many as there are; one answer per question, in the same order.
    pub async fn instances(&self, asked: &[InstanceRef], freshness: Freshness) -> Vec<Result<InstanceState>> {
        self.layered.find_instances(asked, freshness).await
    }

    /// Its answer on a machine that its ID says is its own.
    fn owned_sighting(&self, answer: Result<InstanceState>) -> Result<Ownership> {
        Ok(match answer? {
            InstanceState::NotMine => Ownership::NoOwner(NoOwner::Declined(self.name.clone())),
            state => Ownership::Owned { provider: self.name.clone(), state },
        })
    }

    /// Its answer on a node that may be anybody's, or the node if the next provider is to be asked.
    fn claim(
        &self,
        asked: Option<&InstanceRef>,
        offered: Offered,
        answer: Result<InstanceState>,
    ) -> std::result::Result<Indexed, Offered> {
        let proven = |instance| asked.is_some_and(|asked| is_proven(asked, instance));
        let can_be_proven = asked.is_some_and(|asked| asked.system_uuid.is_some());
        match answer {
            Ok(InstanceState::Gone | InstanceState::NotMine) => Err(offered),
            Ok(state) if offered.doubt.is_some() && !state.instance().is_some_and(|found| proven(found)) => {
                Err(offered)
            }
            Err(error) if can_be_proven => {
                Err(Offered { doubt: Some(offered.doubt.unwrap_or(error)), index: offered.index })
            }
            answer => Ok((offered.index, self.owned_sighting(answer))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::fake::{Call, Fake, named, with_id};

    fn clouds(fakes: &[&Arc<Fake>]) -> Clouds {
        let providers = fakes.iter().map(|fake| Arc::clone(fake) as Arc<dyn CloudProvider>);
        Clouds::around(providers, &LayerOptions::default(), &prometheus::Registry::new())
    }

    /// Who owns it and what they say, in a few words.
    async fn observe(clouds: &Clouds, asked: &[InstanceRef]) -> Vec<String> {
        let describe = |sighting: Result<Ownership>| match sighting {
            Ok(Ownership::Owned { provider, state }) => match state.instance() {
                Some(instance) => format!("{provider}:{}", instance.name),
                None => format!("{provider}:{state:?}"),
            },
            Ok(Ownership::NoOwner(NoOwner::ForeignId(_))) => "foreign".to_owned(),
            Ok(Ownership::NoOwner(NoOwner::Unclaimed)) => "unclaimed".to_owned(),
            Ok(Ownership::NoOwner(NoOwner::Declined(by))) => format!("declined by {by}"),
            Err(error) => error.kind().as_str().to_owned(),
        };
        clouds.observe_all(asked, Freshness::Now).await.into_iter().map(describe).collect()
    }

    fn find(names: &[&str]) -> Call {
        Call::Find(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn each_provider_is_asked_once_about_its_own_and_answers_keep_their_places() {
        let (a, b) = (Arc::new(Fake::new("a").with(["a1", "a2"])), Arc::new(Fake::new("b").with(["b1"])));
        let asked = [with_id("a2", "a://id-a2"), with_id("b1", "b://id-b1"), with_id("a1", "a://id-a1")];
        let seen = observe(&clouds(&[&a, &b]), &[asked.as_slice(), &asked[..1]].concat()).await;
        assert_eq!(seen, ["a:a2", "b:b1", "a:a1", "a:a2"]);
        assert_eq!((a.calls(), b.calls()), (vec![find(&["a2", "a1"])], vec![find(&["b1"])]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_id_that_is_nobodys_is_left_alone_without_a_call() {
        let a = Arc::new(Fake::new("a").with(["n"]));
        let asked =
            [with_id("n", "other://id-n"), with_id("n", "id-n"), with_id("n", "A://id-n"), with_id("n", "aa://n")];
        assert_eq!(observe(&clouds(&[&a]), &asked).await, ["foreign"; 4]);
        assert!(a.calls().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_its_owner_misses_is_gone_and_nobody_else_is_asked() {
        let (a, b) = (Arc::new(Fake::new("a").with(["x"])), Arc::new(Fake::new("b").with(["n"])));
        assert_eq!(observe(&clouds(&[&a, &b]), &[with_id("n", "a://id-n")]).await, ["a:Gone"]);
        assert!(b.calls().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_without_an_id_are_offered_in_order_and_in_rounds() {
        let a = Arc::new(Fake::new("a").with(["in-a", "in-both"]));
        let b = Arc::new(Fake::new("b").with(["in-b", "in-both"]));
        let c = Arc::new(Fake::new("c").with(["in-c"]));
        let asked = ["in-c", "in-both", "nowhere", "in-b", "in-a"].map(named);
        let seen = observe(&clouds(&[&a, &b, &c]), &asked).await;
        assert_eq!(seen, ["c:in-c", "a:in-both", "unclaimed", "b:in-b", "a:in-a"]);
        assert_eq!(a.calls(), [find(&["in-c", "in-both", "nowhere", "in-b", "in-a"])]);
        assert_eq!(b.calls(), [find(&["in-c", "nowhere", "in-b"])]);
        assert_eq!(c.calls(), [find(&["in-c", "nowhere"])]);
        let seen = observe(&clouds(&[&b, &a]), &[named("in-both")]).await;
        assert_eq!(seen, ["b:in-both"], "the order is the configured one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_cannot_answer_stops_the_offering_of_that_node_alone() {
        let (a, b) = (Arc::new(Fake::new("a")), Arc::new(Fake::new("b").with(["x", "y"])));
        a.fail_item("x", [Error::new(ErrorKind::PermissionDenied, "find", "no")]);
        assert_eq!(observe(&clouds(&[&a, &b]), &["x", "y"].map(named)).await, ["permission_denied", "b:y"]);
        assert_eq!(b.calls(), [find(&["y"])]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_system_uuid_that_is_the_machines_id_proves_whose_it_is_while_an_earlier_provider_is_down() {
        let (a, b) = (Arc::new(Fake::new("a")), Arc::new(Fake::new("b").with(["n", "m"])));
        a.fail((0..10).map(|_| Some(Error::new(ErrorKind::Unauthenticated, "find", "no"))));
        let with_uuid = |name: &str, uuid: &str| InstanceRef { system_uuid: Some(uuid.to_owned()), ..named(name) };
        let asked = [with_uuid("n", "ID-n"), with_uuid("m", "id-of-another"), with_uuid("x", "id-x")];
        assert_eq!(observe(&clouds(&[&a, &b]), &asked).await, ["b:n", "unauthenticated", "unauthenticated"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_that_hangs_holds_up_no_answer_of_another() {
        let slow = Fake::new("a").with(["a1", "both"]).latency(std::time::Duration::from_secs(50));
        let (a, b) = (Arc::new(slow), Arc::new(Fake::new("b").with(["b1", "both", "b2"])));
        let clouds = clouds(&[&b, &a]);
        let asked = [with_id("a1", "a://id-a1"), with_id("b1", "b://id-b1"), named("both"), named("nowhere")];
        let begin = tokio::time::Instant::now();
        let answers = clouds.observe(&asked, Freshness::Now).map(|(index, _)| (index, begin.elapsed().as_secs()));
        let answers: Vec<_> = answers.collect().await;
        let (at_once, late): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(_, after)| *after == 0);
        let at_once: std::collections::BTreeSet<_> = at_once.iter().map(|(index, _)| *index).collect();
        assert_eq!(at_once.into_iter().collect::<Vec<_>>(), [1, 2], "those of b");
        assert_eq!(late.len(), 2, "{late:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_declines_its_own_prefix_makes_it_nobodys() {
        let (a, b) = (Arc::new(Fake::new("a").with(["n"])), Arc::new(Fake::new("b").with(["n"])));
        a.declines.store(true, Ordering::SeqCst);
        let asked = [with_id("n", "a://id-n"), named("n")];
        assert_eq!(observe(&clouds(&[&a, &b]), &asked).await, ["declined by a", "b:n"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_is_down_takes_no_answer_of_another_away() {
        let (a, b) = (Arc::new(Fake::new("a").with(["n"])), Arc::new(Fake::new("b").with(["m"])));
        a.fail((0..10).map(|_| Some(Error::new(ErrorKind::Unauthenticated, "find", "no"))));
        let asked = [with_id("n", "a://id-n"), with_id("m", "b://id-m"), named("m")];
        assert_eq!(observe(&clouds(&[&a, &b]), &asked).await, ["unauthenticated", "b:m", "unauthenticated"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_without_machines_is_passed_over() {
        let mut a = Fake::new("a");
        a.capabilities.instances = None;
        let (a, b) = (Arc::new(a), Arc::new(Fake::new("b").with(["n"])));
        assert_eq!(observe(&clouds(&[&a, &b]), &[named("n"), with_id("n", "a://x")]).await, ["b:n", "unsupported"]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_clouds_claim_nothing() {
        assert_eq!(observe(&clouds(&[]), &[named("n"), with_id("n", "a://x")]).await, ["unclaimed", "foreign"]);
        assert!(observe(&clouds(&[]), &[]).await.is_empty());
    }

    #[tokio::test]
    async fn two_clouds_of_one_kind_have_names_of_their_own() {
        let of_kind = |prefix: &str| Arc::new(Fake::new("kind").prefix(prefix));
        let (east, west, other) = (of_kind("east"), of_kind("west"), Arc::new(Fake::new("other")));
        let clouds = clouds(&[&east, &west, &other]);
        let names: Vec<_> = clouds.iter().map(|cloud| cloud.name().to_string()).collect();
        assert_eq!(names, ["kind-east", "kind-west", "other"]);
    }
}
