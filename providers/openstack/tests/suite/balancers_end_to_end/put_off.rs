//! What is wrong with the certificate, the floating IP or the security group of a balancer keeps no node from its members, and is
//! told all the same.

use bowline_cloud::{Error, ErrorKind, LoadBalancers as _, Retry};
use bowline_core::Protocol;
use bowline_openstack_simulator::{Fault, FaultSpec, Kind, Options};
use http::Method;
use serde_json::{Value, json};

use crate::balancers_end_to_end::world::{INTERNAL, LB_ADDRESS, Service, World, add_node, text};

const TLS: &str = "default-tls-container-ref";
const TLS_FIELD: &str = "default_tls_container_ref";

fn broken(method: Method, template: &str) -> FaultSpec {
    FaultSpec::always(Fault::Answer(503, String::new())).on(method, template)
}

fn managed() -> World {
    World::with(Options::default(), |config, _| config.load_balancer.manage_security_groups = true)
}

/// A certificate, as a Service refers to it.
fn certificate(world: &World) -> (String, String) {
    let id = world.cloud.add_secret(Kind::Container, "web");
    (format!("https://kms/v1/containers/{id}"), id)
}

/// A node comes and another one goes; what the pass fails with once the members are those that there are now.
async fn with_other_nodes(world: &World, service: &mut Service) -> Error {
    let (old, new) = (service.spec.targets.edit(|targets| targets.remove(0)), add_node(&world.cloud, "node-3"));
    service.spec.targets.edit(|targets| targets.push(new));
    let error = world.ensure(service).await.unwrap_err();
    let members = world.cloud.records(Kind::Member);
    let mut names: Vec<_> = members.iter().map(|member| text(member, "name")).collect();
    names.sort_unstable();
    names.dedup();
    let expected: Vec<_> = service.spec.targets.iter().map(|target| target.node.as_str()).collect();
    assert_eq!(names, expected, "without {}: {error}", old.node);
    error
}

// ---- the certificate

#[tokio::test(start_paused = true)]
async fn nodes_change_though_the_certificate_is_gone_or_nobody_can_be_asked_for_it() {
    let gone = r#"{"code": 404, "title": "Not Found", "description": "There is no such container."}"#;
    let faults = [Fault::Answer(503, String::new()), Fault::Answer(404, gone.to_owned()), Fault::Lost];
    for (fault, kind) in faults.into_iter().zip([ErrorKind::Unavailable, ErrorKind::NotFound, ErrorKind::Unavailable]) {
        let world = World::new();
        let mut web = world.service();
        let reference = certificate(&world).0;
        web.annotate(TLS, &reference);
        world.ensure(&mut web).await.unwrap();
        world.cloud.inject(FaultSpec::always(fault).on(Method::GET, "containers/{id}"));
        let error = with_other_nodes(&world, &mut web).await;
        assert_eq!((error.kind(), error.retry_advice()), (kind, Retry::Backoff), "{error}");
        assert!(error.to_string().contains(&reference), "{error}");
        world.cloud.repair_all();
        world.ensure(&mut web).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_keeps_its_certificate_until_the_next_one_is_there() {
    let world = World::new();
    let mut web = world.service();
    let (old, _) = certificate(&world);
    web.annotate(TLS, &old);
    world.ensure(&mut web).await.unwrap();
    let (new, id) = certificate(&world);
    world.cloud.inject(FaultSpec::always(Fault::Answer(404, String::new())).on(Method::GET, "containers/{id}"));
    web.annotate(TLS, &new).annotate("connection-limit", "7");
    assert!(with_other_nodes(&world, &mut web).await.to_string().contains(&id));
    let listener = world.only(Kind::Listener);
    assert_eq!((text(&listener, TLS_FIELD), &listener["connection_limit"]), (old.as_str(), &json!(7)));
    world.cloud.repair_all();
    world.ensure(&mut web).await.unwrap();
    assert_eq!(text(&world.only(Kind::Listener), TLS_FIELD), new);
}

#[tokio::test(start_paused = true)]
async fn what_is_to_speak_tls_stays_as_it_is_and_nothing_new_is_made_without_a_certificate() {
    let world = World::new();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    // Nobody can tell what this refers to: that is not tried again before somebody corrects it.
    web.annotate(TLS, "https://kms/v1/orders/1").ports(&[(Protocol::Tcp, 80, 30080), (Protocol::Tcp, 443, 30443)]);
    let error = with_other_nodes(&world, &mut web).await;
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::InvalidConfig, Retry::Never));
    assert_eq!(text(&world.only(Kind::Listener), "protocol"), "TCP");
    web.annotate(TLS, &certificate(&world).0);
    world.ensure(&mut web).await.unwrap();
    let listeners = world.cloud.records(Kind::Listener);
    assert!(listeners.iter().all(|listener| text(listener, "protocol") == "TERMINATED_HTTPS"), "{listeners:?}");
    assert_eq!(listeners.len(), 2);
}

// ---- the floating IP

#[tokio::test(start_paused = true)]
async fn nodes_change_though_somebody_else_has_the_floating_ip() {
    let world = World::new();
    let id = world.floating_ip_by_hand("203.0.113.77");
    let mut web = world.service();
    web.ask_for("203.0.113.77");
    world.ensure(&mut web).await.unwrap();
    world.cloud.edit(Kind::FloatingIp, &id, |floating| drop(floating.insert("port_id".to_owned(), json!("another"))));
    let error = with_other_nodes(&world, &mut web).await;
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::AlreadyExists, Retry::Backoff));
    assert!(error.message().contains("203.0.113.77 is not available"), "{error}");
    world.cloud.edit(Kind::FloatingIp, &id, |floating| drop(floating.insert("port_id".to_owned(), Value::Null)));
    assert_eq!(world.ensure(&mut web).await.unwrap().ip(), "203.0.113.77");
}

