//! Failures of the API: each has a kind, nothing is deleted on doubt, nothing is created twice, nothing is lost.

use std::time::Duration;

use bowline_aws_simulator::{Fault, FaultSpec, Fields as _, NewInstance, Options, ec2_fault, elb_fault};
use bowline_cloud::{CloudProvider as _, ErrorKind, Retry, Routes};
use bowline_core::{ProviderId, RouteSpec};
use http::Method;
use tokio::time::Instant;

use crate::world::{CLUSTER_TAG, Kept, NLB, World, node, other, provider, web};

const MANAGED: &str = "NLBSecurityGroupMode = Managed\n";

/// Kinds of load balancers: annotations, and lines of the configuration.
const KINDS: [(&[(&str, &str)], &str); 3] = [(&[], ""), (&[NLB], ""), (&[NLB], MANAGED)];

/// Syncs with pauses, as the controller does, and returns the errors.
async fn sync_patiently(world: &World, service: &mut Kept) -> Vec<String> {
    let mut errors = Vec::new();
    for _ in 0..40 {
        match world.sync(service).await {
            Ok(_) => return errors,
            Err(error) => errors.push(error.to_string()),
        }
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    panic!("never synced: {errors:?}");
}

// ---- kinds of errors

#[tokio::test(start_paused = true)]
async fn each_error_of_a_write_has_a_kind_and_its_text_reaches_the_event() {
    let world = World::new().await;
    let cases = [
        (503, "RequestLimitExceeded", ErrorKind::RateLimited),
        (400, "Throttling", ErrorKind::RateLimited),
        (403, "AccessDenied", ErrorKind::PermissionDenied),
        (403, "ExpiredToken", ErrorKind::Unauthenticated),
        (400, "TooManyLoadBalancers", ErrorKind::QuotaExceeded),
        (400, "InvalidSubnet", ErrorKind::InvalidConfig),
        (409, "InvalidConfigurationRequest", ErrorKind::InvalidConfig),
        (500, "InternalFailure", ErrorKind::Unavailable),
        (503, "ServiceUnavailable", ErrorKind::Unavailable),
    ];
    for (status, code, kind) in cases {
        world
            .cloud
            .inject(FaultSpec::always(elb_fault(status, code, "because")).on(Method::POST, "elbv2 CreateLoadBalancer"));
        let error = world.sync(&mut world.kept(web(&[NLB]))).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("error creating load balancer: api error {code}: because")), "{text}");
        assert_eq!(world.cloud.load_balancers().len(), 0);
        world.cloud.repair_all();
    }
    sync_patiently(&world, &mut world.kept(web(&[NLB]))).await;
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_none_of_aws_creates_and_deletes_nothing() {
    for (annotations, lines) in KINDS {
        let world = World::with(Options::default(), lines).await;
        let mut service = world.create(annotations).await;
        service.is_deleted = true;
        for fault in [
            Fault::Garbled,
            Fault::Answer(404, "<html>not here</html>".to_owned()),
            Fault::Answer(200, "<Desc".to_owned()),
        ] {
            world.cloud.inject(FaultSpec::always(fault.clone()));
            assert!(world.sync(&mut service).await.is_err(), "{fault:?}");
            world.cloud.repair_all();
            assert_eq!(world.writes(), Vec::<String>::new(), "{fault:?}");
        }
    }
}

// ---- quotas

#[tokio::test(start_paused = true)]
async fn quotas_are_reported_nothing_is_left_and_the_service_recovers() {
    for (annotations, lines) in KINDS {
        let world = World::with(Options::default(), lines).await;
        world.cloud.configure(|options| {
            (options.limits.classic_load_balancers, options.limits.load_balancers) = (0, 0);
        });
        let mut service = world.kept(web(annotations));
        let error = world.sync(&mut service).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
        assert!(error.to_string().contains("api error TooManyLoadBalancers: "), "{error}");
        world.delete(&mut service).await.unwrap();
        assert_eq!(world.leftovers(), Vec::<String>::new());
        world.cloud.configure(|options| options.limits = Options::default().limits);
        service.is_deleted = false;
        world.synced(&mut service).await;
    }
}

