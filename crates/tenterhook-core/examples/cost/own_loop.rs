//! A loop around the runner, with hooks that do nothing. Also used by the benchmark suite.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tenterhook_core::run_context::{Clock, NoModel};
use tenterhook_core::{
    AnyHook, Event, Failure, HookResult, HookRunner, Observer, Phase, Progress, Registration, RosterError,
    RunContext, RunInfo, RunState, Scalar, Stage, Status, StepEnd, TrainEpochEnd, ValidationEnd, hook,
};

use crate::callgrind::Scenario;

/// Receives the measured event.
struct Interested;

#[hook]
impl Observer for Interested {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult {
        Ok(())
    }
}

/// Receives other events.
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

/// The clock of the trainer.
struct Wall(Instant);

impl Clock for Wall {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Every fourth idle hook is an interested hook that is disabled.
const DISABLED_EVERY: usize = 4;

/// The state of a loop without the trainer.
pub struct OwnLoop {
    runner: HookRunner,
    shared: RunState,
    progress: Progress,
    loss: f64,
}

impl OwnLoop {
    /// A loop with the hooks of a scenario.
    pub fn new(scenario: Scenario) -> Result<OwnLoop, RosterError> {
        let mut runner = HookRunner::default();
        runner.set_accounting(matches!(scenario, Scenario::Accounted(_)));
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
        let shared = RunState::new(RunInfo::default(), 0, Box::new(Wall(Instant::now())));
        Ok(OwnLoop { runner, shared, progress: Progress::default(), loss: 0.5 })
    }

    /// The loop without an event. `black_box` may change everything, as a training step does.
    #[inline(never)]
    fn empty(&mut self, iterations: u64) {
        for _ in 0..iterations {
            black_box(&mut *self);
        }
    }

    /// The same loop with an event.
    #[inline(never)]
    fn with_event(&mut self, iterations: u64) -> Result<(), Failure> {
        for _ in 0..iterations {
            let own = black_box(&mut *self);
            if own.runner.wants(Event::StepEnd) {
                let at = (Stage::Fit, Phase::Train, Status::Training);
                let run_cx = RunContext::new(at, own.progress, &own.shared, &NoModel, &NoModel);
                let (loss, grad_norm) = (Scalar::new(&own.loss), Scalar::new(&own.loss));
                let cx = StepEnd::new(run_cx, loss, grad_norm, 0.1, 0.1);
                own.runner.deliver(&cx)?;
            }
        }
        Ok(())
    }

    /// Runs the loop.
    pub fn run(&mut self, scenario: Scenario, iterations: u64) -> Result<(), Failure> {
        match scenario {
            Scenario::Empty => self.empty(iterations),
            Scenario::Unwanted(_) | Scenario::Delivered(_) | Scenario::Accounted(_) => {
                self.with_event(iterations)?;
            }
        }
        Ok(())
    }
}
