//! Lenient types: any JSON value parses as any of them.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use jiff::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// String; any other value parses as none.
#[derive(Debug, Clone, Default)]
pub(super) struct Text(pub(super) Option<String>);

/// Integer; any other value parses as none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Number(pub(super) Option<i64>);

/// Integer or string; any other value parses as `Neither`.
#[derive(Debug, Clone, Default)]
pub(super) enum NumberOrText {
    #[default]
    Neither,
    Number(i64),
    Text(String),
}

/// Map of strings; values of other types are skipped, and anything but an object parses as empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Texts(pub(super) BTreeMap<String, String>);

/// Array; any other value parses as empty.
#[derive(Debug, Clone)]
pub(super) struct List<T>(pub(super) Vec<T>);

/// Object; any other value parses as an object without fields.
#[derive(Debug, Clone, Default)]
pub(super) struct Record<T>(pub(super) T);

impl Text {
    pub(super) fn is(&self, expected: &str) -> bool {
        self.0.as_deref() == Some(expected)
    }

    /// The string, if not empty. In the API, an empty optional string means unset.
    pub(super) fn non_empty(self) -> Option<String> {
        self.0.filter(|text| !text.is_empty())
    }

    /// Parses an RFC 3339 time.
    pub(super) fn time(&self) -> Option<Timestamp> {
        self.0.as_deref()?.parse().ok()
    }
}

impl Number {
    /// The number as a port, if it is a valid one.
    pub(super) fn port(self) -> Option<u16> {
        self.0.and_then(|number| u16::try_from(number).ok()).filter(|port| *port != 0)
    }
}

impl List<Text> {
    /// The elements that are strings.
    pub(super) fn texts(self) -> Vec<String> {
        self.0.into_iter().filter_map(|text| text.0).collect()
    }
}

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List(Vec::new())
    }
}

/// Conversion from each JSON type. Types without an override parse as `Self::default()`.
trait Shape<'de>: Default + Sized {
    fn of_text(_: String) -> Self {
        Self::default()
    }

    fn of_number(_: i64) -> Self {
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

impl<'de> Shape<'de> for Number {
    fn of_number(number: i64) -> Number {
        Number(Some(number))
    }
}

impl<'de> Shape<'de> for NumberOrText {
    fn of_text(text: String) -> NumberOrText {
        NumberOrText::Text(text)
    }

    fn of_number(number: i64) -> NumberOrText {
        NumberOrText::Number(number)
    }
}

impl<'de> Shape<'de> for Texts {
    fn of_object<A: MapAccess<'de>>(mut object: A) -> Result<Texts, A::Error> {
        let mut texts = Vec::new();
        while let Some((key, value)) = object.next_entry::<String, Text>()? {
            texts.extend(value.0.map(|value| (key, value)));
        }
        // Built at once, the B-tree is packed; grown by keys in sorted order, as they arrive, its nodes are half empty.
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

    fn visit_i64<E>(self, number: i64) -> Result<S, E> {
        Ok(S::of_number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<S, E> {
        Ok(i64::try_from(number).map_or_else(|_| S::default(), S::of_number))
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

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Number, D::Error> {
        from.deserialize_any(ShapeVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for NumberOrText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<NumberOrText, D::Error> {
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

/// Any JSON value, with objects that have the keys of the pattern `a|b|c`.
#[cfg(test)]
pub(super) fn any_json(keys: &'static str) -> impl proptest::strategy::Strategy<Value = serde_json::Value> {
    use proptest::prelude::*;
    use serde_json::Value;

    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(keys, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
