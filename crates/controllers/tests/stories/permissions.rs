//! Every declared permission is needed: the story of each controller passes with its declared permissions, and fails without any
//! one verb.
//!
//! The verbs come from the declarations, so that a permission which no controller or no story uses fails the test. All other
//! stories prove the reverse: no controller needs more than its declared permissions.

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

use crate::node_ipam::{ONE, hit_writes, options as ipam_options, pod_cidrs, status, wait_for_pod_cidrs};
use crate::provider_loops::{VISITED, Visits, annotation};
use crate::test_providers::Wrapped;
use crate::world::{SHUTDOWN, UNINITIALIZED, World, addresses, has_taint, machine};

/// Controller with a story that uses all of its permissions.
struct Case {
    /// Options of the manager.
    options: fn() -> ManagerOptions,
    /// Uses all permissions. Ends on success only.
    story: for<'a> fn(&'a World) -> Story<'a>,
}

type Story<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Verb and resource, such as `patch nodes/status`.
type Use = (&'static str, &'static str);

fn no_controllers() -> ManagerOptions {
    ManagerOptions { node: None, node_lifecycle: None, service: None, ..ManagerOptions::default() }
}

const NODE: Case = Case {
    options: || ManagerOptions { node: Some(node::Options::default()), ..no_controllers() },
    story: |world| Box::pin(initialize(world)),
};

const NODE_LIFECYCLE: Case = Case {
    options: || ManagerOptions { node_lifecycle: Some(node_lifecycle::Options::default()), ..no_controllers() },
    story: |world| Box::pin(taint_and_delete(world)),
};

const NODE_IPAM: Case = Case {
    options: || {
        let allocator: node_ipam::Options = ipam_options(ONE, AllocatorType::FromCloud);
        ManagerOptions { node_ipam: Some(allocator), ..no_controllers() }
    },
    story: |world| Box::pin(write_cloud_cidrs(world)),
};

/// The allocator without a cloud has fewer permissions.
const NODE_IPAM_ALONE: Case = Case {
    options: || ManagerOptions {
        node_ipam: Some(ipam_options(&[("10.10.0.0/32", 32)], AllocatorType::Range)),
        ..no_controllers()
    },
    story: |world| Box::pin(allocate_blocks(world)),
};

const ROUTE: Case = Case {
    options: || {
        let ranges = vec!["10.120.0.0/16".parse().unwrap()];
        let route = bowline_controllers::route::Options::new("kubernetes".into(), ranges);
        ManagerOptions { route: Some(route), ..no_controllers() }
    },
    story: |world| Box::pin(create_routes(world)),
};

const SERVICE: Case = Case {
    options: || ManagerOptions { service: Some(service::Options::default()), ..no_controllers() },
    story: |world| Box::pin(ensure_and_delete(world)),
};

const PROVIDER_LOOPS: Case = Case {
    options: || {
        let options = provider_loops::Options { cluster: "kubernetes".into() };
        ManagerOptions { provider_loops: Some(options), ..no_controllers() }
    },
    story: |world| Box::pin(annotate(world)),
};

// ---- the stories

