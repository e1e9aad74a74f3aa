//! API calls: envelopes, pages, and metrics with the names of the Go manager.

use std::collections::BTreeSet;

use bowline_cloud::{Effect, Error};
use bowline_http::{ApiResponse, CallBuilder, Page, all_pages};
use http::{HeaderValue, Method, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Service, Session};

/// A call that has not been sent yet.
#[must_use = "a call is sent by `read`, `send`, `send_delete`, `list` or `page`"]
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
        // Octavia lists its versions with status 300 as well as 200.
        let is_root = service == Service::LoadBalancerRoot;
        let call = if is_root { call.accept(StatusCode::MULTIPLE_CHOICES) } else { call };
        Call { session, name, call }
    }

    /// Sets the query to these pairs, in this order.
    pub(crate) fn query(self, pairs: &[(&str, &str)]) -> Call<'a> {
        Call { call: self.call.query(pairs), ..self }
    }

    /// Sets an encoded query.
    pub(crate) fn raw_query(self, query: &str) -> Call<'a> {
        Call { call: self.call.raw_query(query), ..self }
    }

    /// Sets the body to `{envelope: body}`.
    pub(crate) fn body(self, envelope: &str, body: &Value) -> Call<'a> {
        Call { call: self.call.json(&serde_json::json!({ envelope: body })), ..self }
    }

    /// Sends it only if the resource still has this revision. It is not repeated after a lost response, because it would conflict
    /// with its own change.
    pub(crate) fn if_revision(self, revision: Option<u64>) -> Call<'a> {
        let value = revision.and_then(|revision| HeaderValue::try_from(format!("revision_number={revision}")).ok());
        let Some(value) = value else { return self };
        Call { call: self.call.header(header::IF_MATCH, value).effect(Effect::Write), ..self }
    }

    /// Limits the number of concurrent calls of this kind.
    pub(crate) fn limited(self) -> Call<'a> {
        Call { call: self.call.limited(), ..self }
    }

    /// Sends the call and returns the content of the response's envelope.
    pub(crate) async fn read<T: DeserializeOwned>(self, envelope: &str) -> Result<T, Error> {
        self.counted(async {
            let answer = self.call.send().await?;
            answer.decoded(take(&mut answer.json()?, envelope))
        })
        .await
    }

    /// Sends the call and ignores the response body.
    pub(crate) async fn send(self) -> Result<(), Error> {
        self.counted(async { self.call.send().await.map(drop) }).await
    }

    /// Sends a deletion; a missing resource is a success.
    pub(crate) async fn send_delete(self) -> Result<(), Error> {
        self.counted(async {
            match self.call.send().await {
                Err(error) if error.is_not_found() => Ok(()),
                outcome => outcome.map(drop),
            }
        })
        .await
    }

    /// Sends the call, and one more for each further page.
    pub(crate) async fn list<T: DeserializeOwned>(self, envelope: &str) -> Result<Vec<T>, Error> {
        self.counted(all_pages(self.name, |next| self.one_page(envelope, next))).await
    }

    /// Sends the call for one page; its `next` is for [`Call::raw_query`].
    pub(crate) async fn page<T: DeserializeOwned>(self, envelope: &str) -> Result<Page<T>, Error> {
        self.counted(self.one_page(envelope, None)).await
    }

    async fn one_page<T: DeserializeOwned>(&self, envelope: &str, query: Option<String>) -> Result<Page<T>, Error> {
        let answer: ApiResponse = match query {
            Some(query) => self.call.clone().raw_query(&query).send().await?,
            None => self.call.send().await?,
        };
        let mut body = answer.json()?;
        let next = answer.decoded(next_query(&body, envelope))?;
        let next = next.map(|next| with_filters(next, self.call.encoded_query()));
        Ok(Page { items: answer.decoded(take(&mut body, envelope))?, next })
    }

    /// Records the duration and outcome of this call, with all its requests.
    async fn counted<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let started = tokio::time::Instant::now();
        let outcome = work.await;
        self.session.metrics.called(self.name, started.elapsed(), outcome.is_err());
        outcome
    }
}

fn take<T: DeserializeOwned>(answer: &mut Value, envelope: &str) -> Result<T, String> {
    let inner = answer.get_mut(envelope).map(Value::take);
    let inner = inner.ok_or_else(|| format!("it has no field {envelope:?}"))?;
    serde_json::from_value(inner).map_err(|error| format!("{envelope}: {error}"))
}

/// Returns the query of the link to the next page. Its host and path are ignored: behind a proxy they are often wrong, and the
/// token must not be sent to another host. A link without a query is an error, because it would look like the end of the list.
fn next_query<'a>(answer: &'a Value, envelope: &str) -> Result<Option<&'a str>, &'static str> {
    let links = answer.get(format!("{envelope}_links")).and_then(Value::as_array);
    let is_next = |link: &&Value| link.get("rel").and_then(Value::as_str) == Some("next");
    let Some(link) = links.and_then(|links| links.iter().find(is_next)) else { return Ok(None) };
    let href = link.get("href").and_then(Value::as_str).unwrap_or_default();
    let query = href.split_once('?').map(|(_, query)| query.split_once('#').map_or(query, |(query, _)| query));
    query.filter(|query| !query.is_empty()).map(Some).ok_or("the link to the next page has no query")
}

/// Query parameters for paging; all others are filters.
const PAGING: [&str; 3] = ["marker", "limit", "page_reverse"];

/// Adds the filters of the first page, which Octavia omits in its links.
fn with_filters(next: &str, first: &str) -> String {
    let pairs = |query: &str| form_urlencoded::parse(query.as_bytes()).into_owned().collect::<Vec<_>>();
    let named: BTreeSet<_> = pairs(next).into_iter().map(|(key, _)| key).collect();
    let is_missing = |(key, _): &(String, String)| !named.contains(key) && !PAGING.contains(&key.as_str());
    let missing: Vec<_> = pairs(first).into_iter().filter(is_missing).collect();
    form_urlencoded::Serializer::new(next.to_owned()).extend_pairs(missing).finish()
}
