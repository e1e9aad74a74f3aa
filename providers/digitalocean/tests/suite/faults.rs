//! Failures of the API: each has a kind, nothing is deleted on doubt, nothing is created twice.

use std::time::Duration;

use bowline_cloud::{CloudProvider as _, ErrorKind, Instances as _, Retry};
use bowline_core::{InstanceRef, InstanceState, ProviderId};
use bowline_digitalocean_simulator::{Fault, FaultSpec, NewDroplet, Options, error_fault};
use http::Method;

use crate::world::{Kept, World, web};

#[tokio::test(start_paused = true)]
async fn each_status_of_a_write_has_a_kind_and_its_message_reaches_the_event() {
    let world = World::new().await;
    let cases = [
        (401, "Unable to authenticate you.", ErrorKind::Unauthenticated),
        (403, "You are not authorized to perform this operation", ErrorKind::PermissionDenied),
        (403, "Load Balancer can't be updated while it processes previous actions", ErrorKind::Conflict),
        (409, "conflict", ErrorKind::Conflict),
        (
            422,
            "some of the specified target droplets don't belong to the same VPC as the Load Balancer",
            ErrorKind::InvalidConfig,
        ),
        (422, "you have reached the load balancer limit of your account", ErrorKind::QuotaExceeded),
        (429, "API rate limit exceeded.", ErrorKind::RateLimited),
        (500, "Server was unable to give you a response.", ErrorKind::Unavailable),
        (503, "Service Unavailable", ErrorKind::Unavailable),
    ];
    for (status, message, kind) in cases {
        world.cloud.inject(FaultSpec::always(error_fault(status, message)).on(Method::POST, "load_balancers"));
        let error = world.sync(&mut world.kept(web(&[]))).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!(
                "failed to create load-balancer: POST http://do.test/v2/load_balancers: {status} (request "
            )),
            "{text}"
        );
        assert!(text.contains(message), "{text}");
        assert_eq!(world.cloud.records("load_balancers").len(), 0);
        world.cloud.repair_all();
    }
    world.synced(&mut world.kept(web(&[]))).await;
}

#[tokio::test(start_paused = true)]
async fn throttling_carries_the_delay_with_and_without_a_body() {
    let world = World::new().await;
    world.cloud.inject(FaultSpec::always(Fault::Throttled(Some(Duration::from_secs(7)))));
    let error = world.provider.check().await.unwrap_err();
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::RateLimited, Retry::After(Duration::from_secs(7))));
    world.cloud.repair_all();
    world.cloud.inject(FaultSpec::always(Fault::Throttled(None)));
    let error = world.provider.check().await.unwrap_err();
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::RateLimited, Retry::Backoff));
}

#[tokio::test(start_paused = true)]
async fn a_truncated_or_foreign_answer_never_means_gone() {
    let world = World::new().await;
    let id = world.cloud.add_droplet(NewDroplet::named("node-3"));
    let asked = [InstanceRef {
        node: "n".into(),
        provider_id: Some(ProviderId::of("digitalocean", &id.to_string())),
        system_uuid: None,
    }];
    for fault in [
        Fault::Garbled,
        Fault::Empty,
        Fault::Answer(404, "<html>not here</html>".to_owned()),
        Fault::Answer(200, "{\"drop".to_owned()),
    ] {
        world.cloud.inject(FaultSpec::always(fault.clone()));
        let found = world.provider.find(&asked).await.pop().unwrap();
        assert!(found.is_err(), "{fault:?}: {found:?}");
        // An empty list is an answer.
        if !matches!(fault, Fault::Empty) {
            let mut deleted = Kept { is_deleted: true, ..world.kept(web(&[])) };
            assert!(world.sync(&mut deleted).await.is_err(), "{fault:?}");
        }
        world.cloud.repair_all();
    }
}

#[tokio::test(start_paused = true)]
async fn an_account_at_its_limit_gets_a_clear_error_and_recovers() {
    let world = World::with(Options { load_balancer_limit: Some(0), ..Options::default() }, &[]).await;
    let error = world.sync(&mut world.kept(web(&[]))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
    world.cloud.configure(|options| options.load_balancer_limit = None);
    world.synced(&mut world.kept(web(&[]))).await;
}

#[tokio::test(start_paused = true)]
async fn a_droplet_that_was_recreated_under_its_name_is_another_machine() {
    let world = World::new().await;
    let id = world.cloud.add_droplet(NewDroplet::named("node-3"));
    let by_id = |id: u64| InstanceRef {
        node: "node-3".into(),
        provider_id: Some(ProviderId::of("digitalocean", &id.to_string())),
        system_uuid: None,
    };
    world.cloud.delete_droplet(id);
    let new = world.cloud.add_droplet(NewDroplet::named("node-3"));
    assert_eq!(world.provider.find(&[by_id(id)]).await.pop().unwrap().unwrap(), InstanceState::Gone);
    world.cloud.set_droplet(new, "name", "renamed");
    assert!(
        matches!(world.provider.find(&[by_id(new)]).await.pop().unwrap(), Ok(InstanceState::Running(_))),
        "found by its ID"
    );
}

#[tokio::test(start_paused = true)]
async fn every_crash_during_creation_change_and_deletion_leaves_one_load_balancer_or_none() {
    let world = World::new().await;
    let mut service = world.kept(web(&[]));
    for calls in 1.. {
        let (_, crashed) = world.cloud.crashing(calls, world.sync(&mut service)).await;
        if !crashed {
            break;
        }
        // A response was lost: the creation may have been executed.
        tokio::time::advance(Duration::from_secs(121)).await;
        assert!(world.cloud.records("load_balancers").len() <= 1);
    }
    assert_eq!(world.cloud.records("load_balancers").len(), 1);
    service.is_deleted = true;
    for calls in 1.. {
        let (_, crashed) = world.cloud.crashing(calls, world.sync(&mut service)).await;
        if !crashed {
            break;
        }
    }
    assert_eq!(world.cloud.records("load_balancers").len(), 0);
}
