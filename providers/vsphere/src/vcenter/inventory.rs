//! Machines of a vCenter: listed through a view, searched in the index, read by reference.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use bowline_cloud::{Error, ErrorKind, Result};

use super::datacenters::{Containers, Location};
use super::machine::{ALL_SETTINGS, BRIEF, DETAILS, DISK_UUIDS, MACHINE};
use super::tree::{ANCESTORS, Entry, Tree};
use super::{Brief, Machine, PAGE_LIMIT, Vcenter};
use crate::soap::properties::{ObjectContent, PropertySet, lineage_filter, objects_filter, view_filter};
use crate::soap::{Element, ManagedObject, code, is_fault};

/// Maximum number of machines that are read with one request.
const CHUNK: usize = 1000;

/// Maximum number of attempts to read machines of which some were deleted. A listing says more about the others, with fewer calls.
const MAX_ATTEMPTS: usize = 2;

/// Types of the objects in a listing: machines, and everything that may be an ancestor of one.
const LISTED: [&str; 6] = [MACHINE, "Folder", "Datacenter", "ComputeResource", "HostSystem", "ResourcePool"];

/// A listing of the configured datacenters.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub machines: Vec<Listed>,
    /// Machines outside the configured datacenters.
    pub elsewhere: Vec<Brief>,
    pub tree: Tree,
    /// Datacenters that do not exist.
    pub errors: Vec<Error>,
    /// Datacenters without machines, or the vCenter if it has none.
    pub empty: Vec<Error>,
}

/// A machine of a listing.
#[derive(Debug)]
pub(crate) struct Listed {
    pub brief: Brief,
    /// Details, if they were requested for this machine, or the reason why they cannot be read.
    pub machine: Option<std::result::Result<Machine, String>>,
}

/// Machines that were read by reference.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    pub machines: HashMap<ManagedObject, Reading>,
    pub tree: Tree,
}

/// A machine that was read by reference.
#[derive(Debug, Clone)]
pub(crate) enum Reading {
    Read(Box<Machine>),
    /// It exists, and this is why it cannot be read.
    Unreadable(String),
    /// vCenter reported that it does not exist.
    Deleted,
    /// It was not read, because several others could not be.
    Skipped,
}

impl From<std::result::Result<Machine, String>> for Reading {
    fn from(outcome: std::result::Result<Machine, String>) -> Reading {
        outcome.map_or_else(Reading::Unreadable, |machine| Reading::Read(Box::new(machine)))
    }
}

/// Search in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Criterion {
    Uuid(String),
    HostName(String),
    Address(IpAddr),
}

// ---- listing

impl Vcenter {
    /// Lists all machines in the configured datacenters, with details of those that `wants_details` selects.
    pub(crate) async fn list(&self, wants_details: Option<&(dyn Fn(&Brief) -> bool + Sync)>) -> Result<Listing> {
        match self.list_view(wants_details).await {
            // The view has ended, but not the session: vCenter was restarted.
            Err(error) if is_lost_view(&error) => {
                self.limited(PAGE_LIMIT, self.session.get()).await?.view.lock().await.take();
                self.list_view(wants_details).await
            }
            outcome => outcome,
        }
    }

    async fn list_view(&self, wants_details: Option<&(dyn Fn(&Brief) -> bool + Sync)>) -> Result<Listing> {
        let view = self.limited(PAGE_LIMIT, self.view()).await?;
        let machines = if wants_details.is_some() { DETAILS } else { BRIEF };
        let filter = view_filter(&view, &[machines, ANCESTORS]);
        let objects = self.retrieve(&filter, |content| (Entry::of(content), listed(content, wants_details))).await?;
        let (tree, machines): (Tree, Vec<_>) = objects.into_iter().unzip();
        let machines = machines.into_iter().flatten().collect();
        let mut listing = Listing { machines, tree, ..Listing::default() };
        self.keep_configured(&mut listing, &self.session.get().await?.content.root_folder);
        self.add_settings(listing.machines.iter_mut().filter_map(|listed| listed.machine.as_mut()?.as_mut().ok()))
            .await?;
        Ok(listing)
    }

