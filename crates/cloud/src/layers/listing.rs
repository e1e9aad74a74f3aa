//! Finding machines in a listing: pure, page by page.
//!
//! An ID is settled by the first page that has it. A name is settled by the end of the listing alone, because a second
//! machine of that name may still come. Absence is settled by the end of a listing that shows anything at all, as far as the
//! provider declares it to be a proof ([`Absence`]). The caller looks up the rest.

use std::collections::{HashMap, HashSet};

use bowline_core::{Instance, InstanceState, Opaque, ProviderId};

use crate::{Absence, Error, ErrorKind, Identity, InstanceCapabilities, InstancePage, Result, Retry};

/// Questions of the type `Q` and what the pages so far say to them.
pub(crate) struct Listing<Q> {
    by_id: HashMap<String, Vec<Q>>,
    /// The same questions by the whole ID that was asked with. A provider whose `identify` cuts an ID otherwise than its
    /// machines have it would else make all of them gone.
    ids: HashMap<ProviderId, String>,
    by_name: HashMap<String, Named<Q>>,
    /// The machines so far, by ID: pages that move while they are read show one twice.
    machines: HashSet<String>,
    /// Number of machines by name in lower case.
    names: HashMap<String, usize>,
    /// [`InstancePage::brief`] of the pages so far.
    brief: HashMap<String, Opaque>,
    /// Number of listed machines that could not be read.
    unread: usize,
}

/// Questions for a name, and the machines that have it.
struct Named<Q> {
    questions: Vec<Q>,
    found: Vec<InstanceState>,
}

/// A question with its answer.
pub(crate) type Answered<Q> = (Q, Result<InstanceState>);

/// Returns whether to list `machines` costs less than to look up `asked` of them. Default for `machines`: as many as are asked
/// for.
pub(crate) fn is_cheaper(asked: usize, machines: Option<usize>, limits: &InstanceCapabilities) -> bool {
    let Some(page) = limits.list_page else { return false };
    let pages = machines.unwrap_or(asked).div_ceil(page.max(1)).max(1);
    asked > pages.saturating_mul(limits.page_cost.unwrap_or(limits.batch_lookup).max(1))
}

impl<Q> Listing<Q> {
    /// Looks for these.
    pub(crate) fn new(questions: impl IntoIterator<Item = (Identity, Option<ProviderId>, Q)>) -> Listing<Q> {
        let mut listing = Listing::default();
        for (identity, provider_id, question) in questions {
            match identity {
                Identity::Id(id) => {
                    listing.ids.extend(provider_id.map(|whole| (whole, id.clone())));
                    listing.by_id.entry(id).or_default().push(question);
                }
                Identity::Name(name) => listing.by_name.entry(name).or_default().questions.push(question),
                // Answered before anything is read.
                Identity::NotMine => {}
            }
        }
        listing
    }

    /// How many machines the pages so far had.
    pub(crate) fn machines(&self) -> usize {
        self.machines.len()
    }

    /// Returns whether the rest of a listing of `expected` machines costs less than to look up the open questions. If there
    /// are more machines than expected, as many again as were seen are assumed to follow.
    pub(crate) fn is_worth_another_page(&self, expected: usize, limits: &InstanceCapabilities) -> bool {
        let left = expected.checked_sub(self.machines()).filter(|left| *left > 0).unwrap_or(self.machines());
        let named = self.by_name.values().map(|named| named.questions.len());
        let open = self.by_id.values().map(Vec::len).chain(named).sum();
        is_cheaper(open, Some(left), limits)
    }

    /// Returns the argument of [`describe`](crate::Instances::describe) for a machine that was listed in brief.
    pub(crate) fn brief(&self, found: &Result<InstanceState>) -> Option<Opaque> {
        let instance = found.as_ref().ok().and_then(InstanceState::instance)?;
        self.brief.get(&instance.id).cloned()
    }

    /// Looks through one page; returns what it settles.
    pub(crate) fn take(&mut self, page: InstancePage) -> Vec<Answered<Q>> {
        let mut settled = Vec::new();
        self.unread += page.unread;
        self.brief.extend(page.brief);
        for state in page.instances {
            let Some(instance) = state.instance() else { continue };
            if self.machines.insert(instance.id.clone()) {
                *self.names.entry(instance.name.to_lowercase()).or_default() += 1;
            }
            let questions = self.asked_for(instance);
            if let Some(named) = self.by_name.get_mut(&instance.name) {
                named.add(state.clone());
            }
            settled.extend(questions.into_iter().map(|question| (question, Ok(state.clone()))));
        }
        settled
    }

