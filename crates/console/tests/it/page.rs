//! A page server with an invented document, and with actions that are recorded.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bowline_console::page::{Action, Actions, Feed, FeedError, PageOptions, PageServer, Session};
use bowline_console::{Document, Position, Publisher};
use bowline_runtime::Shutdown;
use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::task::JoinHandle;

use crate::sample::Sample;

/// A page server that runs.
pub(crate) struct Page {
    /// The document, to change it.
    pub(crate) sample: Sample,
    /// The publisher of the document, to replace it.
    pub(crate) feed: Arc<Switch>,
    /// The actions that were performed.
    pub(crate) performed: Arc<Recorder>,
    /// URL with the token.
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<()>,
}

impl Page {
    /// Serves this document, with actions.
    pub(crate) fn serve(document: Document) -> Page {
        Page::start(document, true, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Serves this document, without actions.
    pub(crate) fn serve_read_only(document: Document) -> Page {
        Page::start(document, false, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Serves this document at an address.
    pub(crate) fn start(document: Document, has_actions: bool, address: SocketAddr) -> Page {
        let sample = Sample::new(document);
        let feed = Arc::new(Switch(Mutex::new(Ok(sample.publisher()))));
        let performed = Arc::new(Recorder::default());
        let options = PageOptions {
            feed: feed.clone(),
            actions: has_actions.then(|| performed.clone() as Arc<dyn Actions>),
            session: Session {
                source: if has_actions { "playground" } else { "cluster" },
                title: "kubectl --kubeconfig kubeconfig".to_owned(),
                actions: has_actions,
                examples: if has_actions { vec!["hello".to_owned()] } else { Vec::new() },
            },
        };
        let server = PageServer::bind(address, options).unwrap();
        let (url, address, shutdown) = (server.url(), server.address(), Shutdown::new());
        let task = tokio::spawn(server.serve(shutdown.clone()));
        Page { sample, feed, performed, url, address, shutdown, task }
    }

    /// URL with the token, without the fragment of a view.
    pub(crate) fn view(&self, hash: &str) -> String {
        let (page, token) = self.url.split_once('#').unwrap();
        let separator = if hash.contains('?') { '&' } else { '?' };
        format!("{page}#/{hash}{separator}{token}")
    }

    pub(crate) fn token(&self) -> &str {
        self.url.split_once("#token=").unwrap().1
    }

    /// Stops serving, so that the address is free.
    pub(crate) async fn stop(self) {
        self.shutdown.request();
        self.task.await.unwrap();
    }
}

/// A feed that can fail, and whose publisher can be replaced.
pub(crate) struct Switch(Mutex<Result<Publisher, String>>);

impl Switch {
    pub(crate) fn set(&self, publisher: Result<Publisher, &str>) {
        *self.0.lock().unwrap() = publisher.map_err(str::to_owned);
    }
}

impl Feed for Switch {
    fn changes<'a>(&'a self, position: &'a Position) -> BoxFuture<'a, Result<Bytes, FeedError>> {
        let publisher = self.0.lock().unwrap().clone();
        Box::pin(async move { Feed::changes(&publisher.map_err(FeedError)?, position).await })
    }
}

/// Records actions. Those on the target `broken` fail.
#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<Action>>);

impl Recorder {
    /// Returns the actions since the last call.
    pub(crate) fn take(&self) -> Vec<Action> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Actions for Recorder {
    fn perform(&self, action: Action) -> BoxFuture<'_, Result<String, String>> {
        let is_broken = format!("{action:?}").contains("broken");
        self.0.lock().unwrap().push(action.clone());
        let result = match is_broken {
            true => Err("the cloud is broken; repair it first".to_owned()),
            false => Ok(format!("Performed {action:?}.")),
        };
        Box::pin(std::future::ready(result))
    }
}
