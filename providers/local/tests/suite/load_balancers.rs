//! Load balancers: plans and steps of the provider, and the rules of the cloud.
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{Applied, CloudProvider, Error, ErrorKind, LoadBalancers, Retry};
use bowline_core::annotations::{DeletionPolicy, LoadBalancerSettings, ProxyProtocol};
use bowline_core::testing::{addresses, desired, target};
use bowline_core::{
    ClusterName, DesiredLoadBalancer, HealthCheck, IpFamily, IpMode, LoadBalancerSpec, LoadBalancerState, Opaque, Plan,
    PortSpec, Progress, Protocol, ProviderId, SessionAffinity, TargetNode,
};
use bowline_local::{
    Balancer, BalancerCheck, BalancerOptions, BalancerSettings, CloudError, CloudOptions, Config, Fault, FaultSpec,
    Listener, LocalCloud, LocalProvider, NewBalancer, RuleError,
};
use bowline_simulator::drive::Driver;

struct World {
    cloud: LocalCloud,
    provider: LocalProvider,
}

impl World {
    fn new() -> World {
        World::with(BalancerOptions::default())
    }

    fn with(balancers: BalancerOptions) -> World {
        let cloud = LocalCloud::open(CloudOptions { balancers, ..CloudOptions::default() }).unwrap();
        World { provider: LocalProvider::in_process(cloud.clone(), &Config::default()), cloud }
    }

    fn balancers(&self) -> &dyn LoadBalancers {
        self.provider.load_balancers().unwrap()
    }

    async fn observe(&self, desired: &DesiredLoadBalancer) -> Result<Option<LoadBalancerState>, Error> {
        Driver::new(self.balancers()).observe(desired).await
    }

    async fn plan(&self, desired: &DesiredLoadBalancer) -> Result<Plan, Error> {
        let state = self.observe(desired).await?;
        self.balancers().plan(desired, state.as_ref())
    }

    /// Plans and applies, checks that the last step returns the observed state, and returns the kinds of calls.
    async fn converge(&self, desired: &DesiredLoadBalancer) -> Result<Vec<String>, Error> {
        self.cloud.reset_calls();
        let plan = self.plan(desired).await?;
        let mut last = None;
        for step in &plan.steps {
            last = Some(self.balancers().apply(&desired.key, step, None).await?);
        }
        let calls: Vec<_> = self.cloud.calls().into_iter().filter(|(kind, _)| kind != "observe-balancers").collect();
        assert_eq!(self.cloud.writes(), plan.steps.len() as u64, "one write call per step: {plan}");
        if let Some(Applied::Observed(state)) = last {
            assert_eq!(state, self.observe(desired).await?, "the response is the observed state");
        }
        assert!(self.plan(desired).await?.is_empty(), "an applied plan is empty");
        Ok(calls.into_iter().map(|(kind, count)| format!("{kind} {count}")).collect())
    }

    async fn ingress(&self, desired: &DesiredLoadBalancer) -> Vec<String> {
        let state = self.observe(desired).await.unwrap();
        state.map(|state| state.status.ingress.into_iter().filter_map(|entry| entry.ip).collect()).unwrap_or_default()
    }

    fn only(&self) -> Balancer {
        let mut balancers = self.cloud.balancers();
        assert_eq!(balancers.len(), 1, "{balancers:?}");
        balancers.remove(0)
    }

    fn is_empty(&self) -> bool {
        self.cloud.balancers().is_empty() && self.cloud.addresses().is_empty()
    }
}

fn changed(desired: &DesiredLoadBalancer, change: impl FnOnce(&mut LoadBalancerSpec)) -> DesiredLoadBalancer {
    let mut desired = desired.clone();
    change(Arc::make_mut(desired.spec.as_mut().unwrap()));
    desired
}

fn set(desired: &DesiredLoadBalancer, change: impl FnOnce(&mut LoadBalancerSettings)) -> DesiredLoadBalancer {
    let mut desired = desired.clone();
    change(Arc::make_mut(&mut desired.settings));
    desired
}

fn deleted(desired: &DesiredLoadBalancer) -> DesiredLoadBalancer {
    DesiredLoadBalancer { spec: None, ..desired.clone() }
}

fn port(protocol: Protocol, port: u16) -> PortSpec {
    PortSpec { name: String::new(), protocol, port, node_port: Some(port + 30000), app_protocol: None }
}

