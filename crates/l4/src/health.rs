//! Whether targets work: who is asked, how often, and what is made of the answers.
//!
//! ```text
//!  set(listeners) ──► questions: where, what, how often ──► one task each ──► ask ──► Verdict ◄── pools read it
//!                     (listeners with the same ones share them)
//! ```
//!
//! * A target that nobody has asked yet is taken to work; else a balancer would refuse everybody for its first moments. The
//!   first answer counts at once, whatever it is, so that a node without a pod (policy Local) is not sent traffic until it
//!   has failed several times. From then on it takes `rise` answers or `fall` failures in a row to change.
//! * A balancer with ten ports and one health-check node port asks each node once per interval, not ten times.
//! * Questions that begin together are spread a little, so that a hundred nodes are not asked in the same instant. After
//!   that each keeps its own rhythm.
//! * A question that stays, or whose timing alone changes, keeps what is known.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::probe::{Ask, ProbeError, Sockets};
use crate::{Health, HealthCheck, HealthProbe, ListenerConfig};

/// How far apart the first of several new questions are asked.
const SPREAD: Duration = Duration::from_millis(10);

/// No question is asked more often than this, whatever a configuration says.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

/// The questions of one balancer. When it is dropped, nobody is asked any more.
#[derive(Debug, Default)]
pub(crate) struct HealthChecks<A = Sockets> {
    ask: A,
    asked: HashMap<Question, Asking>,
}

/// What is known about a target. Read for every new connection, written by one task.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// A [`Health`], as a number.
    health: AtomicU8,
    /// How many answers in a row spoke against it.
    against: AtomicU32,
}

/// Something that is asked again and again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    at: SocketAddr,
    check: HealthCheck,
}

/// A question and the task that asks it.
#[derive(Debug)]
struct Asking {
    verdict: Arc<Verdict>,
    task: JoinHandle<()>,
}

// === impl HealthChecks ===

impl HealthChecks {
    pub(crate) fn new() -> HealthChecks {
        HealthChecks::default()
    }
}

impl<A: Ask> HealthChecks<A> {
    /// From now on the targets of these listeners are asked, and nobody else. Must be called on a Tokio runtime.
    pub(crate) fn set(&mut self, listeners: &[ListenerConfig]) {
        let mut before = std::mem::take(&mut self.asked);
        let known: HashMap<_, _> = before.iter().map(|(old, asking)| (old.thing(), asking.verdict.copy())).collect();
        let mut new = 0;
        for question in listeners.iter().flat_map(questions) {
            if self.asked.contains_key(&question) {
                continue;
            }
            let asking = before.remove(&question).unwrap_or_else(|| {
                let verdict = known.get(&question.thing()).map(Verdict::copy).unwrap_or_default();
                let delay = phase(new, question.check.interval);
                new += 1;
                self.begin(question.clone(), verdict, delay)
            });
            self.asked.insert(question, asking);
        }
    }

    /// What is known about a target. Without a check, or if [`HealthChecks::set`] was not told about it, that is nothing.
    pub(crate) fn verdict(&self, check: Option<&HealthCheck>, target: SocketAddr) -> Arc<Verdict> {
        let asking = check.and_then(|check| self.asked.get(&Question::new(check, target)));
        asking.map(|asking| asking.verdict.clone()).unwrap_or_default()
    }

    fn begin(&self, question: Question, verdict: Verdict, delay: Duration) -> Asking {
        let verdict = Arc::new(verdict);
        let task = tokio::spawn(keep_asking(self.ask.clone(), question, verdict.clone(), delay));
        Asking { verdict, task }
    }
}

/// What a listener wants asked.
fn questions(listener: &ListenerConfig) -> impl Iterator<Item = Question> {
    let targets = listener.health.iter().flat_map(|check| listener.targets.iter().map(move |target| (check, target)));
    targets.map(|(check, target)| Question::new(check, target.address))
}

