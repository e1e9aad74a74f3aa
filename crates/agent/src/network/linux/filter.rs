//! Packet filters: the kernel drops packets that do not concern the group before they cost the agent any time.

use std::net::{IpAddr, Ipv4Addr};

use nix::libc;
use socket2::SockFilter;

use super::{arp, ndp};
use crate::Pool;

/// The kernel limits the length of a filter to 4096 instructions.
const MAX_RANGES: usize = 1000;

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_GREATER: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Pseudo offset of the packet type.
const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned();

/// Largest packet type that is addressed to this host; larger ones are for other hosts, or for another VLAN.
const MULTICAST: u32 = 2;

const DROP: u32 = 0;
const ACCEPT: u32 = u32::MAX;

/// Instruction: code, jump if true, jump if false, operand.
type Instruction = (u32, u8, u8, u32);

/// Accepts ARP packets whose sender is in one of the pools.
pub(super) fn arp(pools: &[Pool]) -> Vec<SockFilter> {
    program(&arp_instructions(pools))
}

/// Drops all packets.
pub(super) fn drop_all() -> Vec<SockFilter> {
    program(&[(RETURN, 0, 0, DROP)])
}

/// Accepts neighbour advertisements.
pub(super) fn ndp() -> Vec<SockFilter> {
    let mut instructions = for_this_host().to_vec();
    instructions.extend([
        (LOAD_BYTE, 0, 0, ndp::NEXT_HEADER),
        (IF_EQUAL, 0, 3, u32::from(ndp::ICMPV6)),
        (LOAD_BYTE, 0, 0, ndp::TYPE),
        (IF_EQUAL, 0, 1, u32::from(ndp::ADVERTISEMENT)),
        (RETURN, 0, 0, ACCEPT),
        (RETURN, 0, 0, DROP),
    ]);
    program(&instructions)
}

fn arp_instructions(pools: &[Pool]) -> Vec<Instruction> {
    let ranges: Vec<_> = pools.iter().filter_map(ipv4_range).collect();
    let mut instructions = for_this_host().to_vec();
    instructions.push((LOAD_WORD, 0, 0, arp::SENDER));
    let is_too_long = ranges.len() > MAX_RANGES;
    for (first, last) in ranges.into_iter().take(MAX_RANGES) {
        instructions.push((IF_AT_LEAST, 0, 2, first.to_bits()));
        instructions.push((IF_GREATER, 1, 0, last.to_bits()));
        instructions.push((RETURN, 0, 0, ACCEPT));
    }
    instructions.push((RETURN, 0, 0, if is_too_long { ACCEPT } else { DROP }));
    instructions
}

fn for_this_host() -> [Instruction; 3] {
    [(LOAD_BYTE, 0, 0, PACKET_TYPE), (IF_GREATER, 0, 1, MULTICAST), (RETURN, 0, 0, DROP)]
}

fn ipv4_range(pool: &Pool) -> Option<(Ipv4Addr, Ipv4Addr)> {
    match (pool.first(), pool.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Some((first, last)),
        _ => None,
    }
}

fn program(instructions: &[Instruction]) -> Vec<SockFilter> {
    // All codes are small.
    let code = |code: u32| u16::try_from(code).unwrap_or(0);
    instructions.iter().map(|&(number, yes, no, k)| SockFilter::new(code(number), yes, no, k)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::MacAddress;

    /// Interprets a program as the kernel does. Returns whether the packet is accepted.
    fn run(program: &[Instruction], packet: &[u8], packet_type: u32) -> bool {
        let (mut at, mut a) = (0, 0);
        loop {
            let (code, yes, no, k) = program[at];
            at += 1;
            let jump = |condition: bool| usize::from(if condition { yes } else { no });
            match code {
                LOAD_BYTE if k == PACKET_TYPE => a = packet_type,
                LOAD_BYTE => a = u32::from(packet[k as usize]),
                LOAD_WORD => a = u32::from_be_bytes(*packet[k as usize..].first_chunk().unwrap()),
                IF_EQUAL => at += jump(a == k),
                IF_GREATER => at += jump(a > k),
                IF_AT_LEAST => at += jump(a >= k),
                RETURN => return k == ACCEPT,
                _ => panic!("code {code}"),
            }
        }
    }

    #[test]
    fn only_senders_of_the_pools_pass() {
        let pool = ["192.0.2.200/29", "2001:db8::100/120", "203.0.113.255"].map(|text| text.parse().unwrap());
        let program = arp_instructions(&pool);
        let cases = [
            ([192, 0, 2, 199], false),
            ([192, 0, 2, 200], true),
            ([192, 0, 2, 207], true),
            ([192, 0, 2, 208], false),
            ([203, 0, 113, 254], false),
            ([203, 0, 113, 255], true),
            ([203, 0, 114, 0], false),
            ([0, 0, 0, 0], false),
        ];
        for (address, is_accepted) in cases {
            let packet = arp::announcement(MacAddress::from([2; 6]), address.into());
            for (packet_type, is_for_this_host) in [(0, true), (1, true), (2, true), (3, false), (4, false)] {
                let expected = is_accepted && is_for_this_host;
                assert_eq!(run(&program, &packet, packet_type), expected, "{address:?} {packet_type}");
            }
        }
    }

    #[test]
    fn many_pools_pass_all_packets() {
        let pools: Vec<Pool> = (0..2000).map(|n| Ipv4Addr::from(n * 2).to_string().parse().unwrap()).collect();
        let program = arp_instructions(&pools);
        assert!(program.len() < 4096);
        assert!(run(&program, &arp::announcement([2; 6].into(), [203, 0, 113, 1].into()), 1));
    }
}
