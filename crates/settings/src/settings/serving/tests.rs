//! Resolution of the serving flags.

use std::time::Duration;

use async_trait::async_trait;
use bowline_cloud::{AdmissionRequest, AdmissionResponse, Webhook};
use clap::Parser as _;

use super::*;
use crate::idle::Idle;
use crate::settings::Settings;

/// Resolves these flags into serving options and warnings, or returns all errors.
fn resolve(flags: &[&str]) -> Result<(Serving, Vec<String>), Vec<String>> {
    let argv = ["bowline", "--cloud-provider=local"].iter().chain(flags);
    let mut errors = ConfigErrors::new();
    let settings = Settings::resolve(&crate::cli::Cli::parse_from(argv).manager, &mut errors);
    let about = |warning: &String| !warning.contains("leader");
    if errors.is_empty() {
        Ok((settings.serving, settings.warnings.into_iter().filter(about).collect()))
    } else {
        Err(errors.iter().map(ToString::to_string).collect())
    }
}

fn serving(flags: &[&str]) -> Serving {
    resolve(flags).unwrap().0
}

/// Returns the only error of these flags.
fn only_error(flags: &[&str]) -> String {
    let errors = resolve(flags).unwrap_err();
    assert_eq!(errors.len(), 1, "{flags:?}: {errors:#?}");
    errors.concat()
}

