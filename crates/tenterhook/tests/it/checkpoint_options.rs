//! Every option of the checkpoint hook, and its effect.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenterhook::checkpoint::read;
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::registry::Registry;
use tenterhook::settings::{BatchLimit, ValInterval};
use tenterhook::toy::Toy;
use tenterhook::{Clock, Report, RunNotice, Settings, Trainer, closure};

use crate::call_log::{CallLog, SharedVec};
use crate::lab::{Lab, data, epochs, trainer};

fn options(toml: &str) -> CheckpointOptions {
    toml::from_str(toml).unwrap()
}

fn refusal(toml: &str) -> String {
    Checkpoint::new(options(toml)).expect_err(toml).to_string()
}

fn saving(root: &Path, settings: Settings, toml: &str) -> Trainer {
    let mut trainer = trainer(settings).with_checkpoints_in(root);
    trainer.add_hook(Checkpoint::new(options(toml)).unwrap()).unwrap();
    trainer
}

/// The checkpoints below a directory and the links to them, except `latest`.
fn listed(root: &Path) -> Vec<String> {
    fn walk(directory: &Path, root: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path == root.join("latest") {
                continue;
            }
            if path.join("state.json").is_file() {
                found.push(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
            } else if path.is_dir() {
                walk(&path, root, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found.sort();
    found
}

/// A module that logs these scores at the ends of its epochs.
fn scored(scores: &'static [f64]) -> Lab {
    Lab::new(Toy::default(), &CallLog::default()).with_handler(move |place, cx| {
        if place == "on_train_epoch_end" {
            cx.log("score", scores[usize::try_from(cx.epoch()).unwrap()]);
        }
    })
}

/// The checkpoints after four epochs of two batches with the scores 3, 1, 2 and 5.
fn left_by(toml: &str) -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    saving(root.path(), epochs(4), toml).fit(&mut scored(&[3.0, 1.0, 2.0, 5.0]), &mut data(2, 1)).unwrap();
    listed(root.path())
}

fn said(report: &Report) -> Vec<String> {
    let of = |notice: &RunNotice| matches!(notice, RunNotice::Said { .. }).then(|| notice.to_string());
    report.notices.iter().filter_map(of).collect()
}

const FOUR: [&str; 4] = ["epoch=0-step=2", "epoch=1-step=4", "epoch=2-step=6", "epoch=3-step=8"];

#[test]
fn save_top_k_says_how_many_of_the_best_stay() {
    let best = |k: i64| left_by(&format!("monitor = \"score\"\nmode = \"min\"\nsave_top_k = {k}"));
    assert_eq!(best(3), FOUR[..3]);
    assert_eq!(best(1), FOUR[1..2]);
    assert_eq!(best(0), Vec::<String>::new());
    assert_eq!(best(-1), FOUR);
    assert_eq!(left_by("monitor = \"score\"\nmode = \"max\"\nsave_top_k = 1"), FOUR[3..]);
    assert!(refusal("save_top_k = -2").starts_with("`save_top_k` must be -1 (all), 0 (none) or more"));
}

#[test]
fn save_last_keeps_the_newest_under_a_separate_name() {
    let last = |save_last: &str| left_by(&format!("save_last = {save_last}\nsave_top_k = 1"));
    assert_eq!(last("true"), ["epoch=3-step=8", "last"]);
    assert_eq!(last("\"link\""), ["epoch=3-step=8", "last"]);
    assert_eq!(last("false"), ["epoch=3-step=8"]);
    assert_eq!(left_by("save_last = true\nsave_top_k = 0"), ["last"], "when training ends");
    let wrong = toml::from_str::<CheckpointOptions>("save_last = \"copy\"").unwrap_err().to_string();
    assert!(wrong.contains("true, false or \"link\""), "{wrong}");
}

#[test]
fn save_on_train_epoch_end_saves_before_or_after_the_end_of_the_epoch() {
    for (at_epoch_end, epochs_done) in [(true, 1), (false, 0)] {
        let root = tempfile::tempdir().unwrap();
        let toml = format!("save_on_train_epoch_end = {at_epoch_end}");
        saving(root.path(), epochs(1), &toml).fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
        let contents = read(&root.path().join("epoch=0-step=2")).unwrap();
        assert_eq!(contents.progress.epochs_done, epochs_done, "{at_epoch_end}");
    }
}

#[test]
fn every_n_epochs_has_two_names_and_takes_one_of_them() {
    for key in ["every_n_epochs", "save_every_n_epochs"] {
        assert_eq!(left_by(&format!("{key} = 2\nsave_top_k = -1")), [FOUR[1], FOUR[3]], "{key}");
        assert_eq!(left_by(&format!("{key} = 0\nsave_top_k = -1")), Vec::<String>::new(), "{key}");
        let both = refusal(&format!("{key} = 1\nevery_n_train_steps = 1"));
        assert!(both.contains("exclude each other"), "{both}");
    }
    assert_eq!(left_by("save_top_k = -1"), FOUR, "1 where nothing is said");
    let both = "use = \"checkpoint\"\nevery_n_epochs = 1\nsave_every_n_epochs = 1";
    let table: tenterhook::config::HookTable = toml::from_str(both).unwrap();
    let error = table.register(&mut trainer(epochs(1)), &Registry::default()).unwrap_err().to_string();
    let two = "`every_n_epochs` and `save_every_n_epochs` are names of one option";
    assert!(error.contains(two), "{error}");
}

#[test]
fn every_n_train_steps_counts_steps() {
    let left = left_by("every_n_train_steps = 3\nsave_top_k = -1");
    assert_eq!(left, ["epoch=1-step=3", "epoch=2-step=6"]);
}

/// A clock that advances ten seconds per batch.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Clock for Hand {
    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

fn timed(root: &Path, toml: &str) -> Trainer {
    let hand = Hand::default();
    let mut trainer = saving(root, epochs(2), toml).with_clock(hand.clone());
    let turn = move |_: &tenterhook::AfterForward<'_>| {
        hand.0.fetch_add(10, Ordering::Relaxed);
    };
    trainer.add_hook(closure::on_after_forward("work", turn)).unwrap();
    trainer
}

#[test]
fn train_time_interval_saves_by_the_clock() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = timed(root.path(), "train_time_interval = \"25 s\"\nsave_top_k = -1");
    trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
    assert_eq!(listed(root.path()), ["epoch=0-step=3", "epoch=1-step=6"]);
    let root = tempfile::tempdir().unwrap();
    let mut trainer = timed(root.path(), "train_time_interval = \"00:00:00:25\"\nsave_top_k = -1");
    trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
    assert_eq!(listed(root.path()), ["epoch=0-step=3", "epoch=1-step=6"]);
    for wrong in ["25", "5 steps"] {
        let read = toml::from_str::<CheckpointOptions>(&format!("train_time_interval = \"{wrong}\""));
        let error = read.expect_err(wrong).to_string();
        assert!(error.contains("is not a duration") && !error.contains("100 steps"), "{error}");
    }
}

#[test]
fn a_save_by_time_is_never_judged_by_the_metric_of_another_step() {
    for (more, at) in [
        ("", ["epoch=0-step=4", "epoch=1-step=8"]),
        ("save_on_train_epoch_end = false", ["epoch=0-step=4", "epoch=1-step=8"]),
    ] {
        let root = tempfile::tempdir().unwrap();
        let toml = format!(
            "train_time_interval = \"25 s\"\nmonitor = \"val/loss\"\nmode = \"min\"\nsave_top_k = -1\n{more}"
        );
        let report = timed(root.path(), &toml).fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
        assert_eq!(listed(root.path()), at, "each waits for the validation at the end of its epoch");
        assert_eq!(said(&report), Vec::<String>::new());
    }
    // The training metric is logged in every fourth batch: the save waits for the next value.
    let root = tempfile::tempdir().unwrap();
    let toml = "train_time_interval = \"25 s\"\nmonitor = \"seldom\"\nmode = \"min\"\nsave_top_k = -1";
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_handler(|place, cx| {
        if place == "training_step" && (cx.progress().total_batches - 1).is_multiple_of(4) {
            cx.log("seldom", 1.0);
        }
    });
    timed(root.path(), toml).fit(&mut lab, &mut data(4, 0)).unwrap();
    assert_eq!(listed(root.path()), ["epoch=1-step=5"]);
}

/// The checkpoints after epochs of six batches, and the loss of each validation by its step.
fn judged(settings: Settings, more: &str) -> (Vec<String>, Vec<String>) {
    let root = tempfile::tempdir().unwrap();
    let toml = format!(
        "monitor = \"val/loss\"\nsave_top_k = -1\nfilename = \"s{{step:02d}}_{{val/loss:.6f}}\"\n\
         auto_insert_metric_name = false\n{more}"
    );
    let mut trainer = saving(root.path(), settings, &toml);
    let validations = SharedVec::new();
    let seen = validations.clone();
    let note = move |cx: &tenterhook::ValidationEnd<'_>| {
        seen.push(format!("s{:02}_{:.6}", cx.step, cx.metrics().get("val/loss").unwrap()));
    };
    trainer.add_hook(closure::on_validation_end("note", note)).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(6, 1)).unwrap();
    (listed(root.path()), validations.take())
}

