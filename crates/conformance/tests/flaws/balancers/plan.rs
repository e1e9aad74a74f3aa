//! From what is there to what is wished, in the toy's two kinds of things.

use bowline_cloud::{Error, ErrorKind, Result};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{
    IpFamily, LoadBalancerKey, LoadBalancerSpec, LoadBalancerWish, Notice, Plan, PortSpec, Protocol, SessionAffinity,
    Step, TargetNode, Verb,
};
use serde::{Deserialize, Serialize};

use super::Flaw;
use super::cloud::{Balancer, Listener, NewBalancer, Settings};
use super::provider::{Toy, View};

/// What a step does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Op {
    Create(NewBalancer),
    Own { id: String, owners: Vec<LoadBalancerKey> },
    Delete { id: String },
    Listen(Listener),
    Change(Listener),
    Silence { id: String },
}

fn step(op: Op) -> Step {
    let (verb, kind, name) = match &op {
        Op::Create(new) => (Verb::Create, "balancer", &new.name),
        Op::Own { id, .. } => (Verb::Update, "balancer", id),
        Op::Delete { id } => (Verb::Delete, "balancer", id),
        Op::Listen(listener) => (Verb::Create, "listener", &listener.name),
        Op::Change(listener) => (Verb::Update, "listener", &listener.name),
        Op::Silence { id } => (Verb::Delete, "listener", id),
    };
    let (kind, name) = (kind.to_owned(), name.clone());
    Step { verb, kind, name, changes: Vec::new(), dispensable: None, payload: serde_json::to_value(op).unwrap() }
}

/// The name of a Service's balancer, or of its group's.
pub(super) fn balancer_name(wish: &LoadBalancerWish, toy: &Toy) -> String {
    let key = &wish.key;
    match wish.settings.share_group.as_deref().filter(|_| !toy.has(Flaw::SharesNothing)) {
        Some(group) if toy.has(Flaw::SharesWithOtherNamespaces) => format!("{}-{group}", key.cluster),
        Some(group) => format!("{}-{}-{group}", key.cluster, key.namespace),
        None if key.uid.is_empty() => format!("{}-{}-{}", key.cluster, key.namespace, key.service),
        None => format!("{}-{}", key.cluster, key.uid),
    }
}

pub(super) fn plan(toy: &Toy, wish: &LoadBalancerWish, view: &View) -> Result<Plan> {
    if view.balancer.as_ref().is_some_and(|balancer| balancer.busy) && !toy.has(Flaw::IgnoresWork) {
        return Err(Error::new(ErrorKind::InProgress, "toy", "the balancer is being changed"));
    }
    if let Some(missing) = &view.missing {
        return Err(Error::new(
            ErrorKind::NotFound,
            "plan",
            format!("the annotation leads to {missing}: there is none"),
        ));
    }
    let ops = match wish.spec.as_deref() {
        None if wish.settings.policy == DeletionPolicy::Retain && !toy.has(Flaw::RetainDeletes) => {
            release(toy, view, &wish.key)
        }
        None => removal(toy, view, &wish.key),
        Some(spec) => {
            let (mut ops, home) = housing(toy, wish, spec, view)?;
            ops.extend(listening(toy, wish, spec, view, &home)?);
            ops
        }
    };
    let reason = if toy.has(Flaw::Mumbles) { "well, maybe" } else { "ToyIsAToy" };
    let notices = vec![Notice { reason: reason.to_owned(), message: "It balances nothing.".to_owned() }];
    Ok(Plan { steps: ops.into_iter().map(step).collect(), notices })
}

fn release(toy: &Toy, view: &View, key: &LoadBalancerKey) -> Vec<Op> {
    if toy.has(Flaw::RetainKeepsTheMark) {
        return Vec::new();
    }
    let mine = view.listeners.iter().filter(|one| one.owner.is_some()).cloned();
    let mut ops: Vec<_> = mine.map(|one| Op::Change(Listener { owner: None, ..one })).collect();
    ops.extend(view.balancer.as_ref().map(|balancer| leave(balancer, key)));
    if toy.has(Flaw::ReleasesFromTheTop) {
        ops.reverse();
    }
    ops
}

