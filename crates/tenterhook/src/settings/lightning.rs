//! Names that users of Lightning and other trainers type and that do not exist here, each with its answer.

use super::Settings;
use crate::config::schema::{Schema, schema_of};

/// Names with one answer.
struct Answer {
    /// The names, in lower case and without separators, so that `ModelCheckpoint` and `model_checkpoint` are one.
    names: &'static [&'static str],
    /// The hook that does it.
    hook: Option<&'static str>,
    /// What to do instead.
    text: &'static str,
}

/// An answer that names no hook.
const fn no(names: &'static [&'static str], text: &'static str) -> Answer {
    Answer { names, hook: None, text }
}

/// An answer that is a hook.
const fn hook(names: &'static [&'static str], hook: &'static str, text: &'static str) -> Answer {
    Answer { names, hook: Some(hook), text }
}

/// The answer to every kind of tuner.
const NO_TUNER: &str =
    "not supported; there is no tuner: try values with `--set` and compare the runs with `tenter compare`";

/// Keys of `[trainer]` elsewhere.
const SETTINGS: &[Answer] = &[
    no(
        &["precision", "fp16", "bf16", "amp", "ampbackend", "amplevel", "mixedprecision"],
        "not supported: training computes in the element type of the model's own tensors",
    ),
    no(
        &["accelerator", "gpus", "tpucores", "usecpu", "nocuda"],
        "set the top-level key `device`, such as device = \"cpu\"",
    ),
    no(
        &[
            "devices",
            "numnodes",
            "numprocesses",
            "syncbatchnorm",
            "usedistributedsampler",
            "replacesamplerddp",
        ],
        "not supported: training runs in one process on one device, the top-level key `device`",
    ),
    no(
        &["strategy", "plugins", "distributedbackend"],
        "not supported in a configuration: a program passes its own with `Trainer::with_strategy`",
    ),
    hook(&["profiler"], "profiler", ""),
    no(
        &["logger", "loggers", "reportto"],
        "each logger is a hook: `csv`, `jsonl`, `tensorboard`; metrics.jsonl of the run directory is always written",
    ),
    no(&["callbacks"], "each callback is a table that begins with [[hooks]]; `tenter hooks` lists them"),
    no(
        &["enableprogressbar", "progressbarrefreshrate", "disabletqdm"],
        "the progress display belongs to the command line: `tenter train --quiet` turns it off",
    ),
    hook(&["enablemodelsummary", "weightssummary"], "model_summary", ""),
    hook(&["enablecheckpointing", "checkpointcallback", "savesteps", "savestrategy"], "checkpoint", ""),
    no(
        &[
            "autolrfind",
            "autoscalebatchsize",
            "tuner",
            "lrfinder",
            "lrfind",
            "learningratefinder",
            "batchsizefinder",
        ],
        NO_TUNER,
    ),
    no(&["benchmark"], "not supported; `device` alone decides which kernels run"),
    hook(&["detectanomaly", "terminateonnan"], "nan_guard", ""),
    hook(&["trackgradnorm"], "gradient_monitor", ""),
    hook(&["stochasticweightavg"], "ema_weights", "it keeps an exponential moving average of the weights; "),
    no(
        &["barebones"],
        "not needed: an event that no hook receives costs a few instructions; leave [[hooks]] out for none",
    ),
    no(
        &["defaultrootdir", "weightssavepath", "outputdir", "loggingdir"],
        "set the top-level key `runs_dir`: each run has a directory below it",
    ),
    no(
        &["resumefromcheckpoint", "ckptpath"],
        "it is a command: `tenter resume RUN`, or `tenter train CONFIG --resume PATH`",
    ),
    no(&["inferencemode"], "not needed: evaluation always runs without a graph of gradients"),
    no(
        &["reloaddataloaderseverynepochs", "multipletrainloadermode", "preparedatapernode"],
        "not supported: loaders are made once per call; how several take turns is said in the data module (`Interleave`)",
    ),
    no(
        &["enableautologhparams", "modelregistry"],
        "not needed: run.json and config.toml of the run directory hold the whole configuration",
    ),
    no(&["numtrainepochs", "epochs"], "it is `max_epochs`, in [trainer]"),
    no(&["seedeverything", "randomseed"], "it is `seed`, in [trainer]"),
    no(&["gradientaccumulationsteps"], "it is `accumulate_grad_batches`, in [trainer]"),
    no(&["maxgradnorm", "clipgradnorm"], "it is `gradient_clip_val`, in [trainer]"),
    no(&["loggingsteps"], "it is `log_every_n_steps`, in [trainer]"),
    no(&["evalsteps", "evalstrategy", "evaluationstrategy"], "it is `val_check_interval`, in [trainer]"),
    no(
        &["learningrate", "lr", "weightdecay", "optimizer", "lrscheduler", "lrschedulertype", "warmupsteps"],
        "it belongs to the task, in [optimizer] or [[schedulers]]; `--print-config` shows all its keys",
    ),
    no(
        &[
            "batchsize",
            "perdevicetrainbatchsize",
            "perdeviceevalbatchsize",
            "numworkers",
            "dataloadernumworkers",
        ],
        "it belongs to the task, in [data]; `--print-config` shows all its keys",
    ),
];

