//! Tests of credentials.

use std::path::{Path, PathBuf};

use bowline_cloud::{ErrorKind, SecretData, SecretRef};
use bowline_config::Secret;

use super::parse::Contents;
use super::{Credentials, Login};
use crate::config::nsx::{NsxConfig, NsxCredentials, PasswordScheme};
use crate::config::{Config, CredentialSource, VcenterConfig};

fn password(user: &str, password: &str) -> Login {
    Login::Password { user: user.to_owned(), password: password.into() }
}

fn reference(name: &str) -> SecretRef {
    SecretRef::parse(name).unwrap()
}

fn data(values: Values<'_>) -> SecretData {
    values.iter().map(|(key, value)| (*key, *value)).collect()
}

/// A vCenter with a Secret.
fn vcenter(server: &str, secret: &str) -> VcenterConfig {
    let source = CredentialSource::Secret(reference(secret));
    VcenterConfig { name: server.to_owned(), server: server.to_owned(), source, ..VcenterConfig::default() }
}

fn with_login(vcenter: VcenterConfig) -> VcenterConfig {
    VcenterConfig { user: "clear".to_owned(), password: "clear".into(), ..vcenter }
}

fn credentials(vcenters: &[VcenterConfig]) -> Credentials {
    Credentials::new(&Config { vcenters: vcenters.to_vec(), ..Config::default() })
}

/// Keys with their values.
type Values<'a> = &'a [(&'a str, &'a str)];

/// Returns the logins by server, and the errors.
fn parse(values: Values<'_>) -> (Vec<String>, Vec<String>) {
    let contents = Contents::read(values.iter().map(|(key, value)| (*key, value.as_bytes())));
    let logins = contents.logins.iter().map(|(server, login)| match login {
        Login::Password { user, password } => format!("{server} {user} {}", password.reveal()),
        Login::SharedSession { url, token } => {
            format!("{server} {url} {}", token.as_ref().map_or("none", Secret::reveal))
        }
        Login::Certificate { .. } => format!("{server} certificate"),
    });
    (logins.collect(), contents.errors)
}

