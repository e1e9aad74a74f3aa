//! `bowline check`: of each vCenter its version, the login, datacenters, virtual machines, and tags.
//!
//! ```text
//!  version (no login) ──► login ──► datacenters
//!                                  ├─► listing ──► UUIDs, compared across all vCenters
//!                                  │      └─ sample ──► details, zones
//!                                  └─► tag categories
//! ```
//!
//! `bowline check` looks up the machine of every Node besides, so problems of a single one (VMware Tools, addresses) are shown there.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bowline_cloud::{CheckResult, Error, ErrorKind, Result, Retry};
use futures::future::join_all;

use crate::Vsphere;
use crate::config::{VcenterConfig, ZoneCategories};
use crate::instances::{Found, time_limit};
use crate::vcenter::{Brief, CHECK_LIMIT, LISTING_LIMIT, Listing, Machine, Reading, Readings, ServiceContent, Vcenter};

/// Oldest version that is known to work: vCenter 6.7 Update 3.
const MIN_VERSION: [u32; 3] = [6, 7, 3];

/// Number of machines whose details and zones are read.
const SAMPLE: usize = 50;

/// Maximum number of names in a message.
const NAMES: usize = 5;

/// Results of one vCenter, and its machines.
#[derive(Default)]
struct Diagnosis {
    results: Vec<CheckResult>,
    machines: Vec<Brief>,
    /// Names and addresses of some machines.
    addresses: Vec<(String, IpAddr)>,
}

impl Vsphere {
    /// Checks everything that the configuration names. If a vCenter is unreachable or rejects the login, reports only that of it.
    pub(crate) async fn diagnose_all(&self) -> Vec<CheckResult> {
        self.config.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let vcenters = self.vcenters.iter().enumerate();
        let diagnoses = join_all(vcenters.map(|(index, vcenter)| self.diagnose_vcenter(index, vcenter))).await;
        let shared = shared_uuids(self.vcenters.iter().zip(&diagnoses).flat_map(|(vcenter, diagnosis)| {
            let server = vcenter.identity();
            diagnosis.machines.iter().map(move |machine| (vcenter, server.clone(), machine))
        }));
        let addresses: Vec<_> = diagnoses.iter().flat_map(|diagnosis| diagnosis.addresses.iter().cloned()).collect();
        let is_any_listed = diagnoses.iter().any(|diagnosis| !diagnosis.machines.is_empty());
        let mut results: Vec<_> = diagnoses.into_iter().flat_map(|diagnosis| diagnosis.results).collect();
        if is_any_listed {
            results.push(CheckResult::new("UUIDs of virtual machines", Ok(shared)));
        }
        results.extend(self.diagnose_nsx().await);
        if let Some(agents) = &self.agents {
            results.extend(agents.diagnose(&addresses).await);
        }
        results
    }

    /// Checks load balancers and routes, and reports those that are off because of an error in their settings.
    async fn diagnose_nsx(&self) -> Vec<CheckResult> {
        let off = |error: &bowline_config::ConfigError| {
            let error = Error::new(ErrorKind::InvalidConfig, "read the configuration", error.to_string());
            CheckResult::new("load balancers and routes", Err(error))
        };
        let mut results: Vec<_> = self.config.switched_off.iter().map(off).collect();
        if let Some(nsx) = &self.nsx {
            results.extend(nsx.diagnose().await);
        }
        results
    }

    async fn diagnose_vcenter(&self, index: usize, vcenter: &Vcenter) -> Diagnosis {
        let mut diagnosis = Diagnosis::default();
        let about = vcenter.guarded(CHECK_LIMIT, vcenter.session.content()).await;
        let is_reached = about.is_ok();
        diagnosis.add("vCenter", vcenter, about.map(|about| described_version(&about, &vcenter.config)));
        if !is_reached {
            return diagnosis;
        }
        let login = vcenter.guarded(CHECK_LIMIT, vcenter.session.get()).await;
        let is_accepted = login.is_ok();
        diagnosis.add("login to vCenter", vcenter, login.map(|live| format!("{} is accepted", live.login.subject())));
        if is_accepted {
            self.diagnose_inventory(index, vcenter, &mut diagnosis).await;
        }
        diagnosis
    }

