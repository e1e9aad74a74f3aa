//! One call: envelopes, pages, and the count under the Go manager's names.

use std::collections::BTreeSet;

use bowline_cloud::{Effect, Error};
use bowline_http::{ApiResponse, CallBuilder, Page, all_pages};
use http::{HeaderValue, Method, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Service, Session};

/// A call that has not been made yet.
#[must_use = "a call is made only when its answer is asked for"]
pub(crate) struct Call<'a> {
    session: &'a Session,
    name: &'static str,
    call: CallBuilder<'a>,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        session: &'a Session,
        name: &'static str,
        service: Service,
        method: Method,
        path: &[&str],
    ) -> Call<'a> {
        let call = session.api(service).call(name, method, path);
        // Octavia lists its versions under 300 as well as under 200.
        let is_root = service == Service::LoadBalancerRoot;
        let call = if is_root { call.accepting(StatusCode::MULTIPLE_CHOICES) } else { call };
        Call { session, name, call }
    }

    /// With these pairs, in this order.
    pub(crate) fn query(self, pairs: &[(&str, &str)]) -> Call<'a> {
        Call { call: self.call.query(pairs), ..self }
    }

    /// With a query that is encoded already.
    pub(crate) fn raw_query(self, query: &str) -> Call<'a> {
        Call { call: self.call.raw_query(query), ..self }
    }

    /// With `{envelope: body}`.
    pub(crate) fn body(self, envelope: &str, body: &Value) -> Call<'a> {
        Call { call: self.call.json(&serde_json::json!({ envelope: body })), ..self }
    }

    /// Only if the resource is still of this revision; made twice, it would find its own change.
    pub(crate) fn if_revision(self, revision: Option<u64>) -> Call<'a> {
        let value = revision.and_then(|revision| HeaderValue::try_from(format!("revision_number={revision}")).ok());
        let Some(value) = value else { return self };
        Call { call: self.call.header(header::IF_MATCH, value).effect(Effect::Write), ..self }
    }

    /// As one of which the service does not take many at once.
    pub(crate) fn limited(self) -> Call<'a> {
        Call { call: self.call.limited(), ..self }
    }

    /// Makes the call, and takes what is in the answer's envelope.
    pub(crate) async fn read<T: DeserializeOwned>(self, envelope: &str) -> Result<T, Error> {
        self.counted(async {
            let answer = self.call.send().await?;
            answer.understood(take(&mut answer.json()?, envelope))
        })
        .await
    }

    /// Makes the call; what is in the answer is of no interest.
    pub(crate) async fn done(self) -> Result<(), Error> {
        self.counted(async { self.call.send().await.map(drop) }).await
    }

    /// Makes the call, which deletes something: that it is not there is what was wanted.
    pub(crate) async fn gone(self) -> Result<(), Error> {
        self.counted(async {
            match self.call.send().await {
                Err(error) if error.is_not_found() => Ok(()),
                outcome => outcome.map(drop),
            }
        })
        .await
    }

    /// Makes the call, and as many more as the list has pages.
    pub(crate) async fn list<T: DeserializeOwned>(self, envelope: &str) -> Result<Vec<T>, Error> {
        self.counted(all_pages(self.name, |next| self.one_page(envelope, next))).await
    }

    /// Makes the call for one page of a list; its `next` is for [`Call::raw_query`].
    pub(crate) async fn page<T: DeserializeOwned>(self, envelope: &str) -> Result<Page<T>, Error> {
        self.counted(self.one_page(envelope, None)).await
    }

    async fn one_page<T: DeserializeOwned>(&self, envelope: &str, query: Option<String>) -> Result<Page<T>, Error> {
        let answer: ApiResponse = match query {
            Some(query) => self.call.clone().raw_query(&query).send().await?,
            None => self.call.send().await?,
        };
        let mut body = answer.json()?;
        let next = answer.understood(next_query(&body, envelope))?;
        let next = next.map(|next| with_filters(next, self.call.encoded_query()));
        Ok(Page { items: answer.understood(take(&mut body, envelope))?, next })
    }

    /// Counts and times what belongs to this call, however many requests that is.
    async fn counted<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let begun = tokio::time::Instant::now();
        let outcome = work.await;
        self.session.metrics.called(self.name, begun.elapsed(), outcome.is_err());
        outcome
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
