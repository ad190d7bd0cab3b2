//! The settings of the trainer, with Lightning's names.

pub(crate) mod lightning;
mod limits;
mod units;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{ClipRule, TimeSpan};

pub(crate) use limits::Limits;
pub use units::{BatchLimit, FastDevRun, Percent};

use crate::config::Problem;

/// The `[trainer]` table. The defaults are those of Lightning.
///
/// ```
/// use tenterhook::Settings;
/// let settings = Settings { max_epochs: Some(3), ..Settings::default() };
/// assert!(settings.problems().is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Stop training after this number of epochs; -1 means no limit. Unset: 1000, or no limit if `max_steps`
    /// or `max_time` is set.
    #[schemars(example = 10, range(min = -1))]
    #[schemars(extend("x-harmless-change" = true))]
    pub max_epochs: Option<i64>,
    /// Force training for at least this number of epochs, even if a hook requests a stop.
    #[schemars(example = 1)]
    #[schemars(extend("x-harmless-change" = true))]
    pub min_epochs: Option<u64>,
    /// Stop training after this number of optimizer steps; -1 means no limit.
    #[schemars(range(min = -1), extend("x-harmless-change" = true))]
    pub max_steps: i64,
    /// Force training for at least this number of optimizer steps, even if a hook requests a stop.
    #[schemars(example = 100)]
    #[schemars(extend("x-harmless-change" = true))]
    pub min_steps: Option<u64>,
    /// Stop training after this wall time, summed over all parts of a resumed run: `"90 min"`, `"1h 30m"` or
    /// `"DD:HH:MM:SS"`.
    #[schemars(example = &"00:12:00:00")]
    #[schemars(extend("x-harmless-change" = true))]
    pub max_time: Option<TimeSpan>,
    /// Limit of training batches per epoch: a number of batches, or a fraction.
    #[schemars(example = 1.0)]
    pub limit_train_batches: Option<BatchLimit>,
    /// Limit of validation batches: a number of batches, or a fraction; 0 turns validation off.
    #[schemars(example = 1.0)]
    #[schemars(extend("x-harmless-change" = true))]
    pub limit_val_batches: Option<BatchLimit>,
    /// Limit of test batches: a number of batches, or a fraction.
    #[schemars(example = 1.0)]
    #[schemars(extend("x-harmless-change" = true))]
    pub limit_test_batches: Option<BatchLimit>,
    /// Limit of prediction batches: a number of batches, or a fraction.
    #[schemars(example = 1.0)]
    #[schemars(extend("x-harmless-change" = true))]
    pub limit_predict_batches: Option<BatchLimit>,
    /// Overfit a number or fraction of batches: train and validate on the same batches in each epoch.
    pub overfit_batches: BatchLimit,
    /// Dry run to find errors: use this number of batches (`true` is 1) in each loop. Nothing is saved, and
    /// training does not stop early.
    pub fast_dev_run: FastDevRun,
    /// Interval of validation: a fraction of the epoch, a number of batches, or a time. Unset: 1.0.
    #[schemars(example = 1.0)]
    #[schemars(extend("x-harmless-change" = true))]
    pub val_check_interval: Option<ValInterval>,
    /// Perform validation every `n` epochs. If `"none"`, `val_check_interval` counts batches across epochs.
    #[serde(with = "units::none_or")]
    #[schemars(with = "units::CountOrNone")]
    #[schemars(extend("x-harmless-change" = true))]
    pub check_val_every_n_epoch: Option<u64>,
    /// Number of validation batches to run as a sanity check before training; -1 means all.
    #[schemars(range(min = -1), extend("x-harmless-change" = true))]
    pub num_sanity_val_steps: i64,
    /// Number of micro-batches whose gradients are accumulated for each optimizer step.
    #[schemars(range(min = 1))]
    pub accumulate_grad_batches: u64,
    /// Maximum norm or value of gradients; larger ones are clipped. A NaN norm makes all gradients NaN. With
    /// Burn, the norm is computed in 32 bits, and 1e-6 is added to it. Unset: no clipping.
    #[schemars(example = 1.0, range(min = 0.0))]
    pub gradient_clip_val: Option<f64>,
    /// Gradient clipping algorithm: `norm` clips by global norm, `value` clips each value. Unset: `norm`.
    #[schemars(example = &"norm")]
    pub gradient_clip_algorithm: Option<ClipAlgorithm>,
    /// Log the training loss every `n` optimizer steps; 0 logs it only at the end of an epoch.
    #[schemars(extend("x-harmless-change" = true))]
    pub log_every_n_steps: u64,
    /// Record in `updates.jsonl` of the run directory which update hook changed which gradient, and by how
    /// much. This reads each affected gradient before and after the hook; unchanged gradients are not
    /// recorded.
    #[schemars(extend("x-harmless-change" = true))]
    pub trace_updates: bool,
    /// Account for the cost of hooks: number of calls, time, and tensors read from the engine. A table is
    /// printed at the end of the run. Roughly doubles the time to deliver an event, by tens of nanoseconds.
    /// Required for `budget`.
    #[schemars(extend("x-harmless-change" = true))]
    pub account_hooks: bool,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Use deterministic algorithms only.
    pub deterministic: bool,
    /// Action when a checkpoint cannot be written: `stop` fails the run, `warn` reports it and continues,
    /// `retry` retries with exponential backoff before it reports and continues. Older checkpoints are kept
    /// in any case.
    #[schemars(extend("x-harmless-change" = true))]
    pub on_save_error: OnSaveError,
    /// Write checkpoints in a background thread. If false, training waits for each checkpoint.
    #[schemars(extend("x-harmless-change" = true))]
    pub background_saves: bool,
    /// Time limit for a graceful shutdown after a signal, including an emergency checkpoint. After that the
    /// program ends at once; saved checkpoints are kept.
    #[schemars(extend("x-harmless-change" = true))]
    pub shutdown_timeout: TimeSpan,
    /// Report a data loader that training has waited for this long, and again each time the wait has doubled.
    /// `"0 s"` turns the report off.
    #[schemars(extend("x-harmless-change" = true))]
    pub stall_warning: TimeSpan,
    /// Record backtraces of failures in `events.jsonl`, and print that of the failure that ends the run.
    #[schemars(extend("x-harmless-change" = true))]
    pub debug: bool,
    /// Build the model even if its estimated memory exceeds that of this machine.
    #[schemars(extend("x-harmless-change" = true))]
    pub allow_large: bool,
}

