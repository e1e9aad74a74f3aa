//! A cloud with two kinds of things: balancers, which have addresses, and the listeners on them.
//!
//! Names are unique; to make a thing again that the same owner has made already gives the same thing.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_conformance::{SeenListener, SeenTarget, Trouble};
use bowline_core::annotations::ProxyProtocol;
use bowline_core::{IpFamily, LoadBalancerKey, Protocol, SessionAffinity};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::refusal;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Balancer {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) owners: Vec<LoadBalancerKey>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) internal: bool,
    pub(super) busy: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listener {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) balancer: String,
    pub(super) owner: Option<LoadBalancerKey>,
    pub(super) settings: Settings,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) protocol: Protocol,
    pub(super) port: u16,
    pub(super) node_port: Option<u16>,
    pub(super) targets: Vec<(String, bool)>,
    pub(super) ranges: Vec<IpNet>,
    pub(super) affinity: SessionAffinity,
    pub(super) check: Option<(String, u16, Option<Duration>)>,
    pub(super) proxy: Option<ProxyProtocol>,
    pub(super) idle: Option<Duration>,
}

/// What a new balancer is to be.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct NewBalancer {
    pub(super) name: String,
    pub(super) owners: Vec<LoadBalancerKey>,
    pub(super) address: Option<IpAddr>,
    pub(super) families: Vec<IpFamily>,
    pub(super) internal: bool,
}

#[derive(Default)]
struct Inside {
    balancers: Vec<Balancer>,
    listeners: Vec<Listener>,
    hidden: Vec<String>,
    made: u16,
    calls: u64,
    writes: u64,
    trouble: Option<Trouble>,
    crash: Option<u64>,
    stale: bool,
    slow: bool,
}

pub(super) struct Cloud {
    inside: Mutex<Inside>,
    /// More listeners, or more targets, are refused; what the provider claims may be another matter.
    most: (usize, usize),
    /// Takes any address, taken or not.
    careless: bool,
}

fn says(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, "toy", message)
}

impl Inside {
    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        let id = format!("{kind}{:04}", self.made);
        if self.stale {
            self.hidden.push(id.clone());
        }
        id
    }

    fn balancer(&mut self, id: &str) -> Result<&mut Balancer> {
        let (slow, found) = (self.slow, self.balancers.iter_mut().find(|one| one.id == id));
        let balancer = found.ok_or_else(|| says(ErrorKind::NotFound, id))?;
        if std::mem::replace(&mut balancer.busy, slow) {
            return Err(says(ErrorKind::InProgress, format!("{id} is being changed")));
        }
        Ok(balancer)
    }

    fn address(&mut self, family: IpFamily) -> IpAddr {
        self.made += 1;
        match family {
            IpFamily::IPv4 => IpAddr::from([192, 0, 2, self.made as u8]),
            IpFamily::IPv6 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, self.made]),
        }
    }

    fn create(&mut self, new: NewBalancer, careless: bool) -> Result<()> {
        if let Some(there) = self.balancers.iter().find(|one| one.name == new.name) {
            let ours = there.owners == new.owners;
            let owner = there.owners.first().map(|owner| owner.cluster.to_string()).unwrap_or_default();
            let taken = format!("{:?} exists and belongs to {owner:?}", new.name);
            return if ours { Ok(()) } else { Err(says(ErrorKind::AlreadyExists, taken)) };
        }
        let taken = new.address.is_some_and(|wanted| self.balancers.iter().any(|one| one.addresses.contains(&wanted)));
        if taken && !careless {
            return Err(says(ErrorKind::AlreadyExists, format!("{:?} is taken", new.address)));
        }
        let addresses = match new.address {
            Some(address) => vec![address],
            None => new.families.iter().map(|family| self.address(*family)).collect(),
        };
        let (id, busy) = (self.id("b"), self.slow);
        let NewBalancer { name, owners, internal, .. } = new;
        self.balancers.push(Balancer { id, name, owners, addresses, internal, busy });
        Ok(())
    }

    fn listen(&mut self, listener: Listener, most: (usize, usize)) -> Result<()> {
        self.balancer(&listener.balancer)?;
        if self.listeners.iter().any(|one| one.name == listener.name) {
            return Ok(());
        }
        let here = self.listeners.iter().filter(|one| one.balancer == listener.balancer).count();
        if here >= most.0 || listener.settings.targets.len() > most.1 {
            return Err(says(ErrorKind::QuotaExceeded, "no more"));
        }
        let id = self.id("l");
        self.listeners.push(Listener { id, ..listener });
        Ok(())
    }
}

impl Cloud {
    pub(super) fn new(most: (usize, usize), careless: bool) -> Cloud {
        Cloud { inside: Mutex::default(), most, careless }
    }

