//! Several clouds in one cluster: which provider a node belongs to.
//!
//! A node with a provider ID belongs to the provider whose prefix the ID has. A node without one is offered to the
//! providers in their configured order, and the first that knows a machine for it claims it. A provider that cannot
//! answer stops the offering: the node may be its own. Whatever belongs to nobody is left alone.

use std::sync::Arc;

use bowline_core::{InstanceRef, InstanceState, ProviderId};

use crate::layers::Layered;
use crate::{Freshness, Result};

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
        let prefix = id.prefix()?;
        self.clouds.iter().find(|cloud| cloud.info().id_prefixes.iter().any(|own| own == prefix))
    }

    /// Asks each provider about its own; one answer per question, in the same order.
    pub async fn observe(&self, asked: &[InstanceRef], freshness: Freshness) -> Vec<Result<Sighting>> {
        let _ = (asked, freshness);
        todo!()
    }
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

    /// What it is.
    pub fn info(&self) -> &crate::ProviderInfo {
        self.layered.info()
    }

    /// Asks about these machines, as many as there are; one answer per question, in the same order.
    pub async fn instances(&self, asked: &[InstanceRef], freshness: Freshness) -> Vec<Result<InstanceState>> {
        self.layered.find_instances(asked, freshness).await
    }
}
