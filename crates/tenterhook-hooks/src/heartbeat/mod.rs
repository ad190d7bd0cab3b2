//! Says every now and then that the run is alive.

mod beat;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::{
    FromOptions, HookResult, HookSpec, Moment, Observer, OptionError, Policy, Sent, Setup, Stage, Teardown,
    TimeSpan, TrainBatchEnd, TrainStart, hook,
};

use beat::{Beating, Pulse, Targets, Word};

use crate::http::Client;
use crate::own_file;
use crate::secret::{self, Secret};
use crate::support::checks;
use crate::text;
use crate::worker::outbox::{self, Outbox};
use crate::worker::{Queue, WhenFull};

/// The options of [`Heartbeat`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HeartbeatOptions {
    /// How often, such as `30 s` or `5 min`.
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub interval: TimeSpan,
    /// The environment variable that holds the address to send it to. The address itself is a secret and is written down
    /// nowhere. Unset: only the `file` is written.
    #[schemars(example = &"HEALTHCHECK_URL", extend("pattern" = "^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub url_env: Option<String>,
    /// The file to write it to, instead or as well. A relative one is below the run directory; where there is none, beside
    /// the checkpoints.
    #[schemars(example = &"heartbeat.json", extend("minLength" = 1))]
    pub file: Option<PathBuf>,
    /// What is put behind the path of the address when the run has failed. Unset: nothing.
    #[schemars(example = &"/fail")]
    pub fail_suffix: Option<String>,
    /// How long one of them may take.
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub timeout: TimeSpan,
    /// How long the end of the run waits until the last one is sent.
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub flush_timeout: TimeSpan,
}

impl Default for HeartbeatOptions {
    fn default() -> HeartbeatOptions {
        HeartbeatOptions {
            interval: TimeSpan::from_secs(30),
            url_env: None,
            file: None,
            fail_suffix: None,
            timeout: TimeSpan::from_secs(10),
            flush_timeout: TimeSpan::from_secs(10),
        }
    }
}

/// Says at the start of training, every `interval` and at its end how the run is doing, by a clock of its own: also
/// while a step or a validation takes long. It is meant for those who notice when it falls silent, such as
/// healthchecks.io, Uptime Kuma or a script that looks at a file.
///
/// - **Fires** at `on_train_start` and at the `teardown` of training; at `on_train_batch_end` it notes how far the run is.
///   Nothing is sent in a dry run or a rehearsal, nor in evaluations.
/// - **Writes** `{"run": …, "status": …, "step": …, "epoch": …, "time": …}`, with the seconds since 1970, by POST to the
///   address in the environment variable `url_env`, to `file`, or both. The `status` is `running`, and at the end
///   `completed`, `stopped`, `interrupted` or `failed`. The address appears nowhere else; a redirect is not followed.
/// - **Cost**: two numbers per batch; the rest is done by a thread of its own. The end of the run waits for the last
///   one, for `flush_timeout` at most.
/// - **When it fails**, it is reported, once until it works again, and goes on: a run whose heart stops beating would
///   be taken for dead. The last one is tried again. A variable that is not set, or holds no address, is a failure at
///   `setup`.
///
/// ```toml
/// [[hooks]]
/// use = "heartbeat"
/// interval = "30 s"
/// timeout = "10 s"
/// flush_timeout = "10 s"
/// # url_env: unset
/// # file: unset
/// # fail_suffix: unset
/// ```
#[derive(Debug)]
pub struct Heartbeat {
    options: HeartbeatOptions,
    queue: Queue,
    /// The address that the program gave.
    given: Option<Secret>,
    /// The one in force.
    address: Option<Secret>,
    pulse: Arc<Pulse>,
    outbox: Outbox<Word>,
}

impl FromOptions for Heartbeat {
    type Options = HeartbeatOptions;
    const PURPOSE: &str =
        "says every now and then that the run is alive, to an address or in a file, and how it ends";
    const EXAMPLE: &str = r#"
interval = "1 min"
file = "heartbeat.json"
"#;

