//! The kill test: runs that are killed at any instant and resumed come out as if nobody had touched them, to the bit.
//!
//! Each chain is one run, killed with SIGKILL several times and gone on with until it is finished. An aimed kill stops
//! the process, looks what it is doing, and kills it only then, so what was hit is known. Half of the kinds are hit by
//! chance as well.
//!
//! `TENTERHOOK_KILLS` says how many kills there are, `TENTERHOOK_KILLS_SEED` which.

mod chain;
mod child;
mod compare;
mod sight;
mod task;

use std::str::FromStr;

use self::chain::{Aim, Chance, Tally, chain, kill, start};
use self::child::{Part, Signals};
use self::sight::{Before, Kind};
use self::task::{Task, copy};
use crate::tenter::Place;

fn from_environment<T: FromStr>(name: &str, otherwise: T) -> T {
    let Ok(text) = std::env::var(name) else { return otherwise };
    text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not `{text}`"))
}

/// Kills runs of a task until there were so many kills, and each kind was among them.
fn killed_and_resumed(task: &Task) {
    let kills = from_environment("TENTERHOOK_KILLS", 30_usize).div_ceil(2);
    let seed = from_environment("TENTERHOOK_KILLS_SEED", 1_u64);
    println!("{}: seed {seed}, untouched in {:?}", task.name, task.duration);
    let mut chance = Chance(seed);
    let mut tally = Tally::default();
    let most_chains = 20 + 2 * kills;
    while tally.kills < kills || tally.missing().is_some() {
        assert!(
            tally.chains < most_chains,
            "{}, seed {seed}: {:?} was never hit; {tally}",
            task.name,
            tally.missing()
        );
        let most = 2 + chance.below(5);
        chain(task, &mut chance, &mut tally, most);
    }
    assert!(tally.resumed > 0, "nothing was resumed: {tally}");
    println!("{}: no differences after {tally}", task.name);
}

#[test]
fn digits_killed_anywhere_come_out_as_if_untouched() {
    killed_and_resumed(&Task::digits());
}

#[test]
fn text_killed_anywhere_comes_out_as_if_untouched() {
    killed_and_resumed(&Task::text());
}

/// A run that was killed after its first checkpoint, in a validation.
fn killed(task: &Task) -> Place {
    let mut signals = Signals::new();
    for _ in 0..20 {
        let place = task.place();
        let before = Before::of(place.path());
        let aim = Aim::At(Kind::Validating, 3);
        let kinds = kill(start(&place, true), &before, aim, &mut signals);
        if kinds.is_some_and(|kinds| !kinds.contains(&Kind::BeforeTheFirst)) {
            return place;
        }
    }
    panic!("it could not be killed in a validation");
}

#[test]
fn two_resumes_from_one_checkpoint_give_the_same_bits() {
    let task = Task::digits();
    let place = killed(&task);
    let twin = task.place();
    copy(&place.path().join("runs"), &twin.path().join("runs"));
    for place in [&place, &twin] {
        Part::start(place, &["resume", "latest"]).wait();
        task.must_equal(place, &[], "resumed from the same checkpoint");
    }
}

#[test]
fn a_resume_with_other_threads_gives_the_same_bits() {
    let task = Task::text();
    let place = killed(&task);
    // What it was configured with before is kept beside.
    let except = ["config.loader.threads", "config.loader.prefetch", "config.1.toml"];
    for (threads, prefetch) in [(0, 1), (1, 8), (4, 2)] {
        let twin = task.place();
        copy(&place.path().join("runs"), &twin.path().join("runs"));
        let set = [format!("loader.threads={threads}"), format!("loader.prefetch={prefetch}")];
        let resume = ["resume", "latest", "--set", &set[0], "--set", &set[1]];
        Part::start(&twin, &resume).wait();
        task.must_equal(&twin, &except, &format!("{set:?}"));
    }
}
