//! Admission: checks that a checkpoint may be restored, before any hook is called.

use tenterhook_core::{BoxError, Failure, Origin, Stage};

use super::restore::in_state_of;
use crate::call::Call;
use crate::checkpoint::{Contents, largest_number, read};
use crate::config;
use crate::journal::RunNotice;
use crate::loops::Callee;
use crate::module::Module;

impl<M: Module> Call<'_, M> {
    /// Reads the checkpoint. Refuses a resume with another configuration, other hooks or other data, with
    /// states that hooks cannot load, or in a run that cannot be resumed.
    ///
    /// Only the data module has been set up. After a refusal no hook is called and nothing is written.
    pub(crate) fn admit(&mut self) -> Result<(), Failure> {
        self.check_record()?;
        let Some(path) = self.resume.options.checkpoint.take() else { return Ok(()) };
        let mut contents = call!(self.run, Trainer, "restore", read(&path))?;
        let fits = self.run.state.stage == Stage::Fit && !contents.weights_only;
        if fits {
            self.check_config(&contents)?;
            self.check_hooks(&contents)?;
        }
        if !contents.weights_only {
            let checked = self.run.hooks.check_states(&contents.hooks, &contents.progress);
            checked.map_err(|failure| in_state_of(&path, failure))?;
        }
        if fits {
            self.check_checkpoints(&mut contents)?;
            self.check_data_state(&contents)?;
            self.check_data(&contents.identity)?;
        }
        self.resume.admitted = Some((path, contents));
        Ok(())
    }

    /// Reports what changed since the checkpoint. Called when the resume is accepted.
    pub(crate) fn report_changes(&mut self) {
        for text in std::mem::take(&mut self.resume.changes) {
            self.run.note(RunNotice::Said { hook: Origin::TRAINER.into(), text });
        }
    }

    pub(crate) fn refuse(&mut self, why: String) -> Result<(), Failure> {
        self.run.fail(Callee::Trainer, "restore", why)
    }

    /// The recorder refuses a run that it cannot resume.
    fn check_record(&mut self) -> Result<(), Failure> {
        let Some(recording) = &self.run.journal.recording else { return Ok(()) };
        if self.run.state.stage != Stage::Fit || self.run.shared.run.fast_dev_run {
            return Ok(());
        }
        let admitted = recording.recorder().admit(self.resume.options.checkpoint.as_deref());
        call!(self.run, Trainer, "begin", admitted)
    }

    /// Checks that the directories of checkpoints are usable. A checkpoint that no longer exists is not
    /// announced; one that cannot be read is an error.
    fn check_checkpoints(&mut self, contents: &mut Contents) -> Result<(), Failure> {
        let roots = self.run.roots();
        let saves = self.run.journal.recording.is_some() && !self.run.shared.run.fast_dev_run;
        let unannounced = std::mem::take(&mut contents.unannounced);
        let checked = || -> Result<_, BoxError> {
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
        };
        contents.unannounced = self.run.checked(checked())?;
        Ok(())
    }

    /// Refuses another configuration, such as another model or optimizer.
    fn check_config(&mut self, contents: &Contents) -> Result<(), Failure> {
        let rules = self.resume.options.change_rules.take().unwrap_or_default();
        let differences = rules.differences(&contents.config, &self.run.shared.run.config);
        self.resume.changes.extend(config::change_notice(&differences));
        match config::change_error("configuration", &differences)
            .filter(|_| !self.resume.options.accept_changes)
        {
            Some(refusal) => self.refuse(refusal),
            None => Ok(()),
        }
    }

    /// Refuses other hooks, whose states would be missing or lost.
    fn check_hooks(&mut self, contents: &Contents) -> Result<(), Failure> {
        if self.resume.options.accept_other_hooks {
            return Ok(());
        }
        let (saved, then) = (&contents.hooks, &contents.runner);
        let registered = self.run.hooks.stateful_hooks();
        let gone = saved.keys().filter(|name| !registered.contains(name) && !then.was_added(name));
        let new = registered.iter().filter(|name| !saved.contains_key(*name) && !then.was_removed(name));
        let gone = gone.map(|name| format!("`{name}` is in the checkpoint and not registered"));
        let new = new.map(|name| format!("`{name}` is registered and not in the checkpoint"));
        let all: Vec<_> = gone.chain(new).collect();
        if all.is_empty() {
            return Ok(());
        }
        self.refuse(format!(
            "the hooks differ from those of the checkpoint: {}; register the same ones, or accept it with \
             `--accept-hook-changes` (`Trainer::accepting_other_hooks`)",
            all.join(", ")
        ))
    }

    /// Refuses a state of the data module that would be missing or lost.
    fn check_data_state(&mut self, contents: &Contents) -> Result<(), Failure> {
        let refusal = match (&contents.data, &self.run.checkpointer.data) {
            _ if self.resume.options.accept_changes => return Ok(()),
            (None, None) | (Some(_), Some(_)) => return Ok(()),
            (Some(_), None) => {
                "the checkpoint holds a state of the data module, and this data module has none"
            }
            (None, Some(_)) => "the data module has a state, and the checkpoint has none",
        };
        self.refuse(format!("{refusal}; accept that with `--force` (`Trainer::accepting_changes`)"))
    }
}
