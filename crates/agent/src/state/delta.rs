//! Difference between two states, which the active agent sends to its standbys.

use std::sync::Arc;

use bowline_agent_client::RouteRecord;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{State, World};
use crate::balancers::BalancersPatch;
use crate::routes::RouteTable;
use crate::version::{ClaimId, Position, Version};

/// Changes from the state of one version to that of another. Without changes, it announces a claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Delta {
    /// Version that the standby must have.
    pub(crate) from: Version,
    pub(crate) to: Version,
    /// Claim of the active agent.
    pub(crate) claim: ClaimId,
    balancers: BalancersPatch,
    #[serde(default)]
    set_routes: Vec<(String, Arc<RouteRecord>)>,
    #[serde(default)]
    remove_routes: Vec<(String, IpNet)>,
    last_route_id: u64,
}

impl Delta {
    /// Changes that lead from one state to the other.
    pub(crate) fn between(before: &State, after: &State) -> Delta {
        let (set_routes, remove_routes) = difference(&before.world.routes, &after.world.routes);
        Delta {
            from: before.position.version,
            to: after.position.version,
            claim: after.position.accepted,
            balancers: after.world.balancers.patch_from(&before.world.balancers),
            set_routes,
            remove_routes,
            last_route_id: after.world.routes.last(),
        }
    }

    /// Returns the state after the changes.
    pub(crate) fn apply(self, state: &State) -> State {
        let mut world: World = state.world.clone();
        world.balancers.patch(self.balancers);
        world.routes.patch(&self.set_routes, &self.remove_routes, self.last_route_id);
        State { position: Position { accepted: self.claim, version: self.to }, world }
    }
}

type RouteChanges = (Vec<(String, Arc<RouteRecord>)>, Vec<(String, IpNet)>);

fn difference(before: &RouteTable, after: &RouteTable) -> RouteChanges {
    let is_same = |cluster: &str, route: &Arc<RouteRecord>| {
        before.at(cluster, &route.destination).is_some_and(|old| Arc::ptr_eq(old, route))
    };
    let changed = after.iter().filter(|(cluster, route)| !is_same(cluster, route));
    let removed = before.iter().filter(|(cluster, route)| after.at(cluster, &route.destination).is_none());
    (
        changed.map(|(cluster, route)| (cluster.to_owned(), route.clone())).collect(),
        removed.map(|(cluster, route)| (cluster.to_owned(), route.destination)).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Stored;
    use crate::testing::records::{Random, json_of};

    #[test]
    fn a_delta_leads_from_one_state_to_the_other_in_every_random_history() {
        let mut random = Random::new(7);
        let (mut state, mut copy) = (State::default(), State::default());
        for step in 0..2_000 {
            let after = random.change(&state);
            let delta = Delta::between(&state, &after);
            let text = serde_json::to_string(&delta).unwrap();
            copy = serde_json::from_str::<Delta>(&text).unwrap().apply(&copy);
            state = after;
            assert_eq!(json_of(&copy), json_of(&state), "{step}");
            if step % 100 == 0 {
                copy = Stored::from(&state).restore().unwrap();
            }
        }
        assert!(random.accepted > 400, "{}", random.accepted);
    }

    #[test]
    fn a_delta_between_equal_states_has_no_records() {
        let state = Random::new(1).state(50);
        let mut claimed = state.clone();
        claimed.position.accepted = ClaimId { term: 9, nonce: 1 };
        let text = serde_json::to_value(Delta::between(&state, &claimed)).unwrap();
        assert_eq!(
            (&text["balancers"]["setBalancers"], &text["setRoutes"]),
            (&serde_json::json!([]), &serde_json::json!([]))
        );
        assert_eq!(text["claim"]["term"], 9);
    }
}
