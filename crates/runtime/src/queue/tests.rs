//! Tests of the queue, by rule. `model` has property tests.

use std::time::Duration;

use futures::FutureExt;
use prometheus::{Registry, TextEncoder};
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep, timeout};

use super::lanes::MAX_HIGH_IN_A_ROW;
use super::*;
use Priority::{High, Low};

mod model;
mod watchdog;

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), max: Duration::from_secs(10) };

fn queue<K: Clone + Eq + Hash + Send + Sync + 'static>() -> Queue<K> {
    Queue::new("test", BACKOFF, &QueueMetrics::register(&Registry::new()).unwrap())
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Returns the next key if one is available immediately.
fn now<K: Clone + Eq + Hash + Send + Sync + 'static>(queue: &Queue<K>) -> Option<Work<K>> {
    queue.next().now_or_never().flatten()
}

fn key_now<K: Clone + Eq + Hash + Send + Sync + 'static>(queue: &Queue<K>) -> Option<K> {
    now(queue).map(|work| work.key().clone())
}

// ---- WQ-1

#[tokio::test(start_paused = true)]
async fn wq_1_a_key_waits_at_most_once() {
    let queue = queue();
    queue.add("a", High);
    queue.add("a", High);
    queue.add("a", Low);
    assert_eq!(queue.len(), 1);
    assert_eq!(key_now(&queue), Some("a"));
    assert_eq!(key_now(&queue), None);
}

#[tokio::test(start_paused = true)]
async fn wq_1_a_key_in_work_is_not_returned_again() {
    let queue = queue();
    queue.add("a", High);
    let work = now(&queue).unwrap();
    queue.add("a", High);
    assert_eq!(queue.len(), 0);
    assert!(now(&queue).is_none());
    drop(work);
}

#[tokio::test(start_paused = true)]
async fn wq_1_a_key_added_while_in_work_is_processed_once_more() {
    let queue = queue();
    queue.add("a", High);
    let work = now(&queue).unwrap();
    queue.add("a", High);
    queue.add("a", High);
    drop(work);
    assert_eq!(queue.len(), 1);
    assert_eq!(key_now(&queue), Some("a"));
    assert_eq!(key_now(&queue), None);
}

#[tokio::test(start_paused = true)]
async fn wq_1_a_key_added_while_in_work_keeps_its_priority() {
    let queue = queue();
    for (key, priority) in [("low", Low), ("high", High), ("raised", Low)] {
        queue.add(key, priority);
    }
    let work = queue.next_batch(3).await;
    for (key, priority) in [("low", Low), ("raised", Low), ("raised", High), ("high", High), ("high", Low)] {
        queue.add(key, priority);
    }
    drop(work);
    let order: Vec<_> = queue.next_batch(3).await.iter().map(|work| *work.key()).collect();
    assert_eq!(order.last(), Some(&"low"), "{order:?}");
}

// ---- WQ-2

#[tokio::test(start_paused = true)]
async fn wq_2_an_add_is_immediate_and_cancels_the_timer() {
    let queue = queue();
    queue.add_after("a", millis(500), Low);
    queue.add("a", Low);
    assert_eq!(key_now(&queue), Some("a"));
    assert!(timeout(millis(1000), queue.next()).await.is_err(), "the timer must not add the key again");
}