#[test]
fn c01_the_defaults_are_those_of_the_go_managers() {
    let (serving, warnings) = resolve(&[]).unwrap();
    assert_eq!(serving.https, Some(ServingOptions::default()));
    assert_eq!(serving.https.unwrap().port, 10258);
    assert_eq!(serving.authentication, AuthenticationOptions::default());
    assert_eq!(serving.authorization, AuthorizationOptions::default());
    assert!(serving.profiling);
    assert_eq!(serving.webhooks, Webhooks { selection: Vec::new(), https: None });
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn c02_a_list_may_be_empty_and_replaces_the_default() {
    let paths = |flags: &[&str]| serving(flags).authorization.always_allow_paths;
    assert_eq!(paths(&["--authorization-always-allow-paths="]), [""; 0]);
    assert_eq!(paths(&["--authorization-always-allow-paths=/healthz,/metrics"]), ["/healthz", "/metrics"]);
    let twice = ["--authorization-always-allow-paths=/a", "--authorization-always-allow-paths=/b,/c*"];
    assert_eq!(paths(&twice), ["/a", "/b", "/c*"]);
    let headers = serving(&["--requestheader-username-headers=", "--requestheader-group-headers=a,b"]).authentication;
    assert_eq!(headers.request_header.username_headers, [""; 0]);
    assert_eq!(headers.request_header.group_headers, ["a", "b"]);
    assert_eq!(headers.request_header.extra_header_prefixes, ["x-remote-extra-"]);
}

#[test]
fn serving_flags_set_their_options() {
    let flags = [
        "--bind-address=::1",
        "--secure-port=443",
        "--cert-dir=/certs",
        "--tls-cert-file=a.crt",
        "--tls-private-key-file=a.key",
        "--tls-sni-cert-key=b.crt,b.key:b.example,*.b.example",
        "--tls-sni-cert-key=c.crt,c.key;d.crt,d.key",
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "--tls-min-version=VersionTLS13",
        "--disable-http2-serving",
        "--http2-max-streams-per-connection=7",
        "--permit-port-sharing",
        "--permit-address-sharing=true",
        "--profiling=false",
    ];
    let serving = serving(&flags);
    let named = |name: &str| name.to_owned();
    let expected = ServingOptions {
        bind_address: "::1".parse().unwrap(),
        port: 443,
        tls: TlsOptions {
            files: Some(("a.crt".into(), "a.key".into())),
            directory: Some("/certs".into()),
            pair_name: named("cloud-controller-manager"),
            sni: vec![
                ("b.crt".into(), "b.key".into(), vec![named("b.example"), named("*.b.example")]),
                ("c.crt".into(), "c.key".into(), Vec::new()),
                ("d.crt".into(), "d.key".into(), Vec::new()),
            ],
            only_tls13: true,
            cipher_suites: vec![named("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305")],
        },
        http2: false,
        max_streams: 7,
        share_port: true,
        share_address: true,
    };
    assert_eq!(serving.https, Some(expected));
    assert!(!serving.profiling);
}

#[test]
fn authentication_and_authorization_flags_set_their_options() {
    let flags = [
        "--authentication-kubeconfig=authn.kc",
        "--authentication-skip-lookup",
        "--authentication-tolerate-lookup-failure",
        "--authentication-token-webhook-cache-ttl=1s",
        "--client-ca-file=ca.crt",
        "--requestheader-client-ca-file=proxy.crt",
        "--requestheader-allowed-names=aggregator",
        "--requestheader-extra-headers-prefix=x-",
        "--requestheader-uid-headers=x-remote-uid",
        "--authorization-kubeconfig=authz.kc",
        "--authorization-webhook-cache-authorized-ttl=2s",
        "--authorization-webhook-cache-unauthorized-ttl=3s",
    ];
    let Serving { authentication, authorization, .. } = serving(&flags);
    assert_eq!(authentication.kubeconfig, Some("authn.kc".into()));
    assert!(authentication.skip_lookup && authentication.tolerate_lookup_failure);
    assert_eq!(authentication.cache_ttl, Duration::from_secs(1));
    assert_eq!(authentication.client_ca_file, Some("ca.crt".into()));
    let header = authentication.request_header;
    assert_eq!(
        (header.client_ca_file, header.allowed_names),
        (Some("proxy.crt".into()), vec!["aggregator".to_owned()])
    );
    assert_eq!(
        (header.extra_header_prefixes.concat(), header.uid_headers.concat()),
        ("x-".into(), "x-remote-uid".into())
    );
    assert_eq!(authorization.kubeconfig, Some("authz.kc".into()));
    assert_eq!((authorization.allow_ttl, authorization.deny_ttl), (Duration::from_secs(2), Duration::from_secs(3)));
}

#[test]
fn c15_c16_webhooks_are_served_if_selected_and_the_gate_is_on() {
    let gate = "--feature-gates=CloudControllerManagerWebhook=true";
    assert_eq!(serving(&[gate]).webhooks.https, None, "C15");
    let chosen = serving(&[gate, "--webhooks=foo,bar,-baz", "--webhook-cert-dir=/certs"]).webhooks;
    let https = chosen.https.clone().unwrap();
    assert_eq!((https.port, https.tls.pair_name.as_str()), (10260, "cloud-controller-manager-webhook"));
    assert_eq!(taken(&chosen, &["foo", "bar", "baz"]), ["foo", "bar"], "C16");
    assert!(chosen.errors(&[cloud(&["foo", "bar", "baz"])]).is_empty());
    // HOOK-2: upstream would crash.
    assert_eq!(serving(&[gate, "--webhooks=*", "--webhook-secure-port=0"]).webhooks.https, None);
    let (closed, warnings) = resolve(&["--webhooks=*"]).unwrap();
    assert_eq!(closed.webhooks.https, None);
    assert!(warnings.iter().any(|warning| warning.contains("CloudControllerManagerWebhook=true")), "{warnings:?}");
}

#[test]
fn c17_the_first_entry_that_names_a_webhook_wins_and_the_star_comes_last() {
    let cases: [(&str, &[&str]); 5] = [
        ("--webhooks=", &[]),
        ("--webhooks=a", &["a"]),
        ("--webhooks=a,-b", &["a"]),
        ("--webhooks=*", &["a", "b"]),
        ("--webhooks=*,-b", &["a"]),
    ];
    for (flag, expected) in cases {
        assert_eq!(taken(&serving(&[flag]).webhooks, &["a", "b"]), expected, "{flag}");
    }
    let unknown = serving(&["--webhooks=a,-c,*"]).webhooks.errors(&[cloud(&["a", "b"])]);
    assert_eq!(unknown.to_string(), "--webhooks: \"c\" is not in the list of known webhooks; did you mean a?");
}

#[test]
fn two_selected_webhooks_must_not_share_their_name() {
    let clouds = [cloud(&["a", "b"]), cloud(&["a", "c"])];
    for flag in ["--webhooks=*", "--webhooks=a"] {
        let errors = serving(&[flag]).webhooks.errors(&clouds).to_string();
        assert!(errors.starts_with("--webhooks: two webhooks have the name \"a\"; disable one of them"), "{errors}");
    }
    for flag in ["--webhooks=b,c", "--webhooks=*,-a", "--webhooks="] {
        assert!(serving(&[flag]).webhooks.errors(&clouds).is_empty(), "{flag}");
    }
    let same_path = ("x".to_owned(), "/p".to_owned());
    assert_eq!(
        webhooks::conflict(&[same_path, ("y".to_owned(), "/p".to_owned())]).as_deref(),
        Some("two webhooks have the path \"/p\"")
    );
}

fn taken<'a>(webhooks: &Webhooks, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().copied().filter(|name| webhooks.takes(name)).collect()
}

/// A webhook with a name, which is also its path.
struct Named(&'static str);

#[async_trait]
impl Webhook for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn path(&self) -> &str {
        self.0
    }

    async fn review(&self, _: AdmissionRequest) -> AdmissionResponse {
        AdmissionResponse::deny("not implemented")
    }
}

