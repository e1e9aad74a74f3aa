//! Capabilities of this process.

/// Capability that the agent needs for an interface.
#[derive(Debug, Clone, Copy)]
pub(super) struct Capability {
    pub(super) name: &'static str,
    pub(super) purpose: &'static str,
    bit: u32,
}

const REQUIRED: [Capability; 2] = [
    Capability { name: "CAP_NET_ADMIN", purpose: "changing the addresses of an interface", bit: 12 },
    Capability { name: "CAP_NET_RAW", purpose: "announcing addresses (ARP, neighbour advertisements)", bit: 13 },
];

/// Returns the first missing capability. Reads `/proc`; without it, the later requests show what is missing.
pub(super) fn missing() -> Option<Capability> {
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    missing_in(&status)
}

fn missing_in(status: &str) -> Option<Capability> {
    let effective = status.lines().find_map(|row| row.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
    REQUIRED.into_iter().find(|capability| effective & (1 << capability.bit) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missing_capability_is_found() {
        let cases = [
            ("000001ffffffffff", None),
            ("0000000000003400", None),
            ("0000000000002000", Some("CAP_NET_ADMIN")),
            ("0000000000001000", Some("CAP_NET_RAW")),
            ("0000000000000000", Some("CAP_NET_ADMIN")),
        ];
        for (effective, expected) in cases {
            let status = format!("Name:\tbowline\nCapPrm:\t0000000000000000\nCapEff:\t{effective}\nSeccomp:\t0\n");
            assert_eq!(missing_in(&status).map(|capability| capability.name), expected, "{effective}");
        }
        assert!(missing_in("Name:\tbowline\n").is_none());
    }
}
