//! Sends messages about a run to a chat.

mod limit;
mod options;
mod sending;
mod template;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    CheckpointLoaded, CheckpointSaved, Event, Exception, FromOptions, HookDisabled, HookResult, HookSpec,
    Moment, Observer, OptionError, Outcome, SAVES_CHECKPOINTS, Sent, Setup, State, Teardown, TrainEnd,
    epoch_label, hook,
};

use limit::Limit;
pub use options::{NotifyOn, NotifyOptions, NotifyTemplates};
use options::{Settled, Templates};
use sending::{Message, Sending};
use template::Facts;

use crate::checkpointing::checkpoint::{self, BEST, BestCheckpoint};
use crate::http::Client;
use crate::secret::{self, Secret};
use crate::support::mode::Mode;
use crate::text;
use crate::worker::Queue;
use crate::worker::outbox::{self, Outbox};

/// Sends messages about a run to a chat: a webhook that takes `{"text": "…"}`, as those of Slack, Mattermost, Rocket.Chat
/// and Discord (with `/slack` behind its address) do.
///
/// - **Fires** at `on_train_end` (`training_end`, `early_stop`), `on_exception`, `on_checkpoint_saved` (`best_model`,
///   `checkpoint`) and `on_hook_disabled`, where `notify_on` has it. Nothing is sent in a dry run or a rehearsal.
/// - **Reads** the metrics that the template names; of a checkpoint those of its save. `best_model` is about the checkpoint that is
///   the best by `monitor`, or by the checkpoint hook's; where neither monitors anything, or no hook saves checkpoints, the run is
///   refused. After a kill a message about a checkpoint may come twice; the second one is marked. **Writes** nothing. The address of the webhook is in the
///   environment variable `url_env` and appears nowhere else: not in the configuration, the run directory, messages or
///   errors. A redirect is not followed.
/// - **Cost**: copying a few words; sending, and trying again, is done by a thread of its own. The end of the run waits
///   for it, for `flush_timeout` at most.
/// - **When it fails**, because a message was not taken (after `retries` more attempts), its policy decides: it is
///   reported, and the hook disabled after three failures. A variable that is not set, or holds no address, is a failure
///   at `setup`, and nothing is sent then.
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
    templates: Templates,
    queue: Queue,
    /// Which direction of the own `monitor` is better.
    mode: Option<Mode>,
    /// The best checkpoint that has been announced.
    best: Option<Best>,
    /// The best by the checkpoint that training resumes from, until checkpoints are announced again.
    loaded: Option<Best>,
    /// A checkpoint had no value of `monitor` of its own step.
    unjudged: bool,
    limit: Limit,
    /// The address that the program gave.
    given: Option<Secret>,
    /// The one in force.
    address: Option<Secret>,
    outbox: Outbox<Message>,
}

/// What a checkpoint keeps.
#[derive(Serialize, Deserialize)]
struct Memory {
    best: Option<Best>,
    limit: limit::Memory,
}

/// A checkpoint and its score.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Best {
    #[serde(with = "tenterhook_core::number")]
    score: f64,
    path: String,
}

const VERSION: u32 = 3;

impl FromOptions for Notify {
    type Options = NotifyOptions;
    const PURPOSE: &str = "sends messages about the run to a chat: its end, failures, the best model";
    const EXAMPLE: &str = r#"
url_env = "SLACK_WEBHOOK_URL"
notify_on = ["training_end", "exception"]
templates = { training_end = "{run}: {outcome} after {step} steps, val/loss {val/loss:.4}" }
"#;

    fn from_options(options: NotifyOptions) -> Result<Notify, OptionError> {
        let Settled { mode, templates, limit, queue } = options.check()?;
        Ok(Notify {
            options,
            templates,
            queue,
            mode,
            best: None,
            loaded: None,
            unjudged: false,
            limit,
            given: None,
            address: None,
            outbox: Outbox::default(),
        })
    }
}

impl Notify {
    /// With the address itself instead of the variable, for programs that keep their secrets elsewhere.
    #[must_use]
    pub fn to(mut self, address: Secret) -> Notify {
        self.given = Some(address);
        self
    }

    fn wants(&self, on: NotifyOn) -> bool {
        self.options.notify_on.contains(&on)
    }

