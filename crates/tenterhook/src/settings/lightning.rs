//! Names of other trainers, such as Lightning's, that do not exist here, with hints what to use instead.

use super::Settings;
use crate::config::schema::{Schema, schema_of};

/// A hint for several names.
struct Hint {
    /// The names, in lower case and without separators: `modelcheckpoint` is `ModelCheckpoint` and
    /// `model_checkpoint`.
    names: &'static str,
    /// The hook to use.
    hook: Option<&'static str>,
    /// What to do instead.
    text: &'static str,
}

/// A hint without a hook.
const fn no(names: &'static str, text: &'static str) -> Hint {
    Hint { names, hook: None, text }
}

/// A hint to a hook.
const fn hook(names: &'static str, hook: &'static str, text: &'static str) -> Hint {
    Hint { names, hook: Some(hook), text }
}

/// The hint for all kinds of tuners.
const NO_TUNER: &str =
    "not supported; there is no tuner: try values with `--set` and compare the runs with `tenter compare`";

/// Settings of other trainers.
const SETTINGS: &[Hint] = &[
    no(
        "precision fp16 bf16 amp ampbackend amplevel mixedprecision",
        "not supported: training computes in the element type of the model's own tensors",
    ),
    no("accelerator gpus tpucores usecpu nocuda", "set the top-level key `device`, such as device = \"cpu\""),
    no(
        "devices numnodes numprocesses syncbatchnorm usedistributedsampler replacesamplerddp",
        "not supported: training runs in one process on one device, the top-level key `device`",
    ),
    no(
        "strategy plugins distributedbackend",
        "not supported in a configuration: a program passes its own with `Trainer::with_strategy`",
    ),
    hook("profiler", "profiler", ""),
    no(
        "logger loggers reportto",
        "each logger is a hook: `csv`, `jsonl`, `tensorboard`; metrics.jsonl of the run directory is always written",
    ),
    no("callbacks", "each callback is a table that begins with [[hooks]]; `tenter hooks` lists them"),
    no(
        "enableprogressbar progressbarrefreshrate disabletqdm",
        "the progress display belongs to the command line: `tenter train --quiet` turns it off",
    ),
    hook("enablemodelsummary weightssummary", "model_summary", ""),
    hook("enablecheckpointing checkpointcallback savesteps savestrategy", "checkpoint", ""),
    no("autolrfind autoscalebatchsize tuner lrfinder lrfind learningratefinder batchsizefinder", NO_TUNER),
    no("benchmark", "not supported; `device` alone decides which kernels run"),
    hook("detectanomaly terminateonnan", "nan_guard", ""),
    hook("trackgradnorm", "gradient_monitor", ""),
    hook("stochasticweightavg", "ema_weights", "it keeps an exponential moving average of the weights; "),
    no(
        "barebones",
        "not needed: an event that no hook receives costs a few instructions; leave [[hooks]] out for none",
    ),
    no(
        "defaultrootdir weightssavepath outputdir loggingdir",
        "set the top-level key `runs_dir`: each run has a directory below it",
    ),
    no(
        "resumefromcheckpoint ckptpath",
        "it is a command: `tenter resume RUN`, or `tenter train CONFIG --resume PATH`",
    ),
    no("inferencemode", "not needed: evaluation always runs without a graph of gradients"),
    no(
        "reloaddataloaderseverynepochs multipletrainloadermode preparedatapernode",
        "not supported: loaders are made once per call; the data module defines how several are interleaved (`Interleave`)",
    ),
    no(
        "enableautologhparams modelregistry",
        "not needed: run.json and config.toml of the run directory hold the whole configuration",
    ),
    no("numtrainepochs epochs", "it is `max_epochs`, in [trainer]"),
    no("seedeverything randomseed", "it is `seed`, in [trainer]"),
    no("gradientaccumulationsteps", "it is `accumulate_grad_batches`, in [trainer]"),
    no("maxgradnorm clipgradnorm", "it is `gradient_clip_val`, in [trainer]"),
    no("loggingsteps", "it is `log_every_n_steps`, in [trainer]"),
    no("evalsteps evalstrategy evaluationstrategy", "it is `val_check_interval`, in [trainer]"),
    no(
        "learningrate lr weightdecay optimizer lrscheduler lrschedulertype warmupsteps",
        "it belongs to the task, in [optimizer] or [[schedulers]]; `--print-config` shows all its keys",
    ),
    no(
        "batchsize perdevicetrainbatchsize perdeviceevalbatchsize numworkers dataloadernumworkers",
        "it belongs to the task, in [data]; `--print-config` shows all its keys",
    ),
];

