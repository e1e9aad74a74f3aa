//! Several clouds in one cluster: finds the provider that owns a Node.
//!
//! A Node with a provider ID belongs to the provider with the prefix of the ID. A Node without one is offered to the providers in
//! their configured order, and the first provider that has a machine for it claims it. If a provider fails, later providers may
//! not claim the Node, because it may belong to the failed one. The exception is a machine whose ID equals the Node's system
//! UUID: that is a proof of ownership. The controllers ignore a Node that no provider owns.
//!
//! Clouds are independent: results arrive cloud by cloud, and a cloud that hangs does not delay Nodes of other clouds.

use std::sync::Arc;
use std::time::Duration;

use bowline_core::{Instance, InstanceRef, InstanceState, ProviderId};
use bowline_runtime::Component;
use futures::future::join_all;
use futures::stream::{self, FuturesUnordered, Stream, StreamExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::layers::{LayerOptions, Layered};
use crate::{CloudProvider, Error, ErrorKind, Freshness, ProviderInfo, Readiness, Result, SecretData, SecretRef};

/// The clouds of this process, in their configured order.
#[derive(Clone)]
pub struct Clouds {
    clouds: Arc<[Cloud]>,
}

/// One provider with its layers.
#[derive(Clone)]
pub struct Cloud {
    name: Arc<str>,
    layered: Arc<Layered>,
}

/// Owner of a Node, with the state of its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// The Node belongs to this provider.
    Owned {
        /// Name of the cloud.
        provider: Arc<str>,
        /// State of the machine, never [`InstanceState::NotMine`].
        state: InstanceState,
    },
    /// The Node belongs to no configured provider.
    NoOwner(NoOwner),
}

/// Reason why a Node has no owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoOwner {
    /// The provider ID has no prefix, or one that no configured provider owns.
    ForeignId(ProviderId),
    /// The Node has no provider ID, and no provider has a machine for it.
    Unclaimed,
    /// This provider owns the prefix and declines the ID.
    Declined(Arc<str>),
}

impl Clouds {
    /// Wraps the providers in their layers and keeps their order. The caller ensures that their ID prefixes are distinct. Several
    /// providers of one kind are named after their prefixes in Events, logs and metrics, and their Nodes are counted separately.
    pub fn with_layers(
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

    /// Returns all clouds, in their configured order.
    pub fn iter(&self) -> impl Iterator<Item = &Cloud> {
        self.clouds.iter()
    }

    /// Ends the sessions in all clouds, within this time.
    pub async fn close(&self, limit: Duration) {
        let closed = timeout(limit, join_all(self.clouds.iter().map(|cloud| cloud.layered.close()))).await;
        if closed.is_err() {
            tracing::warn!(?limit, "some sessions in clouds stay open, because their clouds do not answer");
        }
    }

    /// Returns the cloud that owns this provider ID.
    pub fn owner(&self, id: &ProviderId) -> Option<&Cloud> {
        self.clouds.get(self.position(id)?)
    }

    /// Looks up each machine at the provider that owns it. Results arrive as each cloud returns them, with the index of their
    /// reference; one result per reference.
    pub fn observe<'a>(
        &'a self,
        refs: &'a [InstanceRef],
        freshness: Freshness,
    ) -> impl Stream<Item = Indexed> + Send + 'a {
        let Lookups { owned, without_id, foreign } = self.sort(refs);
        let owned: FuturesUnordered<_> = self
            .clouds
            .iter()
            .zip(owned)
            .filter(|(_, indexes)| !indexes.is_empty())
            .map(|(cloud, indexes)| async move {
                let results = cloud.instances(&select(refs, &indexes), freshness).await;
                let owned = results.into_iter().map(|result| cloud.to_ownership(result));
                complete(indexes, owned)
            })
            .collect();
        let offered = self.offer(refs, without_id, freshness);
        stream::iter(foreign).chain(stream::select(owned, offered).flat_map(stream::iter))
    }

    /// Like [`observe`](Clouds::observe), but waits for all clouds and returns the results in the order of the references.
    pub async fn observe_all(&self, refs: &[InstanceRef], freshness: Freshness) -> Vec<Result<Ownership>> {
        let mut results: Vec<_> = self.observe(refs, freshness).collect().await;
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Makes one attempt to start each cloud, concurrently. Later operations of a cloud that failed return its error.
    pub async fn start(&self) {
        join_all(self.clouds.iter().map(|cloud| cloud.layered.start())).await;
    }

    /// Groups the lookups by owner.
    fn sort(&self, refs: &[InstanceRef]) -> Lookups {
        let mut lookups = Lookups { owned: vec![Vec::new(); self.clouds.len()], ..Lookups::default() };
        for (index, machine) in refs.iter().enumerate() {
            let Some(id) = &machine.provider_id else {
                lookups.without_id.push(index);
                continue;
            };
            match self.position(id).and_then(|position| lookups.owned.get_mut(position)) {
                Some(own) => own.push(index),
                None => lookups.foreign.push((index, Ok(Ownership::NoOwner(NoOwner::ForeignId(id.clone()))))),
            }
        }
        lookups
    }

    /// Returns the index of the cloud that owns this provider ID.
    pub fn position(&self, id: &ProviderId) -> Option<usize> {
        self.clouds.iter().position(|cloud| cloud.layered.owns(id))
    }

    /// Offers Nodes without a provider ID to one provider after the other, in each round all that are still unclaimed. Yields the
    /// results of each round.
    fn offer<'a>(
        &'a self,
        refs: &'a [InstanceRef],
        without_id: Vec<usize>,
        freshness: Freshness,
    ) -> impl Stream<Item = Vec<Indexed>> + Send + 'a {
        let open: Vec<_> = without_id.into_iter().map(|index| Offered { index, earlier_error: None }).collect();
        stream::unfold((open, self.clouds.iter()), move |(open, mut clouds)| async move {
            if open.is_empty() {
                return None;
            }
            let Some(cloud) = clouds.by_ref().find(|cloud| cloud.has_instances()) else {
                return Some((open.into_iter().map(Offered::unclaimed).collect(), (Vec::new(), clouds)));
            };
            let indexes: Vec<_> = open.iter().map(|offered| offered.index).collect();
            let mut results = cloud.instances(&select(refs, &indexes), freshness).await.into_iter();
            let (mut settled, mut still_open) = (Vec::new(), Vec::new());
            for offered in open {
                let result = results.next().unwrap_or_else(|| Err(missing_result()));
                match cloud.claim(refs.get(offered.index), offered, result) {
                    Ok(claimed) => settled.push(claimed),
                    Err(offered) => still_open.push(offered),
                }
            }
            Some((settled, (still_open, clouds)))
        })
    }
}

