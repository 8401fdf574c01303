//! `redis-handoff`: several processes want one name. How long it is from a release to the grant of the next process, how evenly they
//! have their turns, and what it costs the server; beside the same scripts on bare sockets, and beside redsync, which polls.

use std::cell::RefCell;
use std::io::BufRead;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold_interop::clock::now_us;
use leasehold_interop::driver::Driver;
use leasehold_interop::peer::Peer;
use serde::{Deserialize, Serialize};

use crate::comparison::{Comparison, Effort};
use crate::figure::Figure;
use crate::peers::peer;
use crate::ratio::{Sample, SideBySide};
use crate::redis::{Place, SENT};
use crate::scripts::OwnScripts;
use crate::socket::{BlockingSocket, granted, integer_in};

/// How many processes, and what share of the mean the one with the fewest turns has to have.
const SIZES: [(usize, f64); 3] = [(2, 0.9), (8, 0.9), (32, 0.5)];
const SPAN: Duration = Duration::from_secs(1);
/// How often redsync asks again: a twentieth to a hundredth of what it does by itself.
const POLL: Duration = Duration::from_millis(1);
/// What redsync sends.
const SENT_BY_REDSYNC: &[&str] = &["set", "eval", "evalsha"];

const BARE: &str = "leasehold's scripts bare";
const LEASEHOLD: &str = "leasehold";
/// Says that this process is to be one of those whose scripts are bare.
pub(crate) const BARE_TURNS: &str = "--bare-turns";
/// A hint that was lost costs no more than this.
const HINT_WITHIN: Duration = Duration::from_millis(50);

/// When each grant came and its release was called.
type Turns = Vec<(u64, u64)>;

#[derive(Serialize, Deserialize)]
struct Answer {
    turns: Turns,
}

/// All sizes.
pub(crate) fn handoff(effort: Effort) -> Comparison {
    let mut comparison = Comparison { tables: Vec::new(), figures: Vec::new(), ignored: Vec::new() };
    let redsync = peer("redsync");
    if redsync.needs.missing().is_some() {
        comparison.ignored.push(format!("redsync: no {}", redsync.needs.word));
    }
    for (processes, share) in SIZES {
        compare(processes, share, effort, &mut comparison);
    }
    comparison
}

fn compare(processes: usize, share: f64, effort: Effort, comparison: &mut Comparison) {
    let place = Place::new();
    let bare = Peer { name: BARE, command: |_, _| this(BARE_TURNS), ..Peer::leasehold(&peer("redisson-4")) };
    let redsync = peer("redsync");
    let mut crews = vec![Crew::start(&place, bare, BARE.into(), SENT, processes)];
    crews.push(Crew::start(&place, Peer::leasehold(&peer("redisson-4")), LEASEHOLD.into(), SENT, processes));
    if redsync.needs.missing().is_none() {
        crews.push(Crew::start(&place, redsync, "redsync, which polls every ms".into(), SENT_BY_REDSYNC, processes));
    }
    let things =
        crews.iter().fold(SideBySide::new("us"), |things, crew| things.thing(crew.name.clone(), || crew.round(&place)));
    let rounds = things.run(effort.rounds);
    let figures = &mut comparison.figures;
    for crew in &crews {
        let what = |what: &str| format!("{processes} processes, {}: {what}", crew.name);
        let is_ours = crew.name == LEASEHOLD;
        figures.push(Figure::median(what("handoff, median"), &rounds.of(&crew.name), "us"));
        if is_ours {
            figures
                .push(Figure::median(what("handoff, ratio to bare"), &rounds.ratio(LEASEHOLD, BARE), "").at_most(1.3));
        }
        let smallest =
            Figure::median(what("smallest share, of the mean"), &crew.each(|round| round.smallest_share), "");
        figures.push(if is_ours { smallest.at_least(share) } else { smallest });
        figures.push(Figure::median(what("grants a handoff"), &crew.each(|round| round.grants), ""));
        let commands = Figure::median(what("commands a handoff"), &crew.each(|round| round.commands), "");
        figures.push(if is_ours { commands.at_most(4.0) } else { commands });
    }
    comparison.tables.push((format!("Handoff between {processes} processes"), rounds));
}

/// Processes that want the same name.
struct Crew {
    name: String,
    sent: &'static [&'static str],
    drivers: RefCell<Vec<Driver>>,
    rounds: RefCell<Vec<Round>>,
}

/// What is told of one round beside its median.
struct Round {
    smallest_share: f64,
    /// More than one, where a process takes what it has just released.
    grants: f64,
    commands: f64,
}