fn leave(balancer: &Balancer, key: &LoadBalancerKey) -> Op {
    let owners = balancer.owners.iter().filter(|owner| *owner != key).cloned().collect();
    Op::Own { id: balancer.id.clone(), owners }
}

fn removal(toy: &Toy, view: &View, key: &LoadBalancerKey) -> Vec<Op> {
    let mut ops: Vec<_> = view.listeners.iter().map(|one| Op::Silence { id: one.id.clone() }).collect();
    let alone = |balancer: &&Balancer| balancer.owners.len() <= 1 || toy.has(Flaw::FirstOneTakesAll);
    let whole = !ops.is_empty() || !toy.has(Flaw::LeavesTheBare);
    match &view.balancer {
        Some(balancer) if alone(&balancer) && toy.has(Flaw::UnmarksFirst) => {
            ops.insert(0, Op::Own { id: balancer.id.clone(), owners: Vec::new() });
            ops.push(Op::Delete { id: balancer.id.clone() });
        }
        Some(balancer) if alone(&balancer) && toy.has(Flaw::DeletesInTheWrongOrder) => {
            ops.insert(0, Op::Delete { id: balancer.id.clone() });
        }
        Some(balancer) if alone(&balancer) => ops.extend(whole.then(|| Op::Delete { id: balancer.id.clone() })),
        Some(balancer) => ops.push(leave(balancer, key)),
        None if toy.has(Flaw::RemovesNothing) => ops.push(Op::Delete { id: "b0000".to_owned() }),
        None => {}
    }
    ops
}

/// What has to be done for a balancer to be there, and its name.
fn housing(toy: &Toy, wish: &LoadBalancerWish, spec: &LoadBalancerSpec, view: &View) -> Result<(Vec<Op>, String)> {
    let (key, name) = (wish.key.clone(), balancer_name(wish, toy));
    let exists = |message: String| Err(Error::new(ErrorKind::AlreadyExists, "plan", message));
    let take =
        |balancer: &Balancer, owners| Ok((vec![Op::Own { id: balancer.id.clone(), owners }], balancer.name.clone()));
    if let Some(balancer) = &view.balancer {
        return Ok((Vec::new(), balancer.name.clone()));
    }
    if let Some(adopt) = &wish.settings.adopt {
        return match &view.adoptable {
            None => Err(Error::new(ErrorKind::NotFound, "plan", format!("there is no balancer {adopt:?}"))),
            Some(one) if one.owners.is_empty() || toy.has(Flaw::AdoptsTheOwned) => take(one, vec![key]),
            Some(one) => exists(format!("{adopt:?} belongs to {}", owner(one))),
        };
    }
    if let Some(one) = view.nobodys.as_ref().filter(|_| toy.has(Flaw::AdoptsUnasked)) {
        return take(one, vec![key]);
    }
    if let Some(one) = &view.named {
        let family = |owner: &LoadBalancerKey| {
            let namespace = owner.namespace == key.namespace || toy.has(Flaw::SharesWithOtherNamespaces);
            owner.cluster == key.cluster && namespace
        };
        let group = wish.settings.share_group.is_some() && !one.owners.is_empty() && one.owners.iter().all(family);
        return match toy.flaw {
            _ if group => take(one, [one.owners.clone(), vec![key]].concat()),
            Flaw::TakesOverByName => take(one, vec![key]),
            Flaw::HidesTheOwner => exists("there is another".to_owned()),
            _ => exists(format!("{name:?} belongs to {}", owner(one))),
        };
    }
    if let Some(holder) = view.holder.as_ref().filter(|_| !toy.has(Flaw::GivesOutTakenAddresses)) {
        return exists(format!("{:?} is the address of {holder:?}", spec.requested_address));
    }
    let address = spec.requested_address.as_ref().filter(|_| !toy.has(Flaw::GivesAnyAddress));
    let families = match toy.flaw {
        Flaw::GivesIpv4Only => vec![IpFamily::IPv4],
        Flaw::GivesIpv6Only => vec![IpFamily::IPv6],
        Flaw::GivesTheLastFamily => spec.ip_families.last().copied().into_iter().collect(),
        _ if toy.numbers().serves_first_family() => spec.ip_families.first().copied().into_iter().collect(),
        _ => spec.ip_families.clone(),
    };
    let new = NewBalancer {
        name: name.clone(),
        owners: vec![key],
        address: address.and_then(|address| address.parse().ok()),
        families,
        internal: wish.settings.internal && !toy.has(Flaw::IgnoresInternal),
    };
    Ok((vec![Op::Create(new)], name))
}

