use super::*;
use crate::version::ClaimId;

fn start() -> Instant {
    Instant::now()
}

fn version(term: u64, seq: u64) -> Version {
    Version { seq, by: ClaimId { term, nonce: 0 } }
}

fn own(now: Instant) -> Own {
    Own {
        name: "b".to_owned(),
        role: Role::Member,
        ready: true,
        writable: true,
        connected: true,
        active: None,
        version: version(1, 5),
        seen_term: 1,
        quorum: 1,
        started: now - Duration::from_secs(60),
        last_run: now - ROUND,
    }
}

fn beat(name: &str) -> Beat {
    Beat {
        name: name.to_owned(),
        boot: String::new(),
        role: Role::Member,
        ready: true,
        electable: true,
        writable: true,
        connected: true,
        active: None,
        observes: None,
        version: version(1, 5),
        accepted: ClaimId::default(),
        seen_term: 1,
        pools: String::new(),
        link_address: None,
    }
}

fn received(now: Instant, beat: Beat) -> PeerView {
    PeerView { received: Some(Received { at: now, beat: beat.clone() }), ..PeerView::new(&beat.name) }
}

fn claim(name: &str, term: u64, version: Version) -> Claim {
    Claim { name: name.to_owned(), term, version }
}

const ACTIVE_2: Decision = Decision::Active { term: 2, contested: false };

fn follow(name: Option<&str>) -> Decision {
    Decision::Standby { follow: name.map(str::to_owned) }
}

#[test]
fn a_single_agent_is_active_at_once_and_after_a_pause() {
    let now = start();
    assert_eq!(decide(&Own { started: now, last_run: now, ..own(now) }, &[], now), ACTIVE_2);
    let paused = Own { active: Some(2), last_run: now - Duration::from_secs(60), seen_term: 2, ..own(now) };
    assert_eq!(decide(&paused, &[], now), ACTIVE_2);
}

#[test]
fn the_newest_state_is_elected_then_a_connected_and_writable_one_then_the_first_name() {
    let now = start();
    let table = [
        (Beat { ..beat("a") }, follow(None)),
        (Beat { ..beat("c") }, ACTIVE_2),
        (Beat { version: version(1, 6), ..beat("c") }, follow(None)),
        (Beat { version: version(9, 4), ..beat("a") }, ACTIVE_2),
        (Beat { version: version(2, 5), ..beat("c") }, follow(None)),
        (Beat { writable: false, ..beat("a") }, ACTIVE_2),
        (Beat { connected: false, ..beat("a") }, ACTIVE_2),
        (Beat { connected: false, version: version(1, 6), ..beat("c") }, follow(None)),
        (Beat { writable: false, version: version(1, 6), ..beat("c") }, follow(None)),
        (Beat { ready: false, ..beat("a") }, ACTIVE_2),
        (Beat { electable: false, ..beat("a") }, ACTIVE_2),
        (Beat { role: Role::Follower, ..beat("a") }, ACTIVE_2),
    ];
    for (beat, expected) in table {
        let decision = decide(&own(now), &[received(now, beat.clone())], now);
        assert_eq!(decision, expected, "{beat:?}");
    }
}

#[test]
fn a_live_active_peer_is_followed_even_with_an_older_state() {
    let now = start();
    for (term, version) in [(2, version(1, 5)), (2, version(1, 1)), (7, version(7, 99))] {
        let peers = [received(now, Beat { active: Some(term), version, ..beat("c") })];
        assert_eq!(decide(&own(now), &peers, now), follow(Some("c")));
        let starting = Own { started: now, ..own(now) };
        let with_unknown = [peers[0].clone(), PeerView::new("d")];
        assert_eq!(decide(&starting, &with_unknown, now), follow(Some("c")));
    }
}

#[test]
fn a_peer_is_alive_until_its_deadline_and_its_beat_counts_from_its_request() {
    let now = start();
    let active = Beat { active: Some(2), version: version(2, 5), ..beat("a") };
    for (age, expected) in [
        (DEADLINE, follow(Some("a"))),
        (DEADLINE + Duration::from_millis(1), Decision::Active { term: 3, contested: false }),
    ] {
        let own = Own { seen_term: 2, ..own(now) };
        assert_eq!(decide(&own, &[received(now - age, active.clone())], now), expected, "{age:?}");
    }
}

