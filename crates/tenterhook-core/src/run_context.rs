//! The part that all event contexts share: the state of the run, metrics, blackboard and roster.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::time::Duration;

use crate::blackboard::{Blackboard, BlackboardView};
use crate::metrics::{Histogram, LogOptions, Metrics, MetricsView, ReservedName};
use crate::progress::{Phase, Progress, RunInfo, Stage, Status, epoch_label};
use crate::random::{RandomStream, RandomStreams};
use crate::roster::{Roster, RosterHandle};
use crate::tensor::{ModelView, NoTensors, OptimizerSource, ParamGroup, TensorSource, Tensors};

/// A batch as a hook sees it.
pub struct Batch<'a> {
    /// Index within the epoch and the loader.
    pub index: u64,
    /// Number of samples.
    pub size: usize,
    /// Index of the loader.
    pub loader_index: usize,
    /// Name of the loader.
    pub loader: &'a str,
    /// Whether the batch is known to be the epoch's last.
    pub is_last: bool,
    /// The batch's tensors, by name.
    pub tensors: Tensors<'a>,
}

/// The source of the trainer's time.
pub trait Clock: Send {
    /// The time since the run began.
    fn elapsed(&self) -> Duration;

    /// The time since the run began in nanoseconds. Read very often, to time hooks.
    fn nanos(&self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A clock that always shows the same time, for tests.
#[derive(Debug, Default)]
pub struct FixedClock(pub Duration);

impl Clock for FixedClock {
    fn elapsed(&self) -> Duration {
        self.0
    }
}

/// The losses so far. Calling a method reads them from the engine.
pub trait LossHistory {
    /// The last loss.
    fn latest(&self) -> Option<f64>;
    /// The mean of this epoch's losses.
    fn average(&self) -> Option<f64>;
}

/// The state of a run that all hooks share.
pub struct RunState {
    /// Facts that do not change during the run.
    pub run: RunInfo,
    /// Logged metrics.
    pub metrics: Metrics,
    /// Values that hooks and module share.
    pub board: Blackboard,
    /// Random streams, one per purpose.
    pub streams: RefCell<RandomStreams>,
    /// The registered hooks, and requests to change them.
    pub roster: Roster,
    /// The trainer's clock.
    pub clock: Box<dyn Clock>,
    /// The run's time before it was resumed.
    pub elapsed_before: Duration,
    /// Messages of hooks for the journal: the hook's name and the text.
    pub messages: RefCell<Vec<(String, String)>>,
    /// Lines of hooks for the console only: the hook's name and the text.
    pub console_lines: RefCell<Vec<(String, String)>>,
    /// The time spent in hooks, measured if a hook uses it.
    pub(crate) in_hooks: Cell<Duration>,
    /// The part of it spent on activations.
    pub(crate) in_activations: Cell<Duration>,
    pub(crate) current: CurrentHook,
}

/// The hook that is being called, and the result of its gates.
#[derive(Default)]
pub(crate) struct CurrentHook {
    /// The hook's number.
    pub(crate) hook: Cell<usize>,
    pub(crate) gate: Cell<GateResult>,
    /// When a gate opened, if costs are measured.
    pub(crate) opened_at: Cell<u64>,
}

/// The result of a hook's gates for an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GateResult {
    /// Not recorded, because costs are not measured.
    #[default]
    NotTracked,
    /// No gate has recorded a result.
    NoGate,
    /// The event passed a gate.
    Opened,
    /// The event was withheld from the hook.
    Closed,
}

impl RunState {
    /// The state of a run with this seed and clock.
    #[must_use]
    pub fn new(run: RunInfo, seed: u64, clock: Box<dyn Clock>) -> RunState {
        RunState {
            run,
            metrics: Metrics::default(),
            board: Blackboard::default(),
            streams: RefCell::new(RandomStreams::new(seed)),
            roster: Roster::default(),
            clock,
            elapsed_before: Duration::ZERO,
            messages: RefCell::default(),
            console_lines: RefCell::default(),
            in_hooks: Cell::default(),
            in_activations: Cell::default(),
            current: CurrentHook::default(),
        }
    }

