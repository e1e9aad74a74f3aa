//! Credentials of the process, for the API server and for each cloud. They are reloaded when their files change.

use std::convert::Infallible;
use std::sync::Arc;

use bowline_cloud::{CloudProvider as _, Reloading};
use bowline_kube::Access;
use bowline_runtime::{Kind, Reloadable, Reloader, Shutdown, StatusBoard};
use futures::future::join_all;

/// Reloadable credentials, by name.
pub struct Credentials(Vec<(String, Arc<dyn Reloadable>)>);

impl Credentials {
    pub(crate) fn new(access: &Access, providers: &[Arc<Reloading>]) -> Credentials {
        let mut credentials = Credentials::of_clouds(providers);
        credentials.0.insert(0, ("cluster".to_owned(), Arc::new(access.clone())));
        credentials
    }

    /// Returns the credentials of these providers.
    pub fn of_clouds(providers: &[Arc<Reloading>]) -> Credentials {
        let clouds = providers.iter().map(|provider| {
            let prefix = provider.info().id_prefixes.first().map_or("", String::as_str);
            // Two clouds of the same kind get the same names as elsewhere.
            let kinds = providers.iter().filter(|other| other.info().name == provider.info().name).count();
            let name =
                if kinds == 1 { provider.info().name.clone() } else { format!("{}-{prefix}", provider.info().name) };
            (name, provider.clone() as Arc<dyn Reloadable>)
        });
        Credentials(clouds.collect())
    }

    /// Adds credentials of further API server clients.
    pub fn with(mut self, others: Vec<(&'static str, Access)>) -> Credentials {
        let others =
            others.into_iter().map(|(what, access)| (what.to_owned(), Arc::new(access) as Arc<dyn Reloadable>));
        self.0.extend(others);
        self
    }

    /// Watches and reloads all credentials until shutdown is requested.
    pub async fn watch(self, reloader: Reloader, board: StatusBoard, shutdown: Shutdown) -> Result<(), Infallible> {
        let watched = self.0.into_iter().map(|(what, subject)| {
            board.put(Kind::Credentials, what.clone(), reloader.component(&what));
            reloader.clone().watch(what, subject, shutdown.clone())
        });
        join_all(watched).await;
        Ok(())
    }
}
