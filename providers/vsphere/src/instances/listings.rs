//! Search of machines in listings of the vCenters, which alone prove that a machine does not exist.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bowline_cloud::{Error, ErrorKind, Result, Retry};

use super::find::{Read, Search};
use super::hits::{Hit, Match};
use super::search_index::not_read;
use super::wanted::Wanted;
use super::{FIND, MachineUuid};
use crate::Vsphere;
use crate::vcenter::{Brief, LISTING_LIMIT, Listing, Reading, Vcenter};

/// From this number of machines on, a listing has details, which saves reading the machines again.
const MANY: usize = 100;

/// What a listing says about the wanted machines.
struct Listed {
    hits: Vec<(usize, Hit)>,
    /// Reasons why one of the wanted machines cannot be read, by position.
    failed: Vec<(usize, Error)>,
    /// Reason why a machine that is not listed may exist.
    doubt: Option<Error>,
    /// The same for a machine that is searched by its name.
    name_doubt: Option<Error>,
}

impl Vsphere {
    /// Searches the remaining machines in listings of all vCenters. Only this proves that a machine does not exist.
    pub(super) async fn search_listings(&self, search: &mut Search<'_>) {
        let open = &search.open()[..];
        if open.is_empty() {
            return;
        }
        for lookup in &mut search.lookups {
            search.down.iter().flatten().for_each(|error| lookup.miss(error));
        }
        let searches = self.working(search).into_iter();
        let searches =
            searches.map(|(index, vcenter)| async move { (index, self.search_listing(index, vcenter, open).await) });
        self.in_parallel(search, searches, |search, _, outcome| search.add_listing(outcome)).await;
    }

    async fn search_listing(&self, index: usize, vcenter: &Vcenter, open: &[(usize, &Wanted)]) -> Result<Listed> {
        // Lookups that begin together need one listing, not one each.
        let _turn = match vcenter.listing_turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                let turn = vcenter.listing_turn.lock().await;
                match self.listed_meanwhile(index, open).await? {
                    Some(listed) => return Ok(listed),
                    None => turn,
                }
            }
        };
        let wanted = WantedMachines::new(open);
        let is_wanted = |brief: &Brief| !wanted.positions(brief).is_empty();
        let details = (open.len() >= MANY).then_some(&is_wanted as &(dyn Fn(&Brief) -> bool + Sync));
        let lists = vcenter.metrics.operation("list", vcenter.list(details));
        // A vCenter that hangs is noticed as soon as in other lookups, because each page has its own limit.
        let mut listing = vcenter.guarded(LISTING_LIMIT, lists).await?;
        let briefs = listing.machines.iter().map(|listed| &listed.brief).filter(|brief| !brief.is_template);
        let references = briefs.filter_map(|brief| Some((MachineUuid::parse(&brief.uuid)?, brief.object.clone())));
        self.known.merge(index, references);
        let read = self.details(index, &mut listing, &is_wanted).await?;
        let mut listed = Listed::new(vcenter, &listing);
        for one in &listing.machines {
            for (position, quality) in wanted.positions(&one.brief) {
                match read.machines.get(&one.brief.object) {
                    Some(Reading::Read(machine)) => {
                        listed.hits.push((position, Hit::new(index, machine, &read.tree, quality)));
                    }
                    Some(Reading::Unreadable(reason)) => listed.failed.push((position, unreadable(vcenter, reason))),
                    Some(Reading::Deleted) => listed.failed.push((position, deleted(vcenter, &one.brief))),
                    Some(Reading::Skipped) | None => {
                        listed.failed.push((position, not_read(vcenter, &one.brief.object)));
                    }
                }
            }
        }
        // upstream: a machine that was moved to another datacenter is gone after a restart.
        for brief in &listing.elsewhere {
            let positions = wanted.positions(brief).into_iter().filter(|(_, quality)| *quality == Match::Uuid);
            listed.failed.extend(positions.map(|(position, _)| (position, elsewhere(vcenter, brief))));
        }
        Ok(listed)
    }

    /// Returns the wanted machines if the listing of another lookup has all of them.
    async fn listed_meanwhile(&self, index: usize, open: &[(usize, &Wanted)]) -> Result<Option<Listed>> {
        let known = |wanted: &Wanted| {
            let mut known = self.known.get(wanted.uuid()?);
            known.pop().filter(|known_one| known.is_empty() && known_one.vcenter == index)
        };
        let objects = open.iter().map(|(_, wanted)| known(wanted).map(|known| known.object));
        let Some(objects) = objects.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let read = self.read(index, &objects).await?;
        let hits = open.iter().zip(&objects).map(|((position, wanted), object)| {
            let machine = read.machine(object).filter(|machine| wanted.is_still(Match::Uuid, machine))?;
            Some((*position, Hit::new(index, machine, &read.tree, Match::Uuid)))
        });
        Ok(hits.collect::<Option<Vec<_>>>().map(Listed::all))
    }

    /// Returns the details of the wanted machines: from the listing, or read now.
    async fn details(
        &self,
        index: usize,
        listing: &mut Listing,
        is_wanted: &(dyn Fn(&Brief) -> bool + Sync),
    ) -> Result<Read> {
        let wanted = listing.machines.iter_mut().filter(|listed| is_wanted(&listed.brief));
        let (mut machines, mut unread) = (HashMap::new(), Vec::new());
        for listed in wanted {
            match listed.machine.take() {
                Some(machine) => _ = machines.insert(listed.brief.object.clone(), machine.into()),
                None => unread.push(listed.brief.object.clone()),
            }
        }
        match unread.is_empty() {
            true => Ok(Read { tree: Arc::new(std::mem::take(&mut listing.tree)), machines }),
            false => self.read(index, &unread).await,
        }
    }
}

