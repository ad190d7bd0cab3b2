//! A training from its configuration to its summary, be it new or one that goes on.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tenterhook::checkpoint::{OnUnreadable, newest_whole};
use tenterhook::config::Resolved;
use tenterhook::run::Interrupt;
use tenterhook::{Outcome, Report, RunError, RunNotice, Trainer};

use super::super::evaluate::test_of_run;
use super::super::going_on::GoingOn;
use super::super::weights::Weights;
use super::super::{FAILED, WRONG_INPUT, accepted, costs, failed_midway, print, resume_command, tell};
use super::init::Initialized;
use super::summary::Summary;
use crate::app::App;
use crate::arguments::Output;
use crate::progress::Progress;
use crate::signals;

/// What is trained, and how it begins.
pub(crate) struct Fitting<'a> {
    pub(crate) resolved: &'a Resolved,
    pub(crate) going_on: GoingOn,
    pub(crate) init_from: Option<Weights>,
    pub(crate) no_test: bool,
    pub(crate) profile_hooks: bool,
    pub(crate) output: Output,
}

impl Fitting<'_> {
    pub(crate) fn run(mut self, app: &App) -> Result<ExitCode, String> {
        let Fitting { resolved, output, .. } = self;
        if let Some(done) = &self.going_on.finished {
            if let Some(weights) = done.untested().filter(|_| self.tests()) {
                return test_of_run(app, resolved, self.going_on.lock.take(), weights, output);
            }
            done.print(output);
            return Ok(ExitCode::SUCCESS);
        }
        let interrupt = Interrupt::new();
        let watch = signals::watch(interrupt.clone(), resolved.trainer.shutdown_timeout.0)?;
        let mut program = resolved.program(&app.tasks, &app.registry).map_err(|error| error.to_string())?;
        let load = |from| Initialized::load(&mut *program, from, output.quiet);
        let initialized = self.init_from.as_ref().map(load).transpose()?;
        let began = Arc::new(AtomicBool::new(false));
        let mut trainer = prepared(app, resolved, output, began.clone())?.with_interrupt(interrupt);
        if let Some(code) = accepted(resolved, &mut *program, &mut trainer)? {
            return Ok(code);
        }
        trainer = self.placed(trainer);
        let go_on = resume_command(app, &trainer);
        watch.begins(at_a_signal(go_on.as_deref()));
        let start = Instant::now();
        let fitted = match program.fit(&mut trainer) {
            Ok(report) => report,
            Err(error) => return Ok(self.failed(app, error, &trainer, began.load(Ordering::Relaxed))),
        };
        let seconds = start.elapsed().as_secs_f64();
        let is_interrupted = |report: &Report| matches!(report.outcome, Outcome::Interrupted { .. });
        let best = trainer.best_checkpoint();
        let mut tested = None;
        if self.tests() && !is_interrupted(&fitted) {
            watch.begins("the test ends after this batch");
            // The run has begun, so that the input was accepted: what goes wrong now is a failure.
            if let Some(Err(error)) = best.as_ref().map(|best| program.load_weights(&best.path)) {
                tell(format_args!("error: cannot test the best weights: {error}"));
                if let Some(resume) = go_on.filter(|_| !output.quiet) {
                    tell(format_args!("when they can be read, `{resume}` tests them"));
                }
                return Ok(ExitCode::from(FAILED));
            }
            match program.test(&mut trainer) {
                Ok(report) => tested = Some(report),
                Err(error) => return Ok(self.failed(app, error, &trainer, true)),
            }
        }
        let is_cut_off = is_interrupted(tested.as_ref().unwrap_or(&fitted));
        let summary = Summary {
            fitted: &fitted,
            tested: tested.as_ref(),
            best: best.as_ref(),
            seconds,
            config_hash: resolved.hash(),
            resumed_from: self.going_on.checkpoint.as_deref(),
            initialized: initialized.as_ref(),
            profile_hooks: self.profile_hooks,
            go_on: go_on.as_deref().filter(|_| is_cut_off && began.load(Ordering::Relaxed)),
        };
        summary.print(app, &trainer, output);
        Ok(match tested.map_or(fitted.outcome, |tested| tested.outcome) {
            Outcome::Interrupted { signal } => ExitCode::from(signals::exit_code(&signal)),
            _ => ExitCode::SUCCESS,
        })
    }

    /// Whether a test comes after the training.
    fn tests(&self) -> bool {
        !self.no_test && !self.resolved.trainer.fast_dev_run.is_on()
    }

    /// Says where the run leaves its files, and what it goes on from.
    fn placed(&mut self, mut trainer: Trainer) -> Trainer {
        let tests = self.tests();
        let Fitting { resolved, going_on, .. } = self;
        if let Some(checkpoint) = &going_on.checkpoint {
            trainer = trainer.restoring(checkpoint);
        }
        if going_on.accepts.changes {
            trainer = trainer.accepting_changes();
        }
        if going_on.accepts.hooks {
            trainer = trainer.accepting_other_hooks();
        }
        if resolved.trainer.fast_dev_run.is_on() {
            return trainer;
        }
        let mut plan = resolved.run_directory();
        (plan.resume, plan.then_test) = (going_on.lock.take(), tests);
        trainer.with_run_directory(plan)
    }

    /// Says why a training failed, and how to go on where there is something to go on from. What failed before the
    /// run began was wrong from the start.
    fn failed(&self, app: &App, error: RunError, trainer: &Trainer, began: bool) -> ExitCode {
        let untrained =
            matches!(&error, RunError::Failed { report, .. } if report.progress.total_batches == 0);
        let without_a_run = self.resolved.trainer.fast_dev_run.is_on() && !untrained;
        let costs = match &error {
            RunError::Failed { report, .. } => costs::summary(report, self.profile_hooks),
            RunError::Settings(_) => Vec::new(),
        };
        let code = failed_midway(error);
        if !began && !without_a_run {
            return ExitCode::from(WRONG_INPUT);
        }
        if !(self.output.quiet || self.output.json) {
            for line in &costs {
                print(line);
            }
        }
        let newest = newest_whole(trainer.checkpoints(), OnUnreadable::Stop);
        let is_there = newest.is_ok_and(|newest| newest.path.is_some());
        let go_on = resume_command(app, trainer).filter(|_| is_there);
        if let Some(go_on) = go_on.filter(|_| !self.output.quiet) {
            tell(format_args!("from its newest checkpoint it goes on with `{go_on}`"));
        }
        code
    }
}

