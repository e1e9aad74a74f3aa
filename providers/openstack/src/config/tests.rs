//! Reading `cloud.conf` and `clouds.yaml`, and errors with their file, line and key.

mod clouds;
mod credentials;

use std::path::PathBuf;
use std::time::Duration;

use bowline_cloud::BuildInputs;
use bowline_config::table::{Keys as _, Kind};
use bowline_config::{ConfigErrors, ConfigFile, Environment};

use super::{Class, Config, LoadBalancer, declaration, declaration::table, reference, template};

/// Minimal valid section.
const GLOBAL: &str = "[Global]\nauth-url = http://k:5000\nuser-id = u\npassword = p\ntenant-id = t\n";

fn read_in(text: &str, environment: Environment) -> Result<Config, ConfigErrors> {
    let inputs = BuildInputs { environment, ..BuildInputs::default() };
    let file = ConfigFile::from_text("cloud.conf", text);
    Config::read(&inputs.context(Some(&file), &"kubernetes".into()))
}

fn read(text: &str) -> Result<Config, ConfigErrors> {
    read_in(text, Environment::default())
}

/// Reads the minimal section with this text.
fn with(text: &str) -> Config {
    read(&format!("{GLOBAL}{text}")).unwrap()
}

fn load_balancer(lines: &str) -> LoadBalancer {
    with(&format!("[LoadBalancer]\n{lines}\n")).load_balancer
}

/// Returns the only error: line after `GLOBAL`, field and text.
fn only_error(text: &str) -> (Option<usize>, String, String) {
    let errors = read(&format!("{GLOBAL}{text}")).unwrap_err();
    let all: Vec<_> = errors.iter().collect();
    assert_eq!(all.len(), 1, "{errors}");
    assert_eq!(all[0].file, Some(PathBuf::from("cloud.conf")), "{errors}");
    let line = all[0].line.map(|line| line - GLOBAL.lines().count());
    (line, all[0].field.clone().unwrap_or_default(), errors.to_string())
}

/// Asserts on [`only_error`].
fn assert_error(text: &str, line: usize, field: &str, says: &str) {
    let (at, of, error) = only_error(text);
    assert_eq!((at, of.as_str()), (Some(line), field), "{text}: {error}");
    assert!(error.contains(says), "{text} should say {says:?}: {error}");
}

fn warnings(text: &str) -> Vec<String> {
    with(text).warnings.iter().map(ToString::to_string).collect()
}

/// A folder of this test, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("bowline-openstack-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

// ---- [LoadBalancer]

#[test]
fn case_001_durations_have_units_and_booleans_many_spellings() {
    let read = load_balancer("monitor-delay = 1m\nmonitor-timeout = 30s\ncreate-monitor = yes");
    assert_eq!((read.monitor.delay, read.monitor.timeout, read.create_monitor), (60, 30, true));
}

#[test]
fn case_002_a_duration_without_a_unit_is_an_error() {
    assert_error("[LoadBalancer]\nmonitor-delay = 10\n", 2, "[LoadBalancer] monitor-delay", "write 10s");
}

#[test]
fn case_003_fractions_of_a_second_are_truncated() {
    assert_eq!(load_balancer("monitor-timeout = 2500ms").monitor.timeout, 2);
}

#[test]
fn case_007_names_are_case_insensitive() {
    assert_eq!(with("[loadbalancer]\nLB-Provider = ovn\n").load_balancer.provider, "ovn");
}

#[test]
fn case_008_repeated_keys_form_a_list() {
    let config = with("[Networking]\ninternal-network-name = a\ninternal-network-name = b\npublic-network-name = c\n");
    assert_eq!(config.networking.internal_networks, ["a", "b"]);
    assert_eq!(config.networking.public_networks, ["c"]);
}

#[test]
fn case_009_the_last_of_several_values_is_used() {
    assert_eq!(load_balancer("subnet-id = x\nsubnet-id = y").placement.subnet_id, "y");
}

#[test]
fn case_010_a_key_alone_is_true() {
    assert!(load_balancer("enabled = false\nenabled").enabled);
}

#[test]
fn case_011_an_invalid_boolean_is_an_error() {
    assert_error("[LoadBalancer]\nmanage-security-groups = ja\n", 2, "[LoadBalancer] manage-security-groups", "\"ja\"");
}

#[test]
fn case_012_keys_of_old_files_are_ignored_silently() {
    let text = "[BlockStorage]\nbs-version = v3\ntrust-device-path = x\n[Router]\nrouter-id = r\n\
                [LoadBalancer]\nuse-octavia = true\nnode-security-group = g\n[Global]\nsecret-name = s\nsecret-namespace = n\n";
    let config = with(text);
    assert_eq!((config.warnings, config.router_id), (Vec::new(), None));
}

