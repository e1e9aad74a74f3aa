//! Shapes that no JSON value fails to be read as.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A text; anything else reads as none.
#[derive(Debug, Clone, Default)]
pub(super) struct Text(pub(super) Option<String>);

/// The texts of an object by key; other values are left out, and anything but an object reads as empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Texts(pub(super) BTreeMap<String, String>);

/// The elements of an array; anything else reads as empty.
#[derive(Debug, Clone)]
pub(super) struct List<T>(pub(super) Vec<T>);

/// The fields of an object; anything else reads as an object without fields.
#[derive(Debug, Clone, Default)]
pub(super) struct Record<T>(pub(super) T);

impl Text {
    pub(super) fn is(&self, wanted: &str) -> bool {
        self.0.as_deref() == Some(wanted)
    }

    /// The time that it spells, if it does.
    pub(super) fn time(&self) -> Option<Time> {
        self.0.as_deref()?.parse::<Timestamp>().ok().map(Time)
    }
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List(Vec::new())
    }
}

/// What to make of the JSON value that is found; what is not overridden reads as `T::default()`.
trait Shape<'de>: Default + Sized {
    fn of_text(_: String) -> Self {
        Self::default()
    }

    fn of_array<A: SeqAccess<'de>>(mut array: A) -> Result<Self, A::Error> {
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    fn of_object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

impl<'de> Shape<'de> for Text {
    fn of_text(text: String) -> Text {
        Text(Some(text))
    }
}

impl<'de> Shape<'de> for Texts {
    fn of_object<A: MapAccess<'de>>(mut object: A) -> Result<Texts, A::Error> {
        let mut texts = Vec::new();
        while let Some((key, value)) = object.next_entry::<String, Text>()? {
            texts.extend(value.0.map(|value| (key, value)));
        }
        // Made of all at once, a map is packed; grown by keys in their order, as they arrive, it is half empty.
        Ok(Texts(texts.into_iter().collect()))
    }
}

impl<'de, T: Deserialize<'de>> Shape<'de> for List<T> {
    fn of_array<A: SeqAccess<'de>>(mut array: A) -> Result<List<T>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = array.next_element()? {
            elements.push(element);
        }
        Ok(List(elements))
    }
}

impl<'de, T: Deserialize<'de> + Default> Shape<'de> for Record<T> {
    fn of_object<A: MapAccess<'de>>(object: A) -> Result<Record<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(Record)
    }
}

struct ShapeVisitor<S>(PhantomData<S>);

impl<'de, S: Shape<'de>> Visitor<'de> for ShapeVisitor<S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<S, E> {
        Ok(S::of_text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<S, E> {
        Ok(S::of_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, array: A) -> Result<S, A::Error> {
        S::of_array(array)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<S, A::Error> {
        S::of_object(object)
    }

    fn visit_bool<E>(self, _: bool) -> Result<S, E> {
        Ok(S::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<S, E> {
        Ok(S::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<S, E> {
        Ok(S::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<S, E> {
        Ok(S::default())
    }

    fn visit_unit<E>(self) -> Result<S, E> {
        Ok(S::default())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
        from.deserialize_any(ShapeVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Texts, D::Error> {
        from.deserialize_any(ShapeVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<List<T>, D::Error> {
        from.deserialize_any(ShapeVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Record<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Record<T>, D::Error> {
        from.deserialize_any(ShapeVisitor(PhantomData))
    }
}
