//! Logins: no account is locked, whatever goes wrong.

use std::time::Duration;

use bowline_cloud::{CloudProvider as _, ErrorKind, Instances as _, KnownState, Retry};
use bowline_vsphere_simulator::vcenter::{PASSWORD, Vcenter};
use bowline_vsphere_simulator::{Fault, FaultSpec};
use http::Method;
use tokio::time::{Instant, sleep};

use crate::folder::Folder;
use crate::world::{World, by_id};

fn count(vcenter: &Vcenter, call: &str) -> u64 {
    vcenter.counts().get(call).copied().unwrap_or_default()
}

/// Number of SOAP logins in all vCenters.
fn logins(world: &World) -> u64 {
    world.vcenters.iter().map(|vcenter| count(vcenter, "POST Login")).sum()
}

fn rest_logins(world: &World) -> u64 {
    count(world.vcenter(), "POST session")
}

// ---- one account in several vCenters

#[tokio::test(start_paused = true)]
async fn vs_39_a_wrong_password_is_sent_twice_in_three_minutes_however_many_vcenters_have_it() {
    let one_server: String =
        (2..=5).map(|number| format!("[VirtualCenter \"key-{number}\"]\nserver = vc-1\n")).collect();
    for (vcenters, config) in [(5, ""), (1, one_server.as_str())] {
        let world = World::of(vcenters, config);
        let change = |password: &str| {
            world
                .vcenters
                .iter()
                .for_each(|vcenter| vcenter.configure(|options| options.password = password.to_owned()));
        };
        change("changed");
        let node = by_id("vsphere://00000000-0000-0000-0000-0000000000ff");
        for _ in 0..35 {
            let error = world.error(&node).await;
            assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
            assert!(error.message().contains("rejected the login of user"), "{error}");
            sleep(Duration::from_secs(5)).await;
        }
        assert!((1..=2).contains(&logins(&world)), "{} logins", logins(&world));
        change(PASSWORD);
        sleep(Duration::from_secs(181)).await;
        world.found(&world.id_of("node-1")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_vcenter_that_rejects_the_common_password_does_not_stop_the_other_one() {
    let world = World::of(2, "");
    world.vcenters[1].configure(|options| options.password = "another".to_owned());
    let node_1 = world.id_of("node-1");
    for _ in 0..100 {
        world.found(&node_1).await;
        assert!(world.find(&world.id_of("node-3")).await.is_err());
        world.vcenter().end_sessions();
        sleep(Duration::from_secs(60)).await;
    }
}

/// Every standby starts the provider as well.
#[tokio::test(start_paused = true)]
async fn the_start_of_many_processes_does_not_lock_an_account() {
    let world = World::of(2, "");
    world.vcenters.iter().for_each(|vcenter| vcenter.configure(|options| options.password = "changed".to_owned()));
    for _ in 0..10 {
        world.restarted("").start().await.unwrap();
    }
    assert_eq!(logins(&world), 0);
    // After a login has failed, the start shows it, without another login.
    world.error(&world.id_of("node-1")).await;
    let error = world.provider.start().await.unwrap_err();
    assert!(error.message().contains("rejected the login"), "{error}");
    assert!(world.provider.check().await.is_err());
    assert!(logins(&world) <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_start_without_credentials_fails() {
    let folder = Folder::new("none", &[]);
    let error = folder.world().provider.start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.message().contains("Credentials not found"), "{error}");
}

// ---- rotation

/// A world whose REST session has ended, while the SOAP session was kept alive, and whose password was changed.
async fn rotated(folder: &Folder) -> World {
    let world = folder.world();
    assert_eq!(world.found(&world.id_of("node-1")).await.zone, "z1");
    sleep(Duration::from_secs(7200)).await;
    assert_eq!(world.vcenter().sessions(), (1, 0));
    world.vcenter().configure(|options| options.password = "new".to_owned());
    world.vcenter().forget_calls();
    world
}

#[tokio::test(start_paused = true)]
async fn after_a_rotation_rest_logs_in_with_the_new_password_although_the_soap_session_is_still_open() {
    let folder = Folder::with_password("rotated");
    let world = rotated(&folder).await;
    folder.write("vc-1.password", "new");
    assert_eq!(world.found(&world.id_of("node-1")).await.zone, "z1");
    assert_eq!((logins(&world), rest_logins(&world)), (0, 1), "the old password is not sent");
}

#[tokio::test(start_paused = true)]
async fn a_rest_login_that_is_rejected_pauses_and_leaves_the_account_unlocked() {
    let folder = Folder::with_password("rejected");
    let world = rotated(&folder).await;
    let node_1 = world.id_of("node-1");
    for _ in 0..35 {
        let error = world.error(&node_1).await;
        assert_eq!((error.kind(), error.known_state()), (ErrorKind::Unauthenticated, Some(KnownState::Running)));
        assert!(error.message().contains("rejected the login of user"), "{error}");
        assert_eq!(error.retry_advice(), Retry::Backoff, "a corrected Secret is used soon");
        sleep(Duration::from_secs(5)).await;
    }
    assert_eq!((logins(&world), rest_logins(&world)), (0, 1));
    // A new password is used at once.
    folder.write("vc-1.password", "new");
    assert_eq!(world.found(&node_1).await.zone, "z1");
}

// ---- other failures

#[tokio::test(start_paused = true)]
async fn a_login_whose_response_is_lost_backs_off_for_longer_each_time() {
    for (call, login) in [("Login", "POST Login"), ("session", "POST session")] {
        let folder = Folder::with_password(call);
        let world = folder.world();
        world.vcenter().inject(FaultSpec::always(Fault::AnswerLost).on(Method::POST, call));
        let node_1 = world.id_of("node-1");
        for _ in 0..120 {
            assert!(world.find(&node_1).await.is_err());
            sleep(Duration::from_secs(5)).await;
        }
        let count = count(world.vcenter(), login);
        assert!((5..=8).contains(&count), "{count} of {call} in ten minutes, each of which may leave a session behind");
        world.vcenter().repair_all();
        sleep(Duration::from_secs(301)).await;
        world.found(&node_1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rest_login_that_fails_with_any_status_is_not_repeated_for_each_object() {
    for status in [400, 403, 404] {
        let folder = Folder::with_password(&status.to_string());
        let world = folder.world();
        let denied = Fault::Answer(status, "<html>proxy</html>".to_owned());
        world.vcenter().inject(FaultSpec::always(denied).on(Method::POST, "session"));
        let nodes = [world.id_of("node-1"), world.id_of("node-2")];
        for state in world.provider.find(&nodes).await {
            assert_eq!(state.unwrap_err().known_state(), Some(KnownState::Running));
        }
        assert_eq!(rest_logins(&world), 1, "HTTP {status}");
        // No object is blamed for it.
        world.vcenter().repair_all();
        sleep(Duration::from_secs(6)).await;
        assert_eq!(world.found(&nodes[0]).await.zone, "z1", "HTTP {status}");
    }
}

// ---- shared sessions

#[tokio::test(start_paused = true)]
async fn vs_46_a_session_manager_has_five_seconds_and_its_url_is_not_shown() {
    let url = "https://user:hunter2@vc-1/session-manager?key=hunter3";
    let files = [("vc-1.vc-session-manager-url", url), ("vc-1.vc-session-manager-token", "session-manager-token\n\n")];
    let folder = Folder::new("manager", &files);
    let faults = [Fault::Hanging, Fault::Lost, Fault::Answer(500, "no".to_owned())];
    for fault in faults {
        let world = folder.world();
        let spec = FaultSpec::always(fault.clone()).on(Method::GET, "session-manager");
        world.vcenter().inject(spec);
        let begun = Instant::now();
        let error = world.error(&world.id_of("node-1")).await;
        let expected = if matches!(fault, Fault::Hanging) { 5 } else { 0 };
        assert_eq!(begun.elapsed(), Duration::from_secs(expected), "{error}");
        assert!(error.message().contains("vc session manager") && error.message().contains("vc-1"), "{error}");
        assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
        world.vcenter().repair_all();
        sleep(Duration::from_secs(6)).await;
        world.found(&world.id_of("node-1")).await;
    }
    for url in ["ftp://user:hunter2@vc-1/", "https:///hunter2", "hunter2"] {
        folder.write("vc-1.vc-session-manager-url", url);
        let world = folder.world();
        let error = world.error(&world.id_of("node-1")).await;
        assert!(error.message().contains("the URL of the session manager is invalid"), "{error}");
        assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
    }
}
