//! Errors with the certificate, the floating IP or the security group of a load balancer are reported and do not prevent updates of
//! its members.

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

/// Returns the reference and the ID of a certificate.
fn certificate(world: &World) -> (String, String) {
    let id = world.cloud.add_secret(Kind::Container, "web");
    (format!("https://kms/v1/containers/{id}"), id)
}

/// Replaces a node, checks that the members are updated, and returns the error of the sync.
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
async fn members_are_updated_although_the_certificate_cannot_be_read() {
    let not_found = r#"{"code": 404, "title": "Not Found", "description": "There is no such container."}"#;
    let faults = [Fault::Answer(503, String::new()), Fault::Answer(404, not_found.to_owned()), Fault::Lost];
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
async fn a_listener_keeps_its_certificate_until_the_new_one_exists() {
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
async fn without_a_valid_certificate_listeners_are_neither_replaced_nor_created() {
    let world = World::new();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    // The reference is invalid, which is not retried before it is corrected.
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
async fn members_are_updated_although_the_floating_ip_is_attached_elsewhere() {
    let world = World::new();
    let id = world.floating_ip_by_hand("203.0.113.77");
    let mut web = world.service();
    web.request_address("203.0.113.77");
    world.ensure(&mut web).await.unwrap();
    world.cloud.edit(Kind::FloatingIp, &id, |floating| drop(floating.insert("port_id".to_owned(), json!("another"))));
    let error = with_other_nodes(&world, &mut web).await;
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::AlreadyExists, Retry::Backoff));
    assert!(error.message().contains("203.0.113.77 is not available"), "{error}");
    world.cloud.edit(Kind::FloatingIp, &id, |floating| drop(floating.insert("port_id".to_owned(), Value::Null)));
    assert_eq!(world.ensure(&mut web).await.unwrap().ip(), "203.0.113.77");
}

#[tokio::test(start_paused = true)]
async fn members_are_updated_although_no_floating_subnet_matches() {
    let mut world = World::new();
    let mut web = world.service();
    web.annotate(INTERNAL, "true");
    world.ensure(&mut web).await.unwrap();
    world.reconfigure(|config| config.load_balancer.placement.floating_subnet.name = "nowhere-*".to_owned());
    web.annotate(INTERNAL, "false");
    let before = web.annotations[LB_ADDRESS].clone();
    let error = with_other_nodes(&world, &mut web).await;
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::InvalidConfig, Retry::Backoff));
    assert!(error.message().contains("nowhere-*"), "{error}");
    assert_eq!(web.annotations[LB_ADDRESS], before);
}

#[tokio::test(start_paused = true)]
async fn members_are_updated_and_the_address_kept_although_floating_ips_cannot_be_listed() {
    let world = World::new();
    let mut web = world.service();
    let ip = world.ensure(&mut web).await.unwrap().ip().to_owned();
    world.cloud.inject(broken(Method::GET, "floatingips"));
    let error = with_other_nodes(&world, &mut web).await;
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Unavailable, Retry::Backoff));
    assert_eq!(web.annotations[LB_ADDRESS], ip);
}

#[tokio::test(start_paused = true)]
async fn members_are_updated_in_a_batch_with_failed_listings() {
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
async fn a_transient_fault_is_retried() {
    let mut world = World::new();
    world.retry();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    world.cloud.inject(broken(Method::GET, "floatingips").times(1));
    world.ensure(&mut web).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_that_timed_out_is_not_repeated() {
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
async fn members_are_updated_although_the_member_subnet_is_invisible() {
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
async fn members_are_updated_although_two_security_groups_have_the_same_name() {
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
async fn a_node_gets_the_security_group_although_the_floating_ip_quota_is_exhausted() {
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
    assert_eq!(joined.count(), 3, "the two existing ones and the new one");
}

#[tokio::test(start_paused = true)]
async fn transient_errors_are_reported_before_permanent_ones() {
    let world = World::new();
    let mut web = world.service();
    world.ensure(&mut web).await.unwrap();
    web.annotate(TLS, "https://kms/v1/orders/1");
    world.cloud.inject(broken(Method::GET, "floatingips"));
    assert_eq!(with_other_nodes(&world, &mut web).await.retry_advice(), Retry::Backoff);
    let plan = world.plan(&mut web, true).await.unwrap().1.to_string();
    let problem = |subject: &str| plan.find(&format!("{subject}: not possible: ")).unwrap();
    assert!(problem("floating IP") < problem("certificate"), "{plan}");
}