/// A Node without a provider ID that no provider has claimed yet.
struct Offered {
    index: usize,
    /// Error of an earlier provider, to which the Node may belong.
    earlier_error: Option<Error>,
}

impl Offered {
    /// Result if no provider has claimed the Node.
    fn unclaimed(self) -> Indexed {
        (self.index, self.earlier_error.map_or(Ok(Ownership::NoOwner(NoOwner::Unclaimed)), Err))
    }
}

/// Returns whether the machine's ID is the UUID that the Node's firmware reports, so no other cloud can have the machine. Firmware may
/// report the first three groups of the UUID in the other byte order.
fn is_proven(machine: &InstanceRef, instance: &Instance) -> bool {
    machine.system_uuid.as_deref().is_some_and(|reported| {
        let is_same = |uuid: &str| uuid.eq_ignore_ascii_case(&instance.id);
        is_same(reported) || reported.len() == 36 && is_same(&swapped(reported))
    })
}

/// Reverses the bytes of each of the first three groups of a UUID.
fn swapped(uuid: &str) -> String {
    let reversed = |group: &str| {
        let pairs: Vec<_> = group.as_bytes().chunks(2).rev().map(String::from_utf8_lossy).collect();
        pairs.concat()
    };
    let groups = uuid.split('-').enumerate();
    let swapped = groups.map(|(index, group)| if index < 3 { reversed(group) } else { group.to_owned() });
    swapped.collect::<Vec<_>>().join("-")
}

/// Name from the provider's kind and its ID prefix.
fn distinct_name(info: &ProviderInfo) -> String {
    let prefix = info.id_prefixes.first().map_or("", String::as_str);
    format!("{}-{prefix}", info.name)
}

/// Lookups by owner, as indexes of the references.
#[derive(Default)]
struct Lookups {
    /// For each cloud, the references with a provider ID that it owns.
    owned: Vec<Vec<usize>>,
    /// References without a provider ID.
    without_id: Vec<usize>,
    /// Results for provider IDs that no cloud owns.
    foreign: Vec<Indexed>,
}

/// A result with the index of its reference.
pub type Indexed = (usize, Result<Ownership>);

fn select(refs: &[InstanceRef], indexes: &[usize]) -> Vec<InstanceRef> {
    indexes.iter().filter_map(|index| refs.get(*index)).cloned().collect()
}

