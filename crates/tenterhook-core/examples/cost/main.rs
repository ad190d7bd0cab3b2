//! What an event costs: an own loop around the runner, with hooks that do nothing.
//!
//! ```text
//! cargo run --release -p tenterhook-core --example cost                 instructions, counted by valgrind
//! cargo run --release -p tenterhook-core --example cost -- time         nanoseconds on this machine
//! cargo run --release -p tenterhook-core --example cost -- delivered 10 1000000
//!                                             one loop and nothing else, to look at with other tools
//! ```
//!
//! `tests/cost.rs` builds this program and holds the counts to what is promised.

mod callgrind;

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use callgrind::{Costs, Scenario};
use tenterhook_core::moment::{Clock, NoModel};
use tenterhook_core::{
    AnyHook, Event, Failure, HookResult, HookRunner, Moment, Observer, Part, Phase, Progress, Registration,
    RosterError, RunInfo, Scalar, Shared, Stage, Status, StepEnd, TrainEpochEnd, ValidationEnd, hook,
};

/// Receives the event that is measured.
struct Interested;

#[hook]
impl Observer for Interested {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult {
        Ok(())
    }
}

/// Receives others.
struct Idle;

#[hook]
impl Observer for Idle {
    fn on_train_epoch_end(&mut self, _: &TrainEpochEnd) -> HookResult {
        Ok(())
    }
    fn on_validation_end(&mut self, _: &ValidationEnd) -> HookResult {
        Ok(())
    }
}

/// The clock that a trainer has.
struct Wall(Instant);

impl Clock for Wall {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Of the idle hooks, every so many would be interested and is disabled.
const DISABLED_EVERY: usize = 4;

/// What somebody has who keeps his own loop.
struct OwnLoop {
    runner: HookRunner,
    shared: Shared,
    progress: Progress,
    loss: f64,
}

impl OwnLoop {
    fn new(scenario: Scenario) -> Result<OwnLoop, RosterError> {
        let mut runner = HookRunner::default();
        runner.account(matches!(scenario, Scenario::Accounted(_)));
        let (count, idle) = match scenario {
            Scenario::Empty => (0, true),
            Scenario::Unwanted(count) => (count, true),
            Scenario::Delivered(count) | Scenario::Accounted(count) => (count, false),
        };
        for number in 0..count {
            let disabled = idle && number % DISABLED_EVERY == 0;
            let hook = if idle && !disabled { AnyHook::new(Idle) } else { AnyHook::new(Interested) };
            let name = Some(format!("hook {number}"));
            runner.register(hook, Registration { name, disabled, ..Registration::default() })?;
        }
        let shared = Shared::new(RunInfo::default(), 0, Box::new(Wall(Instant::now())));
        Ok(OwnLoop { runner, shared, progress: Progress::default(), loss: 0.5 })
    }

    /// The loop without an event. `black_box` may have changed everything, as a training step would.
    #[inline(never)]
    fn empty(&mut self, iterations: u64) {
        for _ in 0..iterations {
            black_box(&mut *self);
        }
    }

    /// The same loop with an event in it.
    #[inline(never)]
    fn with_event(&mut self, iterations: u64) -> Result<(), Failure> {
        for _ in 0..iterations {
            let own = black_box(&mut *self);
            if own.runner.wants(Event::StepEnd) {
                let at = (Stage::Fit, Phase::Train, Status::Training);
                let cx = StepEnd {
                    moment: Moment::new(at, own.progress, &own.shared, &NoModel, &NoModel),
                    loss: Scalar::new(&own.loss),
                    grad_norm: Scalar::new(&own.loss),
                    lr: 0.1,
                    next_lr: 0.1,
                };
                let mut cursor = own.runner.cursor(Event::StepEnd, Part::All);
                own.runner.deliver(&cx, &mut cursor)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, scenario: Scenario, iterations: u64) -> Result<(), Failure> {
        match scenario {
            Scenario::Empty => self.empty(iterations),
            Scenario::Unwanted(_) | Scenario::Delivered(_) | Scenario::Accounted(_) => {
                self.with_event(iterations)?
            }
        }
        Ok(())
    }
}

/// The best of several measurements, in nanoseconds.
fn time(scenario: Scenario) -> Result<f64, Box<dyn Error>> {
    const ITERATIONS: u64 = 1_000_000;
    let mut own = OwnLoop::new(scenario)?;
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let start = Instant::now();
        own.run(scenario, ITERATIONS)?;
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / ITERATIONS as f64);
    }
    Ok(best)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            callgrind::valgrind::version()?;
            print!("{}", Costs::counted(&std::env::current_exe()?)?);
        }
        ["time"] => print!("{}", Costs::new("nanoseconds", time)?),
        [kind, hooks, iterations] => {
            let scenario =
                Scenario::parse(kind, hooks.parse()?).ok_or("empty, unwanted, delivered or accounted?")?;
            OwnLoop::new(scenario)?.run(scenario, iterations.parse()?)?;
        }
        _ => return Err("nothing, `time`, or a scenario, a number of hooks and one of iterations".into()),
    }
    Ok(())
}