#[test]
fn a_save_by_steps_is_judged_and_named_by_the_validation_of_its_own_step() {
    for more in ["", "save_on_train_epoch_end = true", "save_on_train_epoch_end = false"] {
        let (left, validations) = judged(epochs(4), &format!("every_n_train_steps = 6\n{more}"));
        assert_eq!(left, validations, "{more}");
        assert_eq!(left.len(), 4);
        // Due at the steps 4, 8, 12, 16, 20 and 24: each save waits for the next validation.
        let (left, validations) = judged(epochs(4), &format!("every_n_train_steps = 4\n{more}"));
        assert_eq!(left, validations, "{more}");
        // Due at the steps 10 and 20.
        let (left, validations) = judged(epochs(4), &format!("every_n_train_steps = 10\n{more}"));
        assert_eq!(left, [&validations[1], &validations[3]].map(String::clone), "{more}");
    }
}

#[test]
fn a_save_by_epochs_waits_for_the_validation_too() {
    // Validations run at the steps 4, 10, 16 and 22; the epochs end at 6, 12, 18 and 24.
    let every_4_batches =
        Settings { val_check_interval: Some(ValInterval::Batches(BatchLimit::Count(4))), ..epochs(4) };
    let (left, validations) = judged(every_4_batches, "save_on_train_epoch_end = true");
    assert_eq!(validations.len(), 4);
    assert_eq!(left, validations[1..], "the first epoch's waits for the second one's validation");
    // Due in the epochs 1, 2 and 3, of which only the second validates.
    let every_2_epochs = Settings { check_val_every_n_epoch: Some(2), ..epochs(3) };
    let (left, validations) = judged(every_2_epochs, "save_on_train_epoch_end = true");
    assert_eq!(left, validations);
    assert_eq!(left.len(), 1);
}

