//! What happens on the thread that runs commands.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenterhook_core::{EffectPermit, HookResult};

use super::ExecCommand;
use super::facts::Told;
use super::process::{Patience, Said, run};
use crate::text;
use crate::worker::{Desk, Work};

/// So many lines of a command are passed on.
const LINES: usize = 20;
/// What is still running so long before everybody stops waiting is killed, so that somebody hears of it.
const MARGIN: Duration = Duration::from_millis(300);

/// What commands have said and nobody has passed on.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard(Arc<Mutex<Vec<String>>>);

impl Heard {
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, said: Said) {
        let Said { mut lines, left_out } = said;
        let more = lines.len().saturating_sub(LINES);
        lines.truncate(LINES);
        if more > 0 || left_out > 0 {
            let bytes = if left_out > 0 { format!(" and {}", text::bytes(left_out)) } else { String::new() };
            lines.push(format!("… ({more} more lines{bytes})"));
        }
        if !lines.is_empty() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(lines.join("\n"));
        }
    }
}

/// Runs a command, one time after the other.
pub(super) struct Running {
    pub(super) outside: EffectPermit,
    pub(super) command: ExecCommand,
    pub(super) timeout: Duration,
    pub(super) heard: Heard,
}

impl Work for Running {
    type Item = Told;

    fn take(&mut self, mut told: Told, desk: &Desk) -> HookResult {
        // It is made when training begins.
        told.directory = told.directory.filter(|directory| directory.is_dir());
        let mut command = self.command.to_run();
        command.env("TENTER_EVENT", told.event).env("TENTER_STEP", told.step.to_string());
        match &told.directory {
            Some(directory) => command.env("TENTER_RUN_DIR", directory),
            None => command.env_remove("TENTER_RUN_DIR"),
        };
        let mut input = serde_json::to_vec(&told)?;
        input.push(b'\n');
        let is_over = || desk.time_left().is_some_and(|left| left < MARGIN);
        let said = run(self.outside, command, input, &Patience { timeout: self.timeout, is_over: &is_over });
        let said = said.map_err(|problem| format!("`{}`, run at {}, {problem}", self.command, told.event))?;
        self.heard.add(said);
        Ok(())
    }
}

impl ExecCommand {
    fn to_run(&self) -> Command {
        let words = self.words();
        let mut words = words.iter();
        let mut command = Command::new(words.next().map(String::as_str).unwrap_or_default());
        command.args(words);
        command
    }
}
