//! The command line: commands, arguments and options.

mod runs;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use runs::{
    Checkpoints, CheckpointsCommand, Compare, Export, Resume, ResumeOptions, Runs, Show, Verify,
};

/// Train models with hooks that observe, control and record the run.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Train, then test the best weights.
    Train(Train),
    /// Resume an interrupted, killed or failed run, or extend a finished one.
    ///
    /// Training continues in the run's directory from its newest whole checkpoint, as if it had never stopped. If the
    /// run has nothing left to do, the command says so.
    Resume(Resume),
    /// Evaluate weights on the validation data.
    Validate(Evaluate),
    /// Evaluate weights on the test data.
    Test(Evaluate),
    /// Print predictions, one JSON line each.
    Predict(Evaluate),
    /// Write the complete configuration to a file, with comments.
    Init(Init),
    /// Create a project with a module, a hook and a configuration.
    New(New),
    /// List the available hooks, or describe one of them.
    ///
    /// The description of a hook shows its purpose, the events it receives, every option with type, default and
    /// meaning, and an example.
    Hooks(Hooks),
    /// Print the JSON schema of the configuration, for editors and validators.
    Schema,
    /// Show the order of events in the first batches of a call, or in a scenario.
    ///
    /// A TOML configuration runs for a few batches; its events are shown as a tree with their receivers. A
    /// JSON scenario runs to its end and prints one JSON row per call: [source, event], then the batch index,
    /// and the loader index if it is not 0. Without --all it prints only the rows that Lightning also has.
    Trace(Trace),
    /// Show which hooks receive each event, in which order, and why.
    ///
    /// Nothing is trained. Problems of the plan are printed with their fix, and the exit code is 2.
    Plan(Plan),
    /// List the hook points of a module: named activations, with their shapes and phases.
    ///
    /// Runs one batch of each phase without the hooks of the configuration, and writes nothing.
    Points(Points),
    /// Prove that the observers of a configuration do not change training, or name the one that does.
    ///
    /// Trains twice with the same seed, without the observers and with them, and compares losses, parameters
    /// and optimizer state bit for bit. If they differ, it prints the first different step, the difference,
    /// and the hook that causes it (found by bisection); the exit code is 1. No files are kept.
    VerifyNeutral(VerifyNeutral),
    /// List runs with their metrics.
    Runs(Runs),
    /// Show one run: settings, outcome, hooks, checkpoints, failures and curves.
    Show(Show),
    /// List the checkpoints of a run, newest first, with step, metrics, size and integrity.
    Checkpoints(Checkpoints),
    /// Export weights to one safetensors file, for Python.
    Export(Export),
    /// Compare the configuration, environment and results of runs.
    Compare(Compare),
}

/// Overrides of configuration keys.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Overrides {
    /// Override a configuration key, e.g. `--set trainer.max_epochs=3` or `--set hooks.checkpoint.save_top_k=3`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// Whether the configuration in a run directory is trusted.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Trust {
    /// Trust the configuration in the run directory, even if you did not create it. It may run commands, upload
    /// files, send requests and write to other directories.
    #[arg(long)]
    pub(crate) trust: bool,
}

#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Output {
    /// Print errors only.
    #[arg(long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    /// Print the result as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// An optional configuration file with overrides.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConfigArgs {
    /// TOML configuration. Default: the first task with its default settings.
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
}

/// Options for the end of training.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct AfterTraining {
    /// Do not test the best weights after training.
    #[arg(long)]
    pub(crate) no_test: bool,
    /// Print the cost of each hook per event.
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
    pub(crate) config: ConfigArgs,
    /// Print the complete configuration and exit.
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Resume a run or a checkpoint with this configuration.
    ///
    /// `auto` resumes the newest run with a matching configuration, or starts a new run if there is none. A
    /// run (its id, part of the id, a path, or `latest`) resumes from its newest whole checkpoint. A
    /// checkpoint is named by its path.
    #[arg(long, value_name = "auto|PATH|RUN")]
    pub(crate) resume: Option<String>,
    #[command(flatten)]
    pub(crate) resume_options: ResumeOptions,
    /// Initialize matching weights from a safetensors file, a checkpoint or a run, for fine-tuning.
    #[arg(long, value_name = "PATH", conflicts_with = "resume")]
    pub(crate) init_from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) after: AfterTraining,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Evaluate {
    /// TOML configuration. Default: the configuration of the weights' run.
    ///
    /// All hooks of the configuration run. Their files go to a new directory below `evaluations` in the
    /// directory of all runs, never to the weights' run. Hooks with an absolute path append to the file at
    /// that path.
    pub(crate) config: Option<PathBuf>,
    /// The weights: a safetensors file, a checkpoint, or a run directory such as `runs/latest`.
    #[arg(long, value_name = "PATH")]
    pub(crate) weights: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    #[command(flatten)]
    pub(crate) trust: Trust,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Init {
    /// The file to write.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Overwrite an existing file.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct New {
    /// The directory to create. Its name becomes the name of the project.
    pub(crate) directory: PathBuf,
    /// Use tenterhook from this directory as the dependency.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["git", "version"])]
    pub(crate) path: Option<PathBuf>,
    /// Use tenterhook from this git repository as the dependency.
    #[arg(long, value_name = "URL", conflicts_with = "version")]
    pub(crate) git: Option<String>,
    /// Use this version of tenterhook as the dependency.
    #[arg(long)]
    pub(crate) version: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Hooks {
    /// The hook to describe, by its name for `use`. Default: list all hooks.
    pub(crate) name: Option<String>,
    /// Print the reference page of all hooks, in Markdown.
    #[arg(long, conflicts_with_all = ["name", "json"])]
    pub(crate) markdown: bool,
    /// Print JSON.
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

#[derive(Args, Clone, Debug)]
pub(crate) struct Trace {
    /// A configuration in TOML, or a scenario in JSON.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// The call to trace. Default: fit. A scenario contains its own calls.
    #[arg(long, value_enum)]
    pub(crate) stage: Option<Call>,
    /// Number of batches to run with a configuration.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) batches: u64,
    /// Print every row of a scenario, including those that Lightning does not have.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON. Scenarios are always printed as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// A configuration in TOML, or a scenario in JSON.
    pub(crate) config: PathBuf,
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Points {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// List only the points that match a pattern, e.g. 'blocks.*.mlp' or '**.attn'.
    #[arg(long = "match", value_name = "PATTERN")]
    pub(crate) pattern: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct VerifyNeutral {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Number of optimizer steps to compare, at most the length of the training. Default: 50, or up to 200 if
    /// an observer first fires after step 50.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: Option<u64>,
    /// Print the result as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
