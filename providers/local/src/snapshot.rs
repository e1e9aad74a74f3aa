//! The file in which a cloud survives a restart.
//!
//! It is written whole, beside the old one, and then put in its place: a reader sees the old state or the new one. What
//! cannot be read is an error that says where; it is never taken for a cloud without machines.
//!
//! Version 1 had machines only, version 2 no routes and no pod ranges; both are read as well.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::balancers::{Balancer, Balancers, CloudAddress};
use crate::cloud::{CloudError, Machine, World};
use crate::fleet::Fleet;
use crate::routes::{RouteRecord, RouteTables};

/// The form that this program writes; it reads the ones before as well.
const VERSION: u32 = 3;

/// Counting from higher than this would run out of numbers.
const HIGHEST: u64 = u64::MAX / 2;

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

/// What is in the file; nothing if there is no file yet.
pub(crate) fn load(path: &Path) -> Result<World, CloudError> {
    let broken = |message: String| CloudError::Snapshot(path.to_owned(), message);
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(World::default()),
        Err(error) => return Err(broken(format!("cannot be read: {error}"))),
    };
    let snapshot = parse(&bytes).map_err(broken)?;
    restore(snapshot).map_err(|error| broken(format!("is broken: {error}")))
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
        serde_json::from_slice(bytes).map_err(|error| format!("is broken: {error}; mend it, or move it away"))?;
    if !(1..=VERSION).contains(&snapshot.version) {
        return Err(format!("has version {}, and this program reads versions 1 to {VERSION}", snapshot.version));
    }
    let Snapshot { last_id, last_balancer_id, last_route_id, .. } = snapshot;
    for (key, last) in [("lastId", last_id), ("lastBalancerId", last_balancer_id), ("lastRouteId", last_route_id)] {
        if last > HIGHEST {
            return Err(format!("is broken: {key} {last} is too high"));
        }
    }
    Ok(snapshot)
}

/// Puts this in the file.
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
    let beside = beside(path);
    let mut file = File::create(&beside)?;
    file.write_all(text)?;
    // Without this the new name may reach the disk before the bytes do, and a power cut leaves an empty file.
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

/// In the same directory, because only there renaming replaces.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}
