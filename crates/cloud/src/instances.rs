//! Machines: asked for in sets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_core::{Instance, InstanceRef, InstanceState, Opaque};
use ipnet::IpNet;

use crate::{Error, ErrorKind, Result};

/// Tells what machines there are.
///
/// A provider implements [`find`](Instances::find) and, where the cloud can list, [`list`](Instances::list). It need not
/// cut questions to size, cache, retry or run calls in parallel: the layers do that, by the numbers in
/// [`InstanceCapabilities`](crate::InstanceCapabilities).
///
/// Rules, each with a conformance case of the same name. On questions and answers:
/// - `one_answer_each`: `find` returns as many answers as it was asked, in the same order.
/// - `mixed_batch`: one question may be about a machine that runs, another about one that is stopped, gone or foreign.
/// - `batch_limit_is_honoured`: `batch_lookup` machines are found at once, and each beyond the first saves at least one call
///   over a lookup of its own.
/// - `concurrent_questions`: `max_parallel` questions under way at once do not get each other's answers.
/// - `empty_question_makes_no_call`: to be asked about nothing costs nothing.
///
/// On which machine is meant:
/// - `id_before_name`: with a provider ID the name is not looked at.
/// - `id_is_recognised`: [`identify`](Instances::identify) makes the machine's [`Instance::id`] of its provider ID,
///   however that is spelled, and each spelling is [owned](crate::CloudProvider::owns) and finds the machine.
/// - `foreign_id_is_not_mine`: an ID of somebody else is [`InstanceState::NotMine`], without a call.
/// - `malformed_id_is_an_error`: an ID of one's own that makes no sense is `InvalidConfig`, not `Gone`.
/// - `name_finds_the_machine`: with `lookup_by_name`, a node without ID is found by its name, and a name that no machine
///   has is `Gone`.
/// - `two_of_one_name_is_an_error`: a name that fits two machines is an error that names both.
/// - `without_name_lookup_nothing_is_claimed`: without `lookup_by_name`, a node without ID is `NotMine` or an error.
/// - `provider_id_is_stable`: the same machine has the same ID after stop, start and rename.
/// - `deleted_then_recreated_same_name_is_another_id`: with `unique_ids`, a new machine does not take over the ID of an
///   old one of its name.
///
/// On what is said of it:
/// - `gone_is_certain`: `Gone` only if the cloud said so of that very machine; a reply that leaves it out is an error.
///   A cloud with several endpoints has said so when each that could have the machine has.
/// - `stopped_is_not_gone`: a machine that is powered off exists.
/// - `stopped_is_told`: with `shutdown_state`, it is [`InstanceState::Stopped`], and `Running` once it is started.
/// - `addresses_keep_their_order`: addresses are told in the same order each time, the one that the Node should have.
/// - `zones_are_told`: with `zones`, each machine has a zone and its region.
/// - `labels_are_told`: with `additional_labels`, labels are handed on as the cloud has them.
/// - `annotations_are_reported`: with `additional_annotations`, annotations are returned as the cloud has them.
///
/// On pod ranges:
/// - `pod_ranges_are_told`: with `pod_ranges`, a machine's ranges are told in the cloud's order.
/// - `assigned_pod_range_is_told`: with `assign_pod_ranges`, a range is told once it is assigned; assigning it again
///   changes nothing, and assigning one that another machine has is
///   [`AlreadyExists`](crate::ErrorKind::AlreadyExists). To assign one to a machine that does not exist is an error.
/// - `assignment_survives_every_crash`: done again after its answer was lost, an assignment has taken place once.
/// - `assignment_errors_have_a_kind`: what is said of errors below holds for `assign_pod_cidrs`, too.
/// - `without_assignment_it_is_unsupported`: without `assign_pod_ranges`, `assign_pod_cidrs` is `Unsupported`.
///
/// On listings:
/// - `listing_agrees_with_find`: what `list` returns of a machine is what `find` returns; one that is stopped is listed.
/// - `pages_are_complete`: the pages together hold every machine that was there all the time, once.
/// - `absence_is_as_declared`: with [`Absence::Proof`](crate::Absence::Proof), each machine that exists is listed. Otherwise
///   `find` finds a machine by its ID that no listing shows; with [`ProofForNames`](crate::Absence::ProofForNames), it does
///   not find it by its name.
/// - `without_listing_it_is_unsupported`: without `list_page`, `list` is `Unsupported`.
///
/// On trouble:
/// - `error_is_no_answer`: a failure of the cloud is an `Err`, never [`InstanceState::Gone`], by ID and by name, and it says of
///   no machine that is gone that it was [seen](Error::but_seen).
/// - `errors_have_a_kind`: refused credentials, refused rights, throttling, a broken cloud and an answer that makes no
///   sense are told apart.
/// - `listing_errors_have_a_kind`: the same holds for `list`, and a failed page is no empty page.
/// - `throttling_carries_its_delay`: when the cloud says how long to stay away, the error's advice says so.
///
/// Where a cloud tells in one place that a machine exists, and in another what addresses or what type it has, a failure of the
/// second alone is an `Err` that says so, by [`Error::with_known_state`]. The Nodes of machines that were deleted are else kept for as
/// long as the second place does not answer for the machines of others.
///
/// A call is dropped when it takes too long or the program stops: it must leave nothing behind that a later one would
/// trip over.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Asks about these; at most `batch_lookup` of them.
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>>;

    /// One page of all machines, the first one for `None`. A machine that is stopped is listed, too.
    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let _ = page;
        Err(Error::new(ErrorKind::Unsupported, "list instances", "this cloud cannot list its machines"))
    }

    /// Describes machines that were listed [in brief](InstancePage::brief) and, in the same calls, finds at most
    /// `batch_lookup` others. Returns one answer each, in the same order, those for `brief` first. The rules of
    /// [`find`](Instances::find) hold. Only a cloud that lists in brief implements this.
    async fn describe(&self, brief: &[Opaque], asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let message = "this cloud lists no machines in brief";
        let unsupported = || Err(Error::new(ErrorKind::Unsupported, "describe instances", message));
        brief.iter().map(|_| unsupported()).chain(self.find(asked).await).collect()
    }

    /// Leads this pod range to the machine, beside those that it has: the cloud then tells it in
    /// [`Instance::pod_ranges`]. What is led there already succeeds.
    async fn assign_pod_cidrs(&self, asked: &InstanceRef, range: IpNet) -> Result<()> {
        let _ = range;
        let message = "this cloud cannot be told which pod range to lead to a machine";
        Err(Error::new(ErrorKind::Unsupported, "assign pod range", message).context("node", asked.node.as_str()))
    }

    /// By what a machine is recognised, in a listing and when questions are shared. Pure.
    ///
    /// The default takes what stands behind `://` as the machine's [`Instance::id`]. Override it where there is more (a
    /// region, a leading slash), where one machine has several spellings (bring them all to one: letters to lower case,
    /// for example), where IDs have no `://` (see [`owns`](crate::CloudProvider::owns)), and where a node without ID is
    /// better known by its [`system_uuid`](InstanceRef::system_uuid) than by its name.
    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        Identity::of(asked)
    }
}

