//! Errors of NSX and of proxies before it, and lists that do not end.

use bowline_cloud::{CloudProvider as _, ErrorKind, Retry};
use bowline_vsphere_simulator::nsx::{Fault, FaultSpec, error_fault, html_fault};
use serde_json::json;

use super::world::{SecretLogin, World, client, password, web};
use crate::nsx::POOLS;

/// VS-122
#[tokio::test(start_paused = true)]
async fn the_code_of_an_error_decides_its_kind() {
    let table = [
        (400, 500_012, ErrorKind::InvalidConfig, Retry::Backoff),
        (400, 500_030, ErrorKind::Conflict, Retry::Backoff),
        (400, 500_045, ErrorKind::Conflict, Retry::Backoff),
        (400, 60_508, ErrorKind::Unavailable, Retry::Backoff),
        (401, 401, ErrorKind::Unauthenticated, Retry::Backoff),
        (403, 403, ErrorKind::Unauthenticated, Retry::Backoff),
        (403, 98, ErrorKind::Unauthenticated, Retry::Backoff),
        (403, 289, ErrorKind::PermissionDenied, Retry::Backoff),
        (400, 500_232, ErrorKind::Conflict, Retry::Backoff),
        (404, 600, ErrorKind::NotFound, Retry::Backoff),
        (404, 500_090, ErrorKind::Conflict, Retry::Backoff),
        (404, 1, ErrorKind::Unexpected, Retry::Backoff),
        (412, 604, ErrorKind::Conflict, Retry::Backoff),
        (409, 604, ErrorKind::Conflict, Retry::Backoff),
        (429, 102, ErrorKind::RateLimited, Retry::Backoff),
        (503, 98, ErrorKind::Unavailable, Retry::Backoff),
        (500, 610, ErrorKind::Unavailable, Retry::Backoff),
    ];
    for (status, code, kind, retry) in table {
        let world = World::new();
        world.cloud.inject(FaultSpec::always(error_fault(status, code, "Some reason.")));
        let error = world.provider.check().await.unwrap_err();
        assert_eq!((error.kind(), error.code()), (kind, Some(code.to_string().as_str())), "{status} {code}");
        assert!(
            kind == ErrorKind::NotFound || error.retry_advice() == retry,
            "{status} {code}: {:?}",
            error.retry_advice()
        );
        assert!(error.to_string().ends_with(&format!(": Some reason. (code {code})")), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn related_errors_are_part_of_the_message() {
    let world = World::new();
    let body = json!({"httpStatus": "BAD_REQUEST", "error_code": 500_012, "error_message": "Bad path.",
        "related_errors": [{"error_code": 7, "error_message": "No such parent."}, {"error_message": "Second."}]});
    world.cloud.inject(FaultSpec::always(Fault::Answer(400, body.to_string())));
    let error = world.provider.check().await.unwrap_err().to_string();
    let expected = "InvalidRequest: Bad path. (code 500012). Related errors: No such parent. (code 7); Second.";
    assert!(error.ends_with(expected), "{error}");
}

/// VS-122
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_from_nsx_is_an_error_and_proves_nothing() {
    let world = World::new();
    world.synced(&web()).await;
    let answers = [
        (html_fault(404), ErrorKind::Unexpected),
        (html_fault(403), ErrorKind::PermissionDenied),
        (html_fault(502), ErrorKind::Unavailable),
        (html_fault(200), ErrorKind::Unexpected),
        (Fault::Answer(404, "{}".to_owned()), ErrorKind::Unexpected),
        (Fault::Answer(404, r#"{"error_message": "gone"}"#.to_owned()), ErrorKind::Unexpected),
        (Fault::Answer(400, r#"{"error_code": null}"#.to_owned()), ErrorKind::InvalidConfig),
        (Fault::Answer(200, "{}".to_owned()), ErrorKind::Unexpected),
        (Fault::Answer(200, r#"{"results": [{"display_name": "no ID"}]}"#.to_owned()), ErrorKind::Unexpected),
    ];
    for (fault, kind) in answers {
        let number = world.cloud.inject(FaultSpec::always(fault.clone()));
        let error = world.sync(&web()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{fault:?}: {error}");
        assert!(world.delete(&web()).await.is_err(), "{fault:?}");
        world.cloud.repair(number);
    }
    assert_eq!(world.counts(), [1; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_manager_is_given_up_after_thirty_seconds() {
    let world = World::new();
    world.cloud.inject(FaultSpec::always(Fault::Hanging));
    let began = tokio::time::Instant::now();
    assert_eq!(world.provider.check().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(began.elapsed().as_secs(), 30);
}

/// VS-115
#[tokio::test(start_paused = true)]
async fn lists_are_read_to_the_end_and_endless_ones_are_not() {
    let world = World::new();
    let nsx = client(&world.cloud, password(), &SecretLogin::default());
    world.cloud.configure(|options| options.max_page = 2);
    for number in 0..5 {
        world.cloud.put(&format!("/infra/lb-pools/{number}"), json!({"display_name": format!("a b+{number}")}));
    }
    let pools = nsx.list_all(&POOLS).await.unwrap().objects;
    assert_eq!((pools.len(), world.calls().len()), (5, 3));
    let page =
        |cursor: &str, items: &str| Fault::Answer(200, format!(r#"{{"results": [{items}], "cursor": "{cursor}"}}"#));
    // An empty page and an unchanged cursor end a list.
    for (fault, length) in [(page("x", ""), 0), (page("x", r#"{"id": "1"}"#), 2)] {
        let number = world.cloud.inject(FaultSpec::always(fault));
        assert_eq!(nsx.list_all(&POOLS).await.unwrap().objects.len(), length);
        world.cloud.repair(number);
    }
}
