//! Property tests: random histories compared step by step with a simple model, and histories with competing workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;

const KEYS: u8 = 5;

#[derive(Debug, Clone)]
enum Step {
    Add(u8, Priority),
    AddAfter(u8, u64, Priority),
    Retry(u8),
    Forget(u8),
    Take(usize),
    Done(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let priority = || prop_oneof![Just(High), Just(Low)];
    prop_oneof![
        3 => (0..KEYS, priority()).prop_map(|(key, priority)| Step::Add(key, priority)),
        3 => (0..KEYS, 0..600_u64, priority()).prop_map(|(key, delay, priority)| Step::AddAfter(key, delay, priority)),
        2 => (0..KEYS).prop_map(Step::Retry),
        1 => (0..KEYS).prop_map(Step::Forget),
        4 => (1..4_usize).prop_map(Step::Take),
        4 => (0..8_usize).prop_map(Step::Done),
        3 => (0..300_u64).prop_map(Step::Pass),
    ]
}

/// Expected state of one key.
#[derive(Debug, Default, Clone)]
struct Key {
    /// The key was added and not taken since.
    requested: bool,
    urgent: bool,
    timer: Option<(Instant, bool)>,
    in_work: bool,
    failures: u32,
}

impl Key {
    fn request(&mut self, urgent: bool) {
        let timer = self.timer.take();
        self.urgent = (self.requested && self.urgent) || urgent || timer.is_some_and(|(_, urgent)| urgent);
        self.requested = true;
    }

    fn request_at(&mut self, due: Instant, urgent: bool) {
        let (earlier, was_urgent) = self.timer.unwrap_or((due, false));
        self.timer = Some((earlier.min(due), urgent || was_urgent));
    }

    fn settle(&mut self) {
        if let Some((due, urgent)) = self.timer
            && due <= Instant::now()
        {
            self.request(urgent);
        }
    }

    fn is_waiting(&self) -> bool {
        self.requested && !self.in_work
    }
}

/// The queue, the model, and the work in progress.
struct Run {
    queue: Queue<u8>,
    model: BTreeMap<u8, Key>,
    in_work: Vec<Work<u8>>,
    /// Number of high-priority keys taken in a row while a low-priority one waited.
    high_in_a_row: u32,
    /// By priority and flow: the flows that have waited since this flow's last turn, and must be served before its next one.
    owed: BTreeMap<(bool, u64), BTreeSet<u64>>,
}

/// Odd and even keys.
fn flow(key: &u8) -> u64 {
    u64::from(key % 2)
}

impl Run {
    fn new() -> Run {
        Run {
            queue: queue().with_flows(flow),
            model: (0..KEYS).map(|key| (key, Key::default())).collect(),
            in_work: Vec::new(),
            high_in_a_row: 0,
            owed: BTreeMap::new(),
        }
    }

    fn key(&mut self, key: u8) -> &mut Key {
        self.model.get_mut(&key).unwrap()
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Add(key, priority) => {
                self.queue.add(key, priority);
                self.key(key).request(priority == High);
            }
            Step::AddAfter(key, delay, priority) => {
                self.queue.add_after(key, millis(delay), priority);
                self.delayed(key, millis(delay), priority == High);
            }
            Step::Retry(key) => {
                let delay = self.queue.retry(key);
                self.key(key).failures += 1;
                assert_eq!(delay, BACKOFF.after(self.key(key).failures));
                self.delayed(key, delay, false);
            }
            Step::Forget(key) => {
                self.queue.forget(&key);
                self.key(key).failures = 0;
            }
            Step::Take(max) => self.take(max),
            Step::Done(index) => self.done(index),
            Step::Pass(time) => advance(millis(time)).await,
        }
        self.compare();
    }

    fn delayed(&mut self, key: u8, delay: Duration, urgent: bool) {
        let model = self.key(key);
        if delay.is_zero() { model.request(urgent) } else { model.request_at(Instant::now() + delay, urgent) }
    }

    fn take(&mut self, max: usize) {
        let waiting = self.model.values().filter(|key| key.is_waiting()).count();
        let batch = self.queue.next_batch(max).now_or_never().unwrap_or_default();
        assert_eq!(batch.len(), waiting.min(max), "a batch has all waiting keys, up to its maximum");
        for work in batch {
            self.taken(*work.key());
            self.in_work.push(work);
        }
    }

    fn taken(&mut self, key: u8) {
        assert!(self.key(key).is_waiting(), "{key} is already in work or was not requested: {:?}", self.model);
        let urgent = self.key(key).urgent;
        let any = |urgent| self.model.values().any(|key| key.is_waiting() && key.urgent == urgent);
        let turn_of_low = any(false) && (!any(true) || self.high_in_a_row >= MAX_HIGH_IN_A_ROW);
        assert_eq!(urgent, !turn_of_low, "{key} was not next: {:?}", self.model);
        self.high_in_a_row = if urgent && any(false) { self.high_in_a_row + 1 } else { 0 };
        *self.key(key) = Key { requested: false, in_work: true, ..self.key(key).clone() };
        self.turn(urgent, flow(&key));
    }

