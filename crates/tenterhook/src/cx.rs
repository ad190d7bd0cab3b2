//! The context of a module's steps and handlers.

use std::fmt::{Display, Write};

use tenterhook_core::metrics::MetricsView;
use tenterhook_core::run_context::NoModel;
use tenterhook_core::{
    Blackboard, Decision, Failure, Flow, LogOptions, Origin, Phase, Progress, Request, RosterHandle,
    RunContext, TensorSource,
};

use crate::loops::Loop;
use crate::module::{Module, ModuleResult};

/// The context of a module's steps and handlers: progress, logging, activations, and requests.
pub struct Cx<'a, M: Module> {
    pub(crate) run: &'a mut Loop<M>,
    /// A hook receives activations.
    listening: bool,
    /// The current scope; empty unless a hook receives activations.
    scope: String,
}

/// The error that a module receives when a hook's failure ends the run.
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
    /// The progress of the run: `cx.progress().epoch`, `.step`, …
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.run.state.progress
    }

    /// The current epoch, from 0.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.run.state.progress.epoch
    }

    /// The loop that is running.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.run.state.phase
    }

    /// The index of the current batch within its epoch or evaluation loader.
    #[must_use]
    pub fn batch_index(&self) -> u64 {
        self.run.state.batch.index
    }

    /// The index of the current batch's loader.
    #[must_use]
    pub fn loader_index(&self) -> usize {
        self.run.state.batch.loader
    }

    /// The name of the current batch's loader.
    #[must_use]
    pub fn loader_name(&self) -> &str {
        let evaluates = usize::from(self.run.state.phase != Phase::Train);
        self.run.loaders.names[evaluates].get(self.run.state.batch.loader).map_or("", String::as_str)
    }

    /// The registered hooks, and requests to enable, disable, remove or add hooks.
    #[must_use]
    pub fn hooks(&self) -> RosterHandle<'_> {
        self.run.shared.roster.handle()
    }

    /// Logs a metric: per step within a training batch, else aggregated over the epoch or evaluation.
    pub fn log(&mut self, name: &str, value: f64) {
        let within_batch = self.run.state.phase == Phase::Train && self.run.state.before_batch.is_some();
        let options = if within_batch { LogOptions::STEP } else { LogOptions::EPOCH };
        self.run.shared.metrics.log(name, value, options);
    }

    /// Logs a metric with options.
    pub fn log_with(&mut self, name: &str, value: f64, options: LogOptions) {
        self.run.shared.metrics.log(name, value, options);
    }

    /// The logged metrics.
    #[must_use]
    pub fn metrics(&self) -> MetricsView<'_> {
        MetricsView::new(&self.run.shared.metrics, &self.run.values.losses, self.run.state.phase, false)
    }

    /// The blackboard: values that hooks and module share.
    #[must_use]
    pub fn board(&self) -> &Blackboard {
        &self.run.shared.board
    }

    /// Whether a hook receives activations.
    #[inline]
    #[must_use]
    pub fn wants_activations(&self) -> bool {
        self.listening
    }

    /// Shows an activation to hooks. If a hook wants the activation, `values` is called with its full name;
    /// otherwise the cost is one branch. Engines provide a method for their tensors on top of this one.
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

    /// Shows an output of a validation, test or prediction step, such as the logits. `values` is called with
    /// the name if a hook receives the event at the end of the batch, and never in training. Engines provide
    /// a method for their tensors on top of this one.
    #[inline]
    pub fn show_output<S: TensorSource + 'static>(&mut self, name: &str, values: impl FnOnce(&str) -> S) {
        if let Some(outputs) = &mut self.run.values.outputs {
            outputs.push(values(name));
        }
    }

    /// Opens a scope: names inside get this prefix, with a dot, as in `blocks.3.mlp`.
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

    /// Calls `with` with the full name of an activation.
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
        // Writing to a string cannot fail.
        let _ = write!(self.scope, "{name}");
    }

    fn shown(&mut self, point: &str, values: &dyn TensorSource) {
        let run = &mut *self.run;
        let state = (run.state.stage, run.state.phase, run.state.status);
        let run_cx = RunContext::new(state, run.state.progress, &run.shared, &NoModel, &run.values.losses);
        run.hooks.deliver_activation(point, values, run_cx);
    }

    /// Requests a stop of training, like Lightning's `should_stop`.
    pub fn stop(&mut self, reason: impl Into<String>) {
        self.decide(Decision::stop(reason));
    }

    /// Ends this epoch: at once from `on_train_batch_start`, else after the batch.
    pub fn end_epoch(&mut self) {
        self.decide(Flow::EndEpoch.into());
    }

    /// Requests a learning rate, a checkpoint, a validation or another [`Request`].
    pub fn request(&mut self, request: Request) {
        self.decide(Decision::CONTINUE.request(request));
    }

    /// Manual optimization: backpropagates a loss, with its events.
    pub fn backward(&mut self, module: &mut M, loss: &M::Scalar) -> ModuleResult {
        self.manually(|run| run.manual_backward(module, loss))
    }

    /// Manual optimization: steps one optimizer, with its events. Every call counts as a step and fires
    /// `on_step_end`.
    pub fn optimizer_step(&mut self, module: &mut M, optimizer: usize) -> ModuleResult {
        self.manually(|run| run.manual_step(module, optimizer))?;
        // The next step may be one in which hooks receive activations.
        self.listening = self.run.hooks.wants_activations(self.run.state.phase, &self.run.state.progress);
        Ok(())
    }

    /// Manual optimization: clears the gradients of one optimizer, with its events.
    pub fn zero_grad(&mut self, module: &mut M, optimizer: usize) -> ModuleResult {
        self.manually(|run| run.manual_zero_grad(module, optimizer))
    }

    /// Runs a part of a step for the module. A hook's failure that ends the run is kept for the loop, because
    /// the module might ignore the error that it receives.
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
        self.run.flow.from_module.push(decision);
    }
}
