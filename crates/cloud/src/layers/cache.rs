//! Questions about machines: gathered, shared while under way, and answered from memory within a bound.
//!
//! ```text
//!  question ──► memory (Within only, only "it exists", not older than the bound) ──► answer
//!      │
//!      ├──► a read under way (Within only, begun within the bound) ──► its answer
//!      └──► the read that is gathering ──a moment later──► begun ──► find or list ──► answers, memory
//! ```
//!
//! A read runs in a task of its own: a caller that stops waiting takes nobody else's answer away. A write makes all that was
//! read of its machine before it [out of date](Cache::outdate).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_core::{Instance, InstanceRef, InstanceState};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::layers::observe::Metrics;
use crate::layers::read::Reader;
use crate::{Error, ErrorKind, Freshness, Identity, Result};

/// The questions to one provider.
pub(crate) struct Cache {
    reader: Reader,
    gather: Duration,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
}

/// What a question is about. Without an ID, the firmware's UUID counts as well as the name: a machine that was replaced by
/// another of the same name must not get its predecessor's answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) identity: Identity,
    system_uuid: Option<String>,
}

/// A question in a read.
pub(crate) struct Question {
    pub(crate) key: Key,
    pub(crate) asked: InstanceRef,
    answer: watch::Sender<Option<Answer>>,
}

type Answer = Result<InstanceState>;

#[derive(Default)]
struct State {
    memory: HashMap<Key, Memory>,
    /// The latest read of each key that has begun and not answered yet.
    under_way: HashMap<Key, Flight>,
    gathering: Vec<Question>,
    /// Where the questions of `gathering` are answered.
    gathered: HashMap<Key, watch::Receiver<Option<Answer>>>,
    /// The largest bound that was ever asked with; what is older is of no use.
    longest_bound: Duration,
}

/// What the latest read says, and when it began. That a machine does not exist is kept for one purpose alone: an older
/// read that answers later must not bring it back.
struct Memory {
    exists: Option<InstanceState>,
    as_of: Instant,
}

struct Flight {
    begun: Instant,
    answer: watch::Receiver<Option<Answer>>,
}

/// Where a caller's answer comes from.
enum Source {
    Known(Answer),
    Read(watch::Receiver<Option<Answer>>),
}

impl Cache {
    pub(crate) fn new(reader: Reader, gather: Duration, metrics: Arc<Metrics>) -> Arc<Cache> {
        Arc::new(Cache { reader, gather, metrics, state: Mutex::default() })
    }

    /// One answer per question, in the same order.
    pub(crate) async fn find(self: &Arc<Cache>, asked: &[InstanceRef], freshness: Freshness) -> Vec<Answer> {
        let sources: Vec<_> = asked.iter().map(|asked| self.source(asked, freshness)).collect();
        let mut answers = Vec::with_capacity(sources.len());
        for source in sources {
            answers.push(source.answer().await);
        }
        answers
    }

    fn source(self: &Arc<Cache>, asked: &InstanceRef, freshness: Freshness) -> Source {
        match self.reader.identify(asked) {
            Err(error) => Source::Known(Err(error)),
            Ok(Identity::NotMine) => Source::Known(Ok(InstanceState::NotMine)),
            Ok(identity) => self.known(Key::new(identity, asked), asked, freshness),
        }
    }

    fn known(self: &Arc<Cache>, key: Key, asked: &InstanceRef, freshness: Freshness) -> Source {
        let mut state = self.lock();
        if let Freshness::Within(bound) = freshness {
            let known = state.within(&key, bound);
            self.metrics.remembered(matches!(known, Some(Source::Known(_))));
            if let Some(known) = known {
                return known;
            }
        }
        if state.gathering.is_empty() {
            tokio::spawn(Arc::clone(self).read_gathered());
        }
        Source::Read(state.gather(key, asked))
    }

    /// Waits for more questions, and reads.
    async fn read_gathered(self: Arc<Cache>) {
        sleep(self.gather).await;
        let begun = Instant::now();
        let questions = self.lock().begin(begun);
        let answer = |question: Question, answer: Answer| self.lock().settle(question, answer, begun);
        self.reader.read(questions, answer).await;
    }

    /// The machine was changed, or may have been: what is remembered of it, and what reads under way will say, is as of
    /// before that, however it was asked for.
    pub(crate) fn outdate(&self, asked: &InstanceRef) {
        let identity = self.reader.identify(asked).unwrap_or(Identity::NotMine);
        self.lock().outdate(asked, &identity);
    }

