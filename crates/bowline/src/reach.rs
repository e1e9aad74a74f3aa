//! The way to a cluster and its clouds: for the manager, and for the commands that look once.

use std::sync::Arc;

use bowline_cloud::{CloudProvider, Clouds};
use bowline_config::{Problem, Problems};
use bowline_controllers::manager::ManagerOptions;
use bowline_controllers::service::Routing;
use bowline_kube::ConnectError;

use crate::BadInput;
use crate::providers;
use crate::settings::Reach;

/// Providers and a client, none of which has called anybody yet.
pub(crate) struct Reached {
    pub(crate) providers: Vec<Arc<dyn CloudProvider>>,
    pub(crate) client: kube::Client,
}

impl Reached {
    /// Makes them, unless there are problems: those from before, and those that are found here, all told at once.
    pub(crate) async fn new(reach: &Reach, mut problems: Problems) -> anyhow::Result<Reached> {
        let providers = providers::build(&reach.providers, &reach.cluster, &providers::registry(), &mut problems);
        let client = match bowline_kube::connect(&reach.client).await {
            Ok(client) => Some(client),
            Err(ConnectError::Config(message)) => {
                problems.push(Problem::new(message));
                None
            }
            Err(error) if problems.is_empty() => return Err(error.into()),
            Err(_) => None,
        };
        match client {
            Some(client) if problems.is_empty() => Ok(Reached { providers, client }),
            _ => Err(BadInput::from(problems).into()),
        }
    }
}

/// Who takes Services without a class is a cloud that is there. Which names there are is known only now: two clouds of one
/// kind get names that tell them apart.
pub(crate) fn check_routing(clouds: &Clouds, options: &ManagerOptions) -> Result<(), BadInput> {
    let Some(service) = &options.service else { return Ok(()) };
    let routing = Routing::new(clouds, &service.default_cloud, service.classes);
    routing.map(drop).map_err(|error| BadInput(format!("--load-balancer-default-cloud: {error}")))
}
