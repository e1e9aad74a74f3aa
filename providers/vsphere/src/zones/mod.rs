//! Zone and region of a machine, from tags in two categories on the machine or on an ancestor.
//!
//! ```text
//!  host ──► cluster ──► folders ──► datacenter ──► root      the first of these chains
//!  resource pool ──► cluster ──► …                           that has both tags
//!  machine ──► folders ──► datacenter ──► root               decides
//! ```
//!
//! Within a chain, the nearest tag of a category counts.
// upstream: a tag further up replaces a nearer one while the other category is still missing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result, Retry};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use crate::Vsphere;
use crate::config::ZoneCategories;
use crate::instances::{Found, time_limit};
use crate::soap::ManagedObject;
use crate::vcenter::{Tag, Tagged, Tree, Vcenter};

/// Time for which other vCenters are waited for when the tags of one were read. More than for machines: without its tags, a machine that
/// was found is still an error.
const GRACE: Duration = Duration::from_secs(5);

const FIND: &str = "find zone and region";

/// Zone and region; empty if they are not configured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Placement {
    pub zone: String,
    pub region: String,
}

impl Vsphere {
    /// Returns the placement of each machine. Reads the tags of all ancestors of all machines of a vCenter at once.
    pub(crate) async fn zones_of(&self, found: &[&Found]) -> Vec<Result<Placement>> {
        let Some(categories) = &self.config.zone_categories else {
            return found.iter().map(|_| Ok(Placement::default())).collect();
        };
        let tagged = self.tags_of(found, categories).await;
        let placed = found.iter().map(|found| match tagged.get(&found.vcenter) {
            Some(Ok(tagged)) => placement(found, categories, tagged),
            Some(Err(error)) => Err(error.clone()),
            None => Err(Error::new(ErrorKind::Unexpected, FIND, "the lookup has no result")),
        });
        placed.collect()
    }

    /// Returns the tags that may matter for these machines, by vCenter. A tagging service that does not answer delays the machines of
    /// other vCenters only for a short while.
    async fn tags_of(&self, found: &[&Found], categories: &ZoneCategories) -> HashMap<usize, Result<Tagged>> {
        let mut machines = BTreeMap::<usize, Vec<&Found>>::new();
        found.iter().for_each(|found| machines.entry(found.vcenter).or_default().push(found));
        let mut tagged = HashMap::new();
        let mut reads = FuturesUnordered::new();
        for (index, machines) in machines {
            let Some(vcenter) = self.vcenters.get(index) else { continue };
            tagged.insert(index, Err(too_late(vcenter)));
            // The read goes on after the deadline, so that it is known whether the service hangs, and the names of tags are cached.
            let read = read_tags(vcenter.clone(), categories.clone(), objects(&machines), machines.len());
            let read = tokio::spawn(read.in_current_span());
            reads.push(async move { (index, read.await) });
        }
        let mut deadline = None;
        loop {
            let next = match deadline {
                Some(deadline) => timeout_at(deadline, reads.next()).await.unwrap_or_default(),
                None => reads.next().await,
            };
            let Some((index, outcome)) = next else { return tagged };
            let interrupted = |error| Err(Error::new(ErrorKind::Unexpected, FIND, format!("interrupted: {error}")));
            tagged.insert(index, outcome.unwrap_or_else(interrupted));
            deadline.get_or_insert_with(|| Instant::now() + GRACE);
        }
    }
}

/// Reads the tags on objects of one vCenter.
async fn read_tags(
    vcenter: Vcenter,
    categories: ZoneCategories,
    objects: Vec<ManagedObject>,
    machines: usize,
) -> Result<Tagged> {
    let wanted = [categories.zone.as_str(), categories.region.as_str()];
    let reads = vcenter.metrics.operation("zones", vcenter.tagging.tags(&objects, &wanted));
    vcenter.guarded_tags(time_limit(machines), reads).await
}

fn too_late(vcenter: &Vcenter) -> Error {
    let message = format!("the tagging service of vCenter {} has not answered yet", vcenter.config.name);
    vcenter.error(ErrorKind::Unavailable, FIND, message)
}

/// Returns all objects whose tags may matter, each once. One that could not be read may make the call for all of them fail.
fn objects(machines: &[&Found]) -> Vec<ManagedObject> {
    let starts = machines.iter().flat_map(|found| start_points(found).map(|start| (&found.tree, start)));
    let all: BTreeSet<_> =
        starts.flat_map(|(tree, start)| tree.chain(start).filter(|object| tree.has(object))).collect();
    all.into_iter().cloned().collect()
}

/// Returns the objects at which the chains begin, in order.
fn start_points(found: &Found) -> impl Iterator<Item = &ManagedObject> {
    let machine = &found.machine;
    machine.host.iter().chain(&machine.pool).chain([&machine.object])
}

fn placement(found: &Found, categories: &ZoneCategories, tagged: &Tagged) -> Result<Placement> {
    check_host(found)?;
    let mut failure = None;
    for start in start_points(found) {
        match walk(&found.tree, start, categories, tagged) {
            Ok(placement) => return Ok(placement),
            Err(error) => {
                tracing::debug!(vm = found.machine.name, "Get zone for mo: {start}: {error}");
                failure = Some(error);
            }
        }
    }
    Err(failure.unwrap_or_else(|| invalid("the machine has no ancestors".to_owned())))
}

/// Fails if the host cannot be read.
fn check_host(found: &Found) -> Result<()> {
    match &found.machine.host {
        None => Err(Error::new(ErrorKind::Unavailable, FIND, "VM doesn't have a HostSystem")),
        Some(host) if !found.tree.has(host) => {
            let message = format!("the host {host} cannot be read; fix: give the account the role Read-only on hosts");
            Err(Error::new(ErrorKind::PermissionDenied, FIND, message))
        }
        Some(_) => Ok(()),
    }
}

/// Walks from an object to the root until both tags are found.
// upstream: an object whose tags cannot be listed is skipped, so that a tag further up may count.
fn walk(tree: &Tree, start: &ManagedObject, categories: &ZoneCategories, tagged: &Tagged) -> Result<Placement> {
    let mut placement = Placement::default();
    for object in tree.chain(start) {
        let tags: &[Tag] = match tagged.get(object) {
            Some(tags) => tags.as_ref().map_err(Error::clone)?,
            None => &[],
        };
        for tag in tags {
            let wanted = [(&categories.zone, &mut placement.zone), (&categories.region, &mut placement.region)];
            for (category, value) in wanted {
                if tag.category == *category && value.is_empty() {
                    value.clone_from(&tag.name);
                }
            }
        }
        if !placement.zone.is_empty() && !placement.region.is_empty() {
            return Ok(placement);
        }
    }
    let (what, category) = match placement.region.is_empty() {
        true => ("region", &categories.region),
        false => ("zone", &categories.zone),
    };
    Err(invalid(format!("vSphere {what} category {category} does not match any tags for mo: {start}")))
}

fn invalid(message: String) -> Error {
    // The operator attaches tags in vCenter, which sends no notification.
    Error::new(ErrorKind::InvalidConfig, FIND, message).retry(Retry::Backoff)
}
