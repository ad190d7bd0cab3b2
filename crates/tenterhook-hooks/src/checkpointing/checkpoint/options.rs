//! The options of the checkpoint hook.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, TimeSpan};

use super::filename;
use crate::support::checks;
use crate::support::mode::Mode;
use crate::support::options;

/// The name of the latest checkpoint.
pub(super) const LAST: &str = "last";

/// Whether the latest checkpoint is also kept under the name `last`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "whether to keep the newest as `last` is true, false or \"link\"")]
pub enum SaveLast {
    /// `false`: no `last`; `true`: a separate checkpoint.
    Copy(bool),
    /// `"link"`: a symbolic link to the latest checkpoint.
    Link(Link),
    /// Unset.
    #[default]
    Unset,
}

impl SaveLast {
    /// `"link"`: a symbolic link to the latest checkpoint.
    pub const LINK: SaveLast = SaveLast::Link(Link::Link);

    /// Whether `last` is saved.
    #[must_use]
    pub fn is_on(self) -> bool {
        matches!(self, SaveLast::Copy(true) | SaveLast::Link(_))
    }
}

/// The word `link`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// The word `link`.
    Link,
}

options! {
    /// The options of [`Checkpoint`](super::Checkpoint).
    // The combinations that `check` rejects.
    #[schemars(extend("not" = { "anyOf": [
        { "required": ["save_top_k"], "properties": { "save_top_k": { "minimum": 2 } }, "not": { "required": ["monitor"] } },
        { "required": ["every_n_epochs", "every_n_train_steps"],
          "properties": { "every_n_epochs": { "minimum": 1 }, "every_n_train_steps": { "minimum": 1 } } },
        { "required": ["every_n_epochs", "train_time_interval"], "properties": { "every_n_epochs": { "minimum": 1 } } },
        { "required": ["every_n_train_steps", "train_time_interval"],
          "properties": { "every_n_train_steps": { "minimum": 1 } } },
    ] }))]
    // Saving does not affect training.
    #[schemars(extend("x-harmless-change" = true))]
    pub struct CheckpointOptions {
        /// The directory for the checkpoints: relative to the run's checkpoint directory, or absolute. Unset: the run's
        /// checkpoint directory. `..` is not allowed.
        #[schemars(example = &"checkpoints")]
        pub dirpath: Option<PathBuf> = None,
        /// The name of a checkpoint, with metrics in braces, such as `epoch_{epoch}_loss_{val/loss:.2f}`. Unset:
        /// `{epoch}-{step}`.
        #[schemars(example = &"epoch_{epoch}_loss_{val/loss:.2f}", length(min = 1))]
        pub filename: Option<String> = None,
        /// Insert metric names: `{epoch}` becomes `epoch=3`.
        pub auto_insert_metric_name: bool = true,
        /// The metric to monitor.
        #[schemars(example = &"val/loss", length(min = 1))]
        pub monitor: Option<String> = None,
        /// Whether lower (`min`) or higher (`max`) values of the metric are better. Unset: inferred from its name, such as
        /// `loss` or `accuracy`; an ambiguous name is an error.
        #[schemars(example = &"min")]
        pub mode: Option<Mode> = None,
        /// The number of best checkpoints to keep: -1 keeps all, 0 none. Unset: all if `every_n_epochs` is set without
        /// `monitor`, else 1.
        #[schemars(example = 1, range(min = -1))]
        pub save_top_k: Option<i64> = None,
        /// Also save the latest state as `last`: with every other save, at the end of every epoch unless another interval
        /// is set, and when training ends, independent of `save_top_k`. `true` saves a copy; `"link"` makes a symbolic
        /// link if the same state is saved under another name. The `last` of another run is not overwritten: the new
        /// one is named `last-v1`.
        #[schemars(example = &"link")]
        pub save_last: SaveLast = SaveLast::Unset,
        /// Save only the weights used for evaluation: with `ema_weights`, the average. Training cannot be resumed from
        /// such a checkpoint.
        pub save_weights_only: bool = false,
        /// Save a checkpoint when the run fails.
        pub save_on_exception: bool = false,
        /// Save at the end of the training epoch instead of after validation. Unset: only if there is no
        /// validation, or exactly one per epoch.
        #[schemars(example = true)]
        pub save_on_train_epoch_end: Option<bool> = None,
        /// Number of epochs between checkpoints; 0 disables. Unset: 1, unless another interval is set.
        #[serde(alias = "save_every_n_epochs")]
        #[schemars(example = 1, extend("x-aliases" = ["save_every_n_epochs"]))]
        pub every_n_epochs: Option<u64> = None,
        /// Number of optimizer steps between checkpoints; 0 disables.
        #[schemars(example = 1000)]
        pub every_n_train_steps: Option<u64> = None,
        /// Time between checkpoints, such as `30 min` or `00:12:00:00` (`DD:HH:MM:SS`).
        #[schemars(example = &"30 min")]
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub train_time_interval: Option<TimeSpan> = None,
        /// Report every save.
        pub verbose: bool = false,
    }
}

