//! A runner without a trainer, hooks with scripted actions, and a log of the deliveries.

use std::sync::{Arc, Mutex};

use tenterhook_core::failure::Contained;
use tenterhook_core::run_context::{FixedClock, NoModel};
use tenterhook_core::{
    Controller, Decision, Event, Exception, Failure, Flow, HookResult, HookRunner, HookSpec, Origin, Phase,
    Policy, Progress, RunContext, RunInfo, RunState, SaveCheckpoint, Stage, Status, Tier, TrainEpochEnd,
    TrainEpochStart, hook,
};

/// A log of deliveries, as text in order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    /// The entries since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

type Action = Box<dyn FnMut(Event, &RunContext<'_>) -> HookResult<Decision> + Send>;

/// A hook that logs each event and then runs its action.
pub struct Actor {
    name: String,
    tier: Tier,
    policy: Policy,
    log: Log,
    action: Action,
}

impl Actor {
    pub fn new(name: &str, log: &Log) -> Actor {
        let action: Action = Box::new(|_, _| Ok(Decision::CONTINUE));
        Actor { name: name.to_owned(), tier: Tier::User, policy: Policy::ABORT, log: log.clone(), action }
    }

    pub fn tier(self, tier: Tier) -> Actor {
        Actor { tier, ..self }
    }

    pub fn policy(self, policy: Policy) -> Actor {
        Actor { policy, ..self }
    }

    /// Sets the action at every event.
    pub fn acting(
        self,
        action: impl FnMut(Event, &RunContext<'_>) -> HookResult<Decision> + Send + 'static,
    ) -> Actor {
        Actor { action: Box::new(action), ..self }
    }

    /// Sets an action for its first event only.
    pub fn once(self, action: impl FnOnce(&RunContext<'_>) + Send + 'static) -> Actor {
        let mut action = Some(action);
        self.acting(move |_, run_cx| {
            if let Some(action) = action.take() {
                action(run_cx);
            }
            Ok(Decision::CONTINUE)
        })
    }

    fn act(&mut self, event: Event, run_cx: &RunContext<'_>) -> HookResult<Decision> {
        self.log.note(&self.name);
        (self.action)(event, run_cx)
    }
}

#[hook]
impl Controller for Actor {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name(&self.name).tier(self.tier).policy(self.policy)
    }
    fn on_train_epoch_start(&mut self, cx: &TrainEpochStart) -> HookResult<Decision> {
        self.act(Event::TrainEpochStart, cx)
    }
    fn on_train_epoch_end(&mut self, cx: &TrainEpochEnd) -> HookResult<Decision> {
        self.act(Event::TrainEpochEnd, cx)
    }
    fn on_save_checkpoint(&mut self, cx: &SaveCheckpoint) -> HookResult {
        self.act(Event::SaveCheckpoint, cx).map(drop)
    }
    fn on_exception(&mut self, cx: &Exception) -> HookResult<Decision> {
        self.act(Event::Exception, cx)
    }
}

/// A runner with the state that its hooks share.
pub struct Bench {
    pub runner: HookRunner,
    pub shared: RunState,
    pub progress: Progress,
    pub log: Log,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::seeded(0)
    }

    pub fn seeded(seed: u64) -> Bench {
        let shared = RunState::new(RunInfo::default(), seed, Box::new(FixedClock::default()));
        Bench { runner: HookRunner::default(), shared, progress: Progress::default(), log: Log::default() }
    }

    /// A bench with actors of these names, in this order.
    pub fn with(names: &[&str]) -> Bench {
        let mut bench = Bench::new();
        for name in names {
            let actor = bench.actor(name);
            bench.add(actor);
        }
        bench
    }

    pub fn actor(&self, name: &str) -> Actor {
        Actor::new(name, &self.log)
    }

    pub fn add(&mut self, actor: Actor) {
        self.runner.add(actor).unwrap();
    }

    /// Delivers `on_train_epoch_start` to all hooks, which log it.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.runner.deliver(&TrainEpochStart::new(run_cx(&self.shared, self.progress)))
    }

    /// Delivers `on_train_epoch_start` and returns its receivers.
    pub fn receivers(&mut self) -> Vec<String> {
        self.start().unwrap();
        self.log.take()
    }

    /// Delivers `on_exception` despite failures.
    pub fn exception(&mut self) -> Vec<Failure> {
        let failure = Failure {
            origin: Origin::Module,
            place: "training_step",
            epoch: 0,
            step: 0,
            panicked: false,
            error: "made up".into(),
            trace: None,
        };
        let cx = Exception::new(run_cx(&self.shared, self.progress), &failure);
        self.runner.deliver_despite_failures(&cx)
    }

    pub fn names(&self) -> Vec<String> {
        let hooks = self.runner.list().into_iter();
        hooks.map(|hook| hook.name).filter(|name| name != "identity").collect()
    }

    pub fn is_enabled(&self, name: &str) -> bool {
        self.runner.list().iter().any(|hook| hook.name == name && hook.enabled)
    }

    pub fn contained(&mut self) -> Vec<String> {
        let line = |contained: Contained| {
            let end = if contained.disabled { "; disabled" } else { "" };
            format!("{}{end}", contained.failure)
        };
        self.runner.take_contained().into_iter().map(line).collect()
    }

    pub fn refused(&mut self) -> Vec<String> {
        self.runner.take_refused_changes().iter().map(ToString::to_string).collect()
    }

    pub fn decided(&mut self) -> Vec<(String, Flow)> {
        let decided = self.runner.take_decisions().into_iter();
        decided.map(|decided| (decided.hook, decided.decision.flow().clone())).collect()
    }
}

pub fn run_cx(shared: &RunState, progress: Progress) -> RunContext<'_> {
    RunContext::new((Stage::Fit, Phase::Train, Status::Training), progress, shared, &NoModel, &NoModel)
}
