//! The options of the checkpoint hook, and the rhythm they come to.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, TimeSpan};

use super::filename;
use crate::checks;
use crate::mode::Mode;

/// The name of the newest.
pub(super) const LAST: &str = "last";

/// Whether the newest checkpoint is also kept under the name `last`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "whether to keep the newest as `last` is true, false or \"link\"")]
pub enum SaveLast {
    /// `false`, or `true`: as a checkpoint of its own.
    Copy(bool),
    /// `"link"`: as a link to the newest.
    Link(Link),
    /// Unset.
    #[default]
    Unset,
}

impl SaveLast {
    /// `"link"`: as a link to the newest.
    pub const LINK: SaveLast = SaveLast::Link(Link::Link);

    /// Whether there is a `last` at all.
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

/// The options of [`Checkpoint`](super::Checkpoint).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
// What the check below refuses of two options together.
#[schemars(extend("not" = { "anyOf": [
    { "required": ["save_top_k"], "properties": { "save_top_k": { "minimum": 2 } }, "not": { "required": ["monitor"] } },
    { "required": ["every_n_epochs", "every_n_train_steps"],
      "properties": { "every_n_epochs": { "minimum": 1 }, "every_n_train_steps": { "minimum": 1 } } },
    { "required": ["every_n_epochs", "train_time_interval"], "properties": { "every_n_epochs": { "minimum": 1 } } },
    { "required": ["every_n_train_steps", "train_time_interval"],
      "properties": { "every_n_train_steps": { "minimum": 1 } } },
] }))]
// It saves, and changes nothing that is computed.
#[schemars(extend("x-harmless-change" = true))]
pub struct CheckpointOptions {
    /// Where to put them: below the run's own directory of checkpoints, or anywhere when it begins with `/`; unset
    /// is that directory itself. `..` is refused.
    #[schemars(example = &"checkpoints")]
    pub dirpath: Option<PathBuf>,
    /// How to name them, such as `epoch_{epoch}_loss_{val/loss:.2f}`; unset is `{epoch}-{step}`.
    #[schemars(example = &"epoch_{epoch}_loss_{val/loss:.2f}", length(min = 1))]
    pub filename: Option<String>,
    /// Write `epoch=3` for `{epoch}`.
    pub auto_insert_metric_name: bool,
    /// The metric that says which are the best.
    #[schemars(example = &"val/loss", length(min = 1))]
    pub monitor: Option<String>,
    /// Which direction is better. Unset: what the metric's name tells, such as `loss` or `accuracy`; a name
    /// that leaves doubt is an error.
    #[schemars(example = &"min")]
    pub mode: Option<Mode>,
    /// How many of the best to keep: -1 is all, 0 none. Unset: all where `every_n_epochs` is set and nothing is
    /// monitored, else 1.
    #[schemars(example = 1, range(min = -1))]
    pub save_top_k: Option<i64>,
    /// Keep the latest state under the name `last`: written with every other save, at the end of every epoch unless
    /// another rhythm is set, and when training ends, whatever `save_top_k` keeps. `true` is a checkpoint of its
    /// own; `"link"` is a link where the same moment is kept under another name. The `last` of another run stays, and
    /// this one becomes `last-v1`.
    #[schemars(example = &"link")]
    pub save_last: SaveLast,
    /// Only the weights, as they are evaluated: the average where `ema_weights` keeps one. Nothing can be resumed
    /// from them.
    pub save_weights_only: bool,
    /// Save when the run fails.
    pub save_on_exception: bool,
    /// Save at the end of the training epoch rather than after validation. Unset: when there is no
    /// validation, or it comes exactly once per epoch.
    #[schemars(example = true)]
    pub save_on_train_epoch_end: Option<bool>,
    /// Save in every so many epochs; 1 unless another rhythm is set, 0 is never.
    #[serde(alias = "save_every_n_epochs")]
    #[schemars(example = 1, extend("x-aliases" = ["save_every_n_epochs"]))]
    pub every_n_epochs: Option<u64>,
    /// Save every so many optimizer steps.
    #[schemars(example = 1000)]
    pub every_n_train_steps: Option<u64>,
    /// Save every so often, such as `30 min` or `00:12:00:00` (`DD:HH:MM:SS`).
    #[schemars(example = &"30 min")]
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub train_time_interval: Option<TimeSpan>,
    /// Say what was saved.
    pub verbose: bool,
}

impl Default for CheckpointOptions {
    fn default() -> CheckpointOptions {
        CheckpointOptions {
            dirpath: None,
            filename: None,
            auto_insert_metric_name: true,
            monitor: None,
            mode: None,
            save_top_k: None,
            save_last: SaveLast::Unset,
            save_weights_only: false,
            save_on_exception: false,
            save_on_train_epoch_end: None,
            every_n_epochs: None,
            every_n_train_steps: None,
            train_time_interval: None,
            verbose: false,
        }
    }
}

