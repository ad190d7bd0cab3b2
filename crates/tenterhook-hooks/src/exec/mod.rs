//! Runs a command when something happens.
//!
//! Threads read and write the command's pipes, keep a bounded part of its output and do not wait for pipes that a grandchild holds.
//! A command has a process group of its own, so that Ctrl-C in the terminal reaches only this program. A timeout reaches all
//! descendants (`family.rs`).

mod facts;
mod family;
mod process;
mod program;
mod running;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[allow(clippy::wildcard_imports)] // a context for every event that a command can be run at
use tenterhook_core::*;

use facts::{Tells, Told};
use running::{Heard, Running};

use crate::support::checks;
use crate::worker::outbox::{self, Outbox};
use crate::worker::{Queue, WhenFull};

/// The options of [`Exec`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecOptions {
    /// At which events, such as `on_train_end` or `on_checkpoint_saved`. Those within a batch are too many for a command.
    #[schemars(length(min = 1))]
    pub on: Vec<String>,
    /// What to run: a program and its arguments, or a text that `sh -c` runs.
    pub command: ExecCommand,
    /// How long the command may run. Then it is killed with all its descendants; on Linux also those in other sessions.
    #[serde(default = "minute")]
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub timeout: TimeSpan,
    /// How many events may wait for the command.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1))]
    pub queue_size: usize,
    /// What happens when that many wait: the oldest makes way (`drop_oldest`), or training waits (`block`).
    #[serde(default)]
    pub when_full: WhenFull,
    /// How long the end of the run waits for commands; those that still run then are killed.
    #[serde(default = "minute")]
    #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
    pub flush_timeout: TimeSpan,
}

/// What an [`Exec`] runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a command is a text for `sh`, or a list of a program and its arguments")]
pub enum ExecCommand {
    /// This, by `sh -c`.
    Shell(#[schemars(length(min = 1))] String),
    /// A program and its arguments.
    Program(#[schemars(length(min = 1))] Vec<String>),
}

impl ExecCommand {
    /// The program and its arguments.
    fn words(&self) -> Vec<String> {
        match self {
            ExecCommand::Shell(script) => ["sh", "-c", script].map(str::to_owned).to_vec(),
            ExecCommand::Program(words) => words.clone(),
        }
    }
}

/// So many characters of a command are shown.
const SHOWN: usize = 80;

impl std::fmt::Display for ExecCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            ExecCommand::Shell(script) => script.clone(),
            ExecCommand::Program(words) => words.join(" "),
        };
        match text.char_indices().nth(SHOWN) {
            Some((end, _)) => write!(f, "{}…", &text[..end]),
            None => f.write_str(&text),
        }
    }
}

fn minute() -> TimeSpan {
    TimeSpan::from_secs(60)
}

fn hundred() -> usize {
    100
}

impl ExecOptions {
    /// The defaults for these events and this command.
    pub fn of<'a>(on: impl IntoIterator<Item = &'a str>, command: impl Into<String>) -> ExecOptions {
        ExecOptions {
            on: on.into_iter().map(str::to_owned).collect(),
            command: ExecCommand::Shell(command.into()),
            timeout: minute(),
            queue_size: hundred(),
            when_full: WhenFull::default(),
            flush_timeout: minute(),
        }
    }

    fn events(&self) -> Result<Events, OptionError> {
        let allowed: Vec<_> = EVENTS.iter().map(|event| event.handler()).collect();
        checks::filled("on", self.on.is_empty(), &format!("name some of {}", allowed.join(", ")))?;
        let mut events = Events::NONE;
        for name in &self.on {
            let event = EVENTS.iter().find(|event| event.handler() == name).ok_or_else(|| {
                let why = match Event::of_handler(name) {
                    Some(_) => "comes too often, or where nothing may be sent".to_owned(),
                    None => plan::nearest(name, allowed.iter().copied()).map_or_else(
                        || "is no event".to_owned(),
                        |near| format!("is no event: did you mean \"{near}\"?"),
                    ),
                };
                OptionError::new("on", format!("`on` has \"{name}\", which {why}"))
                    .fix(format!("there are {}", allowed.join(", ")))
            })?;
            events = events.with(*event);
        }
        Ok(events)
    }
}

/// Runs a command when something happens, with the event as JSON on its standard input: so a script in any language can
/// be a hook.
///
/// - **Fires** at the events of `on`. Not in a dry run, a rehearsal or a sanity check.
/// - **Reads** all metrics. **Writes** nothing itself. The command reads one JSON object: `event`, `run`, `directory`
///   (of the run), `stage`, `phase`, `step`, `epoch`, `time` (seconds since the run began), `metrics` (what is no number in
///   JSON is `"nan"`, `"inf"` or `"-inf"`), and what belongs to the event: `outcome` with `by`, `reason`, `signal` or
///   `error`; `origin`, `place`, `error` and `panicked` of a failure; `path`, `root`, `best` and `again` of a
///   checkpoint that was saved, where `step`, `epoch` and `metrics` are those of the save;
///   `hook` and `reason` of one that was disabled. `TENTER_EVENT`, `TENTER_RUN_DIR` and `TENTER_STEP` are in its
///   environment. Commands run one after the other, and what they print is said: 20 lines of each.
/// - **Cost**: copying the metrics; the rest is done by a thread of its own. The end of the run waits for commands, for
///   `flush_timeout` at most.
/// - **Refused before step 1** if the program does not exist or is not executable. Of a text for `sh -c` only a run shows it.
/// - **When it fails**, because the command cannot be started, ends with another exit code than 0 or takes longer than
///   `timeout`, its policy decides: it is reported with the end of what it wrote to standard error, and the hook
///   disabled after three failures.
///
/// ```toml
/// [[hooks]]
/// use = "exec"
/// on = ["on_train_end"]                        # must be set
/// command = ["python3", "after_training.py"]   # must be set
/// timeout = "1 min"
/// queue_size = 100
/// when_full = "drop_oldest"
/// flush_timeout = "1 min"
/// ```
#[derive(Debug)]
pub struct Exec {
    options: ExecOptions,
    events: Events,
    queue: Queue,
    heard: Heard,
    outbox: Outbox<Told>,
}

