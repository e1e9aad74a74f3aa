//! What the flags about serving come to, case by case.

use std::time::Duration;

use async_trait::async_trait;
use clap::Parser as _;
use serde_json::Value;

use super::*;
use crate::settings::Settings;

/// What is served with these flags and what is remarked about it, or all that is wrong.
fn resolve(flags: &[&str]) -> Result<(Serving, Vec<String>), Vec<String>> {
    let argv = ["bowline", "--cloud-provider=local"].iter().chain(flags);
    let mut errors = ConfigErrors::new();
    let settings = Settings::resolve(&crate::cli::Cli::parse_from(argv).manager, &mut errors);
    let about = |remark: &String| !remark.contains("leader");
    if errors.is_empty() {
        Ok((settings.serving, settings.remarks.into_iter().filter(about).collect()))
    } else {
        Err(errors.iter().map(ToString::to_string).collect())
    }
}

fn serving(flags: &[&str]) -> Serving {
    resolve(flags).unwrap().0
}

/// The only problem with these flags.
fn wrong(flags: &[&str]) -> String {
    let errors = resolve(flags).unwrap_err();
    assert_eq!(errors.len(), 1, "{flags:?}: {errors:#?}");
    errors.concat()
}

#[test]
fn c01_without_flags_it_serves_as_the_go_managers_do() {
    let (serving, remarks) = resolve(&[]).unwrap();
    assert_eq!(serving.https, Some(ServingOptions::default()));
    assert_eq!(serving.https.unwrap().port, 10258);
    assert_eq!(serving.authentication, AuthenticationOptions::default());
    assert_eq!(serving.authorization, AuthorizationOptions::default());
    assert!(serving.profiling);
    assert_eq!(serving.webhooks, Webhooks { selection: Vec::new(), https: None });
    assert_eq!(remarks, [""; 0]);
}

