//! Start, `bowline check` and quotas.

use bowline_cloud::{CloudProvider as _, ErrorKind};
use bowline_digitalocean_simulator::{Options, Simulator};

use crate::world::{World, provider};

#[tokio::test(start_paused = true)]
async fn the_region_is_checked_or_read_from_the_metadata_service() {
    let cloud = Simulator::new(Options::default());
    let facts = provider(&cloud, &[]).start().await.unwrap();
    assert_eq!(facts.region.as_deref(), Some("nyc3"));
    let error = provider(&cloud, &[("REGION", "moon1")]).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().starts_with("failed to determine region: invalid region specified: moon1"), "{error}");
    cloud.configure(|options| options.withheld_scopes = ["regions:read".to_owned()].into());
    let error = provider(&cloud, &[]).start().await.unwrap_err();
    let text = "failed to determine region: failed to determine if region is valid: regions list request failed: GET";
    assert!(error.to_string().starts_with(text), "{error}");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    // Without REGION, the metadata service of the Droplet answers; it needs no token.
    let facts = provider(&cloud, &[("REGION", "")]).start().await.unwrap();
    assert_eq!(facts.region.as_deref(), Some("nyc3"));
}

async fn diagnosed(world: &World) -> Vec<(String, Result<String, String>)> {
    let results = world.provider.diagnose().await;
    let budgets = world.provider.calls().map(|calls| calls.check_budgets()).unwrap_or_default();
    results
        .into_iter()
        .chain(budgets)
        .map(|result| (result.subject, result.outcome.map_err(|error| error.to_string())))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_working_account_passes_every_check() {
    let cloud = Simulator::new(Options::default());
    let vpc = cloud.vpc();
    let variables = [
        ("DO_CLUSTER_VPC_ID", vpc.as_str()),
        ("PUBLIC_ACCESS_FIREWALL_NAME", "fw"),
        ("PUBLIC_ACCESS_FIREWALL_TAGS", "w"),
    ];
    let world = World::with(Options::default(), &variables).await;
    let results = diagnosed(&world).await;
    let subjects: Vec<_> = results.iter().map(|(subject, _)| subject.as_str()).collect();
    let scopes = ["scope droplet:read", "scope load_balancer:read", "scope certificate:read", "scope firewall:read"];
    let expected: Vec<_> =
        ["token"].into_iter().chain(scopes).chain(["region", "VPC", "firewall", "rate limit of api"]).collect();
    assert_eq!(subjects, expected);
    assert!(results.iter().all(|(_, outcome)| outcome.is_ok()), "{results:?}");
    let quotas = world.provider.quotas().await.unwrap();
    assert_eq!((quotas[0].resource.as_str(), quotas[0].used), ("droplets", 2));
    assert!(world.cloud.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_problem_of_an_account_is_named() {
    let world = World::with(Options::default(), &[("DO_CLUSTER_VPC_ID", "nope")]).await;
    world.cloud.configure(|options| options.withheld_scopes = ["certificate:read".to_owned()].into());
    let failed: Vec<_> =
        diagnosed(&world).await.into_iter().filter_map(|(subject, outcome)| Some((subject, outcome.err()?))).collect();
    assert_eq!(
        failed.iter().map(|(subject, _)| subject.as_str()).collect::<Vec<_>>(),
        ["scope certificate:read", "VPC"]
    );
    assert!(
        failed[0].1.contains("scope needed=certificate:read") && failed[1].1.contains("DO_CLUSTER_VPC_ID"),
        "{failed:?}"
    );
    world.cloud.configure(|options| options.token = "replaced".to_owned());
    let rejected = diagnosed(&world).await;
    let subjects: Vec<_> = rejected.iter().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(subjects, ["token", "rate limit of api"]);
    assert!(rejected[0].1.as_ref().unwrap_err().contains("Unable to authenticate you."), "{rejected:?}");
}

#[tokio::test(start_paused = true)]
async fn a_nearly_used_up_rate_limit_is_reported() {
    let world = World::with(Options { hourly_limit: 40, ..Options::default() }, &[]).await;
    for _ in 0..34 {
        let _ = world.provider.check().await;
    }
    let results = diagnosed(&world).await;
    let (_, rate) = results.last().unwrap();
    assert!(rate.as_ref().is_err_and(|error| error.contains("of 40 calls remain")), "{results:?}");
}
