//! NSX: the manager, load balancers and routes. Agents in place of them.

use std::path::Path;

use bowline_cloud::SecretRef;

use super::{INI, YAML, read, read_with, warnings};
use crate::config::Config;
use crate::config::nsx::{AppProfile, IpPool, LbService, NsxCredentials, PasswordScheme};

const NSX: &str = "nsxt: {host: nsx.example.com, user: admin, password: p}\n";
const LOAD_BALANCER: &str =
    "loadBalancer: {size: SMALL, lbServiceId: lbs, ipPoolId: pool, tcpAppProfileName: t, udpAppProfilePath: /u}\n";
const ROUTE: &str = "route: {routerPath: /infra/tier-1s/t1}\n";

fn valid(sections: &str) -> Config {
    let config = read(&format!("{YAML}{sections}")).unwrap();
    assert_eq!(warnings(&config), "");
    config
}

/// Reads sections that switch features off, and returns the warnings.
#[track_caller]
fn off(sections: &str, variables: &[(&str, &str)]) -> String {
    let config = read_with(&format!("{YAML}{sections}"), variables).unwrap();
    assert!(config.nsx.is_none() && config.load_balancers.is_none() && config.router_path.is_none(), "{config:?}");
    assert!(config.agent.is_none() && !config.agent_routes);
    assert_eq!((config.vcenters.len(), config.warnings.clone()), (1, config.switched_off.clone()));
    warnings(&config)
}

#[test]
fn features_are_off_unless_they_are_configured() {
    for sections in ["", NSX, "nsxt: {}\nloadBalancer: {snatDisabled: true, tags: {a: b}}\nroute: {}\n"] {
        let config = valid(sections);
        assert!(config.nsx.is_none() && config.load_balancers.is_none() && config.router_path.is_none(), "{sections}");
    }
    let config = valid(&format!("{NSX}{ROUTE}"));
    assert_eq!(
        (config.router_path.as_deref(), config.nsx.unwrap().host.as_str()),
        (Some("/infra/tier-1s/t1"), "nsx.example.com")
    );
    assert!(config.load_balancers.is_none());
}

/// VS-100, VS-102
#[test]
fn an_invalid_manager_switches_all_features_off() {
    let cases = [
        ("", "user or vmc access token or client cert file must be set"),
        ("host: h, vmcAccessToken: t", "vmc auth host must be provided if auth token is provided"),
        ("host: h, user: u", "password is empty"),
        ("host: h, clientAuthKeyFile: k", "client cert file is required if client key file is provided"),
        ("host: h, clientAuthCertFile: c", "client key file is required if client cert file is provided"),
        ("host: h, secretName: s", "secret namespace is required if secret name is provided"),
        ("host: h, secretNamespace: s", "secret name is required if secret namespace is provided"),
        ("host: h, secretName: S, secretNamespace: n", "\"n/S\" is not the name of a Secret"),
        ("host: \"https://h\", user: u, password: p", "has a scheme, a user or a path; write HOST or HOST:PORT"),
        ("host: h, vmcAccessToken: t, vmcAuthHost: \"https://a/b\"", "has a scheme; write HOST/PATH"),
        ("user: u, password: p", "host is empty"),
        ("vmcAccessToken: t, vmcAuthHost: h", "host is empty"),
        ("clientAuthCertFile: c, clientAuthKeyFile: k", "host is empty"),
        ("secretName: s, secretNamespace: n", "host is empty"),
        ("host: h, user: u, password: p, insecureFlag: perhaps", "\"perhaps\" is neither true nor false"),
    ];
    for (keys, message) in cases {
        for feature in [LOAD_BALANCER, ROUTE] {
            let shown = off(&format!("nsxt: {{{keys}}}\n{feature}"), &[]);
            assert!(shown.contains(message), "{keys}: {shown}");
            assert!(shown.contains("load balancers and routes are off until this is corrected"), "{shown}");
        }
    }
    let shown = off(&format!("{NSX}{ROUTE}"), &[("NSXT_ALLOW_UNVERIFIED_SSL", "perhaps")]);
    assert!(shown.starts_with("NSXT_ALLOW_UNVERIFIED_SSL: "), "{shown}");
}

