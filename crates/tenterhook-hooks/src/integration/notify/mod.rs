//! Sends messages about a run to a chat.

mod options;
mod rate_limit;
mod sender;
mod template;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    CheckpointLoaded, CheckpointSaved, DeliveryStats, Event, Exception, FromOptions, HookDisabled,
    HookResult, HookSpec, Observer, OptionError, Outcome, RunContext, SAVES_CHECKPOINTS, Setup, Teardown,
    TrainEnd, epoch_label, hook,
};

use options::Checked;
pub use options::{NotifyOn, NotifyOptions, NotifyTemplates};
use rate_limit::RecentMessages;
use sender::{Message, Sender};
use template::Values;

use crate::checkpointing::checkpoint::{self, BEST, BestCheckpoint};
use crate::support::http::Client;
use crate::support::mode::Mode;
use crate::support::secret::{self, Endpoint, Secret};
use crate::support::text;
use crate::worker::{LazyWorker, outside};

/// Sends messages about a run to a chat: a webhook that accepts `{"text": "…"}`, such as those of Slack, Mattermost,
/// Rocket.Chat and Discord (with `/slack` appended to the address).
///
/// - **Fires** at `on_train_end` (`training_end`, `early_stop`), `on_exception`, `on_checkpoint_saved` (`best_model`,
///   `checkpoint`) and `on_hook_disabled`, as `notify_on` says. Nothing is sent in a dry run or a rehearsal.
/// - **Reads** the metrics that the template names; for a checkpoint, their values at its save. `best_model` is about the best
///   checkpoint by `monitor`, or by the checkpoint hook. If neither monitors a metric, or no hook saves checkpoints, the
///   run is refused. After a kill a message about a checkpoint may be sent twice; the second one is marked. **Writes**
///   nothing. The address of the webhook comes from the environment variable `url_env` and never appears in the
///   configuration, the run directory, messages or errors. Redirects are not followed.
/// - **Cost**: a few copied strings per message. A worker thread sends and retries; the end of the run waits for it, up to
///   `flush_timeout`.
/// - **When it fails**: a message that is not accepted after `retries` retries is reported, and the hook is disabled after
///   three failures (its policy). A variable that is unset or holds no address is a failure at `setup`, and nothing is
///   sent.
///
/// ```toml
/// [[hooks]]
/// use = "notify"
/// url_env = "SLACK_WEBHOOK_URL"                # must be set
/// notify_on = ["training_end", "exception"]
/// # monitor: unset
/// # mode: unset
/// timeout = "10 s"
/// retries = 3
/// min_interval = "1 s"
/// max_per_hour = 60
/// queue_size = 100
/// when_full = "drop_oldest"
/// flush_timeout = "15 s"
/// # templates: unset
/// ```
#[derive(Debug)]
pub struct Notify {
    options: NotifyOptions,
    checked: Checked,
    memory: SavedState,
    /// Whether `best` was set by `on_checkpoint_loaded`, and no checkpoint was announced since.
    is_loaded: bool,
    /// The best checkpoint before the load.
    before_load: Option<Best>,
    /// Whether a checkpoint had no value of `monitor` of its own step.
    unjudged: bool,
    endpoint: Endpoint,
    worker: LazyWorker<Message>,
}

/// State saved in checkpoints.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SavedState {
    /// The best checkpoint that was announced, or that training resumes from.
    best: Option<Best>,
    recent: RecentMessages,
}

/// A checkpoint and its score.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Best {
    #[serde(with = "tenterhook_core::number")]
    score: f64,
    path: String,
}

impl FromOptions for Notify {
    type Options = NotifyOptions;
    const PURPOSE: &str = "sends messages about the run to a chat: its end, failures, the best model";
    const EXAMPLE: &str = r#"
url_env = "SLACK_WEBHOOK_URL"
notify_on = ["training_end", "exception"]
templates = { training_end = "{run}: {outcome} after {step} steps, val/loss {val/loss:.4}" }
"#;

    fn from_options(options: NotifyOptions) -> Result<Notify, OptionError> {
        Ok(Notify {
            checked: options.check()?,
            options,
            memory: SavedState::default(),
            is_loaded: false,
            before_load: None,
            unjudged: false,
            endpoint: Endpoint::default(),
            worker: LazyWorker::default(),
        })
    }
}

impl Notify {
    /// Sends to this address instead of the one in the variable, for programs that keep their secrets elsewhere.
    #[must_use]
    pub fn with_address(mut self, address: Secret) -> Notify {
        self.endpoint.given = Some(address);
        self
    }

