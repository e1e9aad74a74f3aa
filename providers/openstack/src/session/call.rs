//! One call: what is asked of whom, and how its answer is read.

use std::collections::BTreeSet;
use std::fmt::Display;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::shown;
use super::{CallError, Outgoing, Service, Session, is_unauthorized};

/// What in a segment of a path is not written as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// More pages than any list has: a service that always names a next one is not followed for ever.
const PAGES: usize = 10_000;

/// A call that has not been made yet.
#[must_use = "a call is made only when its answer is asked for"]
pub(crate) struct Call<'a> {
    session: &'a Session,
    name: &'static str,
    service: Service,
    method: Method,
    path: Result<String, CallError>,
    query: String,
    body: Bytes,
    if_match: Option<String>,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Page<T> {
    /// What is in it.
    pub(crate) items: Vec<T>,
    /// The query of the next one, for [`Call::raw_query`]; `None` on the last.
    pub(crate) next: Option<String>,
}

/// A way through the pages of a list, which must come to an end.
#[derive(Default)]
struct Walk(BTreeSet<String>);

impl Walk {
    /// On to the page with this query, unless that leads nowhere.
    fn on(&mut self, next: &str) -> Result<(), String> {
        if self.0.len() == PAGES {
            return Err(format!("the list does not end: it has more than {PAGES} pages"));
        }
        match self.0.insert(next.to_owned()) {
            true => Ok(()),
            false => Err("the list does not end: a page is named as the next one a second time".to_owned()),
        }
    }
}

impl<'a> Call<'a> {
    pub(super) fn new(
        session: &'a Session,
        name: &'static str,
        service: Service,
        method: Method,
        path: &[&str],
    ) -> Call<'a> {
        let (path, query, body, if_match) = (joined(path), String::new(), Bytes::new(), None);
        Call { session, name, service, method, path, query, body, if_match }
    }

    /// With these pairs, in this order.
    pub(crate) fn query(mut self, pairs: &[(&str, &str)]) -> Call<'a> {
        self.query = form_urlencoded::Serializer::new(self.query).extend_pairs(pairs).finish();
        self
    }

    /// With a query that is encoded already.
    pub(crate) fn raw_query(mut self, query: &str) -> Call<'a> {
        self.query = query.to_owned();
        self
    }

    /// With `{envelope: body}`.
    pub(crate) fn body(mut self, envelope: &str, body: &Value) -> Call<'a> {
        self.body = serde_json::json!({ envelope: body }).to_string().into();
        self
    }

    /// Only if the resource is still of this revision.
    pub(crate) fn if_revision(mut self, revision: Option<u64>) -> Call<'a> {
        self.if_match = revision.map(|revision| format!("revision_number={revision}"));
        self
    }

    /// Makes the call, and takes what is in the answer's envelope.
    pub(crate) async fn read<T: DeserializeOwned>(self, envelope: &str) -> Result<T, CallError> {
        self.observed(async {
            let (url, answer) = self.made(&self.query).await?;
            let mut answer = self.json(&url, &answer)?;
            self.understood(&url, take(&mut answer, envelope))
        })
        .await
    }

    /// Makes the call; what is in the answer is of no interest.
    pub(crate) async fn done(self) -> Result<(), CallError> {
        self.observed(async { self.made(&self.query).await.map(|_| ()) }).await
    }

    /// Makes the call, which deletes something: that it is not there is what was wanted.
    pub(crate) async fn gone(self) -> Result<(), CallError> {
        self.observed(async {
            match self.made(&self.query).await {
                Err(error) if error.is_not_found() => Ok(()),
                outcome => outcome.map(|_| ()),
            }
        })
        .await
    }

    /// Makes the call, and as many more as the list has pages.
    pub(crate) async fn list<T: DeserializeOwned>(self, envelope: &str) -> Result<Vec<T>, CallError> {
        self.observed(async {
            let (mut items, mut walk, mut query) = (Vec::new(), Walk::default(), self.query.clone());
            loop {
                let mut page = self.one_page(envelope, &query).await?;
                items.append(&mut page.items);
                let Some(next) = page.next else { return Ok(items) };
                self.understood(&self.path.clone()?, walk.on(&next))?;
                query = next;
            }
        })
        .await
    }

    /// Makes the call for one page of a list.
    pub(crate) async fn page<T: DeserializeOwned>(self, envelope: &str) -> Result<Page<T>, CallError> {
        self.observed(self.one_page(envelope, &self.query)).await
    }

    async fn one_page<T: DeserializeOwned>(&self, envelope: &str, query: &str) -> Result<Page<T>, CallError> {
        let (url, answer) = self.made(query).await?;
        let mut answer = self.json(&url, &answer)?;
        let next = self.understood(&url, next_query(&answer, envelope))?;
        let next = next.map(|next| with_filters(next, &self.query));
        Ok(Page { items: self.understood(&url, take(&mut answer, envelope))?, next })
    }

    /// Counts and times what belongs to this call, however many requests that is.
    async fn observed<T>(&self, work: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        let begun = tokio::time::Instant::now();
        let outcome = work.await;
        self.session.0.metrics.called(self.name, begun.elapsed(), outcome.is_err());
        outcome
    }

    /// Sends it, once more with a new token if the old one is not taken; the answer is a success.
    async fn made(&self, query: &str) -> Result<(String, Response<Bytes>), CallError> {
        let access = self.session.access().await?;
        let url = self.url(&access.endpoint(self.service)?, query)?;
        let answer = self.session.attempt(&access, self.outgoing(&url)).await?;
        if !is_unauthorized(&answer) {
            return self.judged(url, answer);
        }
        tracing::debug!(url = shown(&url), "the token is not taken any more; authenticating anew");
        let access = self.session.renewed(&access).await?;
        let url = self.url(&access.endpoint(self.service)?, query)?;
        let answer = self.session.attempt(&access, self.outgoing(&url)).await?;
        self.judged(url, answer)
    }

    fn outgoing<'b>(&'b self, url: &'b str) -> Outgoing<'b> {
        Outgoing { method: &self.method, url, body: &self.body, if_match: self.if_match.as_deref() }
    }

    fn url(&self, base: &str, query: &str) -> Result<String, CallError> {
        let path = self.path.clone()?;
        Ok(if query.is_empty() { format!("{base}{path}") } else { format!("{base}{path}?{query}") })
    }

    fn judged(&self, url: String, answer: Response<Bytes>) -> Result<(String, Response<Bytes>), CallError> {
        // Octavia lists its versions under 300 as well as under 200.
        let is_choice = answer.status() == StatusCode::MULTIPLE_CHOICES && self.service == Service::LoadBalancerRoot;
        if answer.status().is_success() || is_choice {
            return Ok((url, answer));
        }
        Err(CallError::answered(&self.method, &url, &answer))
    }

    fn json(&self, url: &str, answer: &Response<Bytes>) -> Result<Value, CallError> {
        self.understood(url, serde_json::from_slice(answer.body()))
    }

    fn understood<T, E: Display>(&self, url: &str, outcome: Result<T, E>) -> Result<T, CallError> {
        outcome.map_err(|error| CallError::garbled(&self.method, url, &error))
    }
}

