//! Runs a command at events.
//!
//! Threads serve the command's pipes, keep a bounded part of its output and do not wait for pipes that a background process
//! holds open. A command has its own process group, so Ctrl-C in the terminal reaches only this program. A timeout kills all
//! descendants (`process_tree.rs`).

mod payload;
mod process;
mod process_tree;
mod program;
mod runner;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::hook::{EventResult, event_result};
use tenterhook_core::{
    DeliveryStats, Effect, Event, EventRef, Events, FromOptions, Hook, HookResult, HookSpec, OptionError,
    RunContext, Tier, TimeSpan, plan,
};

use payload::Payload;
use runner::{Outputs, Runner};

use crate::support::checks;
use crate::support::options;
use crate::worker::{LazyWorker, QueueOptions, WhenFull, outside};

options! {
    /// The options of [`Exec`].
    pub struct ExecOptions {
        /// The events at which the command runs, such as `on_train_end` or `on_checkpoint_saved`. Events within a batch are
        /// refused.
        #[schemars(length(min = 1))]
        pub on: Vec<String>,
        /// The command: a list of a program and its arguments, or a string for `sh -c`.
        pub command: ExecCommand,
        /// Maximum run time of a command. After it, the command and its descendants are killed; on Linux also those in other
        /// sessions.
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub timeout: TimeSpan = TimeSpan::from_secs(60),
        /// Maximum number of events that wait for the command.
        #[schemars(range(min = 1))]
        pub queue_size: usize = 100,
        /// What happens when the queue is full: `drop_oldest` drops the oldest event, `block` makes training wait.
        pub when_full: WhenFull = WhenFull::default(),
        /// How long the end of the run waits for commands. Commands that are still running then are killed.
        #[schemars(extend("pattern" = TimeSpan::ABOVE_ZERO))]
        pub flush_timeout: TimeSpan = TimeSpan::from_secs(60),
    }
}

/// The command of an [`Exec`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a command is a string for `sh`, or a list of a program and its arguments")]
pub enum ExecCommand {
    /// A string for `sh -c`.
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

/// How many characters of a command are shown in messages.
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

impl ExecOptions {
    /// The defaults for these events and this command.
    pub fn of<'a>(on: impl IntoIterator<Item = &'a str>, command: impl Into<String>) -> ExecOptions {
        let on = on.into_iter().map(str::to_owned).collect();
        ExecOptions::with_defaults(on, ExecCommand::Shell(command.into()))
    }