#[test]
fn the_active_agent_stays_active_unless_a_newer_state_returns() {
    let now = start();
    let own = Own { active: Some(2), version: version(2, 5), seen_term: 2, ..own(now) };
    let equal = Beat { version: version(2, 5), ..beat("a") };
    let older = Beat { version: version(1, 5), ..beat("a") };
    for peers in [vec![], vec![received(now, equal)], vec![received(now, older)], vec![PeerView::new("a")]] {
        assert_eq!(decide(&own, &peers, now), ACTIVE_2);
    }
    let newer = Beat { version: version(1, 9), ..beat("c") };
    assert_eq!(decide(&own, &[received(now, newer.clone())], now), follow(None));
    for unelectable in [Beat { electable: false, ..newer.clone() }, Beat { ready: false, ..newer.clone() }] {
        assert_eq!(decide(&own, &[received(now, unelectable)], now), ACTIVE_2);
    }
}

#[test]
fn the_active_agent_leaves_the_addresses_to_a_connected_peer_with_its_state() {
    let now = start();
    let own = Own { active: Some(2), version: version(2, 5), seen_term: 2, connected: false, ..own(now) };
    let connected = Beat { version: version(2, 5), ..beat("c") };
    assert_eq!(decide(&own, &[received(now, connected.clone())], now), follow(None));
    for unsuitable in [
        Beat { connected: false, ..connected.clone() },
        Beat { version: version(2, 4), ..connected.clone() },
        Beat { electable: false, ..connected.clone() },
        Beat { role: Role::Follower, ..connected.clone() },
    ] {
        assert_eq!(decide(&own, &[received(now, unsuitable.clone())], now), ACTIVE_2, "{unsuitable:?}");
    }
    assert_eq!(decide(&own, &[PeerView::new("c")], now), ACTIVE_2, "alone");
    let standby = Own { active: None, ..own };
    assert_eq!(decide(&standby, &[received(now, connected)], now), follow(None), "it does not take them back");
}

#[test]
fn of_two_active_agents_the_one_with_fewer_writes_yields() {
    let now = start();
    let own = Own { active: Some(3), version: version(3, 5), seen_term: 3, ..own(now) };
    let contested = Decision::Active { term: 3, contested: true };
    let table = [
        ("a", 3, version(3, 4), contested.clone()),
        ("a", 2, version(2, 5), contested.clone()),
        ("a", 3, version(3, 5), follow(Some("a"))),
        ("c", 3, version(3, 5), contested.clone()),
        ("c", 3, version(3, 6), follow(Some("c"))),
        ("c", 2, version(2, 6), follow(Some("c"))),
        ("c", 9, version(9, 4), contested),
    ];
    for (name, term, version, expected) in table {
        let peer = received(now, Beat { active: Some(term), version, ..beat(name) });
        assert_eq!(decide(&own, &[peer], now), expected, "{name} {term} {version}");
        // A claim in a request has the same effect, but there is nothing to copy yet.
        let pushed = PeerView { claim: Some((now, claim(name, term, version))), ..PeerView::new(name) };
        let expected = if matches!(expected, Decision::Standby { .. }) { follow(None) } else { expected };
        assert_eq!(decide(&own, &[pushed], now), expected, "pushed {name} {term} {version}");
        // And so has one that a third agent observes.
        let observes = Some(claim(name, term, version));
        let third = received(now, Beat { observes, ..beat("z") });
        assert_eq!(decide(&own, &[third, PeerView::new(name)], now), expected, "indirect {name} {term} {version}");
    }
}

#[test]
fn a_contested_winner_takes_a_term_that_its_peers_accept() {
    let now = start();
    let own = Own { active: Some(3), version: version(3, 9), seen_term: 7, ..own(now) };
    let peer = received(now, Beat { active: Some(7), version: version(7, 5), ..beat("a") });
    assert_eq!(decide(&own, &[peer], now), Decision::Active { term: 8, contested: true });
    assert_eq!(decide(&own, &[], now), Decision::Active { term: 8, contested: false });
}

#[test]
fn what_a_third_agent_observes_counts_only_for_agents_that_are_not_observed_directly() {
    let now = start();
    let third = received(now, Beat { observes: Some(claim("a", 2, version(2, 5))), ..beat("c") });
    assert_eq!(decide(&own(now), &[third.clone(), PeerView::new("a")], now), follow(None));
    let fallen = received(now, Beat { version: version(1, 4), ..beat("a") });
    assert_eq!(decide(&own(now), &[third, fallen], now), ACTIVE_2);
    let echo = received(now, Beat { observes: Some(claim("b", 9, version(2, 9))), ..beat("c") });
    assert_eq!(decide(&own(now), &[echo], now), ACTIVE_2, "its own claim from before");
}

