//! Whose turn it is, by weight.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::Candidate;

/// Whose turn it is: smooth weighted round robin. Each time everyone who takes part is owed its weight, the one who is owed
/// most gets the connection, and pays for all. With the weights 5, 1 and 1 that is `a a b a c a a`, not `a a a a a b c`.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// What each target is owed, in the order of the candidates of the last time.
    owed: Vec<(SocketAddr, i64)>,
}

// === impl Turns ===

impl Turns {
    /// The next one among those who take part.
    pub(super) fn next<C: Candidate>(&mut self, candidates: &[C], takes_part: impl Fn(&C) -> bool) -> Option<usize> {
        self.follow(candidates);
        let mut total = 0;
        let mut most: Option<(usize, i64)> = None;
        for (index, ((_, owed), candidate)) in self.owed.iter_mut().zip(candidates).enumerate() {
            if !takes_part(candidate) {
                continue;
            }
            let weight = i64::from(candidate.weight());
            total += weight;
            *owed += weight;
            if most.is_none_or(|(_, best)| *owed > best) {
                most = Some((index, *owed));
            }
        }
        let (index, _) = most?;
        if let Some((_, owed)) = self.owed.get_mut(index) {
            *owed -= total;
        }
        Some(index)
    }

    /// Targets that stay are still owed what they were; new ones nothing. A target that is not eligible for a while is
    /// neither paid nor charged.
    fn follow<C: Candidate>(&mut self, candidates: &[C]) {
        let same = self.owed.len() == candidates.len()
            && self.owed.iter().zip(candidates).all(|((address, _), c)| *address == c.address());
        if same {
            return;
        }
        let before: HashMap<_, _> = self.owed.drain(..).collect();
        self.owed.extend(candidates.iter().map(|c| (c.address(), before.get(&c.address()).copied().unwrap_or(0))));
    }
}
