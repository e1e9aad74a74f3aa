//! Simulation of groups with partitions, crashes and suspended processes, in simulated time.
//!
//! Every run has a seed, which is part of each message.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::beat::{Beat, Role};
use super::decide::{DEADLINE, Decision, Own, PeerView, ROUND, Received, decide, rivals};
use crate::version::{ClaimId, Position};

const MILLI: Duration = Duration::from_millis(1);

/// Precision of the simulated time.
const STEP: Duration = Duration::from_millis(5);

/// An agent: what its file holds, and what only its process knows.
struct Agent {
    name: String,
    // ---- file
    position: Position,
    writes: BTreeSet<u64>,
    // ---- process
    running: bool,
    paused: bool,
    active: Option<u64>,
    contested: bool,
    /// The state is replicated in the term of the claim.
    settled: bool,
    electable: bool,
    seen_term: u64,
    peers: Vec<PeerView>,
    started: Instant,
    last_run: Instant,
    next_run: Instant,
}

struct World {
    seed: u64,
    rng: fastrand::Rng,
    now: Instant,
    quorum: usize,
    agents: Vec<Agent>,
    /// Pairs of agents that do not reach each other.
    cut: BTreeSet<(usize, usize)>,
    acknowledged: BTreeSet<u64>,
    last_write: u64,
    /// The agent of the next write is killed in the middle of it.
    kills_writer: bool,
    /// Since when two agents are active and reach each other.
    two_active: Option<Instant>,
    /// Since when there could be an active agent and is none.
    none_active: Option<Instant>,
}