    async fn diagnose_inventory(&self, index: usize, vcenter: &Vcenter, diagnosis: &mut Diagnosis) {
        diagnosis.add("datacenters in vCenter", vcenter, diagnose_datacenters(vcenter).await);
        let listing = vcenter.guarded(LISTING_LIMIT, vcenter.list(None)).await;
        let sample = match &listing {
            Ok(listing) => self.sample(index, vcenter, listing).await,
            Err(error) => Err(error.clone()),
        };
        let machines = listing.as_ref().map_err(Error::clone);
        let machines = machines.and_then(|listing| described_machines(vcenter, listing, &sample));
        diagnosis.add("virtual machines in vCenter", vcenter, machines);
        if let Some(sample) = sample.as_ref().ok().filter(|sample| !sample.found.is_empty()) {
            diagnosis.add("UUIDs of disks in vCenter", vcenter, diagnose_disks(vcenter, &sample.found).await);
        }
        if let Some(categories) = &self.config.zone_categories {
            diagnosis.add("tag categories in vCenter", vcenter, diagnose_categories(vcenter, categories).await);
            let sample = sample.as_ref().map(|sample| sample.found.as_slice()).unwrap_or_default();
            diagnosis.add("zones in vCenter", vcenter, self.diagnose_zones(sample).await);
        }
        diagnosis.addresses = sample.as_ref().map(Sample::addresses).unwrap_or_default();
        diagnosis.machines = listing.map(briefs).unwrap_or_default();
    }

    /// Reads some machines with their ancestors, those with VMware Tools first: Nodes have them.
    async fn sample(&self, index: usize, vcenter: &Vcenter, listing: &Listing) -> Result<Sample> {
        let machines = listing.machines.iter().map(|listed| &listed.brief).filter(|brief| is_readable(brief));
        let mut machines: Vec<_> = machines.filter(|brief| !brief.is_template).collect();
        machines.sort_by_key(|brief| brief.host_name.is_empty());
        let objects: Vec<_> = machines.iter().take(SAMPLE).map(|brief| brief.object.clone()).collect();
        let has_zones = self.config.zone_categories.is_some();
        let Readings { mut machines, tree } =
            vcenter.guarded(time_limit(SAMPLE), vcenter.read(&objects, has_zones)).await?;
        let (mut sample, tree) = (Sample::default(), std::sync::Arc::new(tree));
        for reading in objects.iter().filter_map(|object| machines.remove(object)) {
            match reading {
                Reading::Read(machine) => {
                    sample.found.push(Found { vcenter: index, machine: *machine, tree: tree.clone() })
                }
                Reading::Unreadable(reason) => sample.unreadable.push(reason),
                Reading::Deleted | Reading::Skipped => {}
            }
        }
        Ok(sample)
    }

    async fn diagnose_zones(&self, sample: &[Found]) -> Result<String> {
        let found: Vec<_> = sample.iter().collect();
        let outcomes = self.zones_of(&found).await;
        let failed = found.iter().zip(&outcomes).find_map(|(found, outcome)| Some((found, outcome.as_ref().err()?)));
        let working = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        match failed {
            _ if outcomes.is_empty() => Ok("there is no machine to check".to_owned()),
            None => Ok(format!("all {working} checked machines have zone and region")),
            Some((_, error)) if working == 0 => Err(error.clone()),
            Some((Found { machine: Machine { name, .. }, .. }, error)) => {
                let (all, reason) = (outcomes.len(), error.message());
                Ok(format!(
                    "{working} of {all} checked machines have zone and region; a Node on {name} would not be initialised: {reason}"
                ))
            }
        }
    }
}

