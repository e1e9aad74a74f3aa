//! What `start`, `check`, `examine` and `quotas` tell of a cloud, and the whole way there: `cloud.conf`, factory, sockets.
use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{CloudProvider, ErrorKind, Surroundings};
use bowline_config::{ConfigErrors, ConfigFile, Environment};
use bowline_openstack::{Config, OpenStack, factory};
use bowline_openstack_simulator::{Endpoint, Fault, FaultSpec, Fixture, Kind, Options, Service, Simulator};
use serde_json::json;

/// `cloud.conf` for the simulator's user, with these lines behind it.
fn cloud_conf(auth_url: &str, fixture: &Fixture, lines: &str) -> ConfigFile {
    let Fixture { user, password, project, .. } = fixture;
    let global =
        format!("[Global]\nauth-url = {auth_url}\nuser-id = {user}\npassword = {password}\ntenant-id = {project}\n");
    ConfigFile::from_text("cloud.conf", format!("{global}{lines}"))
}

fn provider(cloud: &Simulator, lines: &str) -> OpenStack {
    let (surroundings, cluster) = (Surroundings::default(), "kubernetes".into());
    let file = cloud_conf("http://openstack/identity", &cloud.fixture(), lines);
    let config = Config::read(&surroundings.context(Some(&file), &cluster)).unwrap();
    OpenStack::over(config, cloud.client(Duration::from_secs(60)))
}

/// All findings, as `what: ok` or `what: kind`.
async fn examined(cloud: &Simulator, lines: &str) -> Vec<String> {
    let findings = provider(cloud, lines).examine().await;
    let outcome = |finding: &bowline_cloud::Finding| match &finding.outcome {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.kind().as_str().to_owned(),
    };
    findings.iter().map(|finding| format!("{}: {}", finding.what, outcome(finding))).collect()
}

