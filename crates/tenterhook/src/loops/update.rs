//! Training on a batch: forward, backward and, at the end of an accumulation window, the optimizer step.
//!
//! [`Loop::train_on`] shows the order. The functions below it are its parts, each with the events before and
//! after it.

use std::ops::Range;
use std::time::Duration;

use tenterhook_core::run_context::NoModel;
use tenterhook_core::tensor::NormOfParts;
use tenterhook_core::{Event, Failure, Phase, RunContext, Scalar, Tensors, Update};

use crate::accounts::{since, stopwatch};
use crate::cx::Cx;
use crate::journal::RunNotice;
use crate::loops::{Callee, Loop, Window};
use crate::losses::LazyScalar;
use crate::module::{Interval, Module, StepOutput};

/// Domain separator of the engine's seeds, one per loop.
pub(crate) fn purpose(phase: Phase) -> u64 {
    match phase {
        Phase::Train => 1,
        Phase::Validate => 2,
        Phase::Test => 3,
        Phase::Predict => 4,
        Phase::SanityCheck => 5,
    }
}

impl<M: Module> Loop<M> {
    /// Forward, backward and, when the window ends, the optimizer step. Returns the learning rate that the
    /// optimizer used, or `None` without a step. With manual optimization the module does backward and step
    /// itself, in its `training_step`.
    pub(crate) fn train_on(
        &mut self,
        module: &mut M,
        batch: &M::Batch,
        loader: &str,
    ) -> Result<Option<f64>, Failure> {
        let (samples, tokens) = self.ranks.samples_and_tokens(batch);
        self.state.progress.samples += samples;
        self.state.progress.tokens += tokens;
        let losses_before = self.values.losses.len();
        let loss = self.forward(module, batch, loader)?;
        let loss = self.loss_of_all(loss)?;
        if !module.automatic_optimization() {
            // The returned loss is used unless the module has already passed one to `backward`.
            if let Some(loss) = loss.filter(|_| self.values.losses.len() == losses_before) {
                self.values.losses.push(loss.map(M::detach));
            }
            return Ok(None);
        }
        let optimizers = 0..self.update.optimization.optimizers;
        if self.state.window == Window::Closed {
            self.zero_grad(module, optimizers.clone())?;
            self.state.window = Window::Open;
        }
        let Some(loss) = loss else { return Ok(None) };
        self.backward(module, &loss, self.limits.accumulate as f64)?;
        self.values.losses.push(loss.map(M::detach));
        self.agree(module, "skipped updates")?;
        // The sum holds gradients that must not be used, so the update of the whole window is skipped.
        if std::mem::take(&mut self.flow.skip_update) {
            self.state.window = Window::Skipped;
        }
        let batches = self.state.progress.batches;
        let window_ends = batches.is_multiple_of(self.limits.accumulate) || self.state.batch.is_last;
        if window_ends && self.state.window == Window::Open {
            self.update(module, optimizers)
        } else {
            Ok(None)
        }
    }

    /// Runs the module's `training_step`. Returns the loss, if there is one.
    pub(crate) fn forward(
        &mut self,
        module: &mut M,
        batch: &M::Batch,
        loader: &str,
    ) -> Result<Option<LazyScalar<M::Scalar>>, Failure> {
        event!(self, module, BeforeForward { batch: self.state.view(batch, loader) });
        let timed = stopwatch(&*self.shared.clock, self.hooks.wants(Event::AfterForward));
        let seed = self.ranks.step_seed(&self.shared, self.state.phase, self.state.progress.total_batches);
        self.enter(Callee::Module, "reseed");
        module.reseed(seed);
        self.update.stepped_itself = false;
        self.enter(Callee::Module, "training_step");
        let output = module.training_step(batch, &mut Cx::new(self));
        self.state.progress.step_counted |= self.update.stepped_itself;
        let output = self.checked(output)?;
        self.after_module(module)?;
        let duration = since(&*self.shared.clock, timed);
        event!(self, module, AfterForward { batch: self.state.view(batch, loader), duration });
        Ok(match output {
            StepOutput::Loss(loss) => Some(LazyScalar::new(loss)),
            StepOutput::NoLoss => None,
        })
    }

