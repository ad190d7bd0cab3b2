//! The kill test: a run that is killed at any time and resumed ends with the same bits as an uninterrupted
//! run.
//!
//! Each chain is one run, killed with SIGKILL several times and resumed until it is finished. An aimed kill
//! pauses the process, determines its activity, and kills it only if that is the wanted one. Other kills
//! happen at random times.
//!
//! `TENTERHOOK_KILLS` sets the number of kills, `TENTERHOOK_KILLS_SEED` their seed.

mod activity;
mod chain;
mod child;
mod compare;
mod task;

use std::str::FromStr;

use self::activity::{Activity, RunBefore};
use self::chain::{Aim, Rng, Statistics, chain, kill, start};
use self::child::{RunProcess, Signals};
use self::task::{Task, copy};
use crate::tenter::TestDir;

fn from_environment<T: FromStr>(name: &str, otherwise: T) -> T {
    let Ok(text) = std::env::var(name) else { return otherwise };
    text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not `{text}`"))
}

/// Kills runs of a task until there were enough kills and every activity was hit.
fn killed_and_resumed(task: &Task) {
    let kills = from_environment("TENTERHOOK_KILLS", 30_usize).div_ceil(2);
    let seed = from_environment("TENTERHOOK_KILLS_SEED", 1_u64);
    println!("{}: seed {seed}, untouched in {:?}", task.name, task.duration);
    let mut rng = Rng(seed);
    let mut statistics = Statistics::default();
    let most_chains = 20 + 2 * kills;
    while statistics.kills < kills || statistics.missing().is_some() {
        assert!(
            statistics.chains < most_chains,
            "{}, seed {seed}: {:?} was never hit; {statistics}",
            task.name,
            statistics.missing()
        );
        let most = 2 + rng.below(5);
        chain(task, &mut rng, &mut statistics, most);
    }
    assert!(statistics.resumed > 0, "nothing was resumed: {statistics}");
    println!("{}: no differences after {statistics}", task.name);
}

#[test]
fn digits_killed_anywhere_end_with_the_same_bits() {
    killed_and_resumed(&Task::digits());
}

#[test]
fn text_killed_anywhere_ends_with_the_same_bits() {
    killed_and_resumed(&Task::text());
}

/// A run that was killed in a validation, after its first checkpoint.
fn killed(task: &Task) -> TestDir {
    let mut signals = Signals::new();
    for _ in 0..20 {
        let dir = task.dir();
        let before = RunBefore::of(dir.path());
        let aim = Aim::At(Activity::Validating, 3);
        let activities = kill(start(&dir, true), &before, aim, &mut signals);
        if activities.is_some_and(|activities| !activities.contains(&Activity::BeforeFirstCheckpoint)) {
            return dir;
        }
    }
    panic!("it could not be killed in a validation");
}

#[test]
fn two_resumes_from_one_checkpoint_give_the_same_bits() {
    let task = Task::digits();
    let dir = killed(&task);
    let twin = task.dir();
    copy(&dir.path().join("runs"), &twin.path().join("runs"));
    for dir in [&dir, &twin] {
        RunProcess::start(dir, &["resume", "latest"]).wait();
        task.assert_equal(dir, &[], "resumed from the same checkpoint");
    }
}

#[test]
fn a_resume_with_other_threads_gives_the_same_bits() {
    let task = Task::text();
    let dir = killed(&task);
    // `config.1.toml` is the configuration before the resume.
    let except = ["config.loader.threads", "config.loader.prefetch", "config.1.toml"];
    for (threads, prefetch) in [(0, 1), (1, 8), (4, 2)] {
        let twin = task.dir();
        copy(&dir.path().join("runs"), &twin.path().join("runs"));
        let set = [format!("loader.threads={threads}"), format!("loader.prefetch={prefetch}")];
        let resume = ["resume", "latest", "--set", &set[0], "--set", &set[1]];
        RunProcess::start(&twin, &resume).wait();
        task.assert_equal(&twin, &except, &format!("{set:?}"));
    }
}
