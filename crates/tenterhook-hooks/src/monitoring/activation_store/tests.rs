use safetensors::SafeTensors;
use tenterhook_core::{Event, Hook, NamedTensors, Progress, RunInfo};
use tenterhook_testkit::{FailureEffect, Rig};

use super::*;
use crate::ByteSize;

fn of(points: &[&str]) -> ActivationStoreOptions {
    ActivationStoreOptions::new(points.iter().copied())
}

fn in_memory(points: &[&str]) -> ActivationStoreOptions {
    ActivationStoreOptions { to: ActivationTarget::Memory, ..of(points) }
}

fn rig(options: ActivationStoreOptions) -> Rig<ActivationStore> {
    Rig::new(ActivationStore::new(options).expect("they fit"))
}

/// A rig whose files go into this directory.
fn rig_in(root: &Path, options: ActivationStoreOptions) -> Rig<ActivationStore> {
    let mut rig = rig(options);
    rig.run(RunInfo { id: "made-up".into(), directory: Some(root.into()), ..RunInfo::default() });
    rig
}

/// Runs the training batch with this number, which exposes these points.
fn train(rig: &mut Rig<ActivationStore>, number: u64, shown: &[(&str, &[f32])]) {
    rig.progress(Progress { step: number - 1, batches: number, total_batches: number, ..Default::default() });
    rig.on_train_batch_start();
    for (point, values) in shown {
        rig.activation(point, *values);
    }
    rig.on_train_batch_end();
}

fn said(rig: &Rig<ActivationStore>) -> Vec<String> {
    rig.said().into_iter().map(|(_, text)| text).collect()
}

