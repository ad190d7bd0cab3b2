//! The schema of a whole configuration accepts and rejects the same files as the trainer, according to a real
//! validator.

use serde_json::{Value, json};

use super::python::{answer, with};
use super::stubs::registry;
use super::*;

/// Configurations that resolve.
const RIGHT: &[&str] = &[
    "",
    "task = \"toy\"\ndevice = \"cpu\"\nruns_dir = \"runs\"\n[optimizer]\nlr = 1\ncount = 2",
    "note = \"x\"\n[trainer]\nmax_epochs = 3\nlimit_val_batches = 0.5\nfast_dev_run = 2\nmax_time = \"90 min\"",
    "[trainer]\ncheck_val_every_n_epoch = \"none\"\nval_check_interval = \"30 min\"\noverfit_batches = 3",
    "[trainer]\nval_check_interval = 0.25\noverfit_batches = 0.5",
    "[optimizer]\nlr = 0.5",
    "[optimizer]\nuse = \"sgd\"\nlr = 0.5\nmomentum = 0.9",
    "[model.head]\nbias = true\n[weights]\na = 1.5\n[[schedulers]]\nuse = \"cosine\"\nwarmup = 3",
    "hooks = []",
    "[[hooks]]\nuse = \"checkpoint\"\nmonitor = \"val/loss\"\nsave_top_k = 3\nsave_last = \"link\"\nname = \"c\"",
    "[[hooks]]\nuse = \"early_stopping\"\nmonitor = \"m\"\nmode = \"min\"\nevery = \"2 epochs\"\nafter = \"5 min\"\nonce = true\n\
     sampled = 0.5\nwhen = \"epoch > 3\"\non_error = \"disable\"\nmax_failures = 2\nenabled = false\nbudget = \"0.5%\"\nover_budget = \"warn\"",
    "[[hooks]]\nuse = \"console\"\nbudget = \" 100. % \"",
    "[[hooks]]\nuse = \"console\"\nwhen = \"not(a - 1>='x' or (b)!= -.5) && step\\n== 3\"",
    "[[hooks]]\nuse = \"checkpoint\"\nsave_every_n_epochs = 2",
    "[[hooks]]\nuse = \"mycrate.hooks.Seen\"\nthreshold = 1\nnested = { user = \"me\" }",
    "[hooks_config]\nenable_lr_monitor = true\nlr_monitor_config = { frequency = \"step\", every = \"1 epoch\" }",
    "[hooks_config]\nenable_early_stopping_hook = false\n\
     early_stopping_config = { monitor = \"val/loss\", patience = 10 }",
    "[hooks_config]\nhook_classes = [\"mycrate::hooks::Seen\"]\n\
     hook_configs.\"mycrate::hooks::Seen\" = { threshold = 5.0 }",
    "[hooks_config]\nhook_classes = [\"mycrate::hooks::Seen\", \"mycrate.Steers\"]\n\
     [hooks_config.hook_configs.mycrate.hooks.Seen]\nthreshold = 5.0",
    super::hooks_config::DOCUMENTED,
];

