//! Rules about whose balancer it is.

use bowline_cloud::{Error, ErrorKind};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerKey, Plan, Protocol};

use crate::balancing::{Balancing, change, gone, key, port, set};
use crate::bench::{ForeignLoadBalancer, SeenResource};
use crate::capability::Capability;
use crate::scene::{CaseFailure, CaseResult, Scene, broken, require};

const ELSEWHERE: &str = "somebody-elses-cluster";

/// The same Service, in another cluster.
fn elsewhere(key: &LoadBalancerKey) -> LoadBalancerKey {
    LoadBalancerKey { cluster: ELSEWHERE.into(), ..key.clone() }
}

async fn put(work: &Balancing<'_>, name: &str, owner: Option<LoadBalancerKey>) -> CaseResult<SeenResource> {
    let foreign = ForeignLoadBalancer { name: name.to_owned(), owner, address: None };
    let put = work.hands().put_foreign(&foreign).await;
    put.ok_or_else(|| CaseFailure::BenchCannot("put a balancer of somebody else".to_owned()))
}

/// What was there then is there now, as it was.
async fn untouched(work: &Balancing<'_>, before: &[SeenResource]) -> CaseResult {
    let after = work.resources().await;
    for old in before {
        let now = after.iter().find(|new| (&new.kind, &new.id) == (&old.kind, &old.id));
        require(now == Some(old), || format!("what is not ours was touched: {old:?} became {now:?}"))?;
    }
    Ok(())
}

pub(in crate::cases) async fn foreign_is_untouched(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await, work.node("node-2").await];
    let desired = work.everything("web", &nodes)?;
    put(&work, "handmade", None).await?;
    put(&work, "another-clusters", Some(elsewhere(&key("another")))).await?;
    put(&work, "the-same-service-elsewhere", Some(elsewhere(&desired.key))).await?;
    let foreign = work.resources().await;
    let changed = work.otherwise(&desired, nodes.get(..1).unwrap_or_default())?;
    for wanted in [&desired, &changed] {
        work.fulfil(wanted).await?;
        untouched(&work, &foreign).await?;
    }
    work.remove(&desired).await?;
    work.nothing_changed_since(&foreign).await
}

pub(in crate::cases) async fn clash_names_the_owner(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    clashes(&work, &work.desired("web", &nodes)?, Some(elsewhere(&key("another")))).await?;
    clashes(&work, &work.desired("web-2", &nodes)?, None).await
}

/// Somebody else has the name that ours would have. Where names need not be unique, ours is made beside it.
async fn clashes(work: &Balancing<'_>, desired: &DesiredLoadBalancer, owner: Option<LoadBalancerKey>) -> CaseResult {
    work.fulfil(desired).await?;
    let name = work.seen(&desired.key).await?.name;
    work.remove(desired).await?;
    let foreign = put(work, &name, owner.clone()).await?;
    let before = work.resources().await;
    let came = work.attempt(desired).await?;
    untouched(work, &before).await?;
    match came {
        Ok(_) => {
            require(work.seen(&desired.key).await?.id != foreign.id, || "it took over what is not ours".to_owned())?
        }
        Err(error) => names(&error, owner.as_ref().map_or(name.as_str(), |owner| owner.cluster.as_str()))?,
    }
    work.remove(desired).await?;
    work.nothing_changed_since(&before).await
}

pub(in crate::cases) async fn clash_is_found_by_plan(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let desired = work.desired("web", &nodes)?;
    work.fulfil(&desired).await?;
    let name = work.seen(&desired.key).await?.name;
    work.remove(&desired).await?;
    put(&work, &name, Some(elsewhere(&key("another")))).await?;
    is_found_by_plan(&work, &desired).await?;
    if Capability::Shared.is_claimed(scene.provider().capabilities()) {
        let member =
            |name| Ok(set(&work.desired(name, &nodes)?, |settings| settings.share_group = Some("edge".to_owned())));
        work.fulfil(&member("one")?).await?;
        is_found_by_plan(&work, &member("other")?).await?;
    }
    Ok(())
}

/// What stands in the way is found before anything is written: if there is a plan, all of its steps can be applied.
async fn is_found_by_plan(work: &Balancing<'_>, desired: &DesiredLoadBalancer) -> CaseResult {
    let state = work.state(desired).await?;
    let Ok(plan) = work.provider()?.plan(desired, state.as_ref()) else { return Ok(()) };
    for step in &plan.steps {
        match work.apply(desired, step).await? {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return broken(format!("a clash is planned for, and found when this is applied: {step}: {error}"));
            }
            _ => {}
        }
    }
    work.remove(desired).await
}