/// The wanted machines by UUID and by name, because a listing may have many thousand machines.
struct WantedMachines<'a> {
    by_uuid: HashMap<&'a str, Vec<usize>>,
    by_name: HashMap<String, Vec<usize>>,
    all: HashMap<usize, &'a Wanted>,
}

impl<'a> WantedMachines<'a> {
    fn new(open: &[(usize, &'a Wanted)]) -> WantedMachines<'a> {
        let (mut by_uuid, mut by_name) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (position, wanted) in open {
            if let Some(uuid) = wanted.uuid() {
                by_uuid.entry(uuid.key()).or_default().push(*position);
            }
            if let Some(name) = wanted.name() {
                by_name.entry(name.to_lowercase()).or_default().push(*position);
            }
        }
        WantedMachines { by_uuid, by_name, all: open.iter().copied().collect() }
    }

    /// Returns the positions of the wanted machines that this may be.
    fn positions(&self, brief: &Brief) -> BTreeMap<usize, Match> {
        let host_name = brief.host_name.to_lowercase();
        let first_label = host_name.split('.').next().unwrap_or_default();
        let uuid = MachineUuid::parse(&brief.uuid);
        let by_uuid = uuid.as_ref().and_then(|uuid| self.by_uuid.get(uuid.key()));
        let lists = [by_uuid, self.by_name.get(&host_name), self.by_name.get(first_label)];
        let positions = lists.into_iter().flatten().flatten();
        let quality = |position: &usize| {
            let wanted = self.all.get(position)?;
            Some((*position, wanted.matches(&brief.uuid, &brief.host_name, brief.is_template)?))
        };
        positions.filter_map(quality).collect()
    }
}

impl Listed {
    /// Every machine was found.
    fn all(hits: Vec<(usize, Hit)>) -> Listed {
        Listed { hits, failed: Vec::new(), doubt: None, name_doubt: None }
    }

    fn new(vcenter: &Vcenter, listing: &Listing) -> Listed {
        let briefs = || listing.machines.iter().map(|listed| &listed.brief).filter(|brief| !brief.is_template);
        let unknown = briefs().find(|brief| MachineUuid::parse(&brief.uuid).is_none());
        let doubt = listing.errors.iter().chain(&listing.empty).next().cloned();
        let nameless = briefs().filter(|brief| brief.host_name.is_empty()).count();
        Listed {
            hits: Vec::new(),
            failed: Vec::new(),
            doubt: doubt.or_else(|| unknown.map(|brief| unidentified(vcenter, brief))),
            name_doubt: (nameless > 0).then(|| unnamed(vcenter, nameless)),
        }
    }
}

impl Search<'_> {
    fn add_listing(&mut self, outcome: Result<Listed>) {
        let listed = match outcome {
            Ok(listed) => listed,
            Err(error) => return self.lookups.iter_mut().for_each(|lookup| lookup.miss(&error)),
        };
        for (position, hit) in listed.hits {
            self.change(position, |lookup| lookup.add(hit));
        }
        for (position, error) in listed.failed {
            self.change(position, |lookup| lookup.fail(error));
        }
        for lookup in &mut self.lookups {
            lookup.doubt_all(&listed.doubt, &listed.name_doubt);
        }
    }
}

fn unreadable(vcenter: &Vcenter, reason: &str) -> Error {
    vcenter.error(ErrorKind::Unavailable, FIND, reason)
}

fn deleted(vcenter: &Vcenter, brief: &Brief) -> Error {
    vcenter.error(ErrorKind::Unavailable, FIND, format!("the VM {brief} was deleted while it was read"))
}

fn elsewhere(vcenter: &Vcenter, brief: &Brief) -> Error {
    let message = format!(
        "the VM {brief} is outside the configured datacenters; fix: add its datacenter to datacenters, or move the VM back"
    );
    // The operator may move it in vCenter, which sends no notification.
    vcenter.error(ErrorKind::InvalidConfig, FIND, message).retry(Retry::Backoff)
}

fn unidentified(vcenter: &Vcenter, brief: &Brief) -> Error {
    let message = format!(
        "No VM found, but vCenter cannot read the UUID of the VM {brief}, which may be this machine: it is being created, is \
         inaccessible or orphaned, or the account has no permission on it; fix: repair it, or remove it from the inventory"
    );
    vcenter.error(ErrorKind::Unavailable, FIND, message)
}

fn unnamed(vcenter: &Vcenter, count: usize) -> Error {
    let vms = if count == 1 { "1 VM".to_owned() } else { format!("{count} VMs") };
    let message = format!(
        "No VM found with this host name, but VMware Tools report no host name for {vms}, any of which may be this machine; \
         fix: start the kubelet with --provider-id, or VMware Tools in its VM"
    );
    vcenter.error(ErrorKind::NotFound, FIND, message).retry(Retry::Backoff)
}