/// When the first of an interval's questions is asked.
fn phase(place: u32, interval: Duration) -> Duration {
    let interval = interval.max(SHORTEST_INTERVAL).as_nanos();
    let after = SPREAD.as_nanos().saturating_mul(u128::from(place)) % interval;
    Duration::from_nanos(u64::try_from(after).unwrap_or(0))
}

async fn keep_asking<A: Ask>(ask: A, question: Question, verdict: Arc<Verdict>, delay: Duration) {
    let mut ticks = interval_at(Instant::now() + delay, question.check.interval.max(SHORTEST_INTERVAL));
    // After a slow answer the next question waits for its time; it is not asked twice at once to catch up.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let asked = timeout(question.check.timeout, ask.ask(question.at, &question.check.probe)).await;
        let answer = asked.unwrap_or(Err(ProbeError::NoAnswer));
        if verdict.note(answer.is_ok(), &question.check) {
            question.tell(&answer);
        }
    }
}

// === impl Question ===

impl Question {
    fn new(check: &HealthCheck, target: SocketAddr) -> Question {
        let at = SocketAddr::new(target.ip(), check.port.unwrap_or(target.port()));
        // Where is said already. Two listeners on different node ports ask the same thing if they ask a third port.
        Question { at, check: HealthCheck { port: None, ..check.clone() } }
    }

    /// What is asked, whatever is made of the answers and however often. What is known about it survives changes of those.
    fn thing(&self) -> (SocketAddr, HealthProbe) {
        (self.at, self.check.probe.clone())
    }

    fn tell(&self, answer: &Result<(), ProbeError>) {
        let asked = match &self.check.probe {
            HealthProbe::Tcp => "a connection",
            HealthProbe::Http { path } => path,
        };
        match answer {
            Ok(()) => tracing::info!(target = %self.at, asked, "target is healthy"),
            Err(why) => tracing::info!(target = %self.at, asked, %why, "target is unhealthy and gets nothing new"),
        }
    }
}

// === impl Verdict ===

impl Verdict {
    pub(crate) fn health(&self) -> Health {
        match self.health.load(Ordering::Relaxed) {
            0 => Health::Unknown,
            1 => Health::Healthy,
            _ => Health::Unhealthy,
        }
    }

    /// An answer came. Says whether it changed the verdict.
    pub(crate) fn note(&self, works: bool, check: &HealthCheck) -> bool {
        let needed = match self.health() {
            Health::Unknown => 1,
            Health::Healthy if works => return self.confirm(),
            Health::Unhealthy if !works => return self.confirm(),
            Health::Healthy => check.fall,
            Health::Unhealthy => check.rise,
        };
        let against = self.against.load(Ordering::Relaxed).saturating_add(1);
        if against < needed {
            self.against.store(against, Ordering::Relaxed);
            return false;
        }
        self.against.store(0, Ordering::Relaxed);
        self.health.store(if works { 1 } else { 2 }, Ordering::Relaxed);
        true
    }

    fn confirm(&self) -> bool {
        self.against.store(0, Ordering::Relaxed);
        false
    }

    fn copy(&self) -> Verdict {
        Verdict {
            health: self.health.load(Ordering::Relaxed).into(),
            against: self.against.load(Ordering::Relaxed).into(),
        }
    }
}

// === impl Asking ===

impl Drop for Asking {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::sleep;

    use super::*;
    use crate::{Target, Transport};

    const INTERVAL: Duration = Duration::from_secs(10);

    /// Writes down who was asked and when, and answers what it is told to.
    #[derive(Debug, Clone, Default)]
    struct Fake(Arc<Mutex<Notes>>);

    #[derive(Debug, Default)]
    struct Notes {
        asked: Vec<(SocketAddr, Instant)>,
        broken: Vec<SocketAddr>,
        silent: Vec<SocketAddr>,
    }

    impl Ask for Fake {
        async fn ask(&self, at: SocketAddr, _: &HealthProbe) -> Result<(), ProbeError> {
            let (broken, silent) = {
                let mut notes = self.0.lock().unwrap();
                notes.asked.push((at, Instant::now()));
                (notes.broken.contains(&at), notes.silent.contains(&at))
            };
            if silent {
                std::future::pending::<()>().await;
            }
            if broken { Err(ProbeError::Status(503)) } else { Ok(()) }
        }
    }