/// What is wrong, in words.
async fn complaint(cloud: &Simulator, lines: &str, what: &str) -> String {
    let findings = provider(cloud, lines).examine().await;
    let finding = findings.iter().find(|finding| finding.what == what);
    let finding = finding.unwrap_or_else(|| panic!("nothing is said of {what}: {findings:?}"));
    finding.outcome.as_ref().unwrap_err().to_string()
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
async fn a_sound_cloud_has_nothing_wrong_and_everything_that_is_named_is_looked_at() {
    let cloud = Simulator::new(Options::default());
    let lines = everything_named(&cloud.fixture());
    let findings = examined(&cloud, &lines).await;
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
    assert_eq!(findings, expected);
    assert_eq!(cloud.writes(), [], "it changes nothing");
    let provider = provider(&cloud, &lines);
    provider.start().await.unwrap();
    provider.check().await.unwrap();
}

#[tokio::test]
async fn of_a_cloud_that_does_not_let_us_in_that_alone_is_told() {
    let cloud = Simulator::new(Options::default());
    cloud.edit_identity(|identity| identity.users.iter_mut().for_each(|user| user.password = "another".to_owned()));
    assert_eq!(examined(&cloud, "").await, ["credentials: unauthenticated"]);
    let provider = provider(&cloud, "");
    assert_eq!(provider.start().await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    assert_eq!(provider.check().await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    assert_eq!(provider.quotas().await.unwrap_err().kind(), ErrorKind::Unauthenticated);
}

#[tokio::test]
async fn a_catalog_without_a_service_is_told_service_by_service() {
    let catalog = vec![Endpoint::new("network", "public", "RegionOne", "/network")];
    let cloud = Simulator::new(Options { catalog, ..Options::default() });
    let findings = examined(&cloud, "").await;
    let expected = [
        "credentials: ok",
        "endpoint compute: invalid_config",
        "endpoint network: ok",
        "endpoint load-balancer: invalid_config",
        "endpoint key-manager: unsupported",
        "external network: ok",
    ];
    assert_eq!(findings, expected);
    let without_balancers = examined(&cloud, "[LoadBalancer]\nenabled = false\n").await;
    assert_eq!(without_balancers, expected[..3], "nobody else needs Octavia, Barbican or an external network");
}

#[tokio::test]
async fn rights_that_are_missing_are_told_with_the_role_that_gives_them() {
    let cloud = Simulator::new(Options::default());
    let forbidden =
        Fault::Answer(403, r#"{"faultcode": "Client", "faultstring": "Policy does not allow this."}"#.into());
    cloud.inject(FaultSpec::always(forbidden).of(Service::LoadBalancer));
    let findings = examined(&cloud, "").await;
    assert!(findings.contains(&"endpoint load-balancer: permission_denied".to_owned()), "{findings:?}");
    let text = complaint(&cloud, "", "endpoint load-balancer").await;
    assert!(text.contains("HTTP 403") && text.ends_with("(role needed=load-balancer_member)"), "{text}");
    assert_eq!(provider(&cloud, "").check().await.unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn roles_that_only_read_are_told() {
    let roles = vec!["reader".to_owned(), "load-balancer_observer".to_owned()];
    let cloud = Simulator::new(Options { roles, ..Options::default() });
    let text = complaint(&cloud, "", "roles").await;
    assert!(text.contains("the roles reader, load-balancer_observer let us read"), "{text}");
    let off = examined(&cloud, "[LoadBalancer]\nenabled = false\n").await;
    assert!(!off.iter().any(|line| line.starts_with("roles")), "{off:?}");
}

#[tokio::test]
async fn each_id_that_does_not_exist_is_told_by_its_key_and_section() {
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
            "is no ID",
        ),
    ];
    for (lines, what, says) in table {
        let text = complaint(&cloud, lines, what).await;
        assert!(text.contains(says), "{lines}: {text}");
    }
}

#[tokio::test]
async fn networks_that_are_not_what_they_should_be_are_told() {
    let cloud = Simulator::new(Options::default());
    let (other_network, other_subnet) = cloud.add_network("other", "192.0.2.0/24", true);
    let Fixture { network, external_network, .. } = cloud.fixture();
    let lines = format!("[LoadBalancer]\nfloating-network-id = {network}\n");
    let text = complaint(&cloud, &lines, "floating-network-id in [LoadBalancer]").await;
    assert!(text.contains("\"k8s-net\" is not external"), "{text}");
    let lines =
        format!("[LoadBalancer]\nfloating-network-id = {external_network}\nfloating-subnet-id = {other_subnet}\n");
    let text = complaint(&cloud, &lines, "floating-subnet-id in [LoadBalancer]").await;
    assert!(text.contains(&format!("it is in the network {other_network}")), "{text}");
}

/// As in most clouds: the project sees the external network, and not what is in it.
#[tokio::test]
async fn a_floating_subnet_that_is_hidden_in_its_network_is_no_mistake() {
    let cloud = Simulator::new(Options { external_subnets_visible: false, ..Options::default() });
    let Fixture { network, external_network, external_subnet, .. } = cloud.fixture();
    let what = "floating-subnet-id in [LoadBalancer]";
    for network in [format!("floating-network-id = {external_network}\n"), String::new()] {
        let lines = format!("[LoadBalancer]\n{network}floating-subnet-id = {external_subnet}\n");
        assert!(examined(&cloud, &lines).await.contains(&format!("{what}: ok")), "{lines}");
    }
    let lines = format!("[LoadBalancer]\nfloating-network-id = {network}\nfloating-subnet-id = {external_subnet}\n");
    assert!(complaint(&cloud, &lines, what).await.contains("HTTP 404"));
}

#[tokio::test]
async fn a_cloud_without_an_external_network_is_told_unless_balancers_are_internal() {
    let cloud = Simulator::new(Options::default());
    let external = cloud.fixture().external_network;
    cloud.edit(Kind::Network, &external, |network| {
        network.insert("router:external".to_owned(), false.into());
    });
    let missing = "external network: unsupported".to_owned();
    assert!(examined(&cloud, "").await.contains(&missing));
    assert!(!examined(&cloud, "[LoadBalancer]\ninternal-lb = true\n").await.contains(&missing));
}

#[tokio::test]
async fn the_external_network_that_is_told_is_the_one_that_is_used() {
    let cloud = Simulator::new(Options::default());
    let fixture = cloud.fixture();
    // Before it in the list, by its ID, and of no use to floating IPs.
    let first = "00000000-0000-4000-8000-000000000000";
    cloud.add(Kind::Network, json!({"id": first, "name": "ipv6-only", "router:external": true}));
    cloud.add_subnet(first, "ipv6-only-subnet", "2001:db8::/64");
    let findings = provider(&cloud, "").examine().await;
    let told = findings.iter().find(|finding| finding.what == "external network").unwrap();
    assert_eq!(told.outcome.as_deref().unwrap(), "floating IPs are taken from \"public\"");
    cloud.remove(Kind::Network, &fixture.external_network);
    let text = complaint(&cloud, "", "external network").await;
    assert!(text.contains("no external network with a subnet for IPv4"), "{text}");
}

#[tokio::test]
async fn a_neutron_without_routes_is_told() {
    let cloud = Simulator::new(Options { extensions: vec!["router".to_owned()], ..Options::default() });
    let lines = format!("[Route]\nrouter-id = {}\n", cloud.fixture().router);
    let findings = examined(&cloud, &lines).await;
    assert!(findings.contains(&"extension extraroute: unsupported".to_owned()), "{findings:?}");
}

#[tokio::test]
async fn quotas_are_told_with_what_is_used_of_them() {
    let quotas =
        [("floatingip", 10), ("load_balancer", 3), ("port", 100)].map(|(name, limit)| (name.to_owned(), limit));
    let cloud = Simulator::new(Options { quotas: quotas.to_vec(), ..Options::default() });
    cloud.add_balancer(json!({"name": "one", "vip_subnet_id": cloud.fixture().subnet})).unwrap();
    let mut told: Vec<_> = provider(&cloud, "").quotas().await.unwrap();
    told.sort_by(|one, other| one.what.cmp(&other.what));
    let lines: Vec<_> = told.iter().map(|quota| (quota.what.as_str(), quota.limit)).collect();
    assert_eq!(lines, [("floating IPs", 10), ("load balancers", 3), ("ports", 100)]);
    assert_eq!((told[0].used, told[1].used), (0, 1));
    assert!(told[2].used > 0, "the router has ports");
}

// ---- the whole way

fn built(
    lines: &str,
    cloud: &str,
    fixture: &Fixture,
    environment: Environment,
) -> Result<Arc<dyn CloudProvider>, ConfigErrors> {
    let surroundings = Surroundings { environment, user_agents: vec!["harbour".to_owned()], ..Surroundings::default() };
    let file = cloud_conf(cloud, fixture, lines);
    (factory().build)(&surroundings.context(Some(&file), &"kubernetes".into()))
}

/// Over sockets that are closed after each answer, as behind uWSGI.
#[tokio::test]
async fn a_provider_that_is_built_from_a_file_reaches_its_cloud() {
    let cloud = Simulator::new(Options { close_connections: true, ..Options::default() });
    let server = cloud.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    // What is on this machine is asked without a proxy.
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

/// Keystone takes all tokens back while they are in use, and gives new ones.
#[tokio::test(start_paused = true)]
async fn tokens_that_are_revoked_or_end_are_renewed_without_anybody_noticing() {
    let cloud = Simulator::new(Options { token_lifetime: Duration::from_secs(2), ..Options::default() });
    let provider = provider(&cloud, "");
    provider.check().await.unwrap();
    cloud.revoke_tokens();
    provider.check().await.unwrap();
    assert_eq!(cloud.authentications(), 2, "once for the three services that refused");
    tokio::time::sleep(Duration::from_millis(2100)).await;
    provider.check().await.unwrap();
    assert_eq!(cloud.authentications(), 3);
}

#[tokio::test]
async fn a_cloud_that_is_not_there_is_not_wrong_for_good() {
    let fixture = Simulator::new(Options::default()).fixture();
    let provider = built("", "http://127.0.0.1:1", &fixture, Environment::default()).unwrap();
    assert_eq!(provider.start().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn what_cannot_be_sent_or_gone_through_is_told_when_the_provider_is_built() {
    let fixture = Simulator::new(Options::default()).fixture();
    let environment = Environment::from_iter([("HTTPS_PROXY", "gopher://sailor:s3cret@proxy")]);
    let errors = built("", "http://127.0.0.1:1", &fixture, environment).err().unwrap().to_string();
    assert!(errors.contains("HTTPS_PROXY in the environment is no proxy") && !errors.contains("s3cret"), "{errors}");
    let surroundings = Surroundings { user_agents: vec!["a\nb".to_owned()], ..Surroundings::default() };
    let file = cloud_conf("http://127.0.0.1:1", &fixture, "");
    let errors = (factory().build)(&surroundings.context(Some(&file), &"kubernetes".into())).err().unwrap();
    assert!(errors.to_string().contains("--user-agent"), "{errors}");
}
