//! The trainer's settings, under Lightning's names, and what they come to.

pub(crate) mod lightning;
mod limits;
mod units;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{ClipRule, TimeSpan};

pub(crate) use limits::Limits;
pub use units::{Amount, Share, Switch};

use crate::config::Problem;

/// The `[trainer]` table. What is not set has Lightning's default.
///
/// ```
/// use tenterhook::Settings;
/// let settings = Settings { max_epochs: Some(3), ..Settings::default() };
/// assert!(settings.problems().is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Epochs to train at most; -1 is no limit. Unset: 1000, or no limit when `max_steps` or `max_time` is set.
    #[schemars(example = 10, range(min = -1))]
    #[schemars(extend("x-harmless-change" = true))]
    pub max_epochs: Option<i64>,
    /// Epochs to train before a request to stop is heeded.
    #[schemars(example = 1)]
    #[schemars(extend("x-harmless-change" = true))]
    pub min_epochs: Option<u64>,
    /// Optimizer steps to train at most; -1 is no limit.
    #[schemars(range(min = -1), extend("x-harmless-change" = true))]
    pub max_steps: i64,
    /// Optimizer steps to train before a request to stop is heeded.
    #[schemars(example = 100)]
    #[schemars(extend("x-harmless-change" = true))]
    pub min_steps: Option<u64>,
    /// Wall time to train at most, all parts of a resumed run together: `"90 min"`, `"1h 30m"` or `"DD:HH:MM:SS"`.
    #[schemars(example = &"00:12:00:00")]
    #[schemars(extend("x-harmless-change" = true))]
    pub max_time: Option<TimeSpan>,
    /// How much of each epoch to train on: a count of batches, or a fraction.
    #[schemars(example = 1.0)]
    pub limit_train_batches: Option<Amount>,
    /// How much to validate on; 0 turns validation off.
    #[schemars(example = 1.0)]
    #[schemars(extend("x-harmless-change" = true))]
    pub limit_val_batches: Option<Amount>,
    /// How much to test on.
    #[schemars(example = 1.0)]
    #[schemars(extend("x-harmless-change" = true))]
    pub limit_test_batches: Option<Amount>,
    /// How much to predict.
    #[schemars(example = 1.0)]
    #[schemars(extend("x-harmless-change" = true))]
    pub limit_predict_batches: Option<Amount>,
    /// Train and validate on the same few batches every epoch, to see whether the model can overfit them.
    pub overfit_batches: Amount,
    /// A dry run over so many batches of everything (`true` is 1): nothing is saved or stopped early.
    pub fast_dev_run: Switch,
    /// When to validate: a fraction of the epoch, a count of batches, or a time.
    #[schemars(example = 1.0)]
    #[schemars(extend("x-harmless-change" = true))]
    pub val_check_interval: Option<Check>,
    /// Validate in every so many epochs. Unset (`"none"`): `val_check_interval` counts batches across epochs.
    #[serde(with = "units::none_or")]
    #[schemars(with = "units::CountOrNone")]
    #[schemars(extend("x-harmless-change" = true))]
    pub check_val_every_n_epoch: Option<u64>,
    /// Validation batches to try before training; -1 is all.
    #[schemars(range(min = -1), extend("x-harmless-change" = true))]
    pub num_sanity_val_steps: i64,
    /// Micro-batches per optimizer step.
    #[schemars(range(min = 1))]
    pub accumulate_grad_batches: u64,
    /// Clip gradients above this. A norm that is NaN makes all of them NaN. With Burn the norm is computed in 32
    /// bits, and 1e-6 is added to it.
    #[schemars(example = 1.0, range(min = 0.0))]
    pub gradient_clip_val: Option<f64>,
    /// What is compared with it: `norm` or `value`.
    #[schemars(example = &"norm")]
    pub gradient_clip_algorithm: Option<ClipAlgorithm>,
    /// Optimizer steps between two readings of the loss; 0 reads it at the end of an epoch only.
    #[schemars(extend("x-harmless-change" = true))]
    pub log_every_n_steps: u64,
    /// Note in `updates.jsonl` of the run directory which update hook changed which gradient, and by how much. It
    /// reads every touched gradient before and after; one that is left as it was, to the bit, is not noted.
    #[schemars(extend("x-harmless-change" = true))]
    pub trace_updates: bool,
    /// Keep account of what hooks cost: how often each is called, how long that takes, and what it makes the engine
    /// hand over; the run ends with a table of it. A delivery takes about twice as long for it, tens of nanoseconds.
    /// Budgets of hooks need it.
    #[schemars(extend("x-harmless-change" = true))]
    pub account_hooks: bool,
    /// The seed of everything random.
    pub seed: u64,
    /// Only algorithms that give the same result every time.
    pub deterministic: bool,
    /// What happens when a checkpoint cannot be written: `stop` fails the run, `warn` tells and goes on, `retry`
    /// tries a few times more, then tells and goes on. Older checkpoints stay in any case.
    #[schemars(extend("x-harmless-change" = true))]
    pub on_save_error: OnSaveError,
    /// Write checkpoints on a thread of their own while training goes on. Off, training waits for each of them.
    #[schemars(extend("x-harmless-change" = true))]
    pub background_saves: bool,
    /// How long the program may take to end in good order after a signal, an emergency checkpoint included; then it
    /// ends at once, and what was saved stays.
    #[schemars(extend("x-harmless-change" = true))]
    pub shutdown_timeout: TimeSpan,
    /// How long a loader may keep training waiting for a batch before that is told, with its name; again whenever the
    /// wait has doubled. `"0 s"` never tells.
    #[schemars(extend("x-harmless-change" = true))]
    pub stall_warning: TimeSpan,
    /// Keep the backtrace of every kind of failure: it stands in `events.jsonl`, and on the console when it ends the
    /// run.
    #[schemars(extend("x-harmless-change" = true))]
    pub debug: bool,
    /// Build the model also if it is estimated to need more memory than this machine has.
    #[schemars(extend("x-harmless-change" = true))]
    pub allow_large: bool,
}

