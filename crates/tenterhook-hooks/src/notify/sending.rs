//! What happens to messages on the thread that sends them.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use tenterhook_core::HookResult;

use super::NotifyOn;
use super::options::Templates;
use super::template::Facts;
use crate::http::{Client, insist, within};
use crate::secret::Secret;
use crate::text;
use crate::worker::{Desk, Work};

/// What is to be told.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) on: NotifyOn,
    pub(super) facts: Facts,
    /// How many were held back before it.
    pub(super) held_back: u64,
}

/// Sends messages to an address.
pub(super) struct Sending {
    pub(super) client: Client,
    pub(super) address: Secret,
    /// What people call the address.
    pub(super) called: String,
    pub(super) templates: Templates,
    pub(super) timeout: Duration,
    pub(super) retries: u32,
}

impl Work for Sending {
    type Item = Message;

    fn take(&mut self, message: Message, desk: &Desk) -> HookResult {
        let mut text = self.templates.of(message.on).fill(&message.facts);
        if message.held_back > 0 {
            let before = text::many(message.held_back, "message");
            let _ = write!(text, "\n(held back before this, as too many in too short a time: {before})");
        }
        let json = serde_json::to_vec(&json!({ "text": text }))?;
        let attempt = || self.client.post(&self.address, &json, within(self.timeout, desk));
        let sent = insist(self.retries, |time| desk.pause(time), attempt);
        Ok(sent.map_err(|gave_up| {
            format!("the message about {} did not get to {}: {gave_up}", message.on.name(), self.called)
        })?)
    }
}