    /// Clears the gradients of these optimizers at the start of an accumulation window.
    pub(crate) fn zero_grad(&mut self, module: &mut M, optimizers: Range<usize>) -> Result<(), Failure> {
        event!(self, module, BeforeZeroGrad { gradients: Tensors::new(module.gradients(None)) });
        for optimizer in optimizers {
            call!(self, Module, "optimizer_zero_grad", module.optimizer_zero_grad(optimizer))?;
        }
        Ok(())
    }

    /// Backpropagates the loss, divided so that the gradients of a window are a mean.
    pub(crate) fn backward(
        &mut self,
        module: &mut M,
        loss: &LazyScalar<M::Scalar>,
        divide_by: f64,
    ) -> Result<(), Failure> {
        event!(self, module, BeforeBackward { loss: Scalar::new(loss) });
        let timed = stopwatch(&*self.shared.clock, self.hooks.wants(Event::AfterBackward));
        if self.ranks.several {
            self.backward_on_all(module, &loss.scalar, divide_by)?;
        } else {
            call!(self, Module, "backward", module.backward(&loss.scalar, divide_by))?;
        }
        let duration = since(&*self.shared.clock, timed);
        event!(
            self,
            module,
            AfterBackward {
                loss: Scalar::new(loss),
                gradients: Tensors::new(module.gradients(None)),
                duration
            }
        );
        Ok(())
    }

    /// Steps these optimizers, in order. Returns the learning rate that the first of them used, or `None`
    /// when a controller skipped the update.
    pub(crate) fn update(
        &mut self,
        module: &mut M,
        optimizers: Range<usize>,
    ) -> Result<Option<f64>, Failure> {
        self.update.norms.clear();
        let mut used_lr = None;
        for optimizer in optimizers {
            event!(
                self,
                module,
                BeforeOptimizerStep { optimizer, gradients: Tensors::new(module.gradients(Some(optimizer))) }
            );
            self.agree(module, "optimizer step")?;
            if std::mem::take(&mut self.flow.skip_update) {
                break;
            }
            let parameters = self.update.missing_gradients(module, optimizer);
            if !parameters.is_empty() {
                self.note(RunNotice::NoGradient { parameters });
            }
            self.run_update_hooks(module, optimizer)?;
            let clipping = self.clip(module, optimizer)?;
            // Gradients are freed unless a hook reads them after the step.
            let keep = self.hooks.wants_at(Event::AfterOptimizerStep, &self.state.progress)
                || self.hooks.wants(Event::BeforeZeroGrad);
            let timed = stopwatch(&*self.shared.clock, self.hooks.wants(Event::AfterOptimizerStep));
            used_lr = used_lr.or_else(|| Some(module.lr(optimizer)));
            call!(self, Module, "optimizer_step", module.optimizer_step(optimizer, keep))?;
            let duration = clipping + since(&*self.shared.clock, timed);
            event!(
                self,
                module,
                AfterOptimizerStep {
                    optimizer,
                    gradients: Tensors::new(module.gradients(Some(optimizer))),
                    duration,
                }
            );
        }
        if used_lr.is_some() {
            self.state.progress.step += 1;
            self.state.progress.step_counted = true;
            self.shared.metrics.set_step(self.state.progress.step);
        }
        Ok(used_lr)
    }

    /// Lets update hooks change the gradients.
    fn run_update_hooks(&mut self, module: &mut M, optimizer: usize) -> Result<(), Failure> {
        if !self.hooks.updates_gradients() {
            return Ok(());
        }
        let run = (self.state.stage, self.state.phase, self.state.status);
        let run_cx = RunContext::new(run, self.state.progress, &self.shared, &NoModel, &self.values.losses);
        let updated = self.hooks.update(module.gradients_mut(optimizer), &Update { run_cx, optimizer });
        if self.limits.trace_updates {
            self.journal.record_updates(&mut self.hooks, &self.shared);
        }
        updated?;
        self.after_event(module)
    }

