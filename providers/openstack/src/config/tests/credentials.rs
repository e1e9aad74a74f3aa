//! Credentials, scopes and TLS settings.

use bowline_cloud::BuildInputs;
use bowline_config::{ConfigFile, Environment, Secret};

use super::{Folder, GLOBAL, assert_error, read, read_in, with};
use crate::config::{Credential, Domain, Global, Scope, User};

/// `[Global]` of these lines.
fn global(lines: &str) -> Global {
    read(&format!("[Global]\nauth-url = http://k\n{lines}\n")).unwrap().global
}

/// The first error about these lines: key and text.
fn wrong(lines: &str) -> (String, String) {
    let errors = read(&format!("[Global]\nauth-url = http://k\n{lines}\n")).unwrap_err();
    let first = errors.iter().next().unwrap();
    (first.field.clone().unwrap_or_default(), first.to_string())
}

fn by_name(user: &str, domain: Domain, password: &str) -> Credential {
    Credential::Password { user: User::Name(user.to_owned(), domain), password: Secret::from(password) }
}

fn by_id(user: &str, password: &str) -> Credential {
    Credential::Password { user: User::Id(user.to_owned()), password: Secret::from(password) }
}

fn named(name: &str) -> Domain {
    Domain::Name(name.to_owned())
}

fn id(id: &str) -> Domain {
    Domain::Id(id.to_owned())
}