#[test]
fn c02_a_list_may_be_empty_and_what_is_given_first_replaces_the_default() {
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
fn every_flag_about_serving_reaches_its_place() {
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
fn every_flag_about_who_may_ask_reaches_its_place() {
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
fn c15_c16_webhooks_are_served_if_some_are_chosen_and_the_gate_is_open() {
    let gate = "--feature-gates=CloudControllerManagerWebhook=true";
    assert_eq!(serving(&[gate]).webhooks.https, None, "C15");
    let chosen = serving(&[gate, "--webhooks=foo,bar,-baz", "--webhook-cert-dir=/certs"]).webhooks;
    let https = chosen.https.clone().unwrap();
    assert_eq!((https.port, https.tls.pair_name.as_str()), (10260, "cloud-controller-manager-webhook"));
    assert_eq!(names(&chosen.of(hooks(&["foo", "bar", "baz"]))), ["foo", "bar"], "C16");
    assert_eq!(chosen.errors(&hooks(&["foo", "bar", "baz"])).iter().count(), 0);
    // HOOK-2: upstream would crash.
    assert_eq!(serving(&[gate, "--webhooks=*", "--webhook-secure-port=0"]).webhooks.https, None);
    let (closed, remarks) = resolve(&["--webhooks=*"]).unwrap();
    assert_eq!(closed.webhooks.https, None);
    assert!(remarks.iter().any(|remark| remark.contains("CloudControllerManagerWebhook=true")), "{remarks:?}");
}

#[test]
fn c17_what_names_a_webhook_first_counts_and_then_the_star() {
    let cases: [(&str, &[&str]); 5] = [
        ("--webhooks=", &[]),
        ("--webhooks=a", &["a"]),
        ("--webhooks=a,-b", &["a"]),
        ("--webhooks=*", &["a", "b"]),
        ("--webhooks=*,-b", &["a"]),
    ];
    for (flag, expected) in cases {
        assert_eq!(names(&serving(&[flag]).webhooks.of(hooks(&["a", "b"]))), expected, "{flag}");
    }
    let unknown = serving(&["--webhooks=a,-c,*"]).webhooks.errors(&hooks(&["a", "b"]));
    assert_eq!(unknown.to_string(), "--webhooks: \"c\" is not in the list of known webhooks; did you mean a?");
}

/// A webhook that has nothing but a name.
struct Named(&'static str);

#[async_trait]
impl Webhook for Named {
    fn name(&self) -> &str {
        self.0
    }

    fn path(&self) -> &str {
        "/"
    }

    async fn review(&self, _: Value) -> Result<Value, String> {
        Err("only its name is asked for".to_owned())
    }
}

fn hooks(names: &[&'static str]) -> Vec<Arc<dyn Webhook>> {
    names.iter().map(|name| Arc::new(Named(name)) as _).collect()
}

fn names(hooks: &[Arc<dyn Webhook>]) -> Vec<&str> {
    hooks.iter().map(|hook| hook.name()).collect()
}

#[test]
fn c19_two_servers_do_not_share_a_port() {
    let words = "--webhook-secure-port cannot be the same value as --secure-port";
    assert_eq!(wrong(&["--secure-port=10260"]), words);
    assert_eq!(wrong(&["--webhook-secure-port=10258"]), words);
    assert_eq!(serving(&["--secure-port=0", "--webhook-secure-port=0"]).https, None);
}

#[test]
fn what_cannot_be_served_is_told_in_the_words_that_people_look_for() {
    let cases = [
        ("--secure-port=70000", "--secure-port 70000 must be between 0 and 65535, inclusive. 0 for turning off"),
        ("--secure-port=-1", "--secure-port -1 must be between 0 and 65535"),
        ("--webhook-secure-port=65536", "--webhook-secure-port 65536 must be between"),
        ("--secure-port=https", "--secure-port: \"https\" is not right: expected a whole number"),
        ("--bind-address=localhost", "--bind-address: \"localhost\" is not right: expected an IP address"),
        ("--tls-min-version=VersionTLS9", "--tls-min-version: unknown tls version \"VersionTLS9\""),
        (
            "--tls-cipher-suites=TLS_AES_128_GCM_SHA265",
            "Cipher suite TLS_AES_128_GCM_SHA265 not supported or doesn't exist; write",
        ),
        ("--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA", "--tls-cipher-suites: none of them is offered here"),
        ("--tls-curve-preferences=29,1", "--tls-curve-preferences: \"1\" is the number of no key exchange"),
        ("--tls-cert-file=a.crt", "--tls-cert-file: it is given without --tls-private-key-file; give both"),
        (
            "--webhook-tls-private-key-file=a",
            "--webhook-tls-private-key-file: it is given without --webhook-tls-cert-file",
        ),
        ("--tls-sni-cert-key=a.crt", "--tls-sni-cert-key: \"a.crt\" names no certificate with its key"),
        ("--http2-max-streams-per-connection=-1", "--http2-max-streams-per-connection: -1 is no number"),
        (
            "--authorization-always-allow-paths=/a*b",
            "--authorization-always-allow-paths: only trailing * allowed in \"a*b\"",
        ),
        (
            "--authorization-always-allow-paths=/a**",
            "--authorization-always-allow-paths: only trailing * allowed in \"a**\"",
        ),
        ("--requestheader-group-headers=a,,b", "--requestheader-group-headers: a name in the list is empty"),
        (
            "--authentication-skip-lookup=perhaps",
            "--authentication-skip-lookup: \"perhaps\" is not right: expected true",
        ),
        ("--log-flush-frequency=0", "--log-flush-frequency: \"0\" is not right: it must be longer than 0"),
        ("--log-flush-frequency=-5s", "--log-flush-frequency: \"-5s\" is not right"),
        ("--logging-format=xml", "--logging-format: \"xml\" is not right: expected text or json"),
        ("--vmodule=service", "--vmodule: \"service\""),
        ("--v=-1", "--v: -1 is no verbosity"),
        ("--log-text-split-stream", "--log-text-split-stream: Forbidden: Feature LoggingAlphaOptions is disabled"),
        ("--log-json-info-buffer-size=1Ki", "--log-json-info-buffer-size: Forbidden: Feature LoggingAlphaOptions"),
        ("--log-json-info-buffer-size=big", "--log-json-info-buffer-size: \"big\" is not right: expected a size"),
        ("--min-resync-period=soon", "--min-resync-period: \"soon\" is not right"),
        ("--contention-profiling=maybe", "--contention-profiling: \"maybe\" is not right"),
        ("--skip-headers=maybe", "--skip-headers: \"maybe\" is not right"),
    ];
    for (flag, expected) in cases {
        let problem = wrong(&[flag]);
        assert!(problem.contains(expected), "{flag}: {problem}");
    }
    let uid = wrong(&["--requestheader-uid-headers=x", "--feature-gates=RemoteRequestHeaderUID=false"]);
    assert!(uid.starts_with("--requestheader-uid-headers requires the"), "{uid}");
    let json = wrong(&["--vmodule=a=1", "--logging-format=json"]);
    assert!(json.starts_with("--vmodule: Forbidden: Only supported for text log format"), "{json}");
}

#[test]
fn what_is_older_or_weaker_than_this_program_speaks_is_remarked() {
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
        let (serving, remarks) = resolve(&[flag]).unwrap_or_else(|errors| panic!("{flag}: {errors:?}"));
        assert!(remarks.iter().any(|remark| remark.starts_with(expected)), "{flag}: {remarks:?}");
        assert!(!serving.https.unwrap().tls.only_tls13);
    }
}