/// Pairs each index with its result. A missing result is an error: it must not be taken for absence.
fn complete(indexes: Vec<usize>, mut results: impl Iterator<Item = Result<Ownership>>) -> Vec<Indexed> {
    let mut result = || results.next().unwrap_or_else(|| Err(missing_result()));
    indexes.into_iter().map(|index| (index, result())).collect()
}

fn missing_result() -> Error {
    Error::new(ErrorKind::Unexpected, "find instances", "the provider returned no result for this machine")
}

impl Cloud {
    /// Returns the name, which is unique among the configured clouds.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the layers, for operations other than machine lookups.
    pub fn layers(&self) -> &Layered {
        &self.layered
    }

    /// Starts the cloud, and retries until that succeeds.
    pub async fn start_with_retries(&self) {
        self.layered.starter().start_with_retries().await;
    }

    /// Returns the Secrets that the provider needs.
    pub fn secrets(&self) -> Vec<SecretRef> {
        self.layered.starter().secrets()
    }

    /// Delivers the contents of a Secret, or the error of reading it, to the provider.
    pub async fn deliver_secret(&self, secret: &SecretRef, data: Result<Option<SecretData>>) {
        self.layered.deliver_secret(secret, data).await;
    }

    /// Waits until no other task watches the Secrets of this cloud. The guard marks this task as the one that does.
    pub async fn follow_secrets(&self) -> impl Drop + Send {
        self.layered.starter().follow_secrets().await
    }