#[test]
fn case_013_class_names_are_case_sensitive() {
    let text = "[LoadBalancerClass \"DMZ\"]\nfloating-network-id = f\nfloating-subnet-id = i\nfloating-subnet = ext-*\n\
                floating-subnet-tags = a,b\nnetwork-id = n\nsubnet-id = s\nmember-subnet-id = m\n";
    let config = with(text);
    let class = &config.classes["DMZ"];
    assert_eq!((class.floating_network_id.as_str(), class.network_id.as_str()), ("f", "n"));
    assert_eq!((class.subnet_id.as_str(), class.member_subnet_id.as_str()), ("s", "m"));
    let subnet = &class.floating_subnet;
    assert_eq!((subnet.id.as_str(), subnet.name.as_str(), subnet.tags.as_str()), ("i", "ext-*", "a,b"));
    assert!(!config.classes.contains_key("dmz"));
    assert_eq!(config.load_balancer.placement, Class::default());
}

#[test]
fn case_014_an_underscore_is_an_error() {
    let (line, field) = (2, "[LoadBalancer] floating_network_id");
    assert_error("[LoadBalancer]\nfloating_network_id = x\n", line, field, "write floating-network-id");
}

#[test]
fn case_015_v2_is_the_only_lb_version() {
    assert_error("[LoadBalancer]\nlb-version = v1\n", 2, "[LoadBalancer] lb-version", "remove it, or write v2");
    assert_eq!(warnings("[LoadBalancer]\nlb-version = v2\n"), Vec::<String>::new());
    assert_eq!(warnings("[LoadBalancer]\nlb-version = v1\nenabled = false\n").len(), 1);
}

#[test]
fn case_016_an_unknown_provider_is_used_with_a_warning() {
    assert_eq!(load_balancer("lb-provider = vmwareedge").provider, "vmwareedge");
    let warnings = warnings("[LoadBalancer]\nlb-provider = vmwareedge\ncontainer-store = safe\n");
    assert!(
        warnings[0].starts_with("cloud.conf:7: [LoadBalancer] lb-provider: \"vmwareedge\" is unknown"),
        "{warnings:?}"
    );
    assert!(warnings[1].starts_with("cloud.conf:8: [LoadBalancer] container-store: \"safe\""), "{warnings:?}");
    assert_eq!(
        self::warnings("[LoadBalancer]\nlb-provider = octavia\ncontainer-store = external\n"),
        Vec::<String>::new()
    );
}

// ---- [Metadata], [Networking], the environment

#[test]
fn case_017_the_search_order_is_only_validated() {
    for right in
        ["", "search-order =", "search-order = metadataService", "search-order = \" configDrive , metadataService \""]
    {
        with(&format!("[Metadata]\n{right}\n"));
    }
    let field = "[Metadata] search-order";
    assert_error("[Metadata]\nsearch-order = configdrive\n", 2, field, "\"configdrive\" is not a metadata source");
    assert_error("[Metadata]\nsearch-order = configDrive,\n", 2, field, "\"\" is not a metadata source");
    let three = "[Metadata]\nsearch-order = configDrive,metadataService,configDrive\n";
    assert_error(three, 2, field, "more than two");
}

#[test]
fn case_018_the_metadata_timeout_applies_to_all_requests() {
    let timeout = |text| with(text).request_timeout;
    assert_eq!(timeout("[Metadata]\nrequest-timeout = 3m\n"), Duration::from_secs(180));
    assert_eq!(timeout(""), Duration::from_secs(60));
    assert_eq!(timeout("[Metadata]\nrequest-timeout = 0\n"), Duration::from_secs(60));
}

#[test]
fn invalid_cidrs_of_the_sort_order_are_ignored_with_a_warning() {
    let config = with("[Networking]\naddress-sort-order = \"172.16.0.1/12, nonsense\t10.0.0.0/8 10.1.1.1\"\n");
    let ranges: Vec<_> = config.networking.sort_order.iter().map(ToString::to_string).collect();
    assert_eq!(ranges, ["172.16.0.0/12", "10.0.0.0/8"]);
    assert_eq!(config.warnings.len(), 2);
    assert!(config.warnings[0].to_string().contains("[Networking] address-sort-order: \"nonsense\" is not a CIDR"));
}

#[test]
fn case_156_wait_steps_are_a_non_negative_number() {
    for (value, steps) in [("30", 30), ("0", 0), ("x", 23), ("-1", 23), ("", 23), ("1.5", 23)] {
        let environment = Environment::from_iter([("OCCM_WAIT_LB_ACTIVE_STEPS", value)]);
        assert_eq!(read_in(GLOBAL, environment).unwrap().wait_active_steps, steps, "{value:?}");
    }
}

#[test]
fn provider_ids_contain_the_region_only_if_the_variable_is_exactly_true() {
    for (value, regional) in [("true", true), ("True", false), ("1", false), ("", false)] {
        let environment = Environment::from_iter([("OS_CCM_REGIONAL", value)]);
        assert_eq!(read_in(GLOBAL, environment).unwrap().regional, regional, "{value:?}");
    }
}

// ---- the whole file