/// VS-26, VS-27, VS-30
#[test]
fn all_forms_of_keys_are_read() {
    let cases: [(Values<'_>, &[&str]); 8] = [
        (&[("1.1.1.1.username", "u\n"), ("1.1.1.1.password", "p\n\n")], &["1.1.1.1 u p\n"]),
        (&[("vc.username", "a\r\n"), ("vc.password", "x=y z")], &["vc a x=y z"]),
        (&[("server_x", "fd00::1\n"), ("username_x", "u\n"), ("password_x", "p\n")], &["fd00::1 u p"]),
        (&[("server_x", "[fd00::1]"), ("username_x", "u"), ("password_x", "p")], &["fd00::1 u p"]),
        (&[("vc.vc-session-manager-url", "https://m\n"), ("vc.vc-session-manager-token", "t\n")], &["vc https://m t"]),
        (&[("vc.vc-session-manager-url", "https://m")], &["vc https://m none"]),
        (
            &[("vc.vc-session-manager-url", "https://m"), ("vc.username", "u"), ("vc.password", "p")],
            &["vc https://m none"],
        ),
        (
            &[("a.username", "u"), ("a.password", "p"), ("server_1", "b"), ("username_1", "v"), ("password_1", "q")],
            &["a u p", "b v q"],
        ),
    ];
    for (values, expected) in cases {
        let (logins, errors) = parse(values);
        assert_eq!(logins, expected, "{values:?}");
        assert!(errors.is_empty(), "{values:?}: {errors:?}");
    }
}

/// VS-26
#[test]
fn a_login_is_found_by_the_address_and_not_by_the_name_of_the_entry() {
    let named = VcenterConfig { name: "east".to_owned(), ..vcenter("vc", "n/s") };
    let credentials = credentials(std::slice::from_ref(&named));
    let all = [("east.username", "u"), ("east.password", "1"), ("vc.username", "u"), ("vc.password", "2")];
    credentials.on_secret(&reference("n/s"), Some(&data(&all))).unwrap();
    assert_eq!(credentials.candidates(&named).unwrap(), [password("u", "2")]);
}

/// VS-28
#[test]
fn an_incomplete_pair_does_not_replace_a_complete_one_of_its_server() {
    let complete = [("vc.username", "u"), ("vc.password", "p")];
    let cases: [(Values<'_>, usize); 3] = [
        (&[("server_x", "vc"), ("username_x", "other")], 1),
        (&[("username_x", "other")], 1),
        (&[("server_x", "vc"), ("username_x", "other"), ("password_x", "q")], 0),
    ];
    for (more, errors) in cases {
        let (logins, found) = parse(&[&complete[..], more].concat());
        let expected = if errors == 0 { "vc other q" } else { "vc u p" };
        assert_eq!((logins, found.len()), (vec![expected.to_owned()], errors), "{more:?}");
    }
}

/// VS-28, VS-29, VS-30
#[test]
fn a_bad_key_spoils_only_its_own_server() {
    let cases: [(Values<'_>, &str); 15] = [
        (&[], "Username/Password is missing"),
        (&[("server_a", "s"), ("username_a", "u")], "Username/Password is missing"),
        (&[("server_a", "s"), ("password_a", "p")], "Username/Password is missing"),
        (&[("username_a", "u")], "Credentials did not have all required values"),
        (&[("password_a", "p")], "Credentials did not have all required values"),
        (&[("server_", "s")], "Unknown secret key"),
        (&[("username_", "s")], "Unknown secret key"),
        (&[("password_", "s")], "Unknown secret key"),
        (&[(".password", "x")], "Unknown secret key"),
        (&[("1.1.1.1", "x")], "Unknown secret key"),
        (&[("foo.usernam", "x")], "Unknown secret key"),
        (&[("vc.username", "u")], "Username/Password is missing for server \"vc\""),
        (&[("vc.password", "p"), ("vc.username", "")], "Username/Password is missing"),
        (&[("vc.vc-session-manager-token", "t")], "Username/Password is missing"),
        (&[("password", "p")], "Username/Password is missing for server \"password\""),
    ];
    for (bad, message) in cases {
        let (logins, errors) = parse(bad);
        assert!(logins.is_empty() && errors.len() == 1 && errors[0].starts_with(message), "{bad:?}: {errors:?}");
        let good = [("good.username", "u"), ("good.password", "p")];
        let (logins, errors) = parse(&[&good[..], bad].concat());
        assert_eq!((logins, errors.is_empty()), (vec!["good u p".to_owned()], bad.is_empty()), "{bad:?}");
    }
    let binary = Contents::read([("vc.password", &[0xff_u8][..]), ("vc.username", b"\x07")]);
    assert_eq!(binary.errors, ["the value of \"vc.password\" is not text", "the value of \"vc.username\" is not text"]);
}

#[test]
fn the_configured_login_is_tried_first() {
    let (own, secret) = (with_login(vcenter("vc", "n/s")), reference("n/s"));
    let credentials = credentials(std::slice::from_ref(&own));
    assert_eq!(credentials.secrets(), std::slice::from_ref(&secret));
    assert_eq!(credentials.candidates(&own).unwrap(), [password("clear", "clear")]);
    credentials.on_secret(&secret, Some(&data(&[("vc.username", "u"), ("vc.password", "p")]))).unwrap();
    assert_eq!(credentials.candidates(&own).unwrap(), [password("clear", "clear"), password("u", "p")]);
    credentials.on_secret(&secret, Some(&data(&[("vc.username", "clear"), ("vc.password", "clear")]))).unwrap();
    assert_eq!(credentials.candidates(&own).unwrap(), [password("clear", "clear")], "each login once");
}

/// VS-45
#[test]
fn a_certificate_is_recognised_and_never_part_of_a_subject() {
    let pem = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n";
    let own = VcenterConfig { user: pem.to_owned(), password: "key".into(), ..VcenterConfig::default() };
    let logins = credentials(std::slice::from_ref(&own)).candidates(&own).unwrap();
    assert_eq!(logins, [Login::Certificate { certificate: pem.to_owned(), key: "key".into() }]);
    assert_eq!(logins[0].subject(), "the configured certificate");
    assert_eq!(password("root", "p").subject(), "user \"root\"");
    let session = |url: &str| Login::SharedSession { url: url.to_owned(), token: Some("t".into()) }.subject();
    assert_eq!(session("https://u:swordfish@m.example.com/x"), "the shared session of m.example.com");
    assert_eq!(session("swordfish swordfish"), "the shared session of the session manager");
}

/// VS-29, VS-31, VS-32, VS-34
#[test]
fn a_rotated_secret_is_used_and_a_bad_one_is_not() {
    let (own, secret) = (vcenter("vc", "n/s"), reference("n/s"));
    let credentials = credentials(std::slice::from_ref(&own));
    let error = credentials.candidates(&own).unwrap_err();
    assert!(error.message().starts_with("Credentials not found: the Secret n/s has none for server vc"), "{error}");
    let good = |password: &str| data(&[("vc.username", "u"), ("vc.password", password), ("csi.conf", "x")]);
    for value in ["one", "two"] {
        credentials.on_secret(&secret, Some(&good(value))).unwrap();
        assert_eq!(credentials.candidates(&own).unwrap(), [password("u", value)]);
    }
    credentials.on_secret(&secret, Some(&good("two"))).unwrap();
    assert_eq!(credentials.revision(), 2, "the same contents are no change");
    let bad = [
        (None, ErrorKind::NotFound, "secret \"s\" not found in namespace \"n\""),
        (Some(data(&[])), ErrorKind::InvalidConfig, "Username/Password is missing"),
        (
            Some(data(&[("vc.username", "u")])),
            ErrorKind::InvalidConfig,
            "Username/Password is missing for server \"vc\"",
        ),
        (
            Some(data(&[("other.username", "u"), ("other.password", "swordfish")])),
            ErrorKind::InvalidConfig,
            "for server vc",
        ),
        (
            Some(data(&[("vc.username", "swordfish \u{7}"), ("vc.password", "p")])),
            ErrorKind::InvalidConfig,
            "is not text",
        ),
    ];
    for (data, kind, message) in bad {
        let error = credentials.on_secret(&secret, data.as_ref()).unwrap_err();
        assert!(error.kind() == kind && error.message().contains(message), "{message}: {error}");
        assert!(!format!("{error:?}").contains("swordfish"), "{error:?}");
        assert_eq!(credentials.candidates(&own).unwrap(), [password("u", "two")], "{message}");
    }
}

/// VS-32, VS-33
#[test]
fn only_a_secret_that_every_vcenter_needs_blocks_the_start() {
    let (one, two) = (vcenter("one", "n/one"), vcenter("two", "n/two"));
    let cases = [
        (vec![one.clone()], true),
        (vec![one.clone(), vcenter("other", "n/one")], true),
        (vec![with_login(one.clone())], false),
        (vec![one.clone(), two.clone()], false),
    ];
    for (vcenters, blocks) in cases {
        for data in [None, Some(data(&[]))] {
            let credentials = credentials(&vcenters);
            let deliver = || credentials.on_secret(&reference("n/one"), data.as_ref());
            assert_eq!(deliver().is_err(), blocks, "{vcenters:?}");
            assert!(deliver().is_err(), "after the start, an error is only reported");
        }
    }
    let both = credentials(&[one.clone(), two.clone()]);
    both.on_secret(&reference("n/one"), None).unwrap();
    both.on_secret(&reference("n/two"), Some(&data(&[("two.username", "u"), ("two.password", "p")]))).unwrap();
    assert_eq!(both.candidates(&two).unwrap().len(), 1);
    let error = both.candidates(&one).unwrap_err();
    assert!(error.message().contains("secret \"one\" not found in namespace \"n\""), "{error}");
}

/// VS-31
#[test]
fn a_server_that_is_removed_from_a_secret_keeps_its_login() {
    let vcenters = [vcenter("a", "n/s"), vcenter("b", "n/s")];
    let credentials = credentials(&vcenters);
    let secret = reference("n/s");
    let all = [("a.username", "u"), ("a.password", "1"), ("b.username", "u"), ("b.password", "1")];
    credentials.on_secret(&secret, Some(&data(&all))).unwrap();
    credentials.on_secret(&secret, Some(&data(&[("b.username", "u"), ("b.password", "2")]))).unwrap();
    assert_eq!(credentials.candidates(&vcenters[0]).unwrap(), [password("u", "1")]);
    assert_eq!(credentials.candidates(&vcenters[1]).unwrap(), [password("u", "2")]);
}

/// VS-104
#[test]
fn the_password_of_nsx_comes_from_its_secret() {
    let secret = reference("n/nsx");
    let nsx = NsxConfig {
        credentials: NsxCredentials::Secret { secret: secret.clone(), scheme: PasswordScheme::Basic },
        password: Some(("file".to_owned(), "f".into())),
        ..NsxConfig::default()
    };
    let config = Config { vcenters: vec![vcenter("vc", "n/s")], nsx: Some(nsx), ..Config::default() };
    let credentials = Credentials::new(&config);
    assert_eq!(credentials.secrets(), [secret.clone(), reference("n/s")]);
    credentials.on_secret(&secret, None).unwrap();
    assert_eq!(credentials.nsx_password().unwrap().0, "file");
    credentials.on_secret(&secret, Some(&data(&[("username", "u\n"), ("password", "p\n")]))).unwrap();
    let current = || credentials.nsx_password().map(|(user, password)| format!("{user} {}", password.reveal()));
    assert_eq!(current().as_deref(), Some("u p"));
    for bad in [None, Some(data(&[("username", "u")])), Some(data(&[("username", "u\u{7}"), ("password", "p")]))] {
        assert!(credentials.on_secret(&secret, bad.as_ref()).is_err());
        assert_eq!(current().as_deref(), Some("u p"), "the last good values stay in use");
    }
}

/// Directory of one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("bowline-vsphere-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn write(&self, name: &str, value: &str) {
        std::fs::write(self.0.join(name), value).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn in_directory(path: &Path) -> (Credentials, VcenterConfig) {
    let own =
        VcenterConfig { server: "vc".to_owned(), source: CredentialSource::Directory, ..VcenterConfig::default() };
    let config = Config { vcenters: vec![own.clone()], secrets_directory: Some(path.to_owned()), ..Config::default() };
    (Credentials::new(&config), own)
}

/// VS-35: as the kubelet mounts a Secret: the keys are links into a directory that is replaced as a whole.
#[test]
fn a_mounted_secret_is_read_at_every_login() {
    use std::os::unix::fs::symlink;

    let scratch = Scratch::new("mounted");
    for (version, value) in [("..1", "one"), ("..2", "two")] {
        std::fs::create_dir(scratch.0.join(version)).unwrap();
        scratch.write(&format!("{version}/vc.username"), "u\n");
        scratch.write(&format!("{version}/vc.password"), &format!("{value}\n"));
    }
    symlink("..1", scratch.0.join("..data")).unwrap();
    for key in ["vc.username", "vc.password"] {
        symlink(format!("..data/{key}"), scratch.0.join(key)).unwrap();
    }
    std::fs::create_dir(scratch.0.join("folder")).unwrap();
    scratch.write("unknown", "x");
    symlink("nowhere", scratch.0.join("dangling")).unwrap();
    let (credentials, own) = in_directory(&scratch.0);
    assert!(credentials.secrets().is_empty());
    assert_eq!(credentials.candidates(&own).unwrap(), [password("u", "one")]);
    std::fs::remove_file(scratch.0.join("..data")).unwrap();
    symlink("..2", scratch.0.join("..data")).unwrap();
    assert_eq!(credentials.candidates(&own).unwrap(), [password("u", "two")]);
    assert_eq!(credentials.revision(), 2);
    std::fs::remove_dir_all(&scratch.0).unwrap();
    assert_eq!(credentials.candidates(&own).unwrap(), [password("u", "two")], "the last good login stays in use");
}

#[test]
fn a_directory_without_the_server_is_named_in_the_error() {
    let scratch = Scratch::new("incomplete");
    scratch.write("vc.username", "u");
    scratch.write("unknown", "swordfish");
    let (credentials, own) = in_directory(&scratch.0);
    let error = credentials.candidates(&own).unwrap_err().message().to_owned();
    let place =
        format!("Credentials not found: the secrets directory {} has none for server vc: ", scratch.0.display());
    assert!(error.starts_with(&place), "{error}");
    assert!(
        error.contains("Unknown secret key \"unknown\"") && error.contains("Username/Password is missing"),
        "{error}"
    );
    let (credentials, own) = in_directory(Path::new("/nonexistent/secrets"));
    assert!(credentials.candidates(&own).unwrap_err().message().contains("cannot read /nonexistent/secrets"));
    let links = Scratch::new("links");
    std::os::unix::fs::symlink("nowhere", links.0.join("vc.username")).unwrap();
    let (credentials, own) = in_directory(&links.0);
    assert!(credentials.candidates(&own).unwrap_err().message().contains("Cannot read file \"vc.username\""));
    scratch.write("vc.password", "p");
    let (credentials, own) = in_directory(&scratch.0);
    assert_eq!(credentials.candidates(&own).unwrap(), [password("u", "p")]);
}
