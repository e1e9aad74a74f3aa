//! Logins with a certificate, by SOAP and REST.

use bowline_cloud::{CloudProvider as _, ErrorKind};
use bowline_vsphere_simulator::vcenter::Options;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use crate::pair::{LABELS, Pair};

const KEY: &str = include_str!("../../src/vcenter/saml/testdata/key.pem");

fn certificate(until: i32) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(until, 1, 1));
    params.self_signed(&KeyPair::from_pem(KEY).unwrap()).unwrap().pem()
}

fn pair(known: &str, user: &str) -> Pair {
    Pair::with(Options { certificate: Some(known.to_owned()), ..Options::default() }, user, KEY, LABELS)
}

/// VS-45
#[tokio::test(start_paused = true)]
async fn soap_and_rest_sessions_are_opened_with_a_certificate() {
    let certificate = certificate(2120);
    let pair = pair(&certificate, &certificate);
    let results = pair.provider.diagnose().await;
    assert!(results.iter().all(|result| result.outcome.is_ok()), "{results:?}");
    let login = results.iter().find(|result| result.subject == "login to vCenter vc-1").unwrap();
    assert_eq!(login.outcome.as_ref().unwrap(), "the configured certificate is accepted");
    assert_eq!((pair.count("LoginByToken"), pair.count("Login")), ([1, 1], [0, 0]));
    assert_eq!(pair.vcenters[0].sessions(), (1, 1));
    pair.provider.close().await;
    assert_eq!(pair.vcenters[0].sessions(), (0, 0));
}

/// Neither the certificate nor the key is in an error.
#[tokio::test(start_paused = true)]
async fn a_certificate_that_is_rejected_or_has_expired_is_an_error() {
    let (known, expired) = (certificate(2120), certificate(2002));
    for (user, kind, text) in [
        (certificate(2121), ErrorKind::Unauthenticated, "rejected the login of the configured certificate"),
        (expired, ErrorKind::InvalidConfig, "the certificate in user is valid only until 2002-01-01T00:00:00Z"),
    ] {
        let pair = pair(&known, &user);
        let error = pair.provider.check().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert!(!error.to_string().contains("MI"), "{error}");
    }
}