impl Crew {
    fn start(place: &Place, peer: Peer, name: String, sent: &'static [&'static str], processes: usize) -> Self {
        let start = |_| Driver::start(peer, &[place.0.address()]).unwrap_or_else(|error| panic!("{error}"));
        Self { name, sent, drivers: RefCell::new((0..processes).map(start).collect()), rounds: RefCell::default() }
    }

    /// Lets all work, and gives the median of a handoff in microseconds.
    fn round(&self, place: &Place) -> f64 {
        let before = place.calls_of(self.sent);
        let turns = self.turns();
        let commands = place.calls_of(self.sent) - before;
        let handoffs = handoffs(&turns);
        let grants = turns.iter().map(Vec::len);
        let (all, fewest) = (grants.clone().sum::<usize>() as f64, grants.min().unwrap_or(0) as f64);
        let each_handoff = |count: f64| count / handoffs.len().max(1) as f64;
        self.rounds.borrow_mut().push(Round {
            smallest_share: fewest * turns.len() as f64 / all,
            grants: each_handoff(all),
            commands: each_handoff(commands),
        });
        handoffs.value_at_quantile(0.5) as f64
    }

    fn turns(&self) -> Vec<Turns> {
        let mut drivers = self.drivers.borrow_mut();
        // A name of its own each time: those who stopped may still be in the list of the last one.
        let name = format!("{}-{}", self.name.split(' ').next().unwrap_or_default(), self.rounds.borrow().len());
        let command = format!("turns {name} {} {}", SPAN.as_millis(), POLL.as_millis());
        let told = drivers.iter_mut().try_for_each(|driver| driver.tell(&command));
        let answers = told.and_then(|()| drivers.iter_mut().map(|driver| driver.answer::<Answer>(SPAN)).collect());
        let answers: Vec<Answer> = answers.unwrap_or_else(|error| panic!("{error}"));
        answers.into_iter().map(|answer| answer.turns).collect()
    }

    /// Of each round that counts.
    fn each(&self, value: impl Fn(&Round) -> f64) -> Sample {
        Sample::new(self.rounds.borrow().iter().skip(1).map(value).collect())
    }
}

/// From the call of a release to the grant of another process, in microseconds.
fn handoffs(turns: &[Turns]) -> Histogram<u64> {
    let of =
        |(process, turns): (usize, &Turns)| turns.iter().map(|(at, from)| (*at, *from, process)).collect::<Vec<_>>();
    let mut all: Vec<_> = turns.iter().enumerate().flat_map(of).collect();
    all.sort_unstable();
    let mut handoffs = Histogram::<u64>::new(3).expect("a histogram");
    for pair in all.windows(2) {
        let ((_, released, one), (granted, _, other)) = (pair[0], pair[1]);
        assert!(granted >= released, "two processes held the lock");
        if one != other {
            handoffs.record(granted - released).expect("within bounds");
        }
    }
    handoffs
}

/// This program, told to be something else.
fn this(what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.arg(what);
    command
}

/// One process with bare sockets: does as much of testing/interop/peers/PROTOCOL.md as this needs, until its input ends.
pub(crate) fn bare_turns(port: &str) {
    let server: SocketAddr = ([127, 0, 0, 1], port.parse().expect("a port")).into();
    let client = u64::from(std::process::id());
    let mut commands = BlockingSocket::connect(server);
    let mut hints = BlockingSocket::connect(server);
    let digests = OwnScripts::digests(&mut commands);
    let channel = OwnScripts::of(digests.clone(), "", client).channel();
    hints.call(redis::cmd("SUBSCRIBE").arg(channel), |_| ());
    println!("{}", serde_json::json!({"ready": true, "library": BARE, "version": ""}));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let ["turns", name, span, _] = words[..] else { break };
        let mut scripts = OwnScripts::of(digests.clone(), name, client);
        let span = Duration::from_millis(span.parse().expect("a number"));
        let turns = take_turns(&mut scripts, &mut commands, &mut hints, span);
        println!("{}", serde_json::json!(Answer { turns }));
    }
}

/// Who has released waits until it is its turn again, as leasehold does: otherwise the lock would seldom change hands.
fn take_turns(
    scripts: &mut OwnScripts,
    commands: &mut BlockingSocket,
    hints: &mut BlockingSocket,
    span: Duration,
) -> Turns {
    let (began, mut turns) = (Instant::now(), Turns::new());
    while began.elapsed() < span {
        let mut is_alone = false;
        if let Some(fence) = commands.call(&scripts.acquire(true), granted) {
            turns.push((now_us(), now_us()));
            is_alone = commands.call(&scripts.release(fence, true), |reply| integer_in(reply, 1)) == 0;
        }
        if !is_alone {
            hints.message_within(HINT_WITHIN);
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_of_hands_is_a_handoff() {
        let found = handoffs(&[vec![(10, 20), (30, 40)], vec![(47, 50)]]);
        assert_eq!((found.len(), found.value_at_quantile(0.5)), (1, 7));
    }

    #[test]
    #[should_panic(expected = "two processes held the lock")]
    fn two_holders_are_found() {
        let _ = handoffs(&[vec![(10, 20)], vec![(15, 30)]]);
    }
}
