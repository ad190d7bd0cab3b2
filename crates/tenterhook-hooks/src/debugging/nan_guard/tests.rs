//! The guard without a trainer.

use std::path::Path;

use tenterhook_core::{Event, NamedTensors, Progress, RunInfo, State};
use tenterhook_testkit::Rig;

use super::*;

const GOOD: [f32; 3] = [0.1, -0.2, 0.0];

/// A rig that counts batches and steps as a loop would.
struct Run {
    rig: Rig<NanGuard>,
    at: Progress,
}

impl Run {
    fn new(options: NanGuardOptions) -> Run {
        let mut rig = Rig::new(NanGuard::new(options).expect("they fit"));
        rig.params([("w", vec![1.0, 2.0]), ("b", vec![0.5])]);
        Run { rig, at: Progress::default() }
    }

    /// A batch with this loss and these gradients of `w` and `b`. `ends`: it ends its window with a step.
    fn batch_of_window(&mut self, loss: f64, [w0, w1, b]: [f32; 3], ends: bool) {
        (self.at.batches, self.at.step_counted) = (self.at.batches + 1, false);
        let rig = self.rig.progress(self.at).loss(loss);
        rig.gradients([("w", vec![w0, w1]), ("b", vec![b])]);
        rig.on_train_batch_start();
        rig.on_before_backward();
        let skips = rig.on_after_backward().decision.flows().contains(&Flow::SkipUpdate);
        if ends && !skips {
            (self.at.step, self.at.step_counted) = (self.at.step + 1, true);
        }
        self.rig.progress(self.at).on_train_batch_end();
    }

    fn batch(&mut self, loss: f64, gradients: [f32; 3]) {
        self.batch_of_window(loss, gradients, true);
    }

    fn said(&self) -> Vec<String> {
        self.rig.said().into_iter().map(|(_, text)| text).collect()
    }

    fn failures(&self) -> Vec<String> {
        self.rig.failures().iter().map(|failed| failed.failure.error.to_string()).collect()
    }
}

fn undumped(action: NanAction) -> NanGuardOptions {
    NanGuardOptions { action, dump: false, ..NanGuardOptions::default() }
}

/// The last good step, the number of consecutive non-finite steps, and the number of dumps.
fn kept(rig: &Rig<NanGuard>) -> (Option<u64>, u64, u64) {
    let hook = rig.hook();
    (hook.state.last_good_step, hook.state.in_a_row, hook.state.dumps)
}

#[test]
fn finite_batches_report_decide_and_write_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    let mut run = Run::new(NanGuardOptions::default());
    run.rig.run(RunInfo { directory: Some(root.path().to_owned()), ..RunInfo::default() });
    for _ in 0..3 {
        run.batch(1.0, GOOD);
    }
    assert_eq!((run.rig.decisions(), run.said(), run.failures()), (vec![], vec![], vec![]));
    assert_eq!(std::fs::read_dir(root.path()).expect("it lists").count(), 0);
    assert_eq!(run.rig.hook().last_good_step(), Some(3));
}

#[test]
fn every_action_works() {
    let what = "the loss is NaN; values are not finite in the gradient of `w` (1 of 2)";
    for (action, decided, raised) in [
        (NanAction::Warn, Decision::CONTINUE, false),
        (NanAction::Skip, Decision::skip_update(), false),
        (NanAction::Stop, Decision::stop(what).and(Flow::SkipUpdate), false),
        (NanAction::Raise, Decision::skip_update(), true),
    ] {
        let mut run = Run::new(undumped(action));
        run.batch(1.0, GOOD);
        run.batch(f64::NAN, [0.0, f32::INFINITY, 0.0]);
        let decisions: Vec<_> =
            if decided.is_continue() { Vec::new() } else { vec![(Event::AfterBackward, decided)] };
        assert_eq!(run.rig.decisions(), decisions, "{action:?}");
        let place = if raised { "batch 1 of `train`" } else { "step 2 (epoch 1, batch 1 of `train`)" };
        let mut text = format!("{place}: {what}; the last good step was 1");
        if action != NanAction::Warn {
            text += "; the update was skipped";
        }
        let (said, failed) = if raised { (vec![], vec![text]) } else { (vec![text], vec![]) };
        assert_eq!((run.said(), run.failures()), (said, failed), "{action:?}");
    }
}

