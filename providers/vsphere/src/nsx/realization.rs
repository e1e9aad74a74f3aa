//! Realised state: what NSX has made of an object.

use bowline_cloud::{Error, ErrorKind};
use serde::Deserialize;

/// Error code of an alarm about an IP pool without free addresses.
const POOL_EXHAUSTED: i64 = 5109;

/// How far NSX has realised an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Realization {
    /// NSX is working on it.
    Pending,
    /// The object is realised, with the address if it is an IP allocation.
    Realized { address: Option<String> },
    /// NSX cannot realise the object.
    Failed { message: String, is_exhausted: bool },
}

/// One realised entity. All fields may be missing.
#[derive(Debug, Deserialize, Default)]
#[serde(default)]
pub(super) struct Entity {
    intent_paths: Vec<String>,
    state: String,
    extended_attributes: Vec<Attribute>,
    alarms: Vec<Alarm>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Attribute {
    key: String,
    values: Vec<String>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Alarm {
    message: String,
    error_details: Details,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Details {
    error_code: i64,
    error_message: String,
}

impl Realization {
    /// Returns the state of the object at this path. Entities of other objects are skipped.
    pub(super) fn of(path: &str, entities: &[Entity]) -> Realization {
        let mut own =
            entities.iter().filter(|one| one.intent_paths.is_empty() || one.intent_paths.iter().any(|it| it == path));
        let address = own.clone().find_map(Entity::address).map(str::to_owned);
        if address.is_some() || own.clone().any(|one| one.state == "REALIZED" && !one.intent_paths.is_empty()) {
            return Realization::Realized { address };
        }
        match own.find(|one| one.state == "ERROR") {
            Some(failed) => failed.failure(),
            None => Realization::Pending,
        }
    }

    /// Returns the error of a failed realisation.
    pub(crate) fn to_error(message: &str, is_exhausted: bool, operation: &'static str) -> Error {
        let kind = if is_exhausted { ErrorKind::QuotaExceeded } else { ErrorKind::Unavailable };
        Error::new(kind, operation, message)
    }
}

impl Entity {
    fn address(&self) -> Option<&str> {
        let attribute = self.extended_attributes.iter().find(|attribute| attribute.key == "allocation_ip")?;
        attribute.values.first().map(String::as_str).filter(|address| !address.is_empty())
    }

    fn failure(&self) -> Realization {
        let text = |alarm: &Alarm| match alarm.message.is_empty() {
            true => alarm.error_details.error_message.clone(),
            false => alarm.message.clone(),
        };
        let messages: Vec<_> = self.alarms.iter().map(text).filter(|text| !text.is_empty()).collect();
        let message = match messages.is_empty() {
            true => "NSX reports the state ERROR without an alarm".to_owned(),
            false => messages.join(" "),
        };
        let is_exhausted = self.alarms.iter().any(|alarm| alarm.error_details.error_code == POOL_EXHAUSTED);
        Realization::Failed { message, is_exhausted }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(entities: &Value) -> Realization {
        Realization::of("/infra/x", &serde_json::from_value::<Vec<Entity>>(entities.clone()).unwrap())
    }

    #[test]
    fn an_address_an_error_and_a_state_are_read_from_the_entities_of_the_object() {
        let attribute = |address: &str| json!([{"key": "allocation_ip", "values": [address]}]);
        let alarm = |message: &str, code: i64| json!({"message": message, "error_details": {"error_code": code, "error_message": "details"}});
        let failed = |message: &str, is_exhausted| Realization::Failed { message: message.to_owned(), is_exhausted };
        let realized = |address: Option<&str>| Realization::Realized { address: address.map(str::to_owned) };
        let own = json!(["/infra/x"]);
        let table = [
            (json!([]), Realization::Pending),
            (json!([{"intent_paths": own, "state": "UNREALIZED"}]), Realization::Pending),
            (json!([{"intent_paths": own, "state": "SOMETHING_NEW"}]), Realization::Pending),
            (json!([{"intent_paths": own, "state": "REALIZED"}]), realized(None)),
            (json!([{"state": "REALIZED"}]), Realization::Pending),
            (
                json!([{"intent_paths": ["/infra/y"], "state": "REALIZED", "extended_attributes": attribute("10.0.0.5")}]),
                Realization::Pending,
            ),
            (json!([{}, {"extended_attributes": attribute("10.0.0.5")}]), realized(Some("10.0.0.5"))),
            (
                json!([{"intent_paths": own, "state": "ERROR", "extended_attributes": attribute("10.0.0.5")}]),
                realized(Some("10.0.0.5")),
            ),
            (
                json!([{"intent_paths": own, "state": "ERROR", "alarms": [alarm("a.", 1), alarm("b.", 5109)]}]),
                failed("a. b.", true),
            ),
            (json!([{"intent_paths": own, "state": "ERROR", "alarms": [alarm("", 1)]}]), failed("details", false)),
            (
                json!([{"intent_paths": own, "state": "ERROR"}]),
                failed("NSX reports the state ERROR without an alarm", false),
            ),
        ];
        for (entities, expected) in table {
            assert_eq!(of(&entities), expected, "{entities}");
        }
    }
}
