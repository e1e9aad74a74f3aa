//! Rules about ownership.

use bowline_cloud::{Error, ErrorKind};
use bowline_core::annotations::DeletionPolicy;
use bowline_core::{ClusterName, DesiredLoadBalancer, LoadBalancerKey, Plan, Protocol};

use crate::bench::{ForeignLoadBalancer, SeenResource};
use crate::capability::Capability;
use crate::context::{CaseContext, CaseFailure, CaseResult, fail, require};
use crate::load_balancer_fixture::{LoadBalancerFixture, key, port, with_settings, with_spec, without_spec};

const OTHER_CLUSTER: &str = "other-cluster";

/// The same Service in another cluster.
fn in_other_cluster(key: &LoadBalancerKey) -> LoadBalancerKey {
    LoadBalancerKey { cluster: OTHER_CLUSTER.into(), ..key.clone() }
}

/// Creates a load balancer as another client would.
async fn put_foreign(
    fixture: &LoadBalancerFixture<'_>,
    name: &str,
    owner: Option<LoadBalancerKey>,
) -> CaseResult<SeenResource> {
    let foreign = ForeignLoadBalancer { name: name.to_owned(), owner, kind: fixture.fixed_kind()?, address: None };
    let put = fixture.controls().put_foreign(&foreign).await;
    put.ok_or_else(|| CaseFailure::BenchCannot("create a load balancer of another owner".to_owned()))
}

/// Verifies that these resources still exist and have not changed.
async fn verify_untouched(fixture: &LoadBalancerFixture<'_>, before: &[SeenResource]) -> CaseResult {
    let after = fixture.resources().await;
    for old in before {
        let now = after.iter().find(|new| (&new.kind, &new.id) == (&old.kind, &old.id));
        require(now == Some(old), || format!("a resource of another owner changed from {old:?} to {now:?}"))?;
    }
    Ok(())
}

pub(in crate::cases) async fn foreign_is_untouched(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await, fixture.node("node-2").await];
    let desired = fixture.full_featured("web", &nodes)?;
    put_foreign(&fixture, "manual", None).await?;
    put_foreign(&fixture, "another-clusters", Some(in_other_cluster(&key("another")))).await?;
    put_foreign(&fixture, "same-service-elsewhere", Some(in_other_cluster(&desired.key))).await?;
    let foreign = fixture.resources().await;
    let changed = fixture.changed(&desired, nodes.get(..1).unwrap_or_default())?;
    for wanted in [&desired, &changed] {
        fixture.sync_and_verify(wanted).await?;
        verify_untouched(&fixture, &foreign).await?;
    }
    fixture.delete_and_verify(&desired).await?;
    fixture.verify_unchanged(&foreign).await
}

pub(in crate::cases) async fn clash_names_the_owner(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    verify_clash(&fixture, &fixture.desired("web", &nodes)?, Some(in_other_cluster(&key("another")))).await?;
    if fixture.controls().names_are_marks() {
        return Ok(());
    }
    verify_clash(&fixture, &fixture.desired("web-2", &nodes)?, None).await
}

/// Syncs while another owner's load balancer has the name. Where names need not be unique, the sync succeeds.
async fn verify_clash(
    fixture: &LoadBalancerFixture<'_>,
    desired: &DesiredLoadBalancer,
    owner: Option<LoadBalancerKey>,
) -> CaseResult {
    fixture.sync_and_verify(desired).await?;
    let name = fixture.load_balancer(&desired.key).await?.name;
    fixture.delete_and_verify(desired).await?;
    let foreign = put_foreign(fixture, &name, owner.clone()).await?;
    let before = fixture.resources().await;
    let result = fixture.try_sync(desired).await?;
    verify_untouched(fixture, &before).await?;
    match result {
        Ok(_) => require(fixture.load_balancer(&desired.key).await?.id != foreign.id, || {
            "the sync took over a load balancer of another owner".to_owned()
        })?,
        Err(error) => verify_names_owner(&error, owner.as_ref().map_or(name.as_str(), |owner| owner.cluster.as_str()))?,
    }
    fixture.delete_and_verify(desired).await?;
    fixture.verify_unchanged(&before).await
}

