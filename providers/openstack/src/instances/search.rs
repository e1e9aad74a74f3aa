//! Which servers are meant: asked for one by one, or looked for in a listing, whichever is less work.
//!
//! ```text
//!  few questions ──────────────────────────────────► GET servers/ID, or servers?name=^NAME$, each
//!  many ──► pages of all servers ──► found there         ▲
//!                  └─ IDs not listed, names not clear ───┘
//! ```
//!
//! That a listing leaves an ID out proves nothing: a server that is to be deleted later, or that belongs to another project,
//! is not listed and yet is there. Nova is asked about that very server before it is called gone. A search for a name is a
//! listing itself, so that a name which no listed server has is settled.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline_cloud::{Error, ErrorKind, Identity, Result, Retry};
use futures::stream::{self, StreamExt as _};

use super::FIND;
use crate::OpenStack;
use crate::api::compute::{self, Server, ServerPage};

/// How many servers one page of a listing has: what Nova gives at most, unless it is set otherwise.
pub(crate) const PAGE: usize = 1000;

/// How many calls are under way at once for one question.
pub(super) const PARALLEL: usize = 4;

/// So many single questions are less work than one page, however short.
const SINGLY: usize = 4;

/// With this many more servers in the project, one more question is less work than to list them. A question is a call, as a
/// page of a thousand servers is, and clouds count calls; but Nova takes its time for a page.
const SERVERS_PER_QUESTION: usize = PAGE / SINGLY;

/// Pages in a row without a new server, and pages in all, after which a listing is given up.
const MOST_IDLE_PAGES: usize = 100;
const MOST_PAGES: usize = 10_000;

/// What came of looking for servers; `None` if there is no such server.
pub(super) type Found = HashMap<Identity, Result<Option<Server>>>;

/// How many servers the project had when they were last listed, as far as they were.
#[derive(Debug, Default)]
pub(crate) struct Census(AtomicUsize);

impl Census {
    /// As many questions as this are asked one by one.
    fn few(&self) -> usize {
        (self.0.load(Ordering::Relaxed) / SERVERS_PER_QUESTION).max(SINGLY)
    }

    /// So many were seen, and there may be more: a listing that does not get to its end in time is not begun for ever.
    fn at_least(&self, servers: usize) {
        self.0.fetch_max(servers, Ordering::Relaxed);
    }

    fn take(&self, servers: usize) {
        self.0.store(servers, Ordering::Relaxed);
    }
}

impl OpenStack {
    /// Looks for all of these, each once.
    pub(super) async fn search(&self, sought: HashSet<Identity>) -> Found {
        let mut found = Found::new();
        let mut open: Vec<_> = sought.into_iter().collect();
        if open.len() > self.census.few() {
            open = match self.search_listing(open, &mut found).await {
                Ok(open) => open,
                Err((open, error)) => {
                    found.extend(open.into_iter().map(|identity| (identity, Err(error.clone()))));
                    return found;
                }
            };
        }
        let answers = stream::iter(open).map(|identity| async move {
            let answer = self.server_of(&identity).await;
            (identity, answer)
        });
        found.extend(answers.buffer_unordered(PARALLEL).collect::<Vec<_>>().await);
        found
    }

    /// Looks through pages until few are left to look for. Returns those, or, with a page that cannot be read, all that are
    /// not found yet.
    async fn search_listing(
        &self,
        mut open: Vec<Identity>,
        found: &mut Found,
    ) -> std::result::Result<Vec<Identity>, (Vec<Identity>, Error)> {
        let (mut listed, mut pages) = (Listed::default(), Pages::default());
        loop {
            let page = match self.page(pages.next.as_deref()).await.and_then(|page| pages.turn(page)) {
                Ok(page) => page,
                Err(error) => return Err((open, error)),
            };
            let known = listed.servers;
            listed.add(page);
            pages.showed(listed.servers - known);
            if pages.next.is_none() {
                self.census.take(listed.servers);
                open = listed.settle(open, found, true);
                return Ok(self.settle_absent(&listed, open, found));
            }
            self.census.at_least(listed.servers);
            open = listed.settle(open, found, false);
            if open.len() <= self.census.few() {
                return Ok(open);
            }
        }
    }

    /// Moves the names that no server has to `found`: a listing to its end says the same of them as a search for the name. One
    /// that shows nothing at all may have been hidden from us, and proves nothing; nor does one of which something is unread.
    fn settle_absent(&self, listed: &Listed, open: Vec<Identity>, found: &mut Found) -> Vec<Identity> {
        let is_absent = |identity: &Identity| matches!(identity, Identity::Name(name) if !listed.knows(name));
        if listed.servers == 0 || listed.unread > 0 {
            return open;
        }
        let (absent, open): (Vec<_>, Vec<_>) = open.into_iter().partition(is_absent);
        found.extend(absent.into_iter().map(|identity| {
            let answer = self.absent(&identity);
            (identity, answer)
        }));
        open
    }

