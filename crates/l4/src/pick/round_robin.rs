//! Smooth weighted round robin.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::Candidate;

/// Smooth weighted round robin, as in nginx: every pick adds its weight to the current weight of each candidate, picks the one with
/// the highest current weight, and subtracts the total weight from it. With the weights 5, 1 and 1 the order is `a a b a c a a`,
/// not `a a a a a b c`.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    /// Current weight of each target, in the order of the last candidates.
    current_weight: Vec<(SocketAddr, i64)>,
}

// === impl RoundRobin ===

impl RoundRobin {
    /// Picks the next candidate for which `is_candidate` is true.
    pub(super) fn next<C: Candidate>(&mut self, candidates: &[C], is_candidate: impl Fn(&C) -> bool) -> Option<usize> {
        self.update(candidates);
        let mut total = 0;
        let mut most: Option<(usize, i64)> = None;
        for (index, ((_, current_weight), candidate)) in self.current_weight.iter_mut().zip(candidates).enumerate() {
            if !is_candidate(candidate) {
                continue;
            }
            let weight = i64::from(candidate.weight());
            total += weight;
            *current_weight += weight;
            if most.is_none_or(|(_, best)| *current_weight > best) {
                most = Some((index, *current_weight));
            }
        }
        let (index, _) = most?;
        if let Some((_, current_weight)) = self.current_weight.get_mut(index) {
            *current_weight -= total;
        }
        Some(index)
    }

    /// Adapts the list to the candidates. Existing targets keep their current weight, new ones start at 0. The weight of a target
    /// that is not eligible for a while does not change.
    fn update<C: Candidate>(&mut self, candidates: &[C]) {
        let same = self.current_weight.len() == candidates.len()
            && self.current_weight.iter().zip(candidates).all(|((address, _), c)| *address == c.address());
        if same {
            return;
        }
        let before: HashMap<_, _> = self.current_weight.drain(..).collect();
        self.current_weight
            .extend(candidates.iter().map(|c| (c.address(), before.get(&c.address()).copied().unwrap_or(0))));
    }
}
