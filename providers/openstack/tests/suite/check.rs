//! `start`, `check`, `diagnose` and `quotas` of a provider, and its construction from `cloud.conf` over sockets.
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{BuildInputs, CloudProvider, ErrorKind};
use bowline_config::{ConfigErrors, ConfigFile, Environment};
use bowline_openstack::{Config, OpenStack, factory};
use bowline_openstack_simulator::{Endpoint, Fault, FaultSpec, Fixture, Kind, Options, Service, Simulator};
use serde_json::json;

/// `cloud.conf` for the simulator's user, followed by these lines.
fn cloud_conf(auth_url: &str, fixture: &Fixture, lines: &str) -> ConfigFile {
    let Fixture { user, password, project, .. } = fixture;
    let global =
        format!("[Global]\nauth-url = {auth_url}\nuser-id = {user}\npassword = {password}\ntenant-id = {project}\n");
    ConfigFile::from_text("cloud.conf", format!("{global}{lines}"))
}

fn provider(cloud: &Simulator, lines: &str) -> OpenStack {
    let (inputs, cluster) = (BuildInputs::default(), "kubernetes".into());
    let file = cloud_conf("http://openstack/identity", &cloud.fixture(), lines);
    let config = Config::read(&inputs.context(Some(&file), &cluster)).unwrap();
    OpenStack::over(config, cloud.client(Duration::from_secs(60)))
}

/// Returns all results as `subject: ok` or `subject: kind`.
async fn diagnosed(cloud: &Simulator, lines: &str) -> Vec<String> {
    let results = provider(cloud, lines).diagnose().await;
    let outcome = |result: &bowline_cloud::CheckResult| match &result.outcome {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.kind().as_str().to_owned(),
    };
    results.iter().map(|result| format!("{}: {}", result.subject, outcome(result))).collect()
}

/// Returns the error of a subject.
async fn diagnosed_error(cloud: &Simulator, lines: &str, what: &str) -> String {
    let results = provider(cloud, lines).diagnose().await;
    let result = results.iter().find(|result| result.subject == what);
    let result = result.unwrap_or_else(|| panic!("no result for {what}: {results:?}"));
    result.outcome.as_ref().unwrap_err().to_string()
}

fn everything_named(fixture: &Fixture) -> String {
    let Fixture { subnet, network, external_network, external_subnet, router, .. } = fixture;
    let Fixture { octavia_flavor, octavia_zone, .. } = fixture;
    format!(
        "[LoadBalancer]\nnetwork-id = {network}\nsubnet-id = {subnet}\nmember-subnet-id = {subnet}\n\
         floating-network-id = {external_network}\nflavor-id = {octavia_flavor}\navailability-zone = {octavia_zone}\n\
         [LoadBalancerClass \"dmz\"]\nsubnet-id = {subnet}\nfloating-network-id = {external_network}\n\
         floating-subnet-id = {external_subnet}\n[Route]\nrouter-id = {router}\n"
    )
}

#[tokio::test]
async fn a_valid_configuration_has_no_errors_and_every_resource_is_checked() {
    let cloud = Simulator::new(Options::default());
    let lines = everything_named(&cloud.fixture());
    let results = diagnosed(&cloud, &lines).await;
    let expected = [
        "credentials: ok",
        "endpoint compute: ok",
        "endpoint network: ok",
        "endpoint load-balancer: ok",
        "endpoint key-manager: ok",
        "router-id in [Route]: ok",
        "extension extraroute: ok",
        "network-id in [LoadBalancer]: ok",
        "subnet-id in [LoadBalancer]: ok",
        "member-subnet-id in [LoadBalancer]: ok",
        "floating-network-id in [LoadBalancer]: ok",
        "subnet-id in [LoadBalancerClass \"dmz\"]: ok",
        "floating-network-id in [LoadBalancerClass \"dmz\"]: ok",
        "floating-subnet-id in [LoadBalancerClass \"dmz\"]: ok",
        "lb-provider in [LoadBalancer]: ok",
        "flavor-id in [LoadBalancer]: ok",
        "availability-zone in [LoadBalancer]: ok",
    ];
    assert_eq!(results, expected);
    assert_eq!(cloud.writes(), [], "it changes nothing");
    let provider = provider(&cloud, &lines);
    provider.start().await.unwrap();
    provider.check().await.unwrap();
}