#[test]
fn disabled_checks_find_nothing() {
    let skips = |change: fn(&mut NanGuardOptions), loss: f64, gradients: [f32; 3]| {
        let mut options = undumped(NanAction::Skip);
        change(&mut options);
        let mut run = Run::new(options);
        run.batch(loss, gradients);
        !run.rig.decisions().is_empty()
    };
    let poisoned = [f32::NAN, 0.0, 0.0];
    assert!(skips(|_| {}, f64::INFINITY, GOOD) && skips(|_| {}, 1.0, poisoned));
    assert!(!skips(|options| options.check_loss = false, f64::INFINITY, GOOD));
    assert!(!skips(|options| options.check_gradients = false, 1.0, poisoned));
    assert!(skips(|options| options.check_gradients = false, f64::NAN, poisoned));
}

#[test]
fn selected_activations_are_checked_in_training_only() {
    let shown = |options: NanGuardOptions, point: &str, phase: Phase| {
        let mut run = Run::new(options);
        run.rig.on_train_batch_start();
        run.rig.phase(phase).activation(point, [1.0, f32::NAN]);
        run.rig.phase(Phase::Train);
        run.rig.on_after_backward().decision == Decision::skip_update()
    };
    let of = |points: &[&str]| NanGuardOptions {
        points: points.iter().map(|&point| point.to_owned()).collect(),
        ..undumped(NanAction::Skip)
    };
    assert!(shown(of(&["**"]), "blocks.0.mlp", Phase::Train));
    assert!(shown(of(&["head", "blocks.*.mlp"]), "blocks.0.mlp", Phase::Train));
    assert!(!shown(of(&["blocks.*.mlp"]), "head", Phase::Train));
    assert!(!shown(of(&["**"]), "head", Phase::Validate) && !shown(of(&["**"]), "head", Phase::SanityCheck));
    let off = NanGuardOptions { check_activations: false, ..of(&["**"]) };
    assert!(!shown(off, "head", Phase::Train));
}

#[test]
fn only_the_events_of_enabled_checks_are_wanted() {
    let wants = |check_activations, check_loss| {
        let options = NanGuardOptions { check_loss, check_activations, ..NanGuardOptions::default() };
        let events = tenterhook_core::AnyHook::new(NanGuard::new(options).expect("they fit")).spec().events;
        [Event::Activation, Event::BeforeBackward].map(|event| events.contains(event))
    };
    assert_eq!(wants(true, true), [true, true]);
    assert_eq!(wants(false, true), [false, true]);
    assert_eq!(wants(true, false), [true, false]);
}

#[test]
fn unmatched_points_are_reported_once_after_the_first_batch() {
    let said = |points: &[&str], shown: &[&str]| {
        let points = points.iter().map(|&point| point.to_owned()).collect();
        let mut run = Run::new(NanGuardOptions { points, ..undumped(NanAction::Skip) });
        for _ in 0..2 {
            run.rig.on_train_batch_start();
            for point in shown {
                run.rig.activation(point, [1.0]);
            }
            run.rig.on_train_batch_end();
        }
        run.said()
    };
    let expected = "`points`: no hook point matches `head`, `x.*`; there are: `blocks.0.mlp`, `tail`";
    assert_eq!(said(&["head", "blocks.**", "x.*"], &["blocks.0.mlp", "tail"]), [expected]);
    let none = "`points`: nothing matches `head`: the module exposes no activations";
    assert_eq!(said(&["head"], &[]), [none]);
    assert!(said(&["**"], &[]).is_empty(), "nobody chose anything");
    assert!(said(&["blocks.**"], &["blocks.0.mlp", "tail"]).is_empty());
}

