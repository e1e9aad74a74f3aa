//! Snapshot file, from which a cloud is restored after a restart.
//!
//! The file is written to a temporary file and renamed, so a reader sees the old state or the new one. An unreadable file is an
//! error with its position, and never an empty cloud.
//!
//! Version 1 has machines only, version 2 has no routes and no pod CIDRs; both can be read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use bowline_agent::Balancers;
use bowline_agent_client::{Balancer, CloudAddress};
use serde::{Deserialize, Serialize};

use crate::cloud::{CloudError, Machine, World};
use crate::fleet::Fleet;
use crate::routes::{RouteRecord, RouteTables};

/// Version that is written; earlier versions can be read.
const VERSION: u32 = 3;

/// Maximum last ID number, so that numbers do not run out.
const MAX_LAST_ID: u64 = u64::MAX / 2;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Snapshot<M, A, B, R> {
    version: u32,
    last_id: u64,
    machines: Vec<M>,
    #[serde(default)]
    last_balancer_id: u64,
    #[serde(default = "Vec::new")]
    addresses: Vec<A>,
    #[serde(default = "Vec::new")]
    balancers: Vec<B>,
    #[serde(default)]
    last_route_id: u64,
    #[serde(default = "BTreeMap::new")]
    routes: BTreeMap<String, Vec<R>>,
}

/// Reads the file; an empty cloud if there is none.
pub(crate) fn load(path: &Path) -> Result<World, CloudError> {
    let invalid = |message: String| CloudError::Snapshot(path.to_owned(), message);
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(World::default()),
        Err(error) => return Err(invalid(format!("cannot be read: {error}"))),
    };
    let snapshot = parse(&bytes).map_err(invalid)?;
    restore(snapshot).map_err(|error| invalid(format!("is invalid: {error}")))
}

type Stored = Snapshot<Machine, CloudAddress, Balancer, RouteRecord>;

fn restore(snapshot: Stored) -> Result<World, CloudError> {
    let fleet = Fleet::restore(snapshot.machines, snapshot.last_id)?;
    let balancers = Balancers::restore(snapshot.addresses, snapshot.balancers, snapshot.last_balancer_id)?;
    let routes = RouteTables::restore(snapshot.routes, snapshot.last_route_id, &fleet)?;
    Ok(World { fleet, balancers, routes })
}

fn parse(bytes: &[u8]) -> Result<Stored, String> {
    // The error of serde_json ends in "at line 3 column 7".
    let snapshot: Stored =
        serde_json::from_slice(bytes).map_err(|error| format!("is invalid: {error}; fix the file, or move it away"))?;
    if !(1..=VERSION).contains(&snapshot.version) {
        return Err(format!("has version {}; supported versions are 1 to {VERSION}", snapshot.version));
    }
    let Snapshot { last_id, last_balancer_id, last_route_id, .. } = snapshot;
    for (key, last) in [("lastId", last_id), ("lastBalancerId", last_balancer_id), ("lastRouteId", last_route_id)] {
        if last > MAX_LAST_ID {
            return Err(format!("is invalid: {key} {last} is too high"));
        }
    }
    Ok(snapshot)
}

/// Writes the file.
pub(crate) fn save(path: &Path, world: &World) -> Result<(), CloudError> {
    let failed = |error: std::io::Error| CloudError::Snapshot(path.to_owned(), format!("cannot be written: {error}"));
    let World { fleet, balancers, routes } = world;
    let snapshot = Snapshot::<&Machine, &CloudAddress, &Balancer, &RouteRecord> {
        version: VERSION,
        last_id: fleet.last(),
        machines: fleet.iter().map(|machine| &**machine).collect(),
        last_balancer_id: balancers.last(),
        addresses: balancers.addresses().map(|address| &**address).collect(),
        balancers: balancers.balancers().map(|balancer| &**balancer).collect(),
        last_route_id: routes.last(),
        routes: routes.by_cluster(),
    };
    let text = serde_json::to_vec_pretty(&snapshot).map_err(|error| failed(error.into()))?;
    replace(path, &text).map_err(failed)
}

fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let temporary = temporary_path(path);
    let mut file = File::create(&temporary)?;
    file.write_all(text)?;
    // Otherwise the rename may reach the disk before the data, and a power failure leaves an empty file.
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

/// Path in the same directory, so that the rename is atomic.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}