    impl Fake {
        fn checks(&self) -> HealthChecks<Fake> {
            HealthChecks { ask: self.clone(), asked: HashMap::new() }
        }
        fn take(&self) -> Vec<(SocketAddr, Instant)> {
            std::mem::take(&mut self.0.lock().unwrap().asked)
        }
        fn break_down(&self, at: SocketAddr) {
            self.0.lock().unwrap().broken.push(at);
        }
        fn repair(&self) {
            self.0.lock().unwrap().broken.clear();
        }
    }

    fn check(port: Option<u16>) -> HealthCheck {
        let probe = HealthProbe::Http { path: "/healthz".into() };
        HealthCheck { probe, port, interval: INTERVAL, timeout: Duration::from_secs(2), rise: 2, fall: 3 }
    }

    fn node(n: u8, port: u16) -> SocketAddr {
        ([10, 0, 0, n], port).into()
    }

    fn listener(port: u16, nodes: u8, health: HealthCheck) -> ListenerConfig {
        let targets = (0..nodes).map(|n| Target::new(node(n, 30000 + port))).collect();
        ListenerConfig { health: Some(health), ..ListenerConfig::new(Transport::Tcp, port, targets) }
    }

    #[test]
    fn answers_in_a_row_make_the_verdict() {
        use Health::{Healthy, Unhealthy};
        // What comes in (+ works, - does not), and the verdict after it. rise 2, fall 3.
        let cases = [
            ("+", Healthy),
            ("-", Unhealthy),
            ("+--", Healthy),
            ("+---", Unhealthy),
            ("+--+--", Healthy),
            ("-+", Unhealthy),
            ("-++", Healthy),
            ("-+-+", Unhealthy),
            ("-++--", Healthy),
            ("+---++", Healthy),
        ];
        for (answers, expected) in cases {
            let verdict = Verdict::default();
            assert_eq!(verdict.health(), Health::Unknown);
            for answer in answers.chars() {
                verdict.note(answer == '+', &check(None));
            }
            assert_eq!(verdict.health(), expected, "{answers}");
        }
    }

