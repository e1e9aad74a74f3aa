//! Everything that reads bytes from outside, fed with mutations of good input.
//!
//! Two things are checked of each reader: it never panics, and what it makes of an input is a fixed point, so that
//! reading it again changes nothing. The numbers are seeded; a failure names the case, and comes back on every run.

use serde_json::{Value, json};

use crate::quantity;
use crate::resources::RESOURCES;
use crate::schema::{self, TypeId, protobuf_encode as encode, schema};
use crate::selectors::{FieldSelector, LabelSelector};

/// Mutations of each kind of input.
const CASES: u64 = 20_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or_default()
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..start + self.below((length - start).min(40) + 1)
    }
}

/// One to four changes: bytes replaced, pieces put in, taken out, doubled or swapped for others.
fn mutate(random: &mut Random, seed: &[u8], words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let range = random.range(bytes.len());
        let word = random.pick(words).to_vec();
        match random.below(6) {
            0 if !bytes.is_empty() => {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
            1 => drop(bytes.splice(range.start..range.start, word)),
            2 => drop(bytes.drain(range)),
            3 => {
                let copy = bytes[range.clone()].to_vec();
                let at = random.below(bytes.len() + 1);
                bytes.splice(at..at, copy);
            }
            4 => drop(bytes.splice(range, word)),
            _ => bytes.truncate(random.below(bytes.len() + 1)),
        }
    }
    bytes
}

/// Feeds mutations of the seeds to a check.
fn fuzz(seeds: &[Vec<u8>], words: &[&str], check: impl Fn(usize, &[u8])) {
    let words: Vec<&[u8]> = words.iter().map(|w| w.as_bytes()).collect();
    let mut random = Random(1);
    for _ in 0..CASES {
        let seed = random.below(seeds.len());
        let input = mutate(&mut random, &seeds[seed], &words);
        check(seed, &input);
    }
}

fn fuzz_texts(seeds: &[&str], words: &[&str], check: impl Fn(&str)) {
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|s| s.as_bytes().to_vec()).collect();
    fuzz(&seeds, words, |_, input| check(&String::from_utf8_lossy(input)));
}

/// Objects that use every kind of value the schema has.
fn objects() -> Vec<(TypeId, Value)> {
    let objects = [
        (
            "core/v1.Service",
            json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "a", "labels": {"k": "v"}},
            "spec": {"type": "NodePort", "selector": {"app": "x"}, "clusterIPs": ["10.96.0.1"],
                "ports": [{"name": "http", "port": 80, "targetPort": "web", "nodePort": 30000}, {"port": 443, "targetPort": 8443}]}}),
        ),
        (
            "core/v1.Node",
            json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "creationTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"podCIDRs": ["10.0.0.0/24"], "unschedulable": true},
            "status": {"capacity": {"cpu": "3500m", "memory": "16Gi"}, "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-02T03:04:05Z"}]}}),
        ),
        (
            "core/v1.Secret",
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "immutable": false, "data": {"a": "AAEC", "b": ""}, "stringData": {"c": "d"}}),
        ),
        (
            "coordination/v1.Lease",
            json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "l",
            "managedFields": [{"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:holderIdentity": {}}}}]},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000006Z"}}),
        ),
        (
            "core/v1.Pod",
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {
            "securityContext": {"supplementalGroups": [1, 2]},
            "containers": [{"name": "c", "livenessProbe": {"httpGet": {"port": 80}}}], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]}}),
        ),
        (
            "authentication/v1.TokenReview",
            json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1",
            "status": {"user": {"groups": ["g"], "extra": {"k": ["a", "b"]}}}}),
        ),
    ];
    objects.into_iter().map(|(ty, object)| (schema().id(ty), object)).collect()
}

/// Reading a canonical value again changes nothing.
fn assert_canonical(id: TypeId, value: &Value) {
    let again = schema::decode(id, value).map(|decoded| decoded.value);
    assert_eq!(again.as_ref(), Ok(value));
}

const JSON_WORDS: [&str; 16] = [
    "null",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\ud800",
    "\\u0000",
    "1e400",
    "-0",
    "0.1",
    "\"kind\":\"x\",",
    "\"1n\"",
    "\"\"",
];

#[test]
fn json_bodies_are_decoded_to_a_fixed_point() {
    let objects = objects();
    let seeds: Vec<Vec<u8>> = objects.iter().map(|(_, object)| object.to_string().into_bytes()).collect();
    fuzz(&seeds, &JSON_WORDS, |seed, input| {
        if let Ok(decoded) = schema::decode_json(objects[seed].0, input) {
            assert_canonical(objects[seed].0, &decoded.value);
        }
    });
}

#[test]
fn json_is_broken_for_go_only_where_it_is_broken() {
    let seeds: Vec<Vec<u8>> = objects().iter().map(|(_, object)| object.to_string().into_bytes()).collect();
    fuzz(&seeds, &JSON_WORDS, |_, input| {
        if serde_json::from_slice::<serde::de::IgnoredAny>(input).is_ok() {
            assert_eq!(schema::go_syntax_error(input), None, "{}", String::from_utf8_lossy(input));
        }
    });
}

