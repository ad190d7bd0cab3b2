//! A training from its configuration to its summary, be it new or resumed.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tenterhook::checkpoint::{OnUnreadable, newest_whole};
use tenterhook::config::Resolved;
use tenterhook::run::Interrupt;
use tenterhook::{Outcome, Report, RunError, RunNotice, Trainer};

use super::super::evaluate::{ended, test_of_run};
use super::super::resumption::Resumption;
use super::super::weights::Weights;
use super::super::{Done, accept, costs, print, resume_command, tell};
use super::init::Initialized;
use super::summary::Summary;
use crate::app::App;
use crate::arguments::{Ending, Output};
use crate::error::{CommandError, FAILED, WRONG_INPUT};
use crate::progress::Progress;
use crate::signals;

/// What is trained, and how it begins.
pub(crate) struct Fitting<'a> {
    pub(crate) resolved: &'a Resolved,
    pub(crate) resumption: Resumption,
    pub(crate) init_from: Option<Weights>,
    pub(crate) ending: Ending,
}

impl Fitting<'_> {
    pub(crate) fn run(mut self, app: &App) -> Done {
        let Fitting { resolved, ending: Ending { output, profile_hooks, .. }, .. } = self;
        if let Some(done) = &self.resumption.finished {
            if let Some(weights) = done.untested().filter(|_| self.tests()) {
                return test_of_run(app, resolved, self.resumption.lock.take(), weights, output);
            }
            done.print(output);
            return Ok(ExitCode::SUCCESS);
        }
        let interrupt = Interrupt::new();
        let watch = signals::watch(interrupt.clone(), resolved.trainer.shutdown_timeout.0)?;
        let mut program = resolved.program(&app.tasks, &app.registry)?;
        let load = |from| Initialized::load(&mut *program, from, output.quiet);
        let initialized = self.init_from.as_ref().map(load).transpose()?;
        let began = Arc::new(AtomicBool::new(false));
        let mut trainer = prepared(app, resolved, output, began.clone())?.with_interrupt(interrupt);
        accept(resolved, &mut *program, &mut trainer)?;
        trainer = self.placed(trainer);
        let resume = resume_command(app, &trainer);
        watch.begins(at_a_signal(resume.as_deref()));
        let start = Instant::now();
        let fitted = match program.fit(&mut trainer) {
            Ok(report) => report,
            Err(error) => return Err(self.failed(app, error, &trainer, began.load(Ordering::Relaxed))),
        };
        let seconds = start.elapsed().as_secs_f64();
        let is_interrupted = |report: &Report| matches!(report.outcome, Outcome::Interrupted { .. });
        let best = trainer.best_checkpoint();
        let mut tested = None;
        if self.tests() && !is_interrupted(&fitted) {
            watch.begins("the test ends after this batch");
            // The run has begun, so that the input was accepted: what goes wrong now is a failure.
            if let Some(Err(error)) = best.as_ref().map(|best| program.load_weights(&best.path)) {
                let error = CommandError::new(error).at("cannot test the best weights").code(FAILED);
                let note = resume.filter(|_| !output.quiet);
                let note = note.map(|resume| format!("when they can be read, `{resume}` tests them"));
                return Err(note.into_iter().fold(error, CommandError::note));
            }
            match program.test(&mut trainer) {
                Ok(report) => tested = Some(report),
                Err(error) => return Err(self.failed(app, error, &trainer, true)),
            }
        }
        let is_cut_off = is_interrupted(tested.as_ref().unwrap_or(&fitted));
        let summary = Summary {
            fitted: &fitted,
            tested: tested.as_ref(),
            best: best.as_ref(),
            seconds,
            config_hash: resolved.hash(),
            resumed_from: self.resumption.checkpoint.as_deref(),
            initialized: initialized.as_ref(),
            profile_hooks,
            resume: resume.as_deref().filter(|_| is_cut_off && began.load(Ordering::Relaxed)),
        };
        summary.print(app, &trainer, output);
        Ok(ended(tested.as_ref().unwrap_or(&fitted)))
    }

    /// Whether a test comes after the training.
    fn tests(&self) -> bool {
        !self.ending.no_test && !self.resolved.trainer.fast_dev_run.is_on()
    }

    /// Says where the run leaves its files, and what it resumes.
    fn placed(&mut self, mut trainer: Trainer) -> Trainer {
        let tests = self.tests();
        let Fitting { resolved, resumption, .. } = self;
        if let Some(checkpoint) = &resumption.checkpoint {
            trainer = trainer.restoring(checkpoint);
        }
        if resumption.accepts.force {
            trainer = trainer.accepting_changes();
        }
        if resumption.accepts.accept_hook_changes {
            trainer = trainer.accepting_other_hooks();
        }
        if resolved.trainer.fast_dev_run.is_on() {
            return trainer;
        }
        let mut plan = resolved.run_directory();
        (plan.resume, plan.then_test) = (resumption.lock.take(), tests);
        trainer.with_run_directory(plan)
    }

    /// Why a training failed, and how to resume it where there is a checkpoint. What failed before the run began was
    /// wrong from the start.
    fn failed(&self, app: &App, error: RunError, trainer: &Trainer, began: bool) -> CommandError {
        let Ending { output, profile_hooks, .. } = self.ending;
        let untrained =
            matches!(&error, RunError::Failed { report, .. } if report.progress.total_batches == 0);
        let without_a_run = self.resolved.trainer.fast_dev_run.is_on() && !untrained;
        let costs = match &error {
            RunError::Failed { report, .. } => costs::summary(report, profile_hooks),
            RunError::Settings(_) => Vec::new(),
        };
        let error = CommandError::of_run(error);
        if !began && !without_a_run {
            return error.code(WRONG_INPUT);
        }
        if !(output.quiet || output.json) {
            for line in &costs {
                print(line);
            }
        }
        let newest = newest_whole(trainer.checkpoints(), OnUnreadable::Stop);
        let is_there = newest.is_ok_and(|newest| newest.path.is_some());
        let resume = resume_command(app, trainer).filter(|_| is_there && !output.quiet);
        let note = resume.map(|resume| format!("resume from its newest checkpoint with `{resume}`"));
        note.into_iter().fold(error, CommandError::note)
    }
}

/// What a signal lets happen.
fn at_a_signal(resume: Option<&str>) -> String {
    match resume {
        Some(resume) => format!(
            "the current batch is finished, an emergency checkpoint saved once training has begun, then the run ends; resume with `{resume}`"
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
) -> Result<Trainer, CommandError> {
    let mut trainer = resolved.bare_trainer(&app.registry)?;
    let progress = if output.quiet { Progress::silent() } else { Progress::new().beside(trainer.hooks()) };
    let bar = progress.bar();
    trainer.add_hook(progress)?;
    Ok(trainer.with_notices(move |notice| {
        if matches!(notice, RunNotice::Started(_)) {
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
