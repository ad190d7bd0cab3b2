//! Decides whether a checkpoint may be restored, before any hook is called.

use tenterhook_core::{Failure, Stage};

use crate::call::Call;
use crate::checkpoint::{Contents, read};
use crate::config;
use crate::journal::Notice;
use crate::loops::Who;
use crate::module::Module;

impl<M: Module> Call<'_, M> {
    /// Reads the checkpoint to restore, and refuses a resume with another configuration, other hooks or other data.
    ///
    /// Only the data module has been set up here. After a refusal no hook is called and nothing is written.
    pub(crate) fn admit(&mut self) -> Result<(), Failure> {
        let Some(path) = self.resume.options.checkpoint.take() else { return Ok(()) };
        self.run.at(Who::Trainer, "restore");
        let contents = read(&path);
        let contents = self.run.checked(contents)?;
        if self.run.state.stage == Stage::Fit && !contents.weights_only {
            self.check_config(&contents)?;
            self.check_hooks(&contents)?;
            self.check_data_state(&contents)?;
            self.check_data(&contents.identity)?;
        }
        self.resume.admitted = Some((path, contents));
        Ok(())
    }

    /// Reports what changed since the checkpoint. Called when everything has been accepted.
    pub(crate) fn report_changes(&mut self) {
        for text in std::mem::take(&mut self.resume.changes) {
            self.run.note(Notice::Said { hook: "trainer".into(), text });
        }
    }

    pub(crate) fn refuse(&mut self, why: String) -> Result<(), Failure> {
        self.run.at(Who::Trainer, "restore");
        Err(self.run.failed(why.into(), false))
    }

    /// A resume with another model or optimizer would silently be another run.
    fn check_config(&mut self, contents: &Contents) -> Result<(), Failure> {
        let rules = self.resume.options.change_rules.take().unwrap_or_default();
        let differences = rules.differences(&contents.config, &self.run.shared.run.config);
        self.resume.changes.extend(config::remark(&differences));
        match config::refusal("configuration", &differences).filter(|_| !self.resume.options.accept_changes) {
            Some(refusal) => self.refuse(refusal),
            None => Ok(()),
        }
    }

    /// The state of a hook on one side only would silently begin anew, or be lost.
    fn check_hooks(&mut self, contents: &Contents) -> Result<(), Failure> {
        if self.resume.options.accept_other_hooks {
            return Ok(());
        }
        let (saved, then) = (&contents.hooks, &contents.runner);
        let registered = self.run.hooks.stateful();
        let gone = saved.keys().filter(|name| !registered.contains(name) && !then.was_added(name));
        let new = registered.iter().filter(|name| !saved.contains_key(*name) && !then.was_removed(name));
        let gone = gone.map(|name| format!("`{name}` is in the checkpoint and not registered"));
        let new = new.map(|name| format!("`{name}` is registered and not in the checkpoint"));
        let all: Vec<_> = gone.chain(new).collect();
        if all.is_empty() {
            return Ok(());
        }
        self.refuse(format!(
            "the hooks are not those of the checkpoint: {}; register the same ones, or accept it with \
             `--accept-hook-changes` (`Trainer::accepting_other_hooks`)",
            all.join(", ")
        ))
    }

    /// The state of a data module on one side only would silently begin anew, or be lost.
    fn check_data_state(&mut self, contents: &Contents) -> Result<(), Failure> {
        let refusal = match (&contents.data, &self.run.checkpointer.data) {
            _ if self.resume.options.accept_changes => return Ok(()),
            (None, None) | (Some(_), Some(_)) => return Ok(()),
            (Some(_), None) => {
                "the checkpoint holds a state of the data module, and this data module has none"
            }
            (None, Some(_)) => "the data module has a state, and the checkpoint holds none of it",
        };
        self.refuse(format!("{refusal}; accept that with `--force` (`Trainer::accepting_changes`)"))
    }
}