    /// What it means that no server here has this name.
    fn absent(&self, identity: &Identity) -> Result<Option<Server>> {
        match identity {
            Identity::Name(name) if self.config.regional => Err(elsewhere(name)),
            _ => Ok(None),
        }
    }

    /// One page of all servers.
    pub(super) async fn page(&self, after: Option<&str>) -> Result<ServerPage> {
        let limit = PAGE.to_string();
        let page = compute::servers_page(&self.session, &[("limit", &limit)], after).await;
        page.map_err(|error| error.during("list servers"))
    }

    /// Asks about this one alone.
    async fn server_of(&self, identity: &Identity) -> Result<Option<Server>> {
        match identity {
            Identity::Id(id) => self.server_of_id(id).await,
            Identity::Name(name) => self.server_of_name(name).await,
            Identity::NotMine => Ok(None),
        }
    }

    async fn server_of_id(&self, id: &str) -> Result<Option<Server>> {
        match compute::server(&self.session, id).await {
            Ok(server) => identified(server).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.during(FIND).context("server", id)),
        }
    }

    async fn server_of_name(&self, name: &str) -> Result<Option<Server>> {
        let pattern = format!("^{}$", escaped(name));
        let found = compute::servers(&self.session, &[("name", &pattern)]).await;
        let mut found = found.map_err(|error| error.during(FIND).context("name", name))?;
        match found.len() {
            0 => self.absent(&Identity::Name(name.to_owned())),
            1 => found.pop().map(identified).transpose(),
            _ => Err(ambiguous(name, &found)),
        }
    }
}

/// Where in a listing we are.
#[derive(Default)]
struct Pages {
    next: Option<String>,
    seen: HashSet<String>,
    /// How many pages in a row have shown no server that was not known.
    idle: usize,
}

impl Pages {
    /// Goes on behind `page`, unless the listing leads back to where it was, or on and on.
    fn turn(&mut self, page: ServerPage) -> Result<ServerPage> {
        self.next.clone_from(&page.next);
        match &self.next {
            Some(next) if !self.seen.insert(next.clone()) => {
                Err(endless("a page is named as the next one a second time"))
            }
            Some(_) if self.idle >= MOST_IDLE_PAGES => Err(endless("page after page shows no other server")),
            Some(_) if self.seen.len() >= MOST_PAGES => Err(endless("it has more pages than any project has")),
            _ => Ok(page),
        }
    }

    /// The page behind which we are had this many servers that were not known.
    fn showed(&mut self, new: usize) {
        self.idle = if new == 0 { self.idle + 1 } else { 0 };
    }
}

/// What the pages so far have.
#[derive(Default)]
struct Listed {
    by_id: HashMap<String, Server>,
    /// IDs by name in small letters, because Nova's own search does not tell capitals from small letters everywhere.
    by_name: HashMap<String, Vec<String>>,
    servers: usize,
    /// Servers that were listed and of which nothing is known, not even their names.
    unread: usize,
}

impl Listed {
    fn add(&mut self, page: ServerPage) {
        self.unread += page.unread;
        for server in page.servers {
            let id = server.id.clone();
            let named = self.by_name.entry(server.name.to_lowercase()).or_default();
            // Pages that move while they are read show a server twice.
            if self.by_id.insert(id.clone(), server).is_none() {
                named.push(id);
                self.servers += 1;
            }
        }
    }

    /// Moves what is certain to `found`, and returns the rest. A name is certain on the last page alone, and only if Nova
    /// could not take it for another one, and nothing is unread that may have it, too.
    fn settle(&self, open: Vec<Identity>, found: &mut Found, is_last: bool) -> Vec<Identity> {
        let (settled, open): (Vec<_>, Vec<_>) = open.into_iter().partition(|identity| self.has(identity, is_last));
        let server = |identity: &Identity| self.server(identity).cloned();
        found.extend(settled.into_iter().map(|identity| (identity.clone(), Ok(server(&identity)))));
        open
    }

    /// Some server has this name, or one that Nova could take for it.
    fn knows(&self, name: &str) -> bool {
        self.by_name.contains_key(&name.to_lowercase())
    }

    fn has(&self, identity: &Identity, is_last: bool) -> bool {
        self.server(identity).is_some() && (is_last && self.unread == 0 || matches!(identity, Identity::Id(_)))
    }

    fn server(&self, identity: &Identity) -> Option<&Server> {
        match identity {
            Identity::Id(id) => self.by_id.get(id),
            Identity::Name(name) => match self.by_name.get(&name.to_lowercase())?.as_slice() {
                [only] => self.by_id.get(only).filter(|server| server.name == *name),
                _ => None,
            },
            Identity::NotMine => None,
        }
    }
}

