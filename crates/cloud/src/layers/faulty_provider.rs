//! Tests of the layers with providers that violate the contract: every caller gets a correct result or an error.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bowline_core::Instance;
use futures::future::join_all;
use tokio::time::sleep;

use super::*;
use crate::fake::{named, summary, with_id};
use crate::{Absence, InstanceCapabilities, InstancePage, Instances, PageToken, Retry};

const MINUTE: Freshness = Freshness::Within(Duration::from_secs(60));

type Find = dyn Fn(&[InstanceRef]) -> Vec<Result<InstanceState>> + Send + Sync;
type List = dyn Fn(usize) -> Result<InstancePage> + Send + Sync;

/// Returns arbitrary results: `find` a function of the references, `list` a function of the page number.
struct Faulty {
    info: ProviderInfo,
    capabilities: Capabilities,
    find: Box<Find>,
    list: Box<List>,
    /// Durations of the next calls, after they have read the state.
    latencies: Mutex<Vec<Duration>>,
    lists: AtomicUsize,
}

impl Faulty {
    fn finding(find: impl Fn(&[InstanceRef]) -> Vec<Result<InstanceState>> + Send + Sync + 'static) -> Faulty {
        let instances = InstanceCapabilities { batch_lookup: 2, lookup_by_name: true, ..Default::default() };
        Faulty {
            info: ProviderInfo { name: "faulty".to_owned(), id_prefixes: vec!["c".to_owned()] },
            capabilities: Capabilities { instances: Some(instances), ..Capabilities::default() },
            find: Box::new(find),
            list: Box::new(|_| Ok(InstancePage::default())),
            latencies: Mutex::default(),
            lists: AtomicUsize::new(0),
        }
    }

    fn listing(list: impl Fn(usize) -> Result<InstancePage> + Send + Sync + 'static) -> Faulty {
        let mut faulty = Faulty::finding(|_| panic!("a listing is cheaper"));
        let instances = InstanceCapabilities {
            list_page: Some(100),
            absence: Absence::Proof,
            lookup_by_name: true,
            ..Default::default()
        };
        faulty.capabilities.instances = Some(instances);
        faulty.list = Box::new(list);
        faulty
    }

    fn layers(self) -> (Arc<Faulty>, Arc<Layered>) {
        let faulty = Arc::new(self);
        let provider = Arc::clone(&faulty) as Arc<dyn CloudProvider>;
        let layers = Layered::new(provider, "faulty", &LayerOptions::default(), &prometheus::Registry::new());
        (faulty, Arc::new(layers))
    }
}

#[async_trait]
impl Instances for Faulty {
    async fn find(&self, refs: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let results = (self.find)(refs);
        let latency = self.latencies.lock().unwrap().pop().unwrap_or_default();
        sleep(latency).await;
        results
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        (self.list)(page.map_or(0, |token| token.0.parse().unwrap()))
    }
}

#[async_trait]
impl CloudProvider for Faulty {
    fn info(&self) -> &ProviderInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }
}

fn machine(id: &str) -> Instance {
    Instance { id: id.to_owned(), name: id.to_owned(), ..Instance::default() }
}

fn running(id: &str) -> InstanceState {
    InstanceState::Running(machine(id).into())
}

fn refs(ids: &[&str]) -> Vec<InstanceRef> {
    ids.iter().map(|id| with_id(id, &format!("c://{id}"))).collect()
}

/// A page with these machines and a next page.
fn page(number: usize, ids: &[&str]) -> Result<InstancePage> {
    let machines = ids.iter().map(|id| (machine(id), false));
    Ok(InstancePage::new(machines, Some(PageToken((number + 1).to_string()))))
}

async fn look_up(layers: &Layered, refs: &[InstanceRef], freshness: Freshness) -> Vec<String> {
    layers.find_instances(refs, freshness).await.iter().map(summary).collect()
}

// ---- endless listings