#[test]
fn an_invalid_value_of_a_feature_does_not_end_the_start() {
    let shown = off(&format!("{NSX}{}", LOAD_BALANCER.replace("ipPoolId: pool", "ipPoolId: [pool]")), &[]);
    assert!(shown.contains("loadBalancer.ipPoolId: expected a string"), "{shown}");
    assert!(shown.contains("load balancers are off until this is corrected"), "{shown}");
    let config = read(&format!(
        "{INI}[NSXT]\nhost = h\nuser = u\npassword = p\n[Route]\nrouter-path = /infra/tier-0s/a\n[LoadBalancer]\nsnat-disabled = x\n"
    ));
    let config = config.unwrap();
    assert!(config.router_path.is_some() && config.load_balancers.is_none());
    assert!(warnings(&config).contains("vsphere.conf:13: [LoadBalancer] snat-disabled: "), "{}", warnings(&config));
}

#[test]
fn the_first_complete_credentials_are_used() {
    let credentials = |keys: &str| valid(&format!("nsxt: {{host: h, {keys}}}\n{ROUTE}")).nsx.unwrap().credentials;
    let all = "clientAuthCertFile: /c, clientAuthKeyFile: /k, vmcAccessToken: t, vmcAuthHost: a, secretName: s, secretNamespace: n, user: u, password: p";
    let from = |first: &str| credentials(&all[all.find(first).unwrap()..]);
    assert!(matches!(from("clientAuthCertFile"), NsxCredentials::Certificate { certificate, key }
        if certificate == Path::new("/c") && key == Path::new("/k")));
    assert!(
        matches!(from("vmcAccessToken"), NsxCredentials::Vmc { token, auth_host } if token.reveal() == "t" && auth_host == "a")
    );
    let secret = SecretRef::parse("n/s").unwrap();
    assert!(
        matches!(from("secretName"), NsxCredentials::Secret { secret: found, scheme: PasswordScheme::Basic } if found == secret)
    );
    assert!(matches!(credentials("user: u, password: p, remoteAuth: true"),
        NsxCredentials::Password { user, scheme: PasswordScheme::Remote, .. } if user == "u"));
    assert!(matches!(credentials("user: u, secretName: s, secretNamespace: n"), NsxCredentials::Secret { .. }));
    let config = valid(&format!("nsxt: {{host: h, {all}, caFile: /ca}}\n{ROUTE}"));
    assert_eq!(config.files(), ["/c", "/ca", "/k"].map(Path::new));
    assert_eq!(config.nsx.unwrap().password.unwrap().0, "u");
}

/// VS-101
#[test]
fn variables_replace_each_field_and_complete_the_file() {
    let variables = [
        ("NSXT_MANAGER_HOST", "host"),
        ("NSXT_USERNAME", "user"),
        ("NSXT_PASSWORD", "password"),
        ("NSXT_ALLOW_UNVERIFIED_SSL", "true"),
        ("NSXT_CA_FILE", "/ca"),
    ];
    for section in ["", "nsxt: {host: h, user: u, password: p, insecureFlag: false, caFile: /x}\n"] {
        let nsx = read_with(&format!("{YAML}{section}{ROUTE}"), &variables).unwrap().nsx.unwrap();
        assert_eq!((&*nsx.host, nsx.insecure, nsx.ca_file.as_deref()), ("host", true, Some(Path::new("/ca"))));
        assert!(
            matches!(nsx.credentials, NsxCredentials::Password { user, password, .. } if user == "user" && password.reveal() == "password")
        );
    }
    let secret = [("NSXT_SECRET_NAME", "s"), ("NSXT_SECRET_NAMESPACE", "n")];
    let nsx = read_with(&format!("{YAML}{NSX}{ROUTE}"), &secret).unwrap().nsx.unwrap();
    assert!(matches!(nsx.credentials, NsxCredentials::Secret { secret, .. } if secret.to_string() == "n/s"));
    let certificate = [("NSXT_CLIENT_AUTH_CERT_FILE", "/c"), ("NSXT_CLIENT_AUTH_KEY_FILE", "/k")];
    let nsx = read_with(&format!("{YAML}{NSX}{ROUTE}"), &certificate).unwrap().nsx.unwrap();
    assert!(matches!(nsx.credentials, NsxCredentials::Certificate { .. }));
}