/// The name as a regular expression that fits nothing else.
fn escaped(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for c in name.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// The server, which must say which one it is.
fn identified(server: Server) -> Result<Server> {
    if server.id.is_empty() { Err(nameless(&server)) } else { Ok(server) }
}

/// Nova tells of a server without saying which: whatever that is, it is no answer.
fn nameless(server: &Server) -> Error {
    Error::new(ErrorKind::Unexpected, FIND, format!("Nova tells of a server {:?} without an ID", server.name))
}

fn endless(why: &str) -> Error {
    Error::new(ErrorKind::Unexpected, FIND, format!("the list of servers does not end: {why}"))
}

/// In a cluster of several regions, a server that is not here may be elsewhere.
fn elsewhere(name: &str) -> Error {
    let message = format!(
        "no server is named {name:?} in this region, and with OS_CCM_REGIONAL=true it may be in another one: the node is \
         left alone; set spec.providerID, or delete the node by hand"
    );
    // Nothing tells us when such a server comes.
    Error::new(ErrorKind::InvalidConfig, FIND, message).retry(Retry::Backoff)
}

fn ambiguous(name: &str, servers: &[Server]) -> Error {
    let ids: Vec<_> = servers.iter().map(|server| server.id.as_str()).collect();
    let message = format!("multiple results: {} servers are named {name:?}: {}", ids.len(), ids.join(", "));
    // A person mends it in the cloud, where nothing tells us: so look again now and then.
    Error::new(ErrorKind::InvalidConfig, FIND, message).retry(Retry::Backoff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(id: &str, name: &str) -> Server {
        Server { id: id.to_owned(), name: name.to_owned(), ..Server::default() }
    }

    fn page(servers: Vec<Server>) -> ServerPage {
        ServerPage { servers, ..ServerPage::default() }
    }

    #[test]
    fn case_039_a_name_stands_for_itself_alone() {
        assert_eq!(escaped("n1.example"), r"n1\.example");
        assert_eq!(escaped(r"a+b(c)|[d]{e}^$*?\"), r"a\+b\(c\)\|\[d\]\{e\}\^\$\*\?\\");
        assert_eq!(escaped("node-1"), "node-1");
    }

    #[test]
    fn an_id_is_settled_at_once_and_a_name_by_the_last_page() {
        let (id, name) = (Identity::Id("1".to_owned()), Identity::Name("b".to_owned()));
        let (mut listed, mut found) = (Listed::default(), Found::new());
        listed.add(page(vec![server("1", "a"), server("2", "b")]));
        let open = listed.settle(vec![id.clone(), name.clone()], &mut found, false);
        assert_eq!((open.as_slice(), found.contains_key(&id)), ([name].as_slice(), true));
        listed.add(page(vec![server("2", "b")]));
        assert!(listed.settle(open, &mut found, true).is_empty(), "a page that moved shows it twice");
        assert_eq!(listed.servers, 2);
    }

    #[test]
    fn a_name_that_nova_could_take_for_another_is_not_settled_by_a_listing() {
        let open: Vec<_> = ["twin", "case", "absent"].map(|name| Identity::Name(name.to_owned())).into();
        let (mut listed, mut found) = (Listed::default(), Found::new());
        listed.add(page(vec![server("1", "twin"), server("2", "Twin"), server("3", "Case")]));
        assert_eq!(listed.settle(open.clone(), &mut found, true), open);
    }

    #[test]
    fn while_something_is_unread_no_name_is_settled() {
        let open = vec![Identity::Name("a".to_owned())];
        let (mut listed, mut found) = (Listed::default(), Found::new());
        listed.add(ServerPage { unread: 1, ..page(vec![server("1", "a")]) });
        assert_eq!(listed.settle(open.clone(), &mut found, true), open);
    }

    #[test]
    fn the_more_servers_there_are_the_more_questions_are_few() {
        let census = Census::default();
        assert_eq!(census.few(), SINGLY);
        census.at_least(5 * PAGE);
        assert_eq!(census.few(), 5 * SINGLY);
        census.at_least(PAGE);
        assert_eq!(census.few(), 5 * SINGLY, "there are no fewer than were seen");
        census.take(2 * PAGE);
        assert_eq!(census.few(), 2 * SINGLY);
    }

    #[test]
    fn a_listing_that_goes_on_and_on_is_given_up() {
        let further = |n: usize| ServerPage { next: Some(n.to_string()), ..ServerPage::default() };
        let pages_until_given_up = |new: usize| {
            let mut pages = Pages::default();
            let goes_on = |n: &usize| pages.turn(further(*n)).inspect(|_| pages.showed(new)).is_ok();
            (0..2 * MOST_PAGES).take_while(goes_on).count()
        };
        assert_eq!(pages_until_given_up(0), MOST_IDLE_PAGES);
        assert_eq!(pages_until_given_up(1), MOST_PAGES - 1);
        let mut pages = Pages::default();
        assert!(pages.turn(further(1)).is_ok() && pages.turn(further(1)).is_err());
    }
}
