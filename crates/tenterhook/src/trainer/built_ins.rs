//! Shortcuts for built-in hooks.

use tenterhook_hooks::{Checkpoint, CheckpointOptions, Console, ConsoleOptions, Jsonl, JsonlOptions};

use super::{AddError, Trainer};

impl Trainer {
    /// Prints progress on the console every n batches and at the end of each epoch (hook `console_log`).
    ///
    /// ```
    /// use tenterhook::hooks::{ConsoleOptions, JsonlOptions};
    /// use tenterhook::{Settings, Trainer};
    ///
    /// let mut trainer = Trainer::new(Settings::default())?;
    /// trainer.add_console_logging(10)?;
    /// trainer.add_json_logging(JsonlOptions { path: "log.jsonl".into(), ..JsonlOptions::default() })?;
    /// trainer.add_checkpointing(1)?;
    /// let names: Vec<_> = trainer.list_hooks().into_iter().map(|hook| hook.name).collect();
    /// assert_eq!(names[..3], ["console_log", "json_log", "checkpoint"]);
    /// trainer.remove_hook("console_log")?;
    /// trainer.add_console_logging(ConsoleOptions::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_console_logging(&mut self, options: impl Into<ConsoleOptions>) -> Result<(), AddError> {
        self.add_hook_type::<Console>(options.into())
    }

    /// Writes a structured log every n batches and at the start and end of loops (hook `json_log`).
    pub fn add_json_logging(&mut self, options: impl Into<JsonlOptions>) -> Result<(), AddError> {
        self.add_hook_type::<Jsonl>(options.into())
    }

    /// Saves a checkpoint every n epochs and keeps all of them, unless the options limit their number (hook
    /// `checkpoint`).
    pub fn add_checkpointing(&mut self, options: impl Into<CheckpointOptions>) -> Result<(), AddError> {
        self.add_hook_type::<Checkpoint>(options.into())
    }
}
