//! The credentials of the process: those for the API server and those for each cloud, read again when their files change.

use std::convert::Infallible;
use std::sync::Arc;

use bowline_cloud::{CloudProvider as _, Reloading};
use bowline_kube::Access;
use bowline_runtime::{Kind, Reloadable, Reloader, Shutdown, StatusBoard};
use futures::future::join_all;

/// Each by what it is for.
pub struct Credentials(Vec<(String, Arc<dyn Reloadable>)>);

impl Credentials {
    pub(crate) fn new(access: &Access, providers: &[Arc<Reloading>]) -> Credentials {
        let cluster: (String, Arc<dyn Reloadable>) = ("cluster".to_owned(), Arc::new(access.clone()));
        let clouds = providers.iter().map(|provider| {
            let prefix = provider.info().id_prefixes.first().map_or("", String::as_str);
            // As two clouds of one kind are told apart elsewhere.
            let kinds = providers.iter().filter(|other| other.info().name == provider.info().name).count();
            let name =
                if kinds == 1 { provider.info().name.clone() } else { format!("{}-{prefix}", provider.info().name) };
            (name, provider.clone() as Arc<dyn Reloadable>)
        });
        Credentials(std::iter::once(cluster).chain(clouds).collect())
    }

    /// These, and other ways to the API server.
    pub fn and(mut self, others: Vec<(&'static str, Access)>) -> Credentials {
        let others =
            others.into_iter().map(|(what, access)| (what.to_owned(), Arc::new(access) as Arc<dyn Reloadable>));
        self.0.extend(others);
        self
    }

    /// Looks after all of them until shutdown is requested.
    pub async fn watch(self, renewals: Reloader, board: StatusBoard, shutdown: Shutdown) -> Result<(), Infallible> {
        let watched = self.0.into_iter().map(|(what, subject)| {
            board.put(Kind::Credentials, what.clone(), renewals.part(&what));
            renewals.clone().watch(what, subject, shutdown.clone())
        });
        join_all(watched).await;
        Ok(())
    }
}
