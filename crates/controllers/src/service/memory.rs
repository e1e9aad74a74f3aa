//! What the controller remembers of a Service between two passes. All of it can be lost: a new process finds out again from
//! the Service and from the cloud.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bowline_cloud::Cloud;
use bowline_core::{Service, ServiceKey, TargetSet, Warning};
use tokio::time::Instant;

use super::job::Job;

/// By namespace and name. Bounded by the number of Services that have, or had, a balancer of ours.
#[derive(Default)]
pub(super) struct Memory(Mutex<HashMap<ServiceKey, Entry>>);

#[derive(Default)]
struct Entry {
    /// The balancer that we began to make and have not removed.
    held: Option<Held>,
    /// Balancers of Services that are gone and did not wait for us.
    owed: Vec<Held>,
    /// What we last wrote, while the store may still show what was there before.
    written: Option<Written>,
    /// The user has changed the Service since it was last as wanted.
    news: bool,
    /// When that was first heard.
    seen: Option<Instant>,
    /// That work on the news has begun is told.
    announced: bool,
    /// The targets that the last pass was about, however it ended.
    tried: Option<TargetSet>,
    /// The work that the last pass has left, because the cloud is busy with it.
    unfinished: Option<Job>,
    /// What the cloud has noted, as long as the Service may not say it.
    notes: BTreeMap<String, String>,
    /// What we are about to do, or have done, to its annotations: what each said before, and what it says then.
    annotating: Annotating,
    /// What its owner was told of the cloud's notices.
    noticed: Vec<Warning>,
    /// UID of the Service of which a cloud has lost its load balancer, while another cloud may still have one.
    removed: Option<String>,
}

/// What becomes of annotations: what each says before, and after.
type Annotating = BTreeMap<String, (Option<String>, Option<String>)>;

/// A balancer that may exist: for this Service, in this cloud.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) service: Arc<Service>,
    pub(super) cloud: Cloud,
}

struct Written {
    /// The versions that this one has replaced.
    outdated: Vec<String>,
    service: Arc<Service>,
    at: Instant,
}

impl Written {
    /// The store shows what was there before: a version that we changed, or one that somebody else made in between. That
    /// one we never saw, and it may say that there is a finalizer or a condition which our write took away.
    fn replaces(&self, stored: &Service) -> bool {
        let is_older = || Some(number(stored)? < number(&self.service)?);
        stored.uid == self.service.uid
            && (self.outdated.contains(&stored.resource_version) || is_older().unwrap_or_default())
    }
}

/// Versions can be compared if they are numbers, which they are in all of Kubernetes' own API servers.
fn number(service: &Service) -> Option<u64> {
    service.resource_version.parse().ok()
}

/// For so long the store may lag behind our own writes. What it shows after that is the truth: of an API server that was
/// set back, say.
const LAG: Duration = Duration::from_secs(10);

impl Memory {
    /// The user has made or changed this Service.
    pub(super) fn news(&self, key: &ServiceKey) {
        let mut memory = self.lock();
        let entry = memory.entry(key.clone()).or_default();
        (entry.news, entry.announced) = (true, false);
        entry.seen.get_or_insert_with(Instant::now);
    }

    /// How long ago the news was first heard of, if it is not settled.
    pub(super) fn waited(&self, key: &ServiceKey) -> Option<Duration> {
        self.lock().get(key)?.seen.map(|seen| seen.elapsed())
    }

    /// The user has changed it since it was last as wanted.
    pub(super) fn is_news(&self, key: &ServiceKey) -> bool {
        self.lock().get(key).is_some_and(|entry| entry.news)
    }

    /// Whether it is still to be told that work on the news has begun; it no longer is afterwards.
    pub(super) fn announce(&self, key: &ServiceKey) -> bool {
        let mut memory = self.lock();
        let entry = memory.entry(key.clone()).or_default();
        !std::mem::replace(&mut entry.announced, true)
    }

    /// The Service is as wanted. A change that came meanwhile, and is thus still in the queue, stays news.
    pub(super) fn settled(&self, key: &ServiceKey) {
        if let Some(entry) = self.lock().get_mut(key)
            && entry.announced
        {
            (entry.news, entry.announced, entry.seen) = (false, false, None);
        }
    }

    /// From now on there may be a balancer in this cloud for this Service.
    pub(super) fn hold(&self, key: &ServiceKey, service: &Arc<Service>, cloud: &Cloud) {
        let held = Held { service: service.clone(), cloud: cloud.clone() };
        self.lock().entry(key.clone()).or_default().held = Some(held);
    }

