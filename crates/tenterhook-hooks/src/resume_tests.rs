//! Every built-in hook, resumed from every possible checkpoint, behaves as in an uninterrupted run.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use tenterhook_core::{Event, FromOptions, Hook, HookExt, NamedTensors, Request, RunInfo};
use tenterhook_testkit::{FitScript, Rig, ScriptEntry, check_resume};

#[cfg(feature = "http")]
use crate::support::http::loopback::{Answer, Server};
use crate::*;

/// A hook with these options.
fn from_toml<H: FromOptions<Options: DeserializeOwned>>(toml: &str) -> H {
    let options = toml::from_str(toml).unwrap_or_else(|error| panic!("{toml}: {error}"));
    H::from_options(options).unwrap_or_else(|error| panic!("{toml}: {error}"))
}

/// A run with this directory.
fn run(directory: &Path) -> RunInfo {
    RunInfo {
        id: "r1".into(),
        directory: Some(directory.to_owned()),
        checkpoints: directory.join("checkpoints"),
        accumulate_grad_batches: 2,
        ..RunInfo::default()
    }
}

/// Three epochs with accumulation windows of two batches, validations, loss spikes and NaN losses.
fn script() -> Vec<ScriptEntry> {
    let loss = |batch: u64| match batch {
        5 | 6 => Some(f64::NAN),
        batch if batch.is_multiple_of(3) => Some(20.0),
        batch => Some(1.0 / batch as f64),
    };
    FitScript::new(3, 5).accumulate(2).validate(2).losses(loss).logging().script()
}

/// Sets tensors and metrics for an event, computed from its position in the run.
fn prepare<H>(rig: &mut Rig<H>, entry: &ScriptEntry) {
    let number = entry.progress.total_batches as f32;
    rig.params([("a.w", [number, 1.0]), ("b.w", [0.5 * number, -1.0])]);
    let poison = if entry.progress.total_batches == 8 { f32::NAN } else { 1e-3 * number };
    rig.gradients([("a.w", [poison, 0.1]), ("b.w", [10.0 * number, 1e-12])]);
    let picture = [number, 0.0, 1.0, 2.0];
    rig.batch_tensors(NamedTensors::from([("x", [number, number])]).with("picture", [2, 2], picture));
    rig.metrics().set_step(entry.progress.step);
    match entry.event {
        Event::ValidationEpochEnd => {
            // Better, worse, and better again.
            let score = [2.0, 3.0, 1.0][usize::try_from(entry.progress.epoch).unwrap_or(0)];
            rig.metric("val/loss", score);
        }
        Event::StepEnd if entry.progress.step == 4 => {
            rig.metric("now_and_then", 1.0);
        }
        _ => {}
    }
}

fn send<H: Hook>(rig: &mut Rig<H>, entry: &ScriptEntry) {
    prepare(rig, entry);
    rig.play_entry(entry);
    if entry.event == Event::BeforeForward {
        let number = entry.progress.total_batches as f32;
        rig.activation("block.0", [number, 0.0]).activation("block.1", [-number, 1.0]);
    }
}

fn rigged<H: Hook>(hook: H, directory: &Path) -> Rig<H> {
    let mut rig = Rig::new(hook);
    rig.run(run(directory)).seed(3).lr(0.1);
    rig
}

#[track_caller]
fn resumes<H: Hook>(make: impl Fn() -> H) {
    check_resume(&script(), |directory| rigged(make(), directory), send);
}

/// Checks a hook with the options of a configuration.
#[track_caller]
fn of<H: Hook + FromOptions<Options: DeserializeOwned>>(toml: &str) {
    resumes(|| from_toml::<H>(toml));
}

#[track_caller]
fn of_update<H: Hook + FromOptions<Options: DeserializeOwned>>(toml: &str) {
    let make = |directory: &Path| {
        let mut rig = Rig::new(from_toml::<H>(toml));
        rig.run(run(directory)).seed(3);
        rig
    };
    check_resume(&script(), make, |rig, entry| {
        rig.progress(entry.progress).elapsed(entry.elapsed);
        prepare(rig, entry);
        if entry.event == Event::BeforeOptimizerStep {
            rig.update();
        }
    });
}

