//! Number of calls for many servers.

use std::net::Ipv4Addr;

use bowline_cloud::{Instances as _, PageToken};
use bowline_core::InstanceState;
use bowline_openstack_simulator::{Fault, FaultSpec, NewServer, Options};
use http::Method;

use crate::machines::cloud::{Cloud, addresses, named, with_id};

/// Adds this many servers and returns their IDs. They have fixed addresses: to choose a free one, the simulator reads all ports.
fn servers(cloud: &Cloud, count: u16) -> Vec<String> {
    const FIRST: Ipv4Addr = Ipv4Addr::new(10, 10, 1, 0);
    let address = |n: u16| Ipv4Addr::from_bits(FIRST.to_bits() + u32::from(n)).into();
    let server = |n| NewServer::named(&format!("node-{n}")).at(address(n));
    (0..count).map(|n| cloud.simulator.add_server(server(n))).collect()
}

#[tokio::test]
async fn one_server_takes_one_nova_and_one_neutron_call() {
    let cloud = Cloud::new();
    let ids = servers(&cloud, 1);
    cloud.instance(&ids[0]).await;
    assert_eq!(cloud.calls(), 3, "the flavor is new");
    cloud.instance(&ids[0]).await;
    assert_eq!(cloud.calls(), 2);
    cloud.find(named("node-0")).await.unwrap();
    assert_eq!(cloud.calls(), 2);
}

#[tokio::test]
async fn a_thousand_servers_take_one_page_and_a_port_query_per_hundred() {
    let cloud = Cloud::new();
    let ids = servers(&cloud, 1000);
    let by_id: Vec<_> = ids.iter().map(|id| with_id("n", &format!("openstack:///{id}"))).collect();
    let by_name: Vec<_> = (0..1000).map(|n| named(&format!("node-{n}"))).collect();
    for refs in [by_id, by_name] {
        let answers = cloud.find_all(&refs).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(InstanceState::Running(_)))));
        let calls = cloud.calls();
        assert!(calls <= 12, "{calls}");
    }
}

#[tokio::test]
async fn many_flavors_are_listed() {
    let cloud = Cloud::new();
    for n in 0..50 {
        cloud.simulator.add_flavor(&format!("f{n}"), &format!("m1.{n}"));
        cloud.simulator.add_server(NewServer { flavor: format!("f{n}"), ..NewServer::named(&format!("node-{n}")) });
    }
    let refs: Vec<_> = (0..50).map(|n| named(&format!("node-{n}"))).collect();
    let answers = cloud.find_all(&refs).await;
    let types: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().unwrap().instance().unwrap().instance_type.clone()).collect();
    assert_eq!(types, (0..50).map(|n| format!("m1.{n}")).collect::<Vec<_>>());
    assert_eq!(cloud.calls(), 3);
}

#[tokio::test]
async fn a_few_servers_of_many_are_read_by_id() {
    let cloud = Cloud::with(Options { servers_per_page: 100, ..Options::default() }, |_| {});
    let ids = servers(&cloud, 1000);
    // The first page has all but the oldest three, which are read by ID; the other nine pages are not read.
    let refs: Vec<_> =
        ids[..3].iter().chain(&ids[990..]).map(|id| with_id("n", &format!("openstack:///{id}"))).collect();
    let answers = cloud.find_all(&refs).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(InstanceState::Running(_)))));
    let counts = cloud.simulator.counts();
    assert_eq!((counts.get("GET servers/detail"), counts.get("GET servers/{id}")), (Some(&1), Some(&3)));
}

#[tokio::test]
async fn a_listing_is_abandoned_if_the_project_is_large() {
    let cloud = Cloud::new();
    let ids = servers(&cloud, 4000);
    // The oldest are on the last page. After three pages, it is cheaper to read ten servers by ID.
    let refs: Vec<_> = ids[..10].iter().map(|id| with_id("n", &format!("openstack:///{id}"))).collect();
    for pages in [Some(3), None] {
        cloud.simulator.forget_calls();
        let answers = cloud.find_all(&refs).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(InstanceState::Running(_)))));
        let counts = cloud.simulator.counts();
        assert_eq!((counts.get("GET servers/detail").copied(), counts.get("GET servers/{id}")), (pages, Some(&10)));
    }
}

#[tokio::test]
async fn a_failed_page_fails_the_servers_that_are_not_found_yet() {
    let cloud = Cloud::with(Options { servers_per_page: 10, ..Options::default() }, |_| {});
    let ids = servers(&cloud, 20);
    let fault = FaultSpec::always(Fault::Answer(500, String::new())).on(Method::GET, "servers/detail").after(1);
    cloud.simulator.inject(fault);
    let refs: Vec<_> = ids.iter().map(|id| with_id("n", &format!("openstack:///{id}"))).collect();
    let answers = cloud.find_all(&refs).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 10);
    assert!(!cloud.simulator.counts().contains_key("GET servers/{id}"), "a failing Nova gets no further calls");
}

#[tokio::test]
async fn a_listing_has_all_pages() {
    let cloud = Cloud::with(Options { servers_per_page: 10, ..Options::default() }, |_| {});
    let mut wanted = servers(&cloud, 25);
    let (mut seen, mut next, mut pages) = (Vec::new(), None::<PageToken>, 0);
    loop {
        let page = cloud.provider.list(next.as_ref()).await.unwrap();
        seen.extend(page.instances.iter().filter_map(InstanceState::instance).map(|instance| instance.id.clone()));
        (next, pages) = (page.next, pages + 1);
        if next.is_none() {
            break;
        }
    }
    seen.sort();
    wanted.sort();
    assert_eq!((seen, pages), (wanted, 3));
}

#[tokio::test]
async fn names_without_a_server_cost_one_listing() {
    let cloud = Cloud::new();
    servers(&cloud, 10);
    let refs: Vec<_> = (0..100).map(|n| named(&format!("other-{n}"))).collect();
    let answers = cloud.find_all(&refs).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(InstanceState::Gone))));
    assert_eq!(cloud.calls(), 1);
}

#[tokio::test]
async fn an_empty_listing_proves_nothing_about_names() {
    let cloud = Cloud::new();
    let refs: Vec<_> = (0..10).map(|n| named(&format!("node-{n}"))).collect();
    cloud.find_all(&refs).await;
    assert_eq!(cloud.simulator.counts().get("GET servers/detail"), Some(&11), "each name is read");
}

/// As with a page limit of Neutron.
#[tokio::test]
async fn all_pages_of_ports_are_read() {
    let cloud = Cloud::with(Options { records_per_page: Some(2), ..Options::default() }, |_| {});
    let ids = servers(&cloud, 5);
    let refs: Vec<_> = ids.iter().map(|id| with_id("n", &format!("openstack:///{id}"))).collect();
    let answers = cloud.find_all(&refs).await;
    let instances: Vec<_> = answers.iter().map(|answer| answer.as_ref().unwrap().instance().unwrap()).collect();
    assert!(instances.iter().all(|instance| !addresses(instance).is_empty()), "{instances:?}");
    assert_eq!(cloud.simulator.counts()["GET ports"], 3);
}
