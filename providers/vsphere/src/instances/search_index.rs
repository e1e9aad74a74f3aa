//! Search of a few machines in the indexes of the vCenters.

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

use super::FIND;
use super::find::{Search, time_limit};
use super::hits::{Hit, Match};
use super::wanted::Wanted;
use crate::Vsphere;
use crate::soap::ManagedObject;
use crate::vcenter::{Criterion, Reading, Vcenter};

/// Up to this many calls are made even to a small vCenter. A new Node needs one to three.
const FEW: usize = 12;

/// Maximum number of concurrent calls to a vCenter.
const PARALLEL: usize = 4;

/// Maximum number of addresses that one lookup searches. Nodes with a UUID or a host name need none of these calls.
const MAX_ADDRESSES: usize = 100;

/// A machine to search: its position, and the searches until one has a result.
struct Query<'a> {
    position: usize,
    wanted: &'a Wanted,
    criteria: Vec<(Criterion, Match)>,
}

/// A machine that the index knows.
struct IndexHit<'a> {
    position: usize,
    wanted: &'a Wanted,
    quality: Match,
    object: ManagedObject,
}

/// Hits, and reasons why machines that the index knows cannot be read, each with the position.
type Outcomes = Vec<(usize, Result<Hit>)>;

impl Vsphere {
    /// Searches a few machines in the indexes of all vCenters. A miss is no answer: the listings come next.
    pub(super) async fn search_index(&self, search: &mut Search<'_>) {
        let open = &search.open()[..];
        let calls = open.iter().map(|(_, wanted)| wanted.criteria().len()).sum::<usize>();
        let vcenters = self.working(search).into_iter();
        let searches = vcenters.filter(|(index, _)| (1..=self.few(*index)).contains(&calls)).map(|(index, vcenter)| {
            let queries = open.iter().map(|(position, wanted)| Query {
                position: *position,
                wanted,
                criteria: wanted.criteria(),
            });
            let queries = queries.collect();
            async move { (index, self.search_one_index(index, vcenter, queries).await) }
        });
        self.in_parallel(search, searches, |search, _, outcome| search.add_outcomes(outcome.unwrap_or_default())).await;
    }

    /// Returns the number of calls that are cheaper than a listing. The first lookup always lists: with the references from there,
    /// later ones need neither.
    fn few(&self, vcenter: usize) -> usize {
        self.known.count(vcenter).map_or(0, |machines| FEW.max(machines / 500))
    }

    /// Searches Nodes that are named after their addresses, and that the listings do not have. A miss is an answer here: nothing else
    /// can find these machines.
    pub(super) async fn search_addresses(&self, search: &mut Search<'_>) {
        let missing = search.lookups.iter().enumerate().filter(|(_, lookup)| lookup.has_none());
        let queries = missing.filter_map(|(position, lookup)| {
            let criteria = vec![lookup.wanted.address_criterion()?];
            Some((position, lookup.wanted, criteria))
        });
        let mut queries: Vec<_> = queries.collect();
        for (position, ..) in queries.split_off(MAX_ADDRESSES.min(queries.len())) {
            search.change(position, |lookup| lookup.doubt(too_many()));
        }
        if queries.is_empty() {
            return;
        }
        let searches = self.working(search).into_iter().map(|(index, vcenter)| {
            let queries = queries.iter().cloned();
            let queries = queries.map(|(position, wanted, criteria)| Query { position, wanted, criteria }).collect();
            async move { (index, self.search_one_index(index, vcenter, queries).await) }
        });
        self.in_parallel(search, searches, |search, _, outcome| match outcome {
            Ok(outcomes) => search.add_outcomes(outcomes),
            Err(error) => search.lookups.iter_mut().for_each(|lookup| lookup.miss(&error)),
        })
        .await;
    }

    async fn search_one_index(&self, index: usize, vcenter: &Vcenter, queries: Vec<Query<'_>>) -> Result<Outcomes> {
        let limit = time_limit(queries.len());
        let searches: Vec<_> = queries.into_iter().map(|query| search_one(vcenter, query)).collect();
        let search = stream::iter(searches).buffered(PARALLEL).try_concat();
        let hits = vcenter.guarded(limit, vcenter.metrics.operation("search", search)).await?;
        if hits.is_empty() {
            return Ok(Vec::new());
        }
        let objects: Vec<_> = hits.iter().map(|hit| hit.object.clone()).collect();
        let with_ancestors = self.config.zone_categories.is_some() || !vcenter.config.datacenters.is_empty();
        let read = self.read_with(index, &objects, with_ancestors).await?;
        let inside = vcenter.guarded(limit, vcenter.in_configured(&read.tree, objects)).await?;
        let hits = hits.into_iter().filter(|hit| inside.contains(&hit.object));
        let outcomes = hits.filter_map(|IndexHit { position, wanted, quality, object }| {
            let outcome = match read.machines.get(&object) {
                Some(Reading::Read(machine)) if wanted.is_still(quality, machine) => {
                    Ok(Hit::new(index, machine, &read.tree, quality))
                }
                Some(Reading::Read(_) | Reading::Deleted) => return None,
                Some(Reading::Unreadable(reason)) => Err(vcenter.error(ErrorKind::Unavailable, FIND, reason)),
                Some(Reading::Skipped) | None => Err(not_read(vcenter, &object)),
            };
            Some((position, outcome))
        });
        Ok(outcomes.collect())
    }
}

async fn search_one<'a>(vcenter: &Vcenter, query: Query<'a>) -> Result<Vec<IndexHit<'a>>> {
    let Query { position, wanted, criteria } = query;
    for (criterion, quality) in criteria {
        let objects = vcenter.find(&criterion).await?;
        if !objects.is_empty() {
            let hits = objects.into_iter().map(|object| IndexHit { position, wanted, quality, object });
            return Ok(hits.collect());
        }
    }
    Ok(Vec::new())
}

impl Search<'_> {
    fn add_outcomes(&mut self, outcomes: Outcomes) {
        for (position, outcome) in outcomes {
            self.change(position, |lookup| match outcome {
                Ok(hit) => lookup.add(hit),
                Err(error) => lookup.fail(error),
            });
        }
    }
}

pub(super) fn not_read(vcenter: &Vcenter, object: &ManagedObject) -> Error {
    let message = format!("the VM {object} was not read, because others were deleted at the same time");
    vcenter.error(ErrorKind::Unavailable, FIND, message)
}

fn too_many() -> Error {
    let message = format!(
        "more than {MAX_ADDRESSES} Nodes that are named after addresses have neither the UUID nor the host name of a VM; fix: start \
         the kubelets with --provider-id"
    );
    Error::new(ErrorKind::NotFound, FIND, message).retry(Retry::Backoff)
}