#[test]
fn a_report_distinguishes_nan_from_infinity_and_a_batch_without_tensors_is_reported() {
    let root = tempfile::tempdir().expect("a directory");
    let options = NanGuardOptions { action: NanAction::Skip, ..NanGuardOptions::default() };
    let mut run = Run::new(options);
    run.rig.run(RunInfo { directory: Some(root.path().to_owned()), ..RunInfo::default() });
    run.rig.batch_tensors(NamedTensors::default());
    run.rig.on_train_batch_start();
    for values in [[1.0, 2.0, 3.0, 4.0], [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 5.0]] {
        run.rig.on_train_batch_start();
        run.rig.activation("head", values);
    }
    run.rig.on_after_backward();
    run.rig.on_train_batch_end();
    let said = run.said().pop().expect("it is said");
    assert!(said.starts_with("the batch exposes no tensors; only the statistics are in "), "{said}");
    let report = std::fs::read(root.path().join("nan_guard/step_1/report.json")).expect("it is there");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    for of in [&report["found"][0], &report["activations"][0]] {
        assert_eq!([&of["non_finite"], &of["nan"], &of["infinite"]], [3, 1, 2], "{of}");
    }
    assert_eq!(report["activations"][0]["mean"], 5.0);
}

#[test]
fn an_activation_of_a_step_without_a_loss_is_found() {
    let mut run = Run::new(undumped(NanAction::Raise));
    run.rig.no_loss().on_train_batch_start();
    run.rig.activation("head", [f32::NAN]).on_train_batch_end();
    assert!(run.failures()[0].contains("values are not finite in activation `head` (1 of 1)"));
}

#[test]
fn too_many_consecutive_findings_fail_the_run_and_a_finite_step_resets_the_count() {
    for action in [NanAction::Warn, NanAction::Skip] {
        let mut run = Run::new(NanGuardOptions { max_consecutive: 2, ..undumped(action) });
        for loss in [f64::NAN, 1.0, f64::NAN] {
            run.batch(loss, GOOD);
        }
        assert_eq!(run.failures(), Vec::<String>::new(), "{action:?}");
        let again = run.said().into_iter().find(|text| text.contains("finite again"));
        assert!(again.is_some_and(|text| text.ends_with("after 1 non-finite")), "{:?}", run.said());
        let skips = run.rig.decisions().len();
        run.batch(f64::NAN, GOOD);
        assert!(run.failures()[0].contains("2 consecutive non-finite steps"), "{:?}", run.failures());
        assert_eq!(run.rig.decisions().len(), skips + 1, "{action:?}: the last one is skipped in any case");
    }
}

#[test]
fn the_first_ten_consecutive_findings_and_then_every_hundredth_are_reported() {
    let mut run = Run::new(undumped(NanAction::Warn));
    for _ in 0..250 {
        run.batch(f64::NAN, GOOD);
    }
    assert_eq!(run.said().len(), 12);
}

#[test]
fn a_window_is_counted_once_and_skipped_as_a_whole() {
    let mut run = Run::new(undumped(NanAction::Skip));
    run.rig.run(RunInfo { accumulate_grad_batches: 2, ..RunInfo::default() });
    let sum = [f32::NAN, 0.0, 0.0];
    run.batch_of_window(f64::NAN, sum, false);
    // The second batch is finite; the accumulated gradients of the window are not.
    run.batch_of_window(1.0, sum, true);
    assert_eq!(run.said().len(), 1, "{:?}", run.said());
    assert_eq!(run.rig.hook().state.in_a_row, 1);
    run.batch_of_window(1.0, GOOD, false);
    assert_eq!(kept(&run.rig), (None, 1, 0));
    run.batch_of_window(1.0, GOOD, true);
    assert_eq!(kept(&run.rig), (Some(1), 0, 0));
}

#[test]
fn two_findings_in_a_window_are_both_reported_and_count_as_one_step() {
    let mut run = Run::new(undumped(NanAction::Skip));
    run.rig.run(RunInfo { accumulate_grad_batches: 2, ..RunInfo::default() });
    run.batch_of_window(f64::NAN, GOOD, false);
    run.batch_of_window(f64::INFINITY, GOOD, true);
    assert_eq!((run.said().len(), run.rig.hook().state.in_a_row), (2, 1));
}

