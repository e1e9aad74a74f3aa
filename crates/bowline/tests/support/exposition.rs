//! Strict parser of the Prometheus text format, with the additional conventions of Go managers.

use std::collections::{BTreeMap, BTreeSet};

/// A metric family with all its samples.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug)]
pub(crate) struct Sample {
    /// Name including `_bucket`, `_sum` or `_count`.
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

/// Parses metrics by name, or returns the first violation with its line.
pub(crate) fn read(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let mut families = BTreeMap::<String, Family>::new();
    let mut series = BTreeSet::new();
    let mut helped = None;
    let mut current = String::new();
    if !text.ends_with('\n') {
        return Err("the last line has no newline".to_owned());
    }
    for line in text.lines() {
        let wrong = |what: &str| format!("{what}: {line:?}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or_else(|| wrong("missing help"))?;
            unescaped(help, false).ok_or_else(|| wrong("invalid escape"))?;
            if helped.replace(name).is_some() {
                return Err(wrong("help without a metric"));
            }
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| wrong("missing type"))?;
            if helped.take() != Some(name) || !is_name(name) || !["counter", "gauge", "histogram"].contains(&kind) {
                return Err(wrong("type without help, unknown type, or invalid name"));
            }
            let family = Family { kind: kind.to_owned(), samples: Vec::new() };
            if families.insert(name.to_owned(), family).is_some() {
                return Err(wrong("duplicate metric"));
            }
            name.clone_into(&mut current);
        } else {
            let sample = sample(line).ok_or_else(|| wrong("not a sample"))?;
            let family = families.get_mut(&current).ok_or_else(|| wrong("sample without a metric"))?;
            let suffixes: &[&str] = if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            if !suffixes.iter().any(|suffix| sample.name == format!("{current}{suffix}")) {
                return Err(wrong("sample of another metric"));
            }
            if !series.insert((sample.name.clone(), sample.labels.clone())) {
                return Err(wrong("duplicate sample"));
            }
            family.samples.push(sample);
        }
    }
    families.iter().try_for_each(|(name, family)| check(name, family))?;
    Ok(families)
}

fn check(name: &str, family: &Family) -> Result<(), String> {
    if family.samples.is_empty() {
        return Err(format!("{name} has no samples"));
    }
    match family.kind.as_str() {
        "histogram" => check_histograms(name, family),
        "counter" if family.samples.iter().any(|sample| sample.value < 0.0) => Err(format!("{name} is below 0")),
        _ => Ok(()),
    }
}

/// Checks that bounds increase and have Go's number format, counts do not decrease, and the last bucket contains all.
fn check_histograms(name: &str, family: &Family) -> Result<(), String> {
    let mut histograms = BTreeMap::<Vec<(String, String)>, Vec<&Sample>>::new();
    for sample in &family.samples {
        let rest = sample.labels.iter().filter(|(label, _)| label != "le").cloned().collect();
        histograms.entry(rest).or_default().push(sample);
    }
    for (labels, samples) in histograms {
        let wrong = |what: &str| Err(format!("{name}{labels:?}: {what}"));
        let [buckets @ .., sum, count] = samples.as_slice() else { return wrong("missing buckets") };
        if sum.name != format!("{name}_sum") || count.name != format!("{name}_count") {
            return wrong("missing sum or count");
        }
        let mut last = (f64::NEG_INFINITY, 0.0);
        for bucket in buckets {
            let Some((_, bound)) = bucket.labels.iter().find(|(label, _)| label == "le") else {
                return wrong("bucket without bound");
            };
            let Some(value) = go_number(bound) else { return wrong(&format!("le={bound:?} is not in Go's format")) };
            if value <= last.0 || bucket.value < last.1 {
                return wrong("bounds or counts decrease");
            }
            last = (value, bucket.value);
        }
        if last != (f64::INFINITY, count.value) {
            return wrong("the last bucket does not contain all");
        }
    }
    Ok(())
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = go_number(value)?;
    let Some((name, labels)) = series.split_once('{') else {
        return is_name(series).then(|| Sample { name: series.to_owned(), labels: Vec::new(), value });
    };
    let labels = labels_of(labels.strip_suffix('}')?)?;
    is_name(name).then(|| Sample { name: name.to_owned(), labels, value })
}

/// Parses `a="b",c="d"`.
fn labels_of(mut text: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::<(String, String)>::new();
    loop {
        let (name, rest) = text.split_once("=\"")?;
        let end = closing_quote(rest)?;
        let value = unescaped(&rest[..end], true)?;
        if !is_name(name) || name.contains(':') || labels.iter().any(|(known, _)| known == name) {
            return None;
        }
        labels.push((name.to_owned(), value));
        match rest[end + 1..].strip_prefix(',') {
            Some(more) => text = more,
            None if rest.len() == end + 1 => return Some(labels),
            None => return None,
        }
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(place, c)| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(place)
    })
}

fn unescaped(text: &str, quoted: bool) -> Option<String> {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next()? {
                '\\' => '\\',
                'n' => '\n',
                '"' if quoted => '"',
                _ => return None,
            },
            c => c,
        });
    }
    Some(plain)
}

fn is_name(text: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    text.starts_with(is_start) && text.chars().all(|c| is_start(c) || c.is_ascii_digit())
}

/// Parses a number in Go's format: with an exponent of at least two digits below 1e-4 and from 1e6 on, and only there.
fn go_number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => return Some(f64::INFINITY),
        "NaN" => return Some(f64::NAN),
        _ => {}
    }
    let value: f64 = text.parse().ok().filter(|value: &f64| value.is_finite())?;
    let needs_exponent = value != 0.0 && !(1e-4..1e6).contains(&value.abs());
    let exponent = text.split_once('e').map(|(_, exponent)| exponent);
    let is_valid = match exponent {
        Some(exponent) => needs_exponent && exponent.starts_with(['+', '-']) && exponent.len() >= 3,
        None => !needs_exponent,
    };
    is_valid.then_some(value)
}
