//! Rate limit: a lookup costs one token per HTTP call.

use std::sync::Arc;
use std::time::Duration;

use bowline_cloud::layers::{LayerOptions, Layered};
use bowline_cloud::{CallPolicy, Calls, Freshness};
use bowline_openstack_simulator::{NewServer, Options, Simulator};
use tokio::time::Instant;

use crate::machines::cloud::{provider_past, with_id};

/// All HTTP calls that the metrics have counted.
fn counted(registry: &prometheus::Registry) -> u64 {
    let families = registry.gather();
    let calls = families.iter().find(|family| family.name() == "bowline_cloud_calls_total").unwrap();
    calls.get_metric().iter().map(|metric| metric.get_counter().get_value() as u64).sum()
}

/// As with `--cloud-qps=10 --cloud-burst=1`. On paused time, only the rate limit takes time.
#[tokio::test(start_paused = true)]
async fn a_thousand_lookups_take_one_rate_limit_token_per_http_call() {
    let (simulator, registry) = (Simulator::new(Options::default()), prometheus::Registry::new());
    let id = simulator.add_server(NewServer::named("node-0"));
    let calls = Calls::new(CallPolicy { rate: Some(10.0), burst: 1, ..CallPolicy::default() });
    let provider = Arc::new(provider_past(&simulator, &calls, |_| {}));
    let layers = Layered::new(provider, "openstack", &LayerOptions::default(), &registry);
    let (lookup, started) = (with_id("node-0", &format!("openstack:///{id}")), Instant::now());
    for _ in 0..1000 {
        let answers = layers.find_instances(std::slice::from_ref(&lookup), Freshness::Now).await;
        assert!(answers[0].is_ok(), "{answers:?}");
    }
    let calls_made: u64 = simulator.counts().values().sum();
    assert_eq!(calls_made, 2002, "a server and its ports each time; a token and a flavor once");
    assert_eq!(counted(&registry), calls_made);
    let tokens = 1 + started.elapsed().as_millis() / Duration::from_millis(100).as_millis();
    assert_eq!(tokens, u128::from(calls_made));
}
