//! What a [`Notify`](super::Notify) is told.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, TimeSpan};

use super::limit::Limit;
use super::template::Template;
use crate::secret;
use crate::support::checks;
use crate::support::mode::Mode;
use crate::worker::outbox;
use crate::worker::{Queue, WhenFull};

/// The options of [`Notify`](super::Notify).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotifyOptions {
    /// The environment variable that holds the address of the webhook. The address itself is a secret and is written
    /// down nowhere.
    #[schemars(extend("pattern" = "^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub url_env: String,
    /// What to send a message about: any of `training_end`, `best_model`, `exception`, `early_stop`, `checkpoint` and
    /// `hook_disabled`. A run that was stopped early is told as `early_stop`, where that is chosen, and not as
    /// `training_end` as well; so is the best model, and not as `checkpoint`.
    #[serde(default = "ends")]
    #[schemars(length(min = 1))]
    pub notify_on: Vec<NotifyOn>,
    /// The metric by which a checkpoint is the best model. A checkpoint is judged only by a value of its own step, so it
    /// must be saved after the validation. Unset, the checkpoint hook decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1))]
    pub monitor: Option<String>,
    /// Whether less (`min`) or more (`max`) of it is better. Unset, the name of the metric decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// What messages say, where something else is wanted than usual.
    #[serde(default)]
    pub templates: NotifyTemplates,
    /// How long an attempt may take.
    #[serde(default = "ten_seconds")]
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub timeout: TimeSpan,
    /// How many more attempts a message gets where the server cannot be reached, is too busy (429) or fails (5xx),
    /// after longer and longer pauses.
    #[serde(default = "three")]
    pub retries: u32,
    /// A message that comes sooner after the last one is held back and only counted; that training has ended or failed
    /// never is. `0 s` holds back none.
    #[serde(default = "one_second")]
    pub min_interval: TimeSpan,
    /// So many messages within an hour; more are held back and counted.
    #[serde(default = "sixty")]
    #[schemars(range(min = 1))]
    pub max_per_hour: usize,
    /// How many messages may wait to be sent.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1))]
    pub queue_size: usize,
    /// What happens when that many wait: the oldest makes way (`drop_oldest`), or training waits (`block`).
    #[serde(default)]
    pub when_full: WhenFull,
    /// How long the end of the run waits for messages that are still to be sent.
    #[serde(default = "fifteen_seconds")]
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub flush_timeout: TimeSpan,
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotifyOn {
    /// Training has ended without a failure.
    TrainingEnd,
    /// The best model so far has been saved.
    BestModel,
    /// The run has failed.
    Exception,
    /// Somebody asked to stop training.
    EarlyStop,
    /// A checkpoint has been saved.
    Checkpoint,
    /// A hook was disabled.
    HookDisabled,
}

/// What messages say. Every one knows `{run}`, `{step}`, `{epoch}` (from 0), `{epoch_label}` (such as `epoch 1/30`),
/// `{best}` and `{best_path}` (the score and the path of the best checkpoint that has been announced), and metrics such as
/// `{val/loss}` or `{val/loss:.4}`; what has no value is `n/a`. Of a checkpoint, step, epoch and metrics are those of its save.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyTemplates {
    /// Besides, there are `{outcome}` and `{reason}`.
    #[schemars(example = &"{run}: {outcome}, val/loss {val/loss:.4}")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_end: Option<String>,
    /// Besides, there are `{path}` and `{again}`: `(may have been sent before)` after a kill, else empty.
    #[schemars(example = &"{run}: val/loss {val/loss:.4} in {path}")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_model: Option<String>,
    /// Besides, there is `{error}`.
    #[schemars(example = &"<!here> {run}: {error}")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// Besides, there are `{outcome}`, `{reason}` and `{hook}`, which asked for it.
    #[schemars(example = &"{run}: {hook} stopped it: {reason}")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<String>,
    /// Besides, there are `{path}` and `{again}`, as for `best_model`.
    #[schemars(example = &"{run}: {path}")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Besides, there are `{hook}` and `{reason}`.
    #[schemars(example = &"{run}: without {hook} from here on")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_disabled: Option<String>,
}

fn ends() -> Vec<NotifyOn> {
    vec![NotifyOn::TrainingEnd, NotifyOn::Exception]
}

fn ten_seconds() -> TimeSpan {
    TimeSpan::from_secs(10)
}

fn one_second() -> TimeSpan {
    TimeSpan::from_secs(1)
}