    /// Keeps only machines in the configured datacenters, and those with an ancestor that cannot be read. Records the others, and the
    /// datacenters without machines.
    fn keep_configured(&self, listing: &mut Listing, root: &ManagedObject) {
        let Listing { machines, elsewhere, tree, .. } = listing;
        let containers = match self.config.datacenters.is_empty() {
            true => Containers::of(root),
            false => self.configured(tree),
        };
        let mut inhabited = BTreeSet::new();
        machines.retain(|Listed { brief, .. }| {
            let location = match self.config.datacenters.is_empty() {
                true => containers.found.first().map_or(Location::Unknown, Location::In),
                false => containers.location(tree, &brief.object, root),
            };
            if let (Location::In(container), false) = (location, brief.is_template) {
                inhabited.insert(&container.object);
            }
            if location == Location::Elsewhere {
                elsewhere.push(brief.clone());
            }
            location != Location::Elsewhere
        });
        let empty = containers.found.iter().filter(|container| !inhabited.contains(&container.object));
        listing.empty = empty.map(|container| self.shows_no_machines(container)).collect();
        listing.errors = containers.errors;
    }

    /// Returns the view of the inventory. It is created once for each session.
    async fn view(&self) -> Result<ManagedObject> {
        const NAME: &str = "CreateContainerView";
        let live = self.session.get().await?;
        let mut known = live.view.lock().await;
        if let Some(view) = &*known {
            return Ok(view.clone());
        }
        let types = LISTED.map(|kind| Element::leaf("type", kind));
        let arguments = [live.content.root_folder.to_element("container")].into_iter().chain(types);
        let arguments = arguments.chain([Element::leaf("recursive", "true")]);
        let response = self.call(NAME, &live.content.view_manager, arguments).await?;
        let view = response.child("returnval").and_then(ManagedObject::of);
        let view = view.ok_or_else(|| self.error(ErrorKind::Unexpected, NAME, "the response has no view"))?;
        Ok(known.insert(view).clone())
    }
}

fn listed(content: &ObjectContent, wants_details: Option<&(dyn Fn(&Brief) -> bool + Sync)>) -> Option<Listed> {
    if content.object.kind != MACHINE {
        return None;
    }
    let brief = Brief::of(content);
    let machine = wants_details.filter(|wants_details| wants_details(&brief)).map(|_| Machine::of(content));
    Some(Listed { brief, machine })
}

fn is_lost_view(error: &Error) -> bool {
    let object = error.context_value("object").unwrap_or_default();
    is_fault(error, code::NOT_FOUND) && object.starts_with("ContainerView:")
}

// ---- reading

impl Vcenter {
    /// Reads machines, and their ancestors if zones depend on them. Has an entry for each machine.
    pub(crate) async fn read(&self, objects: &[ManagedObject], with_ancestors: bool) -> Result<Readings> {
        let mut readings = Readings::default();
        for chunk in objects.chunks(CHUNK) {
            self.read_chunk(chunk, with_ancestors, &mut readings).await?;
        }
        let read = readings.machines.values_mut().filter_map(|reading| match reading {
            Reading::Read(machine) => Some(&mut **machine),
            _ => None,
        });
        self.add_settings(read).await?;
        Ok(readings)
    }

    /// Returns those of these machines in which the UUIDs of their disks are visible (`disk.EnableUUID`).
    pub(crate) async fn with_disk_uuids(&self, objects: &[ManagedObject]) -> Result<Vec<ManagedObject>> {
        let filter = objects_filter(objects, &[PropertySet { kind: MACHINE, paths: &[DISK_UUIDS] }]);
        let enabled = |content: &ObjectContent| (content.text(DISK_UUIDS) == "true").then(|| content.object.clone());
        let read = self.retrieve(&filter, enabled).await?;
        Ok(read.into_iter().flatten().collect())
    }

    /// vCenter may reject the whole request because of one machine; it is repeated without that one.
    async fn read_chunk(&self, chunk: &[ManagedObject], with_ancestors: bool, readings: &mut Readings) -> Result<()> {
        let mut existing: Vec<_> = chunk.to_vec();
        for _ in 0..MAX_ATTEMPTS {
            if existing.is_empty() {
                return Ok(());
            }
            let error = match self.retrieve(&filter_of(&existing, with_ancestors), read_object).await {
                Ok(objects) => {
                    readings.add(existing, objects);
                    return Ok(());
                }
                Err(error) => error,
            };
            let rejected = existing.iter().enumerate().find_map(|(at, object)| Some((at, rejected(&error, object)?)));
            let Some((position, reading)) = rejected else { return Err(error) };
            readings.machines.insert(existing.swap_remove(position), reading);
        }
        readings.machines.extend(existing.into_iter().map(|object| (object, Reading::Skipped)));
        Ok(())
    }