#[test]
fn every_new_set_of_shapes_is_reported_once() {
    let mut run = Run::new(NanGuardOptions { log_shapes: true, ..NanGuardOptions::default() });
    for rows in [2, 2, 3, 2] {
        run.rig.batch_tensors(NamedTensors::default().with("x", [rows, 1], vec![0.0; rows]));
        run.rig.on_train_batch_start();
    }
    assert_eq!(run.said(), ["shapes of the batch: `x` F32[2, 1]", "shapes of the batch: `x` F32[3, 1]"]);
    for rows in 4..80 {
        run.rig.batch_tensors(NamedTensors::default().with("x", [rows], vec![0.0; rows]));
        run.rig.on_train_batch_start();
    }
    assert_eq!(run.said().len(), 51, "and no more");
    let mut silent = Run::new(NanGuardOptions::default());
    silent.rig.batch_tensors([("x", [1.0])]).on_train_batch_start();
    assert!(silent.said().is_empty());
}

/// A run that fails in its second batch, with its files in `root`.
fn dumped(root: &Path, change: impl FnOnce(&mut RunInfo)) -> Run {
    let mut run = Run::new(NanGuardOptions::default());
    let mut info = RunInfo {
        directory: Some(root.to_owned()),
        checkpoints: root.join("elsewhere/checkpoints"),
        ..RunInfo::default()
    };
    change(&mut info);
    run.rig.run(info).batch_tensors(NamedTensors::default().with("x", [2, 1], [1.0, f32::NAN]));
    run.batch(1.0, GOOD);
    run.rig.activation("head", [3.0, 4.0]);
    run.batch(f64::NAN, [f32::NAN, 1.0, 2.0]);
    run
}

#[test]
fn a_dump_has_the_batch_and_the_report_and_the_code_to_load_them() {
    let root = tempfile::tempdir().expect("a directory");
    let run = dumped(root.path(), |_| {});
    let place = root.path().join("nan_guard/step_2");
    let bytes = std::fs::read(place.join("batch.safetensors")).expect("it is there");
    let batch = safetensors::SafeTensors::deserialize(&bytes).expect("it is whole");
    let x = batch.tensor("x").expect("x");
    assert_eq!((x.dtype(), x.shape()), (safetensors::Dtype::F32, &[2, 1][..]));
    assert_eq!(x.data()[..4], 1f32.to_le_bytes());

    let report = std::fs::read(place.join("report.json")).expect("it is there");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(
        (&report["step"], &report["last_good_step"], &report["batch"]),
        (&2.into(), &1.into(), &1.into())
    );
    assert_eq!((&report["loss"], &report["loader"]), (&"nan".into(), &"train".into()));
    let found = serde_json::json!([
        { "in": "loss", "value": "nan" },
        { "in": "gradient", "name": "w", "non_finite": 1, "nan": 1, "infinite": 0, "count": 2 },
    ]);
    assert_eq!(report["found"], found);
    assert_eq!(
        (&report["parameters"][0]["name"], &report["parameters"][0]["mean"]),
        (&"w".into(), &1.5.into())
    );
    assert_eq!((&report["gradients"][1]["name"], &report["gradients"][1]["max"]), (&"b".into(), &2.0.into()));
    assert_eq!(report["batch_tensors"][0]["non_finite"], 1);
    assert_eq!(report["note"], "mean, std, min and max are over the finite values");

    let lines = format!(
        "import safetensors.numpy; batch = safetensors.numpy.load_file(\"{0}/batch.safetensors\")\n\
         import json; report = json.load(open(\"{0}/report.json\"))",
        place.display()
    );
    assert!(run.said()[0].ends_with(&lines), "{}", run.said()[0]);
    let left: Vec<_> = std::fs::read_dir(root.path().join("nan_guard")).expect("it lists").collect();
    assert_eq!(left.len(), 1, "nothing unfinished: {left:?}");
}