pub(in crate::cases) async fn clash_is_found_by_plan(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let desired = fixture.desired("web", &nodes)?;
    fixture.sync_and_verify(&desired).await?;
    let name = fixture.load_balancer(&desired.key).await?.name;
    fixture.delete_and_verify(&desired).await?;
    put_foreign(&fixture, &name, Some(in_other_cluster(&key("another")))).await?;
    verify_clash_in_plan(&fixture, &desired).await?;
    if fixture.claims(Capability::Shared)? {
        let member = |name| {
            Ok(with_settings(&fixture.desired(name, &nodes)?, |settings| {
                settings.share_group = Some("edge".to_owned())
            }))
        };
        fixture.sync_and_verify(&member("one")?).await?;
        verify_clash_in_plan(&fixture, &member("other")?).await?;
    }
    Ok(())
}

/// Verifies that a clash is detected before the first write: if planning succeeds, no step fails with `AlreadyExists`.
async fn verify_clash_in_plan(fixture: &LoadBalancerFixture<'_>, desired: &DesiredLoadBalancer) -> CaseResult {
    let state = fixture.state(desired).await?;
    let Ok(plan) = fixture.provider()?.plan(desired, state.as_ref()) else { return Ok(()) };
    for step in &plan.steps {
        match fixture.apply(desired, step).await? {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return fail(format!("the clash was detected only when this step was applied: {step}: {error}"));
            }
            _ => {}
        }
    }
    fixture.delete_and_verify(desired).await
}

pub(in crate::cases) async fn clusters_are_isolated(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let here = fixture.desired("web", &nodes)?;
    let there = DesiredLoadBalancer { key: in_other_cluster(&here.key), ..here.clone() };
    let elsewhere = fixture.of_cluster(&there.key.cluster);
    fixture.sync_and_verify(&here).await?;
    let ours = fixture.resources().await;
    verify_owns_nothing(&elsewhere, &there, "another cluster's Service with the same UID").await?;
    // After a restore of a cluster under another name the UIDs are the same.
    match elsewhere.try_sync(&there).await? {
        Ok(_) => verify_both_clusters((&fixture, &here), (&elsewhere, &there)).await?,
        // The name is taken if the cloud names load balancers by the UID alone.
        Err(error) => verify_names_owner(&error, here.key.cluster.as_str())?,
    }
    verify_untouched(&fixture, &ours).await?;
    elsewhere.delete_and_verify(&there).await?;
    fixture.verify_unchanged(&ours).await?;
    let listed = list_keys(&elsewhere, &there.key.cluster).await?;
    require(listed.is_empty(), || format!("the other cluster has no load balancers, but these are listed: {listed:?}"))
}

/// Fixture of a cluster, and its Service.
type InCluster<'a> = (&'a LoadBalancerFixture<'a>, &'a DesiredLoadBalancer);

async fn verify_both_clusters(here: InCluster<'_>, there: InCluster<'_>) -> CaseResult {
    let mut addresses = Vec::new();
    for (fixture, desired) in [here, there] {
        addresses.push(fixture.load_balancer(&desired.key).await?.addresses);
        let (provider, listed) = (fixture.provider()?, list_keys(fixture, &desired.key.cluster).await?);
        let is_alone = matches!(listed.as_slice(), [mark] if provider.is_owner(mark, &without_spec(desired)));
        require(is_alone, || format!("the listing of {} has {listed:?}", desired.key.cluster))?;
    }
    require(addresses.first() != addresses.last(), || format!("two clusters have the same addresses: {addresses:?}"))
}

/// Verifies that no load balancer is reported for this Service. A state, if there is one, is only about the clash.
async fn verify_owns_nothing(
    fixture: &LoadBalancerFixture<'_>,
    desired: &DesiredLoadBalancer,
    who: &str,
) -> CaseResult {
    let state = fixture.state(desired).await?;
    let ingress = state.iter().flat_map(|state| &state.status.ingress).next();
    require(ingress.is_none(), || format!("{who} is reported with our load balancer: {ingress:?}"))?;
    let gone = fixture.state(&without_spec(desired)).await?;
    require(gone.is_none(), || format!("{who} has nothing to delete, but its state is {gone:?}"))
}

/// Verifies that the error is `AlreadyExists` and names the owner.
fn verify_names_owner(error: &Error, owner: &str) -> CaseResult {
    let (kind, text) = (error.kind(), error.to_string());
    require(kind == ErrorKind::AlreadyExists, || format!("clash: expected `AlreadyExists`, got {kind:?}: {text}"))?;
    require(text.contains(owner), || format!("the error does not name {owner:?}: {text}"))
}