/// A cloud with these webhooks.
fn cloud(webhooks: &[&'static str]) -> Arc<dyn CloudProvider> {
    let webhooks = webhooks.iter().map(|name| Arc::new(Named(name)) as _).collect();
    Arc::new(Idle { webhooks, ..Idle::default() })
}

#[test]
fn c19_the_two_servers_need_different_ports() {
    let words = "--webhook-secure-port cannot be the same value as --secure-port";
    assert_eq!(only_error(&["--secure-port=10260"]), words);
    assert_eq!(only_error(&["--webhook-secure-port=10258"]), words);
    assert_eq!(serving(&["--secure-port=0", "--webhook-secure-port=0"]).https, None);
}

#[test]
fn invalid_values_have_searchable_error_messages() {
    let cases = [
        ("--secure-port=70000", "--secure-port 70000 must be between 0 and 65535, inclusive. 0 for turning off"),
        ("--secure-port=-1", "--secure-port -1 must be between 0 and 65535"),
        ("--webhook-secure-port=65536", "--webhook-secure-port 65536 must be between"),
        ("--secure-port=https", "--secure-port: invalid value \"https\": expected a whole number"),
        ("--bind-address=localhost", "--bind-address: invalid value \"localhost\": expected an IP address"),
        ("--tls-min-version=VersionTLS9", "--tls-min-version: unknown tls version \"VersionTLS9\""),
        (
            "--tls-cipher-suites=TLS_AES_128_GCM_SHA265",
            "Cipher suite TLS_AES_128_GCM_SHA265 not supported or doesn't exist; use",
        ),
        (
            "--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA",
            "--tls-cipher-suites: no cipher suite in the list is supported",
        ),
        ("--tls-curve-preferences=29,1", "--tls-curve-preferences: unknown key exchange \"1\""),
        ("--tls-cert-file=a.crt", "--tls-cert-file: requires --tls-private-key-file; set both"),
        ("--webhook-tls-private-key-file=a", "--webhook-tls-private-key-file: requires --webhook-tls-cert-file"),
        ("--tls-sni-cert-key=a.crt", "--tls-sni-cert-key: \"a.crt\" is not a pair of certificate and key files"),
        ("--http2-max-streams-per-connection=-1", "--http2-max-streams-per-connection: -1 is out of range"),
        (
            "--authorization-always-allow-paths=/a*b",
            "--authorization-always-allow-paths: only trailing * allowed in \"a*b\"",
        ),
        (
            "--authorization-always-allow-paths=/a**",
            "--authorization-always-allow-paths: only trailing * allowed in \"a**\"",
        ),
        ("--requestheader-group-headers=a,,b", "--requestheader-group-headers: empty name in the list"),
        (
            "--authentication-skip-lookup=perhaps",
            "--authentication-skip-lookup: invalid value \"perhaps\": expected true",
        ),
        ("--log-flush-frequency=0", "--log-flush-frequency: invalid value \"0\": must be greater than 0"),
        ("--log-flush-frequency=-5s", "--log-flush-frequency: invalid value \"-5s\""),
        ("--logging-format=xml", "--logging-format: invalid value \"xml\": expected text or json"),
        ("--vmodule=service", "--vmodule: \"service\""),
        ("--v=-1", "--v: invalid verbosity -1"),
        ("--log-text-split-stream", "--log-text-split-stream: Forbidden: Feature LoggingAlphaOptions is disabled"),
        ("--log-json-info-buffer-size=1Ki", "--log-json-info-buffer-size: Forbidden: Feature LoggingAlphaOptions"),
        ("--log-json-info-buffer-size=big", "--log-json-info-buffer-size: invalid value \"big\": expected a size"),
        ("--min-resync-period=soon", "--min-resync-period: invalid value \"soon\""),
        ("--contention-profiling=maybe", "--contention-profiling: invalid value \"maybe\""),
        ("--skip-headers=maybe", "--skip-headers: invalid value \"maybe\""),
    ];
    for (flag, expected) in cases {
        let error = only_error(&[flag]);
        assert!(error.contains(expected), "{flag}: {error}");
    }
    let uid = only_error(&["--requestheader-uid-headers=x", "--feature-gates=RemoteRequestHeaderUID=false"]);
    assert!(uid.starts_with("--requestheader-uid-headers requires the"), "{uid}");
    let json = only_error(&["--vmodule=a=1", "--logging-format=json"]);
    assert!(json.starts_with("--vmodule: Forbidden: Only supported for text log format"), "{json}");
}

#[test]
fn unsupported_tls_versions_and_cipher_suites_cause_a_warning() {
    let cases = [
        ("--tls-min-version=VersionTLS10", "--tls-min-version=VersionTLS10 means VersionTLS12"),
        ("--tls-min-version=VersionTLS11", "--tls-min-version=VersionTLS11 means VersionTLS12"),
        (
            "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_RSA_WITH_RC4_128_SHA,TLS_RSA_WITH_AES_128_CBC_SHA",
            "--tls-cipher-suites: TLS_RSA_WITH_",
        ),
        ("--tls-curve-preferences=29", "--tls-curve-preferences has no effect"),
    ];
    for (flag, expected) in cases {
        let (serving, warnings) = resolve(&[flag]).unwrap_or_else(|errors| panic!("{flag}: {errors:?}"));
        assert!(warnings.iter().any(|warning| warning.starts_with(expected)), "{flag}: {warnings:?}");
        assert!(!serving.https.unwrap().tls.only_tls13);
    }
}