#[test]
fn case_004_and_005_a_password_with_special_characters_is_quoted() {
    for (line, password) in [("password = ab#cd", "ab"), (r#"password = "ab#c\"d\\e""#, r#"ab#c"d\e"#)] {
        assert_eq!(global(&format!("user-id = u\ntenant-id = t\n{line}")).credential, by_id("u", password));
    }
}

#[test]
fn case_006_a_bare_backslash_is_an_error_without_the_password() {
    let (field, text) = wrong("password = ab\\cd");
    assert_eq!(field, "[Global] password");
    assert!(text.starts_with("cloud.conf:3: ") && !text.contains("cd"), "{text}");
}

#[test]
fn case_022_only_true_disables_verification() {
    for (line, insecure) in
        [("", false), ("tls-insecure = yes", false), ("tls-insecure = True", false), ("tls-insecure = true", true)]
    {
        assert_eq!(with(&format!("[Global]\n{line}\n")).global.tls.insecure, insecure, "{line}");
    }
    assert_eq!(with("[Global]\ntls-insecure = yes\n").warnings.len(), 1);
    assert_eq!(with("[Global]\ntls-insecure = false\n").warnings.len(), 0);
}

#[test]
fn case_023_an_application_credential_has_no_scope() {
    let read = global("application-credential-id = a\napplication-credential-secret = s\ntenant-id = t");
    let credential = Credential::ApplicationCredentialId { id: "a".to_owned(), secret: Secret::from("s") };
    assert_eq!((read.credential, read.scope), (credential, Scope::Implied));
}

#[test]
fn case_024_a_password_takes_precedence_over_an_application_credential() {
    let config = with("[Global]\napplication-credential-id = a\napplication-credential-secret = s\n");
    assert_eq!(config.global.credential, by_id("u", "p"));
    assert_eq!(config.global.scope, Scope::Implied);
    assert!(config.warnings[0].to_string().contains("application-credential-id: is not used"), "{:?}", config.warnings);
}

#[test]
fn case_025_user_and_project_have_domains_of_their_own() {
    let read = global("username = n\npassword = p\ntenant-name = t\ndomain-name = D\nuser-domain-name = U");
    assert_eq!(read.credential, by_name("n", named("U"), "p"));
    assert_eq!(read.scope, Scope::ProjectName("t".to_owned(), named("D")));
}

#[test]
fn case_026_a_trust_is_the_only_scope() {
    let read = global("user-id = u\npassword = p\ntrust-id = x\ntenant-id = t");
    assert_eq!((read.credential, read.scope), (by_id("u", "p"), Scope::Trust("x".to_owned())));
}

#[test]
fn case_027_a_trustee_replaces_the_user() {
    let lines = "trust-id = x\ntrustee-id = tu\ntrustee-password = tp\nuser-id = u\npassword = p";
    assert_eq!(global(lines).credential, by_id("tu", "tp"));
    assert_eq!(global("trust-id = x\ntrustee-password = tp\nuser-id = u\npassword = p").credential, by_id("u", "tp"));
    assert_eq!(with("[Global]\ntrustee-id = x\n").warnings.len(), 1, "unused without a trust");
}

#[test]
fn case_028_a_token_needs_a_scope() {
    let (field, text) = wrong("token = secret-token\nusername = n\npassword = p");
    assert_eq!(field, "[Global] token");
    assert!(text.contains("tenant-id") && !text.contains("secret-token"), "{text}");
    let read = global("token = x\nusername = n\nuser-id = u\npassword = p\ntenant-id = t");
    assert_eq!((read.credential, read.scope), (Credential::Token(Secret::from("x")), Scope::ProjectId("t".to_owned())));
    assert_eq!(global("token = x\ndomain-name = D").scope, Scope::Domain(named("D")));
}

#[test]
fn domains_are_chosen_by_id_before_name_and_specific_before_common() {
    let user = |lines: &str| global(&format!("username = n\npassword = p\ntenant-id = t\n{lines}")).credential;
    assert_eq!(user("domain-id = d"), by_name("n", id("d"), "p"));
    assert_eq!(user("domain-id = d\ndomain-name = D"), by_name("n", id("d"), "p"));
    assert_eq!(user("domain-id = d\nuser-domain-name = U"), by_name("n", named("U"), "p"));
    assert_eq!(user("user-domain-id = u\nuser-domain-name = U"), by_name("n", id("u"), "p"));
    let project = |lines: &str| global(&format!("user-id = u\npassword = p\ntenant-name = t\n{lines}")).scope;
    for (lines, domain) in [
        ("domain-name = D", named("D")),
        ("domain-name = D\ndomain-id = d", id("d")),
        ("domain-id = d\ntenant-domain-name = T", named("T")),
        ("tenant-domain-id = t\ntenant-domain-name = T", id("t")),
    ] {
        assert_eq!(project(lines), Scope::ProjectName("t".to_owned(), domain), "{lines}");
    }
}

#[test]
fn a_project_id_takes_precedence_and_without_a_project_the_domain_is_the_scope() {
    let scope = |lines: &str| global(&format!("user-id = u\npassword = p\n{lines}")).scope;
    assert_eq!(scope("tenant-id = i\ntenant-name = n\ndomain-id = d"), Scope::ProjectId("i".to_owned()));
    assert_eq!(scope("domain-id = d\ndomain-name = D"), Scope::Domain(id("d")));
    assert_eq!(scope("domain-name = D"), Scope::Domain(named("D")));
    assert_eq!(scope("user-domain-name = U"), Scope::Implied);
}

#[test]
fn an_application_credential_by_name_needs_its_user() {
    let secret = "application-credential-name = a\napplication-credential-secret = s\n";
    let expected =
        |user| Credential::ApplicationCredentialName { name: "a".to_owned(), user, secret: Secret::from("s") };
    assert_eq!(global(&format!("{secret}user-id = u")).credential, expected(User::Id("u".to_owned())));
    let by_name = global(&format!("{secret}username = n\ndomain-name = D"));
    assert_eq!(by_name.credential, expected(User::Name("n".to_owned(), named("D"))));
    assert_eq!(by_name.scope, Scope::Implied);
}

#[test]
fn missing_and_conflicting_keys_are_reported() {
    let cases = [
        ("", "password", "no usable credential"),
        ("username = n\nuser-domain-name = U\ntenant-id = t", "password", "no usable credential"),
        ("password = p\ntenant-id = t", "password", "its user is missing"),
        ("username = n\npassword = p\ntenant-id = t", "username", "its domain is missing"),
        ("username = n\npassword = p\ndomain-name = D", "username", "its domain is missing"),
        ("username = n\nuser-id = u\npassword = p", "username", "beside user-id"),
        ("user-id = u\npassword = p\ntenant-name = t", "tenant-name", "its domain is missing"),
        ("application-credential-id = a", "application-credential-id", "its secret is missing"),
        ("application-credential-name = a\nuser-id = u", "application-credential-name", "its secret is missing"),
        (
            "application-credential-name = a\napplication-credential-secret = s",
            "application-credential-name",
            "its user is missing",
        ),
        ("application-credential-secret = s", "password", "no usable credential"),
    ];
    for (lines, key, says) in cases {
        let (field, text) = wrong(lines);
        assert_eq!(field, format!("[Global] {key}"), "{lines}: {text}");
        assert!(text.contains(says) && text.contains("; "), "{lines}: {text}");
    }
}

#[test]
fn a_user_id_needs_no_domain_and_ignores_one() {
    assert_eq!(with("[Global]\nuser-domain-name = U\n").global.credential, by_id("u", "p"));
}

#[test]
fn auth_url_is_required_and_must_be_a_url() {
    for (url, says) in
        [("", "is missing"), ("keystone", "is not a URL"), ("ftp://k", "is not a URL"), ("http://", "is not a URL")]
    {
        assert_error(&format!("[Global]\nauth-url = {url}\n"), 2, "[Global] auth-url", says);
    }
    for url in ["http://u@k", "https://u:s3cret@k:5000/v3"] {
        let (field, text) = wrong(&format!("token = t\nauth-url = {url}\n"));
        assert_eq!(field, "[Global] auth-url");
        assert!(text.contains("contains a user or a password") && !text.contains("s3cret"), "{text}");
    }
    for url in ["https://k/v3?key=s3cret", "https://k:5000/v3#top", "https://k?"] {
        // Quoted, as # begins a comment otherwise.
        let (field, text) = wrong(&format!("token = t\nauth-url = \"{url}\"\n"));
        assert_eq!(field, "[Global] auth-url");
        assert!(text.contains("has a query or a fragment") && !text.contains("s3cret"), "{text}");
    }
    for url in ["https://k/identity/v3", "http://[::1]:5000", "https://k:5000/v2.0/"] {
        assert_eq!(with(&format!("[Global]\nauth-url = {url}\n")).global.auth_url, url);
    }
}

#[test]
fn endpoints_are_public_internal_or_admin() {
    for (line, interface) in [
        ("", "public"),
        ("os-endpoint-type =", "public"),
        ("os-endpoint-type = internal", "internal"),
        ("os-endpoint-type = \" admin \"", "admin"),
    ] {
        assert_eq!(with(&format!("[Global]\n{line}\n")).global.interface, interface, "{line}");
    }
    for value in ["internalURL", "Public", "private"] {
        let says = "write public, internal or admin";
        assert_error(&format!("[Global]\nos-endpoint-type = {value}\n"), 2, "[Global] os-endpoint-type", says);
    }
}

#[test]
fn credentials_are_not_read_from_the_environment() {
    let environment = Environment::from_iter([("OS_PASSWORD", "p"), ("OS_USER_ID", "u"), ("OS_AUTH_URL", "http://k")]);
    let errors = read_in("[Global]\npassword = $OS_PASSWORD\nuser-id = u\n", environment).unwrap_err();
    assert!(errors.to_string().contains("auth-url: is missing"), "{errors}");
    assert_eq!(global("password = $P\nuser-id = u").credential, by_id("u", "$P"));
}

#[test]
fn tls_files_are_checked() {
    let folder = Folder::new("tls");
    let ca = folder.file("ca.pem", "-----BEGIN CERTIFICATE-----\n");
    let key = folder.file("key.pem", "-----BEGIN EC PRIVATE KEY-----\n");
    let (ca_text, key_text) = (ca.display().to_string(), key.display().to_string());
    let config = with(&format!("[Global]\nca-file = {ca_text}\ncert-file = {ca_text}\nkey-file = {key_text}\n"));
    assert_eq!(config.files, [ca.clone(), ca.clone(), key.clone()]);
    assert_eq!((config.global.tls.ca_file, config.global.tls.client), (Some(ca.clone()), Some((ca, key.clone()))));
    let cases = [
        ("ca-file = /nowhere/ca.pem".to_owned(), "ca-file", "/nowhere/ca.pem: no such file"),
        (format!("ca-file = {key_text}"), "ca-file", "no certificate in it"),
        (format!("cert-file = {ca_text}\nkey-file = {ca_text}"), "key-file", "no private key in it"),
        ("cafilecontents = nonsense".to_owned(), "cafilecontents", "no certificate in it"),
    ];
    for (lines, key, says) in cases {
        let line = 1 + lines.lines().position(|line| line.starts_with(key)).unwrap() + 1;
        assert_error(&format!("[Global]\n{lines}\n"), line, &format!("[Global] {key}"), says);
    }
}

#[test]
fn pem_files_may_have_comments_in_any_encoding() {
    let folder = Folder::new("latin");
    let path = folder.0.join("ca.pem");
    std::fs::write(&path, b"# Z\xfcrich\n-----BEGIN CERTIFICATE-----\n").unwrap();
    assert!(with(&format!("[Global]\nca-file = {}\n", path.display())).global.tls.ca_file.is_some());
}

#[test]
fn a_certificate_error_that_is_detected_later_has_its_line() {
    let folder = Folder::new("garbage");
    let path = folder.file("ca.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let text = format!("{GLOBAL}ca-file = {}\n", path.display());
    let (file, inputs) = (ConfigFile::from_text("cloud.conf", text), BuildInputs::default());
    let errors = (crate::factory().build)(&inputs.context(Some(&file), &"kubernetes".into())).err().unwrap();
    assert!(errors.to_string().starts_with("cloud.conf:6: [Global] ca-file: "), "{errors}");
}

#[test]
fn a_certificate_without_its_key_is_not_used() {
    let config = with("[Global]\ncert-file = /nowhere\n");
    assert_eq!((config.global.tls.client, config.warnings.len()), (None, 1));
    let text = "-----BEGIN CERTIFICATE-----\\n";
    let config = with(&format!("[Global]\ncafilecontents = \"{text}\"\n"));
    assert_eq!(config.global.tls.ca_text.as_deref(), Some("-----BEGIN CERTIFICATE-----\n"));
}

#[test]
fn secrets_are_not_printed() {
    let text = "application-credential-id = a\napplication-credential-secret = s3cr3t\ntrustee-password = s3cr3t\n";
    let printed = format!("{:?}", read(&format!("{GLOBAL}{text}password = s3cr3t\n")));
    assert!(!printed.contains("s3cr3t"), "{printed}");
}
