//! The layers around providers at their worst: whatever these do, a caller gets the truth or an error, and gets it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bowline_core::Instance;
use futures::future::join_all;
use tokio::time::sleep;

use super::*;
use crate::fake::{named, told, with_id};
use crate::{Absence, InstanceCapabilities, InstancePage, Instances, PageToken, Retry};

const MINUTE: Freshness = Freshness::Within(Duration::from_secs(60));

type Find = dyn Fn(&[InstanceRef]) -> Vec<Result<InstanceState>> + Send + Sync;
type List = dyn Fn(usize) -> Result<InstancePage> + Send + Sync;

/// Answers as it pleases: `find` what it makes of the questions, `list` what it makes of the number of the page.
struct Nasty {
    info: ProviderInfo,
    capabilities: Capabilities,
    find: Box<Find>,
    list: Box<List>,
    /// How long the next calls take, each after it has looked.
    latencies: Mutex<Vec<Duration>>,
    lists: AtomicUsize,
}

impl Nasty {
    fn finding(find: impl Fn(&[InstanceRef]) -> Vec<Result<InstanceState>> + Send + Sync + 'static) -> Nasty {
        let instances = InstanceCapabilities { batch_lookup: 2, lookup_by_name: true, ..Default::default() };
        Nasty {
            info: ProviderInfo { name: "nasty".to_owned(), id_prefixes: vec!["c".to_owned()] },
            capabilities: Capabilities { instances: Some(instances), ..Capabilities::default() },
            find: Box::new(find),
            list: Box::new(|_| Ok(InstancePage::default())),
            latencies: Mutex::default(),
            lists: AtomicUsize::new(0),
        }
    }

    fn listing(list: impl Fn(usize) -> Result<InstancePage> + Send + Sync + 'static) -> Nasty {
        let mut nasty = Nasty::finding(|_| panic!("a listing was cheaper"));
        let instances = InstanceCapabilities {
            list_page: Some(100),
            absence: Absence::Proof,
            lookup_by_name: true,
            ..Default::default()
        };
        nasty.capabilities.instances = Some(instances);
        nasty.list = Box::new(list);
        nasty
    }

    fn layers(self) -> (Arc<Nasty>, Arc<Layered>) {
        let nasty = Arc::new(self);
        let provider = Arc::clone(&nasty) as Arc<dyn CloudProvider>;
        let layers = Layered::new(provider, "nasty", &LayerOptions::default(), &prometheus::Registry::new());
        (nasty, Arc::new(layers))
    }
}

#[async_trait]
impl Instances for Nasty {
    async fn find(&self, asked: &[InstanceRef]) -> Vec<Result<InstanceState>> {
        let answers = (self.find)(asked);
        let latency = self.latencies.lock().unwrap().pop().unwrap_or_default();
        sleep(latency).await;
        answers
    }

    async fn list(&self, page: Option<&PageToken>) -> Result<InstancePage> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        (self.list)(page.map_or(0, |token| token.0.parse().unwrap()))
    }
}