async fn list_keys(fixture: &LoadBalancerFixture<'_>, cluster: &ClusterName) -> CaseResult<Vec<LoadBalancerKey>> {
    let keys = fixture.provider()?.list(cluster).await;
    keys.or_else(|error| fail(format!("a healthy cloud returned an error: {error}")))
}

/// Service with the same name and another UID.
fn recreated(old: &DesiredLoadBalancer) -> DesiredLoadBalancer {
    let uid = "99999999-0000-4000-8000-000000000000".to_owned();
    DesiredLoadBalancer { key: LoadBalancerKey { uid, ..old.key.clone() }, ..old.clone() }
}

pub(in crate::cases) async fn recreated_service_is_another(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let old = fixture.desired("web", &nodes)?;
    let new = recreated(&old);
    fixture.sync_and_verify(&old).await?;
    let before = fixture.owned_by(&old.key).await;
    verify_owns_nothing(&fixture, &new, "the recreated Service").await?;
    fixture.sync_and_verify(&new).await?;
    verify_untouched(&fixture, &before).await?;
    let created = fixture.owned_by(&new.key).await;
    fixture.delete_and_verify(&old).await?;
    fixture.verify_unchanged(&created).await
}

pub(in crate::cases) async fn without_uid_marks_the_name_is_the_owner(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let before = fixture.resources().await;
    let old = fixture.desired("web", &nodes)?;
    let (new, other) = (recreated(&old), fixture.desired("web-2", &nodes)?);
    fixture.sync_and_verify(&old).await?;
    fixture.sync_and_verify(&other).await?;
    let (left, others) = (fixture.load_balancer(&old.key).await?, fixture.owned_by(&other.key).await);
    fixture.verify_no_changes(&new).await?;
    fixture.sync_and_verify(&new).await?;
    let taken = fixture.load_balancer(&new.key).await?;
    require(taken.id == left.id, || format!("the recreated Service has {}, expected {}", taken.id, left.id))?;
    let listed = list_keys(&fixture, &old.key.cluster).await?;
    let has_no_uid = |mark: &LoadBalancerKey| mark.uid.is_empty();
    require(listed.iter().all(has_no_uid), || {
        format!("UID marks are not claimed, but keys are listed with UID: {listed:?}")
    })?;
    fixture.delete_and_verify(&new).await?;
    verify_untouched(&fixture, &others).await?;
    fixture.delete_and_verify(&other).await?;
    fixture.verify_unchanged(&before).await
}

pub(in crate::cases) async fn only_adoption_takes_over(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let (plain, unowned) = (fixture.desired("web", &nodes)?, put_foreign(&fixture, "unowned", None).await?);
    let before = fixture.resources().await;
    fixture.sync_and_verify(&plain).await?;
    verify_untouched(&fixture, &before).await?;
    fixture.delete_and_verify(&plain).await?;
    let adopting =
        with_settings(&fixture.desired("adopter", &nodes)?, |settings| settings.adopt = Some(unowned.name.clone()));
    fixture.sync_and_verify(&adopting).await?;
    fixture.verify_no_changes(&adopting).await?;
    let id = fixture.load_balancer(&adopting.key).await?.id;
    require(id == unowned.id, || format!("the Service should have adopted {}, but has {id}", unowned.id))?;
    let owners: Vec<_> =
        fixture.resources().await.into_iter().filter(|one| one.id == id && one.kind == unowned.kind).collect();
    let is_marked =
        |one: &SeenResource| matches!(one.owners.as_slice(), [mark] if fixture.is_mark_of(mark, &adopting.key));
    require(owners.iter().all(is_marked), || format!("the adopted load balancer is not marked: {owners:?}"))?;
    fixture.delete_and_verify(&adopting).await
}

pub(in crate::cases) async fn owned_is_not_adopted(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let plain = fixture.desired("web", &nodes)?;
    let taken = put_foreign(&fixture, "taken", Some(in_other_cluster(&key("another")))).await?;
    let before = fixture.resources().await;
    let adopting = with_settings(&plain, |settings| settings.adopt = Some(taken.name.clone()));
    let kinds = [ErrorKind::AlreadyExists];
    verify_rejected(&fixture, &adopting, &kinds, "it has another owner").await?;
    fixture.verify_unchanged(&before).await?;
    let missing = with_settings(&plain, |settings| settings.adopt = Some("no-such-load-balancer".to_owned()));
    verify_rejected(&fixture, &missing, &[ErrorKind::NotFound, ErrorKind::InvalidConfig], "it does not exist").await?;
    fixture.verify_unchanged(&before).await
}