/// What happens when a checkpoint cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnSaveError {
    /// The run goes on.
    Warn,
    /// It is tried again a few times, ever later; then the run goes on.
    Retry,
    /// The run fails.
    #[default]
    Stop,
}

/// When to validate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "when to validate is a count of batches, a fraction from 0.0 to 1.0, or a time such as \"30 min\""
)]
pub enum Check {
    /// After so many batches, or so much of the epoch.
    Amount(Amount),
    /// After so much time.
    Time(TimeSpan),
}

/// What is compared with `gradient_clip_val`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClipAlgorithm {
    /// The norm of all gradients together.
    #[default]
    Norm,
    /// Each value.
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
            overfit_batches: Amount::Count(0),
            fast_dev_run: Switch(0),
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
    /// Everything that is wrong with them, each with the key it is about.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let no_validation = "to turn validation off, set `limit_val_batches = 0`";
        let by_fraction = matches!(self.val_check_interval, Some(Check::Amount(Amount::Fraction(_))));
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
                self.val_check_interval == Some(Check::Amount(Amount::Count(0))),
                "val_check_interval",
                "must not be 0",
                no_validation,
            ),
            (
                self.gradient_clip_val
                    .is_some_and(|value| !(value.is_finite() && value >= 0.0) || vanishes(value)),
                "gradient_clip_val",
                "must be a number of 0 or more, and not so small that it is none in 32 bits",
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

/// Whether there is nothing left of a number in 32 bits, as gradients are.
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
    fn a_count_and_a_fraction_are_told_apart_by_how_they_are_written() {
        let settings = read("limit_train_batches = 1\nlimit_val_batches = 1.0\nval_check_interval = 0.25")
            .expect("it reads");
        assert_eq!(settings.limit_train_batches, Some(Amount::Count(1)));
        assert_eq!(settings.limit_val_batches, Some(Amount::Fraction(1.0)));
        assert_eq!(settings.val_check_interval, Some(Check::Amount(Amount::Fraction(0.25))));
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
            fast_dev_run: Switch(3),
            overfit_batches: Amount::Fraction(0.5),
            ..Settings::default()
        };
        let json = serde_json::to_string(&settings).expect("writes");
        assert_eq!(serde_json::from_str::<Settings>(&json).expect("reads"), settings);
        let toml = toml::to_string(&settings).expect("writes");
        assert_eq!(read(&toml).expect("reads"), settings);
    }

    #[test]
    fn impossible_values_are_all_named_at_once() {
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
    fn values_out_of_range_do_not_read() {
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
