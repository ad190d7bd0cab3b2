//! What can be typed.

mod saved;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use saved::{Accepts, Checkpoints, CheckpointsCommand, Export, Found, Resume, Verify};

/// Train models under hooks that watch, steer and record.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Changes to a configuration.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Set a key, as in `--set trainer.max_epochs=3` or `--set hooks.checkpoint.save_top_k=3`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Whether a configuration in a run directory is trusted.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Trust {
    /// Trust the configuration in the run directory, whoever made it: run its commands, uploads and requests, and write
    /// where it says.
    #[arg(long)]
    pub(crate) trust: bool,
}

#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Output {
    /// Print nothing but errors.
    #[arg(long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Print one line of JSON at the end, for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A configuration that need not be named.
#[derive(Args, Clone, Debug)]
pub(crate) struct Configured {
    /// A configuration in TOML; without one, the first task with its own settings.
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) changes: Changes,
}

/// What a training does when it ends.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Ending {
    /// Do not run `test` on the best weights after training.
    #[arg(long)]
    pub(crate) no_test: bool,
    /// Say at the end what each hook cost at each event.
    #[arg(long)]
    pub(crate) profile_hooks: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Clone, Debug)]
#[command(
    mut_arg("force", |flag| flag.requires("resume")),
    mut_arg("accept_hook_changes", |flag| flag.requires("resume")),
    mut_arg("skip_unreadable", |flag| flag.requires("resume"))
)]
pub(crate) struct Train {
    #[command(flatten)]
    pub(crate) configured: Configured,
    /// Print the complete configuration of what would run, and run nothing.
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Resume what was trained before, with this configuration.
    ///
    /// `auto` takes the newest run whose configuration fits and begins a new one where there is none; a run (its id,
    /// part of it, a path, `latest`) resumes from its newest whole checkpoint; a checkpoint is named by its path.
    #[arg(long, value_name = "auto|PATH|RUN")]
    pub(crate) resume: Option<String>,
    #[command(flatten)]
    pub(crate) accepts: Accepts,
    /// Begin with weights from a safetensors file, a checkpoint or a run, as far as they fit, for fine-tuning.
    #[arg(long, value_name = "PATH", conflicts_with = "resume")]
    pub(crate) init_from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) ending: Ending,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Evaluate {
    /// A configuration in TOML; without one, that of the run the weights came from.
    ///
    /// All its hooks take part. This is no run: their files go into a new directory below `evaluations` in the
    /// directory of all runs, never into the run that the weights came from. A file that a hook names by an absolute
    /// path is appended to.
    pub(crate) config: Option<PathBuf>,
    /// Where the weights are: a safetensors file, a checkpoint, or a run directory such as `runs/latest`.
    #[arg(long, value_name = "PATH")]
    pub(crate) weights: PathBuf,
    #[command(flatten)]
    pub(crate) trust: Trust,
    #[command(flatten)]
    pub(crate) changes: Changes,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct New {
    /// The directory to make; its name becomes the project's.
    pub(crate) directory: PathBuf,
    /// Depend on tenterhook in this directory.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["git", "version"])]
    pub(crate) path: Option<PathBuf>,
    /// Depend on tenterhook in this git repository.
    #[arg(long, value_name = "URL", conflicts_with = "version")]
    pub(crate) git: Option<String>,
    /// Depend on this version of tenterhook.
    #[arg(long)]
    pub(crate) version: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Hooks {
    /// Which hook, as it stands behind `use`; without one, all of them are listed.
    pub(crate) name: Option<String>,
    /// Print JSON, for programs.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the reference page of all hooks, in Markdown.
    #[arg(long, conflicts_with_all = ["name", "json"])]
    pub(crate) markdown: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Runs {
    /// Keep the runs for which this holds, as in 'val/loss < 0.1 and status == completed'.
    ///
    /// Names are metrics, fields of the run (as for --sort) and keys of its configuration, as in
    /// 'optimizer.lr == 0.005'. Of several filters, all must hold.
    #[arg(long, value_name = "EXPR")]
    pub(crate) filter: Vec<String>,
    /// Sort by a metric, a field or a key of the configuration, the smallest first.
    ///
    /// So the best loss is on top; for the best accuracy add --reverse. Runs without it come last. Fields
    /// are created, seconds, steps, epochs, seed, status, task and others. Unset, the newest run is first.
    #[arg(long, value_name = "KEY")]
    pub(crate) sort: Option<String>,
    /// Reverse the order.
    #[arg(long)]
    pub(crate) reverse: bool,
    /// Show at most N, from the top.
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) found: Found,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Show {
    /// The run: its id, the beginning or end of it, a path, `latest`, or `latest~1` for the one before it.
    #[arg(default_value = "latest")]
    pub(crate) run: String,
    /// Draw this metric, such as val/loss, or all of one end, such as loss; may be given several times.
    #[arg(long = "metric", value_name = "NAME")]
    pub(crate) metrics: Vec<String>,
    /// How wide the curves are drawn, in characters.
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u16).range(20..=1000))]
    pub(crate) width: u16,
    /// How high the curves are drawn, in lines.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u16).range(3..=200))]
    pub(crate) height: u16,
    /// Draw with plain characters; so it is on a terminal that says TERM=dumb.
    #[arg(long)]
    pub(crate) ascii: bool,
    #[command(flatten)]
    pub(crate) found: Found,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Compare {
    /// The runs: ids, beginnings or ends of ids, paths, `latest`, `latest~1`.
    #[arg(value_name = "RUN", required = true, num_args = 2..)]
    pub(crate) runs: Vec<String>,
    /// Show what is equal, too.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) found: Found,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct VerifyNeutral {
    #[command(flatten)]
    pub(crate) configured: Configured,
    /// How many optimizer steps to compare; fewer, where the training itself is shorter. Unset: 50, or up to 200
    /// where an observer needs as many to fire once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: Option<u64>,
    /// Print one line of JSON at the end, for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Points {
    #[command(flatten)]
    pub(crate) configured: Configured,
    /// Show the points that a pattern selects, as in 'blocks.*.mlp' or '**.attn'.
    #[arg(long = "match", value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
    /// Print one JSON document, for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A call of the trainer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Call {
    #[default]
    Fit,
    Validate,
    Test,
    Predict,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Train, then test the best weights.
    Train(Train),
    /// Resume an interrupted, killed or failed run, or extend a finished one.
    ///
    /// Training resumes in the run's directory from its newest whole checkpoint, as if it had never ended. A run that
    /// has nothing left to do says so.
    Resume(Resume),
    /// Evaluate weights on the validation data.
    Validate(Evaluate),
    /// Evaluate weights on the test data.
    Test(Evaluate),
    /// Predict with weights, one JSON line each.
    Predict(Evaluate),
    /// Write the complete, commented configuration of what would run to a file.
    Init {
        /// The file to write.
        file: PathBuf,
        #[command(flatten)]
        settings: Changes,
        /// Replace the file if it is there already.
        #[arg(long)]
        force: bool,
    },
    /// Make a small project of your own: a module, a hook, a configuration.
    New(New),
    /// List the hooks that a configuration can use, or say everything about one of them.
    ///
    /// Of one hook: its purpose, the events it receives, every option with its type, default and
    /// meaning, and an example.
    Hooks(Hooks),
    /// Print the JSON schema of a configuration, for editors and validators.
    Schema,
    /// Show the order of events: of the first batches of a training or an evaluation, or of a scenario.
    ///
    /// A configuration in TOML is run for a few batches, and its events are shown as a tree with
    /// whoever receives them. A scenario in JSON is run whole, and one JSON row is printed per call:
    /// [source, event], with the batch index and, when not 0, the loader index where the event has
    /// them; only what can be compared with Lightning's order, unless --all is given.
    Trace {
        /// A configuration in TOML, or a scenario in JSON.
        file: PathBuf,
        #[command(flatten)]
        settings: Changes,
        /// Print JSON, for programs; the rows of a scenario are JSON anyway.
        #[arg(long)]
        json: bool,
        /// Of a scenario, every row: our own events, and everything the strategy and the module receive.
        #[arg(long)]
        all: bool,
        /// Of a configuration, which call to trace.
        #[arg(long, value_enum)]
        stage: Option<Call>,
        /// Of a configuration, how many batches to run.
        #[arg(long, default_value_t = 2)]
        batches: u64,
    },
    /// Print, per event, who receives it, in which order, and why.
    ///
    /// Nothing is trained. What the plan refuses is printed with its fix, and the exit code is 2.
    Plan {
        /// A configuration in TOML, or a scenario in JSON.
        config: PathBuf,
        #[command(flatten)]
        settings: Changes,
        /// Print JSON, for programs.
        #[arg(long)]
        json: bool,
    },
    /// List a module's hook points: its activations, with their shapes and the phases that show them.
    ///
    /// One batch of each phase is run without the configuration's hooks, and nothing is written.
    Points(Points),
    /// Prove that the observers of a configuration change nothing, or name the one that does.
    ///
    /// Trains twice with the same seed, without its observers and with them, and compares losses, parameters
    /// and optimizer state bit for bit. On a difference: the first step, what differs, and the hook that causes
    /// it, found by bisection; the exit code is 1. Nothing is kept.
    VerifyNeutral(VerifyNeutral),
    /// List the runs there are, with their metrics.
    Runs(Runs),
    /// Show a run: what it was, how it ended, its hooks, checkpoints and failures, and its curves.
    Show(Show),
    /// List the checkpoints of a run, newest first: step, metrics, size, whole or damaged.
    Checkpoints(Checkpoints),
    /// Write weights to one safetensors file, for Python.
    Export(Export),
    /// Show what differs between runs: in configuration, source, machine and result.
    Compare(Compare),
}