    /// Reads all settings of machines, if the vCenter does not know the keyed form.
    async fn add_settings(&self, machines: impl Iterator<Item = &mut Machine> + Send) -> Result<()> {
        let mut lacking: Vec<_> = machines.filter(|machine| machine.lacks_settings).collect();
        for chunk in lacking.chunks_mut(CHUNK) {
            let objects: Vec<_> = chunk.iter().map(|machine| machine.object.clone()).collect();
            let sets: &[PropertySet<'_>] = &[ALL_SETTINGS];
            let contents = self.retrieve(&objects_filter(&objects, sets), ObjectContent::clone).await?;
            for machine in chunk {
                let content = contents.iter().find(|content| content.object == machine.object);
                content.into_iter().for_each(|content| machine.read_settings(content));
            }
        }
        Ok(())
    }
}

fn filter_of(machines: &[ManagedObject], with_ancestors: bool) -> Element {
    match with_ancestors {
        true => lineage_filter(machines, &[DETAILS, ANCESTORS]),
        false => objects_filter(machines, &[DETAILS]),
    }
}

type ReadObject = ((ManagedObject, Entry), Option<Reading>);

fn read_object(content: &ObjectContent) -> ReadObject {
    let machine = (content.object.kind == MACHINE).then(|| Machine::of(content).into());
    (Entry::of(content), machine)
}

impl Readings {
    /// Adds what was read about machines. Nothing is known about one that the response omits.
    fn add(&mut self, expected: Vec<ManagedObject>, objects: Vec<ReadObject>) {
        for ((object, entry), machine) in objects {
            self.machines.extend(machine.map(|machine| (object.clone(), machine)));
            self.tree.extend([(object, entry)]);
        }
        for object in expected {
            let omitted = || Reading::Unreadable(format!("the response omits {object}"));
            self.machines.entry(object.clone()).or_insert_with(omitted);
        }
    }
}

/// Returns what is known about an object because of which a request was rejected; `None` for another error.
fn rejected(error: &Error, object: &ManagedObject) -> Option<Reading> {
    let is_about = error.context_value("object") == Some(object.to_string().as_str());
    match error.code().filter(|_| is_about)? {
        code::NOT_FOUND => Some(Reading::Deleted),
        code::NO_PERMISSION => Some(Reading::Unreadable(format!("{object} cannot be read: {}", error.message()))),
        _ => None,
    }
}

// ---- search

impl Vcenter {
    /// Searches machines in the whole vCenter. The index may be behind the inventory: it proves no absence.
    pub(crate) async fn find(&self, criterion: &Criterion) -> Result<Vec<ManagedObject>> {
        let (method, criterion) = match criterion {
            Criterion::Uuid(uuid) => ("FindAllByUuid", Element::leaf("uuid", uuid.as_str())),
            Criterion::HostName(name) => ("FindAllByDnsName", Element::leaf("dnsName", name.as_str())),
            Criterion::Address(address) => ("FindAllByIp", Element::leaf("ip", address.to_string())),
        };
        let live = self.session.get().await?;
        let arguments = [criterion, Element::leaf("vmSearch", "true")];
        let response = self.call(method, &live.content.search_index, arguments).await?;
        Ok(response.children("returnval").filter_map(ManagedObject::of).collect())
    }

    /// Returns those of these objects that are not certainly outside the configured datacenters. The tree must have their ancestors.
    pub(crate) async fn in_configured(&self, tree: &Tree, objects: Vec<ManagedObject>) -> Result<Vec<ManagedObject>> {
        if self.config.datacenters.is_empty() {
            return Ok(objects);
        }
        let containers = self.containers().await?;
        let live = self.session.get().await?;
        let is_inside = |object: &ManagedObject| {
            containers.location(tree, object, &live.content.root_folder) != Location::Elsewhere
        };
        Ok(objects.into_iter().filter(is_inside).collect())
    }
}