/// VS-99
#[test]
fn load_balancers_are_read_from_both_formats() {
    let yaml = format!(
        "{NSX}loadBalancer:
  lbServiceId: 4711
  tier1GatewayPath: 1234
  size: MEDIUM
  snatDisabled: true
  ipPoolName: main
  tcpAppProfileName: tcp
  udpAppProfileName: udp
  tags: {{tag1: value1, tag 2: 5}}
loadBalancerClass:
  private: {{ipPoolId: p1, tcpAppProfileName: tcp2, tcpAppProfilePath: /t, udpAppProfilePath: /u}}
  public: {{ipPoolId: p2}}
"
    );
    let ini = r#"[NSXT]
host = nsx.example.com
user = admin
password = p
[LoadBalancer]
lb-service-id = 4711
tier1-gateway-path = 1234
size = MEDIUM
snat-disabled
ip-pool-name = main
tcp-app-profile-name = tcp
udp-app-profile-name = udp
tags = {\"tag1\": \"value1\", \"tag 2\": \"5\"}
[LoadBalancerClass "private"]
ip-pool-id = p1
tcp-app-profile-name = tcp2
tcp-app-profile-path = /t
udp-app-profile-path = /u
[LoadBalancerClass "public"]
ip-pool-id = p2
"#;
    let yaml = valid(&yaml).load_balancers.unwrap();
    assert_eq!(read(&format!("{INI}{ini}")).unwrap().load_balancers.unwrap(), yaml);
    assert_eq!(yaml.service, LbService::Existing { id: "4711".to_owned(), tier1: Some("1234".to_owned()) });
    assert!(yaml.snat_disabled && yaml.size == "MEDIUM");
    assert_eq!(
        yaml.tags.iter().map(|(scope, tag)| format!("{scope}={tag}")).collect::<Vec<_>>(),
        ["tag 2=5", "tag1=value1"]
    );
    assert_eq!(yaml.classes.keys().collect::<Vec<_>>(), ["default", "private", "public"]);
    assert_eq!(yaml.classes["default"].pool, IpPool::Name("main".to_owned()));
    let (private, public) = (&yaml.classes["private"], &yaml.classes["public"]);
    assert_eq!(
        (&private.tcp_profile, &private.udp_profile),
        (&AppProfile::Path("/t".to_owned()), &AppProfile::Path("/u".to_owned()))
    );
    assert_eq!(
        (&public.pool, &public.tcp_profile),
        (&IpPool::Id("p2".to_owned()), &AppProfile::Name("tcp".to_owned()))
    );
}

/// VS-98
#[test]
fn a_class_inherits_pool_and_profiles_as_pairs() {
    let sections = "loadBalancer: {size: DLB, tier1GatewayPath: /infra/tier-1s/t1, ipPoolId: main, tcpAppProfilePath: /t, udpAppProfilePath: /u}
loadBalancerClass:
  default: {udpAppProfileName: u}
  own: {ipPoolName: own, tcpAppProfileName: t}
";
    let config = valid(&format!("{NSX}{sections}")).load_balancers.unwrap();
    assert_eq!(config.service, LbService::Managed { tier1: "/infra/tier-1s/t1".to_owned() });
    let own = &config.classes["own"];
    assert_eq!(own.pool, IpPool::Name("own".to_owned()));
    assert_eq!(
        (&own.tcp_profile, &own.udp_profile),
        (&AppProfile::Name("t".to_owned()), &AppProfile::Name("u".to_owned()))
    );
    assert_eq!(config.classes["default"].udp_profile, AppProfile::Name("u".to_owned()));
}

/// VS-96, VS-97
#[test]
fn in_a_class_the_pool_id_precedes_the_name_and_in_the_main_section_both_are_an_error() {
    let classes = |name: &str| format!("loadBalancerClass: {{{name}: {{ipPoolName: a, ipPoolId: b}}}}\n");
    for name in ["x", "default"] {
        let config = read(&format!("{YAML}{NSX}{LOAD_BALANCER}{}", classes(name))).unwrap();
        assert_eq!(config.load_balancers.as_ref().unwrap().classes[name].pool, IpPool::Id("b".to_owned()));
        let shown = warnings(&config);
        let expected = "ipPoolName: is ignored: the class has a pool ID as well, which precedes; set one of both";
        assert!(shown.contains(&format!("loadBalancerClass.{name}.{expected}")), "{shown}");
        assert!(config.switched_off.is_empty());
    }
}

#[test]
fn invalid_load_balancers_are_switched_off_with_all_errors() {
    let shown = off(&format!("{NSX}loadBalancer: {{size: TINY, ipPoolName: a, ipPoolId: b}}\n"), &[]);
    let expected = [
        "loadBalancer.lbServiceId: either load balancer service id or T1 gateway path required",
        "either load balancer TCP application profile name or path required",
        "either load balancer UDP application profile name or path required",
        "load balancer size is invalid. Valid values are: DLB,LARGE,MEDIUM,SMALL,XLARGE",
        "loadBalancer.ipPoolName: either load balancer ipPoolName or ipPoolID can be set",
    ];
    for expected in expected {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let without = LOAD_BALANCER.replace(", ipPoolId: pool", "");
    assert!(off(&format!("{NSX}{without}"), &[]).contains("no default load balancer class defined"));
    let class = |class: &str| format!("{NSX}{without}loadBalancerClass: {{{class}}}\n");
    let shown = off(&class("default: {tcpAppProfileName: x}"), &[]);
    assert!(shown.contains("default load balancer class: ipPoolName and ipPoolID is empty"), "{shown}");
    assert_eq!(valid(&class("default: {ipPoolId: x}")).load_balancers.unwrap().classes.len(), 1);
    let tags = off(&format!("{NSX}{}", LOAD_BALANCER.replace("size", "tags: {a: [b]}, size")), &[]);
    assert!(tags.contains("loadBalancer.tags: is not a mapping of strings"), "{tags}");
}

/// VS-126
#[test]
fn a_router_path_names_a_gateway() {
    let route = |path: &str| format!("{NSX}route: {{routerPath: {path}}}\n");
    for path in ["/infra/tier-1s/a", "/infra/tier-0s/a", "/orgs/default/projects/p/infra/tier-1s/a"] {
        assert_eq!(valid(&route(path)).router_path.as_deref(), Some(path));
    }
    assert!(off(&route("\"\""), &[]).contains("route.routerPath: router path is required; routes are off until"));
    let invalid = [
        "a",
        "/infra/tier-1s/",
        "/infra/segments/a",
        "infra/tier-1s/a",
        "/tier-1s/a",
        "/x/infra/tier-1s/a",
        "/orgs//projects/p/infra/tier-1s/a",
        "/policy/api/v1/infra/tier-1s/a",
    ];
    for path in invalid {
        assert!(off(&route(path), &[]).contains("is not the policy path of a gateway"), "{path}");
        let config = read(&format!("{YAML}{LOAD_BALANCER}{}", route(path))).unwrap();
        assert!(config.load_balancers.is_some() && config.router_path.is_none(), "{path}: routes alone are off");
    }
}

const AGENT: &str = "agent: {endpoints: [\"unix:/run/agent.sock\"]}\n";

#[test]
fn load_balancers_by_agents_need_no_nsx() {
    let config = valid(AGENT);
    assert!(config.agent.is_some() && !config.agent_routes && config.nsx.is_none());
    assert!(valid(&format!("{AGENT}route: {{agents: true}}\n")).agent_routes);
    // Routes of NSX and load balancers of agents are independent.
    let config = valid(&format!("{NSX}{AGENT}{ROUTE}"));
    assert!(config.agent.is_some() && config.router_path.is_some() && !config.agent_routes);
    let ini = read(&format!("{INI}[Agent]\nendpoints = unix:/run/agent.sock\n[Route]\nagents\n")).unwrap();
    assert!(ini.agent == config.agent && ini.agent_routes);
}

#[test]
fn an_invalid_agent_switches_load_balancers_off() {
    let agent = "agent: {endpoints: [\"https://lb-1\"], caFile: /nowhere/ca.crt}\n";
    let shown = off(agent, &[]);
    let expected = [
        "agent.endpoints: \"https://lb-1\" does not consist of a host and a port; write https://HOST:PORT",
        "agent.caFile: /nowhere/ca.crt: no such file",
        "agent.certificateFile: is required",
        "agent.keyFile: is required",
    ];
    for expected in expected {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert_eq!(shown.matches("; load balancers are off until this is corrected\n").count(), 4, "{shown}");
    let shown = off(&format!("{agent}route: {{agents: true}}\n"), &[]);
    assert!(shown.contains("load balancers and routes are off until this is corrected"), "{shown}");
    let config = read(&format!("{YAML}{NSX}{ROUTE}{agent}")).unwrap();
    assert!(config.agent.is_none() && config.router_path.is_some(), "routes of NSX stay");
}

#[test]
fn nsx_and_agents_for_the_same_feature_are_an_error() {
    let error = |sections: &str| read(&format!("{YAML}{sections}")).unwrap_err();
    let shown = error(&format!("{NSX}{LOAD_BALANCER}{AGENT}"));
    assert_eq!(
        shown,
        "vsphere.conf:10: agent.endpoints: loadBalancer configures load balancers of NSX as well, and a cluster has one of both; \
         remove agent or loadBalancer"
    );
    let shown = error(&format!("{NSX}{AGENT}route: {{agents: true, routerPath: /infra/tier-1s/t1}}\n"));
    assert!(shown.contains("route.agents: routerPath configures routes of NSX as well"), "{shown}");
    assert!(error("route: {agents: true}\n").contains("route.agents: there are no agents; write the section agent"));
    let ini =
        "[LoadBalancer]\nsize = SMALL\n[Agent]\nendpoints = unix:/x\n[Route]\nagents\nrouter-path = /infra/tier-0s/a\n";
    let shown = read(&format!("{INI}{ini}")).unwrap_err();
    assert!(shown.contains("[Agent] endpoints: LoadBalancer configures load balancers of NSX as well"), "{shown}");
    assert!(shown.contains("[Route] agents: router-path configures routes of NSX as well"), "{shown}");
}

#[test]
fn the_key_of_older_versions_for_agents_is_an_error() {
    for agent in ["true", "{}", "{addresses: [192.0.2.1]}", "{interface: eth0}"] {
        let error = read(&format!("{YAML}loadBalancer: {{agent: {agent}}}\n")).unwrap_err();
        assert!(error.contains("loadBalancer.agent: load balancers by agents have a section of their own"), "{error}");
        assert!(
            error.ends_with("write the section agent with endpoints, caFile, certificateFile and keyFile"),
            "{error}"
        );
    }
    assert!(read(&format!("{INI}[LoadBalancer]\nagent = x\n")).unwrap_err().contains("a section of their own"));
}
