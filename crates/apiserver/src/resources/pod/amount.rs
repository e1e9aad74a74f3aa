//! Amounts of resources as numbers, for comparing and adding what quantities (`500m`, `1Gi`) say.

/// An amount, in billionths: the finest step a quantity has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amount(i128);

const UNIT: i128 = 1_000_000_000;
const MILLI: i128 = UNIT / 1000;

impl Amount {
    pub(crate) const ZERO: Amount = Amount(0);

    /// Reads a quantity in canonical form; what cannot be read counts as nothing.
    pub(crate) fn of(text: &str) -> Amount {
        parse(text).unwrap_or_default()
    }

    /// No fraction of a unit.
    pub(crate) fn is_whole(self) -> bool {
        self.0 % UNIT == 0
    }

    /// A positive whole number of `step`s.
    pub(crate) fn is_multiple_of(self, step: Amount) -> bool {
        step.0 != 0 && self.0 > 0 && self.0 % step.0 == 0
    }

    pub(crate) fn plus(self, other: Amount) -> Amount {
        Amount(self.0.saturating_add(other.0))
    }
}

fn parse(text: &str) -> Option<Amount> {
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let (multiplier, divisor) = scale(suffix)?;
    let mut total = whole.parse::<i128>().or(if whole.is_empty() { Ok(0) } else { Err(()) }).ok()?;
    total = total.checked_mul(multiplier)?.checked_mul(UNIT)? / divisor;
    let mut place = multiplier.checked_mul(UNIT)? / divisor;
    for digit in fraction.bytes() {
        place /= 10;
        total = total.checked_add(place.checked_mul(i128::from(digit.checked_sub(b'0')?))?)?;
    }
    Some(Amount(if negative { -total } else { total }))
}

/// What a suffix multiplies and divides by.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    const DECIMAL: [(&str, u32); 7] = [("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    const SMALL: [(&str, u32); 3] = [("m", 3), ("u", 6), ("n", 9)];
    const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
    let find = |table: &[(&str, u32)]| table.iter().find(|(s, _)| *s == suffix).map(|(_, power)| *power);
    if let Some(power) = find(&DECIMAL) {
        return Some((10i128.pow(power), 1));
    }
    if let Some(power) = find(&SMALL) {
        return Some((1, 10i128.pow(power)));
    }
    if let Some(power) = find(&BINARY) {
        return Some((1i128 << power, 1));
    }
    match suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()? {
        power @ 0..=20 => Some((10i128.pow(power.unsigned_abs()), 1)),
        power @ -9..0 => Some((1, 10i128.pow(power.unsigned_abs()))),
        _ => None,
    }
}

/// The quantity rounded up to thousandths; `None` if it is that coarse already.
pub(crate) fn rounded_up_to_milli(text: &str) -> Option<String> {
    let amount = parse(text)?.0;
    if amount % MILLI == 0 {
        return None;
    }
    let milli = amount.div_euclid(MILLI) + 1;
    Some(if milli % 1000 == 0 { (milli / 1000).to_string() } else { format!("{milli}m") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_compare_by_what_they_mean() {
        let equal = [("1", "1000m"), ("1Ki", "1024"), ("1k", "1e3"), ("1.5", "1500m"), ("1Mi", "1024Ki"), ("0", "0m")];
        for (a, b) in equal {
            assert_eq!(Amount::of(a), Amount::of(b), "{a} {b}");
        }
        let rising = ["-1", "0", "1n", "1u", "1m", "500m", "1", "1k", "1Ki", "1M", "1Gi", "1T", "1Ei", "10E"];
        assert!(rising.windows(2).all(|w| Amount::of(w[0]) < Amount::of(w[1])));
    }

    #[test]
    fn fractions_are_noticed() {
        assert!(Amount::of("1.0").is_whole());
        assert!(!Amount::of("1500m").is_whole());
    }

    #[test]
    fn multiples_are_positive() {
        let page = Amount::of("2Mi");
        assert!(Amount::of("4Mi").is_multiple_of(page));
        assert!(!Amount::of("3Mi").is_multiple_of(page));
        assert!(!Amount::ZERO.is_multiple_of(page));
    }

    #[test]
    fn only_what_is_finer_than_a_thousandth_is_rounded() {
        assert_eq!(rounded_up_to_milli("100m"), None);
        assert_eq!(rounded_up_to_milli("1Gi"), None);
        assert_eq!(rounded_up_to_milli("1n").as_deref(), Some("1m"));
        assert_eq!(rounded_up_to_milli("999999999n").as_deref(), Some("1"));
    }
}
