//! Policy path of the gateway that has the routes.

use bowline_config::ConfigError;

/// A gateway: `/infra/tier-1s/<id>`, `/infra/tier-0s/<id>`, or one in a project, `/orgs/<org>/projects/<project>/infra/tier-1s/<id>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gateway {
    segments: Vec<String>,
}

impl Gateway {
    /// Parses the router path of the configuration.
    pub(crate) fn parse(path: &str) -> Result<Gateway, ConfigError> {
        let segments: Vec<_> = path.trim_matches('/').split('/').collect();
        let tail = match segments.as_slice() {
            ["orgs", org, "projects", project, tail @ ..] if !org.is_empty() && !project.is_empty() => tail,
            all => all,
        };
        match tail {
            ["infra", "tier-0s" | "tier-1s", id] if !id.is_empty() => {
                Ok(Gateway { segments: segments.into_iter().map(str::to_owned).collect() })
            }
            _ => Err(ConfigError::new(format!("{path:?} is not the policy path of a gateway"))
                .field("route.routerPath (router-path)")
                .hint("use /infra/tier-1s/ID, /infra/tier-0s/ID or /orgs/ORG/projects/PROJECT/infra/tier-1s/ID")),
        }
    }

    /// Path of the gateway for a call.
    pub(crate) fn segments(&self) -> Vec<&str> {
        self.segments.iter().map(String::as_str).collect()
    }

    /// Policy path.
    pub(crate) fn path(&self) -> String {
        format!("/{}", self.segments.join("/"))
    }

    /// Path of all routes for a call.
    pub(super) fn routes(&self) -> Vec<&str> {
        [self.segments(), vec!["static-routes"]].concat()
    }

    /// Path of one route for a call.
    pub(super) fn route<'a>(&'a self, id: &'a str) -> Vec<&'a str> {
        [self.routes(), vec![id]].concat()
    }

    /// Policy path of one route.
    pub(super) fn route_path(&self, id: &str) -> String {
        format!("{}/static-routes/{id}", self.path())
    }
}