/// Configurations that the schema must reject.
const WRONG: &[&str] = &[
    "task = \"lap\"",
    "task = \"\"",
    "[[hooks]]\nuse = \"console\"\nwhen = \"\"",
    "[[hooks]]\nuse = \"console\"\nwhen = \"x\"",
    "[[hooks]]\nuse = \"console\"\nwhen = \"x <=\"",
    "device = 3",
    "nte = \"x\"",
    "task = \"toy\"\nnote = \"x\"",
    "[trainer]\nmax_epoch = 3",
    "[trainer]\nlimit_val_batches = 1.5",
    "[trainer]\nmax_epochs = \"many\"",
    "[optimizer]\nuse = \"sdg\"",
    "[optimizer]\nuse = \"sgd\"\nlr = 0.1\nbetas = [0.9, 0.9]",
    "[model.head]\nbais = true",
    "[model]\nkind = \"rnn\"",
    "hooks = 3",
    "[[hooks]]\nmonitor = \"m\"",
    "[[hooks]]\nuse = \"chekpoint\"",
    "[[hooks]]\nuse = \"checkpoint\"\nsave_topk = 3",
    "[[hooks]]\nuse = \"checkpoint\"\npatience = 3",
    "[[hooks]]\nuse = \"early_stopping\"",
    "[[hooks]]\nuse = \"early_stopping\"\nmonitor = \"m\"\nmode = \"up\"",
    "[[hooks]]\nuse = \"checkpoint\"\nevery = \"0 steps\"",
    "[[hooks]]\nuse = \"checkpoint\"\nevery = \"3 moons\"",
    "[[hooks]]\nuse = \"checkpoint\"\nsampled = 0",
    "[[hooks]]\nuse = \"checkpoint\"\nsampled = 1.5",
    "[[hooks]]\nuse = \"checkpoint\"\nonce = \"yes\"",
    "[[hooks]]\nuse = \"checkpoint\"\nwhen = \"\"",
    "[[hooks]]\nuse = \"checkpoint\"\nmax_failures = 0",
    "[[hooks]]\nuse = \"console\"\nbudget = 0.5",
    "[[hooks]]\nuse = \"console\"\nbudget = \"0.0%\"",
    "[[hooks]]\nuse = \"console\"\nbudget = \"100.5%\"",
    "[[hooks]]\nuse = \"console\"\nbudget = \"2%\"\nover_budget = \"stop\"",
    "[[hooks]]\nuse = \"mycrate::hooks::Seen\"\nnested = { usr = \"me\" }",
    "[hooks_config]\nenable_lr_monitr = true",
    "[hooks_config]\nenable_lr_monitor = \"yes\"",
    "[hooks_config]\nlr_monitor_config = {}",
    "[hooks_config]\nenable_early_stopping_hook = true",
    "[hooks_config]\nenable_lr_monitor = true\nlr_monitor_config = { frequncy = \"step\" }",
    "[hooks_config]\nenable_lr_monitor = true\nlr_monitor_config = { use = \"logging\" }",
    "[hooks_config]\nhook_classes = [\"mycrate::hooks::Sen\"]",
    "[hooks_config]\nhook_classes = [\"mycrate::hooks::Seen\", \"mycrate::hooks::Seen\"]",
    "[hooks_config]\nhook_classes = [\"mycrate::hooks::Seen\"]\n[hooks_config.hook_configs.mycrate.hooks.Sen]",
    "[hooks_config]\nhook_classes = [\"mycrate::hooks::Seen\"]\n[hooks_config.hook_configs.mycrate.hooks.Seen]\ntreshold = 1",
    "trainer = [3]",
    "hooks_config = []",
    "[hooks_config]\nhook_classes = [\"mycrate::hooks::Seen\"]\n\
     hook_configs.\"mycrate::hooks::Seen\" = { treshold = 5.0 }",
];