#[tokio::test(start_paused = true)]
async fn wq_2_an_add_cancels_a_backoff_timer_even_while_the_key_is_in_work() {
    let queue = queue();
    queue.add("a", High);
    let work = now(&queue).unwrap();
    queue.retry("a");
    queue.add("a", High);
    drop(work);
    assert_eq!(key_now(&queue), Some("a"));
    assert!(timeout(millis(1000), queue.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn wq_2_of_two_timers_the_earlier_one_applies() {
    for (first, second) in [(300, 700), (700, 300)] {
        let (queue, start) = (queue(), Instant::now());
        queue.add_after("a", millis(first), Low);
        queue.add_after("a", millis(second), Low);
        drop(queue.next().await);
        assert_eq!(start.elapsed(), millis(300));
        assert!(timeout(millis(1000), queue.next()).await.is_err(), "only one timer remains");
    }
}

#[tokio::test(start_paused = true)]
async fn wq_2_a_zero_delay_is_immediate() {
    let queue = queue();
    queue.add_after("a", Duration::ZERO, High);
    assert_eq!(key_now(&queue), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn wq_2_a_delay_requested_while_in_work_starts_immediately() {
    let (queue, start) = (queue(), Instant::now());
    queue.add("a", High);
    let work = now(&queue).unwrap();
    queue.add_after("a", millis(500), High);
    advance(millis(200)).await;
    drop(work);
    assert!(now(&queue).is_none());
    drop(queue.next().await);
    assert_eq!(start.elapsed(), millis(500));
}

#[tokio::test(start_paused = true)]
async fn wq_2_a_timer_that_fires_while_in_work_takes_effect_afterwards() {
    let queue = queue();
    queue.add("a", High);
    let work = now(&queue).unwrap();
    queue.add_after("a", millis(500), High);
    advance(millis(600)).await;
    assert!(now(&queue).is_none());
    drop(work);
    assert_eq!(key_now(&queue), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn wq_2_a_timer_set_while_the_key_waits_is_not_lost() {
    let (queue, start) = (queue(), Instant::now());
    queue.add("a", High);
    queue.add_after("a", millis(500), Low);
    assert_eq!(key_now(&queue), Some("a"));
    drop(queue.next().await);
    assert_eq!(start.elapsed(), millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_overflows_never_fires() {
    let queue = queue();
    queue.add_after("never", Duration::MAX, High);
    queue.add("a", High);
    assert_eq!(key_now(&queue), Some("a"));
    assert!(timeout(Duration::from_secs(1_000_000), queue.next()).await.is_err());
}

// ---- WQ-3

#[tokio::test(start_paused = true)]
async fn wq_3_backoff_grows_until_the_key_is_forgotten() {
    let queue = queue();
    for (failures, wait) in [(1, 100), (2, 200), (3, 400)] {
        let start = Instant::now();
        assert_eq!(queue.retry("a"), millis(wait));
        assert_eq!(queue.failures(&"a"), failures);
        drop(queue.next().await);
        assert_eq!(start.elapsed(), millis(wait));
    }
    queue.forget(&"a");
    assert_eq!(queue.failures(&"a"), 0);
    assert_eq!(queue.retry("a"), millis(100));
}

#[tokio::test(start_paused = true)]
async fn wq_3_failures_are_counted_per_key() {
    let queue = queue();
    queue.retry("a");
    queue.retry("a");
    assert_eq!(queue.retry("b"), millis(100));
    assert_eq!((queue.failures(&"a"), queue.failures(&"b"), queue.failures(&"c")), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn wq_3_retries_of_all_keys_share_a_rate_limit() {
    let queue = queue().with_rate(2.0, 3);
    let waits: Vec<_> = (0..6).map(|key| queue.retry(key).as_millis()).collect();
    assert_eq!(waits, [100, 100, 100, 500, 1000, 1500]);
}

#[tokio::test(start_paused = true)]
async fn finished_and_forgotten_keys_are_removed() {
    let queue = queue();
    for key in 0..20_000 {
        queue.retry(key);
        queue.add_after(key, millis(1), Low);
    }
    let mut finished = 0;
    while finished < 20_000 {
        for work in queue.next_batch(64).await {
            queue.forget(work.key());
            finished += 1;
        }
    }
    assert_eq!(queue.0.lock().known(), 0);
    assert_eq!(queue.0.lock().next_due(), None);
}

// ---- priorities

#[tokio::test(start_paused = true)]
async fn high_priority_keys_are_first_and_equal_keys_in_order() {
    let queue = queue();
    for (key, priority) in [("l1", Low), ("h1", High), ("l2", Low), ("h2", High)] {
        queue.add(key, priority);
    }
    let order: Vec<_> = queue.next_batch(9).await.iter().map(|work| *work.key()).collect();
    assert_eq!(order, ["h1", "h2", "l1", "l2"]);
}

#[tokio::test(start_paused = true)]
async fn the_priority_of_a_waiting_key_is_raised_but_never_lowered() {
    let queue = queue();
    for (key, priority) in [("a", Low), ("b", Low), ("c", High), ("b", High), ("c", Low)] {
        queue.add(key, priority);
    }
    let order: Vec<_> = queue.next_batch(9).await.iter().map(|work| *work.key()).collect();
    assert_eq!(order, ["c", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_low_priority_key_is_taken_after_sixteen_high_priority_ones() {
    let queue = queue();
    queue.add(1000, Low);
    queue.add(1001, Low);
    (0..100).for_each(|key| queue.add(key, High));
    let order: Vec<u32> = queue.next_batch(200).await.iter().map(|work| *work.key()).collect();
    let turns: Vec<_> = [1000, 1001].map(|low| order.iter().position(|key| *key == low)).into();
    assert_eq!(turns, [Some(MAX_HIGH_IN_A_ROW as usize), Some(2 * MAX_HIGH_IN_A_ROW as usize + 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_timer_keeps_the_higher_priority() {
    let queue = queue();
    queue.add_after("timer", millis(100), High);
    queue.add_after("timer", millis(50), Low);
    queue.add_after("other", millis(40), Low);
    advance(millis(100)).await;
    assert_eq!(key_now(&queue), Some("timer"));
}

// ---- flows

/// The first number of a key is its flow.
fn flows() -> Queue<(u64, u32)> {
    queue().with_flows(|(flow, _)| *flow)
}

async fn order(queue: &Queue<(u64, u32)>) -> Vec<(u64, u32)> {
    queue.next_batch(usize::MAX).await.iter().map(|work| *work.key()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_keys_of_one_flow_do_not_delay_another_flow() {
    for taken in [0, 1, 500, 999] {
        let queue = flows();
        (0..1000).for_each(|key| queue.add((1, key), High));
        drop(queue.next_batch(taken).await);
        queue.add((2, 0), High);
        let place = order(&queue).await.iter().position(|key| *key == (2, 0));
        assert_eq!(place, Some(1), "after {taken} were taken");
    }
}

#[tokio::test(start_paused = true)]
async fn flows_are_served_round_robin_and_in_order() {
    let queue = flows();
    for key in [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (2, 1), (1, 3)] {
        queue.add(key, High);
    }
    assert_eq!(order(&queue).await, [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2), (1, 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_flow_with_continuous_adds_gets_only_its_share() {
    let queue = flows();
    (0..10).for_each(|key| queue.add((1, key), High));
    let mut served = Vec::new();
    for round in 0..10 {
        queue.add((2, round), High);
        served.push(key_now(&queue).unwrap().0);
    }
    assert_eq!(served, [1, 2, 1, 2, 1, 2, 1, 2, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn high_priority_keys_of_any_flow_are_first() {
    let queue = flows();
    queue.add((1, 0), Low);
    queue.add((1, 1), Low);
    queue.retry((2, 0));
    advance(millis(100)).await;
    queue.add((1, 2), High);
    queue.add((1, 3), High);
    assert_eq!(order(&queue).await, [(1, 2), (1, 3), (1, 0), (2, 0), (1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn raised_keys_do_not_cost_their_flow_its_turn() {
    let queue = flows();
    (0..100).for_each(|key| queue.add((1, key), Low));
    (0..100).for_each(|key| queue.add((1, key), High));
    drop(queue.next_batch(100).await);
    queue.add((2, 0), Low);
    queue.add((2, 1), Low);
    queue.add((1, 0), Low);
    assert_eq!(order(&queue).await, [(2, 0), (1, 0), (2, 1)]);
}

#[tokio::test(start_paused = true)]
async fn flows_apply_to_keys_that_already_wait() {
    let queue = queue();
    for key in [(1, 0), (1, 1), (2, 0), (1, 2)] {
        queue.add(key, if key == (1, 1) { Low } else { High });
    }
    let queue = queue.with_flows(|(flow, _)| *flow);
    queue.add((1, 1), High);
    assert_eq!(order(&queue).await, [(1, 0), (2, 0), (1, 2), (1, 1)]);
}

// ---- several workers

#[tokio::test(start_paused = true)]
async fn a_batch_has_all_waiting_keys_up_to_the_maximum() {
    let queue = queue();
    (0..10).for_each(|key| queue.add(key, High));
    let sizes = [queue.next_batch(4).await.len(), queue.next_batch(0).await.len(), queue.next_batch(99).await.len()];
    assert_eq!(sizes, [4, 1, 5]);
}

/// Workers that each take one key and keep it for one second.
fn workers(queue: &Queue<u32>, count: usize) -> JoinSet<Instant> {
    let worker = |queue: Queue<u32>| async move {
        let work = queue.next().await;
        let taken = Instant::now();
        sleep(Duration::from_secs(1)).await;
        drop(work);
        taken
    };
    std::iter::repeat_with(|| worker(queue.clone())).take(count).collect()
}

#[tokio::test(start_paused = true)]
async fn each_add_wakes_a_different_worker() {
    let (queue, start) = (queue(), Instant::now());
    let workers = workers(&queue, 8);
    sleep(millis(10)).await;
    (0..8).for_each(|key| queue.add(key, High));
    assert!(workers.join_all().await.iter().all(|taken| *taken == start + millis(10)));
}

#[tokio::test(start_paused = true)]
async fn simultaneous_timers_wake_as_many_workers() {
    let (queue, start) = (queue(), Instant::now());
    queue.add_after(99, Duration::from_secs(60), Low);
    let workers = workers(&queue, 8);
    sleep(millis(10)).await;
    (0..8).for_each(|key| queue.add_after(key, millis(90), High));
    assert!(workers.join_all().await.iter().all(|taken| *taken == start + millis(100)));
}

#[tokio::test(start_paused = true)]
async fn a_timer_is_not_lost_when_a_worker_is_cancelled() {
    let (queue, start) = (queue(), Instant::now());
    // First in the queue of waiters, so it would be the one to be woken.
    let cancelled = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await.map(|work| *work.key()) }
    });
    sleep(millis(1)).await;
    let mut workers = workers(&queue, 1);
    sleep(millis(1)).await;
    queue.add_after(1, millis(50), High);
    sleep(millis(1)).await;
    cancelled.abort();
    let taken = timeout(Duration::from_secs(60), workers.join_next()).await.expect("the other worker must wake up");
    assert_eq!(taken.unwrap().unwrap(), start + millis(52));
}

#[tokio::test(start_paused = true)]
async fn a_worker_cancelled_after_its_wake_up_passes_it_on() {
    let queue = queue();
    let mut first = Box::pin(queue.next());
    let mut second = Box::pin(queue.next());
    assert!(timeout(Duration::ZERO, &mut first).await.is_err());
    assert!(timeout(Duration::ZERO, &mut second).await.is_err());
    queue.add("a", High);
    drop(first);
    assert_eq!(second.await.map(|work| *work.key()), Some("a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_real_threads_no_wake_up_is_lost() {
    const WORKERS: usize = 4;
    const ROUNDS: usize = 1000;
    let queue = queue();
    // No worker continues before all have a key, so a single missed wake-up stops all of them.
    let all_busy = Arc::new(tokio::sync::Barrier::new(WORKERS + 1));
    let workers: JoinSet<()> = (0..WORKERS)
        .map(|_| (queue.clone(), all_busy.clone()))
        .map(|(queue, all_busy)| async move {
            for _ in 0..ROUNDS {
                let _work = queue.next().await;
                all_busy.wait().await;
            }
        })
        .collect();
    let rounds = async {
        for round in 0..ROUNDS {
            (0..WORKERS).for_each(|key| queue.add(round * WORKERS + key, High));
            all_busy.wait().await;
        }
        workers.join_all().await;
    };
    timeout(Duration::from_secs(60), rounds).await.expect("a key waits and no worker takes it");
}

// ---- shutdown

#[tokio::test(start_paused = true)]
async fn shutdown_wakes_all_workers_and_returns_no_more_keys() {
    let queue = queue::<u32>();
    let waiting: JoinSet<_> =
        (0..4).map(|_| queue.clone()).map(|queue| async move { queue.next().await.is_none() }).collect();
    sleep(millis(1)).await;
    queue.shut_down();
    assert_eq!(waiting.join_all().await, [true; 4]);
    queue.add(1, High);
    queue.add_after(2, millis(1), High);
    queue.retry(3);
    assert!(queue.is_empty());
    assert!(queue.next().await.is_none());
    assert!(queue.next_batch(5).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn shutdown_drops_waiting_keys_and_lets_work_finish() {
    let queue = queue();
    (0..3).for_each(|key| queue.add(key, High));
    let work = now(&queue).unwrap();
    queue.add(*work.key(), High);
    queue.shut_down();
    drop(work);
    assert_eq!((queue.len(), queue.0.lock().known()), (0, 0));
}

// ---- metrics

/// Returns the lines of one metric, without help and type.
fn metric(registry: &Registry, name: &str) -> Vec<String> {
    let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn metrics_match_upstream() {
    let registry = Registry::new();
    let metrics = QueueMetrics::register(&registry).unwrap();
    let queue = Queue::new("Nodes", BACKOFF, &metrics);
    ["a", "a", "b", "c"].into_iter().for_each(|key| queue.add(key, High));
    advance(millis(50)).await;
    let work = queue.next_batch(2).await;
    queue.add("a", High);
    queue.retry("b");
    queue.add_after("d", millis(5), High);
    advance(millis(3000)).await;
    for (name, value) in [
        // c waits, a is added again, and the timers of b and d have fired.
        ("workqueue_depth", "4"),
        ("workqueue_adds_total", "6"),
        ("workqueue_retries_total", "2"),
        ("workqueue_unfinished_work_seconds", "6"),
        ("workqueue_longest_running_processor_seconds", "3"),
        ("workqueue_queue_duration_seconds_count", "2"),
        ("workqueue_queue_duration_seconds_sum", "0.1"),
        ("workqueue_work_duration_seconds_count", "0"),
    ] {
        assert_eq!(metric(&registry, name), [format!("{name}{{name=\"Nodes\"}} {value}")]);
    }
    drop(work);
    assert_eq!(
        metric(&registry, "workqueue_unfinished_work_seconds"),
        ["workqueue_unfinished_work_seconds{name=\"Nodes\"} 0"]
    );
    assert_eq!(
        metric(&registry, "workqueue_work_duration_seconds_sum"),
        ["workqueue_work_duration_seconds_sum{name=\"Nodes\"} 6"]
    );
    queue.shut_down();
    assert_eq!(metric(&registry, "workqueue_depth"), ["workqueue_depth{name=\"Nodes\"} 0"]);
}

#[test]
fn metrics_have_upstreams_buckets_and_stability() {
    let registry = Registry::new();
    let metrics = QueueMetrics::register(&registry).unwrap();
    let _queue = Queue::<u32>::new("service", BACKOFF, &metrics);
    let families = registry.gather();
    let upstream_families = families.iter().filter(|family| family.name().starts_with("workqueue_"));
    assert_eq!(upstream_families.clone().count(), 7);
    assert!(upstream_families.clone().all(|family| family.help().starts_with("[BETA] ")));
    let bounds: Vec<f64> = metric(&registry, "workqueue_work_duration_seconds_bucket")
        .iter()
        .filter_map(|line| line.split_once("le=\"")?.1.split_once('"')?.0.parse().ok())
        .collect();
    // As a Go manager exports them, including rounding.
    let upstream = [1e-8, 1e-7, 1e-6, 9.999999999999999e-6, 9.999999999999999e-5, 0.001, 0.01, 0.1, 1.0, 10.0];
    assert_eq!(bounds, [&upstream[..], &[f64::INFINITY]].concat());
}

#[tokio::test(start_paused = true)]
async fn queues_with_the_same_name_share_a_series() {
    let registry = Registry::new();
    let metrics = QueueMetrics::register(&registry).unwrap();
    let (one, other) = (Queue::new("Routes", BACKOFF, &metrics), Queue::new("Routes", BACKOFF, &metrics));
    one.add("a", High);
    let _work = now(&one).unwrap();
    advance(millis(2000)).await;
    other.add("a", High);
    let _other = now(&other).unwrap();
    other.add("b", High);
    advance(millis(1000)).await;
    for (name, value) in [
        ("workqueue_depth", "1"),
        ("workqueue_unfinished_work_seconds", "4"),
        ("workqueue_longest_running_processor_seconds", "3"),
        ("bowline_queue_oldest_waiting_seconds", "1"),
    ] {
        assert_eq!(metric(&registry, name), [format!("{name}{{name=\"Routes\"}} {value}")]);
    }
}

#[test]
fn metrics_drop_queues_that_no_longer_exist() {
    let metrics = QueueMetrics::register(&Registry::new()).unwrap();
    let queue = Queue::<u32>::new("a", BACKOFF, &metrics);
    drop(Queue::<u32>::new("b", BACKOFF, &metrics));
    assert_eq!(metrics.live_queues().len(), 1);
    drop(queue);
    assert_eq!(metrics.live_queues().len(), 0);
}

// ---- status

#[tokio::test(start_paused = true)]
async fn the_snapshot_has_every_key_with_its_next_try_and_its_last_error() {
    let queue = queue();
    for key in ["done", "failed", "in work", "waiting"] {
        queue.add(key, High);
    }
    let mut work = queue.next_batch(3).await;
    advance(millis(20)).await;
    let begun = Instant::now();
    let in_work = work.pop().unwrap();
    let failed = work.pop().unwrap();
    failed.failed("HTTP 503");
    queue.retry("failed");
    drop((failed, work));
    let status = queue.snapshot();
    assert_eq!((status.waiting, status.in_work, status.delayed, status.finished, status.failed), (1, 1, 1, 2, 1));
    assert_eq!(status.oldest, Some(begun - millis(20)));
    let key = |name: &str| status.keys.iter().find(|(key, _)| *key == name).unwrap().1.clone();
    let states = ["done", "failed", "in work", "waiting"].map(|name| key(name).state);
    assert_eq!(states, [KeyState::Idle, KeyState::Delayed, KeyState::InWork, KeyState::Waiting]);
    let failed = key("failed");
    assert_eq!((failed.failures, failed.error.as_deref()), (1, Some("HTTP 503")));
    assert_eq!((failed.next, failed.last.unwrap().took), (Some(begun + millis(100)), millis(20)));
    assert_eq!((key("done").error, key("in work").since), (None, Some(begun - millis(20))));
    drop(in_work);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_key_in_back_off_is_known_however_many_keys_have_failed_since() {
    let queue = queue();
    for key in 0..1_000 {
        queue.add(key, High);
        let work = now(&queue).unwrap();
        work.failed(format_args!("error {key}"));
        queue.retry_up_to(key, Duration::from_secs(1_000));
    }
    let errors =
        queue.snapshot().keys.into_iter().filter(|(key, one)| one.error.as_deref() == Some(&format!("error {key}")));
    assert_eq!(errors.count(), 1_000);
    (0..1_000).for_each(|key| queue.forget(&key));
    assert!(queue.snapshot().keys.iter().all(|(_, one)| one.failures == 0));
}