/// [`Instances`] for a cloud that answers one by one and cannot list: whoever implements this implements that, with
/// `batch_lookup: 1`. The layers ask for several at once, up to `max_parallel`.
#[async_trait]
pub trait SingleLookup: Send + Sync {
    /// Asks about this one. The rules of [`Instances`] hold.
    async fn find_one(&self, asked: &InstanceRef) -> Result<InstanceState>;

    /// By what a machine is recognised; see [`Instances::identify`].
    fn identify_one(&self, asked: &InstanceRef) -> Result<Identity> {
        Identity::of(asked)
    }
}

#[async_trait]
impl<T: SingleLookup> Instances for T {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let mut answers = Vec::with_capacity(asked.len());
        for asked in asked {
            answers.push(self.find_one(asked).await);
        }
        answers
    }

    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        self.identify_one(asked)
    }
}

/// By what a machine is recognised in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Identity {
    /// [`Instance::id`].
    Id(String),
    /// [`Instance::name`].
    Name(String),
    /// Not a machine of this provider.
    NotMine,
}

impl Identity {
    /// The ID behind `://`, or the node's name while there is no ID.
    pub fn of(asked: &InstanceRef) -> Result<Identity> {
        let Some(id) = &asked.provider_id else { return Ok(Identity::Name(asked.node.as_str().to_owned())) };
        match id.rest() {
            Some("") => {
                let message = format!("the provider ID {id} names no machine");
                Err(Error::new(ErrorKind::InvalidConfig, "find instances", message))
            }
            Some(rest) => Ok(Identity::Id(rest.to_owned())),
            None => Ok(Identity::NotMine),
        }
    }
}