/// The activations in memory: batch, name and values.
fn kept(rig: &Rig<ActivationStore>) -> Vec<(u64, String, Vec<f32>)> {
    let hook = rig.hook();
    hook.stored().map(|stored| (stored.batch, stored.name.to_owned(), stored.values.to_vec())).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn the_selected_points_are_stored_in_memory_with_their_position() {
    let mut rig = rig(in_memory(&["a.*"]));
    rig.loader(0, "first");
    rig.progress(Progress { epoch: 2, step: 6, batches: 4, total_batches: 10, ..Default::default() });
    rig.on_train_batch_start();
    rig.shaped_activation("a.x", [1, 2], [1.0, 2.0]).activation("b", [3.0]).on_train_batch_end();
    let hook = rig.hook();
    let stored: Vec<_> = hook.stored().collect();
    let expected = StoredActivation {
        phase: Phase::Train,
        step: 7,
        epoch: 2,
        batch: 3,
        loader: "first",
        name: "a.x",
        shape: &[1, 2],
        values: &[1.0, 2.0],
    };
    assert_eq!(stored, [expected]);
    assert_eq!(hook.stored_bytes(), 8);
}

#[test]
fn every_nth_batch_is_stored_up_to_the_maximum() {
    let options = ActivationStoreOptions { every_n_batches: 2, max_batches: Some(2), ..in_memory(&["x"]) };
    let mut rig = rig(options);
    for number in 1..=8 {
        train(&mut rig, number, &[("x", &[1.0])]);
    }
    assert_eq!(
        kept(&rig).iter().map(|(batch, ..)| *batch).collect::<Vec<_>>(),
        [1, 3],
        "the second and fourth"
    );
    assert_eq!(said(&rig), ["`max_batches` is 2; no further batches are stored"]);
}

#[test]
fn a_batch_without_activations_does_not_count() {
    let mut rig = rig(ActivationStoreOptions { max_batches: Some(1), ..in_memory(&["x"]) });
    train(&mut rig, 1, &[("y", &[1.0])]);
    train(&mut rig, 2, &[("x", &[1.0])]);
    assert_eq!(kept(&rig), [(1, "x".into(), vec![1.0])]);
}

#[test]
fn a_point_that_occurs_again_is_numbered() {
    let mut rig = rig(in_memory(&["**"]));
    train(
        &mut rig,
        1,
        &[("x", &[1.0]), ("x", &[2.0]), ("x#3", &[9.0]), ("x", &[3.0]), ("__metadata__", &[4.0])],
    );
    train(&mut rig, 2, &[("x", &[5.0])]);
    let names: Vec<_> = kept(&rig).into_iter().map(|(_, name, _)| name).collect();
    assert_eq!(names, ["x", "x#2", "x#3", "x#3#2", "__metadata__#2", "x"]);
}

#[test]
fn evaluations_are_stored_by_stage_and_a_sanity_check_never() {
    let options = ActivationStoreOptions {
        stages: vec![ActivationStage::Validate, ActivationStage::Predict],
        ..in_memory(&["x"])
    };
    let mut rig = rig(options);
    let stages = [
        (Phase::SanityCheck, Event::ValidationBatchStart, Event::ValidationBatchEnd),
        (Phase::Train, Event::TrainBatchStart, Event::TrainBatchEnd),
        (Phase::Validate, Event::ValidationBatchStart, Event::ValidationBatchEnd),
        (Phase::Test, Event::TestBatchStart, Event::TestBatchEnd),
        (Phase::Predict, Event::PredictBatchStart, Event::PredictBatchEnd),
    ];
    rig.step(5);
    for (phase, start, end) in stages {
        rig.phase(phase).deliver(start);
        rig.activation("x", [1.0]);
        rig.deliver(end);
    }
    let hook = rig.hook();
    let phases: Vec<_> = hook.stored().map(|stored| (stored.phase, stored.step)).collect();
    assert_eq!(phases, [(Phase::Validate, 5), (Phase::Predict, 5)]);
}

#[test]
fn a_batch_that_exceeds_the_limit_is_not_stored_at_all() {
    let mut rig = rig(ActivationStoreOptions { max_bytes: ByteSize(20), ..in_memory(&["**"]) });
    train(&mut rig, 1, &[("x", &[1.0]), ("y", &[2.0, 3.0])]);
    train(&mut rig, 2, &[("x", &[1.0]), ("y", &[2.0, 3.0]), ("z", &[4.0])]);
    let [failed] = rig.failures() else { panic!("{:?}", rig.failures()) };
    assert_eq!(failed.effect, FailureEffect::Disabled, "at once");
    assert_eq!(
        failed.failure.error.to_string(),
        "`max_bytes` is 20 bytes: batch 1 of `train` (train, epoch 1) needs 16 bytes, with 12 bytes stored already; \
         nothing of it is stored. Raise `max_bytes`, or store less by `points`, `every_n_batches` or `max_batches`"
    );
    assert_eq!(rig.hook().stored_bytes(), 12);
    let before = [(0, "x".to_owned(), vec![1.0]), (0, "y".to_owned(), vec![2.0, 3.0])];
    assert_eq!(kept(&rig), before, "what was kept before stays");
    assert!(!rig.is_enabled());
}

#[test]
fn a_batch_of_exactly_the_limit_is_stored() {
    let mut rig = rig(ActivationStoreOptions { max_bytes: ByteSize(8), ..in_memory(&["**"]) });
    train(&mut rig, 1, &[("x", &[1.0, 2.0])]);
    assert!(rig.failures().is_empty() && rig.hook().stored_bytes() == 8);
}

#[test]
fn a_batch_becomes_a_file_with_its_metadata() {
    let root = tempfile::tempdir().expect("a directory");
    let mut rig = rig_in(root.path(), of(&["**"]));
    train(&mut rig, 12, &[("a.x", &[1.0, -2.0]), ("a.x", &[f32::NAN])]);
    let path = root.path().join("activations/train-00000012.safetensors");
    assert_eq!(rig.hook().files(), std::slice::from_ref(&path));
    let bytes = fs::read(&path).expect("it is there");
    assert_eq!(bytes.len() as u64, rig.hook().stored_bytes());
    let file = SafeTensors::deserialize(&bytes).expect("it is whole");
    let x = file.tensor("a.x").expect("it is kept");
    assert_eq!((x.dtype(), x.shape()), (safetensors::Dtype::F32, &[2][..]));
    assert_eq!(x.data(), [1f32.to_le_bytes(), (-2f32).to_le_bytes()].as_flattened());
    assert_eq!(file.tensor("a.x#2").expect("it is kept").data(), f32::NAN.to_le_bytes());
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("it is whole");
    let said: BTreeMap<_, _> = header.metadata().clone().expect("metadata").into_iter().collect();
    let expected = [
        ("batch", "11"),
        ("epoch", "0"),
        ("loader", "train"),
        ("loader_index", "0"),
        ("phase", "train"),
        ("run", "made-up"),
        ("step", "12"),
        ("total_batches", "12"),
    ];
    assert_eq!(said, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
}

#[test]
fn files_of_evaluations_are_named_by_step_loader_and_batch_and_none_is_overwritten() {
    let root = tempfile::tempdir().expect("a directory");
    let options =
        ActivationStoreOptions { stages: vec![ActivationStage::Validate], dir: "a/b".into(), ..of(&["x"]) };
    let mut rig = rig_in(root.path(), options);
    for (step, loader, batch) in [(40, 0, 3), (40, 1, 3), (50, 0, 3), (40, 0, 3)] {
        rig.step(step).loader(loader, "any").batch(batch).phase(Phase::Validate).on_validation_batch_start();
        rig.activation("x", [1.0]).on_validation_batch_end();
    }
    let expected = [
        "validate-00000040-0-00000003-v1.safetensors",
        "validate-00000040-0-00000003.safetensors",
        "validate-00000040-1-00000003.safetensors",
        "validate-00000050-0-00000003.safetensors",
    ];
    assert_eq!(names(&root.path().join("a/b")), expected);
}

#[test]
fn the_size_limit_counts_the_headers_of_files() {
    let root = tempfile::tempdir().expect("a directory");
    let mut measured = rig_in(root.path(), of(&["x"]));
    train(&mut measured, 1, &[("x", &[1.0])]);
    let size = measured.hook().stored_bytes();
    for (room, fits) in [(2 * size, true), (2 * size - 1, false)] {
        let root = tempfile::tempdir().expect("a directory");
        let mut rig = rig_in(root.path(), ActivationStoreOptions { max_bytes: ByteSize(room), ..of(&["x"]) });
        train(&mut rig, 1, &[("x", &[1.0])]);
        train(&mut rig, 2, &[("x", &[1.0])]);
        assert_eq!((rig.is_enabled(), rig.hook().files().len()), (fits, if fits { 2 } else { 1 }));
        let files = names(&root.path().join("activations"));
        assert_eq!(files.len(), rig.hook().files().len(), "nothing else is left: {files:?}");
        for file in rig.hook().files() {
            SafeTensors::deserialize(&fs::read(file).expect("it is there")).expect("it is whole");
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_names_the_path_and_the_fix() {
    let root = tempfile::tempdir().expect("a directory");
    fs::write(root.path().join("activations"), "a file").expect("it is written");
    let mut rig = rig_in(root.path(), of(&["x"]));
    train(&mut rig, 1, &[("x", &[1.0])]);
    let error = rig.failures()[0].failure.error.to_string();
    assert!(error.starts_with("cannot write ") && error.contains("train-00000001"), "{error}");
    assert!(error.contains("`dir`") && rig.hook().stored_bytes() == 0, "{error}");
}

#[test]
fn a_dry_run_writes_nothing_and_a_missing_directory_is_reported() {
    let root = tempfile::tempdir().expect("a directory");
    let mut dry = rig_in(root.path(), of(&["x"]));
    dry.fast_dev_run(true);
    train(&mut dry, 1, &[("x", &[1.0])]);
    assert!(names(root.path()).is_empty() && said(&dry).is_empty());
    let unmade = root.path().join("unmade");
    let mut rig = rig_in(&unmade, of(&["x"]));
    for number in [1, 2] {
        train(&mut rig, number, &[("x", &[1.0])]);
    }
    assert!(!unmade.exists() && rig.failures().is_empty());
    let said = said(&rig);
    assert!(said.len() == 1 && said[0].contains("`dir`"), "{said:?}");
    let absolute = root.path().join("elsewhere");
    let mut rig = rig_in(&unmade, ActivationStoreOptions { dir: absolute.clone(), ..of(&["x"]) });
    train(&mut rig, 1, &[("x", &[1.0])]);
    assert_eq!(names(&absolute.join("made-up")), ["train-00000001.safetensors"]);
}

#[test]
fn below_an_absolute_directory_each_run_has_its_own() {
    let root = tempfile::tempdir().expect("a directory");
    for id in ["one", "two"] {
        let mut rig = rig(ActivationStoreOptions { dir: root.path().to_owned(), ..of(&["x"]) });
        rig.run(RunInfo { id: id.into(), ..RunInfo::default() });
        train(&mut rig, 1, &[("x", &[1.0])]);
        assert_eq!(names(&root.path().join(id)), ["train-00000001.safetensors"]);
    }
}

#[test]
fn a_run_too_short_for_every_n_batches_is_refused_if_nothing_else_is_stored() {
    let needs = |stages: &[ActivationStage]| {
        let options = ActivationStoreOptions { every_n_batches: 9, stages: stages.to_vec(), ..of(&["x"]) };
        ActivationStore::new(options).expect("they fit").spec().min_run_length
    };
    let (train, validate) = (ActivationStage::Train, ActivationStage::Validate);
    assert_eq!(needs(&[train]), [("every_n_batches", Cadence::Batches(9))]);
    assert!(needs(&[train, validate]).is_empty() && needs(&[validate]).is_empty());
}

#[test]
fn all_tensors_of_a_point_are_stored_and_sizes_are_in_the_plural() {
    assert_eq!([bytes(1), bytes(2)], ["1 byte", "2 bytes"]);
    let mut rig = rig(in_memory(&["x"]));
    rig.progress(Progress { batches: 1, total_batches: 1, ..Default::default() }).on_train_batch_start();
    rig.show("x", NamedTensors::from([("x", vec![1.0]), ("y", vec![2.0])])).on_train_batch_end();
    assert_eq!(kept(&rig), [(0, "x".into(), vec![1.0]), (0, "x#2".into(), vec![2.0])]);
}

#[test]
fn only_the_error_of_a_full_disk_suggests_making_room() {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::write(root.path().join("activations"), "in the way").expect("it writes");
    let mut rig = rig_in(root.path(), of(&["x"]));
    train(&mut rig, 1, &[("x", &[1.0])]);
    let failure = rig.failures()[0].failure.error.to_string();
    assert!(failure.contains("cannot write") && !failure.contains("make room"), "{failure}");
    assert!(failure.ends_with("choose another `dir`"), "{failure}");
}

#[test]
fn unmatched_points_are_reported_once() {
    let mut rig = rig(ActivationStoreOptions { every_n_batches: 5, ..in_memory(&["x", "blocks.*"]) });
    for number in 1..=10 {
        train(&mut rig, number, &[("x", &[1.0]), ("block.0", &[1.0])]);
        assert_eq!(said(&rig).is_empty(), number < 5, "it has not looked before");
    }
    assert_eq!(said(&rig), ["`points`: no hook point matches `blocks.*`; there are: `x`, `block.0`"]);
}

#[test]
fn activations_are_wanted_only_in_stored_batches() {
    let mut rig =
        rig(ActivationStoreOptions { every_n_batches: 2, max_batches: Some(1), ..in_memory(&["x"]) });
    assert!(Observer::wants_point(&*rig.hook(), "x") && !Observer::wants_point(&*rig.hook(), "y"));
    for (number, listens) in [(1, false), (2, true), (3, false), (4, false)] {
        let progress = Progress { batches: number, total_batches: number, ..Default::default() };
        assert!(
            !Observer::wants_activations(&*rig.hook(), Phase::Train, &progress),
            "batch {number} did not begin"
        );
        rig.progress(progress).on_train_batch_start();
        assert_eq!(
            Observer::wants_activations(&*rig.hook(), Phase::Train, &progress),
            listens,
            "batch {number}"
        );
        assert!(!Observer::wants_activations(&*rig.hook(), Phase::Validate, &progress));
        rig.activation("x", [1.0]).on_train_batch_end();
    }
    let mut hook = ActivationStore::new(in_memory(&["x"])).expect("they fit");
    hook.options.stages = vec![ActivationStage::Test];
    assert_eq!(hook.spec().throttle, Some(Cadence::Steps(u64::MAX)), "nothing is prepared in training");
}

#[test]
fn an_unfinished_batch_is_dropped_at_the_next() {
    let mut rig = rig(ActivationStoreOptions { every_n_batches: 2, ..in_memory(&["x"]) });
    rig.progress(Progress { batches: 2, total_batches: 2, ..Default::default() }).on_train_batch_start();
    rig.activation("x", [1.0]);
    train(&mut rig, 3, &[("x", &[2.0])]);
    assert!(kept(&rig).is_empty());
}

#[test]
fn two_hooks_that_write_to_one_directory_are_refused_with_the_fix() {
    let access = |options| ActivationStore::new(options).expect("they fit").spec();
    let claim = |dir: &str| access(ActivationStoreOptions { dir: dir.into(), ..of(&["x"]) }).claims;
    assert_eq!(claim("a"), claim("./a"));
    assert!(claim("a")[0].fix.contains("`dir`"));
    assert!(access(in_memory(&["x"])).claims.is_empty());
}

#[test]
fn wrong_options_are_refused_by_their_key() {
    for (options, key) in [
        (of(&[]), "`points`"),
        (of(&["a..b"]), "`points`"),
        (ActivationStoreOptions { every_n_batches: 0, ..of(&["x"]) }, "`every_n_batches`"),
        (ActivationStoreOptions { max_batches: Some(0), ..of(&["x"]) }, "`max_batches`"),
        (ActivationStoreOptions { stages: vec![], ..of(&["x"]) }, "`stages`"),
        (ActivationStoreOptions { dir: "".into(), ..of(&["x"]) }, "`dir`"),
        (ActivationStoreOptions { dir: "../a".into(), ..of(&["x"]) }, "`dir`"),
        (ActivationStoreOptions { dir: "checkpoints".into(), ..of(&["x"]) }, "`dir`"),
        (ActivationStoreOptions { dir: "run.json".into(), ..of(&["x"]) }, "`dir`"),
        (ActivationStoreOptions { max_bytes: ByteSize(0), ..of(&["x"]) }, "`max_bytes`"),
    ] {
        let error = ActivationStore::new(options).expect_err(key).to_string();
        assert!(error.starts_with(key), "{error}");
    }
    let read = |text: &str| text.parse::<toml::Table>().expect("toml").try_into::<ActivationStoreOptions>();
    assert_eq!(read("points = [\"x\"]\nmax_bytes = 4096").expect("a number").max_bytes, ByteSize(4096));
    assert_eq!(read("points = [\"x\"]").expect("the defaults"), of(&["x"]));
    assert!(
        read("points = [\"x\"]\nto = \"disk\"").expect_err("no such place").to_string().contains("memory")
    );
    assert!(read("max_bytes = 1").expect_err("it is required").to_string().contains("points"));
}