#[test]
fn the_activations_in_a_report_are_those_of_its_own_batch() {
    let root = tempfile::tempdir().expect("a directory");
    let mut run = Run::new(NanGuardOptions::default());
    run.rig.run(RunInfo { directory: Some(root.path().to_owned()), ..RunInfo::default() });
    for points in [&["a", "b", "c"][..], &["a", "c"], &["a"]] {
        run.rig.on_train_batch_start();
        for (at, point) in (1_u8..).zip(points) {
            run.rig.activation(point, [f32::from(at)]);
        }
    }
    run.rig.loss(f64::NAN).on_before_backward();
    run.rig.on_after_backward();
    run.rig.on_train_batch_end();
    let report = std::fs::read(root.path().join("nan_guard/step_1/report.json")).expect("it is there");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let activations = report["activations"].as_array().expect("a list");
    assert_eq!(activations.len(), 1);
    assert_eq!((&activations[0]["name"], &activations[0]["mean"]), (&"a".into(), &1.0.into()));
}

#[test]
fn dumps_are_beside_the_checkpoints_without_a_run_directory_and_never_in_a_dry_run() {
    let root = tempfile::tempdir().expect("a directory");
    dumped(root.path(), |info| info.directory = None);
    assert!(root.path().join("elsewhere/nan_guard/step_2/report.json").is_file());
    dumped(root.path(), |info| info.fast_dev_run = true);
    assert!(!root.path().join("nan_guard").exists());
}

#[test]
fn a_dump_that_fails_is_reported_and_changes_nothing() {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::write(root.path().join("nan_guard"), "in the way").expect("it writes");
    let run = dumped(root.path(), |_| {});
    assert!(run.said()[0].starts_with("cannot dump the batch below "), "{:?}", run.said());
    assert_eq!(run.failures().len(), 1);
    assert!(run.failures()[0].starts_with("batch 1 of `train`: the loss is NaN"), "{:?}", run.failures());
}

#[test]
fn at_most_max_dumps_are_written_each_in_its_own_directory() {
    let root = tempfile::tempdir().expect("a directory");
    let options = NanGuardOptions { action: NanAction::Skip, max_dumps: 2, ..NanGuardOptions::default() };
    let mut run = Run::new(options.clone());
    run.rig.run(RunInfo { directory: Some(root.path().to_owned()), ..RunInfo::default() });
    for _ in 0..2 {
        run.batch(f64::NAN, GOOD);
    }
    // The count continues after a resume.
    let rig = run.rig.resumed(NanGuard::new(options).expect("they fit"));
    let mut run = Run { rig, at: run.at };
    run.batch(f64::NAN, GOOD);
    let listed = std::fs::read_dir(root.path().join("nan_guard")).expect("it lists");
    let mut names: Vec<_> = listed.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["step_1", "step_1-v1"]);
    assert_eq!(kept(&run.rig), (None, 3, 2));
}

#[test]
fn invalid_values_are_refused_with_the_key_and_the_fix() {
    let default = NanGuardOptions::default;
    let none =
        NanGuardOptions { check_loss: false, check_gradients: false, check_activations: false, ..default() };
    for (options, key, fix) in [
        (none, "`check_loss`", "set one of them to true"),
        (NanGuardOptions { points: vec![], ..default() }, "`points`", "[\"**\"]"),
        (NanGuardOptions { points: vec!["a..b".into()], ..default() }, "`points`", "`blocks.*.mlp`"),
        (NanGuardOptions { max_consecutive: 3, ..default() }, "`max_consecutive`", "\"skip\" or \"warn\""),
        (NanGuardOptions { max_dumps: 0, ..default() }, "`max_dumps`", "set `dump` to false"),
    ] {
        let error = NanGuard::new(options).expect_err(key).to_string();
        assert!(error.starts_with(key) && error.contains(fix), "{error}");
    }
    let unknown = serde_json::from_str::<NanGuardOptions>(r#"{ "action": "explode" }"#);
    assert!(unknown.is_err_and(|error| error.to_string().contains("`raise`")));
}

#[test]
fn a_state_of_another_version_is_refused() {
    let mut run = Run::new(NanGuardOptions::default());
    run.rig.load_state_dict(&State::of(9, &1).expect("it serialises"));
    assert_eq!(run.failures(), ["state has version 9, this program reads version 2"]);
}