fn owner(balancer: &Balancer) -> String {
    balancer.owners.first().map_or("nobody".to_owned(), |owner| format!("{}/{}", owner.cluster, owner.service))
}

/// What has to be done for the listeners to be as wished.
fn listening(toy: &Toy, wish: &LoadBalancerWish, spec: &LoadBalancerSpec, view: &View, home: &str) -> Result<Vec<Op>> {
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    let fits = |port: &PortSpec, one: &Listener| {
        let protocol = port.protocol == one.settings.protocol || toy.has(Flaw::GoesByPortAlone);
        let named = !toy.has(Flaw::BuildsAnewForNames) || one.name.ends_with(&port.name);
        protocol && port.port == one.settings.port && named
    };
    for one in view.listeners.iter().filter(|one| !spec.ports.iter().any(|port| fits(port, one))) {
        gone.push(Op::Silence { id: one.id.clone() });
    }
    if toy.has(Flaw::KeepsOldPorts) {
        gone.clear();
    }
    for (index, port) in spec.ports.iter().enumerate() {
        let taken = view.others.contains(&(port.protocol, port.port)) && !toy.has(Flaw::OverwritesTheGroup);
        if taken {
            let message = format!("another Service has {:?} {} of {home:?}", port.protocol, port.port);
            return Err(Error::new(ErrorKind::AlreadyExists, "plan", message));
        }
        let there = view.listeners.iter().find(|one| fits(port, one));
        let wanted = Listener {
            id: there.map(|one| one.id.clone()).unwrap_or_default(),
            name: listener_name(toy, wish, port, home),
            balancer: there.map(|one| one.balancer.clone()).unwrap_or_default(),
            owner: Some(wish.key.clone()),
            settings: settings(toy, wish, spec, port, there),
        };
        match there {
            Some(one) if same(toy, one, &wanted) => {}
            Some(_) if toy.has(Flaw::LooksAtTheFirst) && index > 0 && come.is_empty() => {}
            Some(one) if toy.has(Flaw::BuildsAnewForNodes) && one.settings.targets != wanted.settings.targets => {
                gone.push(Op::Silence { id: one.id.clone() });
                come.push(Op::Listen(Listener { id: String::new(), ..wanted }));
            }
            Some(one) => come.push(Op::Change(Listener { name: one.name.clone(), ..wanted })),
            None if toy.has(Flaw::BuildsOnlyOnce) && !view.listeners.is_empty() => {}
            None => come.push(Op::Listen(wanted)),
        }
    }
    gone.extend(come);
    Ok(gone)
}

fn listener_name(toy: &Toy, wish: &LoadBalancerWish, port: &PortSpec, home: &str) -> String {
    let plain = format!("{home}/{}{}/{:?}-{}", wish.key.service, wish.key.uid, port.protocol, port.port);
    if toy.has(Flaw::BuildsAnewForNames) { format!("{plain}-{}", port.name) } else { plain }
}