    /// Whether the current hook is an observer.
    pub(crate) fn is_observing(&self) -> bool {
        self.roster.observes(self.current.hook.get())
    }

    /// Records that a gate let the event pass, and when. Further gates behind it record nothing.
    pub(crate) fn gate_opened(&self) {
        if self.current.gate.get() == GateResult::NoGate {
            self.current.gate.set(GateResult::Opened);
            self.current.opened_at.set(self.clock.nanos());
        }
    }

    /// Records that the event was withheld from the hook.
    pub(crate) fn gate_closed(&self) {
        self.current.gate.set(GateResult::Closed);
    }

    /// Adds a message of the current hook.
    pub(crate) fn say(&self, text: String) {
        let hook = self.roster.name(self.current.hook.get()).to_owned();
        self.messages.borrow_mut().push((hook, text));
    }

    /// The time since the run began, including the time before a resume.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed_before + self.clock.elapsed()
    }
}

/// The state of the run at an event. Every context dereferences to it, so `cx.epoch`, `cx.step` and
/// `cx.log(..)` work.
pub struct RunContext<'a> {
    /// The trainer's call in progress.
    pub stage: Stage,
    /// The loop in progress.
    pub phase: Phase,
    /// The status of the run.
    pub status: Status,
    /// Counters of epochs, steps and batches, also reached through `Deref`: `cx.epoch`, `cx.step`.
    pub progress: Progress,
    /// Facts that do not change during the run.
    pub run: &'a RunInfo,
    pub(crate) shared: &'a RunState,
    pub(crate) model: &'a dyn ModelView,
    pub(crate) losses: &'a dyn LossHistory,
}