    /// The first of these that there are to be messages about.
    fn first_of(&self, candidates: &[(bool, NotifyOn)]) -> Option<NotifyOn> {
        let mut wanted = candidates.iter().filter(|(is_so, on)| *is_so && self.wants(*on));
        wanted.next().map(|(_, on)| *on)
    }

    /// What is true of the moment.
    fn now(&self, cx: &Moment<'_>, on: NotifyOn) -> Facts {
        let names = self.templates.of(on).metrics().iter();
        Facts {
            step: cx.step,
            epoch: cx.current_epoch(),
            epoch_label: cx.epoch_label(),
            metrics: names.map(|name| cx.metrics().get(name)).collect(),
            ..Facts::default()
        }
    }

    /// What was true of the checkpoint at its save.
    fn at_save(&self, cx: &CheckpointSaved<'_>, on: NotifyOn) -> Facts {
        let names = self.templates.of(on).metrics().iter();
        Facts {
            step: cx.saved_step,
            epoch: cx.saved_epoch,
            epoch_label: epoch_label(cx.saved_epoch, cx.run.total_epochs),
            metrics: names.map(|name| cx.saved_metrics.get(name).copied()).collect(),
            path: Some(cx.path.display().to_string()),
            again: cx.again,
            ..Facts::default()
        }
    }

    /// The best checkpoint that has been announced.
    fn best(&self) -> Option<&Best> {
        self.loaded.as_ref().or(self.best.as_ref())
    }

    /// Whether there are messages that depend on the best checkpoint.
    fn follows_best(&self) -> bool {
        let names_best = |on: &NotifyOn| self.wants(*on) && self.templates.of(*on).names_best();
        self.wants(NotifyOn::BestModel) || NotifyOn::ALL.iter().any(names_best)
    }

    fn is_better(&self, score: f64, mode: Mode) -> bool {
        !score.is_nan() && self.best.as_ref().is_none_or(|best| mode.is_better(score, best.score))
    }

    /// Notes an announced checkpoint where it is the best so far: by a value of its own step of `monitor`, or by the
    /// checkpoint hook.
    fn note_best(&mut self, cx: &CheckpointSaved<'_>) -> bool {
        let loaded = self.loaded.take();
        if !cx.again {
            self.best = loaded.or(self.best.take());
        }
        let score = match (self.mode, &self.options.monitor) {
            (Some(mode), Some(monitor)) => {
                let fresh = cx.fresh_metric(monitor);
                self.unjudged |= fresh.is_none();
                fresh.filter(|score| self.is_better(*score, mode))
            }
            _ => cx.best_score,
        };
        if let Some(score) = score {
            self.best = Some(Best { score, path: cx.path.display().to_string() });
        }
        score.is_some()
    }

    fn called(&self) -> String {
        match self.given {
            Some(_) => "the address that it was given".to_owned(),
            None => format!("the address in `{}`", self.options.url_env),
        }
    }

    fn send(&mut self, cx: &Moment<'_>, on: NotifyOn, facts: Facts) -> HookResult {
        let Some((address, outside)) = self.address.as_ref().zip(outbox::outside(cx)) else { return Ok(()) };
        if !self.limit.lets_through(cx.elapsed(), on.is_an_end()) {
            return Ok(());
        }
        let best = self.best().cloned();
        let message = Message {
            on,
            facts: Facts {
                run: cx.run.id.clone(),
                best: best.as_ref().map(|best| best.score),
                best_path: best.map(|best| best.path),
                ..facts
            },
            held_back: self.limit.take_held_back(),
        };
        let called = self.called();
        let work = || Sending {
            client: Client::new(outside),
            address: address.clone(),
            called,
            templates: self.templates.clone(),
            timeout: self.options.timeout.0,
            retries: self.options.retries,
        };
        self.outbox.send(message, ("notify", self.queue), work)
    }
}

/// Why it ended, and by whom.
fn ending(outcome: &Outcome) -> (String, Option<String>) {
    match outcome {
        Outcome::Stopped { by, reason } => (reason.clone(), Some(by.clone())),
        Outcome::Interrupted { signal } => (signal.clone(), None),
        Outcome::Failed { error } => (error.clone(), None),
        _ => ("it came to its end".to_owned(), None),
    }
}