    fn events(&self) -> Result<Events, OptionError> {
        let allowed: Vec<_> = EVENTS.iter().map(|event| event.handler()).collect();
        checks::filled("on", self.on.is_empty(), &format!("name some of {}", allowed.join(", ")))?;
        let mut events = Events::NONE;
        for name in &self.on {
            let event = EVENTS.iter().find(|event| event.handler() == name).ok_or_else(|| {
                let why = match Event::of_handler(name) {
                    Some(_) => "fires too often, or where no command may run".to_owned(),
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

/// Runs a command at events, with the event as JSON on its standard input, so that a script in any language can be a hook.
///
/// - **Fires** at the events of `on`; not in a dry run, a rehearsal or a sanity check.
/// - **Reads** all metrics. **Writes** nothing itself. The command reads one JSON object with `event`, `run`, `directory`
///   (of the run), `stage`, `phase`, `step`, `epoch`, `time` (seconds since the start of the run) and `metrics` (non-finite
///   numbers are `"nan"`, `"inf"` and `"-inf"`), and with the fields of the event: `outcome` with `by`, `reason`,
///   `signal` or `error`; for a failure `origin`, `place`, `error` and `panicked`; for a saved checkpoint `path`, `root`,
///   `best` and `redelivered`, where `step`, `epoch` and `metrics` are those of the save; for a disabled hook `hook` and `reason`.
///   The environment has `TENTER_EVENT`, `TENTER_RUN_DIR` and `TENTER_STEP`. Commands run one after the other. Up to 20
///   lines of each command's output are printed and journaled.
/// - **Cost**: a copy of the metrics; commands run on a worker thread. The end of the run waits for them, up to
///   `flush_timeout`.
/// - **Refused before step 1** if the program does not exist or is not executable. A string for `sh -c` is not checked.
/// - **When it fails**: if the command cannot be started, exits with a code other than 0 or exceeds `timeout`, the failure
///   is reported with the end of its standard error, and the hook is disabled after three failures (its policy).
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
    queue: QueueOptions,
    outputs: Outputs,
    worker: LazyWorker<Payload>,
}

impl FromOptions for Exec {
    type Options = ExecOptions;
    const PURPOSE: &str = "runs a command at events, with the event as JSON on its standard input";
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
        checks::filled("command", empty, "for example, write [\"python3\", \"script.py\"]")?;
        checks::above_zero("timeout", options.timeout)?;
        Ok(Exec {
            events: options.events()?,
            queue: QueueOptions::checked(options.queue_size, options.when_full, options.flush_timeout)?,
            options,
            outputs: Outputs::default(),
            worker: LazyWorker::default(),
        })
    }
}

impl Exec {
    /// Queues the command for this event.
    fn run(&mut self, event: EventRef<'_>) -> HookResult {
        let cx = event.run_cx();
        self.report_outputs(cx);
        let outside = outside(cx).filter(|_| self.events.contains(event.event()));
        let Some(outside) = outside else { return Ok(()) };
        let work = || Runner {
            outside,
            command: self.options.command.clone(),
            timeout: self.options.timeout.0,
            outputs: self.outputs.clone(),
        };
        self.worker.get_or_start("exec", self.queue, work)?.send(Payload::of(event))
    }

    /// Runs the last command and reports the output of all, because there is no later event.
    fn teardown(&mut self, event: EventRef<'_>) -> HookResult {
        let run = self.run(event);
        let finished = self.worker.finish();
        self.report_outputs(event.run_cx());
        match (run, finished) {
            (Err(run), Err(finished)) => Err(format!("{run}; and then, {finished}").into()),
            (run, finished) => run.and(finished),
        }
    }

    fn report_outputs(&self, cx: &RunContext<'_>) {
        self.outputs.take().into_iter().for_each(|text| cx.say(text));
    }
}

/// The events at which a command can run.
const EVENTS: [Event; 24] = [
    Event::FitStart,
    Event::FitEnd,
    Event::TrainStart,
    Event::TrainEnd,
    Event::TrainEpochStart,
    Event::TrainEpochEnd,
    Event::ValidationStart,
    Event::ValidationEpochStart,
    Event::ValidationEpochEnd,
    Event::ValidationEnd,
    Event::TestStart,
    Event::TestEpochStart,
    Event::TestEpochEnd,
    Event::TestEnd,
    Event::PredictStart,
    Event::PredictEpochStart,
    Event::PredictEpochEnd,
    Event::PredictEnd,
    Event::CheckpointSaved,
    Event::CheckpointLoaded,
    Event::HookDisabled,
    Event::Exception,
    Event::Setup,
    Event::Teardown,
];

/// Implemented without `#[hook]`, because all events are handled by the same code.
impl Hook for Exec {
    fn spec(&self) -> HookSpec {
        let events = self.events.with(Event::Setup).with(Event::Teardown);
        let spec = events.iter().fold(HookSpec::observer("exec").tier(Tier::BuiltIn), HookSpec::wants);
        let spec = spec.effect(Effect::Command(self.options.command.words()));
        self.options.command.lack().into_iter().fold(spec, HookSpec::environment_problem)
    }

    fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
        if let EventRef::Setup(_) = event {
            self.worker.begin_call();
        }
        event_result(if let EventRef::Teardown(_) = event { self.teardown(event) } else { self.run(event) })
    }

    fn finish(&mut self) -> HookResult {
        self.worker.finish()
    }

    fn delivery_stats(&self) -> Option<DeliveryStats> {
        self.worker.delivery_stats()
    }
}