#[tokio::test(start_paused = true)]
async fn nodes_change_though_no_subnet_fits_the_floating_ip() {
    let mut world = World::new();
    let mut web = world.service();
    web.annotate(INTERNAL, "true");
    world.ensure(&mut web).await.unwrap();
    world.reconfigure(|config| config.load_balancer.places.floating_subnet.name = "nowhere-*".to_owned());
    web.annotate(INTERNAL, "false");
    let before = web.annotations[LB_ADDRESS].clone();
    let error = with_other_nodes(&world, &mut web).await;
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::InvalidConfig, Retry::Backoff));
    assert!(error.message().contains("nowhere-*"), "{error}");
    assert_eq!(web.annotations[LB_ADDRESS], before);
}

#[tokio::test(start_paused = true)]
async fn nodes_change_though_neutron_lists_no_floating_ips_and_the_address_is_not_forgotten() {
    let world = World::new();
    let mut web = world.service();
    let ip = world.ensure(&mut web).await.unwrap().ip().to_owned();
    world.cloud.inject(broken(Method::GET, "floatingips"));
    let error = with_other_nodes(&world, &mut web).await;
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Unavailable, Retry::Backoff));
    assert_eq!(web.annotations[LB_ADDRESS], ip);
}

#[tokio::test(start_paused = true)]
async fn it_is_the_same_where_all_is_listed_at_once() {
    let world = World::new();
    let mut services = [world.service(), world.named("other")];
    for service in &mut services {
        world.ensure(service).await.unwrap();
        service.spec.targets.edit(|targets| targets.remove(0));
    }
    for (listing, kind) in [("floatingips", "floating IP"), ("security-groups", "security group")] {
        let number = world.cloud.inject(broken(Method::GET, listing));
        let wanted = [0, 1].map(|index| world.desired(&services[index], true));
        for (desired, seen) in wanted.iter().zip(world.provider.observe(&wanted).await) {
            let plan = world.provider.plan(desired, seen.unwrap().as_ref()).unwrap();
            let steps = plan.steps.iter().map(|step| step.kind.as_str());
            let kinds: Vec<_> = steps.chain(plan.errors.iter().map(|problem| problem.subject.as_str())).collect();
            assert_eq!(kinds, ["members", kind]);
        }
        world.cloud.repair(number);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_that_is_over_at_once_is_no_problem() {
    let mut world = World::new();
    world.retry();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    world.cloud.inject(broken(Method::GET, "floatingips").times(1));
    world.ensure(&mut web).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_who_takes_long_to_fail_is_not_asked_again() {
    let world = World::new();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    world
        .cloud
        .inject(FaultSpec::always(Fault::Slow(std::time::Duration::from_secs(90))).on(Method::GET, "floatingips"));
    world.cloud.forget_calls();
    let error = with_other_nodes(&world, &mut web).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(world.cloud.counts()["GET floatingips"], 1);
}

// ---- the security group

#[tokio::test(start_paused = true)]
async fn nodes_change_though_the_member_subnet_is_not_to_be_seen() {
    let world = managed();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    world.cloud.inject(
        FaultSpec::always(Fault::Answer(404, r#"{"NeutronError": {"type": "SubnetNotFound"}}"#.to_owned()))
            .on(Method::GET, "subnets/{id}"),
    );
    let error = with_other_nodes(&world, &mut web).await;
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::InvalidConfig, Retry::Backoff));
    assert!(error.message().contains("where the members should be"), "{error}");
    world.cloud.repair_all();
    world.ensure(&mut web).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nodes_change_though_there_are_two_groups_of_one_name() {
    let world = managed();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    let group = world.groups().remove(0);
    let twin =
        world.cloud.add(Kind::SecurityGroup, json!({"name": group["name"], "description": group["description"]}));
    let error = with_other_nodes(&world, &mut web).await;
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Conflict, Retry::Backoff));
    world.cloud.remove(Kind::SecurityGroup, &twin);
    world.ensure(&mut web).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_joins_the_group_though_there_is_no_room_for_a_floating_ip() {
    let world = managed();
    let mut web = world.service();
    web.annotate(INTERNAL, "true");
    world.ensure(&mut web).await.unwrap();
    world.cloud.set_quota("floatingip", Some(0));
    web.annotate(INTERNAL, "false");
    assert_eq!(with_other_nodes(&world, &mut web).await.kind(), ErrorKind::QuotaExceeded);
    let group = world.groups().remove(0);
    let ports = world.cloud.records(Kind::Port);
    let joined = ports.iter().filter(|port| port["security_groups"].as_array().unwrap().contains(&group["id"]));
    assert_eq!(joined.count(), 3, "the two that were there, and the new one");
}

#[tokio::test(start_paused = true)]
async fn what_can_be_over_soon_is_told_before_what_somebody_must_correct() {
    let world = World::new();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    web.annotate(TLS, "https://kms/v1/orders/1");
    world.cloud.inject(broken(Method::GET, "floatingips"));
    assert_eq!(with_other_nodes(&world, &mut web).await.retry_advice(), Retry::Backoff);
    let plan = world.look(&mut web, true).await.unwrap().1.to_string();
    let problem = |subject: &str| plan.find(&format!("{subject}: not possible: ")).unwrap();
    assert!(problem("floating IP") < problem("certificate"), "{plan}");
}
