//! Each right is needed: a story of each controller passes with what it declares, and fails without any verb of it.
//!
//! What is taken away is read from the declarations, so a right that nobody uses any more, or that no story here needs, fails
//! the test. The rest of the stories prove the other half: nothing beyond the declarations is asked for.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::node_ipam::AllocatorType;
use bowline_controllers::{Permissions, node, node_ipam, node_lifecycle, provider_loops, service};
use bowline_kube::Permission;
use bowline_local::{Fault, FaultSpec};
use k8s_openapi::api::core::v1::Event;
use serde_json::json;

use crate::node_ipam::{ONE, hit_writes, options as ipam_options, pod_cidrs, served, status};
use crate::provider_loops::{VISITED, Visits, annotation};
use crate::world::{SHUTDOWN, UNINITIALIZED, World, addresses, has_taint, machine};
use crate::wrappers::Wrapped;

/// A controller, with everything in it that asks the API server for something.
struct Case {
    /// Which one, and how it is set.
    options: fn() -> ManagerOptions,
    /// Uses all of it. Ends when all has come about, and otherwise does not end.
    story: for<'a> fn(&'a World) -> Story<'a>,
}

type Story<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// `patch nodes/status`.
type Use = (&'static str, &'static str);

fn nobody() -> ManagerOptions {
    ManagerOptions { node: None, node_lifecycle: None, service: None, ..ManagerOptions::default() }
}

const NODE: Case = Case {
    options: || ManagerOptions { node: Some(node::Options::default()), ..nobody() },
    story: |world| Box::pin(initialize(world)),
};

const NODE_LIFECYCLE: Case = Case {
    options: || ManagerOptions { node_lifecycle: Some(node_lifecycle::Options::default()), ..nobody() },
    story: |world| Box::pin(taint_and_delete(world)),
};

const NODE_IPAM: Case = Case {
    options: || {
        let allocator: node_ipam::Options = ipam_options(ONE, AllocatorType::FromCloud);
        ManagerOptions { node_ipam: Some(allocator), ..nobody() }
    },
    story: |world| Box::pin(hand_out_ranges(world)),
};

/// The allocator without a cloud has fewer rights, each of which it needs, too.
const NODE_IPAM_ALONE: Case = Case {
    options: || ManagerOptions {
        node_ipam: Some(ipam_options(&[("10.10.0.0/32", 32)], AllocatorType::Range)),
        ..nobody()
    },
    story: |world| Box::pin(hand_out_blocks(world)),
};

const ROUTE: Case = Case {
    options: || {
        let ranges = vec!["10.120.0.0/16".parse().unwrap()];
        let route = bowline_controllers::route::Options::new("kubernetes".into(), ranges);
        ManagerOptions { route: Some(route), ..nobody() }
    },
    story: |world| Box::pin(lead_ranges(world)),
};

const SERVICE: Case = Case {
    options: || ManagerOptions { service: Some(service::Options::default()), ..nobody() },
    story: |world| Box::pin(balance(world)),
};

const PROVIDER_LOOPS: Case = Case {
    options: || {
        let options = provider_loops::Options { cluster: "kubernetes".into() };
        ManagerOptions { provider_loops: Some(options), ..nobody() }
    },
    story: |world| Box::pin(annotate(world)),
};

// ---- the stories

