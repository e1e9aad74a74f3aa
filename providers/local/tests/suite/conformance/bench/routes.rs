//! Route bench of the local cloud.

use async_trait::async_trait;
use bowline_conformance::{ForeignRoute, RouteBench, SeenRoute};
use bowline_core::ClusterName;
use bowline_local::{NewRoute, RouteRecord};

use super::LocalBench;

#[async_trait]
impl RouteBench for LocalBench {
    async fn routes(&self, cluster: &ClusterName) -> Vec<SeenRoute> {
        self.cloud.routes(cluster.as_str()).into_iter().map(|route| to_seen(cluster, route)).collect()
    }

    async fn put_foreign(&self, cluster: &ClusterName, foreign: &ForeignRoute) -> Option<SeenRoute> {
        let ForeignRoute { destination, machine } = foreign.clone();
        let route = NewRoute {
            name: "manual".to_owned(),
            destination,
            machine,
            addresses: None,
            stamped: false,
            cluster_uid: None,
        };
        self.cloud.add_route(cluster.as_str(), route).ok().map(|route| to_seen(cluster, route))
    }
}

fn to_seen(cluster: &ClusterName, route: RouteRecord) -> SeenRoute {
    let NewRoute { destination, machine, stamped, .. } = route.spec;
    SeenRoute { id: route.id, destination, machine: Some(machine), owner: stamped.then(|| cluster.clone()) }
}