/// A value of each option that is out of its range, as `hook` and `option = value`.
const OUT_OF_RANGE: &[(&str, &str)] = &[
    ("console", "log_every_n_batches = 0"),
    ("jsonl", "log_every_n_batches = 0"),
    ("jsonl", "path = \"\""),
    ("logging", "log_every_n_epochs = 0"),
    ("tensorboard", "dir = \"\""),
    ("tensorboard", "histograms = [\"activations\"]"),
    ("tensorboard", "histogram_every_n_steps = 0"),
    ("tensorboard", "histogram_bins = 0"),
    ("tensorboard", "histogram_bins = 10001"),
    ("tensorboard", "params = []"),
    ("tensorboard", "images_every_n_epochs = 0"),
    ("tensorboard", "max_images = 0"),
    ("tensorboard", "queue_size = 0"),
    ("tensorboard", "when_full = \"drop\""),
    ("csv", "path = \"\""),
    ("csv", "queue_size = 0"),
    ("csv", "when_full = \"drop\""),
    ("checkpoint", "save_top_k = -2"),
    ("checkpoint", "save_top_k = 2"),
    ("checkpoint", "train_time_interval = \"5 epochs\""),
    ("checkpoint", "train_time_interval = \"0 min\""),
    ("checkpoint", "every_n_epochs = 1\nevery_n_train_steps = 5"),
    ("checkpoint", "every_n_epochs = 1\ntrain_time_interval = \"5 min\""),
    ("checkpoint", "every_n_train_steps = 1\ntrain_time_interval = \"5 min\""),
    ("checkpoint", "every_n_epochs = 1\nsave_every_n_epochs = 1"),
    ("early_stopping", "monitor = \"\""),
    ("early_stopping", "monitor = \"val/loss\"\nmin_delta = -1"),
    ("early_stopping", "monitor = \"val/loss\"\npatience = -1"),
    ("gradient_monitor", "log_frequency = 0"),
    ("gradient_monitor", "histogram_bins = 0"),
    ("gradient_monitor", "histogram_bins = 10001"),
    ("activation_stats", "histogram_bins = 10001"),
    ("gradient_monitor", "percentiles = [101]"),
    ("gradient_monitor", "vanishing_threshold = -1"),
    ("gradient_monitor", "exploding_threshold = -1"),
    ("activation_stats", "log_frequency = 0"),
    ("activation_stats", "points = []"),
    ("activation_stats", "stages = []"),
    ("activation_stats", "stages = [\"fit\"]"),
    ("activation_stats", "statistics = []"),
    ("activation_stats", "statistics = [\"median\"]"),
    ("activation_store", ""),
    ("activation_store", "points = []"),
    ("activation_store", "points = [\"x\"]\nevery_n_batches = 0"),
    ("activation_store", "points = [\"x\"]\nmax_batches = 0"),
    ("activation_store", "points = [\"x\"]\nstages = []"),
    ("activation_store", "points = [\"x\"]\nto = \"disk\""),
    ("activation_store", "points = [\"x\"]\ndir = \"\""),
    ("activation_store", "points = [\"x\"]\nmax_bytes = 0"),
    ("activation_store", "points = [\"x\"]\nmax_bytes = \"much\""),
    ("activation_store", "points = [\"x\"]\nmax_bytes = \"0 MB\""),
    ("activation_store", "points = [\"x\"]\nmax_bytes = 1.5"),
    ("nan_guard", "max_dumps = 0"),
    ("nan_guard", "points = []"),
    ("plateau_detector", "monitor = \"\""),
    ("plateau_detector", "window = 1"),
    ("plateau_detector", "threshold = 0"),
    ("loss_spike", "factor = 1"),
    ("loss_spike", "factor = 0"),
    ("loss_spike", "min_lr = -1"),
    ("ema_weights", "decay = 2"),
    ("ema_weights", "decay = -0.1"),
    ("ema_weights", "update_every_n_steps = 0"),
    ("ema_weights", "start_after = \"soon\""),
    ("throughput", "every_n_steps = 0"),
    ("throughput", "smoothing = 1"),
    ("throughput", "smoothing = -0.5"),
    ("timer", "duration = \"5 epochs\""),
    ("timer", "duration = \"00:00:00:00\""),
    ("timer", "duration = \"1.5 h\""),
    ("timer", "duration = \"30m 1h\""),
    ("timer", "duration = \"5 min ago\""),
    ("csv", "flush_timeout = \"0 s\""),
    ("ema_weights", "start_after = \"0 s\""),
    ("profiler", "filename = \"\""),
    ("model_summary", "max_depth = -2"),
    ("identity", "factor = 1"),
    ("clip_by_norm", "max_norm = 0"),
    ("clip_by_norm", "max_norm = -1"),
    ("clip_by_norm", "per_parameter = true"),
    ("clip_by_norm", "max_norm = 1\nparams = []"),
    ("clip_by_norm", "max_norm = 1\nparams = [\"\"]"),
    ("clip_by_value", "limit = 0"),
    ("clip_by_value", "limit = 1\nparams = []"),
    ("gradient_noise", "std = -0.1"),
    ("gradient_noise", "decay = 0.55"),
    ("gradient_noise", "std = 0.1\ndecay = -1"),
    ("gradient_noise", "std = 0.1\nparams = []"),
    ("freeze", "params = []"),
    ("freeze", "from_step = 1"),
    ("freeze", "params = [\"**\"]\nfrom_step = 0"),
    ("freeze", "params = [\"**\"]\nuntil_step = 0"),
    ("scale", "params = [\"**\"]"),
    ("scale", "factor = 1\nparams = []"),
];