    /// A call: counted, refused in trouble, and cut off in a crash.
    async fn call<T>(&self, writes: bool, act: impl FnOnce(&mut Inside) -> Result<T>) -> Result<T> {
        tokio::task::yield_now().await;
        let mut inside = self.inside.lock().unwrap();
        inside.calls += 1;
        inside.writes += u64::from(writes);
        if let Some(trouble) = inside.trouble {
            return Err(refusal(trouble));
        }
        let lost = || says(ErrorKind::Unavailable, "the manager crashed");
        match inside.crash {
            Some(0) => return Err(lost()),
            Some(left) => inside.crash = Some(left - 1),
            None => {}
        }
        let answer = act(&mut inside);
        if inside.crash == Some(0) { Err(lost()) } else { answer }
    }

    /// What is there, and as far as it is shown.
    pub(super) async fn look(&self) -> Result<(Vec<Balancer>, Vec<Listener>)> {
        self.call(false, |inside| {
            let shown = |id: &String| !inside.hidden.contains(id);
            let balancers = inside.balancers.iter().filter(|one| shown(&one.id)).cloned().collect();
            Ok((balancers, inside.listeners.iter().filter(|one| shown(&one.id)).cloned().collect()))
        })
        .await
    }

    pub(super) async fn create(&self, new: NewBalancer) -> Result<()> {
        self.call(true, |inside| inside.create(new, self.careless)).await
    }

    pub(super) async fn own(&self, id: &str, owners: Vec<LoadBalancerKey>) -> Result<()> {
        self.call(true, |inside| inside.balancer(id).map(|balancer| balancer.owners = owners)).await
    }

    pub(super) async fn delete(&self, id: &str) -> Result<()> {
        self.call(true, |inside| {
            inside.balancer(id)?;
            if inside.listeners.iter().any(|one| one.balancer == id) {
                return Err(says(ErrorKind::Conflict, format!("{id} has listeners")));
            }
            inside.balancers.retain(|one| one.id != id);
            Ok(())
        })
        .await
    }

    pub(super) async fn listen(&self, listener: Listener) -> Result<()> {
        self.call(true, |inside| inside.listen(listener, self.most)).await
    }

    pub(super) async fn change(&self, changed: Listener) -> Result<()> {
        self.call(true, |inside| {
            inside.balancer(&changed.balancer)?;
            if changed.settings.targets.len() > self.most.1 {
                return Err(says(ErrorKind::QuotaExceeded, "no more"));
            }
            let found = inside.listeners.iter_mut().find(|one| one.id == changed.id);
            found.map(|one| *one = changed.clone()).ok_or_else(|| says(ErrorKind::NotFound, changed.id))
        })
        .await
    }

    pub(super) async fn silence(&self, id: &str) -> Result<()> {
        self.call(true, |inside| {
            let found = inside.listeners.iter().position(|one| one.id == id);
            let listener = inside.listeners[found.ok_or_else(|| says(ErrorKind::NotFound, id))?].clone();
            inside.balancer(&listener.balancer)?;
            inside.listeners.retain(|one| one.id != id);
            Ok(())
        })
        .await
    }
}

/// What the bench does, past all calls.
impl Cloud {
    pub(super) fn everything(&self) -> (Vec<Balancer>, Vec<Listener>) {
        let inside = self.inside.lock().unwrap();
        (inside.balancers.clone(), inside.listeners.clone())
    }

    pub(super) fn counts(&self) -> (u64, u64) {
        let inside = self.inside.lock().unwrap();
        (inside.calls, inside.writes)
    }

    pub(super) fn count_a_call(&self) {
        self.inside.lock().unwrap().calls += 1;
    }

    pub(super) fn trouble(&self, trouble: Option<Trouble>) {
        self.inside.lock().unwrap().trouble = trouble;
    }

    pub(super) fn crash_after(&self, calls: Option<u64>) {
        self.inside.lock().unwrap().crash = calls;
    }

    pub(super) fn be(&self, stale: bool, slow: bool) {
        let mut inside = self.inside.lock().unwrap();
        (inside.stale, inside.slow) = (stale, slow);
    }

    pub(super) fn settle(&self) {
        let mut inside = self.inside.lock().unwrap();
        inside.hidden.clear();
        inside.balancers.iter_mut().for_each(|balancer| balancer.busy = false);
    }

    pub(super) fn put(&self, new: NewBalancer, settings: Settings) -> Option<Balancer> {
        let mut inside = self.inside.lock().unwrap();
        let (name, owner) = (new.name.clone(), new.owners.first().cloned());
        inside.create(new, false).ok()?;
        let balancer = inside.balancers.last()?.clone();
        let listener =
            Listener { id: String::new(), name: format!("{name}/1"), balancer: balancer.id.clone(), owner, settings };
        inside.listen(listener, self.most).ok()?;
        Some(balancer)
    }
}

impl Settings {
    pub(super) fn listener(&self) -> SeenListener {
        SeenListener { protocol: self.protocol, port: self.port, node_port: self.node_port }
    }

    pub(super) fn seen_targets(&self) -> Vec<SeenTarget> {
        self.targets
            .iter()
            .map(|(machine, draining)| SeenTarget { machine: machine.clone(), draining: *draining })
            .collect()
    }
}