#[test]
fn optional_keys_have_defaults() {
    let config = with("");
    assert_eq!((config.load_balancer, config.networking), (LoadBalancer::default(), Config::default().networking));
    assert_eq!((config.request_timeout, config.wait_active_steps), (Duration::from_secs(60), 23));
    assert_eq!((config.regional, config.router_id, config.warnings.len()), (false, None, 0));
    assert_eq!((config.global.interface.as_str(), config.global.region.as_str()), ("public", ""));
}

#[test]
fn every_key_that_is_declared_has_an_effect() {
    let without = with("[LoadBalancerClass \"a\"]\n");
    // They have an effect only together with other keys, or are only validated; other tests cover them.
    let apart = [
        "use-clouds",
        "clouds-file",
        "cloud",
        "lb-version",
        "search-order",
        "trustee-id",
        "trustee-password",
        "domain-id",
        "domain-name",
        "user-domain-id",
        "user-domain-name",
        "tenant-domain-id",
        "tenant-domain-name",
        "tenant-name",
        "application-credential-secret",
        "cert-file",
        "key-file",
    ];
    let table = table();
    let all = table.sections.iter().flat_map(|section| section.keys.iter().map(move |key| (section, key)));
    for (section, key) in all.filter(|(_, key)| !apart.contains(&key.name)) {
        let other = match (key.kind, key.default) {
            (_, "true") => "false",
            (Kind::Bool, _) => "true",
            (Kind::Duration, _) => "77s",
            (Kind::Integer | Kind::Unsigned, _) => "77",
            _ if key.name == "address-sort-order" => "10.0.0.0/8",
            _ if key.name == "auth-url" => "http://other",
            _ if key.name == "os-endpoint-type" => "admin",
            _ if key.name == "tls-insecure" => "true",
            _ => "other",
        };
        let own = if section.named { " \"a\"" } else { "" };
        let text = format!("{GLOBAL}[LoadBalancerClass \"a\"]\n[{}{own}]\n{} = {other}\n", section.name, key.name);
        let changed = read(&text).map(|config| Config { warnings: Vec::new(), ..config });
        assert_ne!(changed, Ok(without.clone()), "[{}] {}", section.name, key.name);
    }
}

#[test]
fn without_a_configuration_file_it_is_an_error() {
    let inputs = BuildInputs::default();
    let errors = Config::read(&inputs.context(None, &"kubernetes".into())).unwrap_err().to_string();
    assert!(errors.contains("--cloud-config") && errors.contains("cloud.conf"), "{errors}");
}

#[test]
fn all_errors_are_reported_at_once() {
    let text = "[Global]\nos-endpoint-type = internalURL\nca-file = /nowhere/ca.pem\ntenant-name = p\n\
                [LoadBalancer]\nlb-version = v1\n[Metadata]\nsearch-order = dns\nrequest-timeout = 5\n[Global]\npasword = x\n";
    let errors = read(text).unwrap_err();
    let places: Vec<_> = errors.iter().map(|one| (one.line, one.field.as_deref().unwrap_or_default())).collect();
    let wanted = [
        (Some(9), "[Metadata] request-timeout"),
        (Some(3), "[Global] ca-file"),
        (None, "[Global] auth-url"),
        (Some(2), "[Global] os-endpoint-type"),
        (None, "[Global] password"),
        (Some(4), "[Global] tenant-name"),
        (Some(8), "[Metadata] search-order"),
        (Some(6), "[LoadBalancer] lb-version"),
        (Some(11), "[Global] pasword"),
    ];
    assert_eq!(places, wanted, "{errors}");
    assert!(errors.iter().all(|one| one.hint.is_some()), "{errors}");
}

#[test]
fn the_filled_in_template_is_valid() {
    let config = read(&template()).unwrap();
    assert_eq!(config.warnings, []);
    // Commented-out settings are valid as well.
    let uncommented = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
        _ => format!("{line}\n"),
    };
    let all: String = template().lines().map(uncommented).collect();
    assert_eq!(all.matches(" = ").count(), 14, "{all}");
    let errors = read(&all).unwrap_err();
    assert!(errors.to_string().contains("/etc/config/ca.pem"), "{errors}");
    assert_eq!(errors.iter().count(), 1, "{errors}");
}

/// Every environment variable that is read is declared, and so is on the reference page.
#[test]
fn all_environment_variables_are_declared() {
    let page = reference();
    for variable in declaration::Variables::keys() {
        assert!(page.contains(&format!("| `{}` | string |", variable.name)), "{}", variable.name);
    }
    let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("config/tests.rs")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                let past = ["environment.get(", "env::var"].iter().find(|call| text.contains(**call));
                assert_eq!(past, None, "{}", path.display());
                read += 1;
            }
        }
    }
    assert!(read > 50, "{read}");
}

#[test]
fn the_reference_has_every_key() {
    let page = reference();
    for key in table().sections.iter().flat_map(|section| &section.keys) {
        assert!(page.contains(&format!("| `{}` | ", key.name)), "{}", key.name);
    }
    assert!(page.lines().all(|line| !line.contains("Router]")));
}