/// Values at the edge of what is allowed.
const IN_RANGE: &[(&str, &str)] = &[
    ("console", "log_every_n_batches = 1"),
    ("checkpoint", "save_top_k = -1\ntrain_time_interval = \"90 sec\"\nevery_n_epochs = 0"),
    ("checkpoint", "save_top_k = 1\nsave_every_n_epochs = 2"),
    ("gradient_monitor", "percentiles = [0, 50.5, 100]\nvanishing_threshold = 0"),
    ("activation_stats", "log_frequency = 1\nstatistics = []\nhistogram_bins = 1\nunit_axis = -1"),
    ("activation_stats", "stages = [\"train\", \"validate\", \"test\", \"predict\"]"),
    ("activation_store", "points = [\"x\"]\nmax_batches = 1\nmax_bytes = 1\nto = \"memory\""),
    ("activation_store", "points = [\"x\"]\nmax_bytes = \"64 MB\"\nto = \"safetensors\""),
    ("activation_store", "points = [\"x\"]\nmax_bytes = \"1gib\""),
    ("nan_guard", "max_dumps = 0\ndump = false\npoints = []\ncheck_activations = false"),
    ("plateau_detector", "window = 2\nthreshold = 0.001"),
    ("ema_weights", "decay = 0\nstart_after = \"2 epochs\""),
    ("throughput", "smoothing = 0"),
    ("timer", "duration = \"00:12:00:00\""),
    ("timer", "duration = \"2 h\""),
    ("timer", "duration = \" 1h 30m \""),
    ("timer", "duration = \"2 days\""),
    ("csv", "flush_timeout = \"500 ms\""),
    ("ema_weights", "start_after = \"1h 30m\""),
    ("model_summary", "max_depth = -1"),
    ("identity", ""),
    (
        "clip_by_norm",
        "max_norm = 1e-3\nparams = [\"**.bias\", \"fc*\"]\nper_parameter = true\ncheck_finite = true",
    ),
    ("clip_by_value", "limit = 1"),
    ("gradient_noise", "std = 0\ndecay = 0"),
    ("freeze", "params = [\"**\"]\nfrom_step = 3\nuntil_step = 3"),
    ("scale", "factor = -1"),
    ("scale", "factor = 0\ncheck_finite = true"),
];

fn tables(cases: &[(&str, &str)]) -> Vec<String> {
    cases.iter().map(|(hook, options)| format!("[[hooks]]\nuse = \"{hook}\"\n{options}")).collect()
}