    fn from_options(options: HeartbeatOptions) -> Result<Heartbeat, OptionError> {
        let HeartbeatOptions { url_env, file, fail_suffix, .. } = &options;
        if url_env.is_none() && file.is_none() {
            let error = OptionError::new("url_env", "a heartbeat needs somebody to hear it").and("file");
            let fix = "set `url_env`, such as \"HEALTHCHECK_URL\", or `file`, such as \"heartbeat.json\"";
            return Err(error.fix(fix));
        }
        if let Some(variable) = url_env {
            secret::check_variable("url_env", variable, "HEALTHCHECK_URL")?;
        }
        if let Some(file) = file {
            own_file::check("file", file, "heartbeat.json")?;
        }
        if fail_suffix.is_some() && url_env.is_none() {
            return Err(OptionError::new("fail_suffix", "`fail_suffix` has no effect without `url_env`")
                .and("url_env")
                .fix("take it away"));
        }
        checks::above_zero("interval", options.interval)?;
        checks::above_zero("timeout", options.timeout)?;
        let queue = outbox::queue(2, WhenFull::Block, options.flush_timeout)?;
        Ok(Heartbeat {
            options,
            queue,
            given: None,
            address: None,
            pulse: Arc::default(),
            outbox: Outbox::default(),
        })
    }
}

impl Heartbeat {
    /// With the address itself instead of the variable, for programs that keep their secrets elsewhere.
    #[must_use]
    pub fn to(mut self, address: Secret) -> Heartbeat {
        self.given = Some(address);
        self
    }

    fn find_address(&self) -> HookResult<Option<Secret>> {
        match (&self.given, &self.options.url_env) {
            (Some(given), _) if secret::is_address(given) => Ok(Some(given.clone())),
            (Some(_), _) => Err("the address that it was given is none; it begins with https://".into()),
            (None, Some(variable)) => secret::address(variable).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn note(&self, cx: &Moment<'_>) {
        self.pulse.step.store(cx.step, Ordering::Relaxed);
        self.pulse.epoch.store(cx.epoch, Ordering::Relaxed);
    }

    fn send(&mut self, cx: &Moment<'_>, said: Word) -> HookResult {
        self.note(cx);
        let file = self.options.file.as_deref().map(|file| own_file::place(cx.run, file));
        let file = file.transpose()?.flatten();
        let outside = outbox::outside(cx).filter(|_| cx.stage == Stage::Fit);
        let Some(outside) = outside.filter(|_| self.address.is_some() || file.is_some()) else {
            return Ok(());
        };
        let work = || Beating {
            client: Client::new(outside),
            run: cx.run.id.clone(),
            targets: Targets {
                address: self.address.clone(),
                fail_suffix: self.options.fail_suffix.clone(),
                called: match (&self.given, &self.options.url_env) {
                    (None, Some(variable)) => format!("the address in `{variable}`"),
                    _ => "the address that it was given".to_owned(),
                },
                file,
            },
            interval: self.options.interval.0,
            timeout: self.options.timeout.0,
            pulse: Arc::clone(&self.pulse),
            failing: false,
        };
        self.outbox.send(said, ("heartbeat", self.queue), work)
    }
}

#[hook(name = "heartbeat", tier = "built_in")]
impl Observer for Heartbeat {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.policy(Policy::WARN);
        let HeartbeatOptions { file, url_env, .. } = &self.options;
        let spec = url_env.iter().fold(spec, |spec, url| spec.effect(secret::effect(url)));
        file.iter().fold(spec, |spec, file| own_file::declared(spec, "file", file))
    }

    fn setup(&mut self, cx: &Setup) -> HookResult {
        self.outbox.begin();
        if cx.run.outside().is_none() {
            return Ok(());
        }
        self.address = None;
        self.address = self.find_address()?;
        Ok(())
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        self.send(cx, Word::Begun)
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        self.note(cx);
        if self.pulse.troubled.load(Ordering::Acquire) {
            self.pulse.troubled.store(false, Ordering::Relaxed);
            return self.outbox.check();
        }
        Ok(())
    }

    fn teardown(&mut self, cx: &Teardown) -> HookResult {
        self.send(cx, Word::Ended(text::ended(cx.outcome)))
    }

    fn finish(&mut self) -> HookResult {
        self.outbox.finish()
    }

    fn sent(&self) -> Option<Sent> {
        self.outbox.sent()
    }
}
