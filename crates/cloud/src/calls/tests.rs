//! Tests of the call layer on paused time.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use futures::future::join_all;

use super::*;

const LIST: Call = Call { service: "compute", name: "server_list", effect: Effect::Read, limited: false };
const DELETE: Call =
    Call { service: "compute", name: "server_delete", effect: Effect::IdempotentWrite, limited: false };
const CREATE: Call = Call { service: "network", name: "port_create", effect: Effect::Write, limited: false };

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "test", "injected")
}

fn retry_after(seconds: u64) -> Error {
    error(ErrorKind::RateLimited).retry(Retry::After(Duration::from_secs(seconds)))
}

/// Makes a call whose first attempts fail with these errors. Returns the outcome and the number of attempts.
async fn fail_with(calls: &Calls, call: Call, errors: &[Error]) -> (Result<()>, u32) {
    let made = AtomicU32::new(0);
    let outcome = calls.make(call, || {
        let error = errors.get(made.fetch_add(1, SeqCst) as usize).cloned();
        async move { error.map_or(Ok(()), Err) }
    });
    (outcome.await, made.load(SeqCst))
}

// ---- retries

#[tokio::test(start_paused = true)]
async fn only_throttled_and_unavailable_calls_are_retried() {
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
            let (outcome, made) = fail_with(&Calls::new(CallPolicy::default()), call, &vec![error(kind); 9]).await;
            assert_eq!((outcome.unwrap_err().kind(), made), (kind, attempts), "{call:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_non_idempotent_write_with_unknown_outcome_is_not_retried() {
    let lost = error(ErrorKind::Unavailable).outcome_unknown();
    for (call, attempts) in [(LIST, 2), (DELETE, 2), (CREATE, 1)] {
        let (outcome, made) = fail_with(&Calls::new(CallPolicy::default()), call, std::slice::from_ref(&lost)).await;
        assert_eq!((outcome.is_ok(), made), (attempts == 2, attempts), "{call:?}");
    }
    let (outcome, made) =
        fail_with(&Calls::new(CallPolicy::default()), CREATE, &[retry_after(1), error(ErrorKind::Unavailable)]).await;
    assert_eq!((outcome.is_ok(), made), (true, 3), "the cloud did not execute these");
}

#[tokio::test(start_paused = true)]
async fn the_advice_never_to_retry_is_followed() {
    let never = error(ErrorKind::Unavailable).retry(Retry::Never);
    assert_eq!(fail_with(&Calls::new(CallPolicy::default()), LIST, &[never]).await.1, 1);
}

#[tokio::test(start_paused = true)]
async fn backoff_doubles_with_jitter_up_to_the_maximum() {
    let (first_backoff, max_backoff) = (Duration::from_secs(1), Duration::from_secs(4));
    let calls = Calls::new(CallPolicy { max_attempts: 6, first_backoff, max_backoff, ..CallPolicy::default() });
    let begun = Instant::now();
    assert!(fail_with(&calls, LIST, &vec![error(ErrorKind::Unavailable); 5]).await.0.is_ok());
    let took = begun.elapsed().as_secs_f64();
    assert!((7.5..=15.1).contains(&took), "half to all of 1+2+4+4+4 s: {took}");
}

#[tokio::test(start_paused = true)]
async fn a_provider_may_have_fewer_attempts_than_the_policy() {
    let calls = Calls::new(CallPolicy { max_attempts: 3, ..CallPolicy::default() });
    for (own, attempts) in [(0, 1), (2, 2), (3, 3), (9, 3)] {
        let (outcome, made) =
            fail_with(&calls.with_max_attempts(own), LIST, &vec![error(ErrorKind::Unavailable); 9]).await;
        assert!(outcome.is_err());
        assert_eq!(made, attempts, "{own}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_times_out_has_an_unknown_outcome() {
    let calls = Calls::new(CallPolicy { max_attempts: 2, ..CallPolicy::default() });
    let calls = calls.with_timeout(Duration::from_secs(5));
    let begun = Instant::now();
    let outcome = calls.make(LIST, || async { std::future::pending::<Result<()>>().await }).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.to_string(), "server_list: no response within 5s (service=compute)");
    assert!(error.is_outcome_unknown() && error.kind() == ErrorKind::Unavailable);
    assert_eq!(begun.elapsed().as_secs(), 10);
}

// ---- pauses

#[tokio::test(start_paused = true)]
async fn all_callers_of_a_service_wait_for_a_short_pause() {
    let calls = Calls::new(CallPolicy::default());
    let begun = Instant::now();
    let second = async {
        sleep(Duration::from_secs(1)).await;
        fail_with(&calls, LIST, &[]).await.0.unwrap();
        begun.elapsed().as_secs()
    };
    let throttled = [retry_after(7)];
    let ((first, made), second) = tokio::join!(fail_with(&calls, DELETE, &throttled), second);
    assert_eq!((first.is_ok(), made, begun.elapsed().as_secs(), second), (true, 2, 7, 7));
}

#[tokio::test(start_paused = true)]
async fn during_a_long_pause_no_call_to_the_service_is_made() {
    let calls = Calls::new(CallPolicy::default());
    let (refused, made) = fail_with(&calls, LIST, &[retry_after(90)]).await;
    assert_eq!((refused.unwrap_err().retry_advice(), made), (Retry::After(Duration::from_secs(90)), 1));
    sleep(Duration::from_secs(30)).await;
    let (refused, made) = fail_with(&calls, DELETE, &[]).await;
    let refused = refused.unwrap_err();
    assert_eq!((refused.kind(), made), (ErrorKind::RateLimited, 1), "the closure runs, but its future is not polled");
    let Retry::After(remaining) = refused.retry_advice() else { panic!("{refused}") };
    assert_eq!(remaining.as_secs_f64().round(), 60.0);
    assert_eq!(refused.message(), "throttled: the cloud requested a pause (Retry-After) that has not ended yet");
    assert!(fail_with(&calls, CREATE, &[]).await.0.is_ok(), "another service is not paused");
    assert_eq!(calls.paused_for().as_secs_f64().round(), 60.0);
    sleep(Duration::from_secs(61)).await;
    assert!(fail_with(&calls, LIST, &[]).await.0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn without_pauses_retry_after_affects_one_call_only() {
    let calls = Calls::default();
    assert!(fail_with(&calls, LIST, &[retry_after(90)]).await.0.is_err());
    assert!(fail_with(&calls, LIST, &[]).await.0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_limited_to_five_minutes() {
    let calls = Calls::new(CallPolicy::default());
    let (refused, _) = fail_with(&calls, LIST, &[retry_after(u64::MAX)]).await;
    assert_eq!(refused.unwrap_err().retry_advice(), Retry::After(Duration::from_secs(300)));
    assert_eq!(calls.paused_for(), Duration::from_secs(300));
}

#[tokio::test(start_paused = true)]
async fn calls_waiting_for_a_token_respect_a_pause_that_begins_meanwhile() {
    let calls = Calls::new(CallPolicy { rate: Some(1.0), burst: 1, ..CallPolicy::default() });
    let sent = AtomicU32::new(0);
    let attempt = || async {
        sent.fetch_add(1, SeqCst);
        Err::<(), _>(retry_after(90))
    };
    let ended = join_all((0..5).map(|_| calls.make(LIST, attempt))).await;
    assert!(ended.iter().all(Result::is_err));
    assert_eq!(sent.load(SeqCst), 1);
}

// ---- rate limit

#[tokio::test(start_paused = true)]
async fn each_attempt_takes_a_token() {
    let calls =
        Calls::new(CallPolicy { rate: Some(1.0), burst: 1, first_backoff: Duration::ZERO, ..CallPolicy::default() });
    let begun = Instant::now();
    let (outcome, made) = fail_with(&calls, LIST, &vec![error(ErrorKind::Unavailable); 3]).await;
    assert_eq!((outcome.is_ok(), begun.elapsed().as_secs(), made), (true, 3, 4));
}

#[tokio::test(start_paused = true)]
async fn the_rate_limit_of_a_configuration_applies_in_addition() {
    let calls = Calls::new(CallPolicy { rate: Some(10.0), burst: 10, ..CallPolicy::default() });
    let (slow, begun) = (calls.with_rate(1.0, 1), Instant::now());
    for calls in [&calls, &slow, &slow, &slow] {
        assert!(fail_with(calls, LIST, &[]).await.0.is_ok());
    }
    assert_eq!(begun.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn calls_slow_down_and_then_fail_when_few_remain() {
    let (calls, begun) = (Calls::default(), Instant::now());
    calls.record_budget(LIST.service, CallBudget { limit: 100, remaining: 5, resets_in: Duration::from_secs(30) });
    assert!(fail_with(&calls, LIST, &[]).await.0.is_ok() && fail_with(&calls, LIST, &[]).await.0.is_ok());
    assert_eq!(begun.elapsed().as_secs(), 6);
    calls.record_budget(LIST.service, CallBudget { limit: 100, remaining: 0, resets_in: Duration::from_secs(30) });
    let error = fail_with(&calls, LIST, &[]).await.0.unwrap_err();
    assert_eq!((error.kind(), error.retry_advice()), (ErrorKind::RateLimited, Retry::After(Duration::from_secs(30))));
    assert_eq!(calls.budgets()[LIST.service].remaining, 0);
}

#[tokio::test(start_paused = true)]
async fn services_share_an_adaptive_rate_and_retry_after_does_not_change_it() {
    let throttled = error(ErrorKind::RateLimited);
    for (failure, seconds) in [(throttled, 3), (retry_after(90), 0), (error(ErrorKind::Unavailable), 0)] {
        let calls = Calls::default();
        let adaptive = calls.with_adaptive_rate();
        assert!(fail_with(&adaptive, LIST, std::slice::from_ref(&failure)).await.0.is_err());
        let begun = Instant::now();
        for call in [CREATE, LIST, CREATE, LIST] {
            assert!(fail_with(&adaptive, call, &[]).await.0.is_ok());
            assert!(
                fail_with(&calls, call, &[]).await.0.is_ok()
                    && fail_with(&calls.with_adaptive_rate(), call, &[]).await.0.is_ok()
            );
        }
        assert_eq!(begun.elapsed().as_secs(), seconds, "{failure}");
    }
}

// ---- fence

#[tokio::test(start_paused = true)]
async fn a_standby_may_read_but_not_write() {
    let fence = Fence::open();
    let calls = Calls::new(CallPolicy { fence: fence.clone(), ..CallPolicy::default() });
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
    assert!(fail_with(&calls, LIST, &[]).await.0.is_ok(), "a standby may read");
    term.extend(Instant::now() + Duration::from_secs(10));
    assert!(fail_with(&calls, CREATE, &[]).await.0.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_write_in_progress_is_cancelled_when_the_lease_expires_and_is_not_retried() {
    let fence = Fence::open();
    let calls = Calls::new(CallPolicy { fence: fence.clone(), ..CallPolicy::default() });
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

// ---- metrics

#[tokio::test(start_paused = true)]
async fn each_attempt_is_counted_with_the_cloud_name() {
    let registry = prometheus::Registry::new();
    let (a, b) = (Calls::new(CallPolicy::default()), Calls::new(CallPolicy::default()));
    a.register_metrics("a", &registry);
    b.register_metrics("b", &registry);
    a.register_metrics("a", &prometheus::Registry::new());
    fail_with(&a, LIST, &vec![error(ErrorKind::Unavailable); 2]).await.0.unwrap();
    fail_with(&b, CREATE, &[error(ErrorKind::PermissionDenied)]).await.0.unwrap_err();
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
async fn calls_in_progress_are_counted() {
    let calls = Calls::new(CallPolicy::default());
    let slow = || async {
        sleep(Duration::from_secs(2)).await;
        Ok(())
    };
    let observe = async {
        sleep(Duration::from_secs(1)).await;
        calls.in_progress()
    };
    let (result, observed) = tokio::join!(calls.make(LIST, slow), observe);
    assert_eq!((result.is_ok(), observed, calls.in_progress()), (true, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_makes_reads_and_no_write() {
    let calls = Calls::new(CallPolicy { dry_run: true, ..CallPolicy::default() });
    assert!(matches!(fail_with(&calls, LIST, &[]).await, (Ok(()), 1)));
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

// ---- adaptive concurrency limit

const CREATION: Call = Call { limited: true, ..CREATE };

/// Makes `count` concurrent calls, each of which takes this long and returns this outcome. Returns the maximum concurrency.
async fn max_concurrency(calls: &Calls, call: Call, count: usize, takes: Duration, outcome: Result<()>) -> u32 {
    let (running, max) = (AtomicU32::new(0), AtomicU32::new(0));
    let attempt = || async {
        max.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
        sleep(takes).await;
        running.fetch_sub(1, SeqCst);
        outcome.clone()
    };
    join_all((0..count).map(|_| calls.make(call, attempt))).await;
    max.load(SeqCst)
}

#[tokio::test(start_paused = true)]
async fn the_limit_starts_at_four_and_grows_with_successful_responses() {
    let calls = Calls::default();
    let second = Duration::from_secs(1);
    assert_eq!(max_concurrency(&calls, CREATE, 20, second, Ok(())).await, 20, "not limited");
    assert_eq!(max_concurrency(&calls, CREATION, 4, second, Ok(())).await, 4);
    assert_eq!(max_concurrency(&calls, CREATION, 5, second, Ok(())).await, 5);
    assert_eq!(max_concurrency(&calls, CREATION, 400, second, Ok(())).await, 16, "the maximum");
}

#[tokio::test(start_paused = true)]
async fn overload_or_slow_responses_halve_the_limit() {
    let busy = || Err(error(ErrorKind::Unavailable).with_status(503).outcome_known());
    let refused = || Err(error(ErrorKind::InvalidConfig).with_status(400));
    let (quick, slow) = (Duration::from_secs(1), Duration::from_secs(11));
    for (takes, outcome, then) in [(quick, busy(), 2), (slow, Ok(()), 2), (quick, refused(), 5), (quick, Ok(()), 5)] {
        let calls = Calls::default();
        max_concurrency(&calls, CREATION, 4, takes, outcome.clone()).await;
        assert_eq!(
            max_concurrency(&calls, CREATION, 9, Duration::from_millis(1), busy()).await,
            then,
            "{takes:?} {outcome:?}"
        );
    }
    let calls = Calls::default();
    for _ in 0..5 {
        max_concurrency(&calls, CREATION, 1, quick, busy()).await;
    }
    assert_eq!(max_concurrency(&calls, CREATION, 3, quick, busy()).await, 1, "the limit is at least one");
    assert!(max_concurrency(&calls, CREATION, 20, quick, Ok(())).await > 1, "the limit recovers");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_releases_its_permit() {
    let calls = Calls::default();
    for _ in 0..9 {
        let dropped = calls.make(CREATION, std::future::pending::<Result<()>>);
        assert!(timeout(Duration::from_secs(1), dropped).await.is_err());
    }
    assert_eq!(max_concurrency(&calls, CREATION, 4, Duration::from_secs(1), Ok(())).await, 4);
}
