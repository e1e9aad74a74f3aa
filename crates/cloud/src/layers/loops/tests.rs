//! Runs of a scripted loop.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bowline_core::{PlanError, Retry, Verb};

use super::*;
use crate::fake::Fake;
use crate::layers::LayerOptions;
use crate::{Capabilities, CloudProvider, ProviderInfo, TypedProviderLoop};

/// Loop whose plan has a step for each name. The steps `optional` and `forbidden` fail, and `panics` panics.
#[derive(Default)]
struct Scripted {
    steps: Vec<&'static str>,
    error: Option<ErrorKind>,
    applied: Mutex<Vec<&'static str>>,
}

#[async_trait]
impl TypedProviderLoop for Scripted {
    type Change = &'static str;

    fn name(&self) -> &str {
        "scripted"
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn plan(&self, cluster: &ClusterSnapshot) -> Result<LoopPlan<&'static str>> {
        assert_ne!(cluster.name.as_str(), "panics");
        let step = |name: &&'static str| {
            let best_effort = (*name == "optional").then(|| "Rejected".to_owned());
            Step { best_effort, ..Step::new(Verb::Update, "rule", *name, Vec::new(), *name) }
        };
        let mut planned = LoopPlan::new("rules", self.steps.iter().map(step).collect());
        planned.plan.errors.extend(self.error.map(|kind| PlanError {
            subject: "rule".to_owned(),
            kind,
            retry: Retry::Never,
            operation: "plan rules".to_owned(),
            message: "too many".to_owned(),
        }));
        Ok(planned)
    }

    async fn apply(&self, change: &&'static str) -> Result<()> {
        assert_ne!(*change, "panics");
        if matches!(*change, "optional" | "forbidden") {
            return Err(Error::new(ErrorKind::PermissionDenied, "write rule", "forbidden"));
        }
        self.applied.lock().unwrap().push(change);
        Ok(())
    }
}

struct Provider(Fake, Arc<Scripted>);

#[async_trait]
impl CloudProvider for Provider {
    fn info(&self) -> &ProviderInfo {
        self.0.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn loops(&self) -> Vec<Arc<dyn ProviderLoop>> {
        vec![self.1.clone()]
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }
}

fn cluster(name: &str) -> ClusterSnapshot {
    ClusterSnapshot { name: name.into(), nodes: Vec::new(), paused: Vec::new(), services: Vec::new() }
}

/// Runs a loop once. Returns the applied steps, and the summary or the error.
async fn run(script: Scripted, dry_run: bool) -> (Vec<&'static str>, std::result::Result<String, String>) {
    let script = Arc::new(script);
    let options = LayerOptions { dry_run, ..LayerOptions::default() };
    let provider = Arc::new(Provider(Fake::new("c"), script.clone()));
    let layers = Layered::new(provider, "c", &options, &prometheus::Registry::new());
    let outcome = layers.run_loop("scripted", &cluster("c")).await;
    let applied = script.applied.lock().unwrap().clone();
    (applied, outcome.map(|outcome| outcome.summary).map_err(|error| error.to_string()))
}

fn steps(steps: &[&'static str]) -> Scripted {
    Scripted { steps: steps.to_vec(), ..Scripted::default() }
}

fn ok(summary: &str) -> std::result::Result<String, String> {
    Ok(summary.to_owned())
}

#[tokio::test]
async fn steps_are_applied_in_order_and_counted() {
    assert_eq!(run(steps(&["b", "a"]), false).await, (vec!["b", "a"], ok("rules; 2 steps applied")));
    assert_eq!(run(steps(&[]), false).await, (vec![], ok("rules; nothing to do")));
}

#[tokio::test]
async fn a_dry_run_applies_no_step() {
    assert_eq!(run(steps(&["a", "panics"]), true).await, (vec![], ok("rules; dry run: 2 steps not applied")));
}

#[tokio::test]
async fn a_failed_step_ends_the_run_unless_it_is_best_effort() {
    assert_eq!(run(steps(&["optional", "a"]), false).await, (vec!["a"], ok("rules; 1 step applied")));
    let (applied, outcome) = run(steps(&["a", "forbidden", "b"]), false).await;
    assert_eq!((applied, outcome), (vec!["a"], Err("write rule: forbidden".to_owned())));
}

#[tokio::test]
async fn an_error_of_the_plan_fails_the_run_after_its_steps() {
    let script = Scripted { error: Some(ErrorKind::QuotaExceeded), ..steps(&["a", "b"]) };
    assert_eq!(run(script, false).await, (vec!["a", "b"], Err("plan rules: too many".to_owned())));
}

#[tokio::test]
async fn a_panic_is_an_error() {
    let (applied, outcome) = run(steps(&["a", "panics", "b"]), false).await;
    assert_eq!((applied, outcome), (vec!["a"], Err("apply loop: the loop panicked; see the log".to_owned())));
    let provider = Arc::new(Provider(Fake::new("c"), Arc::default()));
    let layers = Layered::new(provider, "c", &LayerOptions::default(), &prometheus::Registry::new());
    let planned = layers.plan_loop("scripted", &cluster("panics")).await.map_err(|error| error.kind());
    assert_eq!(planned, Err(ErrorKind::Unexpected));
    let missing = layers.plan_loop("other", &cluster("c")).await.map_err(|error| error.kind());
    assert_eq!(missing, Err(ErrorKind::Unsupported));
}

#[tokio::test]
async fn a_step_of_another_provider_is_refused() {
    let foreign = Step::new(Verb::Update, "rule", "a", Vec::new(), bowline_core::Opaque::new(7));
    let refused = ProviderLoop::apply(&Scripted::default(), &foreign).await.map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Unexpected));
}
