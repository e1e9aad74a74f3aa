//! Credentials on the wire, and their renewal.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::{ErrorKind, SecretRef};
use bowline_vsphere_simulator::nsx::{
    FaultSpec, Options, PASSWORD, REFRESH_TOKEN, Scheme, Simulator, USER, error_fault, html_fault,
};
use futures::future::join_all;
use tokio::time::{advance, sleep};

use super::world::{SecretLogin, client, manager, password, simulator};
use crate::config::nsx::{NsxConfig, NsxCredentials, PasswordScheme};
use crate::nsx::Clients;

const AUTH: &str = "vmc.test/csp/gateway/am/api/auth/api-tokens/authorize";

fn cloud(scheme: Scheme) -> Simulator {
    simulator(Options { schemes: [scheme].into(), principals: ["ccm".to_owned()].into(), ..Options::default() })
}

fn vmc() -> NsxCredentials {
    NsxCredentials::Vmc { token: REFRESH_TOKEN.into(), auth_host: AUTH.to_owned() }
}

/// Number of exchanges of the refresh token.
fn exchanges(cloud: &Simulator) -> usize {
    cloud.all_calls().iter().filter(|call| call.method == http::Method::POST).count()
}

/// VS-103
#[tokio::test(start_paused = true)]
async fn every_way_to_authenticate_works() {
    let with = |scheme| NsxCredentials::Password { user: USER.to_owned(), password: PASSWORD.into(), scheme };
    let certificate = NsxCredentials::Certificate { certificate: "c.pem".into(), key: "k.pem".into() };
    let table = [
        (Scheme::Basic, with(PasswordScheme::Basic)),
        (Scheme::Remote, with(PasswordScheme::Remote)),
        (Scheme::Vmc, vmc()),
        (Scheme::Certificate, certificate),
    ];
    for (scheme, credentials) in table {
        let cloud = cloud(scheme);
        cloud.present_certificate((scheme == Scheme::Certificate).then_some("ccm"));
        client(&cloud, credentials, &SecretLogin::default()).check().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_has_an_id_of_its_own_and_the_user_agent() {
    let cloud = cloud(Scheme::Basic);
    let nsx = client(&cloud, password(), &SecretLogin::default());
    nsx.check().await.unwrap();
    nsx.check().await.unwrap();
    let header = |name: &str| -> Vec<String> {
        let value = |headers: &[(String, String)]| {
            headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        };
        cloud.all_calls().iter().map(|call| value(&call.headers).unwrap()).collect()
    };
    let ids = header("vapi-ctx-opid");
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.parse::<uuid::Uuid>().is_ok()), "{ids:?}");
    assert!(header("user-agent").iter().all(|agent| agent.starts_with("vsphere-cloud-controller-manager bowline/")));
}

/// VS-122
#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_not_sent_often_enough_to_lock_the_account() {
    let cloud = cloud(Scheme::Basic);
    let wrong =
        NsxCredentials::Password { user: USER.to_owned(), password: "wrong".into(), scheme: PasswordScheme::Basic };
    let nsx = client(&cloud, wrong, &SecretLogin::default());
    let error = nsx.check().await.unwrap_err();
    assert_eq!((error.kind(), cloud.calls()), (ErrorKind::Unauthenticated, 1));
    for _ in 0..900 {
        let error = nsx.check().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated);
        assert!(!error.to_string().contains("wrong"), "{error}");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(cloud.calls(), 4);
    cloud.configure(|options| "wrong".clone_into(&mut options.password));
    sleep(Duration::from_secs(61)).await;
    nsx.check().await.unwrap();
    nsx.check().await.unwrap();
}

/// VS-122
#[tokio::test(start_paused = true)]
async fn after_a_pause_one_call_sends_the_password_and_the_others_wait_for_its_result() {
    for (status, code) in [(403, 403), (401, 401)] {
        let cloud = cloud(Scheme::Basic);
        cloud.set_latency(Duration::from_secs(1));
        let nsx = client(&cloud, password(), &SecretLogin::default());
        let fault = cloud.inject(FaultSpec::always(error_fault(status, code, "The credentials were incorrect.")));
        assert!(nsx.check().await.is_err());
        let error = nsx.check().await.unwrap_err();
        assert!(error.to_string().contains("; the credentials are retried after 60 s"), "{error}");
        let burst = || join_all((0..20).map(|_| nsx.check()));
        for round in 2..=4 {
            assert!(burst().await.iter().all(Result::is_err), "nothing is sent during the pause");
            assert_eq!(cloud.calls(), round - 1, "{status}");
            sleep(Duration::from_secs(301)).await;
            let rejected = burst().await;
            assert!(rejected.iter().all(|one| one.as_ref().is_err_and(|it| it.kind() == ErrorKind::Unauthenticated)));
            assert_eq!(cloud.calls(), round, "{status}");
        }
        cloud.repair(fault);
        sleep(Duration::from_secs(301)).await;
        assert!(burst().await.iter().all(Result::is_ok));
        assert_eq!(cloud.calls(), 4 + 1 + 20, "a probe, and then all of them");
    }
}