pub(in crate::cases) async fn clusters_do_not_meet(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let here = work.desired("web", &nodes)?;
    let there = DesiredLoadBalancer { key: elsewhere(&here.key), ..here.clone() };
    work.fulfil(&here).await?;
    let ours = work.resources().await;
    has_nothing(&work, &there, "another cluster's Service of this UID").await?;
    // As after a restore of a cluster under another name: the UIDs are the same.
    match work.attempt(&there).await? {
        Ok(_) => both_clusters_have_their_own(&work, &here, &there).await?,
        // Where balancers are called by the UID alone, the name is taken.
        Err(error) => names(&error, here.key.cluster.as_str())?,
    }
    untouched(&work, &ours).await?;
    work.remove(&there).await?;
    work.nothing_changed_since(&ours).await?;
    let listed = keys(&work, &there.key.cluster).await?;
    require(listed.is_empty(), || format!("another cluster has nothing, and these are listed: {listed:?}"))
}

async fn both_clusters_have_their_own(
    work: &Balancing<'_>,
    here: &DesiredLoadBalancer,
    there: &DesiredLoadBalancer,
) -> CaseResult {
    let addresses = [work.seen(&here.key).await?.addresses, work.seen(&there.key).await?.addresses];
    let [one, other] = &addresses;
    require(one != other, || format!("two clusters have the same addresses: {addresses:?}"))?;
    for desired in [here, there] {
        let listed = keys(work, &desired.key.cluster).await?;
        let is_alone = matches!(listed.as_slice(), [mark] if mark.marks(&desired.key));
        require(is_alone, || format!("the balancers of {} are {listed:?}", desired.key.cluster))?;
    }
    Ok(())
}

/// Nothing is told of others: a state, if there is one, is about what stands in the way.
async fn has_nothing(work: &Balancing<'_>, desired: &DesiredLoadBalancer, who: &str) -> CaseResult {
    let state = work.state(desired).await?;
    let ingress = state.iter().flat_map(|state| &state.status.ingress).next();
    require(ingress.is_none(), || format!("{who} has our balancer: {ingress:?}"))?;
    let gone = work.state(&gone(desired)).await?;
    require(gone.is_none(), || format!("of {who} there is nothing to remove, and it says {gone:?}"))
}

/// It says that something stands in the way, and whose it is.
fn names(error: &Error, owner: &str) -> CaseResult {
    let (kind, text) = (error.kind(), error.to_string());
    require(kind == ErrorKind::AlreadyExists, || format!("what stands in the way is {kind:?}: {text}"))?;
    require(text.contains(owner), || format!("it does not say that {owner:?} stands in the way: {text}"))
}

async fn keys(work: &Balancing<'_>, cluster: &ClusterName) -> CaseResult<Vec<LoadBalancerKey>> {
    let keys = work.provider()?.list(cluster).await;
    keys.or_else(|error| broken(format!("an error from a sound cloud: {error}")))
}

/// A later Service of the same name.
fn successor(old: &DesiredLoadBalancer) -> DesiredLoadBalancer {
    let uid = "99999999-0000-4000-8000-000000000000".to_owned();
    DesiredLoadBalancer { key: LoadBalancerKey { uid, ..old.key.clone() }, ..old.clone() }
}

pub(in crate::cases) async fn a_new_service_of_the_name_is_another(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let old = work.desired("web", &nodes)?;
    let new = successor(&old);
    work.fulfil(&old).await?;
    let before = work.owned(&old.key).await;
    has_nothing(&work, &new, "a new Service of the name").await?;
    work.fulfil(&new).await?;
    untouched(&work, &before).await?;
    let made = work.owned(&new.key).await;
    work.remove(&old).await?;
    work.nothing_changed_since(&made).await
}

pub(in crate::cases) async fn without_uid_marks_the_name_is_the_owner(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let before = work.resources().await;
    let old = work.desired("web", &nodes)?;
    let (new, other) = (successor(&old), work.desired("web-2", &nodes)?);
    work.fulfil(&old).await?;
    work.fulfil(&other).await?;
    let (left, others) = (work.seen(&old.key).await?, work.owned(&other.key).await);
    work.rests(&new).await?;
    work.fulfil(&new).await?;
    let taken = work.seen(&new.key).await?;
    require(taken.id == left.id, || format!("the Service of the name has {}, and a new one {}", left.id, taken.id))?;
    let listed = keys(&work, &old.key.cluster).await?;
    let is_nameless = |mark: &LoadBalancerKey| mark.uid.is_empty();
    require(listed.iter().all(is_nameless), || format!("no UID is marked, and these are listed: {listed:?}"))?;
    work.remove(&new).await?;
    untouched(&work, &others).await?;
    work.remove(&other).await?;
    work.nothing_changed_since(&before).await
}

