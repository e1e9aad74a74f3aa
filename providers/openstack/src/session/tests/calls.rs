//! Requests, lists and metrics of calls.

use std::time::Duration;

use bowline_cloud::ErrorKind;
use prometheus::Registry;
use serde_json::{Value, json};

use super::{ApiResponse, Cloud, GLOBAL, provider, provider_counting};
use crate::api::{compute, network, octavia};
use crate::metrics::Metrics;

fn page(ids: &[&str], next: Option<&str>) -> ApiResponse {
    let servers: Vec<_> = ids.iter().map(|id| json!({"id": id})).collect();
    let links: Vec<_> = next.iter().map(|href| json!({"rel": "next", "href": href})).collect();
    ApiResponse::new(200, json!({"servers": servers, "servers_links": links}))
}

#[tokio::test(start_paused = true)]
async fn case_018_request_timeout_limits_slow_responses() {
    let slow = || ApiResponse::new(201, json!({"loadbalancer": {"id": "l"}})).after(Duration::from_secs(100));
    for (lines, is_in_time) in [("[Metadata]\nrequest-timeout = 3m\n", true), ("", false)] {
        let cloud = Cloud::answering([slow()]);
        let provider = provider(&cloud, &format!("{GLOBAL}{lines}"));
        let created = octavia::LOAD_BALANCERS.create(&provider.session, &json!({"name": "n"})).await;
        assert_eq!(created.is_ok(), is_in_time, "{created:?}");
        if let Err(error) = created {
            assert_eq!(error.message(), "POST http://octavia/v2.0/lbaas/loadbalancers: no response within 60s");
            assert!(error.is_outcome_unknown());
        }
        assert_eq!(cloud.calls().len(), 1, "a timeout is not retried here");
    }
}

#[tokio::test]
async fn bodies_are_sent_in_an_envelope_and_otherwise_unchanged() {
    let cloud = Cloud::answering([
        ApiResponse::new(200, ""),
        ApiResponse::new(202, ""),
        ApiResponse::new(200, json!({"port": {}})),
    ]);
    let session = &provider(&cloud, GLOBAL).session;
    network::FLOATING_IPS.resource.update(session, "f", &json!({"port_id": null})).await.unwrap();
    octavia::set_members(session, "p", &[]).await.unwrap();
    network::update_port(session, "o", &json!({"security_groups": ["g"]}), Some(7)).await.unwrap();
    let calls = cloud.calls();
    let sent: Vec<_> =
        calls.iter().map(|c| (c.method.as_str(), c.url.as_str(), &c.body, c.if_match.as_str())).collect();
    assert_eq!(
        sent,
        [
            ("PUT", "http://neutron/v2.0/floatingips/f", &json!({"floatingip": {"port_id": null}}), ""),
            ("PUT", "http://octavia/v2.0/lbaas/pools/p/members", &json!({"members": []}), ""),
            ("PUT", "http://neutron/v2.0/ports/o", &json!({"port": {"security_groups": ["g"]}}), "revision_number=7"),
        ]
    );
}

#[tokio::test]
async fn query_values_are_encoded() {
    let cloud = Cloud::answering([page(&[], None), ApiResponse::new(200, json!({"ports": []}))]);
    let session = &provider(&cloud, GLOBAL).session;
    compute::servers(session, &[("name", "^n1\\.a b$")]).await.unwrap();
    network::PORTS.list(session, &[("fixed_ips", "ip_address=10.0.0.1"), ("network_id", "n&m")]).await.unwrap();
    let urls: Vec<_> = cloud.calls().into_iter().map(|received| received.url).collect();
    assert_eq!(
        urls,
        [
            "http://nova/v2.1/servers/detail?name=%5En1%5C.a+b%24",
            "http://neutron/v2.0/ports?fixed_ips=ip_address%3D10.0.0.1&network_id=n%26m",
        ]
    );
}

#[tokio::test]
async fn ids_cannot_change_the_path() {
    let cloud = Cloud::answering([]);
    let session = &provider(&cloud, GLOBAL).session;
    let _ = octavia::LOAD_BALANCERS.get(session, "../../v2.0/lbaas/pools?x#y").await;
    assert_eq!(cloud.calls()[0].url, "http://octavia/v2.0/lbaas/loadbalancers/..%2F..%2Fv2.0%2Flbaas%2Fpools%3Fx%23y");
    for id in ["", ".", ".."] {
        let error = octavia::delete_load_balancer(session, id, true).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::InvalidConfig, format!("{id:?} is not a valid ID").as_str())
        );
    }
    assert_eq!(cloud.calls().len(), 1);
}

