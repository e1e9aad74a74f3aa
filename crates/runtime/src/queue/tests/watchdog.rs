//! Whether a queue gets on, and what people see of it.

use super::*;
use crate::Part;
use crate::queue::record::{LONGEST_WORK, PATIENCE};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test(start_paused = true)]
async fn an_idle_queue_and_one_whose_keys_are_in_back_off_are_well_for_days() {
    let queue = queue::<&str>();
    assert!(now(&queue).is_none());
    advance(3 * DAY).await;
    assert_eq!(queue.health(), Ok(()), "idle");
    queue.add_after("a", 3 * DAY, Low);
    advance(2 * DAY).await;
    assert_eq!(queue.health(), Ok(()), "the key has its own time");
    // It comes, and is taken at once: what it has waited before is nobody's fault.
    advance(DAY).await;
    let work = now(&queue).unwrap();
    advance(PATIENCE).await;
    assert_eq!(queue.health(), Ok(()));
    drop(work);
}

#[tokio::test(start_paused = true)]
async fn keys_that_wait_for_a_controller_that_has_not_been_started_are_nobodys_fault() {
    let queue = queue::<&str>();
    queue.add("a", High);
    advance(DAY).await;
    assert_eq!(queue.health(), Ok(()));
    assert_eq!(queue.status()["working"], false);
    let work = now(&queue).unwrap();
    assert_eq!(queue.health(), Ok(()), "it has only just begun");
    drop(work);
}

#[tokio::test(start_paused = true)]
async fn a_queue_with_work_that_finishes_none_is_stuck_and_recovers() {
    let queue = queue::<&str>();
    ["a", "b"].into_iter().for_each(|key| queue.add(key, High));
    let work = now(&queue).unwrap();
    advance(PATIENCE).await;
    assert_eq!(queue.health(), Ok(()));
    advance(millis(1000)).await;
    let told = "no key was finished for 901s: 1 wait, 1 are in work; a is in work for 901s";
    assert_eq!(queue.health(), Err(told.to_owned()));
    queue.made_progress();
    assert_eq!(queue.health(), Ok(()), "a step is progress");
    advance(PATIENCE + millis(1000)).await;
    assert!(queue.health().is_err());
    drop(work);
    assert_eq!(queue.health(), Ok(()), "so is an end");
}

#[tokio::test(start_paused = true)]
async fn a_busy_queue_that_gets_on_is_well_and_a_key_that_never_ends_is_named() {
    let queue = queue::<String>();
    queue.add("stuck".to_owned(), High);
    let _stuck = now(&queue).unwrap();
    let begin = Instant::now();
    for turn in 0.. {
        (0..20).for_each(|key| queue.add(format!("{turn}-{key}"), High));
        advance(PATIENCE / 2).await;
        if begin.elapsed() > LONGEST_WORK {
            break;
        }
        drop(now(&queue).unwrap());
        assert_eq!(queue.health(), Ok(()), "slow, with {} waiting", queue.len());
    }
    assert!(queue.health().unwrap_err().starts_with("stuck is in work for"));
    queue.shut_down();
    assert_eq!(queue.health(), Ok(()), "it ends");
}

#[tokio::test(start_paused = true)]
async fn the_last_outcome_of_a_key_is_told_with_its_next_try() {
    let queue = queue::<&str>();
    for key in ["fine", "broken"] {
        queue.add(key, High);
        let work = now(&queue).unwrap();
        advance(millis(500)).await;
        if key == "broken" {
            work.failed("the cloud says no");
            queue.retry(key);
        }
    }
    advance(millis(50)).await;
    let status = queue.status();
    let broken = &status["recent"][0];
    assert_eq!((&broken["key"], &broken["error"]), (&"broken".into(), &"the cloud says no".into()));
    assert_eq!((&broken["tookSeconds"], &broken["secondsAgo"]), (&0.5.into(), &0.05.into()));
    assert_eq!((&broken["failures"], &broken["nextTryInSeconds"]), (&1.into(), &0.05.into()));
    assert_eq!((&status["recent"][1]["key"], &status["recent"][1]["error"]), (&"fine".into(), &().into()));
    assert_eq!((&status["finished"], &status["failed"], &status["delayed"]), (&2.into(), &1.into(), &1.into()));
    // Once it works, its trouble is forgotten.
    queue.add("broken", High);
    drop(now(&queue));
    assert_eq!(queue.status()["recent"][0]["error"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_is_bounded() {
    let queue = queue::<u32>();
    for key in 0..1000 {
        queue.add(key, High);
        let work = now(&queue).unwrap();
        if key % 2 == 0 {
            work.failed("no");
        }
    }
    let status = queue.status();
    let recent = status["recent"].as_array().unwrap();
    assert_eq!((recent.len(), &recent[0]["key"], &recent[32]["key"]), (64, &"998".into(), &"999".into()));
}