/// A Node is initialised although somebody else writes to it, and again when its taint comes back.
async fn initialize(world: &World) {
    world.register("a").await;
    world.fail("patch", "nodes", 409, Some(1));
    world.cloud().add(machine("a", "i-a", &["I10.0.0.1"])).unwrap();
    world.initialized("a").await;
    let addressed =
        async || addresses(&world.node("a").await).contains(&"InternalIP 10.0.0.1".to_owned()).then_some(());
    world.eventually("it has the address of its machine", addressed).await;
    let taint = json!([{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]);
    world.patch("a", json!({"spec": {"taints": taint}})).await;
    world.counted("a", "Synced").await;
}

/// A stopped machine's Node is tainted although somebody else writes to it, and a vanished one's is deleted at the second try.
async fn taint_and_delete(world: &World) {
    for name in ["stops", "vanishes", "stays"] {
        world.cloud().add(machine(name, &format!("i-{name}"), &[])).unwrap();
        world.join(name, &format!("local://i-{name}"), "True").await;
    }
    world.set_ready("stops", "False").await;
    world.fail("patch", "nodes", 409, Some(1));
    world.cloud().stop("i-stops").unwrap();
    world.eventually("it is tainted", async || has_taint(&world.node("stops").await, SHUTDOWN).then_some(())).await;
    world.fail("delete", "nodes", 422, Some(1));
    world.cloud().delete("i-vanishes").unwrap();
    world.set_ready("vanishes", "False").await;
    world.counted("vanishes", "DeletingNode").await;
    world.gone("vanishes").await;
}

/// A Node gets its range although the answer to the first try was lost, after the cloud has changed its mind and back.
async fn hand_out_ranges(world: &World) {
    world.cloud().add(machine("a", "i-a", &[])).unwrap();
    world.join("a", "local://i-a", "True").await;
    for range in ["192.168.1.0/24", "192.168.2.0/24", "192.168.1.0/24"] {
        world.cloud().change("i-a", |machine| machine.pod_ranges = vec![range.parse().unwrap()]).unwrap();
        world.pass(Duration::from_secs(600)).await;
    }
    world.counted("a", "CloudCIDRAllocatorInvalidPodCIDR").await;
    world.fail("patch", "nodes", 500, Some(4));
    world.cloud().change("i-a", |machine| machine.pod_ranges = vec!["10.10.7.0/24".parse().unwrap()]).unwrap();
    world.network("a", "False", "RouteCreated").await;
    assert_eq!(pod_cidrs(&world.node("a").await), ["10.10.7.0/24"]);
}

/// A Node finds the only block taken, then cannot be written to, and finds it taken once more before it gets it.
async fn hand_out_blocks(world: &World) {
    world.register("b").await;
    served(world, "b").await;
    world.register("a").await;
    world.told("a", "CIDRNotAvailable").await;
    hit_writes(world, "a", status(422), None);
    world.delete("b").await;
    world.told("a", "CIDRAssignmentFailed").await;
    world.register("c").await;
    world.counted("a", "CIDRNotAvailable").await;
    world.server.faults().clear();
    world.delete("c").await;
    served(world, "a").await;
}

/// A range is led to its Node at the second try, and so it is again after somebody has removed the route.
async fn lead_ranges(world: &World) {
    let fails_once = FaultSpec::always(Fault::Failing(403)).on("create-route").times(1);
    let leads = async || world.cloud().routes("kubernetes").pop();
    world.cloud().inject(fails_once.clone());
    world.add_machine("a");
    world.join_with_ranges("a", &["10.120.0.0/24"]).await;
    let route = world.eventually("there is a route", leads).await;
    world.reachable("a").await;
    world.cloud().inject(fails_once);
    world.cloud().remove_route("kubernetes", &route.id).unwrap();
    world.eventually("there is a route again", leads).await;
    world.counted("a", "FailedToCreateRoute").await;
}

/// A Service gets a balancer and loses it by force, which takes more than one try.
async fn balance(world: &World) {
    world.join_machine("a", 0).await;
    world.serve("web").await;
    world.addressed("web").await;
    world.targets_are(&["a"]).await;
    world.patch_service("web", json!({"spec": {"ports": [{"port": 81}]}})).await;
    world.counted("web", "EnsuringLoadBalancer").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(500)).on("delete-balancer"));
    world.delete_service("web").await;
    world.told("web", "SyncLoadBalancerFailed").await;
    world.patch_service("web", json!({"metadata": {"finalizers": null}})).await;
    world.cloud().repair_all();
    world.eventually("it is gone", async || world.cloud().balancers().is_empty().then_some(())).await;
}