/// The segments of a path, of which some are IDs that people have written.
fn joined(segments: &[&str]) -> Result<String, CallError> {
    match segments.iter().find(|segment| segment.chars().all(|c| c == '.')) {
        Some(bad) => Err(CallError::NoId((*bad).to_owned())),
        None => Ok(segments.iter().map(|s| utf8_percent_encode(s, SEGMENT).to_string()).collect::<Vec<_>>().join("/")),
    }
}

fn take<T: DeserializeOwned>(answer: &mut Value, envelope: &str) -> Result<T, String> {
    let inner = answer.get_mut(envelope).map(Value::take);
    let inner = inner.ok_or_else(|| format!("there is no {envelope:?} in it"))?;
    serde_json::from_value(inner).map_err(|error| format!("{envelope}: {error}"))
}

/// What the link to the next page asks for. Its host and path are not looked at: behind a proxy they are often wrong, and the
/// token is nobody else's business. A link that asks for nothing would pass for the end of the list.
fn next_query<'a>(answer: &'a Value, envelope: &str) -> Result<Option<&'a str>, &'static str> {
    let links = answer.get(format!("{envelope}_links")).and_then(Value::as_array);
    let is_next = |link: &&Value| link.get("rel").and_then(Value::as_str) == Some("next");
    let Some(link) = links.and_then(|links| links.iter().find(is_next)) else { return Ok(None) };
    let href = link.get("href").and_then(Value::as_str).unwrap_or_default();
    let query = href.split_once('?').map(|(_, query)| query.split_once('#').map_or(query, |(query, _)| query));
    query.filter(|query| !query.is_empty()).map(Some).ok_or("there is a next page, and no query to ask for it")
}

/// What moves through the pages of a list; everything else in a query filters it.
const MOVING: [&str; 3] = ["marker", "limit", "page_reverse"];

/// With the filters of the first page: Octavia forgets them in its links.
fn with_filters(next: &str, first: &str) -> String {
    let pairs = |query: &str| form_urlencoded::parse(query.as_bytes()).into_owned().collect::<Vec<_>>();
    let named: BTreeSet<_> = pairs(next).into_iter().map(|(key, _)| key).collect();
    let is_forgotten = |(key, _): &(String, String)| !named.contains(key) && !MOVING.contains(&key.as_str());
    let forgotten: Vec<_> = pairs(first).into_iter().filter(is_forgotten).collect();
    form_urlencoded::Serializer::new(next.to_owned()).extend_pairs(forgotten).finish()
}
