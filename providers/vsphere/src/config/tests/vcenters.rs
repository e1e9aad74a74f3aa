//! Entries of vCenters.

use bowline_core::IpFamily;

use super::{INI, YAML, only, read, read_at, read_with, secret, warnings};
use crate::config::CredentialSource;

/// VS-4, VS-6
#[test]
fn the_name_of_an_entry_is_the_address_in_ini_only() {
    assert_eq!(only(&read(INI).unwrap()).server, "vc.example.com");
    let config = read(&format!("{INI}server = 192.0.2.1\n")).unwrap();
    assert_eq!((&*only(&config).name, &*only(&config).server), ("vc.example.com", "192.0.2.1"));
    assert_eq!(only(&read(YAML).unwrap()).name, "vc-1");
    let missing = "vsphere.conf does not have the VirtualCenter IP address specified";
    for entry in ["vcenter: {a: {port: 1}}", "vcenter: {a: }", "vcenter: {a: {}}", "vcenter: {server: a}"] {
        let error = read(&format!("global: {{user: u, password: p}}\n{entry}\n")).unwrap_err();
        assert!(error.contains(missing), "{entry}: {error}");
    }
    assert!(read("[Global]\n[VirtualCenter]\nuser = a\n").unwrap_err().contains(missing));
}

/// VS-5
#[test]
fn a_file_needs_a_vcenter() {
    for text in ["global: {user: a, password: b}", "vcenter:\n", "[Global]\nuser = a\npassword = b"] {
        let error = read(text).unwrap_err();
        assert!(error.contains("No Virtual Center hosts defined"), "{text}: {error}");
    }
}