/// A loop annotates a Node, fails, succeeds, and fails once more.
async fn annotate(world: &World) {
    world.join("a", "local://i-a", "True").await;
    let annotated = async || annotation(&world.node("a").await, VISITED);
    world.eventually("it is annotated", annotated).await;
    for fail in [json!("true"), json!(null), json!("true")] {
        world.patch("a", json!({"metadata": {"labels": {"fail": fail}}})).await;
        world.pass(Duration::from_secs(60)).await;
    }
    world.counted("cloud-controller-manager", "ProviderLoopFailed").await;
}

impl World {
    /// Waits until an Event with this reason has been told again.
    async fn counted(&self, name: &str, reason: &str) {
        let again = |event: &Event| {
            let about = event.involved_object.name.as_deref() == Some(name);
            about && event.reason.as_deref() == Some(reason) && event.count > Some(1)
        };
        let what = format!("{name}: {reason} is counted");
        self.eventually(&what, async || self.events().await.iter().any(again).then_some(())).await;
    }

    /// What the API server has refused.
    fn refusals(&self) -> Vec<(String, String)> {
        let refusals = self.server.requests().into_keys().filter(|kind| kind.code == 403);
        let told = refusals.map(|kind| {
            let resource = format!("{}/{}", kind.resource, kind.subresource);
            (kind.verb.to_owned(), resource.trim_end_matches('/').to_owned())
        });
        told.collect()
    }

    async fn is_refused_something(&self) {
        while self.refusals().is_empty() {
            self.pass(Duration::from_millis(500)).await;
        }
    }
}

// ---- with and without

impl Case {
    fn permissions(&self) -> Vec<Permission> {
        Permissions::of(&(self.options)()).of_one()
    }

    /// All that may be taken away.
    fn uses(&self) -> BTreeSet<Use> {
        let permissions = self.permissions();
        permissions
            .iter()
            .flat_map(|permission| permission.verbs.iter().map(|verb| (*verb, permission.resource)))
            .collect()
    }

    /// Tells the story without this; what the API server refused, which is nothing if all came about.
    async fn told_without(&self, missing: Option<Use>) -> Vec<(String, String)> {
        let mut world = World::new().await;
        world.clouds[0].0.pod_ranges = true;
        world.options = (self.options)();
        world.wrap = Box::new(|inner| Wrapped::loops(inner, vec![Arc::new(Visits)]));
        world.permissions =
            Some(self.permissions().into_iter().flat_map(|permission| without(permission, missing)).collect());
        world.start();
        tokio::select! {
            () = world.is_refused_something() => {}
            () = (self.story)(&world) => {}
        }
        world.refusals()
    }

    async fn needs_all_of_it(self) {
        assert_eq!(self.told_without(None).await, [], "with all rights");
        for missing in self.uses() {
            let (verb, resource) = missing;
            let refused = self.told_without(Some(missing)).await;
            assert_eq!(refused, [(verb.to_owned(), resource.to_owned())], "without {verb} {resource}");
        }
    }
}

/// The right, one for each verb of it, but for what is missing.
fn without(permission: Permission, missing: Option<Use>) -> Vec<Permission> {
    let kept = permission.verbs.iter().filter(|verb| missing != Some((**verb, permission.resource)));
    kept.map(|verb| Permission { verbs: std::slice::from_ref(verb), ..permission.clone() }).collect()
}

#[tokio::test(start_paused = true)]
async fn the_node_controller_needs_all_that_it_declares() {
    NODE.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_lifecycle_controller_needs_all_that_it_declares() {
    NODE_LIFECYCLE.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_ipam_controller_needs_all_that_it_declares() {
    NODE_IPAM.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_ipam_controller_without_a_cloud_needs_all_that_it_declares() {
    NODE_IPAM_ALONE.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_route_controller_needs_all_that_it_declares() {
    ROUTE.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_service_controller_needs_all_that_it_declares() {
    SERVICE.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_controller_of_loops_needs_all_that_it_declares() {
    PROVIDER_LOOPS.needs_all_of_it().await;
}
