//! Invariants of plans: the order of resources does not matter, and an applied plan leaves nothing to do.

use bowline_core::Protocol;
use proptest::prelude::*;

use crate::load_balancers::testing::Scene;

/// Changes that users make to a Service.
fn scenes() -> impl Strategy<Value = Scene> {
    let port = (prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp), Just(Protocol::Sctp)], 80_u16..84);
    let ports = prop::collection::btree_set(port, 1..5);
    let nodes = prop::collection::btree_set(1_u8..6, 0..5);
    let annotation = prop_oneof![
        Just(("proxy-protocol", "v2")),
        Just(("lb-method", "LEAST_CONNECTIONS")),
        Just(("connection-limit", "7")),
        Just(("timeout-member-data", "9000")),
        Just(("enable-health-monitor", "true")),
        Just(("health-monitor-delay", "9")),
        Just(("bowline.dev/health-check-path", "/ready")),
        Just(("bowline.dev/idle-timeout", "9s")),
        Just(("node-selector", "env")),
    ];
    let annotations = prop::collection::vec(annotation, 0..4);
    let version = prop_oneof![Just("v2.0"), Just("v2.4"), Just("v2.11"), Just("v2.15"), Just("v2.26")];
    let provider = prop_oneof![3 => Just("amphora"), 1 => Just("ovn")];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (ports, nodes, annotations, version, provider, flags).prop_map(scene)
}

type Parts = (
    std::collections::BTreeSet<(Protocol, u16)>,
    std::collections::BTreeSet<u8>,
    Vec<(&'static str, &'static str)>,
    &'static str,
    &'static str,
    (bool, bool, bool, bool),
);

fn scene((ports, nodes, annotations, version, provider, flags): Parts) -> Scene {
    let (serial, monitored, local, sticky) = flags;
    let ports: Vec<_> = ports.into_iter().collect();
    let addresses: Vec<_> = nodes.into_iter().map(|node| (format!("n{node}"), format!("I10.0.0.{node}"))).collect();
    let nodes: Vec<_> = addresses.iter().map(|(name, address)| (name.as_str(), address.as_str())).collect();
    let scene = Scene::new().provider(provider).octavia(version).ports(&ports).nodes(&nodes).configured(|section| {
        section.serial = serial;
        section.create_monitor = monitored;
    });
    let scene = if local { scene.local(31000) } else { scene };
    let scene = if sticky { scene.sticky() } else { scene };
    annotations.iter().fold(scene, |scene, (key, value)| scene.with(key, value))
}

/// The second Service in the cloud of the first.
fn after(now: &Scene, then: &Scene) -> Scene {
    let mut then = then.clone();
    // Provider and serial mode of the cloud do not change.
    then.config.load_balancer.provider.clone_from(&now.config.load_balancer.provider);
    then.config.load_balancer.serial = now.config.load_balancer.serial;
    then.seen = now.seen.clone();
    then
}

fn reversed(scene: &Scene) -> Scene {
    let mut scene = scene.clone();
    scene.nodes.reverse();
    scene.seen.listeners.reverse();
    scene.seen.pools.reverse();
    scene.seen.pools.iter_mut().for_each(|pool| pool.members.reverse());
    scene
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn after_any_change_an_applied_plan_leaves_an_empty_one(first in scenes(), second in scenes()) {
        prop_assume!(first.planned().is_ok());
        let first = first.applied();
        prop_assert_eq!(first.steps(), Vec::<String>::new());
        let second = after(&first, &second);
        prop_assume!(second.planned().is_ok());
        let second = second.applied();
        prop_assert_eq!(second.steps(), Vec::<String>::new());
        let third = after(&second, &first).applied();
        prop_assert_eq!(third.steps(), Vec::<String>::new());
    }

    #[test]
    fn the_order_of_nodes_and_observed_resources_does_not_matter(first in scenes(), second in scenes()) {
        prop_assume!(first.planned().is_ok());
        let first = first.applied();
        let second = after(&first, &second);
        prop_assume!(second.planned().is_ok());
        let sorted = |scene: &Scene| {
            let mut steps = scene.steps();
            steps.sort();
            steps
        };
        prop_assert_eq!(sorted(&second), sorted(&reversed(&second)));
        prop_assert_eq!(reversed(&second).applied().steps(), Vec::<String>::new());
    }

    #[test]
    fn ports_may_be_reordered(scene in scenes()) {
        prop_assume!(scene.planned().is_ok());
        let reversed = scene.applied().changed(|service| service.ports.reverse());
        prop_assert_eq!(reversed.steps(), Vec::<String>::new());
    }

    #[test]
    fn an_interrupted_plan_is_continued(first in scenes(), second in scenes(), done in 0_usize..12) {
        prop_assume!(first.planned().is_ok());
        let first = first.applied();
        let second = after(&first, &second);
        prop_assume!(second.planned().is_ok());
        let second = second.applied_partly(done).applied();
        prop_assert_eq!(second.steps(), Vec::<String>::new());
    }
}

#[test]
fn a_plan_is_printed_readably() {
    let scene = Scene::new().configured(|section| section.create_monitor = true).sticky().local(31000);
    let scene = scene.changed(|service| service.source_ranges = vec!["10.0.0.0/8".to_owned()]);
    let expected = "create load balancer kube_service_kubernetes_default_web
    provider: amphora
    vip_subnet_id: subnet
    allowed_cidrs: 10.0.0.0/8
    session_persistence: SOURCE_IP
    listener TCP:80: to node port 30080, pool TCP ROUND_ROBIN, health monitor HTTP /healthz at 31000 every 5 s
    members: n1 (10.0.0.1), n2 (10.0.0.2)";
    assert_eq!(scene.planned().unwrap().to_string(), expected);
    let changed = scene.applied().with("connection-limit", "5").nodes(&[("n1", "I10.0.0.1"), ("n9", "I10.0.0.9")]);
    let expected = "update listener listener_0_kube_service_kubernetes_default_web
    connection_limit: -1 -> 5
update members pool_0_kube_service_kubernetes_default_web
    added: n9 (10.0.0.9:30080, watched at 31000)
    members: n2 (10.0.0.2:30080, watched at 31000) (removed)";
    assert_eq!(changed.planned().unwrap().to_string(), expected);
}