fn same(toy: &Toy, there: &Listener, wanted: &Listener) -> bool {
    let sorted = |settings: &Settings| {
        let mut settings = settings.clone();
        if !toy.has(Flaw::MindsTheOrder) {
            settings.targets.sort();
            settings.ranges.sort();
        }
        if toy.has(Flaw::IgnoresNodePorts) {
            settings.node_port = None;
        }
        settings
    };
    there.owner == wanted.owner && sorted(&there.settings) == sorted(&wanted.settings)
}

fn settings(
    toy: &Toy,
    wish: &LoadBalancerWish,
    spec: &LoadBalancerSpec,
    port: &PortSpec,
    there: Option<&Listener>,
) -> Settings {
    let old = there.map(|one| &one.settings);
    let mut ranges = spec.source_ranges.clone();
    if toy.has(Flaw::NeverOpensAgain) && ranges.is_empty() {
        ranges = old.map(|old| old.ranges.clone()).unwrap_or_default();
    }
    let affinity = match spec.session_affinity {
        SessionAffinity::ClientIp { .. } if toy.has(Flaw::ForgetsTheTimeout) => {
            SessionAffinity::ClientIp { timeout_seconds: 10800 }
        }
        affinity => affinity,
    };
    Settings {
        protocol: match toy.flaw {
            Flaw::SpeaksTcpOnly => Protocol::Tcp,
            Flaw::SpeaksUdpOnly => Protocol::Udp,
            _ => port.protocol,
        },
        port: port.port,
        node_port: port.node_port.or(toy.has(Flaw::NeedsNodePorts).then_some(port.port)),
        targets: targets(toy, spec, old),
        ranges,
        affinity,
        check: check(toy, wish, spec).or_else(|| old?.check.clone().filter(|_| toy.has(Flaw::KeepsAsking))),
        proxy: wish.settings.proxy_protocol.filter(|_| !toy.has(Flaw::SpeaksNoProxyProtocol)),
        idle: wish.settings.idle_timeout.filter(|_| !toy.has(Flaw::IgnoresIdleTimeout)),
    }
}

fn targets(toy: &Toy, spec: &LoadBalancerSpec, old: Option<&Settings>) -> Vec<(String, bool)> {
    let machine =
        |target: &TargetNode| target.provider_id.as_ref().and_then(|id| id.rest()).unwrap_or_default().to_owned();
    let has = |machine: &str| old.is_some_and(|old| old.targets.iter().any(|(there, _)| there == machine));
    let drain = toy.numbers().drain || toy.has(Flaw::DrainsWithoutClaim);
    let mut targets = Vec::new();
    for target in &spec.targets {
        let machine = machine(target);
        let taken = match toy.flaw {
            Flaw::DropsTheLeaving => !target.draining,
            Flaw::TakesInTheLeaving => true,
            _ => !target.draining || drain && has(&machine),
        };
        if taken {
            targets.push((machine, target.draining));
        }
    }
    if toy.has(Flaw::TakesOneTarget) {
        targets.truncate(1);
    }
    if toy.has(Flaw::KeepsTheLastTargets) && targets.is_empty() {
        targets = old.map(|old| old.targets.clone()).unwrap_or_default();
    }
    targets
}

fn check(
    toy: &Toy,
    wish: &LoadBalancerWish,
    spec: &LoadBalancerSpec,
) -> Option<(String, u16, Option<std::time::Duration>)> {
    let chosen = Some(&wish.settings).filter(|_| !toy.has(Flaw::IgnoresHealthSettings));
    let path = chosen
        .and_then(|all| all.health_check_path.clone())
        .or(spec.health_check.as_ref().map(|check| check.path.clone()))?;
    let port = chosen.and_then(|all| all.health_check_port).or(spec.health_check.as_ref().map(|check| check.port))?;
    Some((path, port, chosen.and_then(|all| all.health_check_interval)))
}