/// Hooks elsewhere.
const HOOKS: &[Answer] = &[
    hook(&["modelcheckpoint", "checkpointcallback", "checkpointsaver"], "checkpoint", ""),
    hook(&["learningratemonitor"], "lr_monitor", ""),
    hook(&["tensorboardlogger", "tensorboardcallback"], "tensorboard", ""),
    hook(&["csvlogger"], "csv", ""),
    hook(&["jsonlogger"], "jsonl", ""),
    hook(&["devicestatsmonitor", "speedmonitor", "throughputmonitor"], "throughput", ""),
    hook(&["richmodelsummary"], "model_summary", ""),
    hook(&["terminateonnan", "detectanomaly"], "nan_guard", ""),
    hook(&["weightaveraging", "ema", "emaweightaveraging"], "ema_weights", ""),
    hook(
        &["swa", "stochasticweightaveraging", "stochasticweightavg"],
        "ema_weights",
        "equal weights of a tail of training (SWA) are not supported; ",
    ),
    hook(&["reducelronplateau"], "plateau_detector", "or the schedule `plateau`; "),
    hook(&["backbonefinetuning", "basefinetuning", "finetuning"], "freeze", ""),
    hook(&["gradientclipping"], "clip_by_norm", "or the setting `gradient_clip_val`; "),
    hook(&["slackwebhook", "webhook"], "notify", ""),
    hook(&["lambdacallback"], "exec", "or a closure in a program of your own, `closure::on_step_end`; "),
    no(&["lrfinder", "learningratefinder", "batchsizefinder"], NO_TUNER),
    no(
        &["onexceptioncheckpoint"],
        "not needed: `save_last` of the hook `checkpoint` keeps a recent one, and a signal saves an emergency checkpoint",
    ),
    no(
        &["gradientaccumulationscheduler"],
        "not supported: `accumulate_grad_batches` in [trainer] is constant for a run",
    ),
    no(
        &[
            "wandb",
            "wandblogger",
            "wandbcallback",
            "mlflow",
            "mlflowlogger",
            "comet",
            "cometlogger",
            "neptune",
            "neptunelogger",
            "clearml",
        ],
        "not supported; `jsonl`, `csv` and `tensorboard` write files, and `exec` runs a command of yours at an event",
    ),
    no(
        &["modelpruning", "pruning", "quantizationawaretraining", "lambdalayer"],
        "not supported; an update hook of your own can change gradients",
    ),
    no(
        &["progressbar", "richprogressbar", "tqdmprogressbar", "progbarlogger"],
        "`tenter train` shows progress by itself, and the hook `console` prints lines",
    ),
    no(
        &["learningratescheduler", "lrscheduler", "lrschedulercallback"],
        "a schedule is not a hook; write a [[schedulers]] table",
    ),
];

/// Schedules elsewhere.
const SCHEDULERS: &[Answer] = &[
    no(&["reducelronplateau", "reduceonplateau"], "it is the schedule `plateau`"),
    no(
        &["lambdalr", "multiplicativelr"],
        "a closure is a schedule in a program of your own: `schedule::from_fn`, or `App::scheduler`",
    ),
];

/// What to write instead of a key of `[trainer]` that another trainer has.
pub(crate) fn setting(name: &str) -> Option<String> {
    answer(SETTINGS, name)
}

/// Where a key stands that was written at the top.
pub(crate) fn below_the_top(name: &str) -> Option<String> {
    let schema = schema_of::<Settings>();
    let is_setting = Schema::new(&schema).all_keys().contains(&name);
    is_setting.then(|| format!("it belongs in [trainer]: `trainer.{name}`"))
}

/// What to use instead of a hook that another trainer has, or has as a setting. Of a path, the last part counts.
pub(crate) fn hook_elsewhere(name: &str) -> Option<String> {
    let name = name.rsplit(['.', ':']).next().unwrap_or(name);
    answer(HOOKS, name).or_else(|| setting(name))
}

/// What to use instead of a schedule that another trainer has.
pub(crate) fn scheduler_elsewhere(name: &str) -> Option<String> {
    answer(SCHEDULERS, name)
}

fn answer(answers: &[Answer], name: &str) -> Option<String> {
    let name = plain(name);
    let Answer { hook, text, .. } = answers.iter().find(|answer| answer.names.contains(&name.as_str()))?;
    Some(match hook {
        Some(hook) => format!("it is the hook `{hook}`; {text}see `tenter hooks {hook}`"),
        None => (*text).to_owned(),
    })
}

/// A name without case and separators.
pub(crate) fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|sign| sign.to_ascii_lowercase()).collect()
}

// With every hook that an answer names.
#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn no_answer_hides_a_name_that_exists_and_every_hook_named_exists() {
        let (registry, schema) = (Registry::default(), schema_of::<Settings>());
        let settings: Vec<_> = Schema::new(&schema).all_keys().into_iter().map(plain).collect();
        let hooks: Vec<_> = registry.hooks().map(|listed| plain(listed.name)).collect();
        let schedulers: Vec<_> = registry.schedulers().map(|listed| plain(listed.name)).collect();
        for (answers, existing) in [(SETTINGS, &settings), (HOOKS, &hooks), (SCHEDULERS, &schedulers)] {
            let mut seen = Vec::new();
            for answer in answers {
                for name in answer.names {
                    assert_eq!(plain(name), *name, "names are compared without case and separators");
                    assert!(!existing.iter().any(|existing| existing == name), "`{name}` exists");
                    assert!(!seen.contains(name), "`{name}` has two answers");
                    seen.push(name);
                }
                let named = answer.hook.iter().all(|hook| registry.hook_named(hook).is_some());
                assert!(named, "{:?} is no hook", answer.hook);
                assert!(answer.hook.is_some() || !answer.text.is_empty(), "{:?} has no answer", answer.names);
            }
        }
    }
}
