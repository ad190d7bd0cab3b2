//! What a module sees of the run while it handles an event or computes a step.

use std::fmt::{Display, Write};

use tenterhook_core::metrics::MetricsView;
use tenterhook_core::run_context::NoModel;
use tenterhook_core::{
    Blackboard, Decision, Failure, Flow, LogOptions, Origin, Phase, Progress, Request, RosterHandle,
    RunContext, TensorSource,
};

use crate::loops::Loop;
use crate::module::{Module, ModuleResult};

/// Passed to a module's steps and handlers: where the run stands, logging, hook points, and requests.
pub struct Cx<'a, M: Module> {
    pub(crate) run: &'a mut Loop<M>,
    /// Whether any hook wants activations now.
    listening: bool,
    /// The scopes that were entered; empty while nobody listens.
    scope: String,
}

/// What a module learns of a hook's failure that ends the run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Aborting(String);

impl Aborting {
    fn of(failure: &Failure) -> Aborting {
        Aborting(failure.to_string())
    }
}

impl<'a, M: Module> Cx<'a, M> {
    #[inline]
    pub(crate) fn new(run: &'a mut Loop<M>) -> Cx<'a, M> {
        let listening = run.hooks.wants_activations(run.state.phase, &run.state.progress);
        Cx { run, listening, scope: String::new() }
    }
}

impl<M: Module> Cx<'_, M> {
    /// Where the run stands: `cx.progress().epoch`, `.step`, …
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.run.state.progress
    }

    /// The current epoch, from 0.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.run.state.progress.epoch
    }

    /// Which loop is running.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.run.state.phase
    }

    /// The index of the current batch within its epoch or evaluation loader.
    #[must_use]
    pub fn batch_index(&self) -> u64 {
        self.run.state.batch.index
    }

    /// The index of the loader that the current batch came from.
    #[must_use]
    pub fn loader_index(&self) -> usize {
        self.run.state.batch.loader
    }

    /// The name of the loader that the current batch came from.
    #[must_use]
    pub fn loader_name(&self) -> &str {
        let evaluates = usize::from(self.run.state.phase != Phase::Train);
        self.run.loaders.names[evaluates].get(self.run.state.batch.loader).map_or("", String::as_str)
    }

    /// The registered hooks, and requests to enable, disable, remove or add some.
    #[must_use]
    pub fn hooks(&self) -> RosterHandle<'_> {
        self.run.shared.roster.handle()
    }

    /// Logs a number: at once within a training batch, else aggregated over the epoch or evaluation.
    pub fn log(&mut self, name: &str, value: f64) {
        let within_batch = self.run.state.phase == Phase::Train && self.run.state.before_batch.is_some();
        let options = if within_batch { LogOptions::STEP } else { LogOptions::EPOCH };
        self.run.shared.metrics.log(name, value, options);
    }

    /// Logs a number in a chosen way.
    pub fn log_with(&mut self, name: &str, value: f64, options: LogOptions) {
        self.run.shared.metrics.log(name, value, options);
    }

    /// The metrics so far.
    #[must_use]
    pub fn metrics(&self) -> MetricsView<'_> {
        MetricsView::new(&self.run.shared.metrics, &self.run.values.losses, self.run.state.phase, false)
    }

    /// The board on which hooks and the module leave values for each other.
    #[must_use]
    pub fn board(&self) -> &Blackboard {
        &self.run.shared.board
    }

    /// Whether any hook wants activations now.
    #[inline]
    #[must_use]
    pub fn wants_activations(&self) -> bool {
        self.listening
    }

    /// Names an activation: `values` makes it, under the full name it is given, if a hook wants it. While nobody
    /// listens this costs a branch, and neither the name nor the values are made. Engines put a method of their own
    /// for their tensors on top of it.
    #[inline]
    pub fn show<S: TensorSource>(&mut self, name: impl Display, values: impl FnOnce(&str) -> S) {
        if self.listening {
            self.within(&name, |cx, point| {
                if cx.run.hooks.wants_point(point, cx.run.state.phase, &cx.run.state.progress) {
                    cx.shown(point, &values(point));
                }
            });
        }
    }

    /// Gives a tensor as an output of a step of validation, test or prediction, such as its logits: `values` makes it,
    /// under the name it is given, if a hook wants the event at the end of the batch. In training nothing is made.
    /// Engines put a method of their own for their tensors on top of it.
    #[inline]
    pub fn show_output<S: TensorSource + 'static>(&mut self, name: &str, values: impl FnOnce(&str) -> S) {
        if let Some(outputs) = &mut self.run.values.outputs {
            outputs.push(values(name));
        }
    }

    /// Everything that is named inside has this before its name, with a dot: `blocks.3`, then `blocks.3.mlp`.
    #[inline]
    pub fn scope<R>(&mut self, name: impl Display, inside: impl FnOnce(&mut Self) -> R) -> R {
        if !self.listening {
            return inside(self);
        }
        let outer = self.scope.len();
        self.enter(&name);
        let result = inside(self);
        self.scope.truncate(outer);
        result
    }

    /// Calls back with the full name of a point.
    fn within(&mut self, name: &dyn Display, with: impl FnOnce(&mut Self, &str)) {
        let outer = self.scope.len();
        self.enter(name);
        let mut point = std::mem::take(&mut self.scope);
        with(self, &point);
        point.truncate(outer);
        self.scope = point;
    }

    fn enter(&mut self, name: &dyn Display) {
        if !self.scope.is_empty() {
            self.scope.push('.');
        }
        // Writing to a text cannot fail.
        let _ = write!(self.scope, "{name}");
    }

    fn shown(&mut self, point: &str, values: &dyn TensorSource) {
        let run = &mut *self.run;
        let standing = (run.state.stage, run.state.phase, run.state.status);
        let run_cx = RunContext::new(standing, run.state.progress, &run.shared, &NoModel, &run.values.losses);
        run.hooks.deliver_activation(point, values, run_cx);
    }

    /// Asks to stop training, as Lightning's `should_stop` does.
    pub fn stop(&mut self, reason: impl Into<String>) {
        self.decide(Decision::stop(reason));
    }

    /// Leaves this epoch: at once from `on_train_batch_start`, else when the batch is done.
    pub fn end_epoch(&mut self) {
        self.decide(Flow::EndEpoch.into());
    }

    /// Asks for something else: a learning rate, a checkpoint, a validation.
    pub fn request(&mut self, request: Request) {
        self.decide(Decision::CONTINUE.request(request));
    }

    /// With manual optimization: propagates a loss back, with its events.
    pub fn backward(&mut self, module: &mut M, loss: &M::Scalar) -> ModuleResult {
        self.manually(|run| run.manual_backward(module, loss))
    }

    /// With manual optimization: lets one optimizer step, with its events. Every call is a step of
    /// its own: `on_step_end` fires and `step` grows by one.
    pub fn optimizer_step(&mut self, module: &mut M, optimizer: usize) -> ModuleResult {
        self.manually(|run| run.manual_step(module, optimizer))?;
        // It was a step, and hooks may want the next one.
        self.listening = self.run.hooks.wants_activations(self.run.state.phase, &self.run.state.progress);
        Ok(())
    }

    /// With manual optimization: clears one optimizer's gradients, with its events.
    pub fn zero_grad(&mut self, module: &mut M, optimizer: usize) -> ModuleResult {
        self.manually(|run| run.manual_zero_grad(module, optimizer))
    }

    /// What the module does itself. A hook's failure that ends the run is kept from the module, which might let it pass:
    /// it learns of it, and the loop finds it when the step is over.
    fn manually(&mut self, work: impl FnOnce(&mut Loop<M>) -> Result<(), Failure>) -> ModuleResult {
        if let Some(failure) = self.run.hooks.aborted() {
            return Err(Aborting::of(failure).into());
        }
        work(self.run).map_err(|failure| match failure.origin {
            Origin::Hook(_) => Aborting::of(self.run.hooks.abort(failure)).into(),
            _ => failure.into(),
        })
    }

    fn decide(&mut self, decision: Decision) {
        self.run.flow.of_module.push(decision);
    }
}
