//! Amounts of resources as numbers, for comparing and adding what quantities (`500m`, `1Gi`) say.

use crate::quantity;

/// An amount, in billionths: the finest step a quantity has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amount(i128);

const UNIT: i128 = 1_000_000_000;

impl Amount {
    pub(crate) const ZERO: Amount = Amount(0);

    /// Reads a quantity in canonical form; what cannot be read counts as nothing.
    pub(crate) fn of(text: &str) -> Amount {
        Amount(quantity::nanos(text))
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
}
