//! Extra routes of one router, and allowed address pairs at the ports that they lead to.

use async_trait::async_trait;
use bowline_cloud::{Error, ErrorKind, Result, Routes};
use bowline_core::{ClusterName, Route, RouteSpec};

use crate::OpenStack;

fn missing(operation: &str) -> Error {
    Error::new(ErrorKind::Unsupported, operation, "not there yet")
}

#[async_trait]
impl Routes for OpenStack {
    async fn list(&self, _: &ClusterName) -> Result<Vec<Route>> {
        Err(missing("list routes"))
    }

    async fn create(&self, _: &ClusterName, _: &RouteSpec) -> Result<Route> {
        Err(missing("create a route"))
    }

    async fn delete(&self, _: &ClusterName, _: &Route) -> Result<()> {
        Err(missing("delete a route"))
    }
}
