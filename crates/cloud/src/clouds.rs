//! Several clouds in one cluster: which provider a node belongs to.
//!
//! A node with a provider ID belongs to the provider whose prefix the ID has. A node without one is offered to the
//! providers in their configured order, and the first that knows a machine for it claims it. A provider that cannot
//! answer stops the offering: the node may be its own. Whatever belongs to nobody is left alone.

use std::sync::Arc;

use bowline_core::{InstanceRef, InstanceState, ProviderId};
use bowline_runtime::Part;
use futures::future::{join, join_all};

use crate::layers::{LayerOptions, Layered};
use crate::{CloudProvider, Error, ErrorKind, Freshness, ProviderInfo, Result};

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
pub enum Sighting {
    /// It belongs to the provider of this name, which says this. Never [`InstanceState::NotMine`].
    Owned {
        /// The provider's name.
        provider: Arc<str>,
        /// What it says.
        state: InstanceState,
    },
    /// It belongs to nobody here.
    Nobody(Nobody),
}

/// Why a node belongs to nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nobody {
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

    /// Asks each provider about its own; one answer per question, in the same order.
    pub async fn observe(&self, asked: &[InstanceRef], freshness: Freshness) -> Vec<Result<Sighting>> {
        let questions = self.sort(asked);
        let owned = self.clouds.iter().zip(&questions.owned).map(|(cloud, indexes)| async move {
            let answers = cloud.instances(&pick(asked, indexes), freshness).await;
            indexes.iter().copied().zip(answers.into_iter().map(|answer| cloud.owned_sighting(answer))).collect()
        });
        let offered = self.offer(asked, questions.nameless, freshness);
        let (owned, offered): (Vec<Vec<_>>, _) = join(join_all(owned), offered).await;
        in_order(asked.len(), owned.into_iter().flatten().chain(questions.foreign).chain(offered))
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
                None => questions.foreign.push((index, Ok(Sighting::Nobody(Nobody::ForeignId(id.clone()))))),
            }
        }
        questions
    }

    fn position(&self, id: &ProviderId) -> Option<usize> {
        self.clouds.iter().position(|cloud| cloud.layered.owns(id))
    }

    /// Offers nodes without an ID to one provider after the other, each time all that are still nobody's.
    async fn offer(&self, asked: &[InstanceRef], mut open: Vec<usize>, freshness: Freshness) -> Vec<Indexed> {
        let mut settled = Vec::new();
        for cloud in self.clouds.iter().filter(|cloud| cloud.has_instances()) {
            if open.is_empty() {
                break;
            }
            let answers = cloud.instances(&pick(asked, &open), freshness).await;
            let mut still_open = Vec::new();
            for (index, answer) in open.into_iter().zip(answers) {
                match cloud.claim(answer) {
                    Some(sighting) => settled.push((index, sighting)),
                    None => still_open.push(index),
                }
            }
            open = still_open;
        }
        settled.extend(open.into_iter().map(|index| (index, Ok(Sighting::Nobody(Nobody::Unclaimed)))));
        settled
    }
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
type Indexed = (usize, Result<Sighting>);

fn pick(asked: &[InstanceRef], indexes: &[usize]) -> Vec<InstanceRef> {
    indexes.iter().filter_map(|index| asked.get(*index)).cloned().collect()
}

/// The answers at the places of their questions. A question without an answer gets an error, because silence must not be
/// taken for absence.
fn in_order(count: usize, answers: impl Iterator<Item = Indexed>) -> Vec<Result<Sighting>> {
    let silence =
        || Err(Error::new(ErrorKind::Unexpected, "find instances", "the provider left the question unanswered"));
    let mut ordered: Vec<_> = (0..count).map(|_| silence()).collect();
    for (index, answer) in answers {
        if let Some(place) = ordered.get_mut(index) {
            *place = answer;
        }
    }
    ordered
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
    fn owned_sighting(&self, answer: Result<InstanceState>) -> Result<Sighting> {
        Ok(match answer? {
            InstanceState::NotMine => Sighting::Nobody(Nobody::Declined(self.name.clone())),
            state => Sighting::Owned { provider: self.name.clone(), state },
        })
    }

    /// Its answer on a node that may be anybody's; `None` if the next provider is to be asked.
    fn claim(&self, answer: Result<InstanceState>) -> Option<Result<Sighting>> {
        match answer {
            Ok(InstanceState::Gone | InstanceState::NotMine) => None,
            answer => Some(self.owned_sighting(answer)),
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
        let describe = |sighting: Result<Sighting>| match sighting {
            Ok(Sighting::Owned { provider, state }) => match state.instance() {
                Some(instance) => format!("{provider}:{}", instance.name),
                None => format!("{provider}:{state:?}"),
            },
            Ok(Sighting::Nobody(Nobody::ForeignId(_))) => "foreign".to_owned(),
            Ok(Sighting::Nobody(Nobody::Unclaimed)) => "unclaimed".to_owned(),
            Ok(Sighting::Nobody(Nobody::Declined(by))) => format!("declined by {by}"),
            Err(error) => error.kind().as_str().to_owned(),
        };
        clouds.observe(asked, Freshness::Now).await.into_iter().map(describe).collect()
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