impl World {
    fn new(seed: u64, count: usize, quorum: usize) -> World {
        let now = Instant::now();
        let mut rng = fastrand::Rng::with_seed(seed);
        let names: Vec<_> = (0..count).map(|index| format!("agent-{index}")).collect();
        let agent = |(index, name): (usize, &String)| Agent {
            name: name.clone(),
            position: Position::default(),
            writes: BTreeSet::new(),
            running: true,
            paused: false,
            active: None,
            contested: false,
            settled: false,
            electable: true,
            seen_term: 0,
            peers: names
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index)
                .map(|(_, n)| PeerView::new(n))
                .collect(),
            started: now,
            last_run: now,
            next_run: now + MILLI * rng.u32(0..250),
        };
        let agents = names.iter().enumerate().map(agent).collect();
        World {
            seed,
            rng,
            now,
            quorum,
            agents,
            cut: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            last_write: 0,
            kills_writer: false,
            two_active: None,
            none_active: Some(now),
        }
    }

    fn reaches(&self, one: usize, other: usize) -> bool {
        let answers = |index: usize| self.agents[index].running && !self.agents[index].paused;
        !self.cut.contains(&(one.min(other), one.max(other))) && answers(one) && answers(other)
    }

    fn own(&self, index: usize) -> Own {
        let agent = &self.agents[index];
        Own {
            name: agent.name.clone(),
            role: Role::Member,
            ready: true,
            writable: true,
            connected: true,
            active: agent.active,
            version: agent.position.version,
            seen_term: agent.seen_term,
            quorum: self.quorum,
            started: agent.started,
            last_run: agent.last_run,
        }
    }

    fn beat(&self, index: usize) -> Beat {
        let agent = &self.agents[index];
        let direct = agent.peers.iter().filter_map(|peer| peer.beat(self.now)?.claim());
        Beat {
            name: agent.name.clone(),
            boot: String::new(),
            role: Role::Member,
            ready: true,
            electable: agent.electable,
            writable: true,
            connected: true,
            active: agent.active,
            observes: direct.max_by(|one, other| one.rank().cmp(&other.rank())),
            version: agent.position.version,
            accepted: agent.position.accepted,
            seen_term: agent.seen_term,
            pools: String::new(),
            link_address: None,
        }
    }

    /// Polls the peers that are reached, and decides.
    fn round(&mut self, index: usize) {
        let name = self.agents[index].name.clone();
        for other in (0..self.agents.len()).filter(|other| *other != index) {
            if !self.reaches(index, other) {
                continue;
            }
            let (beat, claim, now) = (self.beat(other), self.beat(index).claim(), self.now);
            let agent = &mut self.agents[index];
            agent.seen_term = agent.seen_term.max(beat.seen_term(agent.position.accepted));
            let peer = agent.peers.iter_mut().find(|peer| peer.name == beat.name).unwrap();
            peer.received = Some(Received { at: now, beat });
            let Some(claim) = claim else { continue };
            let other = &mut self.agents[other];
            other.seen_term = other.seen_term.max(claim.term);
            other.contested |= other.active.is_some();
            other.peers.iter_mut().find(|peer| peer.name == name).unwrap().claim = Some((now, claim));
        }
        let decision = decide(&self.own(index), &self.agents[index].peers, self.now);
        self.act(index, decision);
    }

    fn act(&mut self, index: usize, decision: Decision) {
        let leader = match &decision {
            Decision::Standby { follow: Some(leader) } => self.agents.iter().position(|agent| agent.name == *leader),
            _ => None,
        };
        if let Some(leader) = leader.filter(|leader| self.reaches(index, *leader)) {
            self.accept(leader, index);
        }
        let (now, nonce) = (self.now, self.rng.u32(..));
        let agent = &mut self.agents[index];
        (agent.last_run, agent.next_run) = (now, now + ROUND);
        agent.electable = match &decision {
            Decision::Fenced(fenced) => fenced.is_electable(),
            _ => true,
        };
        match decision {
            Decision::Active { term, contested } => {
                if agent.active != Some(term) {
                    agent.position.accepted = ClaimId { term, nonce };
                    (agent.seen_term, agent.settled) = (agent.seen_term.max(term), false);
                }
                (agent.active, agent.contested) = (Some(term), contested);
            }
            Decision::Standby { .. } | Decision::Fenced(_) => agent.active = None,
        }
    }

    /// Copies the state of an active agent to another agent, if that accepts it.
    fn accept(&mut self, from: usize, to: usize) -> bool {
        let (claim, version) = (self.agents[from].position.accepted, self.agents[from].position.version);
        let writes = self.agents[from].writes.clone();
        let standby = &mut self.agents[to];
        let accepts = standby.active.is_none() && standby.position.accepts(standby.seen_term, claim, version);
        if accepts {
            (standby.position, standby.seen_term) = (Position { accepted: claim, version }, claim.term);
            standby.writes = writes;
        }
        accepts
    }

    /// Replicates the state to all live peers, at least to a quorum.
    fn replicate(&mut self, index: usize) -> bool {
        let is_live = |other: &usize| {
            let name = &self.agents[*other].name;
            self.agents[index].peers.iter().any(|peer| peer.name == *name && peer.beat(self.now).is_some())
        };
        let live: Vec<_> = (0..self.agents.len()).filter(is_live).collect();
        let all = live.iter().all(|other| self.reaches(index, *other) && self.accept(index, *other));
        self.agents[index].settled = all && live.len() + 1 >= self.quorum;
        self.agents[index].settled
    }

    /// A client writes to an agent that claims to be active.
    fn write(&mut self, index: usize) {
        let agent = &self.agents[index];
        let may_write = agent.active.is_some() && self.now - agent.last_run <= DEADLINE && !agent.contested;
        if !agent.running || agent.paused || !may_write {
            return;
        }
        if !self.agents[index].settled && !self.replicate(index) {
            return;
        }
        self.last_write += 1;
        let write = self.last_write;
        let agent = &mut self.agents[index];
        agent.position.version = agent.position.version.next(agent.position.accepted);
        agent.writes.insert(write);
        // The file has the write before it is replicated.
        if std::mem::take(&mut self.kills_writer) {
            return self.kill(index);
        }
        if self.replicate(index) {
            self.acknowledged.insert(write);
        }
    }

    fn kill(&mut self, index: usize) {
        self.agents[index].running = false;
        self.agents[index].active = None;
    }

    fn start(&mut self, index: usize) {
        let now = self.now;
        let agent = &mut self.agents[index];
        agent.running = true;
        agent.paused = false;
        (agent.active, agent.contested, agent.settled, agent.electable) = (None, false, false, true);
        agent.seen_term = agent.position.accepted.term;
        agent.peers.iter_mut().for_each(|peer| *peer = PeerView::new(&peer.name));
        (agent.started, agent.last_run, agent.next_run) = (now, now, now);
    }

    /// Advances the time, and checks that never two agents are active for long, and never none.
    fn step(&mut self) {
        self.now += STEP;
        for index in 0..self.agents.len() {
            let agent = &self.agents[index];
            if agent.running && !agent.paused && agent.next_run <= self.now {
                self.round(index);
            }
        }
        self.check_two();
        self.check_none();
    }

    fn check_two(&mut self) {
        let active = |index: &usize| self.agents[*index].active.is_some();
        let all: Vec<_> = (0..self.agents.len()).filter(active).collect();
        let pairs = all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other)));
        let two = pairs.filter(|(one, other)| one < other).any(|(one, other)| self.reaches(one, other));
        match self.two_active {
            _ if !two => self.two_active = None,
            None => self.two_active = Some(self.now),
            Some(since) => {
                let time = self.now - since;
                assert!(time <= ROUND + STEP, "seed {}: two agents are active for {time:?}", self.seed);
            }
        }
    }

    /// Whether some agent has a quorum of agents that all reach each other and no others, so that one of them must be active.
    fn must_have_active(&self) -> bool {
        let up = |index: &usize| self.agents[*index].running && !self.agents[*index].paused;
        let all: Vec<_> = (0..self.agents.len()).filter(up).collect();
        let is_whole = all.iter().all(|one| all.iter().all(|other| one == other || self.reaches(*one, *other)));
        is_whole && all.len() >= self.quorum
    }

    fn check_none(&mut self) {
        let has_active = self.agents.iter().any(|agent| agent.running && agent.active.is_some() && !agent.paused);
        match self.none_active {
            _ if has_active || !self.must_have_active() => self.none_active = None,
            None => self.none_active = Some(self.now),
            Some(since) => {
                let time = self.now - since;
                assert!(time <= DEADLINE + ROUND * 2 + STEP, "seed {}: no agent is active for {time:?}", self.seed);
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    fn run_with_writes(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            if self.rng.u8(0..4) == 0 {
                let index = self.rng.usize(0..self.agents.len());
                self.write(index);
            }
            self.step();
        }
    }

    fn assert_no_write_is_lost(&self) {
        let active = self.agents.iter().find(|agent| agent.active.is_some()).unwrap();
        let lost: Vec<_> = self.acknowledged.difference(&active.writes).collect();
        assert!(lost.is_empty(), "seed {}: {} lost the acknowledged writes {lost:?}", self.seed, active.name);
    }

    fn pause(&mut self) -> Duration {
        MILLI * self.rng.u32(1..4000)
    }

    fn resume_all(&mut self) {
        self.cut.clear();
        self.agents.iter_mut().for_each(|agent| agent.paused = false);
        for index in 0..self.agents.len() {
            if !self.agents[index].running {
                self.start(index);
            }
        }
    }
}

/// Time after which a whole group has settled and all agents have copied the state.
const SETTLED: Duration = Duration::from_secs(4);

#[test]
fn one_agent_is_active_whatever_fails() {
    for seed in 0..60 {
        let count = 1 + seed as usize % 3;
        let mut world = World::new(seed, count, if count == 3 { 2 } else { 1 });
        for _ in 0..12 {
            let (index, other) = (world.rng.usize(0..count), world.rng.usize(0..count));
            world.kills_writer = world.rng.u8(0..10) == 0;
            match world.rng.u8(0..5) {
                0 if index != other => _ = world.cut.insert((index.min(other), index.max(other))),
                1 => world.kill(index),
                2 => world.agents[index].paused = true,
                3 if !world.agents[index].running => world.start(index),
                _ => world.resume_all(),
            }
            let time = world.pause();
            world.run_with_writes(time);
        }
        world.resume_all();
        world.run(SETTLED);
        let active = world.agents.iter().filter(|agent| agent.active.is_some()).count();
        assert_eq!(active, 1, "seed {seed}");
        let newest = world.agents.iter().map(|agent| agent.position.version).collect::<BTreeSet<_>>();
        assert_eq!(newest.len(), 1, "seed {seed}: all have the same state");
    }
}

/// One agent at a time is killed or suspended, and gets time to return.
#[test]
fn no_acknowledged_write_is_lost_when_one_agent_fails() {
    let mut acknowledged = 0;
    for seed in 0..60 {
        let count = 2 + seed as usize % 2;
        let mut world = World::new(1000 + seed, count, if count == 3 { 2 } else { 1 });
        world.run(SETTLED);
        for _ in 0..6 {
            let index = world.rng.usize(0..count);
            match world.rng.u8(0..3) {
                0 => world.kill(index),
                1 => world.agents[index].paused = true,
                _ => world.kills_writer = true,
            }
            let time = world.pause();
            world.run_with_writes(time);
            world.kills_writer = false;
            world.resume_all();
            world.run(SETTLED);
            world.assert_no_write_is_lost();
        }
        acknowledged += world.acknowledged.len();
    }
    assert!(acknowledged > 5000, "{acknowledged}");
}

/// With a majority as quorum, partitions lose no acknowledged write either.
#[test]
fn partitions_of_three_agents_lose_no_acknowledged_write() {
    for seed in 0..60 {
        let mut world = World::new(2000 + seed, 3, 2);
        world.run(SETTLED);
        for _ in 0..8 {
            for pair in [(0, 1), (0, 2), (1, 2)] {
                if world.rng.u8(0..3) == 0 {
                    world.cut.insert(pair);
                }
            }
            let index = world.rng.usize(0..3);
            world.agents[index].paused = world.rng.u8(0..4) == 0;
            world.kills_writer = world.rng.u8(0..4) == 0;
            let time = world.pause();
            world.run_with_writes(time);
            if world.rng.bool() {
                world.resume_all();
                world.run(SETTLED);
                world.assert_no_write_is_lost();
            }
        }
    }
}

#[test]
fn an_isolated_agent_that_restarts_often_does_not_replace_the_state_of_the_group() {
    let mut world = World::new(1, 2, 1);
    world.run(SETTLED);
    world.cut.insert((0, 1));
    for _ in 0..5 {
        world.kill(1);
        world.start(1);
        world.run(SETTLED);
        world.write(0);
    }
    assert!(world.agents[1].active > world.agents[0].active);
    let own = world.own(0);
    assert!(rivals(&own, &world.agents[0].peers, world.now).is_empty());
    world.resume_all();
    world.run(SETTLED);
    assert_eq!(world.acknowledged.len(), 5);
    world.assert_no_write_is_lost();
}