impl From<u64> for CheckpointOptions {
    /// Saves a checkpoint every n epochs and keeps all.
    fn from(every_n_epochs: u64) -> CheckpointOptions {
        CheckpointOptions { every_n_epochs: Some(every_n_epochs), ..CheckpointOptions::default() }
    }
}

/// The interval between saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SaveInterval {
    Epochs(u64),
    Steps(u64),
    Time(Duration),
    Never,
}

impl CheckpointOptions {
    /// Which direction of the monitored metric is better; unused without a monitor.
    pub(super) fn direction(&self) -> Result<Mode, OptionError> {
        self.monitor.as_ref().map_or(Ok(Mode::Min), |monitor| Mode::resolve(self.mode, monitor))
    }

    /// The number of checkpoints to keep; -1 keeps all.
    pub(super) fn top_k(&self) -> i64 {
        let keeps_all = self.every_n_epochs.is_some() && self.monitor.is_none();
        self.save_top_k.unwrap_or(if keeps_all { -1 } else { 1 })
    }

    /// Checks the options and returns the interval between saves.
    pub(super) fn check(&self) -> Result<SaveInterval, OptionError> {
        let fix = "name a metric, such as \"val/loss\", or leave it out";
        checks::filled("monitor", self.monitor.as_deref() == Some(""), fix)?;
        if self.mode.is_some() && self.monitor.is_none() {
            return Err(OptionError::new("mode", "`mode` says which direction of the `monitor` is better")
                .and("monitor")
                .fix("name a metric there, or leave both out"));
        }
        if let Some(directory) = self.dirpath.as_ref().filter(|path| has_parent_dir(path)) {
            return Err(OptionError::new(
                "dirpath",
                format!("`dirpath` is \"{}\", and must do without `..`", directory.display()),
            )
            .fix("write the whole path, from `/` on"));
        }
        if self.top_k() < -1 {
            return Err(OptionError::new("save_top_k", "`save_top_k` must be -1 (all), 0 (none) or more"));
        }
        if self.monitor.is_none() && self.top_k() > 1 {
            return Err(OptionError::new(
                "save_top_k",
                "`save_top_k` above 1 needs a `monitor` to say which are the best",
            )
            .and("monitor"));
        }
        let template = self.filename.as_deref().unwrap_or(filename::DEFAULT);
        filename::check(template)?;
        self.check_reserved(template)?;
        if self.save_last.is_on() && template.split('/').next() == Some(LAST) {
            return Err(OptionError::new(
                "filename",
                format!("`filename` is \"{template}\", but `{LAST}` is the name that `save_last` needs"),
            )
            .and("save_last")
            .fix(
                "choose another, or \
                 leave `save_last` out",
            ));
        }
        let epochs =
            self.every_n_epochs.map(|n| if n == 0 { SaveInterval::Never } else { SaveInterval::Epochs(n) });
        let steps = self
            .every_n_train_steps
            .map(|n| if n == 0 { SaveInterval::Never } else { SaveInterval::Steps(n) });
        self.train_time_interval.map_or(Ok(()), |time| checks::above_zero("train_time_interval", time))?;
        let time = self.train_time_interval.map(|time| SaveInterval::Time(time.0));
        let mut intervals =
            [epochs, steps, time].into_iter().flatten().filter(|interval| *interval != SaveInterval::Never);
        let interval = intervals.next();
        if intervals.next().is_some() {
            return Err(OptionError::new(
                "every_n_epochs",
                "`every_n_epochs`, `every_n_train_steps` and `train_time_interval` exclude each other",
            )
            .and("every_n_train_steps")
            .and("train_time_interval"));
        }
        let unset = epochs.is_none() && steps.is_none() && time.is_none();
        Ok(interval.unwrap_or(if unset { SaveInterval::Epochs(1) } else { SaveInterval::Never }))
    }