    /// How many machines are remembered.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.lock().memory.len()
    }

    /// How many machines a read is taken to be under way for.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        self.lock().under_way.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Key {
    fn new(identity: Identity, asked: &InstanceRef) -> Key {
        let system_uuid = asked.system_uuid.clone().filter(|_| asked.provider_id.is_none());
        Key { identity, system_uuid }
    }
}

impl State {
    /// An answer from memory or from a read under way that is not older than `bound`.
    fn within(&mut self, key: &Key, bound: Duration) -> Option<Source> {
        self.longest_bound = self.longest_bound.max(bound);
        let known = self.memory.get(key).filter(|memory| memory.as_of.elapsed() <= bound);
        if let Some(state) = known.and_then(|memory| memory.exists.clone()) {
            return Some(Source::Known(Ok(state)));
        }
        let flight = self.under_way.get(key).filter(|flight| flight.begun.elapsed() <= bound)?;
        // A read whose task is gone answers nobody.
        flight.answer.has_changed().is_ok().then(|| Source::Read(flight.answer.clone()))
    }

    /// Puts the question into the read that has not begun yet.
    fn gather(&mut self, key: Key, asked: &InstanceRef) -> watch::Receiver<Option<Answer>> {
        if let Some(answer) = self.gathered.get(&key) {
            return answer.clone();
        }
        let (sender, receiver) = watch::channel(None);
        self.gathered.insert(key.clone(), receiver.clone());
        self.gathering.push(Question { key, asked: asked.clone(), answer: sender });
        receiver
    }

    /// From here on, only those may join who are content with an answer as of now.
    fn begin(&mut self, begun: Instant) -> Vec<Question> {
        self.forget();
        let flights = self.gathered.drain().map(|(key, answer)| (key, Flight { begun, answer }));
        self.under_way.extend(flights);
        std::mem::take(&mut self.gathering)
    }

    fn settle(&mut self, question: Question, answer: Answer, begun: Instant) {
        // A read that a later one, or a write, has overtaken is not kept; a later read of the same machine stays.
        if self.under_way.get(&question.key).is_some_and(|flight| flight.begun == begun) {
            self.under_way.remove(&question.key);
            self.remember(&question.key, &answer, begun);
        }
        question.answer.send_replace(Some(answer));
    }

    /// Keeps what the latest read says; a failure says nothing.
    fn remember(&mut self, key: &Key, answer: &Answer, as_of: Instant) {
        let Ok(state) = answer else { return };
        if self.memory.get(key).is_none_or(|memory| memory.as_of <= as_of) {
            let exists = state.instance().is_some().then(|| state.clone());
            self.memory.insert(key.clone(), Memory { exists, as_of });
        }
    }

    /// Drops what was read of this machine. Which ID a name stands for is not known before a read has ended, so that without
    /// an ID all reads under way are overtaken.
    fn outdate(&mut self, asked: &InstanceRef, identity: &Identity) {
        let is_named = |identity: &Identity| matches!(identity, Identity::Name(name) if *name == *asked.node.as_str());
        let is_it = |key: &Key| key.identity == *identity || is_named(&key.identity);
        self.memory.retain(|key, memory| {
            let known = memory.exists.as_ref().and_then(InstanceState::instance);
            !is_it(key) && known.is_none_or(|known| !is_the(known, asked, identity))
        });
        let by_id = matches!(identity, Identity::Id(_));
        self.under_way.retain(|key, _| by_id && !is_it(key));
    }

    /// Drops what nobody would be content with, and reads whose task is gone.
    fn forget(&mut self) {
        let longest = self.longest_bound;
        self.memory.retain(|_, memory| memory.as_of.elapsed() <= longest);
        self.under_way.retain(|_, flight| flight.answer.has_changed().is_ok());
    }
}

/// Whether this is the machine that is asked for.
fn is_the(known: &Instance, asked: &InstanceRef, identity: &Identity) -> bool {
    match identity {
        Identity::Id(id) => known.id == *id,
        _ => known.name == asked.node.as_str(),
    }
}

impl Source {
    async fn answer(self) -> Answer {
        let mut receiver = match self {
            Source::Known(answer) => return answer,
            Source::Read(receiver) => receiver,
        };
        let answer = receiver.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
        answer.unwrap_or_else(|| {
            let message = "the read ended without an answer; the log says why";
            Err(Error::new(ErrorKind::Unexpected, "find instances", message))
        })
    }
}