impl FromOptions for Exec {
    type Options = ExecOptions;
    const PURPOSE: &str =
        "runs a command when something happens, with the event as JSON on its standard input";
    const EXAMPLE: &str = r#"
on = ["on_train_end", "on_exception"]
command = ["sh", "-c", "echo $TENTER_EVENT at step $TENTER_STEP"]
timeout = "10 s"
"#;

    fn from_options(options: ExecOptions) -> Result<Exec, OptionError> {
        let empty = match &options.command {
            ExecCommand::Shell(script) => script.trim().is_empty(),
            ExecCommand::Program(words) => words.first().is_none_or(String::is_empty),
        };
        checks::filled("command", empty, "write for example [\"python3\", \"script.py\"]")?;
        checks::above_zero("timeout", options.timeout)?;
        Ok(Exec {
            events: options.events()?,
            queue: outbox::queue(options.queue_size, options.when_full, options.flush_timeout)?,
            options,
            heard: Heard::default(),
            outbox: Outbox::default(),
        })
    }
}

impl Exec {
    /// Has the command run for this event.
    fn run<C: Context + Tells>(&mut self, cx: &C) -> HookResult {
        let moment = cx.moment();
        self.pass_on(moment);
        let outside = outbox::outside(moment).filter(|_| self.events.contains(C::EVENT));
        let Some(outside) = outside else { return Ok(()) };
        let work = || Running {
            outside,
            command: self.options.command.clone(),
            timeout: self.options.timeout.0,
            heard: self.heard.clone(),
        };
        self.outbox.send(Told::of(cx), ("exec", self.queue), work)
    }

    /// Says what commands have said.
    fn pass_on(&self, cx: &Moment<'_>) {
        self.heard.take().into_iter().for_each(|text| cx.say(text));
    }
}

/// A hook with a handler for each of these, and the list of them.
macro_rules! runs_at {
    ($($handler:ident $Event:ident;)*) => {
        /// The events that a command can be run at.
        const EVENTS: &[Event] = &[$(Event::$Event,)* Event::Setup, Event::Teardown];

        impl Exec {
            /// The events that its options leave nothing to do at.
            fn idle(&self) -> Events {
                let own = Events::of(&[Event::Setup, Event::Teardown]);
                Events::of(EVENTS).without(self.events).without(own)
            }
        }

        #[hook(name = "exec", tier = "built_in")]
        impl Observer for Exec {
            fn declare(&self, spec: HookSpec) -> HookSpec {
                let spec = spec.idle(self.idle());
                let spec = spec.effect(Effect::Command(self.options.command.words()));
                self.options.command.lack().into_iter().fold(spec, HookSpec::lacks)
            }

            fn setup(&mut self, cx: &Setup) -> HookResult {
                self.outbox.begin();
                self.run(cx)
            }

            $(
                fn $handler(&mut self, cx: &$Event) -> HookResult {
                    self.run(cx)
                }
            )*

            /// What the last commands say is passed on, too, and there is no later event.
            fn teardown(&mut self, cx: &Teardown) -> HookResult {
                let run = self.run(cx);
                let finished = self.outbox.finish();
                self.pass_on(cx);
                outbox::both(run, finished)
            }

            fn finish(&mut self) -> HookResult {
                self.outbox.finish()
            }

            fn sent(&self) -> Option<Sent> {
                self.outbox.sent()
            }
        }
    };
}

runs_at! {
    on_fit_start FitStart;
    on_fit_end FitEnd;
    on_train_start TrainStart;
    on_train_end TrainEnd;
    on_train_epoch_start TrainEpochStart;
    on_train_epoch_end TrainEpochEnd;
    on_validation_start ValidationStart;
    on_validation_epoch_start ValidationEpochStart;
    on_validation_epoch_end ValidationEpochEnd;
    on_validation_end ValidationEnd;
    on_test_start TestStart;
    on_test_epoch_start TestEpochStart;
    on_test_epoch_end TestEpochEnd;
    on_test_end TestEnd;
    on_predict_start PredictStart;
    on_predict_epoch_start PredictEpochStart;
    on_predict_epoch_end PredictEpochEnd;
    on_predict_end PredictEnd;
    on_checkpoint_saved CheckpointSaved;
    on_checkpoint_loaded CheckpointLoaded;
    on_hook_disabled HookDisabled;
    on_exception Exception;
}
