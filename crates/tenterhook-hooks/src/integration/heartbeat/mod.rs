//! Reports at regular intervals that the run is alive.

mod sender;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenterhook_core::{
    DeliveryStats, FromOptions, HookResult, HookSpec, Observer, OptionError, Policy, RunContext, Setup,
    Stage, Teardown, TimeSpan, TrainBatchEnd, TrainStart, hook,
};

use sender::{Sender, Shared, Signal, Targets};

use crate::support::checks;
use crate::support::http::Client;
use crate::support::options;
use crate::support::secret::{self, Endpoint, Secret};
use crate::support::{output_path, text};
use crate::worker::{LazyWorker, QueueOptions, WhenFull, outside};

options! {
    /// The options of [`Heartbeat`].
    pub struct HeartbeatOptions {
        /// Time between two heartbeats, such as `30 s` or `5 min`.
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub interval: TimeSpan = TimeSpan::from_secs(30),
        /// The environment variable that holds the address for heartbeats. The address is a secret and is stored nowhere. Unset:
        /// only `file` is written.
        #[schemars(example = &"HEALTHCHECK_URL", extend("pattern" = "^[A-Za-z_][A-Za-z0-9_]*$"))]
        pub url_env: Option<String> = None,
        /// The file for the latest heartbeat. A relative path is inside the run directory; without a run
        /// directory, it is beside the checkpoints.
        #[schemars(example = &"heartbeat.json", extend("minLength" = 1))]
        pub file: Option<PathBuf> = None,
        /// Suffix appended to the path of the address if the run failed. Unset: none.
        #[schemars(example = &"/fail")]
        pub fail_suffix: Option<String> = None,
        /// Timeout of one request.
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub timeout: TimeSpan = TimeSpan::from_secs(10),
        /// How long the end of the run waits for the last heartbeat.
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub flush_timeout: TimeSpan = TimeSpan::from_secs(10),
    }
}

/// Reports the status of the run at the start of training, every `interval` and at the end, also during long steps and
/// validations. Monitors such as healthchecks.io, Uptime Kuma or a script that watches a file notice
/// when heartbeats stop.
///
/// - **Fires** at `on_train_start` and at the `teardown` of training; at `on_train_batch_end` it records step and epoch.
///   Nothing is sent in a dry run, a rehearsal or an evaluation.
/// - **Writes** `{"run": …, "status": …, "step": …, "epoch": …, "time": …}`, with `time` in seconds since 1970, by POST to
///   the address in the environment variable `url_env`, to `file`, or both. The `status` is `running`, and at the end
///   `completed`, `stopped`, `interrupted` or `failed`. The address appears nowhere else. Redirects are not followed.
/// - **Cost**: two stores per batch; a worker thread sends. The end of the run waits for the last heartbeat, up to
///   `flush_timeout`.
/// - **When it fails**: the first of consecutive failures is reported, and the hook continues. The last heartbeat
///   is retried. A variable that is unset or holds no address is a failure at `setup`.
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
    queue: QueueOptions,
    endpoint: Endpoint,
    shared: Arc<Shared>,
    worker: LazyWorker<Signal>,
}

impl FromOptions for Heartbeat {
    type Options = HeartbeatOptions;
    const PURPOSE: &str =
        "reports at regular intervals that the run is alive, to an address or a file, and how it ends";
    const EXAMPLE: &str = r#"
interval = "1 min"
file = "heartbeat.json"
"#;

    fn from_options(options: HeartbeatOptions) -> Result<Heartbeat, OptionError> {
        let HeartbeatOptions { url_env, file, fail_suffix, .. } = &options;
        if url_env.is_none() && file.is_none() {
            let error = OptionError::new("url_env", "a heartbeat needs an address or a file").and("file");
            let fix = "set `url_env`, such as \"HEALTHCHECK_URL\", or `file`, such as \"heartbeat.json\"";
            return Err(error.fix(fix));
        }
        if let Some(variable) = url_env {
            secret::check_variable("url_env", variable, "HEALTHCHECK_URL")?;
        }
        if let Some(file) = file {
            output_path::check("file", file, "heartbeat.json")?;
        }
        if fail_suffix.is_some() && url_env.is_none() {
            return Err(OptionError::new("fail_suffix", "`fail_suffix` has no effect without `url_env`")
                .and("url_env")
                .fix("remove it"));
        }
        checks::above_zero("interval", options.interval)?;
        checks::above_zero("timeout", options.timeout)?;
        let queue = QueueOptions::checked(2, WhenFull::Block, options.flush_timeout)?;
        let (endpoint, shared, worker) = Default::default();
        Ok(Heartbeat { options, queue, endpoint, shared, worker })
    }
}

impl Heartbeat {
    /// Sends to this address instead of the one in the variable, for programs that keep their secrets elsewhere.
    #[must_use]
    pub fn with_address(mut self, address: Secret) -> Heartbeat {
        self.endpoint.given = Some(address);
        self
    }

    fn record_progress(&self, cx: &RunContext<'_>) {
        self.shared.step.store(cx.step, Ordering::Relaxed);
        self.shared.epoch.store(cx.epoch, Ordering::Relaxed);
    }

    fn send(&mut self, cx: &RunContext<'_>, signal: Signal) -> HookResult {
        self.record_progress(cx);
        let file = self.options.file.as_deref().map(|file| output_path::resolve(cx.run, file));
        let file = file.transpose()?.flatten();
        let outside = outside(cx).filter(|_| cx.stage == Stage::Fit);
        let Some(outside) = outside.filter(|_| self.endpoint.address.is_some() || file.is_some()) else {
            return Ok(());
        };
        let work = || Sender {
            client: Client::new(outside),
            run: cx.run.id.clone(),
            targets: Targets {
                address: self.endpoint.address.clone(),
                fail_suffix: self.options.fail_suffix.clone(),
                label: self.endpoint.label(self.options.url_env.as_deref()),
                file,
            },
            interval: self.options.interval.0,
            timeout: self.options.timeout.0,
            shared: Arc::clone(&self.shared),
            failing: false,
        };
        self.worker.get_or_start("heartbeat", self.queue, work)?.send(signal)
    }
}

#[hook(name = "heartbeat", tier = "built_in")]
impl Observer for Heartbeat {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let spec = spec.policy(Policy::WARN);
        let HeartbeatOptions { file, url_env, .. } = &self.options;
        let spec = url_env.iter().fold(spec, |spec, url| spec.effect(secret::effect(url)));
        file.iter().fold(spec, |spec, file| output_path::declare(spec, "file", file))
    }

    fn setup(&mut self, cx: &Setup) -> HookResult {
        self.worker.begin_call();
        // `teardown` of an earlier call may have taken the error.
        self.shared.has_failed.store(false, Ordering::Relaxed);
        self.endpoint.find(cx, self.options.url_env.as_deref())
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        self.send(cx, Signal::Started)
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        self.record_progress(cx);
        self.worker.check_flagged(&self.shared.has_failed)
    }

    fn teardown(&mut self, cx: &Teardown) -> HookResult {
        self.send(cx, Signal::Ended(text::ended(cx.outcome)))
    }

    fn finish(&mut self) -> HookResult {
        self.worker.finish()
    }

    fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.worker.delivery_stats()
    }
}