/// The action when a checkpoint cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnSaveError {
    /// Report it and continue.
    Warn,
    /// Retry with exponential backoff, then report it and continue.
    Retry,
    /// Fail the run.
    #[default]
    Stop,
}

/// The interval of validation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "the validation interval must be a number of batches, a fraction from 0.0 to 1.0, or a time such as \"30 min\""
)]
pub enum ValInterval {
    /// In batches, or as a fraction of the epoch.
    Batches(BatchLimit),
    /// In wall time.
    Time(TimeSpan),
}

/// The gradient clipping algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ClipAlgorithm {
    /// Clip by the global norm.
    #[default]
    Norm,
    /// Clip each value.
    Value,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            max_epochs: None,
            min_epochs: None,
            max_steps: -1,
            min_steps: None,
            max_time: None,
            limit_train_batches: None,
            limit_val_batches: None,
            limit_test_batches: None,
            limit_predict_batches: None,
            overfit_batches: BatchLimit::Count(0),
            fast_dev_run: FastDevRun(0),
            val_check_interval: None,
            check_val_every_n_epoch: Some(1),
            num_sanity_val_steps: 2,
            accumulate_grad_batches: 1,
            gradient_clip_val: None,
            gradient_clip_algorithm: None,
            log_every_n_steps: 50,
            trace_updates: false,
            account_hooks: true,
            seed: 0,
            deterministic: false,
            on_save_error: OnSaveError::default(),
            background_saves: true,
            shutdown_timeout: TimeSpan::from_secs(300),
            stall_warning: TimeSpan::from_secs(60),
            debug: false,
            allow_large: false,
        }
    }
}