fn fifteen_seconds() -> TimeSpan {
    TimeSpan::from_secs(15)
}

fn three() -> u32 {
    3
}

fn sixty() -> usize {
    60
}

fn hundred() -> usize {
    100
}

impl NotifyOptions {
    /// The defaults, with the address in this environment variable.
    pub fn of(url_env: impl Into<String>) -> NotifyOptions {
        NotifyOptions {
            url_env: url_env.into(),
            notify_on: ends(),
            monitor: None,
            mode: None,
            templates: NotifyTemplates::default(),
            timeout: ten_seconds(),
            retries: three(),
            min_interval: one_second(),
            max_per_hour: sixty(),
            queue_size: hundred(),
            when_full: WhenFull::default(),
            flush_timeout: fifteen_seconds(),
        }
    }

    /// What they come to, or what is wrong with them.
    pub(super) fn check(&self) -> Result<Settled, OptionError> {
        secret::check_variable("url_env", &self.url_env, "SLACK_WEBHOOK_URL")?;
        let fix = "name at least one of training_end, best_model, exception, early_stop, checkpoint and \
                   hook_disabled, or write `enabled = false`";
        checks::filled("notify_on", self.notify_on.is_empty(), fix)?;
        checks::above_zero("timeout", self.timeout)?;
        checks::one_or_more("max_per_hour", self.max_per_hour as u64)?;
        if let (None, Some(_)) = (&self.monitor, self.mode) {
            return Err(OptionError::new("mode", "`mode` is set and `monitor` is not")
                .and("monitor")
                .fix("name the metric, or remove `mode`"));
        }
        let parsed = NotifyOn::ALL.iter().map(|on| Template::parse(*on, self.templates.of(*on)));
        Ok(Settled {
            mode: self.monitor.as_deref().map(|monitor| Mode::resolve(self.mode, monitor)).transpose()?,
            templates: Templates(parsed.collect::<Result<_, _>>()?),
            limit: Limit::new(self.min_interval.0, self.max_per_hour),
            queue: outbox::queue(self.queue_size, self.when_full, self.flush_timeout)?,
        })
    }
}

/// Options that have been understood.
pub(super) struct Settled {
    pub(super) mode: Option<Mode>,
    pub(super) templates: Templates,
    pub(super) limit: Limit,
    pub(super) queue: Queue,
}

/// A template for everything that there are messages about, in the order of [`NotifyOn::ALL`].
#[derive(Clone, Debug)]
pub(super) struct Templates(Vec<Template>);

impl Templates {
    pub(super) fn of(&self, on: NotifyOn) -> &Template {
        &self.0[on as usize]
    }
}

impl NotifyOn {
    pub(super) const ALL: [NotifyOn; 6] = [
        NotifyOn::TrainingEnd,
        NotifyOn::BestModel,
        NotifyOn::Exception,
        NotifyOn::EarlyStop,
        NotifyOn::Checkpoint,
        NotifyOn::HookDisabled,
    ];

    /// As it is written.
    pub(super) fn name(self) -> &'static str {
        ["training_end", "best_model", "exception", "early_stop", "checkpoint", "hook_disabled"]
            [self as usize]
    }

    /// Whether it is told whatever has been told before.
    pub(super) fn is_an_end(self) -> bool {
        matches!(self, NotifyOn::TrainingEnd | NotifyOn::EarlyStop | NotifyOn::Exception)
    }
}

impl NotifyTemplates {
    /// What is said about this.
    fn of(&self, on: NotifyOn) -> &str {
        let (own, usual) = match on {
            NotifyOn::TrainingEnd => {
                (&self.training_end, "{run}: training {outcome} at step {step} ({epoch_label}): {reason}")
            }
            NotifyOn::BestModel => {
                (&self.best_model, "{run}: the best model so far, of step {step}: {path} {again}")
            }
            NotifyOn::Exception => (&self.exception, "{run}: failed at step {step} ({epoch_label}): {error}"),
            NotifyOn::EarlyStop => {
                (&self.early_stop, "{run}: stopped at step {step} ({epoch_label}) by {hook}: {reason}")
            }
            NotifyOn::Checkpoint => (&self.checkpoint, "{run}: a checkpoint of step {step}: {path} {again}"),
            NotifyOn::HookDisabled => {
                (&self.hook_disabled, "{run}: {hook} is disabled at step {step}: {reason}")
            }
        };
        own.as_deref().unwrap_or(usual)
    }
}
