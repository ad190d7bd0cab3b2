//! What every event has in common: where the run stands, and what all hooks share.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::time::Duration;

use crate::blackboard::{Blackboard, BlackboardView};
use crate::metrics::{Histogram, LogOptions, Metrics, MetricsView, Told};
use crate::progress::{Phase, Progress, RunInfo, Stage, Status, epoch_label};
use crate::random::{RandomStream, RandomStreams};
use crate::roster::{Roster, RosterHandle};
use crate::tensor::{ModelView, OptimizerSource, TensorSource, Tensors};

/// One batch as a hook sees it.
pub struct Batch<'a> {
    /// Its index within the epoch and its loader.
    pub index: u64,
    /// How many samples it holds.
    pub size: usize,
    /// The index of the loader it came from.
    pub loader_index: usize,
    /// The name of that loader.
    pub loader: &'a str,
    /// Whether it is known to be the epoch's last.
    pub is_last: bool,
    /// Its tensors, by name.
    pub tensors: Tensors<'a>,
}

/// Where the trainer's time comes from.
pub trait Clock: Send {
    /// The time since the run began.
    fn elapsed(&self) -> Duration;

    /// The same in nanoseconds, to time hooks with: read very often.
    fn nanos(&self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands still where it was set; for tests.
#[derive(Debug, Default)]
pub struct FixedClock(pub Duration);

impl Clock for FixedClock {
    fn elapsed(&self) -> Duration {
        self.0
    }
}

/// The losses seen so far; reading makes them materialise.
pub trait LossHistory {
    /// The last loss.
    fn latest(&self) -> Option<f64>;
    /// The mean of this epoch's losses.
    fn average(&self) -> Option<f64>;
}

/// What all hooks of a run share.
pub struct RunState {
    /// What does not change.
    pub run: RunInfo,
    /// Logged numbers.
    pub metrics: Metrics,
    /// Values that hooks leave for each other.
    pub board: Blackboard,
    /// Random streams, one per purpose.
    pub streams: RefCell<RandomStreams>,
    /// Who is registered, and requests to change that.
    pub roster: Roster,
    /// The trainer's clock.
    pub clock: Box<dyn Clock>,
    /// How long the run had taken before it was resumed.
    pub elapsed_before: Duration,
    /// What hooks want people to know: who says it, and what.
    pub messages: RefCell<Vec<(String, String)>>,
    /// Lines that hooks want on the console and nowhere else: who prints it, and what.
    pub console_lines: RefCell<Vec<(String, String)>>,
    /// The time spent in hooks so far, measured while some hook asks for it.
    pub(crate) in_hooks: Cell<Duration>,
    /// The part of it that was spent looking at activations.
    pub(crate) in_activations: Cell<Duration>,
    /// Whose turn it is.
    pub(crate) current: CurrentHook,
}

/// The hook that is running now, and what becomes of the event that it is offered.
#[derive(Default)]
pub(crate) struct CurrentHook {
    /// The hook's number.
    pub(crate) hook: Cell<usize>,
    pub(crate) passage: Cell<GateResult>,
    /// When a gate opened for the event, where account is kept.
    pub(crate) opened_at: Cell<u64>,
}

/// What became of an event that was offered to a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GateResult {
    /// Nobody keeps account of it.
    #[default]
    Unwatched,
    /// No gate has said anything about it.
    Straight,
    /// A gate let it through.
    Opened,
    /// It did not come through to the hook.
    HeldBack,
}

impl RunState {
    /// What the hooks of a run with this seed and clock share.
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

    /// Whether the hook that is running now is an observer.
    pub(crate) fn observing(&self) -> bool {
        self.roster.observes(self.current.hook.get())
    }

    /// A gate has let the event through: the hook's time begins. Gates that stand behind it begin nothing.
    pub(crate) fn gate_opened(&self) {
        if self.current.gate.get() == GateResult::NoGate {
            self.current.gate.set(GateResult::Opened);
            self.current.opened_at.set(self.clock.nanos());
        }
    }

    /// The event does not come through to its hook.
    pub(crate) fn gate_closed(&self) {
        self.current.gate.set(GateResult::Closed);
    }

    /// Says something to people, as the hook that is running now.
    pub(crate) fn say(&self, text: String) {
        let hook = self.roster.name(self.current.hook.get()).to_owned();
        self.messages.borrow_mut().push((hook, text));
    }

    /// The time since the run began, also when it was resumed in between.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed_before + self.clock.elapsed()
    }
}

/// The state of the run at the moment of an event. Every context dereferences to it.
pub struct RunContext<'a> {
    /// Which of the trainer's calls is running.
    pub stage: Stage,
    /// Which loop is running.
    pub phase: Phase,
    /// How the run is doing.
    pub status: Status,
    /// Where it stands; reached through `Deref`, so `cx.epoch` and `cx.step` work.
    pub progress: Progress,
    /// What does not change during the run.
    pub run: &'a RunInfo,
    pub(crate) shared: &'a RunState,
    pub(crate) model: &'a dyn ModelView,
    pub(crate) losses: &'a dyn LossHistory,
}

impl<'a> RunContext<'a> {
    /// The moment at which these things stand as they do.
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

    /// The epoch that is under way, from 0; when training has ended, the last one. (`cx.epoch` is the next one then.)
    #[must_use]
    pub fn current_epoch(&self) -> u64 {
        let ended = !matches!(self.status, Status::Starting | Status::Training);
        self.epoch.saturating_sub(u64::from(ended && self.batches == 0))
    }