/// Checks the checkpoint hook, and creates and removes its directories like the trainer.
#[track_caller]
fn saving(toml: &str) {
    let (root, removed) = (RefCell::new(PathBuf::new()), RefCell::new(Vec::new()));
    let make = |directory: &Path| {
        let mut rig = rigged(from_toml::<Checkpoint>(toml), directory);
        *root.borrow_mut() = run(directory).checkpoints;
        rig.run(RunInfo { removed_checkpoints: removed.borrow().clone(), ..run(directory) });
        rig
    };
    check_resume(&script(), make, |rig, entry| {
        send(rig, entry);
        let saves = rig.deliveries().last().map(|reply| reply.decision.clone()).unwrap_or_default();
        carry_out(&root.borrow(), saves.requests(), &removed);
    });
}

fn carry_out(root: &Path, requests: &[Request], removed: &RefCell<Vec<PathBuf>>) {
    for request in requests {
        let Request::Save(save) = request else { continue };
        if let Some(path) = &save.path {
            std::fs::create_dir_all(root.join(path)).expect("it can be made");
        }
        for old in save.replaces.iter().filter(|old| Some(*old) != save.path.as_ref()) {
            let old = root.join(old);
            let _ = std::fs::remove_dir(&old);
            removed.borrow_mut().push(old);
        }
    }
}