    /// The questions that this machine answers.
    fn asked_for(&mut self, instance: &Instance) -> Vec<Q> {
        let by_id = self.by_id.remove(&instance.id);
        let whole = instance.provider_id.as_ref().and_then(|whole| self.ids.get(whole));
        let by_whole = whole.and_then(|id| self.by_id.remove(id));
        by_id.into_iter().chain(by_whole).flatten().collect()
    }

    /// Moves out what the end of the listing settles. The rest has to be looked up.
    pub(crate) fn finish(&mut self, absence: Absence) -> Vec<Answered<Q>> {
        let doubt = self.doubt();
        match (absence, doubt) {
            (Absence::Proof, Some(message)) => self.fail(&Error::new(ErrorKind::Unexpected, "list instances", message)),
            (_, Some(_)) => Vec::new(),
            (Absence::Proof, None) => {
                let absent = std::mem::take(&mut self.by_id).into_values().flatten();
                let absent: Vec<_> = absent.map(|question| (question, Ok(InstanceState::Gone))).collect();
                absent.into_iter().chain(self.settle_names(|_, _| true)).collect()
            }
            (Absence::ProofForNames, None) => self.settle_names(|found, alike| alike == found && alike <= 1),
            (Absence::Question, None) => self.settle_names(|found, alike| alike == found && alike == 1),
        }
    }

    /// Returns why the complete listing proves no absence.
    fn doubt(&self) -> Option<String> {
        match (self.machines.len(), self.unread) {
            // A wrong project, region or permission shows as an empty list much more often than a cluster without machines.
            (0, 0) => Some(
                "the cloud lists no machines at all, which is no proof that any is gone; \
                 check project, region and permissions of the credentials"
                    .to_owned(),
            ),
            (_, 0) => None,
            (_, unread) => {
                Some(format!("{unread} of the listed machines cannot be read, and any of them may be this one"))
            }
        }
    }

    /// Moves out the names that are certain, given the number of machines with that name and with that name in any case.
    fn settle_names(&mut self, is_certain: impl Fn(usize, usize) -> bool) -> Vec<Answered<Q>> {
        let alike = |name: &str| self.names.get(&name.to_lowercase()).copied().unwrap_or(0);
        let (certain, open): (HashMap<_, _>, _) = std::mem::take(&mut self.by_name)
            .into_iter()
            .partition(|(name, named)| is_certain(named.found.len(), alike(name)));
        self.by_name = open;
        let answered = certain.into_iter().flat_map(|(name, named)| {
            let answer = named.answer(&name);
            named.questions.into_iter().map(move |question| (question, answer.clone()))
        });
        answered.collect()
    }

    /// There is a page that cannot be seen: all that is not settled yet fails.
    pub(crate) fn fail(&mut self, error: &Error) -> Vec<Answered<Q>> {
        self.open().into_iter().map(|question| (question, Err(error.clone()))).collect()
    }

    /// Moves out the questions that are not settled.
    pub(crate) fn open(&mut self) -> Vec<Q> {
        let named = std::mem::take(&mut self.by_name).into_values().flat_map(|named| named.questions);
        std::mem::take(&mut self.by_id).into_values().flatten().chain(named).collect()
    }
}

impl<Q> Default for Listing<Q> {
    fn default() -> Listing<Q> {
        let (by_id, ids, by_name) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (machines, names, brief) = (HashSet::new(), HashMap::new(), HashMap::new());
        Listing { by_id, ids, by_name, machines, names, brief, unread: 0 }
    }
}

impl<Q> Named<Q> {
    /// A machine that is listed twice, because pages moved meanwhile, is still one machine.
    fn add(&mut self, state: InstanceState) {
        let id = state.instance().map(|instance| &instance.id);
        if !self.found.iter().any(|known| known.instance().map(|instance| &instance.id) == id) {
            self.found.push(state);
        }
    }

    fn answer(&self, name: &str) -> Result<InstanceState> {
        match self.found.as_slice() {
            [] => Ok(InstanceState::Gone),
            [one] => Ok(one.clone()),
            several => {
                let ids: Vec<_> = several.iter().filter_map(InstanceState::instance).map(|i| i.id.as_str()).collect();
                let message = format!("{} machines are named {name}: {}", ids.len(), ids.join(", "));
                // A person mends it in the cloud, where nothing tells us: so look again now and then.
                Err(Error::new(ErrorKind::InvalidConfig, "list instances", message).retry(Retry::Backoff))
            }
        }
    }
}

impl<Q> Default for Named<Q> {
    fn default() -> Named<Q> {
        Named { questions: Vec::new(), found: Vec::new() }
    }
}