/// Some of all machines.
#[derive(Debug, Clone, Default)]
pub struct InstancePage {
    /// Machines and whether they are stopped: only [`InstanceState::Running`] and [`InstanceState::Stopped`].
    pub instances: Vec<InstanceState>,
    /// Where the next page starts; `None` after the last.
    pub next: Option<PageToken>,
    /// Number of further machines on the page that could not be read. While there are any, no absence is proven.
    pub unread: usize,
    /// Arguments of [`describe`](Instances::describe) by ID, for machines of which `instances` has only the ID and the name.
    /// Empty in most clouds. For those where the rest takes further calls: only the machines that a caller asks for are
    /// described.
    pub brief: HashMap<String, Opaque>,
}

/// Where a page starts; only the provider can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageToken(pub String);

/// How old an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Asked for after the question was put, whatever is known. For everything that could lead to a deletion.
    Now,
    /// An answer this old will do, if it says that the machine exists; "gone" is never served from memory.
    Within(Duration),
}

impl InstancePage {
    /// A page of running and stopped machines.
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
    use crate::fake::{named, told, with_id};

    struct Echo;

    #[async_trait]
    impl SingleLookup for Echo {
        async fn find_one(&self, asked: &InstanceRef) -> Result<InstanceState> {
            match asked.node.as_str() {
                "broken" => Err(Error::new(ErrorKind::Unavailable, "get server", "broken")),
                name => Ok(InstanceState::Running(Arc::new(Instance { name: name.to_owned(), ..Instance::default() }))),
            }
        }
    }

    #[tokio::test]
    async fn one_by_one_gives_one_answer_each_in_order() {
        let answers = Echo.find(&["a", "broken", "b"].map(named)).await;
        assert_eq!(answers.iter().map(told).collect::<Vec<_>>(), ["a", "unavailable", "b"]);
    }

    struct InCapitals;

    #[async_trait]
    impl SingleLookup for InCapitals {
        async fn find_one(&self, _: &InstanceRef) -> Result<InstanceState> {
            Ok(InstanceState::Gone)
        }

        fn identify_one(&self, asked: &InstanceRef) -> Result<Identity> {
            Ok(match Identity::of(asked)? {
                Identity::Id(id) => Identity::Id(id.to_lowercase()),
                other => other,
            })
        }
    }

    #[test]
    fn a_cloud_that_answers_one_by_one_may_read_ids_in_its_own_way() {
        let identity = InCapitals.identify(&with_id("n", "c://8F2C")).unwrap();
        assert_eq!(identity, Identity::Id("8f2c".to_owned()));
    }

    #[test]
    fn a_machine_is_recognised_by_its_id_and_only_else_by_its_name() {
        let table = [
            (with_id("n", "c://8f2c"), Identity::Id("8f2c".to_owned())),
            (with_id("n", "c:///8f2c"), Identity::Id("/8f2c".to_owned())),
            (with_id("n", "8f2c"), Identity::NotMine),
            (named("n"), Identity::Name("n".to_owned())),
        ];
        for (asked, identity) in table {
            assert_eq!(Echo.identify(&asked).unwrap(), identity, "{asked:?}");
        }
        assert_eq!(Echo.identify(&with_id("n", "c://")).unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
}