#[async_trait]
impl CloudProvider for Nasty {
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

fn asked(ids: &[&str]) -> Vec<InstanceRef> {
    ids.iter().map(|id| with_id(id, &format!("c://{id}"))).collect()
}

/// A page of these machines, and another one behind it.
fn page(number: usize, ids: &[&str]) -> Result<InstancePage> {
    let machines = ids.iter().map(|id| (machine(id), false));
    Ok(InstancePage::new(machines, Some(PageToken((number + 1).to_string()))))
}

async fn ask(layers: &Layered, asked: &[InstanceRef], freshness: Freshness) -> Vec<String> {
    layers.find_instances(asked, freshness).await.iter().map(told).collect()
}

// ---- listings that do not end

#[tokio::test(start_paused = true)]
async fn a_listing_that_shows_the_same_machines_for_ever_is_given_up() {
    for shown in [vec!["a"], vec![]] {
        let (nasty, layers) = Nasty::listing(move |number| page(number, &shown)).layers();
        let answers = ask(&layers, &[asked(&["gone", "lost"]), vec![named("a")]].concat(), Freshness::Now).await;
        assert_eq!(answers, ["unexpected"; 3]);
        assert!(nasty.lists.load(Ordering::SeqCst) < 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_shows_another_machine_for_ever_is_given_up() {
    let (_, layers) = Nasty::listing(|number| page(number, &[&format!("m{number}")])).layers();
    // More machines than lookups would be worth, however many pages follow.
    let gone: Vec<_> = (0..200).map(|n| format!("gone-{n}")).collect();
    let asked = asked(&gone.iter().map(String::as_str).chain(["m7"]).collect::<Vec<_>>());
    let answers = ask(&layers, &asked, Freshness::Now).await;
    assert_eq!((&answers[200], &answers[..200]), (&"m7".to_owned(), vec!["unexpected".to_owned(); 200].as_slice()));
}

#[tokio::test(start_paused = true)]
async fn some_pages_without_machines_are_no_reason_to_give_up() {
    let list = |number: usize| match number % 100 {
        99 if number > 500 => Ok(InstancePage::new([(machine("last"), false)], None)),
        99 => page(number, &[&format!("m{number}")]),
        _ => page(number, &[]),
    };
    let (_, layers) = Nasty::listing(list).layers();
    assert_eq!(ask(&layers, &asked(&["m99", "last", "gone"]), Freshness::Now).await, ["m99", "last", "Gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_listing_with_a_machine_that_has_no_id_proves_nothing() {
    for wrong in [running(""), InstanceState::Gone, InstanceState::NotMine] {
        let instances = vec![running("a"), wrong];
        let (_, layers) =
            Nasty::listing(move |_| Ok(InstancePage { instances: instances.clone(), ..Default::default() })).layers();
        assert_eq!(ask(&layers, &asked(&["a", "b"]), Freshness::Now).await, ["unexpected"; 2]);
    }
}

// ---- answers that are somebody else's

#[tokio::test(start_paused = true)]
async fn an_answer_about_another_machine_is_an_error() {
    let backwards = |asked: &[InstanceRef]| {
        let ids = asked.iter().rev().filter_map(|asked| asked.provider_id.as_ref()?.rest());
        ids.map(|id| Ok(running(id))).collect()
    };
    let (_, layers) = Nasty::finding(backwards).layers();
    assert_eq!(ask(&layers, &asked(&["a", "b", "c"]), Freshness::Now).await, ["unexpected", "unexpected", "c"]);
    let error = layers.find_instances(&asked(&["a", "b"]), Freshness::Now).await.remove(0).unwrap_err();
    assert_eq!(error.message(), "asked about the machine a, the provider answered about b");
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_the_very_provider_id_that_was_asked_is_right_however_the_provider_cuts_it() {
    let find = |asked: &[InstanceRef]| {
        let provider_id = asked[0].provider_id.clone();
        vec![Ok(InstanceState::Running(Instance { provider_id, ..machine("otherwise") }.into()))]
    };
    let (_, layers) = Nasty::finding(find).layers();
    assert_eq!(ask(&layers, &asked(&["region/a"]), Freshness::Now).await, ["otherwise"]);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_not_the_providers_own_reaches_no_node() {
    let foreign = || Instance { provider_id: bowline_core::ProviderId::new("d://a"), ..machine("a") };
    let find = move |asked: &[InstanceRef]| vec![Ok(InstanceState::Running(foreign().into())); asked.len()];
    let list = move |_| Ok(InstancePage::new([(foreign(), false), (machine("b"), false)], None));
    for nasty in [Nasty::finding(find), Nasty::listing(list)] {
        let (_, layers) = nasty.layers();
        assert_eq!(ask(&layers, &[named("a"), asked(&["a"]).remove(0)], Freshness::Now).await, ["unexpected"; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_answers_are_an_error_for_all_that_were_asked() {
    let (_, layers) = Nasty::finding(|_| vec![Ok(InstanceState::Gone); 3]).layers();
    assert_eq!(ask(&layers, &asked(&["a", "b"]), Freshness::Now).await, ["unexpected"; 2]);
}

// ---- answers that come late or never

#[tokio::test(start_paused = true)]
async fn a_late_answer_of_an_old_read_does_not_undo_what_a_newer_one_says() {
    let looks = AtomicUsize::new(0);
    let find = move |_: &[InstanceRef]| match looks.fetch_add(1, Ordering::SeqCst) {
        0 => vec![Ok(running("a"))],
        _ => vec![Ok(InstanceState::Gone)],
    };
    let (nasty, layers) = Nasty::finding(find).layers();
    *nasty.latencies.lock().unwrap() = vec![Duration::ZERO, Duration::from_secs(10)];
    let a = asked(&["a"]);
    let newer = async {
        sleep(Duration::from_secs(1)).await;
        ask(&layers, &a, Freshness::Now).await
    };
    let (old, new) = tokio::join!(ask(&layers, &a, Freshness::Now), newer);
    assert_eq!((old, new), (vec!["a".to_owned()], vec!["Gone".to_owned()]));
    assert_eq!(ask(&layers, &a, MINUTE).await, ["Gone"]);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_panics_leaves_nobody_waiting_and_nothing_behind() {
    let (_, layers) = Nasty::finding(|_| panic!("on order")).layers();
    for round in 0..3 {
        let callers = (0..20).map(|n| {
            let layers = Arc::clone(&layers);
            async move { ask(&layers, &asked(&[&format!("m{round}-{n}")]), MINUTE).await }
        });
        assert_eq!(join_all(callers).await.concat(), ["unexpected"; 20]);
    }
    assert!(layers.cache.under_way() <= 20, "{} reads are taken for under way", layers.cache.under_way());
}

#[tokio::test(start_paused = true)]
async fn callers_that_all_give_up_leave_nothing_behind() {
    let (nasty, layers) = Nasty::finding(|asked| vec![Ok(InstanceState::Gone); asked.len()]).layers();
    *nasty.latencies.lock().unwrap() = vec![Duration::from_secs(30); 50];
    for n in 0..50 {
        let question = asked(&[&format!("m{n}")]);
        let hasty = tokio::time::timeout(Duration::from_secs(1), ask(&layers, &question, MINUTE));
        assert!(hasty.await.is_err());
    }
    sleep(Duration::from_secs(300)).await;
    assert_eq!(layers.cache.under_way(), 0);
}

// ---- advice that nobody can follow

#[tokio::test(start_paused = true)]
async fn a_pause_of_years_is_cut_to_five_minutes() {
    for kind in [ErrorKind::RateLimited, ErrorKind::Unavailable, ErrorKind::InProgress] {
        let error = move || Error::new(kind, "find", "later").retry(Retry::After(Duration::MAX));
        let (_, layers) = Nasty::finding(move |asked| asked.iter().map(|_| Err(error())).collect()).layers();
        let refused = layers.find_instances(&asked(&["a"]), Freshness::Now).await.remove(0).unwrap_err();
        assert_eq!((refused.kind(), refused.retry_advice()), (kind, Retry::After(Duration::from_secs(300))));
    }
}