/// Hooks and callbacks of other trainers.
const HOOKS: &[Hint] = &[
    hook("modelcheckpoint checkpointcallback checkpointsaver", "checkpoint", ""),
    hook("learningratemonitor", "lr_monitor", ""),
    hook("tensorboardlogger tensorboardcallback", "tensorboard", ""),
    hook("csvlogger", "csv", ""),
    hook("jsonlogger", "jsonl", ""),
    hook("devicestatsmonitor speedmonitor throughputmonitor", "throughput", ""),
    hook("richmodelsummary", "model_summary", ""),
    hook("terminateonnan detectanomaly", "nan_guard", ""),
    hook("weightaveraging ema emaweightaveraging", "ema_weights", ""),
    hook(
        "swa stochasticweightaveraging stochasticweightavg",
        "ema_weights",
        "equal weights of a tail of training (SWA) are not supported; ",
    ),
    hook("reducelronplateau", "plateau_detector", "or the schedule `plateau`; "),
    hook("backbonefinetuning basefinetuning finetuning", "freeze", ""),
    hook("gradientclipping", "clip_by_norm", "or the setting `gradient_clip_val`; "),
    hook("slackwebhook webhook", "notify", ""),
    hook("lambdacallback", "exec", "or a closure in a program of your own, `closure::on_step_end`; "),
    no("lrfinder learningratefinder batchsizefinder", NO_TUNER),
    no(
        "onexceptioncheckpoint",
        "not needed: `save_last` of the hook `checkpoint` keeps a recent one, and a signal saves an emergency checkpoint",
    ),
    no(
        "gradientaccumulationscheduler",
        "not supported: `accumulate_grad_batches` in [trainer] is constant for a run",
    ),
    no(
        "wandb wandblogger wandbcallback mlflow mlflowlogger comet cometlogger neptune neptunelogger clearml",
        "not supported; `jsonl`, `csv` and `tensorboard` write files, and `exec` runs a command of yours at an event",
    ),
    no(
        "modelpruning pruning quantizationawaretraining lambdalayer",
        "not supported; an update hook of your own can change gradients",
    ),
    no(
        "progressbar richprogressbar tqdmprogressbar progbarlogger",
        "`tenter train` shows progress by itself, and the hook `console` prints lines",
    ),
    no(
        "learningratescheduler lrscheduler lrschedulercallback",
        "a schedule is not a hook; write a [[schedulers]] table",
    ),
];

/// Schedules of other trainers.
const SCHEDULERS: &[Hint] = &[
    no("reducelronplateau reduceonplateau", "it is the schedule `plateau`"),
    no(
        "lambdalr multiplicativelr",
        "a closure is a schedule in a program of your own: `schedule::from_fn`, or `App::scheduler`",
    ),
];

/// The hint for a setting of another trainer.
pub(crate) fn setting(name: &str) -> Option<String> {
    hint(SETTINGS, name)
}

/// The fix for a setting that is written outside of `[trainer]`.
pub(crate) fn misplaced_setting(name: &str) -> Option<String> {
    let schema = schema_of::<Settings>();
    let is_setting = Schema::new(&schema).all_keys().contains(&name);
    is_setting.then(|| format!("it belongs in [trainer]: `trainer.{name}`"))
}

/// The hint for a hook or setting of another trainer. Only the last part of a path is used.
pub(crate) fn hook_elsewhere(name: &str) -> Option<String> {
    let name = name.rsplit(['.', ':']).next().unwrap_or(name);
    hint(HOOKS, name).or_else(|| setting(name))
}

/// The hint for a schedule of another trainer.
pub(crate) fn scheduler_elsewhere(name: &str) -> Option<String> {
    hint(SCHEDULERS, name)
}

fn hint(hints: &[Hint], name: &str) -> Option<String> {
    let name = normalized(name);
    let Hint { hook, text, .. } =
        hints.iter().find(|hint| hint.names.split(' ').any(|known| known == name))?;
    Some(match hook {
        Some(hook) => format!("it is the hook `{hook}`; {text}see `tenter hooks {hook}`"),
        None => (*text).to_owned(),
    })
}

/// A name in lower case without separators.
pub(crate) fn normalized(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|sign| sign.to_ascii_lowercase()).collect()
}

// With all hooks that the hints name.
#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn no_hint_hides_an_existing_name_and_all_named_hooks_exist() {
        let (registry, schema) = (Registry::default(), schema_of::<Settings>());
        let settings: Vec<_> = Schema::new(&schema).all_keys().into_iter().map(normalized).collect();
        let hooks: Vec<_> = registry.hooks().map(|listed| normalized(listed.name)).collect();
        let schedulers: Vec<_> = registry.schedulers().map(|listed| normalized(listed.name)).collect();
        for (hints, existing) in [(SETTINGS, &settings), (HOOKS, &hooks), (SCHEDULERS, &schedulers)] {
            let mut seen = Vec::new();
            for hint in hints {
                for name in hint.names.split(' ') {
                    assert_eq!(normalized(name), name, "names are compared without case and separators");
                    assert!(!existing.iter().any(|existing| *existing == name), "`{name}` exists");
                    assert!(!seen.contains(&name), "`{name}` has two hints");
                    seen.push(name);
                }
                let named = hint.hook.iter().all(|hook| registry.hook_named(hook).is_some());
                assert!(named, "{:?} is no hook", hint.hook);
                assert!(hint.hook.is_some() || !hint.text.is_empty(), "{:?} has no hint", hint.names);
            }
        }
    }
}
