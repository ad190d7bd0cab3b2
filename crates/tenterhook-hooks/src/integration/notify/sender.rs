//! Sends messages on the worker thread.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use tenterhook_core::HookResult;

use super::NotifyOn;
use super::options::Templates;
use super::template::Values;
use crate::support::http::{Client, retry, timeout_within};
use crate::support::secret::Secret;
use crate::support::text;
use crate::worker::{Work, WorkerContext};

/// A message that is not rendered yet.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) on: NotifyOn,
    pub(super) values: Values,
    /// The number of messages that the rate limit suppressed before it.
    pub(super) suppressed: u64,
}

pub(super) struct Sender {
    pub(super) client: Client,
    pub(super) address: Secret,
    /// The name of the address in errors.
    pub(super) label: String,
    pub(super) templates: Templates,
    pub(super) timeout: Duration,
    pub(super) retries: u32,
}

impl Work for Sender {
    type Item = Message;

    fn process(&mut self, message: Message, cx: &WorkerContext) -> HookResult {
        let mut text = self.templates.of(message.on).fill(&message.values);
        if message.suppressed > 0 {
            let before = text::plural(message.suppressed, "message");
            let _ = write!(text, "\n({before} before this not sent: rate limit)");
        }
        let json = serde_json::to_vec(&json!({ "text": text }))?;
        let attempt = || self.client.post(&self.address, &json, timeout_within(self.timeout, cx));
        let sent = retry(self.retries, |time| cx.pause(time), attempt);
        Ok(sent.map_err(|error| {
            format!("the message about {} did not get to {}: {error}", message.on.name(), self.label)
        })?)
    }
}