type Row = (&'static str, fn());

/// Every hook, with options for which it has state.
const TABLE: &[Row] = &[
    ("ActivationStats", || of::<ActivationStats>("points = [\"**\"]\nlog_frequency = 2\nhistogram_bins = 4")),
    ("ActivationStore", || {
        of::<ActivationStore>("points = [\"**\"]\nevery_n_batches = 2\nmax_batches = 4");
        of::<ActivationStore>("points = [\"block.0\"]\nto = \"memory\"\nmax_batches = 3");
    }),
    ("Checkpoint", || {
        saving("monitor = \"val/loss\"\nsave_top_k = 2\nsave_last = true");
        saving("monitor = \"val/loss\"\nmode = \"max\"\nfilename = \"best\"");
        // A missing metric is an error after the first validation.
        saving("monitor = \"missing\"\nmode = \"min\"");
        saving("every_n_train_steps = 2\nsave_top_k = -1\nfilename = \"model\"\nsave_last = \"link\"");
        saving("train_time_interval = \"4 s\"\nfilename = \"{step}_{val/loss}\"\nverbose = true");
        saving("monitor = \"now_and_then\"\nmode = \"min\"\nsave_on_train_epoch_end = false");
    }),
    ("ClipByNorm", || of_update::<ClipByNorm>("max_norm = 1.0")),
    ("ClipByValue", || of_update::<ClipByValue>("limit = 0.5")),
    // It has no state, since checkpoints would then depend on it. After a resume, the line of the epoch has only the
    // metrics logged since.
    ("Console", || ()),
    ("Csv", || of::<Csv>("when_full = \"block\"")),
    ("EarlyStopping", || {
        of::<EarlyStopping>("monitor = \"val/loss\"\npatience = 2\nverbose = true");
        of::<EarlyStopping>("monitor = \"missing_loss\"\nstrict = false");
    }),
    ("EmaWeights", || of::<EmaWeights>("decay = 0.9\nupdate_every_n_steps = 2\nstart_after = \"1 step\"")),
    // Commands run again after a resume; their effects are not checked.
    ("Exec", || of::<Exec>("on = [\"on_train_epoch_end\", \"on_train_end\"]\ncommand = \"true\"")),
    ("Freeze", || of_update::<Freeze>("params = [\"a.**\"]\nfrom_step = 2\nuntil_step = 4")),
    ("GradientMonitor", || {
        of::<GradientMonitor>(
            "log_frequency = 2\nlog_histogram = true\npercentiles = [50]\nlog_update_ratio = true\n\
             exploding_threshold = 60.0",
        );
    }),
    ("GradientNoise", || of_update::<GradientNoise>("std = 0.1\ndecay = 0.5")),
    #[cfg(feature = "http")]
    ("Heartbeat", || {
        let server = Server::start(&[Answer::Status(200)]);
        resumes(|| from_toml::<Heartbeat>("url_env = \"A\"").with_address(Secret::new(server.url("/"))));
    }),
    ("Jsonl", || of::<Jsonl>("log_every_n_batches = 2")),
    ("Logging", || of::<Logging>("log_every_n_epochs = 1")),
    ("LossSpike", || {
        of::<LossSpike>("threshold = 5.0\ncount = 1\ncooldown = 2");
        of::<LossSpike>("threshold = 0.05\ncount = 2\nconsecutive = true");
    }),
    ("LrMonitor", || of::<LrMonitor>("frequency = \"epoch\"\nlog_momentum = false")),
    ("ModelSummary", || of::<ModelSummary>("")),
    ("NanGuard", || of::<NanGuard>("action = \"skip\"\npoints = [\"**\"]")),
    #[cfg(feature = "http")]
    ("Notify", || {
        let server = Server::start(&[Answer::Status(200)]);
        let toml = "url_env = \"A\"\nnotify_on = [\"training_end\", \"best_model\", \"hook_disabled\"]";
        resumes(|| from_toml::<Notify>(toml).with_address(Secret::new(server.url("/"))));
    }),
    ("PlateauDetector", || {
        of::<PlateauDetector>("monitor = \"val/loss\"\nwindow = 2\nthreshold = 1.5");
        of::<PlateauDetector>("monitor = \"missing\"");
    }),
    // A resumed run skips its first batches again, since they are slow again.
    ("Profiler", || of::<Profiler>("skip_first_batches = 0\nfilename = \"profile.json\"")),
    ("Scale", || of_update::<Scale>("params = [\"a.**\"]\nfactor = 2.0")),
    ("TensorBoard", || {
        let options = "histograms = [\"gradients\", \"weights\"]\nhistogram_every_n_steps = 2\nhistogram_bins = 4\n\
                       images = \"picture\"\nwhen_full = \"block\"";
        resumes(|| from_toml::<TensorBoard>(options).with_clock(|| 1e9));
        // Missing images are reported once.
        resumes(|| from_toml::<TensorBoard>("images = \"x\"\nwhen_full = \"block\"").with_clock(|| 1e9));
    }),
    ("Throughput", || of::<Throughput>("every_n_steps = 2\nsmoothing = 0.5")),
    // It requests a stop again after a resume, since checkpoints do not hold the request; here it requests none.
    ("Timer", || of::<Timer>("duration = \"1 h\"")),
    // It has no state either: it finds missing uploads on the disk, which a test of the trainer covers.
    #[cfg(feature = "upload")]
    ("Upload", || {
        let storage = tempfile::tempdir().expect("a directory");
        of::<Upload>(&format!("to = '{}'", storage.path().display()));
    }),
];

#[test]
fn every_hook_resumes_as_in_an_uninterrupted_run() {
    let differs = |(name, check): &&Row| std::panic::catch_unwind(check).is_err().then_some(*name);
    let wrong: Vec<_> = TABLE.iter().filter_map(|row| differs(&row)).collect();
    assert_eq!(wrong, Vec::<&str>::new(), "these hooks differ; see above for the first difference of each");
}

#[test]
#[cfg(all(feature = "http", feature = "upload"))]
fn no_hook_is_left_out() {
    let source = include_str!("lib.rs").replace("\r\n", "\n");
    let exported = source.lines().filter(|line| line.starts_with("pub use "));
    let names = exported.flat_map(|line| line.split(['{', '}', ',', ' ', ';']));
    let hooks = names.filter_map(|name| name.strip_suffix("Options")).filter(|name| !name.is_empty());
    let mut hooks: Vec<_> = hooks.collect();
    hooks.sort_unstable();
    assert!(hooks.len() > 20, "{hooks:?}");
    assert_eq!(TABLE.iter().map(|(name, _)| *name).collect::<Vec<_>>(), hooks);
}

#[test]
fn every_wrapper_resumes_as_in_an_uninterrupted_run() {
    // Writes a line for each delivered event.
    fn line_writer() -> impl Hook {
        from_toml::<Jsonl>("log_every_n_batches = 1")
    }
    for cadence in ["2 steps", "3 batches", "2 epochs", "4 s"] {
        resumes(|| line_writer().every(cadence).expect("a cadence"));
        resumes(|| line_writer().after(cadence).expect("a cadence"));
    }
    resumes(|| line_writer().once());
    resumes(|| line_writer().sampled(0.5));
    resumes(|| line_writer().every("2 batches").expect("a cadence").once());
}