pub(in crate::cases) async fn only_adoption_takes_over(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let (plain, lonely) = (work.desired("web", &nodes)?, put(&work, "lonely", None).await?);
    let before = work.resources().await;
    work.fulfil(&plain).await?;
    untouched(&work, &before).await?;
    work.remove(&plain).await?;
    let adopting = set(&work.desired("heir", &nodes)?, |settings| settings.adopt = Some(lonely.name.clone()));
    work.fulfil(&adopting).await?;
    work.rests(&adopting).await?;
    let id = work.seen(&adopting.key).await?.id;
    require(id == lonely.id, || format!("{} was to be adopted, and it took {id}", lonely.id))?;
    let owners: Vec<_> =
        work.resources().await.into_iter().filter(|one| one.id == id && one.kind == lonely.kind).collect();
    let is_marked = |one: &SeenResource| matches!(one.owners.as_slice(), [mark] if mark.marks(&adopting.key));
    require(owners.iter().all(is_marked), || format!("it is not marked: {owners:?}"))?;
    work.remove(&adopting).await
}

pub(in crate::cases) async fn the_owned_is_not_adopted(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let plain = work.desired("web", &nodes)?;
    let taken = put(&work, "taken", Some(elsewhere(&key("another")))).await?;
    let before = work.resources().await;
    let adopting = set(&plain, |settings| settings.adopt = Some(taken.name.clone()));
    let kinds = [ErrorKind::AlreadyExists];
    refused(&work, &adopting, &kinds, "it is another's").await?;
    work.nothing_changed_since(&before).await?;
    let missing = set(&plain, |settings| settings.adopt = Some("nothing-of-this-name".to_owned()));
    refused(&work, &missing, &[ErrorKind::NotFound, ErrorKind::InvalidConfig], "there is none").await?;
    work.nothing_changed_since(&before).await
}

async fn refused(work: &Balancing<'_>, desired: &DesiredLoadBalancer, kinds: &[ErrorKind], why: &str) -> CaseResult {
    match work.attempt(desired).await? {
        Ok(_) => broken(format!("it adopts although {why}")),
        Err(error) => require(kinds.contains(&error.kind()), || {
            format!("adoption is refused because {why}, and the error is {:?}: {error}", error.kind())
        }),
    }
}

pub(in crate::cases) async fn shared_things_are_locked(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let (one, other) = (work.desired("one", &nodes)?, work.desired("other", &nodes)?);
    let capabilities = scene.provider().capabilities();
    if Capability::Adoption.is_claimed(capabilities) {
        let lonely = put(&work, "lonely", None).await?;
        let adopting = |desired| set(desired, |settings| settings.adopt = Some(lonely.name.clone()));
        let (first, second) = (work.plan(&adopting(&one)).await?, work.plan(&adopting(&other)).await?);
        have_a_lock_in_common("adopt the same load balancer", &first, &second)?;
    }
    if Capability::Shared.is_claimed(capabilities) {
        let member = |desired| set(desired, |settings| settings.share_group = Some("edge".to_owned()));
        let protocol = other.spec.iter().flat_map(|spec| &spec.ports).map(|port| port.protocol).next();
        let other = change(&other, |spec| spec.ports = vec![port(1, protocol.unwrap_or(Protocol::Tcp))]);
        let (one, other) = (member(&one), member(&other));
        let (first, second) = (work.plan(&one).await?, work.plan(&other).await?);
        have_a_lock_in_common("come to the same share group", &first, &second)?;
        work.fulfil(&one).await?;
        let (first, second) = (work.plan(&gone(&one)).await?, work.plan(&other).await?);
        have_a_lock_in_common("leave and come to the same share group", &first, &second)?;
        work.remove(&one).await?;
    }
    Ok(())
}

fn have_a_lock_in_common(what: &str, first: &Plan, second: &Plan) -> CaseResult {
    let in_common = !first.locks.is_disjoint(&second.locks);
    require(in_common, || format!("two Services {what}, with the locks {:?} and {:?}", first.locks, second.locks))
}

pub(in crate::cases) async fn retained_is_released(scene: &Scene) -> CaseResult {
    let work = Balancing::of(scene)?;
    let nodes = [work.node("node-1").await];
    let kept = set(&work.everything("web", &nodes)?, |settings| settings.policy = DeletionPolicy::Retain);
    work.fulfil(&kept).await?;
    let (mut before, name) = (work.resources().await, work.seen(&kept.key).await?.name);
    let state = work.converge(&gone(&kept)).await?;
    require(state.is_none(), || format!("it was let go, and is still ours: {state:?}"))?;
    before.iter_mut().for_each(|resource| resource.owners.retain(|mark| !mark.marks(&kept.key)));
    work.nothing_changed_since(&before).await?;
    let listed = keys(&work, &kept.key.cluster).await?;
    require(listed.is_empty(), || format!("it was let go, and is still listed: {listed:?}"))?;
    work.rests(&gone(&kept)).await?;
    // What was let go may be taken up again.
    if Capability::Adoption.is_claimed(scene.provider().capabilities()) && !name.is_empty() {
        let again = set(&kept, |settings| settings.adopt = Some(name));
        work.fulfil(&again).await?;
        return work.remove(&set(&again, |settings| settings.policy = DeletionPolicy::Delete)).await;
    }
    Ok(())
}
