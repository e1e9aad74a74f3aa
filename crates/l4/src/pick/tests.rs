//! Examples for each algorithm, and properties of all of them.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
struct Fake {
    address: SocketAddr,
    weight: u16,
    eligible: bool,
    open: u64,
}

impl Candidate for Fake {
    fn address(&self) -> SocketAddr {
        self.address
    }
    fn weight(&self) -> u16 {
        self.weight
    }
    fn eligible(&self) -> bool {
        self.eligible
    }
    fn open(&self) -> u64 {
        self.open
    }
}

fn fakes(weights: &[u16]) -> Vec<Fake> {
    let fake = |(n, weight): (usize, &u16)| {
        let address = SocketAddr::from(([10, 0, 0, n as u8 + 1], 80));
        Fake { address, weight: *weight, eligible: true, open: 0 }
    };
    weights.iter().enumerate().map(fake).collect()
}

fn client(n: u32) -> IpAddr {
    std::net::Ipv4Addr::from_bits(0xc0a8_0000 + n).into()
}

fn picker(algorithm: Algorithm) -> Picker {
    Picker::new(algorithm, None, 0)
}

fn index(picker: &mut Picker, n: u32, targets: &[Fake]) -> Option<usize> {
    picker.pick(client(n), targets, &[], Instant::now()).map(|pick| pick.index)
}