    fn wants(&self, on: NotifyOn) -> bool {
        self.options.notify_on.contains(&on)
    }

    /// Whether any message depends on the best checkpoint.
    fn needs_best(&self) -> bool {
        let names_best = |on: &NotifyOn| self.wants(*on) && self.checked.templates.of(*on).names_best();
        self.wants(NotifyOn::BestModel) || NotifyOn::ALL.iter().any(names_best)
    }

    /// The values of the current step.
    fn current_values(&self, cx: &RunContext<'_>, on: NotifyOn) -> Values {
        let names = self.checked.templates.of(on).metrics().iter();
        Values {
            step: cx.step,
            epoch: cx.current_epoch(),
            epoch_label: cx.epoch_label(),
            metrics: names.map(|name| cx.metrics().get(name)).collect(),
            ..Values::default()
        }
    }

    /// The values of a checkpoint at its save.
    fn saved_values(&self, cx: &CheckpointSaved<'_>, on: NotifyOn) -> Values {
        let names = self.checked.templates.of(on).metrics().iter();
        Values {
            step: cx.saved_step,
            epoch: cx.saved_epoch,
            epoch_label: epoch_label(cx.saved_epoch, cx.run.total_epochs),
            metrics: names.map(|name| cx.saved_metrics.get(name).copied()).collect(),
            path: Some(cx.path.display().to_string()),
            redelivered: cx.redelivered,
            ..Values::default()
        }
    }

    fn is_better(&self, score: f64, mode: Mode) -> bool {
        let best = self.memory.best.as_ref();
        !score.is_nan() && best.is_none_or(|best| mode.is_better(score, best.score))
    }

    /// Records a saved checkpoint if it is the best so far: by a value of `monitor` of its own step, or according to the
    /// checkpoint hook. Returns whether it is.
    fn update_best(&mut self, cx: &CheckpointSaved<'_>) -> bool {
        if std::mem::take(&mut self.is_loaded) && cx.redelivered {
            self.memory.best = self.before_load.take();
        }
        let score = match (self.checked.mode, &self.options.monitor) {
            (Some(mode), Some(monitor)) => {
                let fresh = cx.fresh_metric(monitor);
                self.unjudged |= fresh.is_none();
                fresh.filter(|score| self.is_better(*score, mode))
            }
            _ => cx.best_score,
        };
        if let Some(score) = score {
            self.memory.best = Some(Best { score, path: cx.path.display().to_string() });
        }
        score.is_some()
    }

    fn send(&mut self, cx: &RunContext<'_>, on: NotifyOn, values: Values) -> HookResult {
        let Some((address, outside)) = self.endpoint.address.as_ref().zip(outside(cx)) else { return Ok(()) };
        if !self.memory.recent.allow(&self.checked.limit, cx.elapsed(), on.ends_training()) {
            return Ok(());
        }
        let best = self.memory.best.clone();
        let message = Message {
            on,
            values: Values {
                run: cx.run.id.clone(),
                best: best.as_ref().map(|best| best.score),
                best_path: best.map(|best| best.path),
                ..values
            },
            suppressed: self.memory.recent.take_suppressed(),
        };
        let work = || Sender {
            client: Client::new(outside),
            address: address.clone(),
            label: self.endpoint.label(Some(&self.options.url_env)),
            templates: self.checked.templates.clone(),
            timeout: self.options.timeout.0,
            retries: self.options.retries,
        };
        self.worker.get_or_start("notify", self.checked.queue, work)?.send(message)
    }
}

/// Why training ended, and which hook stopped it.
fn reason(outcome: &Outcome) -> (String, Option<String>) {
    match outcome {
        Outcome::Stopped { by, reason } => (reason.clone(), Some(by.clone())),
        Outcome::Interrupted { signal } => (signal.clone(), None),
        Outcome::Failed { error } => (error.clone(), None),
        _ => ("all epochs or steps are done".to_owned(), None),
    }
}

