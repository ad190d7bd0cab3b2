//! How a trainer is set up: strategy, clock, files, notices, interruption, and what a resume accepts.

use std::path::{Path, PathBuf};

use tenterhook_core::Clock;

use super::Trainer;
use crate::config::ChangeRules;
use crate::journal::{Readers, Recording, RunNotice};
use crate::run::{Interrupt, Recorder, RunDirectory, RunDirectoryPlan};
use crate::strategy::Strategy;

impl Trainer {
    /// Distributes training by this strategy instead of using one process.
    #[must_use]
    pub fn with_strategy(mut self, strategy: impl Strategy + 'static) -> Trainer {
        self.strategy = Box::new(strategy);
        self
    }

    /// Takes time from another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock + 'static) -> Trainer {
        self.shared.clock = Box::new(clock);
        self
    }

    /// Puts checkpoints below this directory.
    #[must_use]
    pub fn with_checkpoints_in(mut self, root: impl Into<PathBuf>) -> Trainer {
        self.shared.run.checkpoints = root.into();
        self.placed = true;
        self
    }

    /// Says what the whole configuration is, of which the trainer knows its settings alone. Hooks see it, and a
    /// checkpoint keeps it, so it must hold no secrets.
    #[must_use]
    pub fn with_config(mut self, config: serde_json::Value) -> Trainer {
        self.shared.run.config = config;
        self
    }

    /// Judges differences between this configuration and that of a restored checkpoint by these rules.
    #[must_use]
    pub fn with_change_rules(mut self, rules: ChangeRules) -> Trainer {
        self.resume.change_rules = Some(rules);
        self
    }

    /// Tells about contained failures and decisions in another way than on standard error.
    #[must_use]
    pub fn with_notices(mut self, notify: impl FnMut(&RunNotice) + Send + 'static) -> Trainer {
        self.journal.readers = Readers::one(notify);
        self
    }

    /// Lets another reader have all notices, besides the terminal (or what [`with_notices`](Trainer::with_notices) put in
    /// its place), `events.jsonl` and hooks that receive `on_notice`.
    #[must_use]
    pub fn with_notice_reader(self, reader: impl FnMut(&RunNotice) + Send + 'static) -> Trainer {
        self.journal.readers.add(reader);
        self
    }

    /// Does not say at the start of `fit` which run it is: its id, commit, configuration hash, seed, versions, machine,
    /// command and hooks ([`RunNotice::Began`]). `events.jsonl` of a run directory has it in any case.
    #[must_use]
    pub fn without_introduction(mut self) -> Trainer {
        self.journal.introduces = false;
        self
    }

    /// Keeps a run directory. It is made when training really begins, right before `on_train_start`;
    /// evaluations after it write to it, too. Checkpoints go below it.
    #[must_use]
    pub fn with_run_directory(mut self, plan: RunDirectoryPlan) -> Trainer {
        if let Some(device) = &plan.device {
            self.shared.run.device.clone_from(device);
        }
        let directory = RunDirectory::new(plan);
        directory.location().set_in(&mut self.shared.run);
        self.with_recorder(directory)
    }

    /// Writes down what happens in another way than in a run directory.
    #[must_use]
    pub fn with_recorder(mut self, recorder: impl Recorder + 'static) -> Trainer {
        self.journal.recording = Some(Recording::new(Box::new(recorder)));
        self
    }

    /// Ends calls when this handle says so.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: Interrupt) -> Trainer {
        self.interrupt = Some(interrupt);
        self
    }

    /// The handle that ends calls from outside, in good order. Where the run keeps checkpoints, it leaves one.
    #[must_use]
    pub fn interrupt_handle(&mut self) -> Interrupt {
        self.interrupt.get_or_insert_default().clone()
    }

    /// Reports what the plan refuses, and runs all the same.
    #[must_use]
    pub fn lenient(mut self) -> Trainer {
        self.lenient = true;
        self
    }

    /// Lets the next call restore this checkpoint.
    #[must_use]
    pub fn restoring(mut self, checkpoint: impl Into<PathBuf>) -> Trainer {
        self.resume.checkpoint = Some(checkpoint.into());
        self
    }

    /// Restores a checkpoint although other hooks are registered than it holds: those it lacks begin
    /// anew, those it has too many are forgotten.
    #[must_use]
    pub fn accepting_other_hooks(mut self) -> Trainer {
        self.resume.accept_other_hooks = true;
        self
    }

    /// Restores a checkpoint although its run had other data, or another model, optimizer, seed or option that changes what
    /// is computed.
    #[must_use]
    pub fn accepting_changes(mut self) -> Trainer {
        self.resume.accept_changes = true;
        self
    }

    /// Makes this a dry run whose files all go below a scratch directory, which the caller removes. Hooks run no
    /// commands, send no requests and write nothing elsewhere, whatever their options say.
    #[must_use]
    pub fn rehearsing_in(mut self, scratch: &Path) -> Trainer {
        self.shared.run.rehearsal = true;
        self.with_checkpoints_in(scratch.join("checkpoints"))
    }
}
