//! Comparison of two sorted sequences in one pass over both.

use std::cmp::Ordering;

/// An item of one sequence or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged<L, R> {
    /// An item of the left sequence only.
    Left(L),
    /// An item of the right sequence only.
    Right(R),
    /// An item of each sequence; they compare as equal.
    Both(L, R),
}

/// Merges two sequences that are sorted in the same order, in linear time. `order` compares an item of the left sequence
/// with one of the right.
pub fn merge_sorted<L, R>(
    left: impl IntoIterator<Item = L>,
    right: impl IntoIterator<Item = R>,
    order: impl Fn(&L, &R) -> Ordering,
) -> impl Iterator<Item = Merged<L, R>> {
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (Some(one), Some(other)) => order(one, other),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => left.next().map(Merged::Left),
            Ordering::Greater => right.next().map(Merged::Right),
            Ordering::Equal => left.next().zip(right.next()).map(|(one, other)| Merged::Both(one, other)),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn every_item_appears_once_and_in_order() {
        let merged: Vec<_> = merge_sorted([1, 3, 4, 6], [2, 3, 6, 7], Ord::cmp).collect();
        let expected = [
            Merged::Left(1),
            Merged::Right(2),
            Merged::Both(3, 3),
            Merged::Left(4),
            Merged::Both(6, 6),
            Merged::Right(7),
        ];
        assert_eq!(merged, expected);
        assert_eq!(merge_sorted([0; 0], [1], Ord::cmp).collect::<Vec<_>>(), [Merged::Right(1)]);
        assert_eq!(merge_sorted([1], [0; 0], Ord::cmp).collect::<Vec<_>>(), [Merged::Left(1)]);
    }

    #[test]
    fn the_number_of_comparisons_is_linear() {
        let compared = Cell::new(0);
        let order = |one: &u32, other: &u32| {
            compared.set(compared.get() + 1);
            one.cmp(other)
        };
        assert_eq!(merge_sorted(0..5_000, 100..5_100, order).count(), 5_100);
        assert_eq!(compared.get(), 5_000);
    }
}