impl<'a> RunContext<'a> {
    /// Makes a context of its parts.
    #[inline]
    #[must_use]
    pub fn new(
        (stage, phase, status): (Stage, Phase, Status),
        progress: Progress,
        shared: &'a RunState,
        model: &'a dyn ModelView,
        losses: &'a dyn LossHistory,
    ) -> RunContext<'a> {
        RunContext { stage, phase, status, progress, run: &shared.run, shared, model, losses }
    }

    /// The current epoch, from 0; after training, the last one, while `cx.epoch` is the next one.
    #[must_use]
    pub fn current_epoch(&self) -> u64 {
        let ended = !matches!(self.status, Status::Starting | Status::Training);
        self.epoch.saturating_sub(u64::from(ended && self.batches == 0))
    }

    /// The current epoch as text for people, such as `epoch 1/30`.
    #[must_use]
    pub fn epoch_label(&self) -> String {
        epoch_label(self.current_epoch(), self.run.total_epochs)
    }

    /// The time since the run began, including the time before a resume.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.shared.elapsed()
    }

    /// The run's time at the checkpoint that it resumed from; zero if it was not resumed.
    #[must_use]
    pub fn resumed_at(&self) -> Duration {
        self.shared.elapsed_before
    }

    /// The last loss, if there is one. Reads it from the engine.
    #[must_use]
    pub fn latest_loss(&self) -> Option<f64> {
        self.losses.latest()
    }

    /// The mean of this epoch's losses so far. Reads them from the engine.
    #[must_use]
    pub fn average_loss(&self) -> Option<f64> {
        self.losses.average()
    }

    /// The module's parameters.
    #[must_use]
    pub fn params(&self) -> Tensors<'a> {
        Tensors::new(self.model.params())
    }

    /// The optimizers with their parameter groups, learning rates and state.
    #[must_use]
    pub fn optimizers(&self) -> &'a dyn OptimizerSource {
        self.model.optimizers()
    }

    /// The metrics logged so far. Numbers that were read only because observers need them are visible to
    /// observers only.
    #[must_use]
    pub fn metrics(&self) -> MetricsView<'a> {
        MetricsView::new(&self.shared.metrics, self.losses, self.phase, self.shared.is_observing())
    }

    /// Logs a metric at the current step: immediately in training, aggregated over the epoch in an
    /// evaluation. Names that the module or the trainer logs are refused.
    pub fn log(&self, name: &str, value: f64) {
        self.log_with(name, value, LogOptions::usual(self.phase));
    }

    /// Logs a metric with these options: the minimum over an evaluation instead of the mean, for example.
    pub fn log_with(&self, name: &str, value: f64, options: LogOptions) {
        if let Err(ReservedName { first: true }) = self.shared.metrics.log_as_hook(name, value, options) {
            self.say(format!(
                "`{name}` is logged by the module or the trainer, so the value of this hook is ignored"
            ));
        }
    }

    /// Logs a histogram at the current step.
    pub fn log_histogram(&self, name: &str, histogram: Histogram) {
        self.shared.metrics.log_histogram(name, histogram);
    }

    /// The time spent in hooks since the run began. It is measured only if a hook declares
    /// [`HookSpec::measures_hook_time`](crate::HookSpec::measures_hook_time).
    #[must_use]
    pub fn time_in_hooks(&self) -> Duration {
        self.shared.in_hooks.get()
    }

    /// The part of [`time_in_hooks`](RunContext::time_in_hooks) that was spent on activations, and so within
    /// the module's step.
    #[must_use]
    pub fn time_in_activations(&self) -> Duration {
        self.shared.in_activations.get()
    }

    /// Prints a line on the console, without writing it to the journal. See [`say`](RunContext::say).
    pub fn print(&self, line: impl Into<String>) {
        let hook = self.hook_name().to_owned();
        self.shared.console_lines.borrow_mut().push((hook, line.into()));
    }

    /// Shows a message to users: the trainer writes it to the journal and prints it after the event.
    pub fn say(&self, text: impl Into<String>) {
        self.shared.say(text.into());
    }

    /// The blackboard, on which hooks and module share values.
    #[must_use]
    pub fn board(&self) -> BlackboardView<'a> {
        BlackboardView { shared: self.shared }
    }

    /// The registered hooks, and requests to enable, disable, remove or add hooks. An observer can request
    /// changes of observers and forward hooks only, unless a controller or an update hook declares to read
    /// from them; any other change would affect training.
    #[must_use]
    pub fn hooks(&self) -> RosterHandle<'a> {
        RosterHandle { roster: &self.shared.roster, by: Some(self.shared.current.hook.get()) }
    }

    /// For hooks that throttle themselves: counts this event as a call of the hook if `due`, and returns
    /// `due`. As behind a gate, a due event is timed individually, and any other does not count as a call.
    #[must_use]
    pub fn count_call_if(&self, due: bool) -> bool {
        if due {
            self.shared.gate_opened();
        } else {
            self.shared.gate_closed();
        }
        due
    }

    /// The name under which the current hook is registered.
    #[must_use]
    pub fn hook_name(&self) -> Ref<'a, str> {
        self.shared.roster.name(self.shared.current.hook.get())
    }

    /// The current hook's own random stream. Drawing from it affects no other stream.
    #[must_use]
    pub fn rng(&self) -> RefMut<'a, RandomStream> {
        let name = self.hook_name();
        RefMut::map(self.shared.streams.borrow_mut(), |streams| streams.stream("hook", &name))
    }
}

impl std::ops::Deref for RunContext<'_> {
    type Target = Progress;
    fn deref(&self) -> &Progress {
        &self.progress
    }
}

/// A module without parameters, optimizers and losses, for custom loops and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoModel;

impl ModelView for NoModel {
    fn params(&self) -> &dyn TensorSource {
        &NoTensors
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        self
    }
}

impl OptimizerSource for NoModel {
    fn count(&self) -> usize {
        0
    }
    fn name(&self, _: usize) -> &'static str {
        ""
    }
    fn groups(&self, _: usize) -> Vec<ParamGroup> {
        Vec::new()
    }
    fn state(&self, _: usize) -> &dyn TensorSource {
        &NoTensors
    }
}

impl LossHistory for NoModel {
    fn latest(&self) -> Option<f64> {
        None
    }
    fn average(&self) -> Option<f64> {
        None
    }
}

/// The latest loss and the average, as plain numbers.
impl LossHistory for (Option<f64>, Option<f64>) {
    fn latest(&self) -> Option<f64> {
        self.0
    }
    fn average(&self) -> Option<f64> {
        self.1
    }
}