fn with_port(number: u16) -> impl FnOnce(&mut LoadBalancerSpec) {
    move |spec| spec.ports = vec![port(Protocol::Tcp, number)]
}

fn foreign(name: &str) -> NewBalancer {
    NewBalancer { name: name.to_owned(), ..NewBalancer::default() }
}

fn web() -> DesiredLoadBalancer {
    desired("shop/web", &["n1", "n2"])
}

#[tokio::test]
async fn a_load_balancer_has_an_address_and_is_deleted_completely() {
    let world = World::new();
    let desired = web();
    assert_eq!(world.converge(&desired).await.unwrap(), ["create-address 1", "create-balancer 1"]);
    assert_eq!(world.ingress(&desired).await, ["127.0.32.1"]);
    let balancer = world.only();
    assert_eq!((balancer.name.as_str(), balancer.owner.as_ref()), ("auidofweb", Some(&desired.key)));
    assert_eq!(balancer.targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(), ["n1", "n2"]);
    assert_eq!(world.converge(&desired).await.unwrap(), [""; 0], "the second sync writes nothing");
    assert_eq!(world.converge(&deleted(&desired)).await.unwrap(), ["delete-address 1", "delete-balancer 1"]);
    assert!(world.is_empty());
    assert_eq!(world.observe(&desired).await.unwrap(), None);
    assert!(world.plan(&deleted(&desired)).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_plan_is_readable() {
    let world = World::new();
    let text = "create address (IPv4)
    owner: shop/web (kubernetes)
create load balancer auidofweb
    owner: shop/web (kubernetes)
    listeners: 80/TCP to 30080
    health check: TCP on the node port every 3000 ms
    target n1: 10.0.0.1
    target n2: ";
    let desired = changed(&web(), |spec| {
        spec.targets.edit(|targets| targets[0].addresses = addresses("Hn1 E1.2.3.4 I10.0.0.1 I10.0.0.2"));
    });
    assert_eq!(world.plan(&desired).await.unwrap().to_string(), text);
    world.converge(&desired).await.unwrap();
    let desired = changed(&desired, |spec| {
        spec.targets.edit(|targets| {
            targets[0].draining = true;
            targets.remove(1)
        });
    });
    let text = "update load balancer auidofweb
    target n1: 10.0.0.1 -> 10.0.0.1 (draining)
    target n2:  (removed)";
    assert_eq!(world.plan(&desired).await.unwrap().to_string(), text);
    let text = "delete load balancer auidofweb\ndelete address 127.0.32.1";
    assert_eq!(world.plan(&deleted(&desired)).await.unwrap().to_string(), text);
}

#[tokio::test]
async fn all_settings_are_updated_in_one_call() {
    let world = World::new();
    let desired = web();
    world.converge(&desired).await.unwrap();
    let desired = changed(&desired, |spec| {
        spec.ports.push(port(Protocol::Udp, 53));
        spec.source_ranges = vec!["10.0.0.0/8".parse().unwrap()];
        spec.session_affinity = SessionAffinity::ClientIp { timeout_seconds: 60 };
        spec.health_check = Some(HealthCheck { path: "/healthz".to_owned(), port: 31000 });
        spec.targets.edit(Vec::pop);
    });
    let desired = set(&desired, |settings| {
        settings.proxy_protocol = Some(ProxyProtocol::V2);
        settings.idle_timeout = Some(Duration::from_secs(90));
        settings.health_check_interval = Some(Duration::from_secs(1));
    });
    assert_eq!(world.converge(&desired).await.unwrap(), ["update-balancer 1"]);
    let expected = BalancerSettings {
        internal: false,
        listeners: vec![
            Listener { protocol: Protocol::Udp, port: 53, node_port: 30053 },
            Listener { protocol: Protocol::Tcp, port: 80, node_port: 30080 },
        ],
        source_ranges: vec!["10.0.0.0/8".parse().unwrap()],
        affinity_seconds: Some(60),
        health_check: Some(BalancerCheck {
            path: Some("/healthz".to_owned()),
            port: Some(31000),
            interval_millis: 1000,
        }),
        proxy_protocol: Some(ProxyProtocol::V2),
        idle_timeout_millis: Some(90_000),
    };
    assert_eq!(world.only().settings, expected);
    assert_eq!(world.only().targets.len(), 1);
    let desired = set(&desired, |settings| settings.health_check_path = Some("/elsewhere".to_owned()));
    assert_eq!(world.converge(&desired).await.unwrap(), ["update-balancer 1"]);
    let check = world.only().settings.health_check.unwrap();
    assert_eq!((check.path.as_deref(), check.port), (Some("/elsewhere"), Some(31000)), "the annotation wins");
}

#[tokio::test]
async fn a_change_of_targets_is_one_call() {
    let world = World::new();
    let desired = web();
    world.converge(&desired).await.unwrap();
    let more = changed(&desired, |spec| {
        let third = TargetNode { provider_id: Some(ProviderId::of("local", "i-0003")), ..target("n3") };
        spec.targets.edit(|targets| targets.insert(0, third));
    });
    assert_eq!(world.converge(&more).await.unwrap(), ["update-targets 1"]);
    let machines: Vec<_> = world.only().targets.iter().map(|target| target.machine.clone()).collect();
    assert_eq!(machines, [None, None, Some("i-0003".to_owned())], "only machines of this cloud have an ID");
}

#[tokio::test]
async fn a_leaving_target_is_kept_and_never_added() {
    let world = World::new();
    let leaving = changed(&web(), |spec| spec.targets.edit(|targets| targets[0].draining = true));
    world.converge(&leaving).await.unwrap();
    assert_eq!(world.only().targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(), ["n2"]);
    world.converge(&web()).await.unwrap();
    assert_eq!(world.converge(&leaving).await.unwrap(), ["update-targets 1"]);
    let draining: Vec<_> = world.only().targets.iter().map(|target| (target.name.clone(), target.draining)).collect();
    assert_eq!(draining, [("n1".to_owned(), true), ("n2".to_owned(), false)]);
}

#[tokio::test]
async fn a_requested_address_is_assigned_or_rejected() {
    let world = World::new();
    let requesting =
        |desired: &DesiredLoadBalancer, ip: &str| changed(desired, |spec| spec.requested_address = Some(ip.to_owned()));
    let desired = requesting(&web(), "127.0.40.7");
    world.converge(&desired).await.unwrap();
    assert_eq!(world.ingress(&desired).await, ["127.0.40.7"]);
    let moved = requesting(&desired, "127.0.40.8");
    let calls = ["create-address 1", "delete-address 1", "update-balancer 1"];
    assert_eq!(world.converge(&moved).await.unwrap(), calls);
    assert_eq!(world.ingress(&moved).await, ["127.0.40.8"]);
    assert_eq!(world.cloud.addresses().len(), 1);
    assert_eq!(world.converge(&web()).await.unwrap(), [""; 0], "without a request the address is kept");

    let other = desired_for("shop/other");
    let table = [
        ("127.0.40.8", ErrorKind::AlreadyExists, "shop/web"),
        ("10.1.1.1", ErrorKind::InvalidConfig, "10.1.1.1 is not in the pool of the cloud"),
        ("::1", ErrorKind::InvalidConfig, "families"),
        ("invalid", ErrorKind::InvalidConfig, "not an IP address"),
    ];
    for (ip, kind, expected) in table {
        let error = world.plan(&requesting(&other, ip)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{ip}: {error}");
        assert!(error.to_string().contains(expected), "{ip}: {error}");
    }
}

fn desired_for(key: &str) -> DesiredLoadBalancer {
    desired(key, &["n1"])
}

#[tokio::test]
async fn addresses_are_in_the_order_of_the_desired_families() {
    let pool = vec!["10.0.0.0/24".parse().unwrap(), "fd00::/120".parse().unwrap()];
    let world = World::with(BalancerOptions { pool, ..BalancerOptions::default() });
    let families = |list: &[IpFamily]| changed(&web(), |spec| spec.ip_families = list.to_vec());
    let dual = families(&[IpFamily::IPv6, IpFamily::IPv4]);
    assert_eq!(world.converge(&dual).await.unwrap(), ["create-address 2", "create-balancer 1"]);
    assert_eq!(world.ingress(&dual).await, ["fd00::1", "10.0.0.1"]);
    let single = families(&[IpFamily::IPv4]);
    assert_eq!(world.converge(&single).await.unwrap(), ["delete-address 1", "update-balancer 1"]);
    assert_eq!(world.ingress(&single).await, ["10.0.0.1"]);
    assert_eq!(world.converge(&families(&[])).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn an_empty_pool_is_a_quota_error() {
    let world = World::with(BalancerOptions { pool: vec![], ..BalancerOptions::default() });
    let error = world.converge(&web()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
}

#[tokio::test]
async fn an_internal_load_balancer_has_an_internal_address() {
    let world = World::new();
    world.converge(&web()).await.unwrap();
    let internal = set(&web(), |settings| settings.internal = true);
    world.converge(&internal).await.unwrap();
    assert_eq!(world.ingress(&internal).await, ["127.0.48.1"]);
    assert_eq!((world.cloud.addresses().len(), world.only().settings.internal), (1, true));
}

#[tokio::test]
async fn services_of_a_share_group_share_an_address_until_the_last_is_deleted() {
    let world = World::new();
    let group = |key: &str, number: u16| {
        set(&changed(&desired_for(key), with_port(number)), |settings| settings.share_group = Some("g".to_owned()))
    };
    let (first, second, elsewhere) = (group("shop/a", 80), group("shop/b", 443), group("bank/c", 80));
    for desired in [&first, &second, &elsewhere] {
        world.converge(desired).await.unwrap();
    }
    assert_eq!(world.ingress(&first).await, world.ingress(&second).await);
    assert_ne!(world.ingress(&first).await, world.ingress(&elsewhere).await, "another namespace never shares");
    let conflicting = group("shop/d", 443);
    let error = world.plan(&conflicting).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("443/TCP") && error.to_string().contains("shop/b"), "{error}");
    let moved = changed(&first, with_port(443));
    assert_eq!(world.plan(&moved).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    world.converge(&deleted(&first)).await.unwrap();
    assert_eq!(world.ingress(&second).await.len(), 1, "the address is kept while a Service of the group uses it");
    for desired in [&second, &elsewhere] {
        world.converge(&deleted(desired)).await.unwrap();
    }
    assert!(world.is_empty());
}

#[tokio::test]
async fn a_conflict_is_rejected_with_its_owner_and_left_unchanged() {
    let world = World::new();
    let desired = web();
    let other = desired_for("bank/other").key;
    let namesake = NewBalancer { owner: Some(other), ..foreign("auidofweb") };
    let namesake = world.cloud.add_balancer(namesake).unwrap();
    let error = world.plan(&desired).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::AlreadyExists, Retry::Never));
    assert!(error.to_string().contains("bank/other"), "{error}");
    assert!(world.plan(&deleted(&desired)).await.unwrap().is_empty(), "a foreign load balancer is not deleted");
    assert_eq!(world.observe(&deleted(&desired)).await.unwrap(), None);
    assert_eq!(world.only(), namesake);
    world.cloud.delete_balancer(&namesake.id).unwrap();
    assert!(world.is_empty());
    world.converge(&desired).await.unwrap();
}

#[tokio::test]
async fn the_cloud_rejects_a_stale_plan_that_conflicts() {
    let world = World::new();
    let desired = web();
    let plan = world.plan(&desired).await.unwrap();
    world.cloud.add_balancer(foreign("auidofweb")).unwrap();
    world.balancers().apply(&desired.key, &plan.steps[0], None).await.unwrap();
    let error = world.balancers().apply(&desired.key, &plan.steps[1], None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_eq!(world.plan(&desired).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    world.converge(&deleted(&desired)).await.unwrap();
    assert_eq!((world.cloud.balancers().len(), world.cloud.addresses().len()), (1, 1), "only the foreign one is left");
}

#[tokio::test]
async fn only_the_annotation_adopts_and_only_load_balancers_without_owner() {
    let world = World::new();
    let adopting = |name: &str| set(&web(), |settings| settings.adopt = Some(name.to_owned()));
    assert_eq!(world.plan(&adopting("old")).await.unwrap_err().kind(), ErrorKind::NotFound);
    let old = world.cloud.add_balancer(foreign("old")).unwrap();
    let theirs = NewBalancer { owner: Some(desired_for("bank/other").key), ..foreign("theirs") };
    world.cloud.add_balancer(theirs).unwrap();
    let error = world.plan(&adopting("theirs")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::AlreadyExists && error.to_string().contains("bank/other"), "{error}");
    // The second time it already has the desired settings.
    let (by_name, by_id) = (vec!["adopt-balancer 1", "update-balancer 1"], vec!["adopt-balancer 1"]);
    for (desired, calls) in [(adopting("old"), by_name), (adopting(&old.id), by_id)] {
        assert_eq!(world.converge(&desired).await.unwrap(), calls);
        let adopted = world.cloud.balancer(&old.id).unwrap();
        assert_eq!((adopted.name.as_str(), adopted.addresses.clone()), ("old", old.addresses.clone()));
        let retained = set(&deleted(&desired), |settings| settings.policy = DeletionPolicy::Retain);
        assert_eq!(world.converge(&retained).await.unwrap(), ["release-balancer 1"]);
        assert_eq!(
            world.cloud.balancer(&old.id).unwrap(),
            Balancer { owner: None, ..adopted },
            "nothing else has changed"
        );
        assert_eq!(world.balancers().list(&ClusterName::from("kubernetes")).await.unwrap().len(), 1);
    }
    world.converge(&web()).await.unwrap();
    assert_eq!(
        world.plan(&adopting("old")).await.unwrap_err().kind(),
        ErrorKind::InvalidConfig,
        "a Service has one load balancer"
    );
    assert!(world.plan(&adopting("auidofweb")).await.unwrap().is_empty(), "adopting an owned one is a no-op");
}

#[tokio::test]
async fn steps_are_idempotent() {
    let world = World::new();
    let desired = web();
    let adopt = set(&desired_for("shop/adopter"), |settings| settings.adopt = Some("old".to_owned()));
    world.cloud.add_balancer(foreign("old")).unwrap();
    let retained = set(&deleted(&adopt), |settings| settings.policy = DeletionPolicy::Retain);
    let fewer = changed(&desired, |spec| drop(spec.targets.edit(Vec::pop)));
    for desired in [desired.clone(), fewer, deleted(&desired), adopt, retained] {
        let plan = world.plan(&desired).await.unwrap();
        assert!(!plan.is_empty());
        for step in &plan.steps {
            world.balancers().apply(&desired.key, step, None).await.unwrap();
            world.balancers().apply(&desired.key, step, None).await.unwrap();
        }
        for step in &plan.steps {
            let again = world.balancers().apply(&desired.key, step, None).await;
            let is_superseded = matches!(&again, Err(error) if error.kind() == ErrorKind::AlreadyExists);
            assert!(again.is_ok() || is_superseded, "{step}: {again:?}");
        }
    }
    assert_eq!(world.cloud.balancers().len(), 1);
}

#[tokio::test]
async fn all_owners_are_listed_whatever_the_page_size() {
    let options = CloudOptions { page_size: 2, ..CloudOptions::default() };
    let cloud = LocalCloud::open(options).unwrap();
    let world = World { provider: LocalProvider::in_process(cloud.clone(), &Config::default()), cloud };
    for name in ["e", "a", "d", "b", "c"] {
        world.converge(&desired_for(&format!("shop/{name}"))).await.unwrap();
    }
    world.cloud.reset_calls();
    let keys = world.balancers().list(&ClusterName::from("kubernetes")).await.unwrap();
    assert_eq!(keys.iter().map(|key| key.service.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
    assert_eq!(world.cloud.calls()["list-balancers"], 3);
    assert!(world.balancers().list(&ClusterName::from("other")).await.unwrap().is_empty());
    let desired: Vec<_> = keys.iter().take(2).map(|key| desired_for(&format!("shop/{}", key.service))).collect();
    world.cloud.reset_calls();
    assert!(world.balancers().observe(&desired).await.iter().all(|state| matches!(state, Ok(Some(_)))));
    assert!(world.balancers().observe(&[]).await.is_empty());
    assert_eq!(world.cloud.calls()["observe-balancers"], 1);
}

#[tokio::test(start_paused = true)]
async fn during_a_change_there_is_no_plan() {
    let work_time = Duration::from_secs(30);
    let world = World::with(BalancerOptions { work_time, ..BalancerOptions::default() });
    let desired = web();
    let plan = world.plan(&desired).await.unwrap();
    let half = world.balancers().apply(&desired.key, &plan.steps[0], None).await.unwrap();
    let Applied::Started(operation) = half else { panic!("{half:?}") };
    assert_eq!(world.balancers().poll(&desired.key, &operation).await.unwrap(), Progress::Running);
    let state = world.balancers().observe(std::slice::from_ref(&desired)).await.remove(0).unwrap().unwrap();
    assert_eq!(state.pending.as_ref(), Some(&operation));
    tokio::time::sleep(Duration::from_secs(20)).await;
    // The maximum poll interval is ten seconds, and so is the remaining time.
    let rest = (ErrorKind::InProgress, Retry::After(work_time / 3));
    let advice = |error: Error| (error.kind(), error.retry_advice());
    for desired in [&desired, &deleted(&desired)] {
        assert_eq!(advice(world.plan(desired).await.unwrap_err()), rest);
        assert_eq!(world.balancers().plan(desired, Some(&state)).unwrap_err().kind(), ErrorKind::InProgress);
    }
    assert_eq!(advice(world.balancers().apply(&desired.key, &plan.steps[1], None).await.unwrap_err()), rest);
    assert!(!world.plan(&desired_for("shop/other")).await.unwrap().is_empty(), "other Services are not affected");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.balancers().poll(&desired.key, &operation).await.unwrap(), Progress::Done(Opaque::new(())));
    world.balancers().apply(&desired.key, &plan.steps[1], None).await.unwrap();
    tokio::time::sleep(work_time).await;
    let later = changed(&desired, |spec| drop(spec.targets.edit(Vec::pop)));
    let plan = world.plan(&later).await.unwrap();
    world.balancers().apply(&desired.key, &plan.steps[0], None).await.unwrap();
    let error = world.balancers().apply(&desired.key, &plan.steps[0], None).await.unwrap_err();
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::InProgress, Retry::After(work_time)));
    tokio::time::sleep(work_time).await;
    assert!(world.plan(&later).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn faults_affect_every_call() {
    let world = World::new();
    let desired = web();
    let wait = Duration::from_secs(7);
    let table = [
        (Fault::Throttled(Some(wait)), ErrorKind::RateLimited, Retry::After(wait)),
        (Fault::Failing(503), ErrorKind::Unavailable, Retry::Backoff),
        (Fault::Failing(403), ErrorKind::PermissionDenied, Retry::Backoff),
        (Fault::Hanging, ErrorKind::Unavailable, Retry::Backoff),
        (Fault::Garbled, ErrorKind::Unexpected, Retry::Backoff),
        (Fault::Empty, ErrorKind::Unexpected, Retry::Backoff),
        (Fault::AnswerLost, ErrorKind::Unavailable, Retry::Backoff),
    ];
    for (fault, kind, retry) in table {
        let plan = world.plan(&desired).await.unwrap();
        world.cloud.inject(FaultSpec::always(fault.clone()));
        let observed = world.observe(&desired).await.unwrap_err();
        assert_eq!((observed.kind(), observed.retry_advice()), (kind, retry), "{fault:?}");
        if fault != Fault::Empty {
            let listed = world.balancers().list(&desired.key.cluster).await.unwrap_err();
            assert_eq!((listed.kind(), listed.retry_advice()), (kind, retry), "{fault:?}");
        }
        let applied = world.balancers().apply(&desired.key, &plan.steps[0], None).await.unwrap_err();
        assert_eq!((applied.kind(), applied.retry_advice()), (kind, retry), "{fault:?}");
        world.cloud.repair_all();
        world.converge(&desired).await.unwrap();
        world.converge(&deleted(&desired)).await.unwrap();
        assert!(world.is_empty(), "{fault:?}");
    }
}

#[tokio::test]
async fn a_lost_answer_or_crash_after_any_call_leaves_no_duplicates_and_no_leftovers() {
    let before = changed(&web(), |spec| spec.requested_address = Some("127.0.40.1".to_owned()));
    let after = changed(&web(), |spec| spec.requested_address = Some("127.0.40.2".to_owned()));
    for lost in [false, true] {
        for count in 0..4 {
            let world = World::new();
            for desired in [&before, &after, &deleted(&after)] {
                if lost {
                    world.cloud.inject(FaultSpec::always(Fault::AnswerLost).after(count).times(1));
                }
                world.cloud.inject(FaultSpec::always(Fault::Failing(500)).after(count + u64::from(lost)));
                let _ = world.converge(desired).await;
                world.cloud.repair_all();
                world.converge(desired).await.unwrap();
                let expected = usize::from(desired.spec.is_some());
                assert_eq!((world.cloud.balancers().len(), world.cloud.addresses().len()), (expected, expected));
            }
        }
    }
}

#[tokio::test]
async fn stale_reads_create_no_duplicates() {
    let world = World::new();
    let desired = web();
    world.cloud.inject(FaultSpec::always(Fault::Stale));
    for _ in 0..3 {
        let plan = world.plan(&desired).await.unwrap();
        assert_eq!(plan.steps.len(), 2, "the reads are stale");
        for step in &plan.steps {
            world.balancers().apply(&desired.key, step, None).await.unwrap();
        }
    }
    world.cloud.repair_all();
    assert_eq!((world.only().owner, world.cloud.addresses().len()), (Some(desired.key.clone()), 1));
    assert!(world.plan(&desired).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_unsupported_spec_is_rejected() {
    let world = World::new();
    let table = [
        changed(&web(), |spec| spec.ports = vec![port(Protocol::Sctp, 80)]),
        changed(&web(), |spec| spec.ports[0].node_port = None),
    ];
    for desired in table {
        assert_eq!(world.plan(&desired).await.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let state = LoadBalancerState::new(Default::default(), Opaque::new("state of another provider"));
    assert_eq!(world.balancers().plan(&web(), Some(&state)).unwrap_err().kind(), ErrorKind::Unexpected);
    let mut step = world.plan(&web()).await.unwrap().steps.remove(0);
    assert_eq!(
        world.balancers().apply(&desired_for("shop/x").key, &step, None).await.unwrap_err().kind(),
        ErrorKind::Unexpected,
        "step of another Service"
    );
    step.payload = Opaque::default();
    assert_eq!(world.balancers().apply(&web().key, &step, None).await.unwrap_err().kind(), ErrorKind::Unexpected);
    assert!(world.is_empty());
}

#[tokio::test]
async fn an_unsupported_duration_is_rejected_with_the_annotation() {
    let world = World::new();
    for time in [Duration::from_micros(999), Duration::from_secs(366 * 24 * 3600)] {
        let idle = set(&web(), |settings| settings.idle_timeout = Some(time));
        let check = set(&web(), |settings| settings.health_check_interval = Some(time));
        for (desired, annotation) in [(idle, "bowline.dev/idle-timeout"), (check, "bowline.dev/health-check-interval")]
        {
            let error = world.plan(&desired).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            let message = error.to_string();
            let expected = format!("{annotation}: this cloud supports durations from 1ms to 8760h");
            assert!(message.contains(&expected), "{message}");
        }
    }
}

#[tokio::test]
async fn the_status_has_the_ip_mode_and_the_ports() {
    let world = World::new();
    world.converge(&web()).await.unwrap();
    let entry = |state: Option<LoadBalancerState>| state.unwrap().status.ingress.remove(0);
    let found = entry(world.observe(&web()).await.unwrap());
    assert_eq!(found.ip_mode, Some(IpMode::Proxy));
    assert_eq!(found.ports.iter().map(|port| (port.port, port.error.clone())).collect::<Vec<_>>(), [(80, None)]);
    let vip = set(&web(), |settings| settings.ip_mode = Some(IpMode::Vip));
    assert_eq!(entry(world.observe(&vip).await.unwrap()).ip_mode, Some(IpMode::Vip));
    assert_eq!(world.converge(&vip).await.unwrap(), [""; 0]);
}

#[test]
fn an_invalid_manual_load_balancer_allocates_no_address() {
    let world = World::new();
    let listener = Listener { protocol: Protocol::Tcp, port: 0, node_port: 1 };
    let settings = BalancerSettings { listeners: vec![listener], ..BalancerSettings::default() };
    let bad = world.cloud.add_balancer(NewBalancer { settings, ..foreign("bad") });
    assert!(matches!(bad, Err(CloudError::Invalid(_))));
    assert!(matches!(world.cloud.add_balancer(foreign("")), Err(CloudError::Invalid(_))));
    assert!(world.is_empty());
    world.cloud.add_balancer(foreign("a")).unwrap();
    assert!(matches!(world.cloud.add_balancer(foreign("a")), Err(CloudError::Rule(RuleError::NameTaken(..)))));
    assert_eq!(world.cloud.addresses().len(), 1);
    assert_eq!(world.cloud.delete_balancer("lb-9"), Err(RuleError::NoSuchBalancer("lb-9".to_owned()).into()));
}

#[test]
fn disabled_load_balancers_are_not_offered() {
    let cloud = LocalCloud::open(CloudOptions::default()).unwrap();
    let mut config = Config::default();
    config.load_balancers.enabled = false;
    let provider = LocalProvider::in_process(cloud, &config);
    assert!(provider.load_balancers().is_none() && provider.capabilities().load_balancers.is_none());
}