#[test]
fn a_validator_knows_the_ranges_of_the_options_as_we_do() {
    let (wrong, right) = (tables(OUT_OF_RANGE), tables(IN_RANGE));
    for file in &right {
        resolve_with(&registry(), file, &[], &[]).unwrap_or_else(|error| panic!("{file}\n{error}"));
    }
    for file in &wrong {
        assert!(resolve_with(&registry(), file, &[], &[]).is_err(), "{file}");
    }
    let Some(python) = with("jsonschema") else { return };
    let schema = config_schema(&tasks(), &registry());
    let texts = |files: &[String]| -> Vec<Vec<String>> {
        verdicts(&python, &schema, &files.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for (file, found) in right.iter().zip(texts(&right)) {
        assert!(found.is_empty(), "{file}\n{found:#?}");
    }
    for (file, found) in wrong.iter().zip(texts(&wrong)) {
        assert!(!found.is_empty(), "it finds nothing wrong with\n{file}");
    }
}

#[test]
fn a_validator_names_the_key_that_is_wrong_in_a_hook() {
    let Some(python) = with("jsonschema") else { return };
    let schema = config_schema(&tasks(), &registry());
    for (file, named) in [
        ("[[hooks]]\nuse = \"checkpoint\"\nsave_topk = 3", "save_topk"),
        ("[[hooks]]\nuse = \"early_stopping\"", "monitor"),
        ("[[hooks]]\nuse = \"chekpoint\"", "chekpoint"),
        ("[[hooks]]\nuse = \"console\"\nlog_every_n_batches = 0", "minimum of 1"),
    ] {
        let found = &verdicts(&python, &schema, &[file])[0];
        assert!(found.len() == 1 && found[0].contains(named), "{file}\n{found:#?}");
    }
}

const VALIDATE: &str = r#"
import json, sys
from jsonschema import Draft202012Validator
asked = json.load(sys.stdin)
Draft202012Validator.check_schema(asked["schema"])
validator = Draft202012Validator(asked["schema"])
print(json.dumps([[error.message[:300] for error in validator.iter_errors(case)] for case in asked["cases"]]))
"#;

/// The errors of the validator for each case.
fn verdicts(python: &str, schema: &Value, cases: &[&str]) -> Vec<Vec<String>> {
    let cases: Vec<_> =
        cases.iter().map(|case| json!(toml::from_str::<toml::Table>(case).expect(case))).collect();
    let asked = json!({ "schema": schema, "cases": cases }).to_string();
    serde_json::from_value(answer(python, VALIDATE, &asked)).expect("its verdicts")
}

#[test]
fn the_cases_are_valid_or_invalid_as_listed() {
    for file in RIGHT {
        resolve_with(&registry(), file, &[], &[]).unwrap_or_else(|error| panic!("{file}\n{error}"));
    }
    for file in WRONG {
        assert!(resolve_with(&registry(), file, &[], &[]).is_err(), "{file}");
    }
}

#[test]
fn a_real_validator_agrees_with_us() {
    let Some(python) = with("jsonschema") else { return };
    let schema = config_schema(&tasks(), &registry());
    for (file, found) in RIGHT.iter().zip(verdicts(&python, &schema, RIGHT)) {
        assert!(found.is_empty(), "{file}\n{found:#?}");
    }
    for (file, found) in WRONG.iter().zip(verdicts(&python, &schema, WRONG)) {
        assert!(!found.is_empty(), "it finds nothing wrong with\n{file}");
    }
}

#[test]
fn the_printed_configuration_is_valid() {
    let Some(python) = with("jsonschema") else { return };
    let schema = config_schema(&tasks(), &registry());
    let printed: Vec<_> = RIGHT
        .iter()
        .filter_map(|file| Some(resolve_with(&registry(), file, &[], &[]).ok()?.to_toml()))
        .collect();
    let printed: Vec<_> = printed.iter().map(String::as_str).collect();
    for (file, found) in printed.iter().zip(verdicts(&python, &schema, &printed)) {
        assert!(found.is_empty(), "{file}\n{found:#?}");
    }
}

#[test]
fn the_schema_has_everything_with_its_description() {
    let schema = config_schema(&tasks(), &registry());
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["task"]["enum"], json!(["lab", "toy"]));
    let hooks = schema["properties"]["hooks"]["items"]["allOf"].as_array().expect("alternatives");
    assert_eq!(hooks.len(), registry().hooks().count());
    let definitions = &schema["$defs"];
    let patience = &definitions["hook_early_stopping"]["properties"]["patience"];
    assert!(
        patience["description"].as_str().is_some_and(|text| text.contains("Checks, not epochs")),
        "{patience}"
    );
    for key in hook_keys::HOOK_KEYS {
        assert!(definitions["hook_checkpoint"]["properties"][key]["description"].is_string(), "{key}");
    }
    // Every reference resolves.
    let text = schema.to_string();
    for reference in text.split("\"$ref\":\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        let target = reference.strip_prefix('#').expect("a reference within the schema");
        assert!(schema.pointer(target).is_some(), "{reference}");
    }
}