    /// Records the turn of a flow.
    fn turn(&mut self, urgent: bool, flow: u64) {
        let first = self.owed.get(&(urgent, flow)).is_none_or(BTreeSet::is_empty);
        assert!(first, "it was not the turn of flow {flow}: {:?}, {:?}", self.owed, self.model);
        let lane = self.owed.iter_mut().filter(|((lane, _), _)| *lane == urgent);
        lane.for_each(|(_, owed)| _ = owed.remove(&flow));
        let others = self.waiting(urgent).filter(|other| *other != flow).collect();
        self.owed.insert((urgent, flow), others);
    }

    /// Returns the flows of the waiting keys of this priority.
    fn waiting(&self, urgent: bool) -> impl Iterator<Item = u64> {
        self.model.iter().filter(move |(_, key)| key.is_waiting() && key.urgent == urgent).map(|(key, _)| flow(key))
    }

    /// Removes the claims of flows without waiting keys.
    fn drop_claims(&mut self) {
        for urgent in [true, false] {
            let waiting: BTreeSet<u64> = self.waiting(urgent).collect();
            let owed = self.owed.iter_mut().filter(|((lane, _), _)| *lane == urgent);
            owed.for_each(|(_, owed)| owed.retain(|flow| waiting.contains(flow)));
        }
    }

    fn done(&mut self, index: usize) {
        if index < self.in_work.len() {
            let key = *self.in_work.swap_remove(index).key();
            self.key(key).in_work = false;
        }
    }

    fn compare(&mut self) {
        self.model.values_mut().for_each(Key::settle);
        self.drop_claims();
        assert_eq!(self.queue.len(), self.model.values().filter(|key| key.is_waiting()).count());
        for (name, key) in &self.model {
            assert_eq!(self.queue.failures(name), key.failures);
        }
    }

    /// Finishes all work: every requested key must be returned at its time, and no other.
    async fn drain(&mut self) {
        while !self.in_work.is_empty() {
            self.step(Step::Done(0)).await;
        }
        while self.model.values().any(|key| key.requested || key.timer.is_some()) {
            let next = timeout(Duration::from_secs(3600), self.queue.next()).await;
            let work = next.unwrap_or_else(|_| panic!("lost: {:?}", self.model)).unwrap();
            self.model.values_mut().for_each(Key::settle);
            self.taken(*work.key());
            self.in_work.push(work);
            self.step(Step::Done(0)).await;
        }
        (0..KEYS).for_each(|key| self.queue.forget(&key));
        let state = self.queue.0.lock();
        assert_eq!((state.known(), state.next_due()), (0, None));
    }
}

fn paused<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test)
}

proptest! {
    #[test]
    fn every_history_follows_the_model(steps in prop::collection::vec(step(), 0..80)) {
        paused(async {
            let mut run = Run::new();
            for step in steps {
                run.step(step).await;
            }
            run.drain().await;
        });
    }

    #[test]
    fn competing_workers_never_share_a_key_and_lose_none(
        workers in 1..5_usize,
        adds in prop::collection::vec((0..40_u64, 0..KEYS, prop_oneof![Just(0), 1..100_u64]), 1..60),
    ) {
        paused(async {
            let (queue, log) = (queue(), Log::default());
            let workers: JoinSet<()> = (0..workers).map(|_| work(queue.clone(), log.clone())).collect();
            let mut requested = BTreeMap::<u8, Vec<_>>::new();
            for (pause, key, delay) in adds {
                sleep(millis(pause)).await;
                queue.add_after(key, millis(delay), if delay % 2 == 0 { High } else { Low });
                requested.entry(key).or_default().push((Instant::now(), Instant::now() + millis(delay)));
            }
            sleep(Duration::from_secs(60)).await;
            queue.shut_down();
            workers.join_all().await;
            for (key, requested) in requested {
                log.assert_served(key, &requested);
            }
        });
    }
}

/// Processes each key for a time that depends on the key.
async fn work(queue: Queue<u8>, log: Log) {
    while let Some(work) = queue.next().await {
        log.begin(*work.key());
        sleep(millis(u64::from(*work.key()) * 20)).await;
        log.end(*work.key());
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    in_work: BTreeSet<u8>,
    begun: BTreeMap<u8, Vec<Instant>>,
}

impl Log {
    fn begin(&self, key: u8) {
        let mut log = self.0.lock().unwrap();
        assert!(log.in_work.insert(key), "two workers process {key}");
        log.begun.entry(key).or_default().push(Instant::now());
    }

    fn end(&self, key: u8) {
        self.0.lock().unwrap().in_work.remove(&key);
    }

    /// Checks that no run began before the first request was due, one began after the last request, and there were no more runs
    /// than requests.
    fn assert_served(&self, key: u8, requested: &[(Instant, Instant)]) {
        let log = self.0.lock().unwrap();
        let runs = &log.begun[&key];
        let first_due = requested.iter().map(|(_, due)| due).min().unwrap();
        assert!(runs.first().unwrap() >= first_due, "{key} ran before it was due");
        assert!(runs.last().unwrap() >= &requested.last().unwrap().0, "{key} did not run after the last request");
        assert!(runs.len() <= requested.len(), "{key} ran more often than requested");
    }
}
