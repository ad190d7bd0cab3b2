//! `tenter train`: trains, tests the best weights and prints a summary. `tenter resume` does the same for a run.

mod init_from;
mod summary;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tenterhook::checkpoint::{OnUnreadable, newest_whole};
use tenterhook::config::Config;
use tenterhook::{Outcome, Report, RunError, RunNotice, Trainer};

use super::evaluate::{exit_code, test_finished_run};
use super::resume_plan::ResumePlan;
use super::weights::Weights;
use super::{
    CommandResult, check_plan, costs, load_config, print_data, print_stderr, print_stdout, resume_command,
};
use crate::app::App;
use crate::arguments::{AfterTraining, Output, Train};
use crate::error::{CommandError, FAILED, WRONG_INPUT};
use crate::progress::Progress;
use crate::signals::SignalHandler;
use init_from::Initialized;
use summary::Summary;

pub(crate) fn run(app: &App, arguments: &Train) -> CommandResult {
    let Train { config, after, .. } = arguments;
    let resolved = load_config(app, config.config.as_deref(), &config.overrides)?;
    if arguments.print_config {
        print_data(resolved.to_toml().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let target = match &arguments.resume {
        Some(what) => ResumePlan::find(app, &resolved.runs_dir, what, &resolved, arguments.resume_options)?,
        None => ResumePlan::default(),
    };
    target.report(&resolved.runs_dir, after.output.quiet);
    let init_from = arguments.init_from.as_deref();
    let init_from = init_from.map(|from| Weights::find(from, &resolved.runs_dir)).transpose()?;
    Training { resolved: &resolved, target, init_from, after: *after }.run(app)
}

/// A training run, new or resumed, from its configuration to its summary.
pub(super) struct Training<'a> {
    pub(super) resolved: &'a Config,
    pub(super) target: ResumePlan,
    pub(super) init_from: Option<Weights>,
    pub(super) after: AfterTraining,
}

impl Training<'_> {
    pub(super) fn run(mut self, app: &App) -> CommandResult {
        let Training { resolved, after: AfterTraining { output, profile_hooks, .. }, .. } = self;
        if let Some(finished) = &self.target.finished {
            if let Some(weights) = finished.untested.as_deref().filter(|_| self.tests_afterwards()) {
                return test_finished_run(app, resolved, self.target.lock.take(), weights, output);
            }
            self.target.print_finished(finished, output);
            return Ok(ExitCode::SUCCESS);
        }
        let signals = SignalHandler::install(resolved.trainer.shutdown_timeout.0)?;
        let mut program = resolved.program(&app.tasks, &app.registry)?;
        let load = |from| Initialized::load(&mut *program, from, output.quiet);
        let initialized = self.init_from.as_ref().map(load).transpose()?;
        let started = Arc::new(AtomicBool::new(false));
        let has_started = || started.load(Ordering::Relaxed);
        let mut trainer = trainer_with_progress(app, resolved, output, started.clone())?;
        trainer = trainer.with_interrupt(signals.interrupt());
        check_plan(resolved, &mut *program, &mut trainer)?;
        trainer = self.with_run(trainer);
        let resume = resume_command(app, &trainer);
        signals.interrupt_with(interrupt_message(resume.as_deref()));
        let start = Instant::now();
        let fitted = match program.fit(&mut trainer) {
            Ok(report) => report,
            Err(error) => return Err(self.error_of(app, error, &trainer, has_started())),
        };
        let seconds = start.elapsed().as_secs_f64();
        let is_interrupted = |report: &Report| matches!(report.outcome, Outcome::Interrupted { .. });
        let best = trainer.best_checkpoint();
        let mut tested = None;
        if self.tests_afterwards() && !is_interrupted(&fitted) {
            signals.interrupt_with("stopping the test after this batch");
            // The input was valid when the run started, so this is a failure of the run.
            if let Some(Err(error)) = best.as_ref().map(|best| program.load_weights(&best.path)) {
                let error = CommandError::new(error).at("cannot test the best weights").code(FAILED);
                let note = resume.filter(|_| !output.quiet);
                let note = note.map(|resume| format!("when they can be read, `{resume}` tests them"));
                return Err(note.into_iter().fold(error, CommandError::note));
            }
            match program.test(&mut trainer) {
                Ok(report) => tested = Some(report),
                Err(error) => return Err(self.error_of(app, error, &trainer, true)),
            }
        }
        let last_report = tested.as_ref().unwrap_or(&fitted);
        let summary = Summary {
            fitted: &fitted,
            tested: tested.as_ref(),
            best: best.as_ref(),
            seconds,
            config_hash: resolved.hash(),
            resumed_from: self.target.checkpoint.as_deref(),
            initialized: initialized.as_ref(),
            profile_hooks,
            resume: resume.as_deref().filter(|_| is_interrupted(last_report) && has_started()),
        };
        summary.print(app, &trainer, output);
        Ok(exit_code(last_report))
    }

    fn tests_afterwards(&self) -> bool {
        !self.after.no_test && !self.resolved.trainer.fast_dev_run.is_on()
    }

    /// Sets the checkpoint to restore and the run directory.
    fn with_run(&mut self, mut trainer: Trainer) -> Trainer {
        let then_test = self.tests_afterwards();
        let Training { resolved, target, .. } = self;
        if let Some(checkpoint) = &target.checkpoint {
            trainer = trainer.restoring(checkpoint);
        }
        if target.options.force {
            trainer = trainer.accepting_changes();
        }
        if target.options.accept_hook_changes {
            trainer = trainer.accepting_other_hooks();
        }
        if resolved.trainer.fast_dev_run.is_on() {
            return trainer;
        }
        let mut plan = resolved.run_directory();
        (plan.resume, plan.then_test) = (target.lock.take(), then_test);
        trainer.with_run_directory(plan)
    }

    /// The error of a failed call, with the command that resumes the run if it has a checkpoint. A failure before the
    /// run started means wrong input.
    fn error_of(&self, app: &App, error: RunError, trainer: &Trainer, has_started: bool) -> CommandError {
        let AfterTraining { output, profile_hooks, .. } = self.after;
        let is_untrained =
            matches!(&error, RunError::Failed { report, .. } if report.progress.total_batches == 0);
        // A fast dev run has no run directory, so it never reports that it started.
        let has_started = has_started || (self.resolved.trainer.fast_dev_run.is_on() && !is_untrained);
        let costs = match &error {
            RunError::Failed { report, .. } => costs::summary(report, profile_hooks),
            _ => Vec::new(),
        };
        let error = CommandError::from_run(error);
        if !has_started {
            return error.code(WRONG_INPUT);
        }
        if !(output.quiet || output.json) {
            for line in &costs {
                print_stdout(line);
            }
        }
        let newest = newest_whole(trainer.checkpoints(), OnUnreadable::Stop);
        let can_resume = newest.is_ok_and(|newest| newest.path.is_some());
        let resume = resume_command(app, trainer).filter(|_| can_resume && !output.quiet);
        let note = resume.map(|resume| format!("resume from its newest checkpoint with `{resume}`"));
        note.into_iter().fold(error, CommandError::note)
    }
}

/// The message that is printed when a signal interrupts training.
fn interrupt_message(resume: Option<&str>) -> String {
    match resume {
        Some(resume) => format!(
            "stopping after this batch, with an emergency checkpoint if training has started; resume with `{resume}`"
        ),
        None => "stopping after this batch".to_owned(),
    }
}

/// A trainer that shows its progress, prints notices, and sets `started` when the run starts.
fn trainer_with_progress(
    app: &App,
    resolved: &Config,
    output: Output,
    started: Arc<AtomicBool>,
) -> Result<Trainer, CommandError> {
    let mut trainer = resolved.bare_trainer(&app.registry)?;
    let progress =
        if output.quiet { Progress::silent() } else { Progress::new().without_repeating(trainer.hooks()) };
    let bar = progress.bar();
    trainer.add_hook(progress)?;
    Ok(trainer.with_notices(move |notice| {
        if matches!(notice, RunNotice::Started(_)) {
            started.store(true, Ordering::Relaxed);
        }
        match &bar {
            _ if output.quiet => {}
            // The signal handler has printed it already.
            _ if matches!(notice, RunNotice::Interrupted { .. }) => {}
            Some(bar) => bar.suspend(|| print_stderr(notice)),
            None => print_stderr(notice),
        }
    }))
}