#[test]
fn yaml_bodies_are_read_to_a_fixed_point() {
    let objects = objects();
    let mut seeds: Vec<Vec<u8>> =
        objects.iter().map(|(_, object)| schema::yaml::to_text(object).into_bytes()).collect();
    seeds.push(
        b"a: &x {b: [1, 'two', \"thr\\nee\", null, ~, yes]}\nc:\n  <<: *x\n  d: |\n    text\n  ? e\n  : >-\n    f\n"
            .to_vec(),
    );
    let words = [
        "- ", ": ", "\n", "  ", "&a ", "*x", "<<: ", "{", "}", "[", "]", "'", "\"", "|\n", "? ", "#", "\t", "0x1f",
        "1e30", "---\n",
    ];
    fuzz(&seeds, &words, |seed, input| {
        let Ok((value, _)) = schema::yaml::to_value(input) else { return };
        if let Some((id, _)) = objects.get(seed)
            && let Ok(decoded) = schema::decode_yaml(*id, input)
        {
            assert_canonical(*id, &decoded.value);
        }
        let text = schema::yaml::to_text(&value);
        // YAML 1.1 breaks lines at these, YAML 1.2 does not; we write the one and read the other.
        if !text.contains(['\u{85}', '\u{2028}', '\u{2029}']) {
            assert_eq!(schema::yaml::to_value(text.as_bytes()), Ok((value, Vec::new())), "{text}");
        }
    });
}

#[test]
fn protobuf_bodies_are_read_to_canonical_values() {
    let objects = objects();
    let canonical = |id, object: &Value| schema::decode(id, object).unwrap().value;
    let body =
        |(id, object): &(TypeId, Value)| encode::envelope("v1", "X", &encode::encode(*id, &canonical(*id, object)));
    let seeds: Vec<Vec<u8>> = objects.iter().map(body).collect();
    let words = ["\u{0}", "\u{8}\u{1}", "\n\u{0}", "\n\u{2}\n\u{0}", "\u{12}\u{1}x", "\u{b}", "\u{c}", "\u{7f}\u{7f}"];
    fuzz(&seeds, &words, |seed, input| {
        let id = objects[seed].0;
        if let Ok(mut value) = schema::decode_protobuf(schema(), input, |_, _| Some(id)) {
            // Whatever the envelope says the object is, it is an object of this type.
            value["kind"] = "X".into();
            assert_canonical(id, &value);
        }
    });
}

#[test]
fn selectors_never_panic() {
    let seeds =
        ["app=x,tier!=y", "a in (b, c),!d,e notin (), f>1,g<2", "metadata.name=a,metadata.namespace!=b\\,c\\=\\\\"];
    let words = ["=", "==", "!=", "!", "(", ")", ",", " in ", " notin ", "<", ">", "\\", "a/b", "/", "é", "\0"];
    fuzz_texts(&seeds, &words, |input| {
        let _ = LabelSelector::parse(input);
        for resource in RESOURCES.iter().take(6) {
            let _ = FieldSelector::parse(resource, input);
        }
    });
}

#[test]
fn quantities_have_one_canonical_form() {
    let seeds = [
        "100m",
        "1.5Gi",
        "-0.000000001",
        "12e6",
        "9223372036854775807Ki",
        "123456789012345678901234567890",
        "1E-3",
        ".5",
    ];
    let words = [
        "e",
        "E",
        "-",
        "+",
        ".",
        "0",
        "000",
        "9",
        "Ki",
        "Ei",
        "n",
        "m",
        "k",
        "e2147483647",
        "e-2147483648",
        "99999999999999999999",
    ];
    fuzz_texts(&seeds, &words, |input| {
        if let Ok(canonical) = quantity::canonical(input) {
            assert_eq!(quantity::canonical(&canonical).as_ref(), Ok(&canonical), "{input:?}");
            assert!(quantity::compare(&canonical, &canonical).is_eq());
            let _ = (quantity::whole(&canonical), quantity::milli(&canonical), quantity::sign(&canonical));
            let mut list = json!({"x": canonical});
            quantity::round_list(Some(&mut list));
            let rounded = list.clone();
            quantity::round_list(Some(&mut list));
            assert_eq!(list, rounded, "{input:?}");
        }
    });
}

#[test]
fn times_have_one_canonical_form() {
    let seeds = [
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05.123456+02:00",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:59",
    ];
    let words = ["0", "9", "-", ":", ".", ",", "Z", "+24:60", "T", " ", "é", "2024-02-30"];
    let lease = schema().id("coordination/v1.LeaseSpec");
    let meta = schema().id("meta/v1.ObjectMeta");
    fuzz_texts(&seeds, &words, |input| {
        for (id, object) in [(lease, json!({"renewTime": input})), (meta, json!({"creationTimestamp": input}))] {
            if let Ok(decoded) = schema::decode(id, &object) {
                assert_canonical(id, &decoded.value);
            }
        }
    });
}
