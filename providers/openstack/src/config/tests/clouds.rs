//! clouds.yaml, secure.yaml and clouds-public.yaml.

use bowline_config::{ConfigErrors, Environment, Secret};

use super::{Folder, read_in};
use crate::config::{Config, Credential, Domain, Scope, User};

const HARBOUR: &str = "\
clouds:
  harbour:
    auth:
      auth_url: http://a:5000
      username: n
      password: 123456
      project_id: t
      user_domain_name: U
    region_name: north
    interface: internal
    identity_api_version: 3
";

/// Home directory of this test.
struct Home(Folder);

impl Home {
    fn new(test: &str) -> Home {
        Home(Folder::new(test))
    }

    fn with(self, name: &str, text: &str) -> Home {
        self.0.file(&format!(".config/openstack/{name}"), text);
        self
    }

    fn read(&self, global: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
        let home = self.0.0.display().to_string();
        let environment = [("HOME", home.as_str())].into_iter().chain(variables.iter().copied());
        read_in(&format!("[Global]\nuse-clouds\n{global}\n"), Environment::from_iter(environment))
    }

    fn wrong(&self, global: &str, variables: &[(&str, &str)]) -> String {
        self.read(global, variables).unwrap_err().to_string()
    }
}

#[test]
fn case_019_global_takes_precedence_and_the_file_fills_the_rest() {
    let home = Home::new("case19").with("clouds.yaml", HARBOUR);
    for named in ["", "cloud = harbour\n"] {
        let config = home.read(&format!("auth-url = http://b\n{named}"), &[]).unwrap();
        let user = User::Name("n".to_owned(), Domain::Name("U".to_owned()));
        assert_eq!(config.global.auth_url, "http://b");
        assert_eq!(config.global.credential, Credential::Password { user, password: Secret::from("123456") });
        assert_eq!(config.global.scope, Scope::ProjectId("t".to_owned()));
        assert_eq!((config.global.region.as_str(), config.global.interface.as_str()), ("north", "internal"));
        assert!(config.files[0].ends_with(".config/openstack/clouds.yaml"), "{:?}", config.files);
    }
}

#[test]
fn global_takes_precedence_with_alternative_keys() {
    let home = Home::new("ways").with("clouds.yaml", HARBOUR);
    let config = home.read("tenant-name = mine\ntenant-domain-id = d\nuser-id = u", &[]).unwrap();
    assert_eq!(config.global.scope, Scope::ProjectName("mine".to_owned(), Domain::Id("d".to_owned())));
    assert!(matches!(config.global.credential, Credential::Password { user: User::Id(_), .. }));
    let own = "application-credential-id = a\napplication-credential-secret = s";
    let config = home.read(own, &[]).unwrap();
    assert!(matches!(config.global.credential, Credential::ApplicationCredentialId { .. }), "{:?}", config.global);
}

