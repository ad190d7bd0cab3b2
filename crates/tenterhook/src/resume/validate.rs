//! Validates a resume before any hook is called: whether the checkpoint can be restored in this run.

use tenterhook_core::{BoxError, Failure, HookRunner, Origin, Stage};

use super::restore::in_state_of;
use crate::call::Call;
use crate::checkpoint::{Announcement, CheckpointContents, Roots, largest_number, read};
use crate::config;
use crate::journal::RunNotice;
use crate::loops::Callee;
use crate::module::Module;

impl<M: Module> Call<'_, M> {
    /// Reads the checkpoint. Refuses a resume with another configuration, other hooks or other data, with
    /// states that hooks cannot load, or in a run that cannot be resumed.
    ///
    /// Only the data module has been set up. After a refusal no hook is called and nothing is written.
    pub(crate) fn validate_resume(&mut self) -> Result<(), Failure> {
        self.check_record()?;
        let Some(path) = self.resume.options.checkpoint.take() else { return Ok(()) };
        let mut contents = call!(self.run, Trainer, "restore", read(&path))?;
        let fits = self.run.state.stage == Stage::Fit && !contents.weights_only;
        if fits {
            self.check_config(&contents)?;
            if !self.resume.options.accept_other_hooks {
                self.refuse_if(other_hooks(&contents, &self.run.hooks))?;
            }
        }
        if !contents.weights_only {
            let checked = self.run.hooks.check_states(&contents.hooks, &contents.progress);
            checked.map_err(|failure| in_state_of(&path, failure))?;
        }
        if fits {
            let saves = self.run.journal.recording.is_some() && !self.run.shared.run.fast_dev_run;
            let roots = Roots::of(&self.run.shared.run, &self.run.hooks);
            let unannounced = std::mem::take(&mut contents.unannounced);
            contents.unannounced = self.run.checked(still_there(unannounced, &roots, saves))?;
            if !self.resume.options.accept_changes {
                let has_state = self.run.checkpointer.data.is_some();
                self.refuse_if(other_data_state(contents.data.is_some(), has_state))?;
            }
            self.check_data(&contents.identity)?;
        }
        self.resume.validated = Some((path, contents));
        Ok(())
    }

    /// Reports what changed since the checkpoint. Called when the resume is accepted.
    pub(crate) fn report_changes(&mut self) {
        for text in std::mem::take(&mut self.resume.changes) {
            self.run.note(RunNotice::Said { hook: Origin::TRAINER.into(), text });
        }
    }

    /// Refuses the resume for this reason, if any.
    pub(crate) fn refuse_if(&mut self, why: Option<String>) -> Result<(), Failure> {
        why.map_or(Ok(()), |why| self.run.fail(Callee::Trainer, "restore", why))
    }

    /// The recorder refuses a run that it cannot resume.
    fn check_record(&mut self) -> Result<(), Failure> {
        let Some(recording) = &self.run.journal.recording else { return Ok(()) };
        if self.run.state.stage != Stage::Fit || self.run.shared.run.fast_dev_run {
            return Ok(());
        }
        let validated = recording.recorder().validate_resume(self.resume.options.checkpoint.as_deref());
        call!(self.run, Trainer, "begin", validated)
    }

    /// Refuses another configuration, such as another model or optimizer.
    fn check_config(&mut self, contents: &CheckpointContents) -> Result<(), Failure> {
        let rules = self.resume.options.change_rules.take().unwrap_or_default();
        let differences = rules.changes(&contents.config, &self.run.shared.run.config);
        self.resume.changes.extend(config::change_notice(&differences));
        let refusal = config::change_error("configuration", &differences);
        self.refuse_if(refusal.filter(|_| !self.resume.options.accept_changes))
    }
}

/// The checkpoints to announce. One that no longer exists is not announced; one that cannot be read is an error.
/// If the run saves, its directory of checkpoints must be usable.
fn still_there(
    unannounced: Vec<Announcement>,
    roots: &Roots,
    saves: bool,
) -> Result<Vec<Announcement>, BoxError> {
    if saves {
        roots.latest()?;
        largest_number(roots.own())?;
    }
    let mut left = Vec::new();
    for saved in unannounced {
        // A hook that is added later may declare the directory.
        if !roots.is_declared(&saved.path) || roots.holds(&saved.path)? {
            left.push(saved);
        }
    }
    Ok(left)
}

/// The refusal of other hooks, whose states would be missing or lost.
fn other_hooks(contents: &CheckpointContents, hooks: &HookRunner) -> Option<String> {
    let (saved, then) = (&contents.hooks, &contents.runner);
    let registered = hooks.stateful_hooks();
    let gone = saved.keys().filter(|name| !registered.contains(name) && !then.was_added(name));
    let new = registered.iter().filter(|name| !saved.contains_key(*name) && !then.was_removed(name));
    let gone = gone.map(|name| format!("`{name}` is in the checkpoint and not registered"));
    let new = new.map(|name| format!("`{name}` is registered and not in the checkpoint"));
    let all: Vec<_> = gone.chain(new).collect();
    (!all.is_empty()).then(|| {
        format!(
            "the hooks differ from those of the checkpoint: {}; register the same ones, or accept it with \
             `--accept-hook-changes` (`Trainer::accepting_other_hooks`)",
            all.join(", ")
        )
    })
}

/// The refusal of a state of the data module that would be missing or lost.
fn other_data_state(is_saved: bool, has_state: bool) -> Option<String> {
    let refusal = match (is_saved, has_state) {
        (false, false) | (true, true) => return None,
        (true, false) => "the checkpoint holds a state of the data module, and this data module has none",
        (false, true) => "the data module has a state, and the checkpoint has none",
    };
    Some(format!("{refusal}; accept that with `--force` (`Trainer::accepting_changes`)"))
}