#[hook(name = "notify", tier = "built_in", state = "memory", version = 3)]
impl Observer for Notify {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let best = self.needs_best();
        let spec = spec
            .wants_if(Event::TrainEnd, self.wants(NotifyOn::TrainingEnd) || self.wants(NotifyOn::EarlyStop))
            .wants_if(Event::CheckpointSaved, best || self.wants(NotifyOn::Checkpoint))
            .wants_if(Event::CheckpointLoaded, best)
            .wants_if(Event::Exception, self.wants(NotifyOn::Exception))
            .wants_if(Event::HookDisabled, self.wants(NotifyOn::HookDisabled));
        let spec = spec.effect(secret::effect(&self.options.url_env));
        let spec = self.options.monitor.iter().fold(spec, HookSpec::monitors);
        if self.wants(NotifyOn::BestModel) && self.options.monitor.is_none() {
            return spec.requires(checkpoint::PROVIDED, "set `monitor` here, or in a checkpoint hook");
        }
        if self.wants(NotifyOn::BestModel) || self.wants(NotifyOn::Checkpoint) {
            let fix = "add a hook `checkpoint`, or remove `best_model` and `checkpoint` from `notify_on`";
            return spec.requires(SAVES_CHECKPOINTS, fix);
        }
        spec
    }

    fn setup(&mut self, cx: &Setup) -> HookResult {
        self.worker.begin_call();
        self.endpoint.find(cx, Some(&self.options.url_env))
    }

    fn on_checkpoint_loaded(&mut self, cx: &CheckpointLoaded) -> HookResult {
        // The last checkpoints of a finished run are not announced again.
        let loaded = if let (Some(mode), Some(monitor)) = (self.checked.mode, &self.options.monitor) {
            let is_fresh = cx.metrics().step_of(monitor) == Some(cx.step);
            let score = cx.metrics().get(monitor);
            let score = score.filter(|score| is_fresh && self.is_better(*score, mode));
            score.map(|score| (score, cx.path.to_owned()))
        } else {
            let best = cx.board().get(BEST);
            let best = best.map(|BestCheckpoint { score, path, .. }| (score, cx.run.checkpoints.join(path)));
            best.filter(|(_, path)| path.is_dir())
        };
        let loaded = loaded.map(|(score, path)| Best { score, path: path.display().to_string() });
        self.is_loaded = loaded.is_some();
        if let Some(best) = loaded {
            self.before_load = self.memory.best.replace(best);
        }
        Ok(())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        let on = match cx.outcome {
            Outcome::Stopped { .. } if self.wants(NotifyOn::EarlyStop) => NotifyOn::EarlyStop,
            _ if self.wants(NotifyOn::TrainingEnd) => NotifyOn::TrainingEnd,
            _ => return Ok(()),
        };
        let (reason, hook) = reason(cx.outcome);
        let (outcome, reason) = (Some(text::ended(cx.outcome)), Some(reason));
        self.send(cx, on, Values { outcome, reason, hook, ..self.current_values(cx, on) })
    }

    fn on_exception(&mut self, cx: &Exception) -> HookResult {
        let error = Some(cx.failure.to_string());
        let values = self.current_values(cx, NotifyOn::Exception);
        self.send(cx, NotifyOn::Exception, Values { error, ..values })
    }

    fn on_checkpoint_saved(&mut self, cx: &CheckpointSaved) -> HookResult {
        let is_best = self.update_best(cx);
        let on = if is_best && self.wants(NotifyOn::BestModel) {
            NotifyOn::BestModel
        } else if self.wants(NotifyOn::Checkpoint) {
            NotifyOn::Checkpoint
        } else {
            return Ok(());
        };
        self.send(cx, on, self.saved_values(cx, on))
    }

    fn on_hook_disabled(&mut self, cx: &HookDisabled) -> HookResult {
        let (hook, reason) = (Some(cx.hook.to_owned()), Some(cx.reason.to_owned()));
        let values = self.current_values(cx, NotifyOn::HookDisabled);
        self.send(cx, NotifyOn::HookDisabled, Values { reason, hook, ..values })
    }

    fn teardown(&mut self, cx: &Teardown) -> HookResult {
        if let (true, None, Some(monitor)) = (self.unjudged, &self.memory.best, &self.options.monitor) {
            cx.say(format!(
                "no checkpoint was saved with a value of `{monitor}` of its own step, so none is the best; set \
                 `monitor` in the checkpoint hook, which then waits for the value"
            ));
        }
        let suppressed = self.memory.recent.take_suppressed();
        if suppressed > 0 {
            let messages = text::plural(suppressed, "message");
            cx.say(format!("{messages} not sent because of `min_interval` or `max_per_hour`"));
        }
        Ok(())
    }

    fn finish(&mut self) -> HookResult {
        self.worker.finish()
    }

    fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.worker.delivery_stats()
    }
}