#[tokio::test(start_paused = true)]
async fn an_endless_listing_of_the_same_machines_is_an_error() {
    for shown in [vec!["a"], vec![]] {
        let (faulty, layers) = Faulty::listing(move |number| page(number, &shown)).layers();
        let results = look_up(&layers, &[refs(&["gone", "lost"]), vec![named("a")]].concat(), Freshness::Now).await;
        assert_eq!(results, ["unexpected"; 3]);
        assert!(faulty.lists.load(Ordering::SeqCst) < 200);
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_listing_of_new_machines_is_an_error() {
    let (_, layers) = Faulty::listing(|number| page(number, &[&format!("m{number}")])).layers();
    // Enough lookups that a listing stays cheaper than lookups, however many pages follow.
    let gone: Vec<_> = (0..200).map(|n| format!("gone-{n}")).collect();
    let lookups = refs(&gone.iter().map(String::as_str).chain(["m7"]).collect::<Vec<_>>());
    let results = look_up(&layers, &lookups, Freshness::Now).await;
    assert_eq!((&results[200], &results[..200]), (&"m7".to_owned(), vec!["unexpected".to_owned(); 200].as_slice()));
}

#[tokio::test(start_paused = true)]
async fn some_pages_without_machines_are_accepted() {
    let list = |number: usize| match number % 100 {
        99 if number > 500 => Ok(InstancePage::new([(machine("last"), false)], None)),
        99 => page(number, &[&format!("m{number}")]),
        _ => page(number, &[]),
    };
    let (_, layers) = Faulty::listing(list).layers();
    assert_eq!(look_up(&layers, &refs(&["m99", "last", "gone"]), Freshness::Now).await, ["m99", "last", "Gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_listing_with_a_machine_without_id_is_an_error() {
    for invalid in [running(""), InstanceState::Gone, InstanceState::NotMine] {
        let instances = vec![running("a"), invalid];
        let (_, layers) =
            Faulty::listing(move |_| Ok(InstancePage { instances: instances.clone(), ..Default::default() })).layers();
        assert_eq!(look_up(&layers, &refs(&["a", "b"]), Freshness::Now).await, ["unexpected"; 2]);
    }
}

// ---- results of other machines

#[tokio::test(start_paused = true)]
async fn a_result_for_another_machine_is_an_error() {
    let reversed = |refs: &[InstanceRef]| {
        let ids = refs.iter().rev().filter_map(|machine| machine.provider_id.as_ref()?.rest());
        ids.map(|id| Ok(running(id))).collect()
    };
    let (_, layers) = Faulty::finding(reversed).layers();
    assert_eq!(look_up(&layers, &refs(&["a", "b", "c"]), Freshness::Now).await, ["unexpected", "unexpected", "c"]);
    let error = layers.find_instances(&refs(&["a", "b"]), Freshness::Now).await.remove(0).unwrap_err();
    assert_eq!(error.message(), "the provider returned the machine b for a");
}

#[tokio::test(start_paused = true)]
async fn a_result_with_an_equal_provider_id_is_accepted_whatever_its_id() {
    let find = |refs: &[InstanceRef]| {
        let provider_id = refs[0].provider_id.clone();
        vec![Ok(InstanceState::Running(Instance { provider_id, ..machine("other") }.into()))]
    };
    let (_, layers) = Faulty::finding(find).layers();
    assert_eq!(look_up(&layers, &refs(&["region/a"]), Freshness::Now).await, ["other"]);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_provider_id_in_a_result_is_an_error() {
    let foreign = || Instance { provider_id: bowline_core::ProviderId::new("d://a"), ..machine("a") };
    let find = move |refs: &[InstanceRef]| vec![Ok(InstanceState::Running(foreign().into())); refs.len()];
    let list = move |_| Ok(InstancePage::new([(foreign(), false), (machine("b"), false)], None));
    for faulty in [Faulty::finding(find), Faulty::listing(list)] {
        let (_, layers) = faulty.layers();
        assert_eq!(look_up(&layers, &[named("a"), refs(&["a"]).remove(0)], Freshness::Now).await, ["unexpected"; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_results_fail_the_whole_batch() {
    let (_, layers) = Faulty::finding(|_| vec![Ok(InstanceState::Gone); 3]).layers();
    assert_eq!(look_up(&layers, &refs(&["a", "b"]), Freshness::Now).await, ["unexpected"; 2]);
}

// ---- late or missing results

#[tokio::test(start_paused = true)]
async fn a_late_result_of_an_older_read_does_not_overwrite_a_newer_one() {
    let reads = AtomicUsize::new(0);
    let find = move |_: &[InstanceRef]| match reads.fetch_add(1, Ordering::SeqCst) {
        0 => vec![Ok(running("a"))],
        _ => vec![Ok(InstanceState::Gone)],
    };
    let (faulty, layers) = Faulty::finding(find).layers();
    *faulty.latencies.lock().unwrap() = vec![Duration::ZERO, Duration::from_secs(10)];
    let a = refs(&["a"]);
    let newer = async {
        sleep(Duration::from_secs(1)).await;
        look_up(&layers, &a, Freshness::Now).await
    };
    let (old, new) = tokio::join!(look_up(&layers, &a, Freshness::Now), newer);
    assert_eq!((old, new), (vec!["a".to_owned()], vec!["Gone".to_owned()]));
    assert_eq!(look_up(&layers, &a, MINUTE).await, ["Gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_provider_fails_all_callers_and_leaves_no_state() {
    let (_, layers) = Faulty::finding(|_| panic!("injected panic")).layers();
    for round in 0..3 {
        let callers = (0..20).map(|n| {
            let layers = Arc::clone(&layers);
            async move { look_up(&layers, &refs(&[&format!("m{round}-{n}")]), MINUTE).await }
        });
        assert_eq!(join_all(callers).await.concat(), ["unexpected"; 20]);
    }
    assert!(layers.cache.in_flight() <= 20, "{} reads in flight", layers.cache.in_flight());
}

#[tokio::test(start_paused = true)]
async fn callers_that_give_up_leave_no_state() {
    let (faulty, layers) = Faulty::finding(|refs| vec![Ok(InstanceState::Gone); refs.len()]).layers();
    *faulty.latencies.lock().unwrap() = vec![Duration::from_secs(30); 50];
    for n in 0..50 {
        let lookup = refs(&[&format!("m{n}")]);
        let impatient = tokio::time::timeout(Duration::from_secs(1), look_up(&layers, &lookup, MINUTE));
        assert!(impatient.await.is_err());
    }
    sleep(Duration::from_secs(300)).await;
    assert_eq!(layers.cache.in_flight(), 0);
}

// ---- retry advice

#[tokio::test(start_paused = true)]
async fn a_retry_delay_is_limited_to_five_minutes() {
    for kind in [ErrorKind::RateLimited, ErrorKind::Unavailable, ErrorKind::InProgress] {
        let error = move || Error::new(kind, "find", "later").retry(Retry::After(Duration::MAX));
        let (_, layers) = Faulty::finding(move |refs| refs.iter().map(|_| Err(error())).collect()).layers();
        let refused = layers.find_instances(&refs(&["a"]), Freshness::Now).await.remove(0).unwrap_err();
        assert_eq!((refused.kind(), refused.retry_advice()), (kind, Retry::After(Duration::from_secs(300))));
    }
}
