//! Routes through the provider, in process and over HTTP, and through the management API.
use std::time::Duration;

use bowline_cloud::{CloudProvider, Error, ErrorKind, OneRoutePerCall, Retry, Routes};
use bowline_core::{Address, AddressType, IpFamily, ProviderId, Route, RouteSpec};
use bowline_local::{
    CloudError, CloudOptions, Config, Fault, FaultSpec, LocalCloud, LocalProvider, ManagementClient, NewMachine,
    NewRoute, RouteConfig, RouteRecord, Server, serve,
};

fn cloud() -> LocalCloud {
    LocalCloud::open(CloudOptions::default()).unwrap()
}

/// Cloud with machines of these names, with the IDs `i-0001` and so on.
fn with_machines(names: &[&str]) -> LocalCloud {
    let cloud = cloud();
    for name in names {
        cloud.add(NewMachine { name: (*name).to_owned(), ..NewMachine::default() }).unwrap();
    }
    cloud
}

fn configured(cloud: &LocalCloud, routes: RouteConfig) -> LocalProvider {
    LocalProvider::in_process(cloud.clone(), &Config { routes, ..Config::default() })
}

fn provider(cloud: &LocalCloud) -> LocalProvider {
    configured(cloud, RouteConfig::default())
}

async fn over_http(cloud: &LocalCloud) -> (LocalProvider, Server) {
    let server = serve(cloud.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let config = Config { endpoint: format!("http://{}", server.address()), ..Config::default() };
    (LocalProvider::over_http(&config).unwrap(), server)
}

fn spec(node: &str, id: Option<&str>, destination: &str) -> RouteSpec {
    RouteSpec {
        name_hint: format!("uid-of-{node}"),
        node: node.into(),
        provider_id: id.and_then(ProviderId::new),
        node_addresses: vec![Address::new(AddressType::InternalIP, "10.0.0.1")],
        destination: destination.parse().unwrap(),
        cluster_uid: None,
    }
}

fn manual(destination: &str, machine: &str) -> NewRoute {
    let destination = destination.parse().unwrap();
    NewRoute {
        name: String::new(),
        destination,
        machine: machine.to_owned(),
        addresses: None,
        stamped: false,
        cluster_uid: None,
    }
}

async fn create(provider: &LocalProvider, spec: &RouteSpec) -> Result<Route, Error> {
    OneRoutePerCall::create_route(provider, &"harbour".into(), spec).await
}

async fn list(provider: &LocalProvider) -> Result<Vec<Route>, Error> {
    Routes::list(provider, &"harbour".into()).await
}

async fn delete(provider: &LocalProvider, route: &Route) -> Result<(), Error> {
    OneRoutePerCall::delete_route(provider, &"harbour".into(), route).await
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

/// Routes of the cloud, as text.
fn texts(routes: &[RouteRecord]) -> Vec<String> {
    routes.iter().map(|route| format!("{} {} {}", route.id, route.spec.destination, route.spec.machine)).collect()
}

#[tokio::test]
async fn a_created_route_is_listed_in_process_and_over_http() {
    let cloud = with_machines(&["node-1", "node-2"]);
    let (http, server) = over_http(&cloud).await;
    let created = create(&provider(&cloud), &spec("any", Some("local://i-0002"), "10.1.7.9/24")).await.unwrap();
    let expected = Route {
        id: "rt-0001".to_owned(),
        node: Some("any".into()),
        provider_id: ProviderId::new("local://i-0002"),
        node_addresses: None,
        next_hop: None,
        destination: "10.1.7.0/24".parse().unwrap(),
        blackhole: false,
        stamped: true,
        cluster_uid: None,
    };
    assert_eq!(created, expected);
    let second = create(&http, &spec("node-1", None, "fd00:1::/64")).await.unwrap();
    for provider in [&provider(&cloud), &http] {
        assert_eq!(list(provider).await.unwrap(), [created.clone(), second.clone()]);
    }
    let calls: Vec<_> = cloud.calls().into_iter().collect();
    assert_eq!(calls, [("create-route".to_owned(), 2), ("list-routes".to_owned(), 2)]);
    for _ in 0..2 {
        delete(&http, &created).await.unwrap();
    }
    assert_eq!(texts(&cloud.routes("harbour")), ["rt-0002 fd00:1::/64 i-0001"]);
    assert_eq!((cloud.calls()["delete-route"], cloud.writes()), (2, 4));
    server.shutdown().await;
}

#[tokio::test]
async fn creation_is_idempotent_and_a_taken_destination_is_reported() {
    let cloud = with_machines(&["node-1", "node-2"]);
    let provider = provider(&cloud);
    let created = create(&provider, &spec("node-1", None, "10.1.0.0/24")).await.unwrap();
    assert_eq!(create(&provider, &spec("node-1", Some("local://i-0001"), "10.1.0.9/24")).await.unwrap(), created);
    let renamed = create(&provider, &spec("another", Some("local://i-0001"), "10.1.0.0/24")).await.unwrap();
    assert_eq!(renamed, Route { node: Some("another".into()), ..created });
    assert_eq!(list(&provider).await.unwrap(), [renamed]);
    let error = create(&provider, &spec("node-2", None, "10.1.0.0/24")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert!(
        error.to_string().contains(r#"the route "rt-0001" to "i-0001" already has the destination 10.1.0.0/24"#),
        "{error}"
    );
    assert_eq!(cloud.routes("harbour").len(), 1);
}

#[tokio::test]
async fn a_missing_or_ambiguous_machine_gets_no_route() {
    let cloud = with_machines(&["twin", "twin"]);
    let provider = provider(&cloud);
    let table = [
        (spec("missing", None, "10.1.0.0/24"), ErrorKind::NotFound, "there is no machine \"missing\""),
        (spec("twin", Some("local://i-9"), "10.1.0.0/24"), ErrorKind::NotFound, "there is no machine \"i-9\""),
        (spec("twin", Some("aws:///i-0001"), "10.1.0.0/24"), ErrorKind::NotFound, "is not a machine of this cloud"),
        (spec("twin", Some("local://a/b"), "10.1.0.0/24"), ErrorKind::InvalidConfig, "invalid provider ID"),
        (spec("twin", None, "10.1.0.0/24"), ErrorKind::InvalidConfig, "matches 2 machines: i-0001, i-0002; rename all"),
    ];
    for (spec, kind, expected) in table {
        let error = create(&provider, &spec).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(cloud.routes("harbour"), []);
    assert_eq!(cloud.add_route("harbour", manual("10.1.0.0/24", "i-9")), Err(CloudError::NoSuchMachine("i-9".into())));
}

#[tokio::test]
async fn routes_of_other_clusters_are_not_listed_and_manual_ones_carry_no_mark() {
    let cloud = with_machines(&["node-1"]);
    let provider = provider(&cloud);
    cloud.add_route("other", manual("10.1.0.0/24", "i-0001")).unwrap();
    cloud.add_route("harbour", manual("10.9.0.0/24", "i-0001")).unwrap();
    create(&provider, &spec("node-1", None, "10.1.0.0/24")).await.unwrap();
    let listed = list(&provider).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|route| (route.id.as_str(), route.stamped)).collect();
    assert_eq!(listed, [("rt-0003", true), ("rt-0002", false)]);
    // The route of another cluster cannot be deleted.
    let Some(foreign) = Routes::list(&provider, &"other".into()).await.unwrap().pop() else { panic!("no route") };
    delete(&provider, &foreign).await.unwrap();
    assert_eq!(cloud.routes("other").len(), 1);
}

#[tokio::test]
async fn the_route_of_a_deleted_machine_has_no_node_and_can_be_deleted() {
    let cloud = with_machines(&["node-1", "node-2"]);
    let provider = provider(&cloud);
    for (node, range) in [("node-1", "10.1.0.0/24"), ("node-2", "10.2.0.0/24")] {
        create(&provider, &spec(node, None, range)).await.unwrap();
    }
    cloud.delete("i-0001").unwrap();
    let listed = list(&provider).await.unwrap();
    let [blackhole, intact] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((blackhole.blackhole, &blackhole.node, &blackhole.provider_id), (true, &None, &None));
    assert!(!intact.blackhole);
    assert_eq!(kind(create(&provider, &spec("node-2", None, "10.1.0.0/24")).await), ErrorKind::AlreadyExists);
    delete(&provider, blackhole).await.unwrap();
    create(&provider, &spec("node-2", None, "10.1.0.0/24")).await.unwrap();
}

#[tokio::test]
async fn deletion_is_by_id() {
    let cloud = with_machines(&["node-1"]);
    let provider = provider(&cloud);
    let old = create(&provider, &spec("node-1", None, "10.1.0.0/24")).await.unwrap();
    cloud.remove_route("harbour", &old.id).unwrap();
    let new = create(&provider, &spec("node-1", None, "10.1.0.0/24")).await.unwrap();
    delete(&provider, &old).await.unwrap();
    assert_eq!(list(&provider).await.unwrap(), [new]);
}

#[tokio::test]
async fn a_route_without_node_has_the_name_of_its_machine() {
    let cloud = with_machines(&["old"]);
    let provider = provider(&cloud);
    create(&provider, &spec("old", None, "10.1.0.0/24")).await.unwrap();
    cloud.add_route("harbour", manual("10.2.0.0/24", "i-0001")).unwrap();
    cloud.change("i-0001", |machine| machine.name = "new".to_owned()).unwrap();
    let nodes: Vec<_> = list(&provider).await.unwrap().into_iter().filter_map(|route| route.node).collect();
    assert_eq!(nodes, ["old", "new"]);
}

#[tokio::test]
async fn node_addresses_are_reported_only_if_enabled() {
    let cloud = with_machines(&["node-1"]);
    let reporting = configured(&cloud, RouteConfig { node_addresses: true, ..RouteConfig::default() });
    let spec = spec("node-1", None, "10.1.0.0/24");
    let created = create(&reporting, &spec).await.unwrap();
    assert_eq!(created.node_addresses, Some(spec.node_addresses));
    assert_eq!(list(&reporting).await.unwrap(), [created]);
    assert_eq!(list(&provider(&cloud)).await.unwrap().pop().unwrap().node_addresses, None);
    cloud.add_route("harbour", manual("10.2.0.0/24", "i-0001")).unwrap();
    assert_eq!(list(&reporting).await.unwrap().pop().unwrap().node_addresses, None);
}

#[tokio::test]
async fn a_table_has_no_more_routes_than_the_cloud_or_the_configuration_allow() {
    let table =
        [(Some(2), None, Some(2)), (None, Some(2), Some(2)), (Some(2), Some(9), Some(2)), (Some(9), Some(2), Some(2))];
    for (max_routes, configured_to, capability) in table {
        let cloud = LocalCloud::open(CloudOptions { max_routes, ..CloudOptions::default() }).unwrap();
        cloud.add(NewMachine { name: "n".to_owned(), ..NewMachine::default() }).unwrap();
        let provider = configured(&cloud, RouteConfig { max_routes: configured_to, ..RouteConfig::default() });
        assert_eq!(provider.capabilities().routes.as_ref().unwrap().max_routes, capability);
        for range in ["10.1.0.0/24", "10.2.0.0/24", "10.1.0.0/24"] {
            create(&provider, &spec("n", None, range)).await.unwrap();
        }
        let error = create(&provider, &spec("n", None, "10.3.0.0/24")).await.unwrap_err();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::QuotaExceeded, Retry::Backoff), "{error}");
        assert_eq!(cloud.routes("harbour").len(), 2);
    }
    let unlimited = LocalCloud::open(CloudOptions { max_routes: Some(0), ..CloudOptions::default() }).unwrap();
    assert_eq!(provider(&unlimited).capabilities().routes.as_ref().unwrap().max_routes, None);
}

#[tokio::test]
async fn routes_can_be_disabled() {
    let off = configured(&cloud(), RouteConfig { enabled: false, ..RouteConfig::default() });
    assert!(off.routes().is_none() && off.capabilities().routes.is_none());
    let on = provider(&cloud());
    assert!(on.routes().is_some());
    assert_eq!(on.capabilities().routes.as_ref().unwrap().ip_families, [IpFamily::IPv4, IpFamily::IPv6]);
}

#[tokio::test(start_paused = true)]
async fn each_fault_has_its_error_kind() {
    let cloud = with_machines(&["node-1"]);
    let provider = provider(&cloud);
    let created = create(&provider, &spec("node-1", None, "10.1.0.0/24")).await.unwrap();
    let table = [
        (Fault::Throttled(None), ErrorKind::RateLimited),
        (Fault::Failing(401), ErrorKind::Unauthenticated),
        (Fault::Failing(403), ErrorKind::PermissionDenied),
        (Fault::Failing(503), ErrorKind::Unavailable),
        (Fault::Hanging, ErrorKind::Unavailable),
        (Fault::Garbled, ErrorKind::Unexpected),
    ];
    for (fault, expected) in table {
        cloud.inject(FaultSpec::always(fault.clone()));
        let found = [
            kind(list(&provider).await),
            kind(create(&provider, &spec("node-1", None, "10.1.0.0/24")).await),
            kind(delete(&provider, &created).await),
        ];
        assert_eq!(found, [expected; 3], "{fault:?}");
        cloud.repair_all();
        // A call with an invalid response may have been applied.
        create(&provider, &spec("node-1", None, "10.1.0.0/24")).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_an_error_and_the_route_exists() {
    let cloud = with_machines(&["node-1"]);
    let provider = provider(&cloud);
    let spec = |number: u8| spec("node-1", None, &format!("10.{number}.0.0/24"));
    cloud.inject(FaultSpec::always(Fault::AnswerLost).on("create-route").after(1).times(1));
    cloud.set_latency(Duration::from_millis(20));
    create(&provider, &spec(1)).await.unwrap();
    assert_eq!(kind(create(&provider, &spec(2)).await), ErrorKind::Unavailable);
    assert_eq!(create(&provider, &spec(2)).await.unwrap().id, "rt-0002");
    cloud.inject(FaultSpec::always(Fault::AnswerLost).on("delete-route").times(1));
    let listed = list(&provider).await.unwrap();
    assert_eq!(kind(delete(&provider, &listed[0]).await), ErrorKind::Unavailable);
    assert_eq!(texts(&cloud.routes("harbour")), ["rt-0002 10.2.0.0/24 i-0001"]);
}

#[tokio::test]
async fn stale_and_empty_faults_affect_reads_and_not_writes() {
    let cloud = with_machines(&["node-1"]);
    let provider = provider(&cloud);
    let old = create(&provider, &spec("node-1", None, "10.1.0.0/24")).await.unwrap();
    let fault = cloud.inject(FaultSpec::always(Fault::Stale));
    create(&provider, &spec("node-1", None, "10.2.0.0/24")).await.unwrap();
    assert_eq!(list(&provider).await.unwrap(), [old]);
    cloud.repair(fault);
    cloud.inject(FaultSpec::always(Fault::Empty).on("list-routes"));
    assert_eq!(list(&provider).await.unwrap(), []);
    cloud.repair_all();
    assert_eq!(list(&provider).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_large_table_is_listed_over_http() {
    let cloud = with_machines(&["node-1"]);
    for index in 0..5000_u32 {
        let range = format!("10.{}.{}.0/24", index / 256, index % 256);
        let addresses = vec![Address::new(AddressType::InternalIP, "10.0.0.1"); 4];
        cloud.add_route("harbour", NewRoute { addresses: Some(addresses), ..manual(&range, "i-0001") }).unwrap();
    }
    let (http, server) = over_http(&cloud).await;
    assert_eq!(list(&http).await.unwrap().len(), 5000);
    server.shutdown().await;
}

#[tokio::test]
async fn the_management_api_manages_routes() {
    let cloud = with_machines(&["node-1"]);
    let server = serve(cloud.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let owner = ManagementClient::new(&format!("http://{}", server.address())).unwrap();
    let owner = owner.with_token(&server.owner_token().into()).unwrap();
    let odd = "a cluster & co";
    let created = owner.add_route(odd, &NewRoute { stamped: true, ..manual("10.1.0.7/24", "i-0001") }).await.unwrap();
    owner.add_route("harbour", &manual("10.1.0.0/24", "i-0001")).await.unwrap();
    assert_eq!(cloud.routes(odd).iter().collect::<Vec<_>>(), [&created]);
    assert_eq!(owner.routes(odd).await.unwrap(), cloud.routes(odd));
    assert_eq!(owner.routes("unknown").await.unwrap(), []);
    assert_eq!(owner.route_tables().await.unwrap(), cloud.route_tables());
    let error = owner.remove_route("harbour", &created.id).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    owner.remove_route(odd, &created.id).await.unwrap();
    assert_eq!(cloud.route_tables().into_keys().collect::<Vec<_>>(), ["harbour"]);
    assert!(cloud.calls().is_empty());
    server.shutdown().await;
}

#[test]
fn every_change_of_routes_and_machines_is_notified() {
    let cloud = with_machines(&["node-1"]);
    let mut changes = cloud.route_changes();
    let mut notified = || {
        let has_changed = changes.has_changed().unwrap();
        changes.mark_unchanged();
        has_changed
    };
    cloud.add_route("harbour", manual("10.1.0.0/24", "i-0001")).unwrap();
    assert!(notified() && !notified());
    cloud
        .change("i-0001", |machine| machine.addresses.push(Address::new(AddressType::InternalIP, "10.0.0.1")))
        .unwrap();
    assert!(notified());
    cloud.delete("i-0001").unwrap();
    assert!(notified());
    assert!(cloud.remove_route("harbour", "rt-9").is_err() && !notified(), "nothing has changed");
}
