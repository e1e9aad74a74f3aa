//! Tests of the health and the status of a queue.

use super::*;
use crate::Component;
use crate::queue::record::{MAX_WORK, STALL_TIMEOUT};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test(start_paused = true)]
async fn an_idle_queue_and_keys_in_backoff_are_healthy() {
    let queue = queue::<&str>();
    assert!(now(&queue).is_none());
    advance(3 * DAY).await;
    assert_eq!(queue.health(), Ok(()), "idle");
    queue.add_after("a", 3 * DAY, Low);
    advance(2 * DAY).await;
    assert_eq!(queue.health(), Ok(()), "the key has a timer");
    // The timer fires and the key is taken at once: the time before does not count.
    advance(DAY).await;
    let work = now(&queue).unwrap();
    advance(STALL_TIMEOUT).await;
    assert_eq!(queue.health(), Ok(()));
    drop(work);
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_workers_is_healthy() {
    let queue = queue::<&str>();
    queue.add("a", High);
    advance(DAY).await;
    assert_eq!(queue.health(), Ok(()));
    assert_eq!(queue.status()["working"], false);
    let work = now(&queue).unwrap();
    assert_eq!(queue.health(), Ok(()), "the work has just started");
    drop(work);
}

#[tokio::test(start_paused = true)]
async fn a_queue_without_progress_is_stalled_and_recovers() {
    let queue = queue::<&str>();
    ["a", "b"].into_iter().for_each(|key| queue.add(key, High));
    let work = now(&queue).unwrap();
    advance(STALL_TIMEOUT).await;
    assert_eq!(queue.health(), Ok(()));
    advance(millis(1000)).await;
    let expected = "no key was finished for 901s: 1 waiting, 1 in work; a has been in work for 901s";
    assert_eq!(queue.health(), Err(expected.to_owned()));
    queue.record_progress();
    assert_eq!(queue.health(), Ok(()), "a step is progress");
    advance(STALL_TIMEOUT + millis(1000)).await;
    assert!(queue.health().is_err());
    drop(work);
    assert_eq!(queue.health(), Ok(()), "so is a finished key");
}

#[tokio::test(start_paused = true)]
async fn a_busy_queue_is_healthy_until_a_key_is_stuck() {
    let queue = queue::<String>();
    queue.add("stuck".to_owned(), High);
    let _stuck = now(&queue).unwrap();
    let begin = Instant::now();
    for round in 0.. {
        (0..20).for_each(|key| queue.add(format!("{round}-{key}"), High));
        advance(STALL_TIMEOUT / 2).await;
        if begin.elapsed() > MAX_WORK {
            break;
        }
        drop(now(&queue).unwrap());
        assert_eq!(queue.health(), Ok(()), "slow, with {} waiting", queue.len());
    }
    assert!(queue.health().unwrap_err().starts_with("stuck has been in work for"));
    queue.shut_down();
    assert_eq!(queue.health(), Ok(()), "the queue is shut down");
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_the_last_result_of_a_key_and_its_next_retry() {
    let queue = queue::<&str>();
    for key in ["fine", "broken"] {
        queue.add(key, High);
        let work = now(&queue).unwrap();
        advance(millis(500)).await;
        if key == "broken" {
            work.failed("permission denied");
            queue.retry(key);
        }
    }
    advance(millis(50)).await;
    let status = queue.status();
    let broken = &status["recent"][0];
    assert_eq!((&broken["key"], &broken["error"]), (&"broken".into(), &"permission denied".into()));
    assert_eq!((&broken["tookSeconds"], &broken["secondsAgo"]), (&0.5.into(), &0.05.into()));
    assert_eq!((&broken["failures"], &broken["nextTryInSeconds"]), (&1.into(), &0.05.into()));
    assert_eq!((&status["recent"][1]["key"], &status["recent"][1]["error"]), (&"fine".into(), &().into()));
    assert_eq!((&status["finished"], &status["failed"], &status["delayed"]), (&2.into(), &1.into(), &1.into()));
    // A success replaces the error.
    queue.add("broken", High);
    drop(now(&queue));
    assert_eq!(queue.status()["recent"][0]["error"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_recorded_results_is_limited() {
    let queue = queue::<u32>();
    for key in 0..1000 {
        queue.add(key, High);
        let work = now(&queue).unwrap();
        if key % 2 == 0 {
            work.failed("error");
        }
    }
    let status = queue.status();
    let recent = status["recent"].as_array().unwrap();
    assert_eq!((recent.len(), &recent[0]["key"], &recent[32]["key"]), (64, &"998".into(), &"999".into()));
}