/// VS-7, VS-8
#[test]
fn entries_inherit_the_global_settings_that_they_do_not_have() {
    let text = "
global: {user: root, password: p, port: 1443, insecureFlag: yes, datacenters: [\" a\", \"b,c\", \"\"], soapRoundtripCount: 7, caFile: /ca,
  ipFamily: [IPv6]}
vcenter:
  x: {server: x, user: other, insecureFlag: false}
  y: {server: y, port: 8443, datacenters: [d], soapRoundtripCount: 1, caFile: /y, ipFamily: [\" ipv4 \"]}
";
    let (global, own) = (["AB"; 20].join(":"), ["CD"; 20].join(":"));
    let text = text.replace("  ipFamily: [IPv6]}", &format!("  ipFamily: [IPv6], thumbprint: \"{global}\"}}"));
    let config = read(&text.replace("server: y,", &format!("server: y, thumbprint: \"{own}\","))).unwrap();
    let [x, y] = &config.vcenters[..] else { panic!("{config:?}") };
    assert_eq!((&x.thumbprint, &y.thumbprint), (&global, &own));
    assert_eq!(x.ca_files, [std::path::Path::new("/ca")]);
    assert_eq!((x.port, x.insecure, x.round_trips, &*x.user, x.password.reveal()), (1443, true, 7, "other", "p"));
    assert_eq!(
        (x.datacenters.clone(), x.ip_families.clone()),
        (vec!["a".into(), "b".into(), "c".into()], vec![IpFamily::IPv6])
    );
    assert_eq!((y.port, y.insecure, y.round_trips, &*y.user), (8443, true, 1, "root"));
    assert_eq!((y.datacenters.clone(), y.ip_families.clone()), (vec!["d".to_owned()], vec![IpFamily::IPv4]));
    assert_eq!(y.ca_files, [std::path::Path::new("/y")]);
    assert!(warnings(&config).contains("vcenter.x.insecureFlag: has no effect, because it is set globally"));
    let defaults = read(YAML).unwrap();
    let vcenter = only(&defaults);
    assert_eq!((vcenter.port, vcenter.insecure, vcenter.round_trips), (443, false, 3));
    assert_eq!(
        (vcenter.ip_families.as_slice(), vcenter.source.clone()),
        (&[IpFamily::IPv4][..], CredentialSource::Config)
    );
    let zero = read(&YAML.replace("user: root", "user: root\n  soapRoundtripCount: 0")).unwrap();
    assert_eq!(only(&zero).round_trips, 3);
    assert!(
        read(&YAML.replace("user: root", "user: root\n  port: 65536"))
            .unwrap_err()
            .contains("global.port: is not a port")
    );
}

/// VS-12, VS-16
#[test]
fn ini_lists_are_separated_by_commas() {
    let config = read(&format!("{INI}datacenters = dc 1, /dc/two ,, datacenter-3,\nip-family = ,IPv4 ,\n")).unwrap();
    assert_eq!(only(&config).datacenters, ["dc 1", "/dc/two", "datacenter-3"]);
    assert_eq!(only(&config).ip_families, [IpFamily::IPv4]);
    let config = read(&format!("{INI}datacenters = one\ndatacenters = two\n")).unwrap();
    assert_eq!(only(&config).datacenters, ["two"], "the last one counts, as in the Go manager");
    let both = read_with(&format!("{INI}ip-family = ipv6, IPv4\n"), &[("ENABLE_ALPHA_DUAL_STACK", "")]).unwrap();
    assert_eq!(only(&both).ip_families, [IpFamily::IPv6, IpFamily::IPv4]);
}

/// VS-17, VS-18
#[test]
fn ip_families_are_checked_in_both_formats() {
    for text in [format!("{YAML}    ipFamily: [ipv7]\n"), format!("{INI}ip-family = ipv7\n")] {
        let error = read(&text).unwrap_err();
        assert!(error.contains("Invalid IP Family type") && error.contains(":8: ") | error.contains(":6: "), "{error}");
    }
    let both = format!("{YAML}    ipFamily: [ipv6, ipv4, ipv6]\n");
    let error = read(&both).unwrap_err();
    let expected =
        "mulitple IP families specified for virtual center \"vc-1\" but ENABLE_ALPHA_DUAL_STACK env var is not set";
    assert!(error.contains(expected), "{error}");
    let config = read_with(&both, &[("ENABLE_ALPHA_DUAL_STACK", "")]).unwrap();
    assert_eq!(only(&config).ip_families, [IpFamily::IPv6, IpFamily::IPv4]);
    let inherited = read(&YAML.replace("user: root", "user: root\n  ipFamily: [ipv6, ipv4]")).unwrap_err();
    assert!(inherited.starts_with("vsphere.conf:4: global.ipFamily: mulitple IP families"), "{inherited}");
}

/// VS-6
#[test]
fn a_global_server_is_an_entry_unless_there_is_one_of_that_name() {
    let text = "global: {user: u, password: p, server: vc, port: 1443}\nvcenter:\n";
    let config = read(text).unwrap();
    assert_eq!((&*only(&config).name, &*only(&config).server, only(&config).port), ("vc", "vc", 1443));
    assert!(warnings(&config).contains("global.server: deprecated; move it to an entry of vcenter"));
    let same = read(&text.replace("vcenter:", "vcenter: {vc: {server: other}}")).unwrap();
    assert_eq!(only(&same).server, "other");
    let twice = read(&text.replace("vcenter:", "vcenter: {a: {server: vc}}")).unwrap();
    assert_eq!(twice.vcenters.len(), 2);
    assert!(warnings(&twice).contains("the vCenters \"a\" and \"vc\" have the same server"), "{}", warnings(&twice));
}

#[test]
fn a_server_is_a_bare_host() {
    let server = |server: &str| read(&YAML.replace("vc.example.com", server));
    assert_eq!(only(&server("\"[fd00::1]\"").unwrap()).server, "fd00::1");
    for text in ["https://vc", "vc:443", "vc/sdk"] {
        let error = server(text).unwrap_err();
        assert!(error.contains("is not a host name or an IP address"), "{error}");
    }
}

/// VS-43
#[test]
fn a_thumbprint_is_compared_ignoring_case() {
    let thumbprint = ["ab"; 32].join(":");
    let config = read(&format!("{YAML}    thumbprint: {thumbprint}\n")).unwrap();
    assert_eq!(only(&config).thumbprint, thumbprint.to_uppercase());
    let config = read(&format!("{YAML}    thumbprint: AB:CD\n")).unwrap();
    assert_eq!(only(&config).thumbprint, "");
    assert!(warnings(&config).contains("vcenter.vc-1.thumbprint: ignored, because it is neither"));
}

/// VS-13, VS-14: the same for global keys and for those of the entry.
#[test]
fn a_vcenter_needs_a_login_or_a_secret() {
    let cases = [
        ("user: u, password: p", Ok(CredentialSource::Config)),
        ("secretName: s, secretNamespace: n", Ok(secret("n/s"))),
        ("secretName: s, secretNamespace: n, user: u", Ok(secret("n/s"))),
        ("secretName: s, user: u, password: p", Ok(CredentialSource::Config)),
        ("secretName: s, password: p", Err("Username is missing")),
        ("secretName: s, user: u", Err("Password is missing")),
        ("secretName: s", Err("Username is missing")),
        ("secretNamespace: n", Err("Password is missing")),
        ("port: 1", Err("Username is missing")),
    ];
    for (keys, expected) in cases {
        let global = format!("global: {{{keys}}}\nvcenter: {{a: {{server: a}}}}\n");
        let own = format!("vcenter: {{a: {{server: a, {keys}}}}}\n");
        let implicit = format!("global: {{{keys}, server: a}}\n");
        for text in [global, own, implicit] {
            match (read(&text), &expected) {
                (Ok(config), Ok(source)) => assert_eq!(only(&config).source, *source, "{text}"),
                (Err(error), Err(message)) => assert!(error.contains(message), "{text}: {error}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
    }
}

#[test]
fn all_errors_are_reported_at_once() {
    let error =
        read("vcenter:\n  a: {}\n  b: {server: b, user: u, ipFamily: [x]}\nnodes: {internalNetworkSubnetCidr: y}\n")
            .unwrap_err();
    for message in
        ["IP address specified", "Username is missing", "Password is missing", "Invalid IP Family type", "invalid CIDR"]
    {
        assert!(error.contains(message), "{message}: {error}");
    }
    assert!(error.contains("vsphere.conf:3: vcenter.b.ipFamily") && error.contains("vcenter.b.password"), "{error}");
}

/// VS-7
#[test]
fn clear_credentials_are_not_inherited_beside_a_secret() {
    let text = "global: {user: u, password: p, secretName: s, secretNamespace: n}\nvcenter: {a: {server: a}, b: {server: b, user: own}}\n";
    let config = read(text).unwrap();
    let users = config.vcenters.iter().map(|vcenter| vcenter.user.as_str()).collect::<Vec<_>>();
    assert_eq!(users, ["", "own"]);
    let own = "global: {user: u, password: p}\nvcenter: {a: {server: a, secretName: s, secretNamespace: n}}\n";
    let config = read(own).unwrap();
    assert_eq!((only(&config).user.as_str(), only(&config).source.clone()), ("", secret("n/s")));
    let directory = "global: {user: u, password: p, secretsDirectory: /nonexistent}\nvcenter: {a: {server: a}}\n";
    assert_eq!(only(&read(directory).unwrap()).user, "");
}

/// VS-15, VS-35
#[test]
fn an_existing_directory_takes_precedence_over_the_global_secret() {
    let directory = std::env::temp_dir().join(format!("bowline-vsphere-empty-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let shown = directory.display();
    let only_directory = format!("global: {{secretsDirectory: {shown}}}\nvcenter: {{a: {{server: a}}}}\n");
    let config = read(&only_directory).unwrap();
    assert_eq!(
        (only(&config).source.clone(), config.secrets_directory.as_deref()),
        (CredentialSource::Directory, Some(&*directory))
    );
    let both = format!(
        "global: {{secretsDirectory: {shown}, secretName: s, secretNamespace: n}}\nvcenter: {{a: {{server: a}}}}\n"
    );
    assert!(read(&both).unwrap_err().contains("Username is missing"), "both count as none");
    let both = both.replace("server: a", "server: a, user: u, password: p");
    let config = read(&both).unwrap();
    assert_eq!(only(&config).source, CredentialSource::Directory);
    assert!(warnings(&config).contains("global.secretName: ignored, because"));
    let absent = both.replace(&shown.to_string(), "/nonexistent/secrets");
    let config = read(&absent).unwrap();
    assert_eq!((only(&config).source.clone(), config.secrets_directory.clone()), (secret("n/s"), None));
    assert!(warnings(&config).contains("global.secretsDirectory: the directory does not exist"));
    let alone = only_directory.replace(&shown.to_string(), "/nonexistent/secrets");
    assert_eq!(only(&read(&alone).unwrap()).source, CredentialSource::Directory, "it may be mounted later");
    let own = both.replace("user: u, password: p", "secretName: own, secretNamespace: n");
    assert_eq!(only(&read(&own).unwrap()).source, secret("n/own"));
    std::fs::remove_dir(directory).unwrap();
}

#[test]
fn the_default_directory_is_used_if_it_exists_but_satisfies_no_check() {
    let directory = std::env::temp_dir();
    let config =
        read_at("global: {secretName: s, secretNamespace: n}\nvcenter: {a: {server: a}}\n", &[], &directory).unwrap();
    assert_eq!(only(&config).source, CredentialSource::Directory);
    assert!(read_at("vcenter: {a: {server: a}}\n", &[], &directory).unwrap_err().contains("Username is missing"));
}

#[test]
fn the_name_of_a_secret_cannot_change_the_request() {
    let error = read("global: {secretName: \"s,x=y\", secretNamespace: n}\nvcenter: {a: {server: a}}\n").unwrap_err();
    assert!(error.contains("global.secretName: \"n/s,x=y\" is not the name of a Secret"), "{error}");
}
