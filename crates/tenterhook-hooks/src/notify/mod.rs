//! Sends messages about a run to a chat.

mod limit;
mod options;
mod sending;
mod template;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tenterhook_core::{
    CheckpointSaved, Event, Events, Exception, FromOptions, HookDisabled, HookResult, Moment, Observer,
    OptionError, Outcome, Sent, Setup, State, Teardown, TrainEnd, hook,
};

use limit::Limit;
pub use options::{NotifyOn, NotifyOptions, NotifyTemplates};
use options::{Settled, Templates};
use sending::{Message, Sending};
use template::Facts;

use crate::http::Client;
use crate::outbox::{self, Outbox};
use crate::secret::{self, Secret};
use crate::text;
use crate::worker::Queue;

/// Sends messages about a run to a chat: a webhook that takes `{"text": "…"}`, as those of Slack, Mattermost, Rocket.Chat
/// and Discord (with `/slack` behind its address) do.
///
/// - **Fires** at `on_train_end` (`training_end`, `early_stop`), `on_exception`, `on_checkpoint_saved` (`best_model`,
///   `checkpoint`) and `on_hook_disabled`, where `notify_on` has it. Nothing is sent in a dry run or a rehearsal.
/// - **Reads** the metrics that the template names. **Writes** nothing. The address of the webhook is in the
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
    timeout: Duration,
    queue: Queue,
    limit: Limit,
    /// The address that the program gave.
    given: Option<Secret>,
    /// The one in force.
    address: Option<Secret>,
    outbox: Outbox<Message>,
}

const VERSION: u32 = 1;

impl FromOptions for Notify {
    type Options = NotifyOptions;
    const PURPOSE: &str = "sends messages about the run to a chat: its end, failures, the best model";
    const EXAMPLE: &str = r#"
url_env = "SLACK_WEBHOOK_URL"
notify_on = ["training_end", "exception", "best_model"]
templates = { training_end = "{run}: {outcome} after {step} steps, val/loss {val/loss:.4}" }
"#;

    fn from_options(options: NotifyOptions) -> Result<Notify, OptionError> {
        let Settled { templates, timeout, limit, queue } = options.check()?;
        let (given, address, outbox) = (None, None, Outbox::default());
        Ok(Notify { options, templates, timeout, queue, limit, given, address, outbox })
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

    fn called(&self) -> String {
        match self.given {
            Some(_) => "the address that it was given".to_owned(),
            None => format!("the address in `{}`", self.options.url_env),
        }
    }

    fn send(&mut self, cx: &Moment<'_>, on: NotifyOn, facts: Facts) -> HookResult {
        let Some(address) = &self.address else { return Ok(()) };
        if outbox::is_closed(cx) || !self.limit.lets_through(cx.elapsed(), on.is_an_end()) {
            return Ok(());
        }
        let names = self.templates.of(on).metrics();
        let metrics = names.iter().map(|name| cx.metrics().get(name)).collect();
        let run = cx.run.id.clone();
        let message = Message {
            on,
            facts: Facts { run, epoch: cx.epoch, metrics, ..facts },
            held_back: self.limit.take_held_back(),
        };
        let called = self.called();
        let work = || Sending {
            client: Client::new(),
            address: address.clone(),
            called,
            templates: self.templates.clone(),
            timeout: self.timeout,
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
    fn idle(&self) -> Events {
        let ends = self.wants(NotifyOn::TrainingEnd) || self.wants(NotifyOn::EarlyStop);
        let saves = self.wants(NotifyOn::BestModel) || self.wants(NotifyOn::Checkpoint);
        let wanted = [
            (Event::TrainEnd, ends),
            (Event::CheckpointSaved, saves),
            (Event::Exception, self.wants(NotifyOn::Exception)),
            (Event::HookDisabled, self.wants(NotifyOn::HookDisabled)),
        ];
        let idle = wanted.iter().filter(|(_, wanted)| !wanted);
        idle.fold(Events::NONE, |idle, (event, _)| idle.with(*event))
    }

    fn setup(&mut self, cx: &Setup) -> HookResult {
        self.outbox.begin();
        if cx.run.rehearsal {
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

    fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult {
        let stopped = matches!(cx.outcome, Outcome::Stopped { .. });
        let told = self.first_of(&[(stopped, NotifyOn::EarlyStop), (true, NotifyOn::TrainingEnd)]);
        let Some(on) = told else { return Ok(()) };
        let (reason, hook) = ending(cx.outcome);
        let (outcome, reason) = (Some(text::ended(cx.outcome)), Some(reason));
        self.send(cx, on, Facts { step: cx.step, outcome, reason, hook, ..Facts::default() })
    }

    fn on_exception(&mut self, cx: &Exception) -> HookResult {
        let error = Some(cx.failure.to_string());
        self.send(cx, NotifyOn::Exception, Facts { step: cx.step, error, ..Facts::default() })
    }

    fn on_checkpoint_saved(&mut self, cx: &CheckpointSaved) -> HookResult {
        let Some(on) = self.first_of(&[(cx.best, NotifyOn::BestModel), (true, NotifyOn::Checkpoint)]) else {
            return Ok(());
        };
        let path = Some(cx.path.display().to_string());
        self.send(cx, on, Facts { step: cx.saved_step, path, ..Facts::default() })
    }

    fn on_hook_disabled(&mut self, cx: &HookDisabled) -> HookResult {
        let (hook, reason) = (Some(cx.hook.to_owned()), Some(cx.reason.to_owned()));
        self.send(cx, NotifyOn::HookDisabled, Facts { step: cx.step, hook, reason, ..Facts::default() })
    }

    fn teardown(&mut self, cx: &Teardown) {
        let held_back = self.limit.take_held_back();
        if held_back > 0 {
            let messages = text::many(held_back, "message");
            cx.say(format!("{messages} held back and never sent: too many in too short a time"));
        }
    }

    fn finish(&mut self) -> HookResult {
        self.outbox.finish()
    }

    fn sent(&self) -> Option<Sent> {
        self.outbox.sent()
    }

    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(VERSION, &self.limit.memory)?)
    }

    fn load_state_dict(&mut self, state: &State) -> HookResult {
        self.limit.memory = state.read(VERSION)?;
        Ok(())
    }
}
