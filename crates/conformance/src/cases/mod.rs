//! The cases, one per rule.

mod listing;
mod lookup;
mod provider;
mod trouble;

use bowline_cloud::Capabilities;
use futures::future::BoxFuture;

use crate::capability::Capability::{
    AdditionalLabels, BatchLookup, Instances, Listing, LookupByName, Parallel, ShutdownState, UniqueIds, Zones,
};
use crate::capability::Need::{self, Has, Lacks};
use crate::scene::{Scene, Verdict};

/// One rule of the contract, as something that can be tried out.
pub struct Case {
    /// The rule's name.
    pub name: &'static str,
    /// What the provider must claim, or must not, for the rule to say anything about it.
    pub needs: &'static [Need],
    pub(crate) run: for<'a> fn(&'a Scene) -> BoxFuture<'a, Verdict>,
}

impl Case {
    /// The first need that these capabilities do not meet.
    pub fn unmet(&self, capabilities: &Capabilities) -> Option<Need> {
        self.needs.iter().copied().find(|need| !need.is_met(capabilities))
    }
}

/// All cases, in the order in which they run.
pub fn cases() -> &'static [Case] {
    CASES
}

/// A case is an async function of its own name.
macro_rules! case {
    ($module:ident::$name:ident, [$($need:expr),*]) => {
        Case { name: stringify!($name), needs: &[$($need),*], run: |scene| Box::pin($module::$name(scene)) }
    };
}

static CASES: &[Case] = &[
    case!(provider::capabilities_match_traits, []),
    case!(provider::check_asks_the_cloud, []),
    case!(provider::prefix_is_owned, [Has(Instances)]),
    case!(lookup::one_answer_each, [Has(Instances)]),
    case!(lookup::empty_question_makes_no_call, [Has(Instances)]),
    case!(lookup::stopped_is_not_gone, [Has(Instances)]),
    case!(lookup::stopped_is_told, [Has(ShutdownState)]),
    case!(lookup::id_before_name, [Has(Instances)]),
    case!(lookup::id_is_recognised, [Has(Instances)]),
    case!(lookup::foreign_id_is_not_mine, [Has(Instances)]),
    case!(lookup::malformed_id_is_an_error, [Has(Instances)]),
    case!(lookup::name_finds_the_machine, [Has(LookupByName)]),
    case!(lookup::two_of_one_name_is_an_error, [Has(LookupByName)]),
    case!(lookup::without_name_lookup_nothing_is_claimed, [Lacks(LookupByName)]),
    case!(lookup::provider_id_is_stable, [Has(Instances)]),
    case!(lookup::deleted_then_recreated_same_name_is_another_id, [Has(UniqueIds)]),
    case!(lookup::addresses_keep_their_order, [Has(Instances)]),
    case!(lookup::zones_are_told, [Has(Zones)]),
    case!(lookup::labels_are_told, [Has(AdditionalLabels)]),
    case!(lookup::mixed_batch, [Has(Instances)]),
    case!(lookup::batch_limit_is_honoured, [Has(BatchLookup)]),
    case!(lookup::concurrent_questions, [Has(Parallel)]),
    case!(listing::listing_agrees_with_find, [Has(Listing)]),
    case!(listing::pages_are_complete, [Has(Listing)]),
    case!(listing::without_listing_it_is_unsupported, [Lacks(Listing)]),
    case!(trouble::gone_is_certain, [Has(Instances)]),
    case!(trouble::error_is_no_answer, [Has(Instances)]),
    case!(trouble::errors_have_a_kind, [Has(Instances)]),
    case!(trouble::listing_errors_have_a_kind, [Has(Listing)]),
    case!(trouble::throttling_carries_its_delay, [Has(Instances)]),
];
