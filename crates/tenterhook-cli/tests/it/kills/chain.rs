//! One run, killed again and again and resumed until it is finished.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use super::child::{Part, Signals};
use super::sight::{Before, Kind};
use super::task::Task;
use crate::tenter::Place;

/// A small random stream, so that a failure can be repeated as far as time can be.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) >> 32).expect("the upper half fits")
    }

    /// A number from 0 to below 1.
    pub(super) fn share(&mut self) -> f64 {
        f64::from(self.next()) / (f64::from(u32::MAX) + 1.0)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }
}

/// When to kill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aim {
    /// So long after the start.
    Instant(Duration),
    /// The first time that it does this after so many saves of its own.
    At(Kind, u64),
}

/// What has happened so far.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) kills: usize,
    pub(super) random: usize,
    pub(super) kinds: BTreeMap<Kind, usize>,
    pub(super) parts: usize,
    pub(super) resumed: usize,
    pub(super) chains: usize,
    pub(super) longest: usize,
    /// How many aims have been taken, hit or not.
    aims: usize,
    /// How long a process lives at the most, as far as is known.
    life: Option<Duration>,
}

impl Tally {
    /// The first kind that was not hit yet.
    pub(super) fn missing(&self) -> Option<Kind> {
        Kind::AIMED.into_iter().find(|kind| !self.kinds.contains_key(kind))
    }

    fn note(&mut self, aim: Aim, kinds: &BTreeSet<Kind>) {
        self.kills += 1;
        self.random += usize::from(matches!(aim, Aim::Instant(_)));
        for kind in kinds {
            *self.kinds.entry(*kind).or_default() += 1;
        }
    }

    /// Random instants and every kind in turn; before the first checkpoint only where there is none.
    fn next_aim(&mut self, chance: &mut Chance, task: &Task, is_new: bool) -> Aim {
        if is_new && self.chains % 2 == 1 {
            return Aim::At(Kind::BeforeTheFirst, 0);
        }
        self.aims += 1;
        let kinds = &Kind::AIMED[1..];
        match self.aims % (kinds.len() + 5) {
            turn if turn < kinds.len() => Aim::At(kinds[turn], u64::from(chance.next() % 6)),
            _ => Aim::Instant(self.life.unwrap_or(task.duration).mul_f64(chance.share() * 0.8)),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { kills, random, kinds, parts, resumed, chains, longest, .. } = self;
        write!(
            f,
            "{kills} kills ({random} at random instants) in {chains} runs, {parts} processes, {resumed} of them \
             from a checkpoint; {longest} kills in one run at the most; killed while {kinds:?}"
        )
    }
}

/// Kills a run so many times, resumes it until it is finished, and compares it.
pub(super) fn chain(task: &Task, chance: &mut Chance, tally: &mut Tally, most: usize) {
    let place = task.place();
    let mut signals = Signals::new();
    let mut log = Vec::new();
    tally.chains += 1;
    loop {
        let is_new = log.is_empty();
        let aim = tally.next_aim(chance, task, is_new);
        let before = Before::of(place.path());
        let part = start(&place, chance.share() < 0.5);
        tally.parts += 1;
        if log.len() == most {
            part.wait();
            break;
        }
        let began = Instant::now();
        let Some(kinds) = kill(part, &before, aim, &mut signals) else {
            // The next random instants are within what a process lives.
            tally.life = Some(tally.life.unwrap_or(task.duration).min(began.elapsed()));
            break;
        };
        tally.note(aim, &kinds);
        log.push(format!("{aim:?}: killed while {kinds:?}"));
    }
    tally.longest = tally.longest.max(log.len());
    let events = fs::read_to_string(place.path().join("runs/latest/events.jsonl")).expect("events");
    tally.resumed += events.matches("\"resumed_from\":").count();
    task.must_equal(&place, &[], &log.join("\n"));
}

/// Begins the run, or goes on with it in one of the two ways.
pub(super) fn start(place: &Place, by_configuration: bool) -> Part {
    if by_configuration || !place.path().join("runs/latest").exists() {
        Part::start(place, &["train", "config.toml", "--resume", "auto"])
    } else {
        Part::start(place, &["resume", "latest"])
    }
}

/// Kills it as the aim says, and tells what it was doing. `None`: it came to its end before.
pub(super) fn kill(
    mut part: Part,
    before: &Before,
    aim: Aim,
    signals: &mut Signals,
) -> Option<BTreeSet<Kind>> {
    let began = Instant::now();
    let is_time = || match aim {
        Aim::Instant(pause) => began.elapsed() >= pause,
        Aim::At(_, saves) => before.has_begun() && before.saves() >= saves,
    };
    while !is_time() {
        if part.has_ended() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let wanted = match aim {
        Aim::Instant(_) => None,
        Aim::At(kind, _) => Some(kind),
    };
    // The processor is not only ours; a test lasts longer than a moment of a save.
    let pause = Duration::from_micros(if wanted == Some(Kind::Testing) { 1000 } else { 20 });
    loop {
        if part.has_ended() {
            return None;
        }
        if wanted.is_some_and(|kind| !before.may_be(kind)) {
            std::thread::sleep(pause);
            continue;
        }
        if !part.stop(signals) {
            return None;
        }
        let kinds = before.look();
        if wanted.is_none_or(|kind| kinds.contains(&kind)) {
            part.kill();
            return Some(kinds);
        }
        part.go_on(signals);
        if wanted == Some(Kind::Validating) {
            // A good deal shorter than a validation, so that it is met however slow the signals are.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
