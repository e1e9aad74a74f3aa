//! When two answers are the same.

use serde_json::{Map, Value};

use super::names::{Names, is_invented};

/// Fields that are for people; what they name is anonymous.
const PROSE: [&str; 2] = ["message", "faultstring"];

/// Fields that real services have, and that the simulator leaves out: no client of ours reads them.
const LEFT_OUT: [&str; 6] = ["standard_attr_id", "is_default", "gw_port_id", "distributed", "ha", "ha_vr_id"];

/// Fields whose values every cloud has of its own; only the type is compared.
const OWN: [&str; 12] = [
    // Of an extension or a provider.
    "extensions[].description",
    "providers[].description",
    "created_at",
    "updated_at",
    "created",
    "updated",
    "expires_at",
    "issued_at",
    "OS-SRV-USG:launched_at",
    "hostId",
    "revision_number",
    "audit_ids[]",
];

/// Lists that are as long as the cloud is rich: what both have is compared.
const AS_RICH: [&str; 3] = ["catalog", "extensions", "roles"];

/// Compares an answer with the recorded one, and learns what ours are called where the cloud invents names.
pub(crate) fn compare(names: &mut Names, recorded: &Value, ours: &Value, differences: &mut Vec<String>) {
    learn(names, recorded, ours);
    Comparison { names, differences }.values("", recorded, ours);
}

/// Compares pages of lists that are sorted by IDs, which are not the same: how much there is, and where it goes on.
pub(crate) fn compare_pages(_: &mut Names, recorded: &Value, ours: &Value, differences: &mut Vec<String>) {
    let outline = |answer: &Value| -> Vec<(String, usize, Vec<String>)> {
        let lists = answer.as_object().into_iter().flatten();
        let rels = |list: &Value| {
            let links = list.as_array().into_iter().flatten();
            links.filter_map(|link| link.get("rel")?.as_str()).map(str::to_owned).collect()
        };
        lists.map(|(name, list)| (name.clone(), list.as_array().map_or(0, Vec::len), rels(list))).collect()
    };
    if outline(recorded) != outline(ours) {
        differences.push(format!("the page is {:?}, recorded {:?}", outline(ours), outline(recorded)));
    }
}

struct Comparison<'a> {
    names: &'a Names,
    differences: &'a mut Vec<String>,
}

impl Comparison<'_> {
    fn values(&mut self, place: &str, recorded: &Value, ours: &Value) {
        match (recorded, ours) {
            (Value::Object(recorded), Value::Object(ours)) => self.objects(place, recorded, ours),
            (Value::Array(recorded), Value::Array(ours)) => self.lists(place, recorded, ours),
            _ => self.scalars(place, recorded, ours),
        }
    }

    fn objects(&mut self, place: &str, recorded: &Map<String, Value>, ours: &Map<String, Value>) {
        for (field, value) in recorded {
            // Names of networks are keys.
            match ours.get(field) {
                Some(our) => self.values(&format!("{place}.{field}"), value, our),
                None if LEFT_OUT.contains(&field.as_str()) => {}
                None => self.differences.push(format!("{place}.{field} is missing: {value}")),
            }
        }
        for (field, value) in ours.iter().filter(|(field, _)| !recorded.contains_key(*field)) {
            self.differences.push(format!("{place}.{field} is not in the recording: {value}"));
        }
    }

    fn lists(&mut self, place: &str, recorded: &[Value], ours: &[Value]) {
        let name = place.rsplit('.').next().unwrap_or_default();
        if recorded.len() != ours.len() && !AS_RICH.contains(&name) {
            self.differences.push(format!("{place} has {} of {}", ours.len(), recorded.len()));
        }
        for (recorded, ours) in paired(self.names, recorded, ours, !AS_RICH.contains(&name)) {
            self.values(&format!("{place}[]"), recorded, ours);
        }
    }

    fn scalars(&mut self, place: &str, recorded: &Value, ours: &Value) {
        let field = place.rsplit('.').next().unwrap_or_default();
        let same_type = std::mem::discriminant(recorded) == std::mem::discriminant(ours);
        let same = match recorded {
            // What Barbican says of something that is not there depends on how its ID looks.
            _ if place == ".description" => same_type,
            _ if OWN.iter().any(|own| *own == field || own.contains('.') && place.ends_with(own)) => same_type,
            Value::String(text) if PROSE.contains(&field) => {
                ours.as_str().is_some_and(|ours| anonymous(ours) == anonymous(&self.names.ours(text)))
            }
            Value::String(text) => ours.as_str() == Some(&self.names.ours(text)),
            // An answer without a body.
            Value::Null if place.is_empty() => ours == "" || ours.is_null(),
            _ => recorded == ours,
        };
        if !same {
            self.differences.push(format!("{place} is {ours}, recorded {recorded}"));
        }
    }
}