    /// Returns the readiness, as a channel that reports each change.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.layered.starter().readiness()
    }

    /// Returns the component for the status board.
    pub fn component(&self) -> Arc<dyn Component> {
        self.layered.clone()
    }

    /// Returns whether the cloud has load balancers.
    pub fn has_load_balancers(&self) -> bool {
        self.layered.capabilities().load_balancers.is_some()
    }

    /// Returns whether the cloud has routes.
    pub fn has_routes(&self) -> bool {
        self.layered.capabilities().routes.is_some()
    }

    fn has_instances(&self) -> bool {
        self.layered.capabilities().instances.is_some()
    }

    /// Returns the provider's name and ID prefixes.
    pub fn info(&self) -> &ProviderInfo {
        self.layered.info()
    }

    /// Looks up any number of machines. Returns one result each, in the same order.
    pub async fn instances(&self, refs: &[InstanceRef], freshness: Freshness) -> Vec<Result<InstanceState>> {
        self.layered.find_instances(refs, freshness).await
    }

    /// Converts the result for a machine whose provider ID this cloud owns.
    fn to_ownership(&self, result: Result<InstanceState>) -> Result<Ownership> {
        Ok(match result? {
            InstanceState::NotMine => Ownership::NoOwner(NoOwner::Declined(self.name.clone())),
            state => Ownership::Owned { provider: self.name.clone(), state },
        })
    }

    /// Returns the result for a Node without a provider ID, or the Node if the next cloud may claim it.
    fn claim(
        &self,
        machine: Option<&InstanceRef>,
        offered: Offered,
        result: Result<InstanceState>,
    ) -> std::result::Result<Indexed, Offered> {
        let proven = |instance| machine.is_some_and(|machine| is_proven(machine, instance));
        let can_be_proven = machine.is_some_and(|machine| machine.system_uuid.is_some());
        match result {
            Ok(InstanceState::Gone | InstanceState::NotMine) => Err(offered),
            Ok(state) if offered.earlier_error.is_some() && !state.instance().is_some_and(|found| proven(found)) => {
                Err(offered)
            }
            Err(error) if can_be_proven => {
                Err(Offered { earlier_error: Some(offered.earlier_error.unwrap_or(error)), index: offered.index })
            }
            result => Ok((offered.index, self.to_ownership(result))),
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
        Clouds::with_layers(providers, &LayerOptions::default(), &prometheus::Registry::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_cloud_that_hangs_does_not_keep_the_others_from_being_closed() {
        let mut slow = Fake::new("b");
        slow.latency = Duration::from_secs(60);
        let (a, b) = (Arc::new(Fake::new("a")), Arc::new(slow));
        let begun = tokio::time::Instant::now();
        clouds(&[&b, &a]).close(Duration::from_secs(5)).await;
        assert_eq!((a.closes(), b.closes(), begun.elapsed()), (1, 0, Duration::from_secs(5)));
    }

    /// Owner and state of each machine, as short texts.
    async fn observe(clouds: &Clouds, refs: &[InstanceRef]) -> Vec<String> {
        let describe = |ownership: Result<Ownership>| match ownership {
            Ok(Ownership::Owned { provider, state }) => match state.instance() {
                Some(instance) => format!("{provider}:{}", instance.name),
                None => format!("{provider}:{state:?}"),
            },
            Ok(Ownership::NoOwner(NoOwner::ForeignId(_))) => "foreign".to_owned(),
            Ok(Ownership::NoOwner(NoOwner::Unclaimed)) => "unclaimed".to_owned(),
            Ok(Ownership::NoOwner(NoOwner::Declined(by))) => format!("declined by {by}"),
            Err(error) => error.kind().as_str().to_owned(),
        };
        clouds.observe_all(refs, Freshness::Now).await.into_iter().map(describe).collect()
    }

    fn find(names: &[&str]) -> Call {
        Call::Find(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn each_provider_gets_one_lookup_of_its_own_machines_and_results_keep_their_order() {
        let (a, b) = (Arc::new(Fake::new("a").with(["a1", "a2"])), Arc::new(Fake::new("b").with(["b1"])));
        let refs = [with_id("a2", "a://id-a2"), with_id("b1", "b://id-b1"), with_id("a1", "a://id-a1")];
        let observed = observe(&clouds(&[&a, &b]), &[refs.as_slice(), &refs[..1]].concat()).await;
        assert_eq!(observed, ["a:a2", "b:b1", "a:a1", "a:a2"]);
        assert_eq!((a.calls(), b.calls()), (vec![find(&["a2", "a1"])], vec![find(&["b1"])]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_foreign_provider_id_makes_no_call() {
        let a = Arc::new(Fake::new("a").with(["n"]));
        let refs =
            [with_id("n", "other://id-n"), with_id("n", "id-n"), with_id("n", "A://id-n"), with_id("n", "aa://n")];
        assert_eq!(observe(&clouds(&[&a]), &refs).await, ["foreign"; 4]);
        assert!(a.calls().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_its_owner_lacks_is_gone_without_a_call_to_other_providers() {
        let (a, b) = (Arc::new(Fake::new("a").with(["x"])), Arc::new(Fake::new("b").with(["n"])));
        assert_eq!(observe(&clouds(&[&a, &b]), &[with_id("n", "a://id-n")]).await, ["a:Gone"]);
        assert!(b.calls().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_without_a_provider_id_are_offered_in_the_configured_order() {
        let a = Arc::new(Fake::new("a").with(["in-a", "in-both"]));
        let b = Arc::new(Fake::new("b").with(["in-b", "in-both"]));
        let c = Arc::new(Fake::new("c").with(["in-c"]));
        let refs = ["in-c", "in-both", "nowhere", "in-b", "in-a"].map(named);
        let observed = observe(&clouds(&[&a, &b, &c]), &refs).await;
        assert_eq!(observed, ["c:in-c", "a:in-both", "unclaimed", "b:in-b", "a:in-a"]);
        assert_eq!(a.calls(), [find(&["in-c", "in-both", "nowhere", "in-b", "in-a"])]);
        assert_eq!(b.calls(), [find(&["in-c", "nowhere", "in-b"])]);
        assert_eq!(c.calls(), [find(&["in-c", "nowhere"])]);
        let observed = observe(&clouds(&[&b, &a]), &[named("in-both")]).await;
        assert_eq!(observed, ["b:in-both"], "the order is the configured one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_provider_blocks_later_claims_of_that_node_only() {
        let (a, b) = (Arc::new(Fake::new("a")), Arc::new(Fake::new("b").with(["x", "y"])));
        a.fail_item("x", [Error::new(ErrorKind::PermissionDenied, "find", "no")]);
        assert_eq!(observe(&clouds(&[&a, &b]), &["x", "y"].map(named)).await, ["permission_denied", "b:y"]);
        assert_eq!(b.calls(), [find(&["y"])]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_matching_system_uuid_proves_ownership_while_an_earlier_provider_is_down() {
        let (a, b) = (Arc::new(Fake::new("a")), Arc::new(Fake::new("b").with(["n", "m"])));
        a.fail((0..10).map(|_| Some(Error::new(ErrorKind::Unauthenticated, "find", "no"))));
        let with_uuid = |name: &str, uuid: &str| InstanceRef { system_uuid: Some(uuid.to_owned()), ..named(name) };
        let refs = [with_uuid("n", "ID-n"), with_uuid("m", "id-of-another"), with_uuid("x", "id-x")];
        assert_eq!(observe(&clouds(&[&a, &b]), &refs).await, ["b:n", "unauthenticated", "unauthenticated"]);
    }

    #[test]
    fn a_system_uuid_proves_ownership_in_both_byte_orders() {
        let instance = |id: &str| Instance { id: id.to_owned(), ..Instance::default() };
        let node = |uuid: &str| InstanceRef { system_uuid: Some(uuid.to_owned()), ..named("n") };
        let (kubelet, cloud) = ("56492E42-22ad-3911-6d72-59cc8f26bc90", "422e4956-ad22-1139-6d72-59cc8f26bc90");
        for (reported, id, is_same) in [
            (kubelet, cloud, true),
            (cloud, cloud, true),
            (cloud, &kubelet.to_lowercase(), true),
            ("56492e42-22ad-3911-6d72-59cc8f26bc91", cloud, false),
            ("56492e42-22ad-3911-726d-59cc8f26bc90", cloud, false),
            ("", cloud, false),
            ("i-1", "1-i", false),
        ] {
            assert_eq!(is_proven(&node(reported), &instance(id)), is_same, "{reported} {id}");
        }
        assert!(!is_proven(&named("n"), &instance(cloud)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_cloud_does_not_delay_results_of_other_clouds() {
        let slow = Fake::new("a").with(["a1", "both"]).latency(std::time::Duration::from_secs(50));
        let (a, b) = (Arc::new(slow), Arc::new(Fake::new("b").with(["b1", "both", "b2"])));
        let clouds = clouds(&[&b, &a]);
        let refs = [with_id("a1", "a://id-a1"), with_id("b1", "b://id-b1"), named("both"), named("nowhere")];
        let begin = tokio::time::Instant::now();
        let results = clouds.observe(&refs, Freshness::Now).map(|(index, _)| (index, begin.elapsed().as_secs()));
        let results: Vec<_> = results.collect().await;
        let (at_once, late): (Vec<_>, Vec<_>) = results.into_iter().partition(|(_, after)| *after == 0);
        let at_once: std::collections::BTreeSet<_> = at_once.iter().map(|(index, _)| *index).collect();
        assert_eq!(at_once.into_iter().collect::<Vec<_>>(), [1, 2], "results of b");
        assert_eq!(late.len(), 2, "{late:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_whose_provider_declines_it_has_no_owner() {
        let (a, b) = (Arc::new(Fake::new("a").with(["n"])), Arc::new(Fake::new("b").with(["n"])));
        a.declines.store(true, Ordering::SeqCst);
        let refs = [with_id("n", "a://id-n"), named("n")];
        assert_eq!(observe(&clouds(&[&a, &b]), &refs).await, ["declined by a", "b:n"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_provider_does_not_affect_results_of_other_providers() {
        let (a, b) = (Arc::new(Fake::new("a").with(["n"])), Arc::new(Fake::new("b").with(["m"])));
        a.fail((0..10).map(|_| Some(Error::new(ErrorKind::Unauthenticated, "find", "no"))));
        let refs = [with_id("n", "a://id-n"), with_id("m", "b://id-m"), named("m")];
        assert_eq!(observe(&clouds(&[&a, &b]), &refs).await, ["unauthenticated", "b:m", "unauthenticated"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_without_instances_is_skipped() {
        let mut a = Fake::new("a");
        a.capabilities.instances = None;
        let (a, b) = (Arc::new(a), Arc::new(Fake::new("b").with(["n"])));
        assert_eq!(observe(&clouds(&[&a, &b]), &[named("n"), with_id("n", "a://x")]).await, ["b:n", "unsupported"]);
    }

    #[tokio::test(start_paused = true)]
    async fn without_clouds_no_node_has_an_owner() {
        assert_eq!(observe(&clouds(&[]), &[named("n"), with_id("n", "a://x")]).await, ["unclaimed", "foreign"]);
        assert!(observe(&clouds(&[]), &[]).await.is_empty());
    }

    #[tokio::test]
    async fn clouds_of_one_kind_have_distinct_names() {
        let of_kind = |prefix: &str| Arc::new(Fake::new("kind").prefix(prefix));
        let (east, west, other) = (of_kind("east"), of_kind("west"), Arc::new(Fake::new("other")));
        let clouds = clouds(&[&east, &west, &other]);
        let names: Vec<_> = clouds.iter().map(|cloud| cloud.name().to_string()).collect();
        assert_eq!(names, ["kind-east", "kind-west", "other"]);
    }
}