#[test]
fn case_020_one_of_several_clouds_must_be_selected() {
    let two = format!("{HARBOUR}  quay: {{auth: {{auth_url: http://q, token: x, project_id: p}}}}\n");
    let home = Home::new("case20").with("clouds.yaml", &two);
    let errors = home.wrong("", &[]);
    assert!(errors.contains("clouds.yaml: clouds: ") && errors.contains("harbour, quay"), "{errors}");
    assert_eq!(home.read("", &[("OS_CLOUD", "quay")]).unwrap().global.auth_url, "http://q");
    assert_eq!(home.read("cloud = harbour", &[("OS_CLOUD", "quay")]).unwrap().global.auth_url, "http://a:5000");
    let errors = home.wrong("cloud = habour", &[]);
    assert!(errors.contains("no such cloud: \"habour\"; did you mean harbour?"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "keys that the file would have filled are not missing: {errors}");
}

#[test]
fn case_021_the_file_can_disable_verification_unless_global_sets_it() {
    let home = Home::new("case21").with("clouds.yaml", &format!("{HARBOUR}    verify: false\n"));
    assert!(home.read("", &[]).unwrap().global.tls.insecure);
    assert!(!home.read("tls-insecure = false", &[]).unwrap().global.tls.insecure);
    let home = Home::new("case21b").with("clouds.yaml", &format!("{HARBOUR}    verify: true\n"));
    assert!(!home.read("", &[]).unwrap().global.tls.insecure);
}

#[test]
fn the_file_is_the_configured_one_or_at_the_default_locations() {
    let home = Home::new("places").with("clouds.yml", HARBOUR);
    let other = home.0.file("other.yaml", &HARBOUR.replace("http://a:5000", "http://other"));
    let other = other.display().to_string();
    let url = |global: &str, variables: &[(&str, &str)]| home.read(global, variables).unwrap().global.auth_url;
    assert_eq!(url("", &[]), "http://a:5000");
    assert_eq!(url("", &[("OS_CLIENT_CONFIG_FILE", &other)]), "http://other");
    assert_eq!(url(&format!("clouds-file = {other}"), &[("OS_CLIENT_CONFIG_FILE", "/nowhere")]), "http://other");
    let ignored = home.read("clouds-file = /nowhere", &[]).unwrap();
    assert_eq!(ignored.global.auth_url, "http://a:5000");
    assert!(ignored.warnings[0].to_string().contains("[Global] clouds-file: file /nowhere does not exist"));
}

#[test]
fn without_any_file_it_is_an_error() {
    let errors = Home::new("nothing").wrong("", &[]);
    assert!(errors.contains("no clouds.yaml") && errors.contains("clouds-file"), "{errors}");
    let errors = Home::new("nothing-named").wrong("clouds-file = /nowhere/clouds.yaml", &[]);
    assert!(errors.contains("/nowhere/clouds.yaml: no such file"), "{errors}");
}

#[test]
fn secure_yaml_overrides_the_file_which_overrides_the_profile_and_empty_values_are_ignored() {
    let clouds = "clouds:\n  harbour:\n    profile: vendor\n    auth: {username: n, password: weak, project_name: p}\n";
    let secure = "clouds:\n  harbour:\n    auth: {password: strong, username: ''}\n  other: {region_name: south}\n";
    let public = "public-clouds:\n  vendor:\n    auth: {auth_url: http://v, username: v, domain_name: D}\n    region_name: east\n";
    let home = Home::new("merge").with("clouds.yaml", clouds).with("secure.yaml", secure);
    let errors = home.wrong("", &[]);
    assert!(errors.contains("clouds.harbour: found no clouds-public.yaml with its profile \"vendor\""), "{errors}");
    let home = home.with("clouds-public.yaml", public);
    let config = home.read("", &[]).unwrap();
    let domain = || Domain::Name("D".to_owned());
    let user = User::Name("n".to_owned(), domain());
    assert_eq!(config.global.credential, Credential::Password { user, password: Secret::from("strong") });
    assert_eq!(config.global.scope, Scope::ProjectName("p".to_owned(), domain()));
    assert_eq!((config.global.auth_url.as_str(), config.global.region.as_str()), ("http://v", "east"));
    let names: Vec<_> = config.files.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    assert_eq!(names, ["clouds.yaml", "secure.yaml", "clouds-public.yaml"]);
    let home = home.with("clouds-public.yaml", "public-clouds: {}\n");
    assert!(home.wrong("", &[]).contains("public-clouds: no such cloud: \"vendor\""));
}

#[test]
fn errors_in_a_file_have_their_line() {
    let home = Home::new("broken").with("clouds.yaml", "clouds:\n  harbour:\n    auth: [1]\n");
    let errors = home.wrong("", &[]);
    assert!(errors.contains("clouds.yaml:3: "), "{errors}");
    let home = Home::new("broken-value").with("clouds.yaml", &format!("{HARBOUR}    cacert: /nowhere/ca.pem\n"));
    let errors = home.wrong("", &[]);
    assert!(errors.contains("clouds.yaml:12: clouds.harbour.cacert: /nowhere/ca.pem: no such file"), "{errors}");
}

#[test]
fn the_legacy_form_of_endpoint_types_is_read_from_the_file() {
    let text = HARBOUR.replace("interface: internal", "endpoint_type: adminURL\n    interface: public");
    let home = Home::new("endpoints").with("clouds.yaml", &text);
    assert_eq!(home.read("", &[]).unwrap().global.interface, "admin");
    let home = Home::new("endpoints-wrong").with("clouds.yaml", &HARBOUR.replace("internal", "inside"));
    let errors = home.wrong("", &[]);
    assert!(errors.contains("clouds.harbour.interface: \"inside\" is not an endpoint interface"), "{errors}");
}

#[test]
fn without_use_clouds_no_file_is_read() {
    let home = Home::new("unused").with("clouds.yaml", HARBOUR);
    assert!(home.wrong("use-clouds = false\ncloud = harbour", &[]).contains("auth-url: is missing"));
}
