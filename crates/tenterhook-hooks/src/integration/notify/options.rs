//! The options of [`Notify`](super::Notify).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{OptionError, TimeSpan};

use super::rate_limit::RateLimit;
use super::template::Template;
use crate::support::checks;
use crate::support::mode::Mode;
use crate::support::options;
use crate::support::secret;
use crate::worker::{QueueOptions, WhenFull};

options! {
    /// The options of [`Notify`](super::Notify).
    pub struct NotifyOptions {
        /// The environment variable that holds the address of the webhook. The address is a secret and is stored nowhere.
        #[schemars(extend("pattern" = "^[A-Za-z_][A-Za-z0-9_]*$"))]
        pub url_env: String,
        /// Events to send messages about: any of `training_end`, `best_model`, `exception`, `early_stop`, `checkpoint` and
        /// `hook_disabled`. Only the more specific message is sent: `early_stop` instead of `training_end`, `best_model` instead
        /// of `checkpoint`.
        #[schemars(length(min = 1))]
        pub notify_on: Vec<NotifyOn> = vec![NotifyOn::TrainingEnd, NotifyOn::Exception],
        /// The metric that decides which checkpoint is the best model. Only a value of the checkpoint's own step counts, so
        /// checkpoints must be saved after validation. Unset: the checkpoint hook decides.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("minLength" = 1))]
        pub monitor: Option<String> = None,
        /// Whether lower (`min`) or higher (`max`) values are better. Unset: derived from the name of the metric.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub mode: Option<Mode> = None,
        /// Message templates that replace the default ones.
        pub templates: NotifyTemplates = NotifyTemplates::default(),
        /// Timeout of one request.
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub timeout: TimeSpan = TimeSpan::from_secs(10),
        /// Maximum number of retries if the server cannot be reached, is too busy (429) or fails (5xx), with exponential
        /// backoff.
        pub retries: u32 = 3,
        /// Minimum time between two messages. Earlier messages are suppressed and counted, except those about the end or failure
        /// of training. `0 s`: no limit.
        pub min_interval: TimeSpan = TimeSpan::from_secs(1),
        /// Maximum number of messages per hour. Further messages are suppressed and counted.
        #[schemars(range(min = 1))]
        pub max_per_hour: usize = 60,
        /// Maximum number of messages that wait to be sent.
        #[schemars(range(min = 1))]
        pub queue_size: usize = 100,
        /// What happens when the queue is full: `drop_oldest` drops the oldest message, `block` makes training wait.
        pub when_full: WhenFull = WhenFull::default(),
        /// How long the end of the run waits for unsent messages.
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub flush_timeout: TimeSpan = TimeSpan::from_secs(15),
    }
}

/// The event of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotifyOn {
    /// Training has ended without a failure.
    TrainingEnd,
    /// The best model so far has been saved.
    BestModel,
    /// The run has failed.
    Exception,
    /// Training was stopped early.
    EarlyStop,
    /// A checkpoint has been saved.
    Checkpoint,
    /// A hook was disabled.
    HookDisabled,
}

/// The templates of messages. All can use `{run}`, `{step}`, `{epoch}` (from 0), `{epoch_label}` (such as `epoch 1/30`),
/// `{best}` and `{best_path}` (score and path of the best announced checkpoint), and metrics such as `{val/loss}` or
/// `{val/loss:.4}`. Missing values are `n/a`. For a checkpoint, step, epoch and metrics are those of its save.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyTemplates {
    /// Also has `{outcome}` and `{reason}`.
    #[schemars(example = &"{run}: {outcome}, val/loss {val/loss:.4}")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_end: Option<String>,
    /// Also has `{path}` and `{redelivered}`: `(may have been sent before)` after a kill, otherwise empty.
    #[schemars(example = &"{run}: val/loss {val/loss:.4} in {path}")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_model: Option<String>,
    /// Also has `{error}`.
    #[schemars(example = &"<!here> {run}: {error}")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// Also has `{outcome}`, `{reason}` and `{hook}`, the hook that stopped training.
    #[schemars(example = &"{run}: {hook} stopped it: {reason}")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<String>,
    /// Also has `{path}` and `{redelivered}`, as for `best_model`.
    #[schemars(example = &"{run}: {path}")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Also has `{hook}` and `{reason}`.
    #[schemars(example = &"{run}: {hook} is off from now on")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_disabled: Option<String>,
}

impl NotifyOptions {
    /// The defaults, with the address in this environment variable.
    pub fn new(url_env: impl Into<String>) -> NotifyOptions {
        NotifyOptions::with_defaults(url_env.into())
    }

    /// Checks the options and parses the templates.
    pub(super) fn check(&self) -> Result<Checked, OptionError> {
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
        Ok(Checked {
            mode: self.monitor.as_deref().map(|monitor| Mode::resolve(self.mode, monitor)).transpose()?,
            templates: Templates(parsed.collect::<Result<_, _>>()?),
            limit: RateLimit { min_interval: self.min_interval.0, max_per_hour: self.max_per_hour },
            queue: QueueOptions::checked(self.queue_size, self.when_full, self.flush_timeout)?,
        })
    }
}

/// The checked options.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) mode: Option<Mode>,
    pub(super) templates: Templates,
    pub(super) limit: RateLimit,
    pub(super) queue: QueueOptions,
}

/// One template per kind of message, in the order of [`NotifyOn::ALL`].
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

    /// The name in the configuration.
    pub(super) fn name(self) -> &'static str {
        ["training_end", "best_model", "exception", "early_stop", "checkpoint", "hook_disabled"]
            [self as usize]
    }

    /// Whether the rate limit does not apply.
    pub(super) fn ends_training(self) -> bool {
        matches!(self, NotifyOn::TrainingEnd | NotifyOn::EarlyStop | NotifyOn::Exception)
    }
}

impl NotifyTemplates {
    /// The template of this kind of message.
    fn of(&self, on: NotifyOn) -> &str {
        let (own, default) = match on {
            NotifyOn::TrainingEnd => {
                (&self.training_end, "{run}: training {outcome} at step {step} ({epoch_label}): {reason}")
            }
            NotifyOn::BestModel => {
                (&self.best_model, "{run}: the best model so far, of step {step}: {path} {redelivered}")
            }
            NotifyOn::Exception => (&self.exception, "{run}: failed at step {step} ({epoch_label}): {error}"),
            NotifyOn::EarlyStop => {
                (&self.early_stop, "{run}: stopped at step {step} ({epoch_label}) by {hook}: {reason}")
            }
            NotifyOn::Checkpoint => {
                (&self.checkpoint, "{run}: a checkpoint of step {step}: {path} {redelivered}")
            }
            NotifyOn::HookDisabled => {
                (&self.hook_disabled, "{run}: {hook} is disabled at step {step}: {reason}")
            }
        };
        own.as_deref().unwrap_or(default)
    }
}