    /// Clips the gradients. Returns how long clipping took, if a hook receives the duration of the step.
    fn clip(&mut self, module: &mut M, optimizer: usize) -> Result<Duration, Failure> {
        let rule = self.limits.clip;
        let wanted = self.hooks.wants_at(Event::GradientClip, &self.state.progress);
        let wanted_later = self.hooks.reads_grad_norm(&self.state.progress);
        if wanted || wanted_later {
            self.update.norms.push(LazyScalar::new(module.grad_norm(optimizer)));
        }
        let mut took = Duration::ZERO;
        if let Some(rule) = rule {
            let timed = stopwatch(&*self.shared.clock, self.hooks.wants(Event::AfterOptimizerStep));
            call!(self, Module, "clip_gradients", module.clip_gradients(optimizer, rule))?;
            took = since(&*self.shared.clock, timed);
        }
        if wanted {
            // Without clipping the norm does not change.
            let after = rule.map(|_| LazyScalar::new(module.grad_norm(optimizer)));
            let before =
                self.update.norms.pop().unwrap_or_else(|| LazyScalar::new(module.grad_norm(optimizer)));
            emit!(
                self,
                module,
                GradientClip {
                    optimizer,
                    norm_before: Scalar::new(&before),
                    norm_after: Scalar::new(after.as_ref().unwrap_or(&before)),
                    rule,
                    gradients: Tensors::new(module.gradients(Some(optimizer))),
                }
            );
            // A norm keeps the gradients alive, so it is kept only if a hook reads it at the end of the step.
            self.update.norms.extend(wanted_later.then_some(before));
        }
        call_module!(self, module, on_gradient_clip);
        Ok(took)
    }

    /// Steps the schedulers of this interval. Plateau schedulers are stepped apart from the others, after the
    /// validation that logs their metric.
    pub(crate) fn step_schedulers(
        &mut self,
        module: &mut M,
        interval: Interval,
        on_plateau: bool,
    ) -> Result<(), Failure> {
        if !module.automatic_optimization() {
            return Ok(());
        }
        let position = match interval {
            Interval::Step => self.state.batch.index + 1,
            Interval::Epoch => self.state.progress.epoch + 1,
        };
        for index in 0..self.update.optimization.schedulers.len() {
            let scheduler = &self.update.optimization.schedulers[index];
            let due = scheduler.interval == interval && position.is_multiple_of(scheduler.frequency.max(1));
            if !due || scheduler.monitor.is_some() != on_plateau {
                continue;
            }
            let (monitor, strict) = (scheduler.monitor.clone(), scheduler.strict);
            let mut metric = None;
            if let Some(name) = &monitor {
                metric = self.plateau_of_all(self.shared.metrics.get(name))?;
                if metric.is_none() && !strict {
                    continue;
                }
                if metric.is_none() {
                    let known = self.shared.metrics.names().join("`, `");
                    let error = format!(
                        "a scheduler waits for a plateau of `{name}`, which was not logged; there are: \
                         `{known}`"
                    );
                    return self.fail(Callee::Trainer, "lr_scheduler_step", error);
                }
            }
            call!(self, Module, "lr_scheduler_step", module.lr_scheduler_step(index, metric))?;
        }
        Ok(())
    }

    /// Completes the step: logs the loss, and fires `on_step_end`.
    pub(crate) fn step_end(&mut self, module: &mut M, optimizer: usize, lr: f64) -> Result<(), Failure> {
        self.log_loss();
        event!(
            self,
            module,
            StepEnd {
                loss: Scalar::new(self.values.losses.current()),
                grad_norm: Scalar::new(&NormOfParts(&self.update.norms)),
                lr,
                next_lr: module.lr(optimizer),
            }
        );
        // Norms may hold gradients.
        self.update.norms.clear();
        Ok(())
    }

    /// Manual optimization: `Cx::zero_grad`.
    pub(crate) fn manual_zero_grad(&mut self, module: &mut M, optimizer: usize) -> Result<(), Failure> {
        self.zero_grad(module, optimizer..optimizer + 1)?;
        self.enter(Callee::Module, "training_step");
        Ok(())
    }

    /// Manual optimization: `Cx::backward`.
    pub(crate) fn manual_backward(&mut self, module: &mut M, loss: &M::Scalar) -> Result<(), Failure> {
        let loss = LazyScalar::new(loss.clone());
        self.backward(module, &loss, 1.0)?;
        self.values.losses.push(loss.map(M::detach));
        self.enter(Callee::Module, "training_step");
        Ok(())
    }

    /// Manual optimization: `Cx::optimizer_step`.
    pub(crate) fn manual_step(&mut self, module: &mut M, optimizer: usize) -> Result<(), Failure> {
        self.state.progress.step_counted = false;
        if let Some(lr) = self.update(module, optimizer..optimizer + 1)? {
            self.step_end(module, optimizer, lr)?;
        }
        // Further calls within this batch belong to the next step.
        self.update.stepped_itself = std::mem::take(&mut self.state.progress.step_counted);
        self.enter(Callee::Module, "training_step");
        Ok(())
    }
}