#[test]
fn a_peer_that_is_only_seen_on_the_segment_is_active() {
    let now = start();
    let seen = |name| PeerView { beacon: Some(now), ..PeerView::new(name) };
    assert_eq!(decide(&own(now), &[seen("c")], now), follow(None));
    let active = Own { active: Some(2), seen_term: 2, ..own(now) };
    assert_eq!(decide(&active, &[seen("c")], now), ACTIVE_2);
    assert_eq!(decide(&active, &[seen("a")], now), follow(None));
    // It counts for the quorum.
    assert_eq!(decide(&Own { quorum: 2, ..active.clone() }, &[seen("c"), PeerView::new("d")], now), ACTIVE_2);
    let old = PeerView { beacon: Some(now - DEADLINE * 2), ..PeerView::new("a") };
    assert_eq!(decide(&active, &[old], now), ACTIVE_2);
}

#[test]
fn an_agent_is_fenced_without_a_quorum_after_a_pause_and_at_its_start() {
    let now = start();
    let alone = [PeerView::new("a"), PeerView::new("c")];
    let needs_2 = Own { quorum: 2, ..own(now) };
    let fenced = Decision::Fenced(Fenced::Quorum { alive: 1, needed: 2 });
    for active in [None, Some(2)] {
        assert_eq!(decide(&Own { active, seen_term: 2, ..needs_2.clone() }, &alone, now), fenced);
        let paused = Own { active, last_run: now - DEADLINE * 2, ..own(now) };
        assert_eq!(decide(&paused, &alone, now), Decision::Fenced(Fenced::Suspended));
    }
    let starting = Own { started: now, ..own(now) };
    assert_eq!(decide(&starting, &alone, now), Decision::Fenced(Fenced::Starting));
    assert_eq!(decide(&starting, &alone, now + DEADLINE - ROUND), Decision::Fenced(Fenced::Starting));
    let later = now + DEADLINE + ROUND;
    assert_eq!(decide(&Own { last_run: later, ..starting.clone() }, &alone, later), ACTIVE_2);
    let all_received = [received(now, beat("c"))];
    assert_eq!(decide(&starting, &all_received, now), ACTIVE_2);
}

#[test]
fn a_follower_and_an_agent_that_leaves_are_never_active() {
    let now = start();
    let active = received(now, Beat { active: Some(1), ..beat("c") });
    let follower = Own { role: Role::Follower, ..own(now) };
    let leaving = Own { ready: false, active: Some(2), ..own(now) };
    for own in [follower, leaving] {
        assert_eq!(decide(&own, &[], now), follow(None));
        assert_eq!(decide(&own, std::slice::from_ref(&active), now), follow(Some("c")));
    }
}

/// Two agents in every combination of claims, versions, flags and ages, with the decision of both: if they reach each other, at
/// most one is active or becomes active; and none only if the active one leaves it to a newer or connected standby.
#[test]
fn two_agents_that_reach_each_other_have_one_active_in_every_state() {
    let now = start();
    let versions = [version(1, 5), version(2, 5), version(1, 6)];
    let states: Vec<_> = [None, Some(1), Some(2), Some(3)]
        .into_iter()
        .flat_map(|active| versions.map(|version| (active, version)))
        .flat_map(|(active, version)| [true, false].map(|writable| (active, version, writable)))
        .flat_map(|(active, version, writable)| [true, false].map(|connected| (active, version, writable, connected)))
        .collect();
    let mut count = 0;
    for (one, other) in states.iter().flat_map(|one| states.iter().map(move |other| (one, other))) {
        let beat_of = |name, state: &(Option<u64>, Version, bool, bool)| Beat {
            active: state.0,
            version: state.1,
            writable: state.2,
            connected: state.3,
            ..beat(name)
        };
        let (a, b) = (beat_of("a", one), beat_of("b", other));
        let seen_term = a.active.max(b.active).max(Some(2)).unwrap();
        let decide_as = |me: &Beat, peer: &Beat| {
            let Beat { name, active, version, writable, connected, .. } = me.clone();
            let own = Own { name, active, version, writable, connected, seen_term, ..own(now) };
            decide(&own, &[received(now, peer.clone())], now)
        };
        let decisions = [decide_as(&a, &b), decide_as(&b, &a)];
        let active = decisions.iter().filter(|it| matches!(it, Decision::Active { .. })).count();
        let better_standby = |one: &Beat, other: &Beat| {
            let rank = |beat: &Beat| (beat.version, beat.connected);
            one.active.is_some() && other.active.is_none() && rank(other) > rank(one)
        };
        let expected = usize::from(!better_standby(&a, &b) && !better_standby(&b, &a));
        assert_eq!(active, expected, "{a:?} {b:?}: {decisions:?}");
        count += 1;
    }
    assert_eq!(count, 48 * 48);
}