    /// The balancer that may exist for the Service with this UID.
    pub(super) fn held(&self, key: &ServiceKey, uid: &str) -> Option<Held> {
        self.lock().get(key)?.held.clone().filter(|held| held.service.uid == uid)
    }

    /// The Service with this UID is gone: what was held for it is owed. Says whether anything is.
    pub(super) fn gone(&self, key: &ServiceKey, uid: &str) -> bool {
        let mut memory = self.lock();
        let Some(entry) = memory.get_mut(key) else { return false };
        let owed = std::mem::take(&mut entry.owed);
        let held = entry.held.take().filter(|held| held.service.uid == uid);
        let entry = Entry { owed: owed.into_iter().chain(held).collect(), ..Entry::default() };
        let is_owed = !entry.owed.is_empty();
        if is_owed {
            memory.insert(key.clone(), entry);
        } else {
            memory.remove(key);
        }
        is_owed
    }

    /// The balancers of Services of this name that are gone.
    pub(super) fn owed(&self, key: &ServiceKey) -> Vec<Held> {
        self.lock().get(key).map(|entry| entry.owed.clone()).unwrap_or_default()
    }

    /// The names of Services that are gone and whose balancers are not.
    pub(super) fn debtors(&self) -> Vec<ServiceKey> {
        self.lock().iter().filter(|(_, entry)| !entry.owed.is_empty()).map(|(key, _)| key.clone()).collect()
    }

    /// Nothing is left in the cloud for the Service with this UID.
    pub(super) fn released(&self, key: &ServiceKey, uid: &str) {
        let mut memory = self.lock();
        let Some(entry) = memory.get_mut(key) else { return };
        entry.owed.retain(|held| held.service.uid != uid);
        entry.removed.take_if(|removed| removed == uid);
        if entry.held.as_ref().is_some_and(|held| held.service.uid == uid) {
            entry.held = None;
            (entry.news, entry.announced, entry.tried) = (false, false, None);
            (entry.unfinished, entry.noticed) = (None, Vec::new());
            entry.notes.clear();
        }
    }

    /// A cloud has lost its load balancer of the Service with this UID.
    pub(super) fn removed(&self, key: &ServiceKey, uid: &str) {
        self.lock().entry(key.clone()).or_default().removed = Some(uid.to_owned());
    }

    /// Whether a cloud has lost a load balancer of the Service with this UID, in this pass or an earlier one.
    pub(super) fn has_removed(&self, key: &ServiceKey, uid: &str) -> bool {
        self.lock().get(key).is_some_and(|entry| entry.removed.as_deref() == Some(uid))
    }

    /// A pass with these targets begins.
    pub(super) fn tries(&self, key: &ServiceKey, targets: TargetSet) {
        self.lock().entry(key.clone()).or_default().tried = Some(targets);
    }

    /// The targets that the last pass was about; `None` if there was none.
    pub(super) fn tried(&self, key: &ServiceKey) -> Option<TargetSet> {
        self.lock().get(key)?.tried.clone()
    }

    /// The work that the last pass has left; it is whoever asks that has it then.
    pub(super) fn unfinished(&self, key: &ServiceKey) -> Option<Job> {
        self.lock().get_mut(key)?.unfinished.take()
    }

    /// There is more to do once the cloud is done with this.
    pub(super) fn unfinish(&self, key: &ServiceKey, job: Job) {
        self.lock().entry(key.clone()).or_default().unfinished = Some(job);
    }

    /// The Service is to say this in its annotations.
    pub(super) fn note(&self, key: &ServiceKey, notes: &BTreeMap<String, String>) {
        if !notes.is_empty() {
            self.lock().entry(key.clone()).or_default().notes.extend(notes.clone());
        }
    }

    /// What it is to say.
    pub(super) fn notes(&self, key: &ServiceKey) -> BTreeMap<String, String> {
        self.lock().get(key).map(|entry| entry.notes.clone()).unwrap_or_default()
    }

    /// It says all of it, or is not to say it any more.
    pub(super) fn forget_notes(&self, key: &ServiceKey) {
        if let Some(entry) = self.lock().get_mut(key) {
            entry.notes.clear();
        }
    }

    /// We are about to change the annotations of this Service.
    pub(super) fn annotates(&self, key: &ServiceKey, before: &Service, change: &BTreeMap<String, Option<String>>) {
        if change.is_empty() {
            return;
        }
        let was = |name: &String| before.annotations.get(name).cloned();
        let annotating = change.iter().map(|(name, then)| (name.clone(), (was(name), then.clone())));
        self.lock().entry(key.clone()).or_default().annotating = annotating.collect();
    }

