//! How many calls it takes to know of many servers.

use bowline_cloud::{Instances as _, PageToken};
use bowline_core::InstanceState;
use bowline_openstack_simulator::{Fault, FaultSpec, NewServer, Options};
use http::Method;

use crate::machines::cloud::{Cloud, addresses, named, with_id};

/// So many servers, and their IDs.
fn servers(cloud: &Cloud, count: usize) -> Vec<String> {
    (0..count).map(|n| cloud.simulator.add_server(NewServer::named(&format!("node-{n}")))).collect()
}

#[tokio::test]
async fn one_server_takes_one_call_to_nova_and_one_to_neutron() {
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
async fn a_thousand_servers_take_a_page_and_their_ports_a_hundred_at_a_time() {
    let cloud = Cloud::new();
    let ids = servers(&cloud, 1000);
    let by_id: Vec<_> = ids.iter().map(|id| with_id("n", &format!("openstack:///{id}"))).collect();
    let by_name: Vec<_> = (0..1000).map(|n| named(&format!("node-{n}"))).collect();
    for asked in [by_id, by_name] {
        let answers = cloud.find_all(&asked).await;
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
    let asked: Vec<_> = (0..50).map(|n| named(&format!("node-{n}"))).collect();
    let answers = cloud.find_all(&asked).await;
    let types: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().unwrap().instance().unwrap().instance_type.clone()).collect();
    assert_eq!(types, (0..50).map(|n| format!("m1.{n}")).collect::<Vec<_>>());
    assert_eq!(cloud.calls(), 3);
}

#[tokio::test]
async fn a_few_servers_among_thousands_are_not_listed_page_by_page() {
    let cloud = Cloud::with(Options { servers_per_page: 100, ..Options::default() }, |_| {});
    let ids = servers(&cloud, 1000);
    // The first page has all but the oldest three: these are asked for, and the other nine pages are left unread.
    let asked: Vec<_> =
        ids[..3].iter().chain(&ids[990..]).map(|id| with_id("n", &format!("openstack:///{id}"))).collect();
    let answers = cloud.find_all(&asked).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(InstanceState::Running(_)))));
    let counts = cloud.simulator.counts();
    assert_eq!((counts.get("GET servers/detail"), counts.get("GET servers/{id}")), (Some(&1), Some(&3)));
}

#[tokio::test]
async fn a_listing_is_given_up_once_the_project_is_seen_to_be_large() {
    let cloud = Cloud::new();
    let ids = servers(&cloud, 4000);
    // The oldest are on the last page. Three pages show that there are enough servers to ask for ten of them one by one.
    let asked: Vec<_> = ids[..10].iter().map(|id| with_id("n", &format!("openstack:///{id}"))).collect();
    for pages in [Some(3), None] {
        cloud.simulator.forget_calls();
        let answers = cloud.find_all(&asked).await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(InstanceState::Running(_)))));
        let counts = cloud.simulator.counts();
        assert_eq!((counts.get("GET servers/detail").copied(), counts.get("GET servers/{id}")), (pages, Some(&10)));
    }
}

#[tokio::test]
async fn a_page_that_cannot_be_read_fails_those_that_are_not_found_yet() {
    let cloud = Cloud::with(Options { servers_per_page: 10, ..Options::default() }, |_| {});
    let ids = servers(&cloud, 20);
    let fault = FaultSpec::always(Fault::Answer(500, String::new())).on(Method::GET, "servers/detail").after(1);
    cloud.simulator.inject(fault);
    let asked: Vec<_> = ids.iter().map(|id| with_id("n", &format!("openstack:///{id}"))).collect();
    let answers = cloud.find_all(&asked).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 10);
    assert!(
        !cloud.simulator.counts().contains_key("GET servers/{id}"),
        "a Nova in trouble is not asked ten times more"
    );
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
async fn names_that_no_server_has_cost_nothing_beyond_a_listing() {
    let cloud = Cloud::new();
    servers(&cloud, 10);
    let asked: Vec<_> = (0..100).map(|n| named(&format!("other-{n}"))).collect();
    let answers = cloud.find_all(&asked).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(InstanceState::Gone))));
    assert_eq!(cloud.calls(), 1);
}

#[tokio::test]
async fn a_listing_without_a_single_server_proves_nothing_about_names() {
    let cloud = Cloud::new();
    let asked: Vec<_> = (0..10).map(|n| named(&format!("node-{n}"))).collect();
    cloud.find_all(&asked).await;
    assert_eq!(cloud.simulator.counts().get("GET servers/detail"), Some(&11), "each name is asked for");
}

/// As where the administrator limits what Neutron gives at a time.
#[tokio::test]
async fn ports_that_come_in_pages_are_all_read() {
    let cloud = Cloud::with(Options { records_per_page: Some(2), ..Options::default() }, |_| {});
    let ids = servers(&cloud, 5);
    let asked: Vec<_> = ids.iter().map(|id| with_id("n", &format!("openstack:///{id}"))).collect();
    let answers = cloud.find_all(&asked).await;
    let told: Vec<_> = answers.iter().map(|answer| answer.as_ref().unwrap().instance().unwrap()).collect();
    assert!(told.iter().all(|instance| !addresses(instance).is_empty()), "{told:?}");
    assert_eq!(cloud.simulator.counts()["GET ports"], 3);
}