impl Settings {
    /// All problems of the settings, with their keys.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let no_validation = "to turn validation off, set `limit_val_batches = 0`";
        let by_fraction =
            matches!(self.val_check_interval, Some(ValInterval::Batches(BatchLimit::Fraction(_))));
        let rules = [
            (self.max_epochs.is_some_and(|n| n < -1), "max_epochs", "must be -1 (no limit), 0 or more", ""),
            (self.max_steps < -1, "max_steps", "must be -1 (no limit), 0 or more", ""),
            (self.num_sanity_val_steps < -1, "num_sanity_val_steps", "must be -1 (all), 0 or more", ""),
            (self.accumulate_grad_batches == 0, "accumulate_grad_batches", "must be 1 or more", ""),
            (
                self.check_val_every_n_epoch == Some(0),
                "check_val_every_n_epoch",
                "must be 1 or more",
                no_validation,
            ),
            (
                self.val_check_interval == Some(ValInterval::Batches(BatchLimit::Count(0))),
                "val_check_interval",
                "must not be 0",
                no_validation,
            ),
            (
                self.gradient_clip_val
                    .is_some_and(|value| !(value.is_finite() && value >= 0.0) || vanishes(value)),
                "gradient_clip_val",
                "must be a number of 0 or more, and not so small that it is 0 in 32 bits",
                "",
            ),
            (
                by_fraction && self.check_val_every_n_epoch.is_none(),
                "val_check_interval",
                "must be a count of batches or a time when `check_val_every_n_epoch` is \"none\": \
                 there is no epoch to take a fraction of",
                "",
            ),
        ];
        let wrong = rules.into_iter().filter(|(wrong, ..)| *wrong);
        let problems = wrong.map(|(_, key, message, fix)| {
            let problem = Problem::new(key, format!("`{key}` {message}"));
            if fix.is_empty() { problem } else { problem.fix(fix) }
        });
        problems.collect()
    }

    pub(crate) fn clip(&self) -> Option<ClipRule> {
        let threshold = self.gradient_clip_val.filter(|value| *value > 0.0)?;
        Some(match self.gradient_clip_algorithm.unwrap_or_default() {
            ClipAlgorithm::Norm => ClipRule::Norm(threshold),
            ClipAlgorithm::Value => ClipRule::Value(threshold),
        })
    }
}

/// Whether a positive number is 0 in 32 bits, the type of gradients.
#[allow(clippy::cast_possible_truncation)]
fn vanishes(value: f64) -> bool {
    value > 0.0 && value as f32 <= 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str) -> Result<Settings, toml::de::Error> {
        toml::from_str(toml)
    }

    #[test]
    fn counts_and_fractions_differ_by_the_decimal_point() {
        let settings = read("limit_train_batches = 1\nlimit_val_batches = 1.0\nval_check_interval = 0.25")
            .expect("it reads");
        assert_eq!(settings.limit_train_batches, Some(BatchLimit::Count(1)));
        assert_eq!(settings.limit_val_batches, Some(BatchLimit::Fraction(1.0)));
        assert_eq!(settings.val_check_interval, Some(ValInterval::Batches(BatchLimit::Fraction(0.25))));
    }

    #[test]
    fn none_and_null_unset_what_has_a_default() {
        assert_eq!(read("check_val_every_n_epoch = \"none\"").expect("reads").check_val_every_n_epoch, None);
        let json: Settings =
            serde_json::from_str(r#"{"check_val_every_n_epoch": null, "max_epochs": null}"#).expect("reads");
        assert_eq!((json.check_val_every_n_epoch, json.max_epochs), (None, None));
        assert_eq!(read("").expect("reads").check_val_every_n_epoch, Some(1));
    }

    #[test]
    fn settings_survive_being_written_and_read() {
        let settings = Settings {
            max_time: Some("00:01:30:00".parse().expect("a time")),
            check_val_every_n_epoch: None,
            fast_dev_run: FastDevRun(3),
            overfit_batches: BatchLimit::Fraction(0.5),
            ..Settings::default()
        };
        let json = serde_json::to_string(&settings).expect("writes");
        assert_eq!(serde_json::from_str::<Settings>(&json).expect("reads"), settings);
        let toml = toml::to_string(&settings).expect("writes");
        assert_eq!(read(&toml).expect("reads"), settings);
    }

    #[test]
    fn all_invalid_values_are_reported_at_once() {
        let settings = read(
            "max_epochs = -2\nmax_steps = -5\naccumulate_grad_batches = 0\nval_check_interval = 0.5\n\
             check_val_every_n_epoch = \"none\"\ngradient_clip_val = -1.0",
        );
        let problems = settings.expect("it reads").problems();
        assert_eq!(problems.len(), 5, "{problems:#?}");
        assert!(problems[0].key == "max_epochs", "{problems:#?}");
        let vanishing = read("gradient_clip_val = 1e-60").expect("it reads").problems();
        assert_eq!(vanishing.len(), 1, "{vanishing:#?}");
        assert!(Settings::default().problems().is_empty());
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (text, hint) in [
            ("limit_train_batches = 1.5", "from 0.0 to 1.0"),
            ("limit_val_batches = -1", "0 or more"),
            ("fast_dev_run = -1", "0 or more"),
            ("max_time = \"soon\"", "DD:HH:MM:SS"),
            ("check_val_every_n_epoch = \"never\"", "\"none\""),
            ("max_epoch = 3", "max_epochs"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(hint), "{error}");
        }
    }
}
