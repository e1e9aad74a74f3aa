//! Machines: batched lookups and paged listings.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_core::{Instance, InstanceRef, InstanceState, Opaque};
use ipnet::IpNet;

use crate::{Error, ErrorKind, Result};

/// Looks up the cloud's machines.
///
/// A provider implements [`find`](Instances::find) and, if the cloud can list machines, [`list`](Instances::list). It does not
/// split batches, cache, retry or run calls in parallel: the layers do, according to the limits in
/// [`InstanceCapabilities`](crate::InstanceCapabilities).
///
/// Rules, each with a conformance case of the same name.
///
/// Lookups:
/// - `one_answer_each`: `find` returns one result for each reference, in the same order.
/// - `mixed_batch`: one batch may contain machines that are running, stopped, gone or of another provider.
/// - `batch_limit_is_honoured`: `find` accepts `batch_lookup` machines at once, and each machine beyond the first saves at least
///   one call compared with a lookup of its own.
/// - `concurrent_lookups`: `max_parallel` concurrent lookups do not mix up their results.
/// - `empty_lookup_makes_no_call`: a lookup of no machines makes no call.
///
/// Identity:
/// - `id_before_name`: if a reference has a provider ID, the Node name is ignored.
/// - `id_is_recognised`: [`identify`](Instances::identify) maps every accepted spelling of a provider ID to the machine's
///   [`Instance::id`]. Each spelling is [owned](crate::CloudProvider::owns) and finds the machine.
/// - `foreign_id_is_not_mine`: a provider ID of another provider is [`InstanceState::NotMine`], without a call.
/// - `malformed_id_is_an_error`: a malformed ID with the provider's own prefix is `InvalidConfig`, not `Gone`.
/// - `name_finds_the_machine`: with `lookup_by_name`, a Node without a provider ID is found by its name. A name that no machine has
///   is `Gone`.
/// - `ambiguous_name_is_an_error`: a name that two machines have is an error that names both machines.
/// - `without_name_lookup_nothing_is_found`: without `lookup_by_name`, a Node without a provider ID is `NotMine` or an error.
/// - `provider_id_is_stable`: a machine keeps its provider ID when it is stopped, started or renamed.
/// - `deleted_then_recreated_same_name_is_another_id`: with `unique_ids`, a new machine does not get the ID of a deleted machine
///   of the same name.
///
/// Results:
/// - `gone_is_certain`: `find` returns `Gone` only if the cloud reported that this very machine does not exist. A response that
///   omits the machine is an error. In a cloud with several endpoints, every endpoint that could have the machine must have
///   reported so.
/// - `stopped_is_not_gone`: a machine that is powered off exists.
/// - `stopped_is_reported`: with `shutdown_state`, a powered-off machine is [`InstanceState::Stopped`], and `Running` once it is
///   started.
/// - `addresses_keep_their_order`: addresses are returned in the same order each time, the order that the Node should have.
/// - `zones_are_reported`: with `zones`, each machine has a zone and a region.
/// - `labels_are_reported`: with `additional_labels`, labels are returned as the cloud has them.
/// - `annotations_are_reported`: with `additional_annotations`, annotations are returned as the cloud has them.
///
/// Pod CIDRs:
/// - `pod_cidrs_are_reported`: with `pod_cidrs`, the pod CIDRs of a machine are returned in the cloud's order.
/// - `assigned_pod_cidr_is_reported`: with `assign_pod_cidrs`, a pod CIDR is returned once it is assigned. Assigning it again
///   changes nothing, assigning the CIDR of another machine is [`AlreadyExists`](crate::ErrorKind::AlreadyExists), and assigning
///   one to a machine that does not exist is an error.
/// - `assignment_survives_every_crash`: an assignment that is repeated after its response was lost takes effect once.
/// - `assignment_errors_have_a_kind`: the rules for errors below apply to `assign_pod_cidrs`, too.
/// - `without_assignment_it_is_unsupported`: without `assign_pod_cidrs`, the method of that name is `Unsupported`.
///
/// Listings:
/// - `listing_agrees_with_find`: `list` and `find` return the same state of a machine. Stopped machines are listed.
/// - `pages_are_complete`: every machine that exists during the whole listing is on exactly one page. With `numbered_pages`, this
///   holds while no machine is created or deleted.
/// - `absence_is_as_declared`: with [`Absence::Proof`](crate::Absence::Proof), every machine that exists is listed. Otherwise
///   `find` finds, by its ID, a machine that no listing shows; with [`ProofForNames`](crate::Absence::ProofForNames) it does not
///   find it by its name.
/// - `without_listing_it_is_unsupported`: without `list_page`, `list` is `Unsupported`.
///
/// Errors:
/// - `error_is_no_answer`: a failure of the cloud is an `Err`, never [`InstanceState::Gone`], for lookups by ID and by name. Its
///   [known state](Error::known_state) never reports a machine that is gone as existing.
/// - `errors_have_a_kind`: rejected credentials, missing permissions, throttling, an unavailable cloud and an invalid response are
///   errors of different kinds.
/// - `listing_errors_have_a_kind`: the same applies to `list`, and a page that fails is an error and not an empty page.
/// - `throttling_carries_its_delay`: if the cloud requests a delay, the retry advice of the error contains it.
///
/// If the existence of a machine and its details (addresses, type) come from different services and only the second one fails,
/// return an `Err` with [`Error::with_known_state`]. Otherwise, as long as the second service fails, no Node can be deleted: the
/// controller deletes a Node only while other machines of the same cloud are known to exist.
///
/// The framework drops a call that takes too long or when the process stops. A dropped call must not leave anything behind that
/// makes a later call fail.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Looks up machines, at most `batch_lookup` at once.
    async fn find(&self, refs: &[InstanceRef]) -> Vec<Result<InstanceState>>;

    /// Returns one page of all machines, running and stopped; the first page for `None`.
    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let _ = page;
        Err(Error::new(ErrorKind::Unsupported, "list instances", "this cloud cannot list its machines"))
    }

    /// Returns the details of machines that were listed [in brief](InstancePage::brief) and, in the same calls, looks up at most
    /// `batch_lookup` further ones. Returns one result each, in the same order, those for `brief` first. The rules of
    /// [`find`](Instances::find) apply. Only a cloud that lists in brief implements this.
    async fn describe(&self, brief: &[Opaque], refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let message = "this cloud does not list machines in brief";
        let unsupported = || Err(Error::new(ErrorKind::Unsupported, "describe instances", message));
        brief.iter().map(|_| unsupported()).chain(self.find(refs).await).collect()
    }

    /// Assigns a pod CIDR to the machine, in addition to those that it has: the cloud routes it there and returns it in
    /// [`Instance::pod_cidrs`]. Succeeds if the CIDR is already assigned to the machine.
    async fn assign_pod_cidrs(&self, machine: &InstanceRef, cidr: IpNet) -> Result<()> {
        let _ = cidr;
        let message = "this cloud does not support assigning pod CIDRs to machines";
        Err(Error::new(ErrorKind::Unsupported, "assign pod CIDR", message).context("node", machine.node.as_str()))
    }

    /// Returns the key by which the layers find the machine in a listing and combine equal lookups. Pure.
    ///
    /// The default takes the part after `://` as the machine's [`Instance::id`]. Override it if that part contains more than the ID
    /// (a region, a leading slash), if an ID has several spellings (normalise them, for example to lower case), if IDs have no
    /// `://` (see [`owns`](crate::CloudProvider::owns)), or if the [`system_uuid`](InstanceRef::system_uuid) identifies a Node
    /// without a provider ID better than its name.
    fn identify(&self, machine: &InstanceRef) -> Result<Identity> {
        Identity::of(machine)
    }
}