#[hook(name = "notify", tier = "built_in")]
impl Observer for Notify {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let best = self.follows_best();
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
        self.outbox.begin();
        if cx.run.outside().is_none() {
            return Ok(());
        }
        self.address = None;
        self.address = Some(match &self.given {
            Some(given) if secret::is_address(given) => given.clone(),
            Some(_) => return Err("the address that it was given is none; it begins with https://".into()),
            None => secret::address(&self.options.url_env)?,
        });
        Ok(())
    }

    fn on_checkpoint_loaded(&mut self, cx: &CheckpointLoaded) -> HookResult {
        // Where the run had ended, its last checkpoints are not announced again.
        let loaded = if let (Some(mode), Some(monitor)) = (self.mode, &self.options.monitor) {
            let is_fresh = cx.metrics().step_of(monitor) == Some(cx.step);
            let score = cx.metrics().get(monitor);
            let score = score.filter(|score| is_fresh && self.is_better(*score, mode));
            score.map(|score| (score, cx.path.to_owned()))
        } else {
            let best = cx.board().get(BEST);
            let best = best.map(|BestCheckpoint { score, path, .. }| (score, cx.run.checkpoints.join(path)));
            best.filter(|(_, path)| path.is_dir())
        };
        self.loaded = loaded.map(|(score, path)| Best { score, path: path.display().to_string() });
        Ok(())
    }

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        let stopped = matches!(cx.outcome, Outcome::Stopped { .. });
        let told = self.first_of(&[(stopped, NotifyOn::EarlyStop), (true, NotifyOn::TrainingEnd)]);
        let Some(on) = told else { return Ok(()) };
        let (reason, hook) = ending(cx.outcome);
        let (outcome, reason) = (Some(text::ended(cx.outcome)), Some(reason));
        self.send(cx, on, Facts { outcome, reason, hook, ..self.now(cx, on) })
    }

    fn on_exception(&mut self, cx: &Exception) -> HookResult {
        let error = Some(cx.failure.to_string());
        self.send(cx, NotifyOn::Exception, Facts { error, ..self.now(cx, NotifyOn::Exception) })
    }

    fn on_checkpoint_saved(&mut self, cx: &CheckpointSaved) -> HookResult {
        let best = self.note_best(cx);
        let Some(on) = self.first_of(&[(best, NotifyOn::BestModel), (true, NotifyOn::Checkpoint)]) else {
            return Ok(());
        };
        self.send(cx, on, self.at_save(cx, on))
    }

    fn on_hook_disabled(&mut self, cx: &HookDisabled) -> HookResult {
        let (hook, reason) = (Some(cx.hook.to_owned()), Some(cx.reason.to_owned()));
        self.send(cx, NotifyOn::HookDisabled, Facts { reason, hook, ..self.now(cx, NotifyOn::HookDisabled) })
    }

    fn teardown(&mut self, cx: &Teardown) -> HookResult {
        if let (true, None, Some(monitor)) = (self.unjudged, self.best(), &self.options.monitor) {
            cx.say(format!(
                "no checkpoint was saved with a value of `{monitor}` of its own step, so none is the best; set \
                 `monitor` in the checkpoint hook, which then waits for the value"
            ));
        }
        let held_back = self.limit.take_held_back();
        if held_back > 0 {
            let messages = text::many(held_back, "message");
            cx.say(format!("{messages} held back and never sent: too many in too short a time"));
        }
        Ok(())
    }

    fn finish(&mut self) -> HookResult {
        self.outbox.finish()
    }

    fn sent(&self) -> Option<Sent> {
        self.outbox.sent()
    }

    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(VERSION, &Memory { best: self.best().cloned(), limit: self.limit.memory.clone() })?)
    }

    fn check_state_dict(&self, state: &State) -> HookResult {
        Ok(state.read::<Memory>(VERSION).map(drop)?)
    }

    fn load_state_dict(&mut self, state: &State) -> HookResult {
        let memory: Memory = state.read(VERSION)?;
        (self.best, self.loaded, self.limit.memory) = (memory.best, None, memory.limit);
        Ok(())
    }
}