/// A Node is initialised despite a conflict, and again when its taint is added again.
async fn initialize(world: &World) {
    world.register("a").await;
    world.fail("patch", "nodes", 409, Some(1));
    world.cloud().add(machine("a", "i-a", &["I10.0.0.1"])).unwrap();
    world.wait_until_initialized("a").await;
    let addressed =
        async || addresses(&world.node("a").await).contains(&"InternalIP 10.0.0.1".to_owned()).then_some(());
    world.eventually("the Node has the address of its machine", addressed).await;
    let taint = json!([{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]);
    world.patch("a", json!({"spec": {"taints": taint}})).await;
    world.wait_for_repeated_event("a", "Synced").await;
}

/// The Node of a stopped machine is tainted despite a conflict, and that of a deleted machine is deleted on the second attempt.
async fn taint_and_delete(world: &World) {
    for name in ["stops", "vanishes", "stays"] {
        world.cloud().add(machine(name, &format!("i-{name}"), &[])).unwrap();
        world.join(name, &format!("local://i-{name}"), "True").await;
    }
    world.set_ready("stops", "False").await;
    world.fail("patch", "nodes", 409, Some(1));
    world.cloud().stop("i-stops").unwrap();
    world
        .eventually("the shutdown taint", async || has_taint(&world.node("stops").await, SHUTDOWN).then_some(()))
        .await;
    world.fail("delete", "nodes", 422, Some(1));
    world.cloud().delete("i-vanishes").unwrap();
    world.set_ready("vanishes", "False").await;
    world.wait_for_repeated_event("vanishes", "DeletingNode").await;
    world.wait_until_deleted("vanishes").await;
}

/// A Node gets its pod CIDR after the cloud has assigned several invalid ones, despite failed writes.
async fn write_cloud_cidrs(world: &World) {
    world.cloud().add(machine("a", "i-a", &[])).unwrap();
    world.join("a", "local://i-a", "True").await;
    for range in ["192.168.1.0/24", "192.168.2.0/24", "192.168.1.0/24"] {
        world.cloud().change("i-a", |machine| machine.pod_ranges = vec![range.parse().unwrap()]).unwrap();
        world.sleep(Duration::from_secs(600)).await;
    }
    world.wait_for_repeated_event("a", "CloudCIDRAllocatorInvalidPodCIDR").await;
    world.fail("patch", "nodes", 500, Some(4));
    world.cloud().change("i-a", |machine| machine.pod_ranges = vec!["10.10.7.0/24".parse().unwrap()]).unwrap();
    world.wait_for_condition("a", "False", "RouteCreated").await;
    assert_eq!(pod_cidrs(&world.node("a").await), ["10.10.7.0/24"]);
}

/// A Node finds the only block in use, then cannot be written, and finds the block in use once more before it gets it.
async fn allocate_blocks(world: &World) {
    world.register("b").await;
    wait_for_pod_cidrs(world, "b").await;
    world.register("a").await;
    world.wait_for_event("a", "CIDRNotAvailable").await;
    hit_writes(world, "a", status(422), None);
    world.delete("b").await;
    world.wait_for_event("a", "CIDRAssignmentFailed").await;
    world.register("c").await;
    world.wait_for_repeated_event("a", "CIDRNotAvailable").await;
    world.server.faults().clear();
    world.delete("c").await;
    wait_for_pod_cidrs(world, "a").await;
}

/// A route is created on the second attempt, also after a user has deleted it.
async fn create_routes(world: &World) {
    let fails_once = FaultSpec::always(Fault::Failing(403)).on("create-route").times(1);
    let leads = async || world.cloud().routes("kubernetes").pop();
    world.cloud().inject(fails_once.clone());
    world.add_machine("a");
    world.join_with_cidrs("a", &["10.120.0.0/24"]).await;
    let route = world.eventually("there is a route", leads).await;
    world.wait_until_reachable("a").await;
    world.cloud().inject(fails_once);
    world.cloud().remove_route("kubernetes", &route.id).unwrap();
    world.eventually("there is a route again", leads).await;
    world.wait_for_repeated_event("a", "FailedToCreateRoute").await;
}

/// A Service gets a load balancer, which is deleted with retries after its finalizer was removed.
async fn ensure_and_delete(world: &World) {
    world.join_machine("a", 0).await;
    world.create_service("web").await;
    world.wait_for_address("web").await;
    world.wait_for_targets(&["a"]).await;
    world.patch_service("web", json!({"spec": {"ports": [{"port": 81}]}})).await;
    world.wait_for_repeated_event("web", "EnsuringLoadBalancer").await;
    world.cloud().inject(FaultSpec::always(Fault::Failing(500)).on("delete-balancer"));
    world.delete_service("web").await;
    world.wait_for_event("web", "SyncLoadBalancerFailed").await;
    world.patch_service("web", json!({"metadata": {"finalizers": null}})).await;
    world.cloud().repair_all();
    world.eventually("the load balancer is deleted", async || world.cloud().balancers().is_empty().then_some(())).await;
}

/// A loop annotates a Node, fails, succeeds, and fails once more.
async fn annotate(world: &World) {
    world.join("a", "local://i-a", "True").await;
    let annotated = async || annotation(&world.node("a").await, VISITED);
    world.eventually("the annotation", annotated).await;
    for fail in [json!("true"), json!(null), json!("true")] {
        world.patch("a", json!({"metadata": {"labels": {"fail": fail}}})).await;
        world.sleep(Duration::from_secs(60)).await;
    }
    world.wait_for_repeated_event("cloud-controller-manager", "ProviderLoopFailed").await;
}

impl World {
    /// Waits until an Event with this reason has a count of more than one.
    async fn wait_for_repeated_event(&self, name: &str, reason: &str) {
        let again = |event: &Event| {
            let about = event.involved_object.name.as_deref() == Some(name);
            about && event.reason.as_deref() == Some(reason) && event.count > Some(1)
        };
        let what = format!("{name}: {reason} is counted");
        self.eventually(&what, async || self.events().await.iter().any(again).then_some(())).await;
    }

    /// Requests that the API server has denied.
    fn denied(&self) -> Vec<(String, String)> {
        let denied = self.server.requests().into_keys().filter(|kind| kind.code == 403);
        let denied = denied.map(|kind| {
            let resource = format!("{}/{}", kind.resource, kind.subresource);
            (kind.verb.to_owned(), resource.trim_end_matches('/').to_owned())
        });
        denied.collect()
    }

    async fn wait_until_denied(&self) {
        while self.denied().is_empty() {
            self.sleep(Duration::from_millis(500)).await;
        }
    }
}

// ---- with and without

impl Case {
    fn permissions(&self) -> Vec<Permission> {
        Permissions::of(&(self.options)()).of_one()
    }

    /// All declared verbs.
    fn uses(&self) -> BTreeSet<Use> {
        let permissions = self.permissions();
        permissions
            .iter()
            .flat_map(|permission| permission.verbs.iter().map(|verb| (*verb, permission.resource)))
            .collect()
    }

    /// Runs the story without this verb. Returns the denied requests, or none if the story succeeded.
    async fn run_without(&self, missing: Option<Use>) -> Vec<(String, String)> {
        let mut world = World::new().await;
        world.clouds[0].0.pod_ranges = true;
        world.options = (self.options)();
        world.wrap = Box::new(|inner| Wrapped::loops(inner, vec![Arc::new(Visits)]));
        world.permissions =
            Some(self.permissions().into_iter().flat_map(|permission| without(permission, missing)).collect());
        world.start();
        tokio::select! {
            () = world.wait_until_denied() => {}
            () = (self.story)(&world) => {}
        }
        world.denied()
    }

    async fn needs_all_of_it(self) {
        assert_eq!(self.run_without(None).await, [], "with all permissions");
        for missing in self.uses() {
            let (verb, resource) = missing;
            let denied = self.run_without(Some(missing)).await;
            assert_eq!(denied, [(verb.to_owned(), resource.to_owned())], "without {verb} {resource}");
        }
    }
}

/// Splits a permission by verb, without the missing one.
fn without(permission: Permission, missing: Option<Use>) -> Vec<Permission> {
    let kept = permission.verbs.iter().filter(|verb| missing != Some((**verb, permission.resource)));
    kept.map(|verb| Permission { verbs: std::slice::from_ref(verb), ..permission.clone() }).collect()
}

#[tokio::test(start_paused = true)]
async fn the_node_controller_needs_all_declared_permissions() {
    NODE.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_lifecycle_controller_needs_all_declared_permissions() {
    NODE_LIFECYCLE.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_ipam_controller_needs_all_declared_permissions() {
    NODE_IPAM.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_ipam_controller_without_a_cloud_needs_all_declared_permissions() {
    NODE_IPAM_ALONE.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_route_controller_needs_all_declared_permissions() {
    ROUTE.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_service_controller_needs_all_declared_permissions() {
    SERVICE.needs_all_of_it().await;
}

#[tokio::test(start_paused = true)]
async fn the_provider_loop_controller_needs_all_declared_permissions() {
    PROVIDER_LOOPS.needs_all_of_it().await;
}