/// [`Instances`] of a cloud that looks up one machine per call and cannot list: a type that implements this trait implements
/// `Instances`, with `batch_lookup: 1`. The layers make up to `max_parallel` lookups concurrently.
#[async_trait]
pub trait SingleLookup: Send + Sync {
    /// Looks up one machine. The rules of [`Instances`] apply.
    async fn find_one(&self, machine: &InstanceRef) -> Result<InstanceState>;

    /// See [`Instances::identify`].
    fn identify_one(&self, machine: &InstanceRef) -> Result<Identity> {
        Identity::of(machine)
    }
}

#[async_trait]
impl<T: SingleLookup> Instances for T {
    async fn find(&self, refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let mut results = Vec::with_capacity(refs.len());
        for machine in refs {
            results.push(self.find_one(machine).await);
        }
        results
    }

    fn identify(&self, machine: &InstanceRef) -> Result<Identity> {
        self.identify_one(machine)
    }
}

/// Key of a machine in listings and combined lookups.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    /// [`Instance::id`].
    Id(String),
    /// [`Instance::name`].
    Name(String),
    /// The machine does not belong to this provider.
    NotMine,
}

impl Identity {
    /// Returns the ID after `://`, or the Node name if there is no provider ID.
    pub fn of(machine: &InstanceRef) -> Result<Identity> {
        let Some(id) = &machine.provider_id else { return Ok(Identity::Name(machine.node.as_str().to_owned())) };
        match id.rest() {
            Some("") => {
                let message = format!("the provider ID {id} has no machine ID after ://");
                Err(Error::new(ErrorKind::InvalidConfig, "find instances", message))
            }
            Some(rest) => Ok(Identity::Id(rest.to_owned())),
            None => Ok(Identity::NotMine),
        }
    }
}

