//! What happens on the thread of a [`Heartbeat`](super::Heartbeat).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tenterhook_core::HookResult;
use tenterhook_files::write_atomically;

use crate::http::{Client, insist, within};
use crate::secret::Secret;
use crate::worker::{Desk, Work};

/// The last word is worth another attempt.
const RETRIES: u32 = 3;

/// What training leaves for the thread, and the thread for training; neither waits for the other.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    pub(super) step: AtomicU64,
    pub(super) epoch: AtomicU64,
    /// Something has failed that the hook has not heard of.
    pub(super) troubled: AtomicBool,
}

/// What the hook hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The run has begun.
    Begun,
    /// It has ended like this.
    Ended(&'static str),
}

/// What is sent.
#[derive(Serialize)]
struct Beat<'a> {
    run: &'a str,
    status: &'a str,
    step: u64,
    epoch: u64,
    /// Seconds since 1970.
    time: u64,
}

/// Where it is sent to.
pub(super) struct Targets {
    pub(super) address: Option<Secret>,
    /// What is put behind the address when the run has failed.
    pub(super) fail_suffix: Option<String>,
    /// What people call the address.
    pub(super) called: String,
    pub(super) file: Option<PathBuf>,
}

pub(super) struct Beating {
    pub(super) client: Client,
    pub(super) run: String,
    pub(super) targets: Targets,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) pulse: Arc<Pulse>,
    /// The last one failed, and that has been told.
    pub(super) failing: bool,
}

impl Beating {
    /// Says how the run is doing, wherever it is to be said.
    fn say(&self, status: &str, retries: u32, desk: &Desk) -> HookResult {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (step, epoch) =
            (self.pulse.step.load(Ordering::Relaxed), self.pulse.epoch.load(Ordering::Relaxed));
        let json = serde_json::to_vec(&Beat { run: &self.run, status, step, epoch, time })?;
        let written = self.targets.file.as_deref().map_or(Ok(()), |file| {
            write(file, &json).map_err(|error| format!("cannot write {}: {error}", file.display()))
        });
        let pinged = self.ping(status, &json, retries, desk);
        Ok(written.and(pinged)?)
    }

    fn ping(&self, status: &str, json: &[u8], retries: u32, desk: &Desk) -> Result<(), String> {
        let Targets { address: Some(address), fail_suffix, called, .. } = &self.targets else {
            return Ok(());
        };
        let failed = fail_suffix.as_ref().filter(|_| status == "failed");
        let address = failed.map_or_else(|| address.clone(), |suffix| extended(address, suffix));
        let attempt = || self.client.post(&address, json, within(self.timeout, desk));
        insist(retries, |time| desk.pause(time), attempt)
            .map_err(|gave_up| format!("the heartbeat did not get to {called}: {gave_up}"))
    }

    /// One that fails like those before it is no news.
    fn note(&mut self, said: HookResult) -> HookResult {
        let news = said.is_err() && !self.failing;
        self.failing = said.is_err();
        if news {
            self.pulse.troubled.store(true, Ordering::Release);
            return said;
        }
        Ok(())
    }
}

impl Work for Beating {
    type Item = Word;

    fn take(&mut self, word: Word, desk: &Desk) -> HookResult {
        match word {
            Word::Begun => {
                let said = self.say("running", 0, desk);
                self.note(said)
            }
            Word::Ended(status) => self.say(status, RETRIES, desk),
        }
    }

    fn period(&self) -> Option<Duration> {
        Some(self.interval)
    }

    fn tick(&mut self, desk: &Desk) -> HookResult {
        let said = self.say("running", 0, desk);
        self.note(said)
    }
}

/// The address with this behind its path.
fn extended(address: &Secret, suffix: &str) -> Secret {
    let text = address.reveal();
    Secret::new(match text.split_once('?') {
        Some((path, query)) => format!("{path}{suffix}?{query}"),
        None => format!("{text}{suffix}"),
    })
}

/// Writes the file, so that whoever reads it finds all of it.
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
        let of = |address: &str| extended(&Secret::new(address), "/fail").reveal().to_owned();
        assert_eq!(of("https://host/id"), "https://host/id/fail");
        assert_eq!(of("https://host/id?rid=1"), "https://host/id/fail?rid=1");
    }
}
