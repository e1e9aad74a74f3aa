//! Machines: asked for in sets.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bowline_core::{Instance, InstanceRef, InstanceState};

use crate::{Error, ErrorKind, Result};

/// Tells what machines there are.
///
/// A provider implements [`find`](Instances::find) and, where the cloud can list, [`list`](Instances::list). It need not
/// cut questions to size, cache, retry or run calls in parallel: the layers do that, by the numbers in
/// [`InstanceCapabilities`](crate::InstanceCapabilities).
///
/// Rules, each with a conformance case of the same name:
/// - `one_answer_each`: `find` returns as many answers as it was asked, in the same order.
/// - `error_is_no_answer`: a failure of the cloud is an `Err`, never [`InstanceState::Gone`].
/// - `gone_is_certain`: `Gone` only if the cloud said so of that very machine; a reply that leaves it out is an error.
/// - `stopped_is_not_gone`: a machine that is powered off exists.
/// - `id_before_name`: with a provider ID the name is not looked at.
/// - `foreign_id_is_not_mine`: an ID with another prefix is [`InstanceState::NotMine`], without a call.
/// - `malformed_id_is_an_error`: an ID with the right prefix that makes no sense is `InvalidConfig`, not `Gone`.
/// - `two_of_one_name_is_an_error`: a name that fits two machines is an error that names both.
/// - `listing_agrees_with_find`: what `list` returns of a machine is what `find` returns.
/// - `pages_are_complete`: the pages together hold every machine that was there all the time, once.
/// - `provider_id_is_stable`: the same machine has the same ID after stop, start and rename.
#[async_trait]
pub trait Instances: Send + Sync {
    /// Asks about these; at most `batch_lookup` of them.
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>>;

    /// One page of all machines, the first one for `None`. A machine that is stopped is listed, too.
    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        let _ = page;
        Err(Error::new(ErrorKind::Unsupported, "list instances", "this cloud cannot list its machines"))
    }

    /// By what a machine is recognised in a listing. Pure; the default takes what stands behind `://` as the machine's ID.
    fn identify(&self, asked: &InstanceRef) -> Result<Identity> {
        Ok(match &asked.provider_id {
            Some(id) => match id.rest() {
                Some("") => {
                    let message = format!("the provider ID {id} names no machine");
                    return Err(Error::new(ErrorKind::InvalidConfig, "find instances", message));
                }
                Some(rest) => Identity::Id(rest.to_owned()),
                None => Identity::NotMine,
            },
            None => Identity::Name(asked.node.as_str().to_owned()),
        })
    }
}

/// [`Instances`] for a cloud that answers one by one and cannot list: whoever implements this implements that, with
/// `batch_lookup: 1`. The layers ask for several at once, up to `max_parallel`.
#[async_trait]
pub trait OneByOne: Send + Sync {
    /// Asks about this one. The rules of [`Instances`] hold.
    async fn find_one(&self, asked: &InstanceRef) -> Result<InstanceState>;
}

#[async_trait]
impl<T: OneByOne> Instances for T {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let mut answers = Vec::with_capacity(asked.len());
        for asked in asked {
            answers.push(self.find_one(asked).await);
        }
        answers
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

/// Some of all machines.
#[derive(Debug, Clone, Default)]
pub struct InstancePage {
    /// Machines and whether they are stopped: only [`InstanceState::Running`] and [`InstanceState::Stopped`].
    pub instances: Vec<InstanceState>,
    /// Where the next page starts; `None` after the last.
    pub next: Option<PageToken>,
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
        InstancePage { instances, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{named, told, with_id};

    struct Echo;

    #[async_trait]
    impl OneByOne for Echo {
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