impl From<u64> for CheckpointOptions {
    /// A checkpoint every so many epochs, all of which are kept.
    fn from(every_n_epochs: u64) -> CheckpointOptions {
        CheckpointOptions { every_n_epochs: Some(every_n_epochs), ..CheckpointOptions::default() }
    }
}

/// When it saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rhythm {
    Epochs(u64),
    Steps(u64),
    Time(Duration),
    Never,
}

impl CheckpointOptions {
    /// Which direction is better; without a monitor nothing asks for it.
    pub(super) fn direction(&self) -> Result<Mode, OptionError> {
        self.monitor.as_ref().map_or(Ok(Mode::Min), |monitor| Mode::resolve(self.mode, monitor))
    }

    /// How many are kept: -1 is all.
    pub(super) fn keeps(&self) -> i64 {
        let keeps_all = self.every_n_epochs.is_some() && self.monitor.is_none();
        self.save_top_k.unwrap_or(if keeps_all { -1 } else { 1 })
    }

    /// When to save by these options, or what is wrong with them.
    pub(super) fn check(&self) -> Result<Rhythm, OptionError> {
        let fix = "name a metric, such as \"val/loss\", or leave it out";
        checks::filled("monitor", self.monitor.as_deref() == Some(""), fix)?;
        if self.mode.is_some() && self.monitor.is_none() {
            return Err(OptionError::new("mode", "`mode` is which direction of the `monitor` is better")
                .and("monitor")
                .fix("name a metric there, or leave both out"));
        }
        if let Some(directory) = self.dirpath.as_ref().filter(|path| leads_up(path)) {
            return Err(OptionError::new(
                "dirpath",
                format!("`dirpath` is \"{}\", and must do without `..`", directory.display()),
            )
            .fix("write the whole path, from `/` on"));
        }
        if self.keeps() < -1 {
            return Err(OptionError::new("save_top_k", "`save_top_k` must be -1 (all), 0 (none) or more"));
        }
        if self.monitor.is_none() && self.keeps() > 1 {
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
        let epochs = self.every_n_epochs.map(|n| if n == 0 { Rhythm::Never } else { Rhythm::Epochs(n) });
        let steps = self.every_n_train_steps.map(|n| if n == 0 { Rhythm::Never } else { Rhythm::Steps(n) });
        self.train_time_interval.map_or(Ok(()), |time| checks::above_zero("train_time_interval", time))?;
        let time = self.train_time_interval.map(|time| Rhythm::Time(time.0));
        let mut rhythms =
            [epochs, steps, time].into_iter().flatten().filter(|rhythm| *rhythm != Rhythm::Never);
        let chosen = rhythms.next();
        if rhythms.next().is_some() {
            return Err(OptionError::new(
                "every_n_epochs",
                "`every_n_epochs`, `every_n_train_steps` and `train_time_interval` exclude each other",
            )
            .and("every_n_train_steps")
            .and("train_time_interval"));
        }
        let unset = epochs.is_none() && steps.is_none() && time.is_none();
        Ok(chosen.unwrap_or(if unset { Rhythm::Epochs(1) } else { Rhythm::Never }))
    }

    /// Refuses what the trainer calls its own.
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

/// What is wrong with these parts of a path below the directory of checkpoints.
fn reserved<'p>(parts: impl Iterator<Item = &'p str>) -> Option<&'static str> {
    parts.enumerate().find_map(|(at, part)| match part {
        "latest" if at == 0 => Some("`latest` is the trainer's own link to the newest"),
        part if at == 0 && part.starts_with("emergency-") => {
            Some("names that begin with `emergency-` are the trainer's own")
        }
        part if part.starts_with('.') => Some("names that begin with `.` are of saves that are not finished"),
        _ => None,
    })
}

fn leads_up(path: &Path) -> bool {
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
    fn the_names_of_the_trainer_and_hidden_ones_are_refused() {
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
    fn epochs_are_the_rhythm_unless_another_is_set() {
        let rhythm = |options: CheckpointOptions| options.check().expect("they fit");
        assert_eq!(rhythm(CheckpointOptions::default()), Rhythm::Epochs(1));
        let steps = CheckpointOptions { every_n_train_steps: Some(5), ..CheckpointOptions::default() };
        assert_eq!(rhythm(steps), Rhythm::Steps(5));
        let never = CheckpointOptions { every_n_epochs: Some(0), ..CheckpointOptions::default() };
        assert_eq!(rhythm(never), Rhythm::Never);
    }
}
