//! Builder methods of the trainer: strategy, clock, files, notices, interrupts, and resume options.

use std::path::{Path, PathBuf};

use tenterhook_core::Clock;

use super::Trainer;
use crate::config::ChangeRules;
use crate::journal::{Readers, Recording, RunNotice};
use crate::run::{Interrupt, Recorder, RunDirectory, RunDirectoryOptions};
use crate::strategy::Strategy;

impl Trainer {
    /// Sets the strategy that distributes training. The default is one process.
    #[must_use]
    pub fn with_strategy(mut self, strategy: impl Strategy + 'static) -> Trainer {
        self.strategy = Box::new(strategy);
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Trainer {
        self.shared.clock = Box::new(clock);
        self
    }

    /// Sets the directory of checkpoints.
    #[must_use]
    pub fn with_checkpoints_in(mut self, root: impl Into<PathBuf>) -> Trainer {
        self.shared.run.checkpoints = root.into();
        self.has_checkpoint_root = true;
        self
    }

    /// Sets the configuration of the whole run, of which the trainer's settings are a part. Hooks see it and
    /// checkpoints contain it, so it must hold no secrets.
    #[must_use]
    pub fn with_config(mut self, config: serde_json::Value) -> Trainer {
        self.shared.run.config = config;
        self
    }

    /// Sets the rules by which this configuration may differ from that of a restored checkpoint.
    #[must_use]
    pub fn with_change_rules(mut self, rules: ChangeRules) -> Trainer {
        self.resume.change_rules = Some(rules);
        self
    }

    /// Passes notices to this function instead of printing them on standard error.
    #[must_use]
    pub fn with_notices(mut self, notify: impl FnMut(&RunNotice) + Send + 'static) -> Trainer {
        self.journal.readers = Readers::one(notify);
        self
    }

    /// Adds a reader of all notices, besides the terminal (or its replacement by
    /// [`with_notices`](Trainer::with_notices)), `events.jsonl`, and hooks that receive `on_notice`.
    #[must_use]
    pub fn with_notice_reader(self, reader: impl FnMut(&RunNotice) + Send + 'static) -> Trainer {
        self.journal.readers.add(reader);
        self
    }

    /// Disables the notice at the start of `fit` with id, commit, configuration hash, seed, versions,
    /// machine, command and hooks of the run ([`RunNotice::Started`]). `events.jsonl` contains it in any
    /// case.
    #[must_use]
    pub fn without_run_header(mut self) -> Trainer {
        self.journal.announces_start = false;
        self
    }

    /// Writes a run directory. It is created right before `on_train_start`; later evaluations write to it,
    /// too. Checkpoints are put below it.
    #[must_use]
    pub fn with_run_directory(mut self, options: RunDirectoryOptions) -> Trainer {
        if let Some(device) = &options.device {
            self.shared.run.device.clone_from(device);
        }
        let directory = RunDirectory::new(options);
        directory.location().set_in(&mut self.shared.run);
        self.with_recorder(directory)
    }

    /// Sets a recorder instead of a run directory.
    #[must_use]
    pub fn with_recorder(mut self, recorder: impl Recorder + 'static) -> Trainer {
        self.journal.recording = Some(Recording::new(Box::new(recorder)));
        self
    }

    /// Sets the handle that ends calls from outside.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: Interrupt) -> Trainer {
        self.interrupt = Some(interrupt);
        self
    }

    /// The handle that ends calls from outside. A run that saves checkpoints saves one before it ends.
    #[must_use]
    pub fn interrupt_handle(&mut self) -> Interrupt {
        self.interrupt.get_or_insert_default().clone()
    }

    /// Only reports problems of the plan, instead of refusing to run.
    #[must_use]
    pub fn lenient(mut self) -> Trainer {
        self.lenient = true;
        self
    }

    /// Restores this checkpoint in the next call.
    #[must_use]
    pub fn restoring(mut self, checkpoint: impl Into<PathBuf>) -> Trainer {
        self.resume.checkpoint = Some(checkpoint.into());
        self
    }

    /// Restores a checkpoint of a run with other hooks. Hooks that it lacks start without a state; the state
    /// of unknown hooks is ignored.
    #[must_use]
    pub fn accepting_other_hooks(mut self) -> Trainer {
        self.resume.accept_other_hooks = true;
        self
    }

    /// Restores a checkpoint of a run with other data, or with another model, optimizer, seed or option that
    /// changes results.
    #[must_use]
    pub fn accepting_changes(mut self) -> Trainer {
        self.resume.accept_changes = true;
        self
    }

    /// Makes this a dry run. All files go below a scratch directory, which the caller removes. Hooks run no
    /// commands, send no requests and write nothing elsewhere, whatever their options are.
    #[must_use]
    pub fn rehearsing_in(mut self, scratch: &Path) -> Trainer {
        self.shared.run.rehearsal = true;
        self.with_checkpoints_in(scratch.join("checkpoints"))
    }
}