/// What a signal lets happen.
fn at_a_signal(go_on: Option<&str>) -> String {
    match go_on {
        Some(go_on) => format!(
            "the current batch is finished, an emergency checkpoint saved once training has begun, then the run ends; go on with `{go_on}`"
        ),
        None => "the current batch is finished, then the run ends".to_owned(),
    }
}

/// A trainer of this configuration that shows its progress as asked for, and notes that a run began.
fn prepared(
    app: &App,
    resolved: &Resolved,
    output: Output,
    began: Arc<AtomicBool>,
) -> Result<Trainer, String> {
    let mut trainer = resolved.bare_trainer(&app.registry).map_err(|error| error.to_string())?;
    let progress = if output.quiet { Progress::silent() } else { Progress::new().beside(trainer.hooks()) };
    let bar = progress.bar();
    trainer.add_hook(progress).map_err(|error| error.to_string())?;
    Ok(trainer.with_notices(move |notice| {
        if matches!(notice, RunNotice::Began(_)) {
            began.store(true, Ordering::Relaxed);
        }
        match &bar {
            _ if output.quiet => {}
            // Whoever sent the signal has been answered at once.
            _ if matches!(notice, RunNotice::Interrupted { .. }) => {}
            Some(bar) => bar.suspend(|| tell(notice)),
            None => tell(notice),
        }
    }))
}