    /// The same as people read it, such as `epoch 1/30`.
    #[must_use]
    pub fn epoch_label(&self) -> String {
        epoch_label(self.current_epoch(), self.run.total_epochs)
    }

    /// Time since the run began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.shared.elapsed()
    }

    /// The run's time at the checkpoint that it goes on from; zero when it was not resumed. What passed between
    /// the checkpoint and the first event was spent on starting again.
    #[must_use]
    pub fn resumed_at(&self) -> Duration {
        self.shared.elapsed_before
    }

    /// The last loss, if there was one. Reading it makes it materialise.
    #[must_use]
    pub fn latest_loss(&self) -> Option<f64> {
        self.losses.latest()
    }

    /// The mean of this epoch's losses so far. Reading it makes them materialise.
    #[must_use]
    pub fn average_loss(&self) -> Option<f64> {
        self.losses.average()
    }

    /// The parameters.
    #[must_use]
    pub fn params(&self) -> Tensors<'a> {
        Tensors::new(self.model.params())
    }

    /// The optimizers: their groups, learning rates and state.
    #[must_use]
    pub fn optimizers(&self) -> &'a dyn OptimizerSource {
        self.model.optimizers()
    }

    /// Whether the hook that is running now can change nothing.
    fn observing(&self) -> bool {
        self.shared.observing()
    }

    /// The metrics logged so far. What was read for an observer alone is among them for observers alone.
    #[must_use]
    pub fn metrics(&self) -> MetricsView<'a> {
        MetricsView::new(&self.shared.metrics, self.losses, self.phase, self.observing())
    }

    /// Logs a number: it lands on the current step, and is aggregated over the epoch where that is
    /// usual for the event. A name that the module or the trainer logs is theirs.
    pub fn log(&self, name: &str, value: f64) {
        self.log_with(name, value, LogOptions::usual(self.phase));
    }

    /// Logs a number in a chosen way: the smallest of an evaluation, for example, rather than the mean.
    pub fn log_with(&self, name: &str, value: f64, options: LogOptions) {
        if let Err(Told::Now) = self.shared.metrics.log_as_hook(name, value, options) {
            self.say(format!(
                "`{name}` is logged by the module or the trainer, so what this hook logs under it is left out"
            ));
        }
    }

    /// Logs a histogram: it lands on the current step.
    pub fn log_histogram(&self, name: &str, histogram: Histogram) {
        self.shared.metrics.log_histogram(name, histogram);
    }

    /// The time spent in hooks since the run began. It is measured while a hook asks for it with
    /// [`HookSpec::measures_hook_time`](crate::HookSpec::measures_hook_time), and stands still otherwise.
    #[must_use]
    pub fn time_in_hooks(&self) -> Duration {
        self.shared.in_hooks.get()
    }

    /// The part of it that was spent looking at activations, and so within the module's step.
    #[must_use]
    pub fn time_in_activations(&self) -> Duration {
        self.shared.in_activations.get()
    }

    /// Prints a line on the console, where progress belongs; nothing keeps it. What people should still
    /// find in the run's journal is [`said`](RunContext::say).
    pub fn print(&self, line: impl Into<String>) {
        let hook = self.hook_name().to_owned();
        self.shared.console_lines.borrow_mut().push((hook, line.into()));
    }

    /// Says something to people; the trainer passes it on after the event, and the run's journal keeps it.
    pub fn say(&self, text: impl Into<String>) {
        self.shared.say(text.into());
    }

    /// The board on which hooks leave values for each other.
    #[must_use]
    pub fn board(&self) -> BlackboardView<'a> {
        BlackboardView { shared: self.shared }
    }

    /// The registered hooks, and requests to enable, disable, remove or add some. An observer may ask
    /// for observers and forward hooks only, and for none that a controller or an update hook declares to
    /// read from: the others change training.
    #[must_use]
    pub fn hooks(&self) -> RosterHandle<'a> {
        RosterHandle { roster: &self.shared.roster, by: Some(self.shared.current.hook.get()) }
    }

    /// For a hook that does its work now and then, of its own accord: whether it does so now, which is what it is given. As
    /// behind a gate, the event is no call of the hook where it does not, and timed by itself where it does, so that what it
    /// costs is known though it is rare.
    #[must_use]
    pub fn count_call_if(&self, due: bool) -> bool {
        if due {
            self.shared.gate_opened();
        } else {
            self.shared.gate_closed();
        }
        due
    }

    /// The name that the hook which is running now is registered under.
    #[must_use]
    pub fn hook_name(&self) -> Ref<'a, str> {
        self.shared.roster.name(self.shared.current.hook.get())
    }

    /// This hook's own random stream. Drawing from it shifts nobody else's.
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

/// A module that has nothing to show; for loops that are not ours, and for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoModel;

impl ModelView for NoModel {
    fn params(&self) -> &dyn TensorSource {
        &crate::tensor::NoTensors
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
    fn groups(&self, _: usize) -> Vec<crate::tensor::ParamGroup> {
        Vec::new()
    }
    fn state(&self, _: usize) -> &dyn TensorSource {
        &crate::tensor::NoTensors
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

/// Losses as numbers already read.
impl LossHistory for (Option<f64>, Option<f64>) {
    fn latest(&self) -> Option<f64> {
        self.0
    }
    fn average(&self) -> Option<f64> {
        self.1
    }
}