#[tokio::test]
async fn a_list_has_all_pages_and_ignores_the_host_of_links() {
    let cloud = Cloud::answering([
        page(&["a", "b"], Some("http://elsewhere/v2.1/servers/detail?limit=2&marker=b")),
        page(&["c", "d"], Some("/servers/detail?limit=2&marker=d#x")),
        page(&[], None),
    ]);
    let servers = compute::servers(&provider(&cloud, GLOBAL).session, &[("limit", "2")]).await.unwrap();
    assert_eq!(servers.iter().map(|server| server.id.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    let urls: Vec<_> = cloud.calls().into_iter().map(|received| received.url).collect();
    assert_eq!(
        urls,
        [
            "http://nova/v2.1/servers/detail?limit=2",
            "http://nova/v2.1/servers/detail?limit=2&marker=b",
            "http://nova/v2.1/servers/detail?limit=2&marker=d",
        ]
    );
}

/// As Octavia writes its links.
#[tokio::test]
async fn filters_missing_in_a_link_are_added() {
    let cloud = Cloud::answering([page(&["a"], Some("http://nova/?limit=1&marker=a")), page(&[], None)]);
    let query = [("name", "n"), ("limit", "1"), ("tags", "x"), ("tags", "y")];
    compute::servers(&provider(&cloud, GLOBAL).session, &query).await.unwrap();
    let next = "http://nova/v2.1/servers/detail?limit=1&marker=a&name=n&tags=x&tags=y";
    assert_eq!(cloud.calls()[1].url, next);
}

#[tokio::test]
async fn a_list_that_repeats_a_page_is_an_error() {
    let cloud = Cloud::answering(vec![page(&["a"], Some("http://nova/?marker=a")); 10]);
    let error = compute::servers(&provider(&cloud, GLOBAL).session, &[]).await.unwrap_err();
    assert_eq!(error.message(), "the list repeats a page token");
    assert_eq!(cloud.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_endless_list_is_read_to_a_limit_and_is_an_error() {
    for (ids, pages, why) in [(&["a"][..], 10_000, "has too many pages"), (&[], 101, "returns pages without new items")]
    {
        let answers = (0..10_002).map(|n| page(ids, Some(&format!("http://nova/?marker={n}"))));
        let cloud = Cloud::answering(answers);
        let error = compute::servers(&provider(&cloud, GLOBAL).session, &[]).await.unwrap_err();
        assert!(error.message().starts_with(&format!("the list {why}")), "{error}");
        assert_eq!(cloud.calls().len(), pages);
    }
}

/// It would look like the end of the list.
#[tokio::test]
async fn a_link_to_the_next_page_without_a_query_is_an_error() {
    let links = [json!("http://nova/servers/detail"), json!("http://nova/servers/detail?#x"), json!(7), Value::Null];
    for href in links {
        let body = json!({"servers": [{"id": "a"}], "servers_links": [{"rel": "next", "href": href}]});
        let cloud = Cloud::answering([ApiResponse::new(200, body)]);
        let error = compute::servers(&provider(&cloud, GLOBAL).session, &[]).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unexpected && error.message().contains("next page"), "{error:?}");
    }
}

#[tokio::test]
async fn a_single_page_is_read_and_names_the_next() {
    let link = Some("http://nova/?limit=1&marker=a");
    let cloud = Cloud::answering([page(&["a"], link), page(&["b"], None)]);
    let session = &provider(&cloud, GLOBAL).session;
    let first = compute::servers_page(session, &[("limit", "1")], None).await.unwrap();
    let second = compute::servers_page(session, &[("limit", "1")], first.next.as_deref()).await.unwrap();
    assert_eq!((first.servers.len(), second.servers[0].id.as_str(), second.next), (1, "b", None));
    assert_eq!(cloud.calls()[1].url, "http://nova/v2.1/servers/detail?limit=1&marker=a");
}

#[tokio::test]
async fn a_response_without_the_envelope_is_an_error() {
    let table = [
        (200, json!({}).to_string(), "it has no field \"server\""),
        (200, json!({"server": {"id": ["no text"]}}).to_string(), "server: "),
        (200, "<html>".to_owned(), "expected value"),
    ];
    for (status, body, says) in table {
        let cloud = Cloud::answering([ApiResponse::new(status, body)]);
        let error = compute::server(&provider(&cloud, GLOBAL).session, "s").await.unwrap_err();
        assert_eq!((error.kind(), error.status()), (ErrorKind::Unexpected, None));
        assert!(
            error.message().starts_with("GET http://nova/v2.1/servers/s: ") && error.message().contains(says),
            "{error}"
        );
    }
}

#[tokio::test]
async fn null_fields_are_empty() {
    let balancer = json!({"id": "l", "name": null, "tags": null, "vip_address": null, "provisioning_status": null});
    let listener = json!({
        "id": "i", "allowed_cidrs": null, "insert_headers": null, "default_tls_container_ref": null, "tags": null,
        "timeout_client_data": null, "connection_limit": null, "protocol_port": null, "loadbalancers": null,
    });
    let port = json!({"id": "o", "fixed_ips": null, "security_groups": null, "trunk_details": null, "tags": null});
    let server = json!({"id": "s", "addresses": null, "metadata": null, "flavor": {"id": 2004}, "accessIPv4": null});
    let cloud = Cloud::answering([
        ApiResponse::new(200, json!({"loadbalancer": balancer})),
        ApiResponse::new(200, json!({"listeners": [listener]})),
        ApiResponse::new(200, json!({"port": port})),
        ApiResponse::new(200, json!({"server": server})),
    ]);
    let session = &provider(&cloud, GLOBAL).session;
    assert_eq!(octavia::LOAD_BALANCERS.get(session, "l").await.unwrap().name, "");
    assert!(octavia::LISTENERS.list(session, &[]).await.unwrap()[0].allowed_cidrs.is_empty());
    assert_eq!(network::PORTS.get(session, "o").await.unwrap().port_security_enabled, None);
    assert_eq!(compute::server(session, "s").await.unwrap().flavor.id, "2004");
}

// ---- metrics

/// `name{label}` of counters, and the sample counts of histograms.
fn counted(registry: &Registry) -> Vec<String> {
    let mut lines = Vec::new();
    for family in registry.gather() {
        for metric in family.get_metric() {
            let label = metric.get_label()[0].value().to_owned();
            let count = match metric.get_histogram().get_sample_count() {
                0 => metric.get_counter().get_value() as u64,
                count => count,
            };
            lines.push(format!("{}{{{label}}} {count}", family.name()));
        }
    }
    lines
}

#[tokio::test]
async fn a_list_counts_as_one_call_and_deleting_a_missing_resource_is_no_error() {
    let (registry, metrics) = (Registry::new(), Metrics::new());
    metrics.register(&registry);
    let not_found = || ApiResponse::new(404, r#"{"itemNotFound": {"code": 404}}"#);
    let cloud = Cloud::answering([page(&["a"], Some("/?marker=a")), page(&[], None), not_found(), not_found()]);
    let session = &provider_counting(&cloud, GLOBAL, &metrics).session;
    compute::servers(session, &[]).await.unwrap();
    octavia::LISTENERS.resource.delete(session, "l").await.unwrap();
    assert!(compute::server(session, "s").await.unwrap_err().is_not_found());
    assert_eq!(
        counted(&registry),
        [
            "openstack_api_request_duration_seconds{loadbalancer_listener_delete} 1",
            "openstack_api_request_duration_seconds{server_get} 1",
            "openstack_api_request_duration_seconds{server_list} 1",
            "openstack_api_request_errors_total{server_get} 1",
            "openstack_api_requests_total{loadbalancer_listener_delete} 1",
            "openstack_api_requests_total{server_get} 1",
            "openstack_api_requests_total{server_list} 1",
        ]
    );
}

#[tokio::test]
async fn providers_of_one_factory_share_metrics_across_rebuilds() {
    let (registry, metrics) = (Registry::new(), Metrics::new());
    for _ in 0..2 {
        metrics.register(&registry);
        let cloud = Cloud::answering([ApiResponse::new(200, json!({"server": {}}))]);
        compute::server(&provider_counting(&cloud, GLOBAL, &metrics).session, "s").await.unwrap();
    }
    assert!(counted(&registry).contains(&"openstack_api_requests_total{server_get} 2".to_owned()));
}

/// Metric names as in the Go manager, one for each API call.
#[tokio::test]
async fn each_call_has_the_metric_label_of_the_go_manager() {
    let (registry, metrics) = (Registry::new(), Metrics::new());
    metrics.register(&registry);
    let cloud = Cloud::answering([]);
    let session = &provider_counting(&cloud, GLOBAL, &metrics).session;
    let body = &Value::Null;
    // The results do not matter here.
    let _ = octavia::versions(session).await;
    let _ = octavia::LOAD_BALANCERS.list(session, &[]).await;
    let _ = octavia::LOAD_BALANCERS.create(session, body).await;
    let _ = octavia::LOAD_BALANCERS.resource.update(session, "i", body).await;
    let _ = octavia::delete_load_balancer(session, "i", false).await;
    let _ = octavia::LISTENERS.create(session, body).await;
    let _ = octavia::POOLS.create(session, body).await;
    let _ = octavia::POOLS.resource.update(session, "i", body).await;
    let _ = octavia::members(session, "i").await;
    let _ = octavia::set_members(session, "i", &[]).await;
    let _ = octavia::create_member(session, "i", body).await;
    let _ = octavia::HEALTH_MONITORS.create(session, body).await;
    let _ = network::FLOATING_IPS.list(session, &[]).await;
    let _ = network::extensions(session).await;
    let _ = network::delete_port_tag(session, "i", "t").await;
    let _ = network::change_routes(session, "i", "add_extraroutes", &[]).await;
    let _ = network::SECURITY_GROUP_RULES.create(session, body).await;
    let mut names: Vec<_> = counted(&registry)
        .into_iter()
        .filter_map(|line| Some(line.strip_prefix("openstack_api_requests_total{")?.split_once('}')?.0.to_owned()))
        .collect();
    names.sort();
    let expected = "floating_ip_list loadbalancer_create loadbalancer_delete loadbalancer_healthmonitor_create \
                    loadbalancer_list loadbalancer_listener_create loadbalancer_member_create loadbalancer_member_list \
                    loadbalancer_members_update loadbalancer_pool_create loadbalancer_pool_update loadbalancer_update \
                    network_extension_list port_tag_delete router_update security_group_rule_create version_list";
    assert_eq!(names.join(" "), expected);
}
