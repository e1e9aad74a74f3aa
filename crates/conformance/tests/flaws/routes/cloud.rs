//! A cloud with machines and one table of routes for all clusters.

use std::sync::{Arc, Mutex};

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_conformance::Trouble;
use bowline_core::{Address, ClusterName, Instance};
use ipnet::IpNet;

use crate::refusal;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Never used twice.
    pub(super) id: u64,
    pub(super) hint: String,
    pub(super) destination: IpNet,
    pub(super) machine: String,
    pub(super) node: String,
    pub(super) addresses: Vec<Address>,
    pub(super) owner: Option<ClusterName>,
}

/// What clouds differ in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// A route can carry the mark of a cluster.
    pub(super) marks: bool,
    /// A range leads to one machine only.
    pub(super) exclusive: bool,
    /// Routes that fit into the table.
    pub(super) most: usize,
}

#[derive(Default)]
struct Inside {
    machines: Vec<Instance>,
    routes: Vec<Arc<Record>>,
    made: u64,
    calls: u64,
    trouble: Option<Trouble>,
    crash: Option<u64>,
}

pub(super) struct Cloud {
    kind: Kind,
    inside: Mutex<Inside>,
}

fn says(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, "toy", message)
}

/// The hands of whoever owns it.
impl Cloud {
    pub(super) fn new(kind: Kind) -> Cloud {
        Cloud { kind, inside: Mutex::default() }
    }

    pub(super) fn add(&self, instance: impl FnOnce(String) -> Instance) -> Instance {
        let mut inside = self.inside.lock().unwrap();
        inside.made += 1;
        let instance = instance(format!("m{:04}", inside.made));
        inside.machines.push(instance.clone());
        instance
    }

    pub(super) fn edit(&self, id: &str, edit: impl FnOnce(&mut Instance)) {
        edit(self.inside.lock().unwrap().machines.iter_mut().find(|machine| machine.id == id).unwrap());
    }

    pub(super) fn delete(&self, id: &str) {
        self.inside.lock().unwrap().machines.retain(|machine| machine.id != id);
    }

    pub(super) fn routes(&self) -> Vec<Arc<Record>> {
        self.inside.lock().unwrap().routes.clone()
    }

    pub(super) fn put(&self, record: Record) -> Result<Arc<Record>> {
        self.kind.insert(&mut self.inside.lock().unwrap(), record)
    }

    pub(super) fn trouble(&self, trouble: Option<Trouble>) {
        self.inside.lock().unwrap().trouble = trouble;
    }

    pub(super) fn crash_after(&self, calls: Option<u64>) {
        self.inside.lock().unwrap().crash = calls;
    }

    pub(super) fn calls(&self) -> u64 {
        self.inside.lock().unwrap().calls
    }
}

/// The calls of its users.
impl Cloud {
    /// All machines and all routes.
    pub(super) async fn look(&self) -> Result<(Vec<Instance>, Vec<Arc<Record>>)> {
        self.call(|inside| Ok((inside.machines.clone(), inside.routes.clone()))).await
    }

    pub(super) async fn make(&self, record: Record) -> Result<Arc<Record>> {
        self.call(|inside| self.kind.insert(inside, record)).await
    }

    pub(super) async fn mark(&self, id: u64, owner: &ClusterName) -> Result<()> {
        let mark = |inside: &mut Inside| {
            let route = inside.routes.iter_mut().find(|route| route.id == id);
            let route = route.ok_or_else(|| says(ErrorKind::NotFound, "no route"))?;
            Arc::make_mut(route).owner = Some(owner.clone());
            Ok(())
        };
        self.call(mark).await
    }

    /// `NotFound` if there is none.
    pub(super) async fn remove(&self, unwanted: impl Fn(&Record) -> bool) -> Result<()> {
        let remove = |inside: &mut Inside| {
            let before = inside.routes.len();
            inside.routes.retain(|route| !unwanted(route));
            if inside.routes.len() < before { Ok(()) } else { Err(says(ErrorKind::NotFound, "no route")) }
        };
        self.call(remove).await
    }

    /// Writes the whole table.
    pub(super) async fn rewrite(&self, routes: Vec<Arc<Record>>) -> Result<()> {
        let rewrite = |inside: &mut Inside| {
            inside.routes = routes;
            Ok(())
        };
        self.call(rewrite).await
    }

    /// One call: counted, refused if there is trouble, and cut off where the manager crashes.
    async fn call<T>(&self, work: impl FnOnce(&mut Inside) -> Result<T>) -> Result<T> {
        tokio::task::yield_now().await;
        let mut inside = self.inside.lock().unwrap();
        inside.calls += 1;
        if let Some(trouble) = inside.trouble {
            return Err(refusal(trouble));
        }
        let left = inside.crash;
        if left == Some(0) {
            return Err(says(ErrorKind::Unavailable, "crashed"));
        }
        inside.crash = left.map(|left| left - 1);
        let done = work(&mut inside);
        if left == Some(1) { Err(says(ErrorKind::Unavailable, "the answer is lost")) } else { done }
    }
}

impl Kind {
    fn insert(self, inside: &mut Inside, mut record: Record) -> Result<Arc<Record>> {
        let same = |route: &&Arc<Record>| {
            route.destination == record.destination && (self.exclusive || route.machine == record.machine)
        };
        if inside.routes.iter().filter(same).any(|route| self.exclusive || route.owner == record.owner) {
            return Err(says(ErrorKind::AlreadyExists, format!("{} is taken", record.destination)));
        }
        if inside.routes.len() >= self.most {
            return Err(says(ErrorKind::QuotaExceeded, "the table is full"));
        }
        inside.made += 1;
        record.id = inside.made;
        record.owner = record.owner.filter(|_| self.marks);
        let record = Arc::new(record);
        inside.routes.push(Arc::clone(&record));
        Ok(record)
    }
}