/// Machines that were read.
#[derive(Default)]
struct Sample {
    found: Vec<Found>,
    /// Reasons why others could not be read.
    unreadable: Vec<String>,
}

impl Sample {
    /// Returns the first address of each interface, with the name of its machine. The host of an agent has those of load balancers
    /// besides.
    fn addresses(&self) -> Vec<(String, IpAddr)> {
        let nics =
            self.found.iter().flat_map(|Found { machine, .. }| machine.nics.iter().map(move |nic| (machine, nic)));
        nics.filter_map(|(machine, nic)| Some((machine.name.clone(), nic.addresses.first()?.parse().ok()?))).collect()
    }
}

impl Diagnosis {
    fn add(&mut self, subject: &str, vcenter: &Vcenter, outcome: Result<String>) {
        self.results.push(CheckResult::new(format!("{subject} {}", vcenter.config.name), outcome));
    }
}

fn briefs(listing: Listing) -> Vec<Brief> {
    listing.machines.into_iter().map(|listed| listed.brief).collect()
}

fn is_readable(brief: &Brief) -> bool {
    !brief.uuid.is_empty()
}

// ---- version

fn described_version(about: &ServiceContent, config: &VcenterConfig) -> String {
    let ServiceContent { product, api_version, .. } = about;
    let version = api_version.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
    let age = match version.lt(MIN_VERSION) {
        true => ", which is older than 6.7 Update 3, the oldest version that is supported",
        false => "",
    };
    format!("it is {product}{age}; {}", described_tls(config))
}

fn described_tls(config: &VcenterConfig) -> &'static str {
    match (config.insecure, config.thumbprint.is_empty(), config.ca_files.is_empty()) {
        (true, ..) => "its certificate is not verified (insecureFlag)",
        (_, false, _) => "its certificate is trusted, or has the configured thumbprint",
        (_, _, false) => "its certificate is verified with caFile",
        _ => "its certificate is verified with the CA certificates of the system",
    }
}

// ---- inventory

async fn diagnose_datacenters(vcenter: &Vcenter) -> Result<String> {
    vcenter.check().await?;
    let reads = async {
        match vcenter.config.datacenters.is_empty() {
            true => Ok(("all", vcenter.datacenters().await?)),
            false => Ok(("configured", vcenter.containers().await?.found)),
        }
    };
    let (which, found) = vcenter.guarded(CHECK_LIMIT, reads).await?;
    let paths = found.iter().map(|container| container.path.as_str());
    Ok(format!("{which}: {}", listed(paths.collect())))
}

/// Describes the machines. Each one that cannot be read might be that of a Node, so no Node is deleted then.
fn described_machines(vcenter: &Vcenter, listing: &Listing, sample: &Result<Sample>) -> Result<String> {
    let sample = sample.as_ref().map_err(Error::clone)?;
    let machines: Vec<_> =
        listing.machines.iter().map(|listed| &listed.brief).filter(|brief| !brief.is_template).collect();
    let error = |kind, message| vcenter.error(kind, "list the virtual machines", message).retry(Retry::Backoff);
    let unreadable: Vec<_> = machines.iter().filter(|brief| !is_readable(brief)).map(|brief| name(brief)).collect();
    if machines.is_empty() {
        let message =
            "there is none, or the account sees none; fix: give it the role Read-only, with propagation to children";
        return Err(error(ErrorKind::PermissionDenied, message.to_owned()));
    }
    if let Some(error) = listing.empty.first() {
        return Err(error.clone());
    }
    if !unreadable.is_empty() {
        let message = format!(
            "{} of {} cannot be read ({}), so no Node in this cluster is deleted; fix: give the account the role Read-only on them, and \
             reconnect or remove those that vCenter shows as inaccessible",
            unreadable.len(),
            machines.len(),
            listed(unreadable)
        );
        return Err(error(ErrorKind::PermissionDenied, message));
    }
    if let Some(reason) = sample.unreadable.first() {
        return Err(error(
            ErrorKind::PermissionDenied,
            format!("{reason}; fix: give the account the role Read-only on it"),
        ));
    }
    let without_tools = machines.iter().filter(|brief| brief.host_name.is_empty()).count();
    Ok(format!("{} are readable; VMware Tools report no host name for {without_tools} of them", machines.len()))
}

