//! One run that is killed several times and resumed until it is finished.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use super::activity::{Activity, RunBefore};
use super::child::{RunProcess, Signals};
use super::task::Task;
use crate::tenter::TestDir;

/// A small random number generator; with its seed, failures are reproducible except for timing.
pub(super) struct Rng(pub(super) u64);

impl Rng {
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

/// The time of a kill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aim {
    /// After this time.
    Instant(Duration),
    /// During an activity, after a number of saves by this process.
    At(Activity, u64),
}

/// Statistics of all kills.
#[derive(Default)]
pub(super) struct Statistics {
    pub(super) kills: usize,
    pub(super) random: usize,
    pub(super) activities: BTreeMap<Activity, usize>,
    pub(super) parts: usize,
    pub(super) resumed: usize,
    pub(super) chains: usize,
    pub(super) longest: usize,
    /// The number of attempted kills.
    aims: usize,
    /// The shortest lifetime of a process that was not killed.
    life: Option<Duration>,
}

impl Statistics {
    /// The first activity that was not hit yet.
    pub(super) fn missing(&self) -> Option<Activity> {
        Activity::AIMED.into_iter().find(|activity| !self.activities.contains_key(activity))
    }

    fn note(&mut self, aim: Aim, activities: &BTreeSet<Activity>) {
        self.kills += 1;
        self.random += usize::from(matches!(aim, Aim::Instant(_)));
        for activity in activities {
            *self.activities.entry(*activity).or_default() += 1;
        }
    }

    /// Alternates between random instants and all activities. Only a new run can be killed before its first checkpoint.
    fn next_aim(&mut self, rng: &mut Rng, task: &Task, is_new: bool) -> Aim {
        if is_new && self.chains % 2 == 1 {
            return Aim::At(Activity::BeforeFirstCheckpoint, 0);
        }
        self.aims += 1;
        let activities = &Activity::AIMED[1..];
        match self.aims % (activities.len() + 5) {
            turn if turn < activities.len() => Aim::At(activities[turn], u64::from(rng.next() % 6)),
            _ => Aim::Instant(self.life.unwrap_or(task.duration).mul_f64(rng.share() * 0.8)),
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Statistics { kills, random, activities, parts, resumed, chains, longest, .. } = self;
        write!(
            f,
            "{kills} kills ({random} at random instants) in {chains} runs, {parts} processes, {resumed} of them \
             from a checkpoint; {longest} kills in one run at the most; killed while {activities:?}"
        )
    }
}

/// Kills a run up to `most` times, resumes it until it is finished, and compares the result.
pub(super) fn chain(task: &Task, rng: &mut Rng, statistics: &mut Statistics, most: usize) {
    let dir = task.dir();
    let mut signals = Signals::new();
    let mut log = Vec::new();
    statistics.chains += 1;
    loop {
        let is_new = log.is_empty();
        let aim = statistics.next_aim(rng, task, is_new);
        let before = RunBefore::of(dir.path());
        let process = start(&dir, rng.share() < 0.5);
        statistics.parts += 1;
        if log.len() == most {
            process.wait();
            break;
        }
        let began = Instant::now();
        let Some(activities) = kill(process, &before, aim, &mut signals) else {
            // The process finished first: choose earlier times from now on.
            statistics.life = Some(statistics.life.unwrap_or(task.duration).min(began.elapsed()));
            break;
        };
        statistics.note(aim, &activities);
        log.push(format!("{aim:?}: killed while {activities:?}"));
    }
    statistics.longest = statistics.longest.max(log.len());
    let events = fs::read_to_string(dir.path().join("runs/latest/events.jsonl")).expect("events");
    statistics.resumed += events.matches("\"resumed_from\":").count();
    task.assert_equal(&dir, &[], &log.join("\n"));
}

/// Starts the run, or resumes it in one of two ways.
pub(super) fn start(dir: &TestDir, by_configuration: bool) -> RunProcess {
    if by_configuration || !dir.path().join("runs/latest").exists() {
        RunProcess::start(dir, &["train", "config.toml", "--resume", "auto"])
    } else {
        RunProcess::start(dir, &["resume", "latest"])
    }
}

/// Kills the process at the chosen time, and returns its activities. `None` if it finished first.
pub(super) fn kill(
    mut process: RunProcess,
    before: &RunBefore,
    aim: Aim,
    signals: &mut Signals,
) -> Option<BTreeSet<Activity>> {
    let began = Instant::now();
    let is_time = || match aim {
        Aim::Instant(pause) => began.elapsed() >= pause,
        Aim::At(_, saves) => before.has_started() && before.saves() >= saves,
    };
    while !is_time() {
        if process.has_ended() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let wanted = match aim {
        Aim::Instant(_) => None,
        Aim::At(activity, _) => Some(activity),
    };
    // A test lasts longer than a phase of a save, so it needs less frequent checks.
    let pause = Duration::from_micros(if wanted == Some(Activity::Testing) { 1000 } else { 20 });
    loop {
        if process.has_ended() {
            return None;
        }
        if wanted.is_some_and(|activity| !before.is_possible(activity)) {
            std::thread::sleep(pause);
            continue;
        }
        if !process.stop(signals) {
            return None;
        }
        let activities = before.activities();
        if wanted.is_none_or(|activity| activities.contains(&activity)) {
            process.kill();
            return Some(activities);
        }
        process.resume(signals);
        if wanted == Some(Activity::Validating) {
            // Much shorter than a validation, so slow signals do not miss it.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
