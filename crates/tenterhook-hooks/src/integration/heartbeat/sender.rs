//! Sends heartbeats on the worker thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tenterhook_core::HookResult;
use tenterhook_files::write_atomically;

use crate::support::http::{Client, retry, timeout_within};
use crate::support::secret::Secret;
use crate::worker::{Work, WorkerContext};

/// Retries of the last heartbeat.
const RETRIES: u32 = 3;

/// The data that the training thread and the worker share without locks.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) step: AtomicU64,
    pub(super) epoch: AtomicU64,
    /// Whether `LazyWorker::check` has a failure to return.
    pub(super) has_failed: AtomicBool,
}

/// A message of the hook to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Started,
    /// Training has ended with this status.
    Ended(&'static str),
}

/// The JSON of a heartbeat.
#[derive(Serialize)]
struct Beat<'a> {
    run: &'a str,
    status: &'a str,
    step: u64,
    epoch: u64,
    /// Seconds since 1970.
    time: u64,
}

/// The targets of heartbeats.
pub(super) struct Targets {
    pub(super) address: Option<Secret>,
    /// Suffix appended to the path of the address if the run failed.
    pub(super) fail_suffix: Option<String>,
    /// The name of the address in errors.
    pub(super) label: String,
    pub(super) file: Option<PathBuf>,
}

pub(super) struct Sender {
    pub(super) client: Client,
    pub(super) run: String,
    pub(super) targets: Targets,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) shared: Arc<Shared>,
    /// Whether the last heartbeat failed and the failure was reported.
    pub(super) failing: bool,
}

impl Sender {
    /// Sends a heartbeat to all targets.
    fn send(&self, status: &str, retries: u32, cx: &WorkerContext) -> HookResult {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (step, epoch) =
            (self.shared.step.load(Ordering::Relaxed), self.shared.epoch.load(Ordering::Relaxed));
        let json = serde_json::to_vec(&Beat { run: &self.run, status, step, epoch, time })?;
        let written = self.targets.file.as_deref().map_or(Ok(()), |file| {
            write(file, &json).map_err(|error| format!("cannot write {}: {error}", file.display()))
        });
        let posted = self.post(status, &json, retries, cx);
        Ok(written.and(posted)?)
    }

    fn post(&self, status: &str, json: &[u8], retries: u32, cx: &WorkerContext) -> Result<(), String> {
        let Targets { address: Some(address), fail_suffix, label, .. } = &self.targets else {
            return Ok(());
        };
        let failed = fail_suffix.as_ref().filter(|_| status == "failed");
        let address = failed.map_or_else(|| address.clone(), |suffix| with_suffix(address, suffix));
        let attempt = || self.client.post(&address, json, timeout_within(self.timeout, cx));
        retry(retries, |time| cx.pause(time), attempt)
            .map_err(|error| format!("the heartbeat did not get to {label}: {error}"))
    }

    /// Sends a heartbeat of a running call; only the first of several failures in a row is an error.
    fn send_running(&mut self, cx: &WorkerContext) -> HookResult {
        let sent = self.send("running", 0, cx);
        let is_new = sent.is_err() && !self.failing;
        self.failing = sent.is_err();
        if is_new {
            self.shared.has_failed.store(true, Ordering::Release);
            return sent;
        }
        Ok(())
    }
}

impl Work for Sender {
    type Item = Signal;

    fn process(&mut self, signal: Signal, cx: &WorkerContext) -> HookResult {
        match signal {
            Signal::Started => self.send_running(cx),
            Signal::Ended(status) => self.send(status, RETRIES, cx),
        }
    }

    fn tick_interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn on_tick(&mut self, cx: &WorkerContext) -> HookResult {
        self.send_running(cx)
    }
}

/// The address with this suffix appended to its path.
fn with_suffix(address: &Secret, suffix: &str) -> Secret {
    let text = address.reveal();
    Secret::new(match text.split_once('?') {
        Some((path, query)) => format!("{path}{suffix}?{query}"),
        None => format!("{text}{suffix}"),
    })
}

/// Writes the file atomically.
fn write(file: &Path, json: &[u8]) -> std::io::Result<()> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    write_atomically(file, |file| file.write_all(json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_goes_before_the_query() {
        let of = |address: &str| with_suffix(&Secret::new(address), "/fail").reveal().to_owned();
        assert_eq!(of("https://host/id"), "https://host/id/fail");
        assert_eq!(of("https://host/id?rid=1"), "https://host/id/fail?rid=1");
    }
}
