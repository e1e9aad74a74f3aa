//! Records and calls of the services: collections with the usual five calls, and a function for each other call.
//!
//! Records mirror the wire format and are tolerant: OpenStack releases differ in the fields that they omit or set to `null`. Bodies
//! have no envelope. Lists return all pages; deleting a missing resource is a success.

pub(crate) mod compute;
pub(crate) mod key_manager;
pub(crate) mod network;
pub(crate) mod octavia;

use std::collections::BTreeMap;
use std::marker::PhantomData;

use bowline_cloud::Error;
use http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::session::{Service, Session};

/// Declares records. A field that is missing or `null` is empty; `= "NAME"` is its name on the wire if it differs.
macro_rules! record {
    ($(
        $(#[$about:meta])*
        $record:ident { $($(#[$meta:meta])* $field:ident: $type:ty $(= $wire:literal)?,)+ }
    )+) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub(crate) struct $record {
            $(
                $(#[$meta])*
                $(#[serde(rename = $wire)])?
                #[serde(deserialize_with = "crate::api::nullable")]
                pub(crate) $field: $type,
            )+
        }
    )+};
}
pub(crate) use record;

/// A kind of resource that is updated and deleted by ID: its service, its names in paths and envelopes, and the metric labels of
/// its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) service: Service,
    /// Name in plan steps.
    pub(crate) name: &'static str,
    path: &'static str,
    one: &'static str,
    update: &'static str,
    delete: &'static str,
}

/// All resources of a kind.
pub(crate) struct Collection<T> {
    pub(crate) resource: Resource,
    many: &'static str,
    list: &'static str,
    get: &'static str,
    create: &'static str,
    of: PhantomData<fn() -> T>,
}

/// Declares a collection: name, envelope of one resource (that of many has an `s` more), and prefix of the metric labels. Its path
/// is the envelope of many, unless another is given.
macro_rules! collection {
    ($service:ident, $name:literal, $one:literal, $counted:literal) => {
        $crate::api::collection!($service, $name, $one, $counted, concat!($one, "s"))
    };
    ($service:ident, $name:literal, $one:literal, $counted:literal, $path:expr) => {
        $crate::api::Collection {
            resource: $crate::api::Resource {
                service: Service::$service,
                name: $name,
                path: $path,
                one: $one,
                update: concat!($counted, "_update"),
                delete: concat!($counted, "_delete"),
            },
            many: concat!($one, "s"),
            list: concat!($counted, "_list"),
            get: concat!($counted, "_get"),
            create: concat!($counted, "_create"),
            of: std::marker::PhantomData,
        }
    };
}
use collection;

impl Resource {
    pub(crate) async fn update(&self, session: &Session, id: &str, body: &Value) -> Result<(), Error> {
        let call = session.call(self.update, self.service, Method::PUT, &[self.path, id]);
        call.body(self.one, body).send().await
    }

    pub(crate) async fn delete(&self, session: &Session, id: &str) -> Result<(), Error> {
        session.call(self.delete, self.service, Method::DELETE, &[self.path, id]).send_delete().await
    }
}

impl<T: DeserializeOwned> Collection<T> {
    /// Lists all resources that match.
    pub(crate) async fn list(&self, session: &Session, query: &[(&str, &str)]) -> Result<Vec<T>, Error> {
        let Resource { service, path, .. } = self.resource;
        session.call(self.list, service, Method::GET, &[path]).query(query).list(self.many).await
    }

    pub(crate) async fn get(&self, session: &Session, id: &str) -> Result<T, Error> {
        let Resource { service, path, one, .. } = self.resource;
        session.call(self.get, service, Method::GET, &[path, id]).read(one).await
    }

    /// Returns `None` if the resource does not exist or is not visible.
    pub(crate) async fn find(&self, session: &Session, id: &str) -> Result<Option<T>, Error> {
        match self.get(session, id).await {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(Some),
        }
    }

    /// Creates a resource. Concurrent creates of a kind are limited: Octavia locks the quota of the project meanwhile, and rejects
    /// requests that wait too long for it.
    pub(crate) async fn create(&self, session: &Session, body: &Value) -> Result<T, Error> {
        let Resource { service, path, one, .. } = self.resource;
        session.call(self.create, service, Method::POST, &[path]).limited().body(one, body).read(one).await
    }
}

record! {
    /// A reference to a resource.
    Named { id: String, }
}

/// Reads `null` as the default.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Reads a map whose values may be `null` as well.
pub(crate) fn nullable_values<'de, D, T>(from: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    let values: BTreeMap<String, Option<T>> = nullable(from)?;
    Ok(values.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect())
}

/// Reads a text, which some clouds send as a number.
pub(crate) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Number(serde_json::Number),
    }
    Ok(match Option::deserialize(from)? {
        None => String::new(),
        Some(Written::Text(text)) => text,
        Some(Written::Number(number)) => number.to_string(),
    })
}