#[tokio::test(start_paused = true)]
async fn quotas_of_groups_and_listeners_leave_nothing_either() {
    type Case = (&'static [(&'static str, &'static str)], &'static str, fn(&mut Options), &'static str);
    let cases: [Case; 3] = [
        (&[], "", |options| options.limits.security_groups = 0, "SecurityGroupLimitExceeded"),
        (&[NLB], "", |options| options.limits.target_groups = 0, "TooManyTargetGroups"),
        (&[NLB], "", |options| options.limits.listeners = 0, "TooManyListeners"),
    ];
    for (annotations, lines, limit, code) in cases {
        let world = World::with(Options::default(), lines).await;
        world.cloud.configure(limit);
        let mut service = world.kept(web(annotations));
        let error = world.sync(&mut service).await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::QuotaExceeded, Some(code)), "{error}");
        world.delete(&mut service).await.unwrap();
        assert_eq!(world.leftovers(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_route_table_fails_one_route_and_not_the_others() {
    let world = World::new().await;
    world.cloud.configure(|options| options.limits.routes = 1);
    let spec = |at: u8| {
        let id = world.cloud.add_instance(NewInstance::named("node").tagged(CLUSTER_TAG, "owned"));
        RouteSpec {
            name_hint: format!("uid-{at}"),
            node: format!("node-{at}").as_str().into(),
            provider_id: ProviderId::new(&format!("aws:///us-east-1a/{id}")),
            node_addresses: Vec::new(),
            destination: format!("10.1.{at}.0/24").parse().unwrap(),
            cluster_uid: None,
        }
    };
    let created = Routes::create(&world.provider, &"kubernetes".into(), &[spec(0), spec(1)]).await;
    assert_eq!(created.iter().filter(|one| one.is_ok()).count(), 1, "{created:?}");
    let error = created.into_iter().find_map(Result::err).unwrap();
    assert_eq!((error.kind(), error.code()), (ErrorKind::QuotaExceeded, Some("RouteLimitExceeded")), "{error}");
    assert!(error.to_string().starts_with("error creating AWS route (10.1."), "{error}");
}

// ---- permissions

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_named_and_the_sync_continues_once_it_is_granted() {
    for (annotations, lines) in KINDS {
        let world = World::with(Options::default(), lines).await;
        let mut service = world.create(annotations).await;
        let creation = actions(&world, &mut service, false).await;
        let deletion = actions(&world, &mut service, true).await;
        for (actions, is_deleted) in [(creation, false), (deletion, true)] {
            for action in actions {
                let (existing, mut service) = (world.cloud.security_groups().len(), world.kept(web(annotations)));
                if is_deleted {
                    world.synced(&mut service).await;
                }
                service.is_deleted = is_deleted;
                world.cloud.deny(&action);
                let error = world.sync(&mut service).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{action}: {error}");
                assert!(error.to_string().contains(&format!("is not authorized to perform: {action}")), "{error}");
                world.cloud.allow(&action);
                sync_patiently(&world, &mut service).await;
                world.delete(&mut service).await.unwrap();
                assert_eq!(world.leftovers(), Vec::<String>::new(), "{action}");
                assert_eq!(world.cloud.security_groups().len(), existing);
            }
        }
    }
}

/// Actions that a deletion or a creation needs, as in IAM policies.
async fn actions(world: &World, service: &mut Kept, of_deletion: bool) -> Vec<String> {
    world.delete(service).await.unwrap();
    service.is_deleted = false;
    if of_deletion {
        world.synced(service).await;
        service.is_deleted = true;
    }
    // Later than every cache.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    world.cloud.forget_calls();
    world.sync(service).await.unwrap();
    let entries = world.cloud.journal();
    let name = |entry: &bowline_aws_simulator::Entry| {
        let api = if entry.part == "ec2" { "ec2" } else { "elasticloadbalancing" };
        format!("{api}:{}", crate::world::action(entry))
    };
    let mut names: Vec<_> = entries.iter().filter(|entry| entry.is_write).map(name).collect();
    names.sort();
    names.dedup();
    service.is_deleted = true;
    world.sync(service).await.unwrap();
    service.is_deleted = false;
    names
}

// ---- throttling

#[tokio::test(start_paused = true)]
async fn a_storm_of_throttled_calls_spreads_the_calls_and_loses_nothing() {
    let world = World::new().await;
    let calm = Instant::now();
    world.synced(&mut world.kept(web(&[]))).await;
    assert_eq!(calm.elapsed(), Duration::ZERO, "no pause without throttling");
    world.cloud.forget_calls();
    world.cloud.inject(
        FaultSpec::always(ec2_fault(503, "RequestLimitExceeded", "Request limit exceeded.")).of("ec2").times(20),
    );
    let storm = Instant::now();
    let mut service = world.kept(other(&[NLB]));
    let errors = sync_patiently(&world, &mut service).await;
    assert!(errors.iter().all(|error| error.contains("RequestLimitExceeded")), "{errors:?}");
    assert!(storm.elapsed() >= Duration::from_secs(1), "{:?}", storm.elapsed());
    let calls = world.cloud.calls();
    assert!(calls < 150, "{calls} calls");
    assert!(world.planned(&mut service).await.unwrap().is_empty());
    assert_eq!((world.cloud.classic_load_balancers().len(), world.cloud.load_balancers().len()), (1, 1));
    world.delete(&mut service).await.unwrap();
    assert_eq!(world.cloud.target_groups().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_throttled_api_delays_calls_of_the_others() {
    let world = World::new().await;
    let throttled = elb_fault(400, "Throttling", "Rate exceeded");
    world.cloud.inject(FaultSpec::always(throttled).of("elb").times(5));
    for _ in 0..5 {
        let error = world.sync(&mut world.kept(web(&[]))).await.unwrap_err();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::RateLimited, Retry::Backoff), "{error}");
    }
    let begun = Instant::now();
    for _ in 0..10 {
        world.provider.check().await.unwrap();
    }
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

// ---- credentials and clocks

#[tokio::test(start_paused = true)]
async fn rotated_credentials_are_read_again_in_the_middle_of_a_sync() {
    for (annotations, lines) in KINDS {
        for calls in [1, 4, 9] {
            let path = std::env::temp_dir().join(format!("bowline-aws-rotated-{}-{calls}", std::process::id()));
            let write = |id: &str, secret: &str| {
                let text = format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
                std::fs::write(&path, text).unwrap();
            };
            write(bowline_aws_simulator::ACCESS_KEY, bowline_aws_simulator::SECRET_KEY);
            let world = World::with(Options::default(), lines).await;
            let variables = [("AWS_SHARED_CREDENTIALS_FILE", path.to_str().unwrap())];
            let world = World { provider: provider(&world.cloud, &variables, lines), ..world };
            world.provider.start().await.unwrap();
            // The first attempt ends at this call; then the old key is deleted.
            world.cloud.inject(FaultSpec::always(Fault::Lost).after(calls));
            let mut service = world.kept(web(annotations));
            let _ = world.sync(&mut service).await;
            world.cloud.repair_all();
            write("AKIASIMULATED0000002", "another/secret");
            world.cloud.rotate_access_key("AKIASIMULATED0000002", "another/secret");
            let errors = sync_patiently(&world, &mut service).await;
            std::fs::remove_file(&path).unwrap();
            assert_eq!(errors, Vec::<String>::new(), "no Event says so");
            assert_eq!(world.cloud.classic_load_balancers().len() + world.cloud.load_balancers().len(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn revoked_credentials_are_reported_and_change_nothing() {
    let world = World::new().await;
    let mut service = world.create(&[]).await;
    world.cloud.rotate_access_key("AKIASIMULATED0000002", "another/secret");
    service.is_deleted = true;
    let error = world.sync(&mut service).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert_eq!(world.cloud.classic_load_balancers().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_is_corrected_by_the_time_of_aws() {
    let world = World::new().await;
    world.cloud.configure(|options| options.clock_skew = Some(Duration::from_secs(300)));
    // The clock of the simulator is paused and advanced; that of the provider is the real one.
    tokio::time::advance(Duration::from_secs(7200)).await;
    let mut service = world.kept(web(&[]));
    world.synced(&mut service).await;
    world.cloud.forget_calls();
    world.planned(&mut service).await.unwrap();
    assert!(world.cloud.journal().iter().all(|entry| !matches!(entry.status, Some(401 | 403))), "corrected once");
}

// ---- eventual consistency

#[tokio::test(start_paused = true)]
async fn a_new_resource_that_reads_do_not_show_yet_is_neither_lost_nor_created_twice() {
    for (annotations, lines) in KINDS {
        for reads in [1, 2, 5] {
            let world = World::with(Options { hidden_reads: reads, ..Options::default() }, lines).await;
            let mut service = world.kept(web(annotations));
            sync_patiently(&world, &mut service).await;
            world.cloud.finish_work();
            assert!(world.planned(&mut service).await.unwrap().is_empty(), "{annotations:?} {reads}");
            let count = world.cloud.classic_load_balancers().len() + world.cloud.load_balancers().len();
            assert_eq!(count, 1, "{annotations:?} {reads}");
            world.delete(&mut service).await.unwrap();
            assert_eq!(world.leftovers(), Vec::<String>::new(), "{annotations:?} {reads}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_process_waits_for_a_group_that_is_not_shown_yet() {
    for (annotations, lines) in KINDS {
        for calls in 1..30 {
            let world = World::with(Options { hidden_reads: 3, ..Options::default() }, lines).await;
            let mut service = world.kept(web(annotations));
            let (_, crashed) = world.cloud.crashing(calls, world.sync(&mut service)).await;
            let world = World { provider: provider(&world.cloud, &crate::world::STATIC, lines), ..world };
            world.provider.start().await.unwrap();
            sync_patiently(&world, &mut service).await;
            let count = world.cloud.classic_load_balancers().len() + world.cloud.load_balancers().len();
            assert_eq!(count, 1, "{annotations:?} {calls}");
            world.cloud.finish_work();
            world.delete(&mut service).await.unwrap();
            assert_eq!(world.leftovers(), Vec::<String>::new(), "{annotations:?} {calls}");
            if !crashed {
                break;
            }
        }
    }
}

// ---- crashes

#[tokio::test(start_paused = true)]
async fn every_crash_during_creation_change_and_deletion_is_continued() {
    for (annotations, lines) in KINDS {
        let world = World::with(Options::default(), lines).await;
        let mut service = world.kept(web(annotations));
        let changed =
            [annotations, &[("healthcheck-protocol", "HTTP"), ("cross-zone-load-balancing-enabled", "true")]].concat();
        for is_changed in [false, true] {
            if is_changed {
                service.service = web(&changed);
                service.nodes.push(node(&world.cloud, "node-3"));
                service.nodes.remove(0);
            }
            crash_everywhere(&world, &mut service).await;
            let names: Vec<_> =
                world.cloud.target_groups().iter().map(|one| one.text("TargetGroupName").to_owned()).collect();
            assert_eq!(names.len(), annotations.len(), "{names:?}");
        }
        service.is_deleted = true;
        crash_everywhere(&world, &mut service).await;
        assert_eq!(world.leftovers(), Vec::<String>::new());
    }
}

async fn crash_everywhere(world: &World, service: &mut Kept) {
    for calls in 1.. {
        let (_, crashed) = world.cloud.crashing(calls, world.sync(service)).await;
        if !crashed {
            break;
        }
        // The outcome of a write was unknown.
        tokio::time::advance(Duration::from_secs(121)).await;
        assert!(world.cloud.classic_load_balancers().len() + world.cloud.load_balancers().len() <= 1);
    }
    sync_patiently(world, service).await;
    assert!(world.planned(service).await.unwrap().is_empty());
}
