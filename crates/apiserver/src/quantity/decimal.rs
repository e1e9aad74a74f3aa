//! Arbitrary-precision decimal numbers: digits and a power of ten.

use std::cmp::Ordering;

/// `digits * 10^exponent`, most significant digit first, without leading or trailing zeros; zero has no digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    pub(super) fn zero() -> Decimal {
        Decimal { negative: false, digits: Vec::new(), exponent: 0 }
    }

    /// Builds a number from the digits before and after the decimal point; `scale` is the power of ten of the last digit.
    pub(super) fn new(negative: bool, whole: &str, fraction: &str, scale: i64) -> Decimal {
        let digits = whole.bytes().chain(fraction.bytes()).map(|b| b.wrapping_sub(b'0')).collect();
        Decimal { negative, digits, exponent: scale }.normal()
    }

    fn normal(mut self) -> Decimal {
        let zeros = self.digits.iter().rev().take_while(|d| **d == 0).count();
        self.digits.truncate(self.digits.len() - zeros);
        self.exponent = self.exponent.saturating_add(zeros as i64);
        let lead = self.digits.iter().take_while(|d| **d == 0).count();
        self.digits.drain(..lead);
        if self.digits.is_empty() { Decimal::zero() } else { self }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    pub(super) fn sign(&self) -> Ordering {
        match (self.is_zero(), self.negative) {
            (true, _) => Ordering::Equal,
            (_, true) => Ordering::Less,
            (_, false) => Ordering::Greater,
        }
    }

    /// Whether the number has digits below this power of ten.
    pub(super) fn finer_than(&self, exponent: i64) -> bool {
        !self.is_zero() && self.exponent < exponent
    }

    /// Whether the number is strictly between `-bound` and `bound`.
    pub(super) fn is_within(&self, bound: i64) -> bool {
        self.magnitude_cmp(&Decimal::from(bound)) == Ordering::Less
    }

    /// Rounds away from zero to a power of ten.
    pub(super) fn rounded_to(mut self, exponent: i64) -> Decimal {
        if !self.finer_than(exponent) {
            return self;
        }
        let dropped = usize::try_from(exponent.saturating_sub(self.exponent)).unwrap_or(usize::MAX);
        // The last digit is never zero, so dropping digits always loses precision.
        self.digits.truncate(self.digits.len().saturating_sub(dropped));
        self.exponent = exponent;
        increment(&mut self.digits);
        self.normal()
    }

    /// Caps the magnitude at that of `max` and keeps the sign.
    pub(super) fn capped(self, max: &Decimal) -> Decimal {
        match self.magnitude_cmp(max) {
            Ordering::Greater => Decimal { negative: self.negative, ..max.clone() },
            _ => self,
        }
    }

    pub(super) fn times_1024(mut self, times: i64) -> Decimal {
        for _ in 0..times {
            let mut carry: u32 = 0;
            for digit in self.digits.iter_mut().rev() {
                carry += u32::from(*digit) * 1024;
                *digit = (carry % 10) as u8;
                carry /= 10;
            }
            let front = carry.to_string().into_bytes().into_iter().map(|b| b - b'0');
            self.digits.splice(0..0, front);
        }
        self.normal()
    }

    /// The signed digits and an exponent that is a multiple of three.
    pub(super) fn in_thousands(&self) -> (String, i64) {
        let exponent = self.exponent.saturating_sub(self.exponent.rem_euclid(3));
        let mut text = String::with_capacity(self.digits.len() + 3);
        if self.negative {
            text.push('-');
        }
        text.extend(self.digits.iter().map(|d| char::from(b'0' + d)));
        text.extend((exponent..self.exponent).map(|_| '0'));
        (text, exponent)
    }

    /// The integer part, saturated at the limits of `i64`.
    pub(super) fn to_i64(&self) -> i64 {
        let limit = if self.negative { i64::MIN } else { i64::MAX };
        if self.integer_digits() > 19 {
            return limit;
        }
        let places = usize::try_from(self.integer_digits()).unwrap_or(0);
        let digits = self.digits.iter().copied().chain(std::iter::repeat(0)).take(places);
        let number = digits.fold(0_i128, |number, digit| number * 10 + i128::from(digit));
        i64::try_from(if self.negative { -number } else { number }).unwrap_or(limit)
    }

    /// The number of digits before the decimal point; zero or negative for numbers below one.
    fn integer_digits(&self) -> i64 {
        self.exponent.saturating_add(self.digits.len() as i64)
    }

    fn magnitude_cmp(&self, other: &Decimal) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // Without leading and trailing zeros, digits compare lexicographically.
            (false, false) => {
                self.integer_digits().cmp(&other.integer_digits()).then_with(|| self.digits.cmp(&other.digits))
            }
        }
    }
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Decimal {
        Decimal::new(number < 0, &number.unsigned_abs().to_string(), "", 0)
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| match self.negative {
            true => other.magnitude_cmp(self),
            false => self.magnitude_cmp(other),
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn increment(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        if *digit < 9 {
            *digit += 1;
            return;
        }
        *digit = 0;
    }
    digits.insert(0, 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(number: i64, exponent: i64) -> Decimal {
        let mut decimal = Decimal::from(number);
        decimal.exponent += exponent;
        decimal
    }

    #[test]
    fn numbers_are_rounded_away_from_zero() {
        assert_eq!(decimal(1999, -3).rounded_to(0), decimal(2, 0));
        assert_eq!(decimal(-1001, -3).rounded_to(0), decimal(-2, 0));
        assert_eq!(decimal(1, -40).rounded_to(-9), decimal(1, -9));
        assert_eq!(decimal(5, 3).rounded_to(-9), decimal(5, 3));
    }

    #[test]
    fn multiplication_carries_digits() {
        assert_eq!(decimal(999, 0).times_1024(2), decimal(999 * 1024 * 1024, 0));
        assert_eq!(decimal(5, -1).times_1024(1), decimal(512, 0));
        assert_eq!(Decimal::zero().times_1024(3), Decimal::zero());
    }

    #[test]
    fn numbers_are_ordered_by_value() {
        let sorted = [decimal(-5, 2), decimal(-5, 0), Decimal::zero(), decimal(1, -9), decimal(499, 0), decimal(5, 2)];
        for pair in sorted.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
    }

    #[test]
    fn integers_saturate_at_64_bits() {
        assert_eq!(decimal(12, 2).to_i64(), 1200);
        assert_eq!(decimal(1, 19).to_i64(), i64::MAX);
        assert_eq!(decimal(-1, 30).to_i64(), i64::MIN);
        assert_eq!(decimal(5, -3).to_i64(), 0);
        assert_eq!(Decimal::from(i64::MIN).to_i64(), i64::MIN);
    }
}
