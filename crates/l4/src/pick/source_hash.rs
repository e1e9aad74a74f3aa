//! Source hash: the target of a client address.

use std::net::{IpAddr, SocketAddr};

use super::Candidate;

/// Picks by weighted rendezvous hashing: each pair of client and target has a score that depends on nothing else, and the highest
/// wins. When a target is removed, only its own clients move; when one is added, only the clients that it wins.
pub(super) fn pick_by_source<C: Candidate>(
    client: IpAddr,
    candidates: &[C],
    is_eligible: &impl Fn(&C) -> bool,
) -> Option<usize> {
    candidates
        .iter()
        .enumerate()
        .filter(|(_, c)| is_eligible(c))
        .map(|(index, c)| (index, score(client, c.address(), c.weight())))
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(index, _)| index)
}

/// Computes `-weight / ln(uniform)`: a target of weight 2 has the highest score twice as often as one of weight 1.
fn score(client: IpAddr, target: SocketAddr, weight: u16) -> f64 {
    // 52 bits plus 0.5 keep the value strictly between 0 and 1.
    let uniform = ((hash(client, target) >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    -f64::from(weight) / uniform.ln()
}

/// Hashes client and target. Does not use a hasher of the standard library, whose output may change with its version and move
/// every client to another target.
fn hash(client: IpAddr, target: SocketAddr) -> u64 {
    let words = [bits(client), bits(target.ip()), u128::from(target.port())];
    words.into_iter().flat_map(|word| [word as u64, (word >> 64) as u64]).fold(0, |hash, word| mix(hash ^ word))
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// One step of SplitMix64: every input bit changes about half of the output bits.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_client_and_a_target_never_changes() {
        // If this fails, an upgrade moves every client of a listener with `SourceHash` to another target.
        assert_eq!(hash(IpAddr::from([192, 168, 0, 1]), "10.0.0.1:80".parse().unwrap()), 8_986_261_775_245_320_414);
        assert_eq!(hash("fd00::1".parse().unwrap(), "[fd00::2]:443".parse().unwrap()), 13_045_942_776_729_579_093);
    }
}
