//! Several clouds in one cluster: which provider a node belongs to.
//!
//! A node with a provider ID belongs to the provider whose prefix the ID has. A node without one is offered to the
//! providers in their configured order, and the first that knows a machine for it claims it. A provider that cannot
//! answer stops the offering: the node may be its own. Whatever belongs to nobody is left alone.

use std::sync::Arc;

use bowline_core::{InstanceRef, InstanceState, ProviderId};
use futures::future::{join, join_all};

use crate::layers::Layered;
use crate::{Error, ErrorKind, Freshness, Result};

/// The providers of this process, in their configured order.
#[derive(Clone)]
pub struct Clouds {
    clouds: Arc<[Cloud]>,
}

/// One provider with its layers around it.
#[derive(Clone)]
pub struct Cloud {
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
    /// These, in this order. Prefixes must be distinct; [`layers::build`](crate::layers) and the daemon check that.
    pub fn new(clouds: impl IntoIterator<Item = Cloud>) -> Clouds {
        Clouds { clouds: clouds.into_iter().collect() }
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
        let prefix = id.prefix()?;
        self.clouds.iter().position(|cloud| cloud.info().id_prefixes.iter().any(|own| own == prefix))
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
    /// This provider, with these layers.
    pub fn new(layered: Arc<Layered>) -> Cloud {
        Cloud { layered }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.info().name
    }

    /// Its layers, for what is not about machines.
    pub fn layers(&self) -> &Layered {
        &self.layered
    }

    /// It can tell what machines there are.
    pub fn has_instances(&self) -> bool {
        self.layered.capabilities().instances.is_some()
    }

    /// What it is.
    pub fn info(&self) -> &crate::ProviderInfo {
        self.layered.info()
    }

    /// Asks about these machines, as many as there are; one answer per question, in the same order.
    pub async fn instances(&self, asked: &[InstanceRef], freshness: Freshness) -> Vec<Result<InstanceState>> {
        self.layered.find_instances(asked, freshness).await
    }

    /// Its answer on a machine that its ID says is its own.
    fn owned_sighting(&self, answer: Result<InstanceState>) -> Result<Sighting> {
        Ok(match answer? {
            InstanceState::NotMine => Sighting::Nobody(Nobody::Declined(self.name().into())),
            state => Sighting::Owned { provider: self.name().into(), state },
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