#[tokio::test]
async fn an_authentication_error_is_the_only_result() {
    let cloud = Simulator::new(Options::default());
    cloud.edit_identity(|identity| identity.users.iter_mut().for_each(|user| user.password = "another".to_owned()));
    assert_eq!(diagnosed(&cloud, "").await, ["credentials: unauthenticated"]);
    let provider = provider(&cloud, "");
    assert_eq!(provider.start().await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    assert_eq!(provider.check().await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    assert_eq!(provider.quotas().await.unwrap_err().kind(), ErrorKind::Unauthenticated);
}

#[tokio::test]
async fn missing_endpoints_are_reported_per_service() {
    let catalog = vec![Endpoint::new("network", "public", "RegionOne", "/network")];
    let cloud = Simulator::new(Options { catalog, ..Options::default() });
    let results = diagnosed(&cloud, "").await;
    let expected = [
        "credentials: ok",
        "endpoint compute: invalid_config",
        "endpoint network: ok",
        "endpoint load-balancer: invalid_config",
        "endpoint key-manager: unsupported",
        "external network: ok",
    ];
    assert_eq!(results, expected);
    let without_balancers = diagnosed(&cloud, "[LoadBalancer]\nenabled = false\n").await;
    assert_eq!(without_balancers, expected[..3], "only load balancers need Octavia, Barbican or an external network");
}

#[tokio::test]
async fn missing_permissions_are_reported_with_the_required_role() {
    let cloud = Simulator::new(Options::default());
    let forbidden =
        Fault::Answer(403, r#"{"faultcode": "Client", "faultstring": "Policy does not allow this."}"#.into());
    cloud.inject(FaultSpec::always(forbidden).of(Service::LoadBalancer));
    let results = diagnosed(&cloud, "").await;
    assert!(results.contains(&"endpoint load-balancer: permission_denied".to_owned()), "{results:?}");
    let text = diagnosed_error(&cloud, "", "endpoint load-balancer").await;
    assert!(text.contains("HTTP 403") && text.ends_with("(role needed=load-balancer_member)"), "{text}");
    assert_eq!(provider(&cloud, "").check().await.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn read_only_roles_are_reported() {
    let roles = vec!["reader".to_owned(), "load-balancer_observer".to_owned()];
    let cloud = Simulator::new(Options { roles, ..Options::default() });
    let text = diagnosed_error(&cloud, "", "roles").await;
    assert!(text.contains("the roles reader, load-balancer_observer are read-only"), "{text}");
    let off = diagnosed(&cloud, "[LoadBalancer]\nenabled = false\n").await;
    assert!(!off.iter().any(|line| line.starts_with("roles")), "{off:?}");
}

#[tokio::test]
async fn each_missing_id_is_reported_with_key_and_section() {
    let cloud = Simulator::new(Options::default());
    let table = [
        ("[LoadBalancer]\nnetwork-id = x\n", "network-id in [LoadBalancer]", "HTTP 404"),
        ("[LoadBalancer]\nsubnet-id = x\n", "subnet-id in [LoadBalancer]", "HTTP 404"),
        ("[LoadBalancer]\nmember-subnet-id = x\n", "member-subnet-id in [LoadBalancer]", "HTTP 404"),
        ("[LoadBalancer]\nfloating-network-id = x\n", "floating-network-id in [LoadBalancer]", "HTTP 404"),
        ("[LoadBalancer]\nfloating-subnet-id = x\n", "floating-subnet-id in [LoadBalancer]", "HTTP 404"),
        ("[LoadBalancer]\nflavor-id = x\n", "flavor-id in [LoadBalancer]", "Flavor x not found"),
        ("[LoadBalancer]\navailability-zone = x\n", "availability-zone in [LoadBalancer]", "Zone x not found"),
        ("[LoadBalancer]\nlb-provider = f5\n", "lb-provider in [LoadBalancer]", "it has amphora, ovn"),
        ("[LoadBalancerClass \"a b\"]\nsubnet-id = x\n", "subnet-id in [LoadBalancerClass \"a b\"]", "HTTP 404"),
        ("[Route]\nrouter-id = x\n", "router-id in [Route]", "HTTP 404"),
        (
            "[LoadBalancer]\ndefault-tls-container-ref = https://b/v1/containers/x\n",
            "default-tls-container-ref in [LoadBalancer]",
            "HTTP 404",
        ),
        (
            "[LoadBalancer]\ndefault-tls-container-ref = https://b/v1/orders/x\n",
            "default-tls-container-ref in [LoadBalancer]",
            "is not the URL of a container or a secret",
        ),
    ];
    for (lines, what, says) in table {
        let text = diagnosed_error(&cloud, lines, what).await;
        assert!(text.contains(says), "{lines}: {text}");
    }
}

#[tokio::test]
async fn unsuitable_networks_are_reported() {
    let cloud = Simulator::new(Options::default());
    let (other_network, other_subnet) = cloud.add_network("other", "192.0.2.0/24", true);
    let Fixture { network, external_network, .. } = cloud.fixture();
    let lines = format!("[LoadBalancer]\nfloating-network-id = {network}\n");
    let text = diagnosed_error(&cloud, &lines, "floating-network-id in [LoadBalancer]").await;
    assert!(text.contains("\"k8s-net\" is not external"), "{text}");
    let lines =
        format!("[LoadBalancer]\nfloating-network-id = {external_network}\nfloating-subnet-id = {other_subnet}\n");
    let text = diagnosed_error(&cloud, &lines, "floating-subnet-id in [LoadBalancer]").await;
    assert!(text.contains(&format!("it is in network {other_network}")), "{text}");
}

/// As in most clouds: the project sees the external network, but not its subnets.
#[tokio::test]
async fn an_invisible_floating_subnet_is_no_error() {
    let cloud = Simulator::new(Options { external_subnets_visible: false, ..Options::default() });
    let Fixture { network, external_network, external_subnet, .. } = cloud.fixture();
    let what = "floating-subnet-id in [LoadBalancer]";
    for network in [format!("floating-network-id = {external_network}\n"), String::new()] {
        let lines = format!("[LoadBalancer]\n{network}floating-subnet-id = {external_subnet}\n");
        assert!(diagnosed(&cloud, &lines).await.contains(&format!("{what}: ok")), "{lines}");
    }
    let lines = format!("[LoadBalancer]\nfloating-network-id = {network}\nfloating-subnet-id = {external_subnet}\n");
    assert!(diagnosed_error(&cloud, &lines, what).await.contains("HTTP 404"));
}

#[tokio::test]
async fn a_missing_external_network_is_reported_unless_load_balancers_are_internal() {
    let cloud = Simulator::new(Options::default());
    let external = cloud.fixture().external_network;
    cloud.edit(Kind::Network, &external, |network| {
        network.insert("router:external".to_owned(), false.into());
    });
    let missing = "external network: unsupported".to_owned();
    assert!(diagnosed(&cloud, "").await.contains(&missing));
    assert!(!diagnosed(&cloud, "[LoadBalancer]\ninternal-lb = true\n").await.contains(&missing));
}

#[tokio::test]
async fn the_reported_external_network_is_the_one_that_is_used() {
    let cloud = Simulator::new(Options::default());
    let fixture = cloud.fixture();
    // Listed first, because of its ID, and unsuitable for floating IPs.
    let first = "00000000-0000-4000-8000-000000000000";
    cloud.add(Kind::Network, json!({"id": first, "name": "ipv6-only", "router:external": true}));
    cloud.add_subnet(first, "ipv6-only-subnet", "2001:db8::/64");
    let results = provider(&cloud, "").diagnose().await;
    let found = results.iter().find(|result| result.subject == "external network").unwrap();
    assert_eq!(found.outcome.as_deref().unwrap(), "floating IPs are taken from \"public\"");
    cloud.remove(Kind::Network, &fixture.external_network);
    let text = diagnosed_error(&cloud, "", "external network").await;
    assert!(text.contains("no external network with an IPv4 subnet"), "{text}");
}

#[tokio::test]
async fn a_missing_extraroute_extension_is_reported() {
    let cloud = Simulator::new(Options { extensions: vec!["router".to_owned()], ..Options::default() });
    let lines = format!("[Route]\nrouter-id = {}\n", cloud.fixture().router);
    let results = diagnosed(&cloud, &lines).await;
    assert!(results.contains(&"extension extraroute: unsupported".to_owned()), "{results:?}");
}

#[tokio::test]
async fn quotas_are_reported_with_their_usage() {
    let quotas =
        [("floatingip", 10), ("load_balancer", 3), ("port", 100)].map(|(name, limit)| (name.to_owned(), limit));
    let cloud = Simulator::new(Options { quotas: quotas.to_vec(), ..Options::default() });
    cloud.add_balancer(json!({"name": "one", "vip_subnet_id": cloud.fixture().subnet})).unwrap();
    let mut found: Vec<_> = provider(&cloud, "").quotas().await.unwrap();
    found.sort_by(|one, other| one.resource.cmp(&other.resource));
    let lines: Vec<_> = found.iter().map(|quota| (quota.resource.as_str(), quota.limit)).collect();
    assert_eq!(lines, [("floating IPs", 10), ("load balancers", 3), ("ports", 100)]);
    assert_eq!((found[0].used, found[1].used), (0, 1));
    assert!(found[2].used > 0, "the router has ports");
}

// ---- construction

fn built(
    lines: &str,
    cloud: &str,
    fixture: &Fixture,
    environment: Environment,
) -> Result<Arc<dyn CloudProvider>, ConfigErrors> {
    let inputs = BuildInputs { environment, user_agents: vec!["harbour".to_owned()], ..BuildInputs::default() };
    let file = cloud_conf(cloud, fixture, lines);
    (factory().build)(&inputs.context(Some(&file), &"kubernetes".into()))
}

/// Over sockets that are closed after each response, as behind uWSGI.
#[tokio::test]
async fn a_provider_built_from_a_file_reaches_its_cloud() {
    let cloud = Simulator::new(Options { close_connections: true, ..Options::default() });
    let server = cloud.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    // Addresses of this machine are reached without a proxy.
    let environment = Environment::from_iter([("HTTP_PROXY", "http://127.0.0.1:1")]);
    let provider = built("", &(server.url() + "/identity/v3"), &cloud.fixture(), environment).unwrap();
    provider.start().await.unwrap();
    for _ in 0..20 {
        provider.check().await.unwrap();
    }
    assert_eq!(cloud.authentications(), 1);
    for entry in cloud.journal() {
        let agent = entry.headers.iter().find(|(name, _)| name == "user-agent").map(|(_, value)| value.as_str());
        assert!(
            agent.is_some_and(|agent| agent.starts_with("harbour openstack-cloud-controller-manager/")),
            "{agent:?}"
        );
    }
}

/// Keystone revokes all tokens while they are in use, and issues new ones.
#[tokio::test(start_paused = true)]
async fn revoked_and_expired_tokens_are_renewed() {
    let cloud = Simulator::new(Options { token_lifetime: Duration::from_secs(2), ..Options::default() });
    let provider = provider(&cloud, "");
    provider.check().await.unwrap();
    cloud.revoke_tokens();
    provider.check().await.unwrap();
    assert_eq!(cloud.authentications(), 2, "once for the three services that rejected the token");
    tokio::time::sleep(Duration::from_millis(2100)).await;
    provider.check().await.unwrap();
    assert_eq!(cloud.authentications(), 3);
}

#[tokio::test]
async fn an_unreachable_cloud_is_a_temporary_error() {
    let fixture = Simulator::new(Options::default()).fixture();
    let provider = built("", "http://127.0.0.1:1", &fixture, Environment::default()).unwrap();
    assert_eq!(provider.start().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn an_invalid_proxy_or_user_agent_is_an_error_at_construction() {
    let fixture = Simulator::new(Options::default()).fixture();
    let environment = Environment::from_iter([("HTTPS_PROXY", "gopher://sailor:s3cret@proxy")]);
    let errors = built("", "http://127.0.0.1:1", &fixture, environment).err().unwrap().to_string();
    assert!(
        errors.contains("the environment variable HTTPS_PROXY is not a valid proxy") && !errors.contains("s3cret"),
        "{errors}"
    );
    let inputs = BuildInputs { user_agents: vec!["a\nb".to_owned()], ..BuildInputs::default() };
    let file = cloud_conf("http://127.0.0.1:1", &fixture, "");
    let errors = (factory().build)(&inputs.context(Some(&file), &"kubernetes".into())).err().unwrap();
    assert!(errors.to_string().contains("--user-agent"), "{errors}");
}