#[test]
fn save_on_exception_saves_a_checkpoint_when_the_run_fails() {
    for (save, left) in [(true, vec!["epoch=0-step=2"]), (false, vec![])] {
        let root = tempfile::tempdir().unwrap();
        let mut trainer = saving(root.path(), epochs(1), &format!("save_on_exception = {save}"));
        let fail = |cx: &tenterhook::TrainBatchStart<'_>| assert!(cx.batch.index < 2, "enough");
        trainer
            .register(
                closure::on_train_batch_start("fail", fail),
                tenterhook::Registration { policy: Some(tenterhook::Policy::ABORT), ..Default::default() },
            )
            .unwrap();
        trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap_err();
        assert_eq!(listed(root.path()), left);
    }
}

#[test]
fn save_weights_only_leaves_nothing_to_resume_from() {
    for weights_only in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let toml = format!("save_weights_only = {weights_only}");
        saving(root.path(), epochs(1), &toml).fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
        let path = root.path().join("epoch=0-step=2");
        assert_eq!(read(&path).unwrap().weights_only, weights_only);
        assert_eq!(path.join("optimizer.safetensors").exists(), !weights_only);
    }
}

#[test]
fn dirpath_is_below_the_checkpoints_or_anywhere() {
    let root = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let below = "dirpath = \"best/of\"\nsave_last = true";
    saving(root.path(), epochs(2), below).fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    assert_eq!(listed(root.path()), ["best/of/epoch=1-step=2", "best/of/last"]);
    let absolute = format!("dirpath = {:?}", elsewhere.path());
    saving(root.path(), epochs(2), &absolute).fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    assert_eq!(listed(elsewhere.path()), ["epoch=1-step=2"]);
    assert_eq!(listed(root.path()).len(), 2);
}

#[test]
fn filename_is_filled_with_epoch_step_and_metrics() {
    let named = |filename: &str, insert: bool| {
        left_by(&format!(
            "filename = \"{filename}\"\nauto_insert_metric_name = {insert}\nmonitor = \"score\"\nmode = \"min\""
        ))
    };
    assert_eq!(named("epoch_{epoch}_score_{score:.2f}", false), ["epoch_1_score_1.00"]);
    assert_eq!(named("{epoch:03d}-{step}-{score:e}", true), ["epoch=001-step=4-score=1.000000e+00"]);
    // A slash of the template separates directories; a slash in a metric's name does not.
    assert_eq!(named("runs/{epoch}/{score:04.1f}", false), ["runs/1/01.0"]);
    let root = tempfile::tempdir().unwrap();
    for insert in ["false", "true"] {
        let toml = format!(
            "filename = \"epoch_{{epoch}}_loss_{{val/loss:.2f}}\"\nauto_insert_metric_name = {insert}"
        );
        let report = saving(root.path(), epochs(1), &toml).fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
        let loss = format!("{:.2}", report.metrics["val/loss"]);
        let name = match insert {
            "true" => format!("epoch_epoch=0_loss_val_loss={loss}"),
            _ => format!("epoch_0_loss_{loss}"),
        };
        assert!(listed(root.path()).contains(&name), "{:?}", listed(root.path()));
    }
}