    /// Whether these annotations became those by our own hand. It is asked once for each change that is heard of: the same
    /// by another's hand, later, is that one's doing.
    pub(super) fn has_annotated(&self, key: &ServiceKey, old: &Service, new: &Service) -> bool {
        let mut memory = self.lock();
        let Some(entry) = memory.get_mut(key).filter(|entry| !entry.annotating.is_empty()) else { return false };
        let is_ours = differences(&old.annotations, &new.annotations) == entry.annotating;
        if is_ours {
            entry.annotating.clear();
        }
        is_ours
    }

    /// What is new in these notices; it no longer is afterwards.
    pub(super) fn news_in(&self, key: &ServiceKey, warnings: &[Warning]) -> Vec<Warning> {
        let mut memory = self.lock();
        let entry = memory.entry(key.clone()).or_default();
        let known = std::mem::replace(&mut entry.noticed, warnings.to_vec());
        warnings.iter().filter(|warning| !known.contains(warning)).cloned().collect()
    }

    /// We have changed `before`, and this is what the API server made of it.
    pub(super) fn wrote(&self, key: &ServiceKey, before: &Service, after: &Arc<Service>) {
        let mut memory = self.lock();
        let entry = memory.entry(key.clone()).or_default();
        let known = entry.written.take().filter(|written| written.service.resource_version == before.resource_version);
        let mut outdated = known.map(|written| written.outdated).unwrap_or_default();
        outdated.push(before.resource_version.clone());
        entry.written = Some(Written { outdated, service: after.clone(), at: Instant::now() });
    }

    /// The Service as it is now: what the store has, or what we wrote if the store has not heard of that yet.
    pub(super) fn latest(&self, key: &ServiceKey, stored: Arc<Service>) -> Arc<Service> {
        let mut memory = self.lock();
        let Some(entry) = memory.get_mut(key) else { return stored };
        match &entry.written {
            Some(written) if written.at.elapsed() < LAG && written.replaces(&stored) => written.service.clone(),
            _ => {
                entry.written = None;
                stored
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServiceKey, Entry>> {
        // Every change above leaves the map whole, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was said, and what is said, of each annotation that differs.
fn differences(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Annotating {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let differs = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    differs.map(|key| (key.clone(), (old.get(key).cloned(), new.get(key).cloned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_core::testing::service;

    fn at(version: &str) -> Arc<Service> {
        Arc::new(Service { resource_version: version.to_owned(), ..service("web/a") })
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_writes_count_before_the_store_has_heard_of_them_and_not_for_ever() {
        let (memory, key) = (Memory::default(), at("1").key());
        memory.wrote(&key, &at("1"), &at("2"));
        memory.wrote(&key, &at("2"), &at("3"));
        let latest = |stored: &str| memory.latest(&key, at(stored)).resource_version.clone();
        assert_eq!([latest("1"), latest("2")], ["3", "3"]);
        assert_eq!(latest("4"), "4", "somebody else has written since");
        assert_eq!(latest("1"), "1", "what was written is forgotten then");
        memory.wrote(&key, &at("1"), &at("2"));
        tokio::time::advance(LAG).await;
        assert_eq!(latest("1"), "1", "the API server was set back");
    }

    #[tokio::test]
    async fn a_version_that_somebody_made_before_our_write_came_is_as_outdated_as_the_one_that_we_changed() {
        let (memory, key) = (Memory::default(), at("1").key());
        let wrote = || memory.wrote(&key, &at("8"), &at("10"));
        let latest = |stored: Arc<Service>| memory.latest(&key, stored).resource_version.clone();
        wrote();
        assert_eq!([latest(at("8")), latest(at("9"))], ["10", "10"]);
        assert_eq!(latest(at("11")), "11");
        wrote();
        assert_eq!(latest(at("other")), "other", "what cannot be compared is taken as it comes");
        wrote();
        let successor = Service { uid: "another".to_owned(), ..Service::clone(&at("9")) };
        assert_eq!(latest(Arc::new(successor)), "9", "a new Service of the same name");
    }

    #[tokio::test]
    async fn a_change_that_comes_during_a_pass_is_still_news_after_it() {
        let (memory, key) = (Memory::default(), at("1").key());
        memory.news(&key);
        assert!(memory.announce(&key) && !memory.announce(&key));
        memory.news(&key);
        memory.settled(&key);
        assert!(memory.is_news(&key));
        assert!(memory.announce(&key));
        memory.settled(&key);
        assert!(!memory.is_news(&key));
    }
}