/// One page of a listing.
#[derive(Debug, Clone, Default)]
pub struct InstancePage {
    /// Machines, each either [`InstanceState::Running`] or [`InstanceState::Stopped`].
    pub instances: Vec<InstanceState>,
    /// Token of the next page; `None` on the last page.
    pub next: Option<PageToken>,
    /// Number of further machines on this page that could not be decoded. If there are any, the listing proves no absence.
    pub unread: usize,
    /// Arguments of [`describe`](Instances::describe) by machine ID, for machines of which `instances` has only ID and name. Empty
    /// in most clouds. Use it if the details take further calls: the layers describe only the machines that a caller looks up.
    pub brief: HashMap<String, Opaque>,
}

/// Token of a page, opaque to the layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageToken(pub String);

/// Maximum age of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// The read starts after the request, whatever is cached. Required for every decision that may lead to a deletion.
    Now,
    /// A cached result of at most this age is accepted if the machine exists. "Gone" is never served from the cache.
    Within(Duration),
}

impl InstancePage {
    /// Creates a page from machines, each with a flag that says whether it is stopped.
    pub fn new(machines: impl IntoIterator<Item = (Instance, bool)>, next: Option<PageToken>) -> InstancePage {
        let instances = machines
            .into_iter()
            .map(|(instance, stopped)| {
                let instance = Arc::new(instance);
                if stopped { InstanceState::Stopped(instance) } else { InstanceState::Running(instance) }
            })
            .collect();
        InstancePage { instances, next, ..InstancePage::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{named, summary, with_id};

    struct Echo;

    #[async_trait]
    impl SingleLookup for Echo {
        async fn find_one(&self, machine: &InstanceRef) -> Result<InstanceState> {
            match machine.node.as_str() {
                "broken" => Err(Error::new(ErrorKind::Unavailable, "get server", "broken")),
                name => Ok(InstanceState::Running(Arc::new(Instance { name: name.to_owned(), ..Instance::default() }))),
            }
        }
    }

    #[tokio::test]
    async fn a_single_lookup_provider_returns_one_result_each_in_order() {
        let results = Echo.find(&["a", "broken", "b"].map(named)).await;
        assert_eq!(results.iter().map(summary).collect::<Vec<_>>(), ["a", "unavailable", "b"]);
    }

    struct LowerCaseIds;

    #[async_trait]
    impl SingleLookup for LowerCaseIds {
        async fn find_one(&self, _: &InstanceRef) -> Result<InstanceState> {
            Ok(InstanceState::Gone)
        }

        fn identify_one(&self, machine: &InstanceRef) -> Result<Identity> {
            Ok(match Identity::of(machine)? {
                Identity::Id(id) => Identity::Id(id.to_lowercase()),
                other => other,
            })
        }
    }

    #[test]
    fn a_single_lookup_provider_can_override_identify() {
        let identity = LowerCaseIds.identify(&with_id("n", "c://8F2C")).unwrap();
        assert_eq!(identity, Identity::Id("8f2c".to_owned()));
    }

    #[test]
    fn identity_is_the_id_or_the_name_if_there_is_no_id() {
        let table = [
            (with_id("n", "c://8f2c"), Identity::Id("8f2c".to_owned())),
            (with_id("n", "c:///8f2c"), Identity::Id("/8f2c".to_owned())),
            (with_id("n", "8f2c"), Identity::NotMine),
            (named("n"), Identity::Name("n".to_owned())),
        ];
        for (machine, identity) in table {
            assert_eq!(Echo.identify(&machine).unwrap(), identity, "{machine:?}");
        }
        assert_eq!(Echo.identify(&with_id("n", "c://")).unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
}
