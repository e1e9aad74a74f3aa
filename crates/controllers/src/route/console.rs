//! Contribution to the console: the routes of each cloud, including those that are missing, and the work of each Node.

use std::collections::HashMap;
use std::sync::Arc;

use bowline_console::document::{self, Document, Health, Level, Work};
use bowline_core::routes::{RouteContext, RouteTable};
use bowline_core::{Node, Route, parse_cidr};
use bowline_runtime::{Anchor, Component as _};
use ipnet::IpNet;

use super::state::CloudState;
use super::{Fleet, Key, NAME, QUEUE, Shared, component_name};
use crate::console::{add_loops, add_queue, loop_item, with_next_try};

impl Shared {
    pub(super) fn fill(&self, document: &mut Document, anchor: Anchor) {
        for state in &self.states {
            self.fill_cloud(state, document, anchor);
        }
    }

    fn fill_cloud(&self, state: &CloudState, document: &mut Document, anchor: Anchor) {
        let name = |what| component_name(what, state, self.states.len());
        let mut work = add_queue(document, &name(QUEUE), &state.queue, anchor);
        let mut refresh = loop_item(state.heartbeat.snapshot(), state.heartbeat.health(), anchor);
        if let Some(reason) = state.hold_reason() {
            refresh.health.worsen(Health::new(Level::Warning, "DeletionHeldBack", reason.to_string()));
        }
        add_loops(document, NAME, [(name("refresh"), refresh)]);
        let fleet = Fleet::from_store(&self.context.nodes, &self.context.clouds, &state.cloud);
        // Not known before the first listing. Read before the table, which is locked below.
        let is_listed = state.is_listed();
        let items = state.read(|table| {
            let routes = self.route_context(table, &fleet);
            let missing = if is_listed { missing(table, &fleet.owned(), &work) } else { Vec::new() };
            table.iter().map(|route| existing(&routes, route)).chain(missing).collect::<Vec<_>>()
        });
        let cloud = state.cloud.name();
        let keyed = items.into_iter().map(|item| {
            (format!("{cloud}/{}", item.destination), document::Route { cloud: cloud.to_string(), ..item })
        });
        document.route.extend(keyed);
        for (key, work) in work.drain() {
            if let Key::Node(name) = key
                && let Some(item) = document.node.get_mut(name.as_str())
            {
                item.work.insert(NAME.to_owned(), work);
            }
        }
    }
}

/// Route that the cloud has.
fn existing(routes: &RouteContext<'_>, route: &Route) -> document::Route {
    let node = routes.target_node(route);
    let name = node.as_ref().map(|node| &node.name).or(route.node.as_ref());
    let health = match &node {
        _ if routes.is_foreign(route) => {
            let message = "A route of another cluster with the same name. It is not changed.";
            Health { reason: "OtherCluster".to_owned(), message: message.to_owned(), ..Health::ok() }
        }
        _ if route.blackhole => {
            Health::new(Level::Warning, "Blackhole", "The route drops its traffic, because its machine does not exist.")
        }
        None => Health::new(Level::Progressing, "NoNode", "The route leads to no Node of this cluster."),
        Some(_) => Health::ok(),
    };
    let node = name.map(ToString::to_string).unwrap_or_default();
    document::Route { health, cloud: String::new(), destination: route.destination.to_string(), node }
}

/// Routes that Nodes need and the cloud does not have.
fn missing(table: &RouteTable, nodes: &[Arc<Node>], work: &HashMap<Key, Work>) -> Vec<document::Route> {
    let wanted =
        nodes.iter().flat_map(|node| node.pod_cidrs.iter().filter_map(move |text| Some((node, parse_cidr(text)?))));
    let missing = wanted.filter(|(_, cidr)| table.to(*cidr).next().is_none());
    missing.map(|(node, cidr)| missing_route(node, cidr, work.get(&Key::Node(node.name.clone())))).collect()
}

fn missing_route(node: &Node, cidr: IpNet, work: Option<&Work>) -> document::Route {
    let failed = work.and_then(|work| Some((work, work.error.as_deref()?)));
    let health = match failed {
        Some((work, error)) => Health::new(Level::Warning, "Missing", with_next_try(error, work)),
        None => Health::new(Level::Progressing, "Missing", "The cloud does not have the route yet."),
    };
    document::Route { health, cloud: String::new(), destination: cidr.to_string(), node: node.name.to_string() }
}