/// A text without what is different every time: IDs, addresses, and the numbers of requests.
fn anonymous(text: &str) -> String {
    let text = text.split("\nNeutron server returns").next().unwrap_or_default();
    let text = text.split("\n\nFailed validating").next().unwrap_or_default();
    let text = text.split("\n[SQL").next().unwrap_or_default();
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || ".:-/".contains(letter);
    let word = |word: &str| if is_invented(word.trim_end_matches('.')) { "…".to_owned() } else { word.to_owned() };
    let mut anonymous = String::new();
    for piece in text.split_inclusive(|letter: char| !is_part(letter)) {
        let end = piece.trim_end_matches(is_part).len();
        let (inner, rest) = match piece.chars().last() {
            Some(last) if !is_part(last) => piece.split_at(end - last.len_utf8()),
            _ => (piece, ""),
        };
        anonymous.push_str(&word(inner));
        anonymous.push_str(rest);
    }
    anonymous
}

/// Which of our things is which of the recorded ones: lists are sorted by IDs that are not the same.
/// What is left over on both sides is paired as it comes, if so wished.
fn paired<'a>(names: &Names, recorded: &'a [Value], ours: &'a [Value], all: bool) -> Vec<(&'a Value, &'a Value)> {
    let (mut left, mut pairs, mut lonely) = (ours.iter().collect::<Vec<_>>(), Vec::new(), Vec::new());
    for one in recorded {
        match left.iter().position(|our| is_same_thing(names, one, our)) {
            Some(at) => pairs.push((one, left.remove(at))),
            None => lonely.push(one),
        }
    }
    pairs.extend(lonely.into_iter().zip(left).filter(|_| all));
    pairs
}

fn is_same_thing(names: &Names, recorded: &Value, ours: &Value) -> bool {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(text) = recorded.as_str() {
        return ours.as_str() == Some(&names.ours(text));
    }
    let id = text(recorded, "id");
    if names.is_bound(&id) {
        return names.ours(&id) == text(ours, "id");
    }
    [
        "name",
        "alias",
        "type",
        "interface",
        "rel",
        "device_id",
        "ethertype",
        "direction",
        "protocol",
        "destination",
        "nexthop",
    ]
    .iter()
    .all(|field| names.ours(&text(recorded, field)) == text(ours, field))
}

/// Learns names where both answers have something of the same kind at the same place.
fn learn(names: &mut Names, recorded: &Value, ours: &Value) {
    match (recorded, ours) {
        (Value::Object(recorded), Value::Object(ours)) => {
            for (field, value) in recorded {
                if let Some(our) = ours.get(field) {
                    learn(names, value, our);
                }
            }
        }
        (Value::Array(recorded), Value::Array(ours)) => {
            let pairs: Vec<(Value, Value)> =
                paired(names, recorded, ours, true).into_iter().map(|(one, our)| (one.clone(), our.clone())).collect();
            for (one, our) in &pairs {
                learn(names, one, our);
            }
        }
        (Value::String(recorded), Value::String(ours)) => names.learn(recorded, ours),
        _ => {}
    }
}