    #[test]
    fn a_rise_or_fall_of_0_is_one_of_1() {
        let check = HealthCheck { rise: 0, fall: 0, ..check(None) };
        let verdict = Verdict::default();
        for works in [true, false, true] {
            assert!(verdict.note(works, &check));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ten_ports_with_one_health_check_port_ask_each_node_once_per_interval() {
        let (fake, mut listeners) = (Fake::default(), Vec::new());
        listeners.extend((1..=10).map(|port| listener(port, 3, check(Some(32000)))));
        // One that has that port for its own.
        listeners.push(listener(2000, 3, check(None)));
        let mut checks = fake.checks();
        checks.set(&listeners);
        for _ in 0..3 {
            sleep(INTERVAL).await;
            let mut asked: Vec<_> = fake.take().into_iter().map(|(at, _)| at).collect();
            asked.sort();
            assert_eq!(asked, (0..3).map(|n| node(n, 32000)).collect::<Vec<_>>());
        }
        assert!(Arc::ptr_eq(
            &checks.verdict(Some(&check(Some(32000))), node(1, 30001)),
            &checks.verdict(Some(&check(Some(32000))), node(1, 30002)),
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_nodes_are_not_asked_in_the_same_instant_and_keep_their_rhythm() {
        let fake = Fake::default();
        let mut checks = fake.checks();
        checks.set(&[listener(1, 100, check(None))]);
        sleep(INTERVAL - SPREAD / 2).await;
        let first = fake.take();
        assert_eq!(first.len(), 100);
        assert!(first.windows(2).all(|pair| pair[0].1 < pair[1].1), "all at different times");
        sleep(INTERVAL).await;
        let second = fake.take();
        let rhythm = first.iter().map(|(at, when)| (*at, *when + INTERVAL)).collect::<Vec<_>>();
        assert_eq!(second, rhythm);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_target_works_until_the_first_answer_which_counts_at_once() {
        let fake = Fake::default();
        fake.break_down(node(0, 30001));
        let mut checks = fake.checks();
        checks.set(&[listener(1, 2, check(None))]);
        let verdicts = [0, 1].map(|n| checks.verdict(Some(&check(None)), node(n, 30001)));
        assert_eq!(verdicts.each_ref().map(|verdict| verdict.health()), [Health::Unknown, Health::Unknown]);
        sleep(SPREAD * 2).await;
        assert_eq!(verdicts.each_ref().map(|verdict| verdict.health()), [Health::Unhealthy, Health::Healthy]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_in_time_is_a_failure() {
        let fake = Fake::default();
        fake.0.lock().unwrap().silent.push(node(0, 30001));
        let mut checks = fake.checks();
        checks.set(&[listener(1, 1, check(None))]);
        let verdict = checks.verdict(Some(&check(None)), node(0, 30001));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(verdict.health(), Health::Unknown);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(verdict.health(), Health::Unhealthy);
    }

    #[tokio::test(start_paused = true)]
    async fn targets_that_stay_keep_what_is_known_and_their_rhythm() {
        let fake = Fake::default();
        let mut checks = fake.checks();
        checks.set(&[listener(1, 1, check(None))]);
        sleep(INTERVAL / 2).await;
        let before = fake.take();
        checks.set(&[listener(1, 2, check(None))]);
        let old = checks.verdict(Some(&check(None)), node(0, 30001));
        assert_eq!(old.health(), Health::Healthy);
        assert_eq!(checks.verdict(Some(&check(None)), node(1, 30001)).health(), Health::Unknown);
        sleep(INTERVAL / 2 + SPREAD).await;
        let again: Vec<_> = fake.take().into_iter().filter(|(at, _)| *at == node(0, 30001)).collect();
        assert_eq!(again, [(node(0, 30001), before[0].1 + INTERVAL)]);
    }

    #[tokio::test(start_paused = true)]
    async fn another_interval_does_not_make_an_unhealthy_target_one_that_works() {
        let fake = Fake::default();
        fake.break_down(node(0, 30001));
        let mut checks = fake.checks();
        checks.set(&[listener(1, 1, check(None))]);
        sleep(SPREAD).await;
        fake.repair();
        let quicker = HealthCheck { interval: Duration::from_secs(1), ..check(None) };
        checks.set(&[listener(1, 1, quicker.clone())]);
        let verdict = checks.verdict(Some(&quicker), node(0, 30001));
        sleep(SPREAD).await;
        assert_eq!(verdict.health(), Health::Unhealthy, "one answer of two");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(verdict.health(), Health::Healthy);
        let other = HealthCheck { probe: HealthProbe::Tcp, ..quicker };
        checks.set(&[listener(1, 1, other.clone())]);
        assert_eq!(checks.verdict(Some(&other), node(0, 30001)).health(), Health::Unknown, "another question");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_asked_who_is_gone() {
        let fake = Fake::default();
        let mut checks = fake.checks();
        checks.set(&[listener(1, 3, check(None))]);
        sleep(INTERVAL / 2).await;
        fake.take();
        checks.set(&[listener(1, 1, check(None))]);
        sleep(INTERVAL * 2).await;
        assert!(fake.take().iter().all(|(at, _)| *at == node(0, 30001)));
        drop(checks);
        sleep(INTERVAL * 2).await;
        assert_eq!(fake.take(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_check_nothing_is_known_and_nobody_is_asked() {
        let fake = Fake::default();
        let mut checks = fake.checks();
        checks.set(&[ListenerConfig { health: None, ..listener(1, 3, check(None)) }]);
        sleep(INTERVAL).await;
        assert_eq!(fake.take(), []);
        assert_eq!(checks.verdict(None, node(0, 30001)).health(), Health::Unknown);
    }
}