    /// Rejects names that the trainer uses itself.
    fn check_reserved(&self, template: &str) -> Result<(), OptionError> {
        let outline = filename::outline(template, self.auto_insert_metric_name);
        if let Some(reserved) = reserved(outline.split('/')) {
            return Err(OptionError::new(
                "filename",
                format!("`filename` is \"{template}\", but {reserved}"),
            )
            .fix("choose another"));
        }
        let Some(directory) = self.dirpath.as_ref().filter(|path| path.is_relative()) else { return Ok(()) };
        let parts = directory.components().filter_map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        });
        reserved(parts).map_or(Ok(()), |reserved| {
            let shown = directory.display();
            Err(OptionError::new("dirpath", format!("`dirpath` is \"{shown}\", but {reserved}"))
                .fix("choose another"))
        })
    }
}

/// The reason why a path below the checkpoint directory is reserved, if it is.
fn reserved<'p>(parts: impl Iterator<Item = &'p str>) -> Option<&'static str> {
    parts.enumerate().find_map(|(at, part)| match part {
        "latest" if at == 0 => Some("`latest` is the trainer's link to the latest checkpoint"),
        part if at == 0 && part.starts_with("emergency-") => {
            Some("names that begin with `emergency-` are reserved for the trainer")
        }
        part if part.starts_with('.') => Some("names that begin with `.` are reserved for unfinished saves"),
        _ => None,
    })
}

fn has_parent_dir(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_exclude_each_other_are_refused_with_their_names() {
        let steps_and_epochs = CheckpointOptions {
            every_n_epochs: Some(1),
            every_n_train_steps: Some(5),
            ..CheckpointOptions::default()
        };
        let error = steps_and_epochs.check().expect_err("refused");
        assert!(error.to_string().contains("exclude each other"), "{error}");
        let blind = CheckpointOptions { save_top_k: Some(2), ..CheckpointOptions::default() };
        assert!(blind.check().expect_err("refused").to_string().contains("needs a `monitor`"));
        let time = Some(TimeSpan::default());
        let time = CheckpointOptions { train_time_interval: time, ..CheckpointOptions::default() };
        let error = time.check().expect_err("refused").to_string();
        assert!(error.starts_with("`train_time_interval` is 0 s"), "{error}");
    }

    #[test]
    fn reserved_and_hidden_names_are_refused() {
        let named = |filename: &str| CheckpointOptions {
            filename: Some(filename.into()),
            ..CheckpointOptions::default()
        };
        for filename in [
            "latest",
            "latest/{epoch}",
            "emergency-{epoch}",
            "{emergency-loss}",
            "..{epoch}",
            "a/.{epoch}",
            "{.x}",
        ] {
            let error = named(filename).check().expect_err(filename).to_string();
            assert!(error.starts_with("`filename` is ") && error.contains("choose another"), "{error}");
        }
        for filename in ["latest-{epoch}", "a/latest", "emergency", "{epoch}.5", "a/emergency-{epoch}"] {
            assert!(named(filename).check().is_ok(), "{filename}");
        }
        let into = |dirpath: &str| CheckpointOptions {
            dirpath: Some(dirpath.into()),
            ..CheckpointOptions::default()
        };
        for dirpath in ["latest", "emergency-1/a", ".hidden", "a/.b"] {
            let error = into(dirpath).check().expect_err(dirpath).to_string();
            assert!(error.starts_with("`dirpath` is ") && error.contains("choose another"), "{error}");
        }
        for dirpath in ["best", "./best", "/srv/.cache/latest"] {
            assert!(into(dirpath).check().is_ok(), "{dirpath}");
        }
    }

    #[test]
    fn checkpoints_are_saved_every_epoch_unless_another_interval_is_set() {
        let interval = |options: CheckpointOptions| options.check().expect("they fit");
        assert_eq!(interval(CheckpointOptions::default()), SaveInterval::Epochs(1));
        let steps = CheckpointOptions { every_n_train_steps: Some(5), ..CheckpointOptions::default() };
        assert_eq!(interval(steps), SaveInterval::Steps(5));
        let never = CheckpointOptions { every_n_epochs: Some(0), ..CheckpointOptions::default() };
        assert_eq!(interval(never), SaveInterval::Never);
    }
}