#[test]
fn round_robin_interleaves_heavy_and_light_targets() {
    let (mut picker, targets) = (picker(Algorithm::RoundRobin), fakes(&[5, 1, 1]));
    let order: Vec<_> = (0..7).filter_map(|n| index(&mut picker, n, &targets)).collect();
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn round_robin_continues_its_order_when_a_target_is_added() {
    let (mut picker, mut targets) = (picker(Algorithm::RoundRobin), fakes(&[1, 1]));
    assert_eq!(index(&mut picker, 0, &targets), Some(0));
    targets.insert(0, Fake { address: "10.0.0.9:80".parse().unwrap(), ..targets[0].clone() });
    let next = index(&mut picker, 0, &targets).unwrap();
    assert_eq!(targets[next].address, "10.0.0.2:80".parse().unwrap(), "the next one before the change");
}

#[test]
fn least_connections_is_relative_to_the_weight() {
    // Open connections and weight of two targets; the second is picked.
    let cases =
        [[(3, 1), (2, 1)], [(3, 1), (5, 3)], [(0, 1), (0, 2)], [(0, 0), (9, 1)], [(u64::MAX, 1), (u64::MAX, u16::MAX)]];
    for loads in cases {
        let mut targets = fakes(&loads.map(|(_, weight)| weight));
        targets.iter_mut().zip(loads).for_each(|(target, (open, _))| target.open = open);
        assert_eq!(index(&mut picker(Algorithm::LeastConnections), 0, &targets), Some(1), "{loads:?}");
    }
    assert_eq!(index(&mut picker(Algorithm::LeastConnections), 0, &[]), None);
}

#[test]
fn targets_with_the_same_load_are_picked_in_turn() {
    let (mut picker, targets) = (picker(Algorithm::LeastConnections), fakes(&[1, 1, 1]));
    let order: Vec<_> = (0..6).filter_map(|n| index(&mut picker, n, &targets)).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn an_ipv4_client_keeps_its_target_on_a_dual_stack_socket() {
    let targets = fakes(&[1; 20]);
    let affine = Picker::new(Algorithm::RoundRobin, Some(Duration::from_secs(60)), 100);
    for mut picker in [picker(Algorithm::SourceHash), affine] {
        for n in 0..50 {
            let IpAddr::V4(v4) = client(n) else { panic!("clients here are IPv4") };
            let mapped = picker.pick(v4.to_ipv6_mapped().into(), &targets, &[], Instant::now()).unwrap().index;
            assert_eq!(index(&mut picker, n, &targets), Some(mapped));
        }
    }
}

#[test]
fn with_source_hash_only_clients_of_a_removed_target_move() {
    let (mut picker, targets) = (picker(Algorithm::SourceHash), fakes(&[1, 2, 3, 4, 5]));
    let mut fewer = targets.clone();
    fewer.remove(2);
    let mut moved = 0;
    for n in 0..1000 {
        let before = targets[index(&mut picker, n, &targets).unwrap()].address;
        let after = fewer[index(&mut picker, n, &fewer).unwrap()].address;
        assert!(before == after || before == targets[2].address, "{before} to {after}");
        moved += u32::from(before != after);
    }
    assert!((150..250).contains(&moved), "{moved} clients moved; expected about 3/15 of 1000");
}

#[test]
fn affinity_lasts_until_the_target_is_not_eligible() {
    let spoil: &[fn(&mut Vec<Fake>)] = &[
        |targets| targets[0].eligible = false,
        |targets| targets[0].weight = 0,
        |targets| {
            targets.remove(0);
        },
    ];
    for spoil in spoil {
        let mut targets = fakes(&[1, 1, 1]);
        let mut picker = Picker::new(Algorithm::RoundRobin, Some(Duration::from_secs(60)), 10);
        assert!((0..5).all(|_| index(&mut picker, 7, &targets) == Some(0)));
        let first = targets[0].address;
        spoil(&mut targets);
        let second = targets[index(&mut picker, 7, &targets).unwrap()].address;
        assert_ne!(second, first);
        let restored = fakes(&[1, 1, 1]);
        let third = restored[index(&mut picker, 7, &restored).unwrap()].address;
        assert_eq!(third, second, "the client does not move back");
    }
}

#[test]
fn a_retry_picks_another_target_and_affinity_follows() {
    let targets = fakes(&[1, 1]);
    let mut picker = Picker::new(Algorithm::RoundRobin, Some(Duration::from_secs(60)), 10);
    let now = Instant::now();
    let first = picker.pick(client(1), &targets, &[], now).unwrap();
    let refused = [targets[first.index].address];
    picker.end(first.ticket.unwrap(), now);
    let second = picker.pick(client(1), &targets, &refused, now).unwrap();
    assert_ne!(second.index, first.index);
    assert_eq!(index(&mut picker, 1, &targets), Some(second.index));
    let all: Vec<_> = targets.iter().map(|target| target.address).collect();
    assert!(picker.pick(client(1), &targets, &all, now).is_none());
}

#[test]
fn affinity_can_be_disabled_and_enabled_with_open_connections() {
    let targets = fakes(&[1, 1]);
    let mut picker = Picker::new(Algorithm::RoundRobin, Some(Duration::from_secs(60)), 10);
    let first = picker.pick(client(1), &targets, &[], Instant::now()).unwrap();
    picker.set(Algorithm::RoundRobin, None);
    picker.end(first.ticket.unwrap(), Instant::now());
    assert_eq!(index(&mut picker, 1, &targets), Some(1), "round robin again");
    picker.set(Algorithm::RoundRobin, Some(Duration::from_secs(1)));
    let next = index(&mut picker, 1, &targets);
    assert_eq!(index(&mut picker, 1, &targets), next);
}

#[test]
fn a_target_that_becomes_eligible_again_gets_at_most_one_more_than_its_share() {
    for (a, b, c, rests) in (0..4 * 4 * 4 * 20).map(|n| (n % 4 + 1, n / 4 % 4 + 1, n / 16 % 4 + 1, n / 64)) {
        let (mut picker, mut targets) = (picker(Algorithm::RoundRobin), fakes(&[a, b, c]));
        index(&mut picker, 0, &targets);
        targets[0].eligible = false;
        for _ in 0..rests {
            index(&mut picker, 0, &targets);
        }
        targets[0].eligible = true;
        let got = (0..a + b + c).filter(|_| index(&mut picker, 0, &targets) == Some(0)).count();
        assert!(got <= usize::from(a) + 1, "{got} with weights {a}, {b} and {c} after {rests} picks without it");
    }
}

fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![Just(Algorithm::RoundRobin), Just(Algorithm::LeastConnections), Just(Algorithm::SourceHash)]
}

fn any_target() -> impl Strategy<Value = (u16, bool, u64)> {
    (prop_oneof![0..4u16, any::<u16>()], any::<bool>(), prop_oneof![0..4u64, any::<u64>()])
}

proptest! {
    #[test]
    fn an_eligible_target_is_picked_if_there_is_one(
        algorithm in any_algorithm(),
        affinity in any::<bool>(),
        // The same targets, in another state each round.
        rounds in prop::collection::vec((any::<u32>(), prop::collection::vec(any_target(), 0..6)), 1..20),
    ) {
        let mut picker = Picker::new(algorithm, affinity.then_some(Duration::from_secs(1)), 3);
        let now = Instant::now();
        for (n, states) in rounds {
            let mut targets = fakes(&states.iter().map(|(weight, ..)| *weight).collect::<Vec<_>>());
            for (target, (_, eligible, open)) in targets.iter_mut().zip(&states) {
                (target.eligible, target.open) = (*eligible, *open);
            }
            let is_eligible = |target: &Fake| target.eligible && target.weight > 0;
            match picker.pick(client(n % 5), &targets, &[], now) {
                Some(pick) => prop_assert!(is_eligible(&targets[pick.index])),
                None => prop_assert!(!targets.iter().any(is_eligible)),
            }
        }
    }

    #[test]
    fn round_robin_picks_each_target_as_often_as_its_weight(
        weights in prop::collection::vec(0..20u16, 1..8)
    ) {
        let (mut picker, targets) = (picker(Algorithm::RoundRobin), fakes(&weights));
        let round: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
        for _ in 0..2 {
            let mut got = vec![0u16; weights.len()];
            (0..round).filter_map(|n| index(&mut picker, n, &targets)).for_each(|index| got[index] += 1);
            prop_assert_eq!(&got, &weights);
        }
    }

    #[test]
    fn least_connections_fills_targets_by_weight(weights in prop::collection::vec(1..20u16, 1..6)) {
        let (mut picker, mut targets) = (picker(Algorithm::LeastConnections), fakes(&weights));
        let round: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
        for n in 0..round {
            let next = index(&mut picker, n, &targets).unwrap();
            targets[next].open += 1;
        }
        let open: Vec<_> = targets.iter().map(|target| target.open).collect();
        prop_assert_eq!(open, weights.iter().map(|weight| u64::from(*weight)).collect::<Vec<_>>());
    }

    #[test]
    fn with_source_hash_the_shares_of_many_clients_follow_the_weights(
        weights in prop::collection::vec(1..6u16, 2..6), first in any::<u16>()
    ) {
        let (mut picker, targets) = (picker(Algorithm::SourceHash), fakes(&weights));
        let mut got = vec![0f64; weights.len()];
        let clients = 3000;
        for n in 0..clients {
            got[index(&mut picker, u32::from(first) + n, &targets).unwrap()] += 1.0;
        }
        let total: f64 = weights.iter().copied().map(f64::from).sum();
        for (got, weight) in got.iter().zip(&weights) {
            let expected = f64::from(clients) * f64::from(*weight) / total;
            // Seven standard deviations, so that only a wrong hash fails the test.
            prop_assert!((got - expected).abs() < 7.0 * expected.sqrt(), "{got} instead of {expected}");
        }
    }
}
