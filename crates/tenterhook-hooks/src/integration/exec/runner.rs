//! Runs commands on the worker thread.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenterhook_core::{EffectPermit, HookResult};

use super::ExecCommand;
use super::payload::Payload;
use super::process::{Limits, Output, run};
use crate::support::text;
use crate::worker::{Work, WorkerContext};

/// The maximum number of reported lines of a command's output.
const LINES: usize = 20;
/// A command is killed this long before `flush_timeout` ends, so that the failure can still be reported.
const MARGIN: Duration = Duration::from_millis(300);

/// The output of commands, until the hook passes it on.
#[derive(Clone, Debug, Default)]
pub(super) struct Outputs(Arc<Mutex<Vec<String>>>);

impl Outputs {
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, output: Output) {
        let Output { mut lines, dropped } = output;
        let more = lines.len().saturating_sub(LINES);
        lines.truncate(LINES);
        if more > 0 || dropped > 0 {
            let bytes = if dropped > 0 { format!(" and {}", text::bytes(dropped)) } else { String::new() };
            lines.push(format!("… ({more} more lines{bytes})"));
        }
        if !lines.is_empty() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(lines.join("\n"));
        }
    }
}

/// Runs the command once per event, sequentially.
pub(super) struct Runner {
    pub(super) outside: EffectPermit,
    pub(super) command: ExecCommand,
    pub(super) timeout: Duration,
    pub(super) outputs: Outputs,
}

impl Work for Runner {
    type Item = Payload;

    fn process(&mut self, mut payload: Payload, cx: &WorkerContext) -> HookResult {
        // Before training has started, the run directory does not exist.
        payload.directory = payload.directory.filter(|directory| directory.is_dir());
        let mut command = self.command.to_command();
        command.env("TENTER_EVENT", payload.event).env("TENTER_STEP", payload.step.to_string());
        match &payload.directory {
            Some(directory) => command.env("TENTER_RUN_DIR", directory),
            None => command.env_remove("TENTER_RUN_DIR"),
        };
        let mut input = serde_json::to_vec(&payload)?;
        input.push(b'\n');
        let is_cancelled = || cx.time_left().is_some_and(|left| left < MARGIN);
        let limits = Limits { timeout: self.timeout, is_cancelled: &is_cancelled };
        let output = run(self.outside, command, input, &limits)
            .map_err(|problem| format!("`{}`, run at {}, {problem}", self.command, payload.event))?;
        self.outputs.add(output);
        Ok(())
    }
}

impl ExecCommand {
    fn to_command(&self) -> Command {
        let words = self.words();
        let mut words = words.iter();
        let mut command = Command::new(words.next().map(String::as_str).unwrap_or_default());
        command.args(words);
        command
    }
}