#[test]
fn a_name_that_cannot_be_is_refused_before_anything_runs() {
    for (filename, hint) in [
        ("{epoch:zz}", "`zz`, which is not a format; for example, write `.2f`"),
        ("{val/loss:.2d}", "not a format"),
        ("../{epoch}", "set `dirpath`"),
        ("/tmp/{epoch}", "set `dirpath`"),
        ("{epoch", "without its"),
        ("{:.2f}", "without a name"),
    ] {
        let error = refusal(&format!("filename = \"{filename}\""));
        assert!(error.starts_with("`filename` is ") && error.contains(hint), "{error}");
    }
    let root = tempfile::tempdir().unwrap();
    let mut trainer = saving(root.path(), epochs(1), "filename = \"{val/los:.2f}\"");
    let error = trainer.fit(&mut Toy::default(), &mut data(1, 1)).unwrap_err().to_string();
    assert!(error.contains("reads `val/los`, which nothing writes; did you mean `val/loss`?"), "{error}");
    let mut trainer = saving(root.path(), epochs(1), "filename = \"{nope}\"");
    let error = trainer.fit(&mut Toy::default(), &mut data(1, 1)).unwrap_err().to_string();
    assert!(error.contains("reads `nope`, which nothing writes; there are: "), "{error}");
    assert_eq!(listed(root.path()), Vec::<String>::new());
}

#[test]
fn the_training_loss_in_a_name_is_that_of_the_step() {
    let root = tempfile::tempdir().unwrap();
    let toml = "filename = \"{step}_{train/loss:.9f}\"\nauto_insert_metric_name = false\n\
                every_n_train_steps = 2\nsave_top_k = -1";
    let mut trainer = saving(root.path(), epochs(2), toml);
    let losses = SharedVec::new();
    let seen = losses.clone();
    let note = move |cx: &tenterhook::TrainBatchEnd<'_>| {
        if cx.step.is_multiple_of(2) {
            seen.push(format!("{}_{:.9}", cx.step, cx.latest_loss().unwrap()));
        }
    };
    trainer.add_hook(closure::on_train_batch_end("note", note)).unwrap();
    let report = trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    assert_eq!(listed(root.path()), losses.take());
    assert_eq!(said(&report), Vec::<String>::new());
}

#[test]
fn useless_or_wrong_options_are_refused() {
    for (toml, begins) in [
        ("mode = \"max\"", "`mode` says which direction of the `monitor`"),
        ("monitor = \"\"", "`monitor` is empty"),
        ("dirpath = \"../elsewhere\"", "`dirpath` is \"../elsewhere\", and must do without `..`"),
        ("dirpath = \"/tmp/a/../b\"", "`dirpath` is "),
    ] {
        let error = refusal(toml);
        assert!(error.starts_with(begins), "{error}");
    }
}

#[test]
fn a_metric_in_the_name_without_a_value_is_reported_and_becomes_nan() {
    let root = tempfile::tempdir().unwrap();
    let toml = "filename = \"{step}_{val/loss:.2f}\"\nauto_insert_metric_name = false\n\
                every_n_train_steps = 1\nsave_top_k = -1";
    let report = saving(root.path(), epochs(1), toml).fit(&mut Toy::default(), &mut data(3, 1)).unwrap();
    assert_eq!(listed(root.path()), ["1_nan", "2_nan", "3_nan"]);
    assert_eq!(said(&report).len(), 1);
    assert!(
        said(&report)[0].contains("the metric `val/loss`, which is not logged yet"),
        "{:?}",
        said(&report)
    );
}

#[test]
fn only_replaced_checkpoints_are_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = saving(root.path(), epochs(1), "filename = \"model\"\nsave_top_k = -1");
    for versions in [["model"].as_slice(), &["model", "model-v1"], &["model", "model-v1", "model-v2"]] {
        trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
        assert_eq!(listed(root.path()), versions, "another fit counts anew and saves anew");
    }
    let root = tempfile::tempdir().unwrap();
    let mut trainer = saving(root.path(), epochs(2), "filename = \"newest\"");
    trainer.fit(&mut Toy::default(), &mut data(1, 0)).unwrap();
    assert_eq!(listed(root.path()), ["newest"], "each takes the place of the one it replaces");
    assert_eq!(read(&root.path().join("newest")).unwrap().progress.step, 2);
}