/// VS-122
#[tokio::test(start_paused = true)]
async fn concurrent_calls_at_the_start_count_too() {
    let cloud = cloud(Scheme::Basic);
    cloud.set_latency(Duration::from_millis(100));
    let wrong =
        NsxCredentials::Password { user: USER.to_owned(), password: "wrong".into(), scheme: PasswordScheme::Basic };
    let nsx = client(&cloud, wrong, &SecretLogin::default());
    assert!(join_all((0..3).map(|_| nsx.check())).await.iter().all(Result::is_err));
    for _ in 0..890 {
        assert!(nsx.check().await.is_err());
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(cloud.calls(), 4, "the fifth one would lock the account");
    sleep(Duration::from_secs(15)).await;
    assert!(nsx.check().await.is_err());
    assert_eq!(cloud.calls(), 5);
}

/// A server that fails proves nothing about the password.
#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_for_another_reason_is_repeated() {
    let cloud = cloud(Scheme::Basic);
    let nsx = client(&cloud, password(), &SecretLogin::default());
    for fault in [error_fault(403, 403, "Wrong."), html_fault(502)] {
        let number = cloud.inject(FaultSpec::always(fault));
        assert!(nsx.check().await.is_err());
        cloud.repair(number);
        sleep(Duration::from_secs(61)).await;
    }
    let before = cloud.calls();
    nsx.check().await.unwrap();
    assert_eq!(cloud.calls() - before, 2, "the probe and the call");
}

/// VS-103
#[tokio::test(start_paused = true)]
async fn a_denied_permission_with_an_access_token_is_reported_after_one_renewal() {
    for (fault, code) in [(error_fault(403, 289, "Denied."), Some("289")), (html_fault(403), None)] {
        let cloud = cloud(Scheme::Vmc);
        let nsx = client(&cloud, vmc(), &SecretLogin::default());
        nsx.check().await.unwrap();
        cloud.inject(FaultSpec::always(fault).on(http::Method::GET, "infra/lb-monitor-profiles"));
        for _ in 0..5 {
            let error = nsx.check().await.unwrap_err();
            assert_eq!((error.kind(), error.code()), (ErrorKind::PermissionDenied, code), "{error}");
        }
        assert_eq!(exchanges(&cloud), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_refresh_token_is_not_sent_again_at_once() {
    let cloud = cloud(Scheme::Vmc);
    let credentials = NsxCredentials::Vmc { token: "secret-token".into(), auth_host: AUTH.to_owned() };
    let nsx = client(&cloud, credentials, &SecretLogin::default());
    for _ in 0..120 {
        assert_eq!(nsx.check().await.unwrap_err().kind(), ErrorKind::Unauthenticated);
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(exchanges(&cloud), 2);
    cloud.configure(|options| "secret-token".clone_into(&mut options.refresh_token));
    sleep(Duration::from_secs(60)).await;
    nsx.check().await.unwrap();
}

/// VS-103
#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_at_four_fifths_of_its_life_and_when_it_is_rejected() {
    for as_text in [false, true] {
        let cloud = cloud(Scheme::Vmc);
        cloud.configure(|options| options.token_lifetime_as_text = as_text);
        let nsx = client(&cloud, vmc(), &SecretLogin::default());
        nsx.check().await.unwrap();
        advance(Duration::from_secs(1400)).await;
        nsx.check().await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(exchanges(&cloud), 1);
        advance(Duration::from_secs(100)).await;
        nsx.check().await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(exchanges(&cloud), 2, "in the background");
        cloud.revoke_tokens();
        nsx.check().await.unwrap();
        assert_eq!(exchanges(&cloud), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_refresh_token_is_an_error_without_the_token() {
    let cloud = cloud(Scheme::Vmc);
    let credentials = NsxCredentials::Vmc { token: "secret-token".into(), auth_host: AUTH.to_owned() };
    let error = client(&cloud, credentials, &SecretLogin::default()).check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(
        error.to_string().contains("Invalid refresh token") && !error.to_string().contains("secret-token"),
        "{error}"
    );
}

/// VS-104
#[tokio::test(start_paused = true)]
async fn a_secret_is_read_before_the_first_call_and_followed() {
    let cloud = cloud(Scheme::Basic);
    let secret = SecretRef { namespace: "kube-system".to_owned(), name: "nsx".to_owned() };
    let held = SecretLogin::default();
    let nsx = client(&cloud, NsxCredentials::Secret { secret, scheme: PasswordScheme::Basic }, &held);
    assert_eq!(nsx.check().await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    let error = nsx.check().await.unwrap_err().to_string();
    assert!(error.contains("the Secret kube-system/nsx was not read yet"), "{error}");
    assert!(error.contains("create it with the keys username and password"), "{error}");
    assert_eq!(cloud.calls(), 0, "without the Secret nothing is sent");
    let set = |password: &str| *held.lock().unwrap() = Some((USER.to_owned(), password.into()));
    set(PASSWORD);
    nsx.check().await.unwrap();
    cloud.configure(|options| "rotated".clone_into(&mut options.password));
    assert_eq!(nsx.check().await.unwrap_err().kind(), ErrorKind::Unauthenticated);
    set("rotated");
    nsx.check().await.unwrap();
    assert_eq!(Arc::strong_count(&held), 2);
}

#[test]
fn unreadable_tls_files_are_errors_of_the_configuration() {
    let manager = manager(NsxCredentials::Anonymous);
    let environment = bowline_config::Environment::default();
    assert!(Clients::connect(&NsxConfig { insecure: true, ..manager.clone() }, &environment).is_ok());
    let missing = || Some(std::path::PathBuf::from("/nonexistent/ca.pem"));
    let credentials =
        NsxCredentials::Certificate { certificate: "/nonexistent/c".into(), key: "/nonexistent/k".into() };
    let configs = [
        (NsxConfig { ca_file: missing(), ..manager.clone() }, 1),
        (NsxConfig { ca_file: missing(), credentials, ..manager }, 3),
    ];
    for (config, count) in configs {
        let errors = Clients::connect(&config, &environment).err().unwrap();
        assert_eq!(errors.iter().count(), count, "{errors:?}");
    }
}
