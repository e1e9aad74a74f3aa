//! The gate, on paused time.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use futures::future::join_all;

use super::*;

const LIST: Call = Call { service: "compute", name: "server_list", effect: Effect::Read, limited: false };
const DELETE: Call =
    Call { service: "compute", name: "server_delete", effect: Effect::IdempotentWrite, limited: false };
const CREATE: Call = Call { service: "network", name: "port_create", effect: Effect::Write, limited: false };

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "test", "on order")
}

fn after(seconds: u64) -> Error {
    error(ErrorKind::RateLimited).retry(Retry::After(Duration::from_secs(seconds)))
}

fn gate(policy: CallPolicy) -> Calls {
    Calls::new(policy)
}

/// Makes a call whose first attempts fail like this; the outcome, and the number of attempts.
async fn fail(calls: &Calls, call: Call, errors: &[Error]) -> (Result<()>, u32) {
    let made = AtomicU32::new(0);
    let outcome = calls.make(call, || {
        let error = errors.get(made.fetch_add(1, SeqCst) as usize).cloned();
        async move { error.map_or(Ok(()), Err) }
    });
    (outcome.await, made.load(SeqCst))
}

// ---- when a call is repeated

#[tokio::test(start_paused = true)]
async fn only_a_throttled_or_unavailable_call_is_repeated() {
    use ErrorKind::*;
    let kinds = [
        (RateLimited, 4),
        (Unavailable, 4),
        (NotFound, 1),
        (AlreadyExists, 1),
        (Conflict, 1),
        (QuotaExceeded, 1),
        (Unauthenticated, 1),
        (PermissionDenied, 1),
        (InvalidConfig, 1),
        (Unsupported, 1),
        (ImplementedElsewhere, 1),
        (InProgress, 1),
        (Cancelled, 1),
        (Unexpected, 1),
    ];
    for (kind, attempts) in kinds {
        for call in [LIST, DELETE, CREATE] {
            let (outcome, made) = fail(&gate(CallPolicy::default()), call, &vec![error(kind); 9]).await;
            assert_eq!((outcome.unwrap_err().kind(), made), (kind, attempts), "{call:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_not_idempotent_is_not_repeated_while_its_outcome_is_unknown() {
    let lost = error(ErrorKind::Unavailable).outcome_unknown();
    for (call, attempts) in [(LIST, 2), (DELETE, 2), (CREATE, 1)] {
        let (outcome, made) = fail(&gate(CallPolicy::default()), call, std::slice::from_ref(&lost)).await;
        assert_eq!((outcome.is_ok(), made), (attempts == 2, attempts), "{call:?}");
    }
    let (outcome, made) = fail(&gate(CallPolicy::default()), CREATE, &[after(1), error(ErrorKind::Unavailable)]).await;
    assert_eq!((outcome.is_ok(), made), (true, 3), "the cloud did not execute these");
}

#[tokio::test(start_paused = true)]
async fn advice_never_to_retry_is_followed() {
    let never = error(ErrorKind::Unavailable).retry(Retry::Never);
    assert_eq!(fail(&gate(CallPolicy::default()), LIST, &[never]).await.1, 1);
}

#[tokio::test(start_paused = true)]
async fn pauses_double_with_jitter_up_to_the_longest() {
    let (first_backoff, max_backoff) = (Duration::from_secs(1), Duration::from_secs(4));
    let calls = gate(CallPolicy { max_attempts: 6, first_backoff, max_backoff, ..CallPolicy::default() });
    let begun = Instant::now();
    assert!(fail(&calls, LIST, &vec![error(ErrorKind::Unavailable); 5]).await.0.is_ok());
    let took = begun.elapsed().as_secs_f64();
    assert!((7.5..=15.1).contains(&took), "half to all of 1+2+4+4+4 s: {took}");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_given_up_and_its_outcome_is_unknown() {
    let calls = gate(CallPolicy { max_attempts: 2, ..CallPolicy::default() });
    let calls = calls.with_timeout(Duration::from_secs(5));
    let begun = Instant::now();
    let outcome = calls.make(LIST, || async { std::future::pending::<Result<()>>().await }).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.to_string(), "server_list: no answer within 5s (service=compute)");
    assert!(error.is_outcome_unknown() && error.kind() == ErrorKind::Unavailable);
    assert_eq!(begun.elapsed().as_secs(), 10);
}

// ---- pauses

#[tokio::test(start_paused = true)]
async fn a_short_pause_is_waited_for_by_all_callers_of_the_service() {
    let calls = gate(CallPolicy::default());
    let begun = Instant::now();
    let second = async {
        sleep(Duration::from_secs(1)).await;
        fail(&calls, LIST, &[]).await.0.unwrap();
        begun.elapsed().as_secs()
    };
    let throttled = [after(7)];
    let ((first, made), second) = tokio::join!(fail(&calls, DELETE, &throttled), second);
    assert_eq!((first.is_ok(), made, begun.elapsed().as_secs(), second), (true, 2, 7, 7));
}

#[tokio::test(start_paused = true)]
async fn during_a_long_pause_no_call_to_the_service_is_made() {
    let calls = gate(CallPolicy::default());
    let (refused, made) = fail(&calls, LIST, &[after(90)]).await;
    assert_eq!((refused.unwrap_err().retry_advice(), made), (Retry::After(Duration::from_secs(90)), 1));
    sleep(Duration::from_secs(30)).await;
    let (refused, made) = fail(&calls, DELETE, &[]).await;
    let refused = refused.unwrap_err();
    assert_eq!((refused.kind(), made), (ErrorKind::RateLimited, 1), "the closure runs, its future does not");
    let Retry::After(left) = refused.retry_advice() else { panic!("{refused}") };
    assert_eq!(left.as_secs_f64().round(), 60.0);
    assert_eq!(refused.message(), "the cloud has asked for a pause (Retry-After), which is not over yet");
    assert!(fail(&calls, CREATE, &[]).await.0.is_ok(), "another service is called as before");
    assert_eq!(calls.paused_for().as_secs_f64().round(), 60.0);
    sleep(Duration::from_secs(61)).await;
    assert!(fail(&calls, LIST, &[]).await.0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn without_pauses_an_answer_to_one_call_concerns_no_other() {
    let calls = Calls::default();
    assert!(fail(&calls, LIST, &[after(90)]).await.0.is_err());
    assert!(fail(&calls, LIST, &[]).await.0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_years_is_cut_to_five_minutes() {
    let calls = gate(CallPolicy::default());
    let (refused, _) = fail(&calls, LIST, &[after(u64::MAX)]).await;
    assert_eq!(refused.unwrap_err().retry_advice(), Retry::After(Duration::from_secs(300)));
    assert_eq!(calls.paused_for(), Duration::from_secs(300));
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_token_respect_a_pause_that_begins_meanwhile() {
    let calls = gate(CallPolicy { rate: Some(1.0), burst: 1, ..CallPolicy::default() });
    let sent = AtomicU32::new(0);
    let attempt = || async {
        sent.fetch_add(1, SeqCst);
        Err::<(), _>(after(90))
    };
    let ended = join_all((0..5).map(|_| calls.make(LIST, attempt))).await;
    assert!(ended.iter().all(Result::is_err));
    assert_eq!(sent.load(SeqCst), 1);
}

// ---- the rate

#[tokio::test(start_paused = true)]
async fn each_attempt_takes_a_token() {
    let calls = gate(CallPolicy { rate: Some(1.0), burst: 1, first_backoff: Duration::ZERO, ..CallPolicy::default() });
    let begun = Instant::now();
    let (outcome, made) = fail(&calls, LIST, &vec![error(ErrorKind::Unavailable); 3]).await;
    assert_eq!((outcome.is_ok(), begun.elapsed().as_secs(), made), (true, 3, 4));
}

// ---- leading

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_lead_reads_and_writes_nothing() {
    let fence = Fence::open();
    let calls = gate(CallPolicy { fence: fence.clone(), ..CallPolicy::default() });
    let term = fence.term("main");
    for call in [DELETE, CREATE] {
        let sent = AtomicU32::new(0);
        let attempt = || async {
            sent.fetch_add(1, SeqCst);
            Ok(())
        };
        let error = calls.make(call, attempt).await.unwrap_err();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Cancelled, Retry::Never));
        assert!(error.message().contains("the lease main"), "{error}");
        assert_eq!(sent.load(SeqCst), 0);
    }
    assert!(fail(&calls, LIST, &[]).await.0.is_ok(), "a standby may look");
    term.extend(Instant::now() + Duration::from_secs(10));
    assert!(fail(&calls, CREATE, &[]).await.0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_write_in_hand_is_given_up_when_the_lease_is_over_and_not_repeated() {
    let fence = Fence::open();
    let calls = gate(CallPolicy { fence: fence.clone(), ..CallPolicy::default() });
    let term = fence.term("main");
    term.extend(Instant::now() + Duration::from_millis(250));
    let made = AtomicU32::new(0);
    let attempt = || async {
        made.fetch_add(1, SeqCst);
        sleep(Duration::from_millis(400)).await;
        Ok(())
    };
    let error = calls.make(DELETE, attempt).await.unwrap_err();
    assert_eq!((error.kind(), error.is_outcome_unknown(), made.load(SeqCst)), (ErrorKind::Cancelled, true, 1));
}

// ---- measurements

#[tokio::test(start_paused = true)]
async fn each_attempt_is_counted_under_the_name_of_the_cloud() {
    let registry = prometheus::Registry::new();
    let (a, b) = (gate(CallPolicy::default()), gate(CallPolicy::default()));
    a.named("a", &registry);
    b.named("b", &registry);
    a.named("a", &prometheus::Registry::new());
    fail(&a, LIST, &vec![error(ErrorKind::Unavailable); 2]).await.0.unwrap();
    fail(&b, CREATE, &[error(ErrorKind::PermissionDenied)]).await.0.unwrap_err();
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        r#"bowline_cloud_calls_total{call="server_list",provider="a",result="ok"} 1"#,
        r#"bowline_cloud_calls_total{call="server_list",provider="a",result="unavailable"} 2"#,
        r#"bowline_cloud_calls_total{call="port_create",provider="b",result="permission_denied"} 1"#,
        r#"bowline_cloud_call_duration_seconds_count{call="server_list",provider="a"} 3"#,
        r#"bowline_cloud_throttle_wait_seconds_count{provider="a"} 3"#,
        r#"bowline_cloud_calls_under_way{provider="a"} 0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_under_way_are_counted_until_they_end() {
    let calls = gate(CallPolicy::default());
    let slow = || async {
        sleep(Duration::from_secs(2)).await;
        Ok(())
    };
    let look = async {
        sleep(Duration::from_secs(1)).await;
        calls.under_way()
    };
    let (answer, seen) = tokio::join!(calls.make(LIST, slow), look);
    assert_eq!((answer.is_ok(), seen, calls.under_way()), (true, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_makes_reads_and_no_write() {
    let calls = gate(CallPolicy { dry_run: true, ..CallPolicy::default() });
    assert!(matches!(fail(&calls, LIST, &[]).await, (Ok(()), 1)));
    for call in [DELETE, CREATE] {
        let ran = AtomicU32::new(0);
        let outcome = calls.make(call, || async {
            ran.fetch_add(1, SeqCst);
            Ok(())
        });
        let error = outcome.await.unwrap_err();
        assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::Cancelled, Retry::Never));
        assert_eq!(ran.load(SeqCst), 0, "{call:?}");
        assert!(!error.is_outcome_unknown());
    }
}

// ---- calls that the cloud takes few of at once

const CREATION: Call = Call { limited: true, ..CREATE };

/// Makes so many calls at once, each of which takes this long and ends like this; the most that were under way together.
async fn crowd(calls: &Calls, call: Call, count: usize, takes: Duration, outcome: Result<()>) -> u32 {
    let (under_way, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let attempt = || async {
        most.fetch_max(under_way.fetch_add(1, SeqCst) + 1, SeqCst);
        sleep(takes).await;
        under_way.fetch_sub(1, SeqCst);
        outcome.clone()
    };
    join_all((0..count).map(|_| calls.make(call, attempt))).await;
    most.load(SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_limited_call_is_made_four_times_at_once_and_more_often_while_the_cloud_answers_well() {
    let calls = Calls::default();
    let second = Duration::from_secs(1);
    assert_eq!(crowd(&calls, CREATE, 20, second, Ok(())).await, 20, "not limited");
    assert_eq!(crowd(&calls, CREATION, 4, second, Ok(())).await, 4);
    assert_eq!(crowd(&calls, CREATION, 5, second, Ok(())).await, 5);
    assert_eq!(crowd(&calls, CREATION, 400, second, Ok(())).await, 16, "there is a limit to it");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_is_overloaded_or_slow_gets_half_as_many_calls_at_once() {
    let busy = || Err(error(ErrorKind::Unavailable).with_status(503).answered());
    let refused = || Err(error(ErrorKind::InvalidConfig).with_status(400));
    let (quick, slow) = (Duration::from_secs(1), Duration::from_secs(11));
    for (takes, outcome, then) in [(quick, busy(), 2), (slow, Ok(()), 2), (quick, refused(), 5), (quick, Ok(()), 5)] {
        let calls = Calls::default();
        crowd(&calls, CREATION, 4, takes, outcome.clone()).await;
        assert_eq!(crowd(&calls, CREATION, 9, Duration::from_millis(1), busy()).await, then, "{takes:?} {outcome:?}");
    }
    let calls = Calls::default();
    for _ in 0..5 {
        crowd(&calls, CREATION, 1, quick, busy()).await;
    }
    assert_eq!(crowd(&calls, CREATION, 3, quick, busy()).await, 1, "one is always made");
    assert!(crowd(&calls, CREATION, 20, quick, Ok(())).await > 1, "it recovers");
}

#[tokio::test(start_paused = true)]
async fn a_place_is_given_back_by_a_call_that_is_dropped() {
    let calls = Calls::default();
    for _ in 0..9 {
        let dropped = calls.make(CREATION, std::future::pending::<Result<()>>);
        assert!(timeout(Duration::from_secs(1), dropped).await.is_err());
    }
    assert_eq!(crowd(&calls, CREATION, 4, Duration::from_secs(1), Ok(())).await, 4);
}