/// Describes the setting `disk.EnableUUID`. The manager does not need it, but the CSI driver of the same cluster does.
async fn diagnose_disks(vcenter: &Vcenter, sample: &[Found]) -> Result<String> {
    let objects: Vec<_> = sample.iter().map(|found| found.machine.object.clone()).collect();
    let enabled = vcenter.guarded(CHECK_LIMIT, vcenter.with_disk_uuids(&objects)).await?;
    let lacks = |found: &&Found| !enabled.contains(&found.machine.object);
    let lacking: Vec<_> = sample.iter().filter(lacks).map(|found| found.machine.name.as_str()).collect();
    Ok(match lacking.len() {
        0 => format!("disk.EnableUUID is set for all {} checked machines", sample.len()),
        count => format!(
            "disk.EnableUUID is not set for {count} of {} checked machines ({}); fix: set it if the cluster uses the vSphere CSI driver, \
             which finds disks by UUID",
            sample.len(),
            listed(lacking)
        ),
    })
}

fn name(brief: &Brief) -> &str {
    if brief.name.is_empty() { &brief.object.id } else { &brief.name }
}

/// Describes machines with the same UUID, in any vCenter. Two entries of the configuration may mean the same server.
fn shared_uuids<'a>(machines: impl Iterator<Item = (&'a Vcenter, String, &'a Brief)>) -> String {
    let mut by_uuid: BTreeMap<&str, BTreeMap<(String, &str), String>> = BTreeMap::new();
    for (vcenter, server, machine) in machines.filter(|(.., machine)| is_readable(machine) && !machine.is_template) {
        let known = by_uuid.entry(&machine.uuid).or_default();
        known.insert((server, &machine.object.id), format!("{} in vCenter {}", name(machine), vcenter.config.name));
    }
    let shared: Vec<_> = by_uuid.iter().filter(|(_, machines)| machines.len() > 1).collect();
    let Some((uuid, machines)) = shared.first() else { return "no two machines have the same one".to_owned() };
    let machines = listed(machines.values().map(String::as_str).collect());
    format!(
        "{} are shared, such as {uuid} by {machines}; a Node on one of these machines is not initialised; fix: give each machine its own \
         uuid.bios",
        shared.len()
    )
}

/// Joins names; if there are many, only the first.
fn listed(names: Vec<&str>) -> String {
    let others = names.len().saturating_sub(NAMES);
    let first = names.into_iter().take(NAMES).collect::<Vec<_>>().join(", ");
    if others == 0 { first } else { format!("{first} and {others} others") }
}

// ---- tags

async fn diagnose_categories(vcenter: &Vcenter, categories: &ZoneCategories) -> Result<String> {
    let known = vcenter.guarded(CHECK_LIMIT, vcenter.tagging.categories()).await?;
    let wanted = [&categories.zone, &categories.region];
    let missing: Vec<_> =
        wanted.into_iter().filter(|name| !known.contains(name)).map(|name| format!("{name:?}")).collect();
    if missing.is_empty() {
        return Ok(format!("{:?} and {:?} exist", categories.zone, categories.region));
    }
    let message = format!(
        "the account sees no category {}; fix: create it, or correct labels in the configuration, or give the account the role Read-only \
         on categories",
        missing.join(" and ")
    );
    Err(vcenter.error(ErrorKind::InvalidConfig, "list the tag categories", message).retry(Retry::Backoff))
}
