//! One optimizer step: forward, backward, update, in the order of their events.

use std::ops::Range;
use std::time::Duration;

use tenterhook_core::moment::NoModel;
use tenterhook_core::tensor::NormOfParts;
use tenterhook_core::{Event, Failure, Moment, Phase, Scalar, Tensors, Update};

use crate::cx::Cx;
use crate::journal::RunNotice;
use crate::loops::{Loop, Who};
use crate::losses::Once;
use crate::module::{Interval, Module, StepOutput};

/// What separates the seeds of training, validation, test and prediction.
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
    /// The module's step on a batch: the loss, or none.
    pub(crate) fn forward(
        &mut self,
        module: &mut M,
        batch: &M::Batch,
        loader: &str,
    ) -> Result<Option<Once<M::Scalar>>, Failure> {
        event!(self, module, BeforeForward { batch: self.view(batch, loader) });
        let timed = self.stopwatch(Event::AfterForward);
        let seed = self.step_seed(self.state.phase, self.state.progress.total_batches);
        self.at(Who::Module, "reseed");
        module.reseed(seed);
        self.update.stepped_itself = false;
        self.at(Who::Module, "training_step");
        let output = module.training_step(batch, &mut Cx::new(self));
        self.state.progress.step_counted |= self.update.stepped_itself;
        let output = self.checked(output)?;
        self.after_module(module)?;
        let duration = self.since(timed);
        event!(self, module, AfterForward { batch: self.view(batch, loader), duration });
        Ok(match output {
            StepOutput::Loss(loss) => Some(Once::new(loss)),
            StepOutput::NoLoss => None,
        })
    }

    /// Clears the gradients of these optimizers, at the start of an accumulation window.
    pub(crate) fn zero_grad(&mut self, module: &mut M, optimizers: Range<usize>) -> Result<(), Failure> {
        event!(self, module, BeforeZeroGrad { gradients: Tensors::new(module.gradients(None)) });
        for optimizer in optimizers {
            self.at(Who::Module, "optimizer_zero_grad");
            let cleared = module.optimizer_zero_grad(optimizer);
            self.checked(cleared)?;
        }
        Ok(())
    }

    /// Propagates the loss back, divided so that a window's gradients are a mean.
    pub(crate) fn backward(
        &mut self,
        module: &mut M,
        loss: &Once<M::Scalar>,
        divide_by: f64,
    ) -> Result<(), Failure> {
        event!(self, module, BeforeBackward { loss: Scalar::new(loss) });
        let timed = self.stopwatch(Event::AfterBackward);
        if self.ranks.several {
            self.backward_on_all(module, &loss.scalar, divide_by)?;
        } else {
            self.at(Who::Module, "backward");
            let propagated = module.backward(&loss.scalar, divide_by);
            self.checked(propagated)?;
        }
        let duration = self.since(timed);
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

    /// Lets these optimizers step, in order. The learning rate that the first of them used, or `None`
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
            self.report_missing_gradients(module, optimizer);
            self.run_update_hooks(module, optimizer)?;
            let clipping = self.clip(module, optimizer)?;
            // Gradients live on only if somebody will look at them.
            let keep = self.hooks.wants_at(Event::AfterOptimizerStep, &self.state.progress)
                || self.hooks.wants(Event::BeforeZeroGrad);
            let timed = self.stopwatch(Event::AfterOptimizerStep);
            used_lr = used_lr.or_else(|| Some(module.lr(optimizer)));
            self.at(Who::Module, "optimizer_step");
            let updated = module.optimizer_step(optimizer, keep);
            self.checked(updated)?;
            let duration = clipping + self.since(timed);
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

    /// Tells once of parameters that the loss does not depend on: usually a mistake in the model.
    fn report_missing_gradients(&mut self, module: &M, optimizer: usize) {
        if self.update.gradients_seen.contains(&optimizer) {
            return;
        }
        self.update.gradients_seen.push(optimizer);
        let parameters = module.without_gradient(optimizer);
        if !parameters.is_empty() {
            self.note(RunNotice::NoGradient { parameters });
        }
    }

    fn run_update_hooks(&mut self, module: &mut M, optimizer: usize) -> Result<(), Failure> {
        if !self.hooks.updates_gradients() {
            return Ok(());
        }
        let standing = (self.state.stage, self.state.phase, self.state.status);
        let moment = Moment::new(standing, self.state.progress, &self.shared, &NoModel, &self.values.losses);
        let updated = self.hooks.update(module.gradients_mut(optimizer), &Update { moment, optimizer });
        if self.limits.trace_updates {
            self.record_updates();
        }
        updated?;
        self.after_event(module)
    }

    /// How long clipping took, where somebody wants to know how long the update takes.
    fn clip(&mut self, module: &mut M, optimizer: usize) -> Result<Duration, Failure> {
        let rule = self.limits.clip;
        let wanted = self.hooks.wants_at(Event::GradientClip, &self.state.progress);
        let wanted_later = self.hooks.reads_grad_norm(&self.state.progress);
        if wanted || wanted_later {
            self.update.norms.push(Once::new(module.grad_norm(optimizer)));
        }
        let mut took = Duration::ZERO;
        if let Some(rule) = rule {
            let timed = self.stopwatch(Event::AfterOptimizerStep);
            self.at(Who::Module, "clip_gradients");
            let clipped = module.clip_gradients(optimizer, rule);
            self.checked(clipped)?;
            took = self.since(timed);
        }
        if wanted {
            // Where nothing is clipped, the norm after is the one before.
            let after = rule.map(|_| Once::new(module.grad_norm(optimizer)));
            let before = self.update.norms.pop().unwrap_or_else(|| Once::new(module.grad_norm(optimizer)));
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
            // It holds the gradients, so it is kept for nobody but who will be told.
            self.update.norms.extend(wanted_later.then_some(before));
        }
        call_module!(self, module, on_gradient_clip);
        Ok(took)
    }

    /// Starts measuring what an event will tell, if anybody wants it.
    #[inline]
    pub(crate) fn stopwatch(&self, event: Event) -> Option<Duration> {
        self.hooks.wants(event).then(|| self.shared.clock.elapsed())
    }

    /// The time since; nothing when nobody wants to know.
    #[inline]
    pub(crate) fn since(&self, started: Option<Duration>) -> Duration {
        started.map_or(Duration::ZERO, |started| self.shared.clock.elapsed().saturating_sub(started))
    }

    /// Steps the schedulers of this interval: those on a plateau apart from the others, because their
    /// metric may only be logged by the validation that follows.
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
                        "a scheduler waits for a plateau of `{name}`, which nobody logged; there are: `{known}`"
                    );
                    self.at(Who::Trainer, "lr_scheduler_step");
                    return Err(self.failed(error.into(), false));
                }
            }
            self.at(Who::Module, "lr_scheduler_step");
            let stepped = module.lr_scheduler_step(index, metric);
            self.checked(stepped)?;
        }
        Ok(())
    }

    /// The step is complete: scheduler stepped, loss logged, no gradients any more.
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
        // They may hold gradients.
        self.update.norms.clear();
        Ok(())
    }

    /// A zero-grad that the module asked for.
    pub(crate) fn manual_zero_grad(&mut self, module: &mut M, optimizer: usize) -> Result<(), Failure> {
        self.zero_grad(module, optimizer..optimizer + 1)?;
        self.at(Who::Module, "training_step");
        Ok(())
    }

    /// A backward that the module asked for.
    pub(crate) fn manual_backward(&mut self, module: &mut M, loss: &M::Scalar) -> Result<(), Failure> {
        let loss = Once::new(loss.clone());
        self.backward(module, &loss, 1.0)?;
        self.values.losses.push(loss.map(M::detach));
        self.at(Who::Module, "training_step");
        Ok(())
    }

    /// A step of one optimizer that the module asked for.
    pub(crate) fn manual_step(&mut self, module: &mut M, optimizer: usize) -> Result<(), Failure> {
        self.state.progress.step_counted = false;
        if let Some(lr) = self.update(module, optimizer..optimizer + 1)? {
            self.step_end(module, optimizer, lr)?;
        }
        // What the module does next within this batch belongs to the next step.
        self.update.stepped_itself = std::mem::take(&mut self.state.progress.step_counted);
        self.at(Who::Module, "training_step");
        Ok(())
    }
}