async fn verify_rejected(
    fixture: &LoadBalancerFixture<'_>,
    desired: &DesiredLoadBalancer,
    kinds: &[ErrorKind],
    why: &str,
) -> CaseResult {
    match fixture.try_sync(desired).await? {
        Ok(_) => fail(format!("a load balancer was adopted although {why}")),
        Err(error) => require(kinds.contains(&error.kind()), || {
            format!("adoption, although {why}: expected an error of kind {kinds:?}, got {:?}: {error}", error.kind())
        }),
    }
}

pub(in crate::cases) async fn shared_resources_are_locked(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let (one, other) = (fixture.desired("one", &nodes)?, fixture.desired("other", &nodes)?);
    let (adopts, shares) = (fixture.claims(Capability::Adoption)?, fixture.claims(Capability::Shared)?);
    if !adopts && !shares {
        return Err(CaseFailure::NotApplicable("no adoption and no sharing"));
    }
    if adopts {
        let unowned = put_foreign(&fixture, "unowned", None).await?;
        let adopting = |desired| with_settings(desired, |settings| settings.adopt = Some(unowned.name.clone()));
        let (first, second) = (fixture.plan(&adopting(&one)).await?, fixture.plan(&adopting(&other)).await?);
        verify_common_lock("adopt the same load balancer", &first, &second)?;
    }
    if shares {
        let member = |desired| with_settings(desired, |settings| settings.share_group = Some("edge".to_owned()));
        let protocol = other.spec.iter().flat_map(|spec| &spec.ports).map(|port| port.protocol).next();
        let other = with_spec(&other, |spec| spec.ports = vec![port(1, protocol.unwrap_or(Protocol::Tcp))]);
        let (one, other) = (member(&one), member(&other));
        let (first, second) = (fixture.plan(&one).await?, fixture.plan(&other).await?);
        verify_common_lock("join the same share group", &first, &second)?;
        fixture.sync_and_verify(&one).await?;
        let (first, second) = (fixture.plan(&without_spec(&one)).await?, fixture.plan(&other).await?);
        verify_common_lock("leave and join the same share group", &first, &second)?;
        fixture.delete_and_verify(&one).await?;
    }
    Ok(())
}

fn verify_common_lock(what: &str, first: &Plan, second: &Plan) -> CaseResult {
    let in_common = !first.locks.is_disjoint(&second.locks);
    require(in_common, || {
        format!("two Services {what} without a common lock: {:?} and {:?}", first.locks, second.locks)
    })
}

pub(in crate::cases) async fn retained_is_released(context: &CaseContext) -> CaseResult {
    let fixture = LoadBalancerFixture::new(context)?;
    let nodes = [fixture.node("node-1").await];
    let kept =
        with_settings(&fixture.full_featured("web", &nodes)?, |settings| settings.policy = DeletionPolicy::Retain);
    fixture.sync_and_verify(&kept).await?;
    let (mut before, name) = (fixture.resources().await, fixture.load_balancer(&kept.key).await?.name);
    let state = fixture.sync(&without_spec(&kept)).await?;
    require(state.is_none(), || format!("the released load balancer is still observed: {state:?}"))?;
    before.iter_mut().for_each(|resource| resource.owners.retain(|mark| !fixture.is_mark_of(mark, &kept.key)));
    fixture.verify_unchanged(&before).await?;
    let listed = list_keys(&fixture, &kept.key.cluster).await?;
    require(listed.is_empty(), || format!("the released load balancer is still listed: {listed:?}"))?;
    fixture.verify_no_changes(&without_spec(&kept)).await?;
    // A released load balancer can be adopted.
    if fixture.claims(Capability::Adoption)? && !name.is_empty() {
        let again = with_settings(&kept, |settings| settings.adopt = Some(name));
        fixture.sync_and_verify(&again).await?;
        return fixture
            .delete_and_verify(&with_settings(&again, |settings| settings.policy = DeletionPolicy::Delete))
            .await;
    }
    Ok(())
}
