//! Several loaders: the loader of each batch, and the metrics per loader.

use tenterhook::data::{DataLoaders, Interleave};
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::hooks::{EarlyStopping, EarlyStoppingOptions};
use tenterhook::toy::{Toy, ToyBatch, ToyData};
use tenterhook::{DataModule, Settings, Split, Trainer, closure};

use crate::call_log::{CallLog, SharedVec};
use crate::lab::{Lab, LabData, bits, epochs, trainer};

fn several() -> ToyData {
    ToyData {
        train: vec![3, 1],
        validate: vec![1, 2],
        test: vec![2, 1],
        predict: vec![1, 2],
        ..ToyData::default()
    }
}

#[test]
fn train_batches_say_which_loader_they_came_from() {
    for sized in [true, false] {
        let mut trainer = trainer(epochs(2));
        let batches = SharedVec::new();
        let (start, end) = (batches.clone(), SharedVec::new());
        trainer
            .add_hook(closure::on_train_batch_start("start", move |cx| {
                let batch = &cx.batch;
                start.push((batch.index, batch.loader_index, batch.loader.to_owned(), batch.is_last));
            }))
            .unwrap();
        let ends = end.clone();
        trainer
            .add_hook(closure::on_train_batch_end("end", move |cx| {
                ends.push((cx.batch.index, cx.batch.loader_index));
            }))
            .unwrap();
        trainer.fit(&mut Toy::default(), &mut ToyData { sized, ..several() }).unwrap();
        let epoch = [
            (0, 0, "train0", false),
            (1, 1, "train1", false),
            (2, 0, "train0", false),
            (3, 0, "train0", true),
        ];
        let epoch = epoch.map(|(index, loader, name, last)| (index, loader, name.to_owned(), last));
        assert_eq!(batches.take(), [epoch.clone(), epoch].concat(), "sized: {sized}");
        assert_eq!(end.take(), [(0, 0), (1, 1), (2, 0), (3, 0)].repeat(2));
    }
}

/// The training loaders of `several`, interleaved like this.
fn taking(interleave: Interleave, sized: bool) -> DataLoaders<ToyBatch> {
    let loader =
        move |index| ToyData { sized, ..several() }.loaders(Split::Train).map(|mut all| all.remove(index));
    DataLoaders::new()
        .make(Split::Train, move || loader(0))
        .make(Split::Train, move || loader(1))
        .interleave(interleave)
}

/// Records the loader of each batch, and whether the batch is the last of the epoch.
fn watched(trainer: &mut Trainer) -> SharedVec<(usize, bool)> {
    let batches = SharedVec::new();
    let seen = batches.clone();
    let watch = closure::on_train_batch_start("watch", move |cx| {
        seen.push((cx.batch.loader_index, cx.batch.is_last));
    });
    trainer.add_hook(watch).unwrap();
    batches
}

#[test]
fn loaders_are_interleaved_as_the_data_module_says() {
    let last = |loaders: [usize; 4]| loaders.map(|loader| (loader, false));
    for sized in [true, false] {
        let order = |interleave: Interleave| {
            let mut trainer = trainer(epochs(1));
            let batches = watched(&mut trainer);
            trainer.fit(&mut Toy::default(), &mut taking(interleave, sized)).unwrap();
            let mut batches = batches.take();
            assert!(batches.pop().unwrap().1, "the last is known");
            batches
        };
        assert_eq!(order(Interleave::Sequential), last([0, 0, 0, 1])[..3]);
        assert_eq!(order(Interleave::RoundRobin), last([0, 1, 0, 0])[..3]);
        assert_eq!(
            order(Interleave::Alternating(vec![])),
            last([0, 1, 0, 0])[..2],
            "the second has only one"
        );
        assert_eq!(order(Interleave::Alternating(vec![2, 1])), last([0, 0, 1, 0])[..3]);
        assert_eq!(order(Interleave::Weighted(vec![1e-9, 1e9])), last([1, 0, 0, 0])[..3]);
    }
}

#[test]
fn an_interleave_that_does_not_fit_the_loaders_is_refused_before_step_1() {
    let mut trainer = trainer(epochs(1));
    let batches = watched(&mut trainer);
    let failed = trainer.fit(&mut Toy::default(), &mut taking(Interleave::Weighted(vec![1.0]), true));
    let error = failed.unwrap_err().to_string();
    assert!(error.contains("`weights` holds 1, but there are 2 training loaders"), "{error}");
    assert!(batches.take().is_empty());
}

#[test]
fn a_run_resumed_between_drawn_loaders_ends_as_the_whole_one() {
    for sized in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let run = |from: Option<&str>| {
            let mut trainer = trainer(epochs(3)).with_checkpoints_in(root.path());
            if let Some(from) = from {
                trainer = trainer.restoring(root.path().join(from));
            }
            let batches = watched(&mut trainer);
            let options = CheckpointOptions {
                every_n_train_steps: Some(1),
                save_top_k: Some(-1),
                ..CheckpointOptions::default()
            };
            trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
            let mut toy = Toy::default();
            trainer.fit(&mut toy, &mut taking(Interleave::Weighted(vec![1.0, 1.0]), sized)).unwrap();
            (bits(&toy), batches.take())
        };
        let (whole, order) = run(None);
        assert_eq!(order.len(), 12);
        let checkpoints: Vec<_> = std::fs::read_dir(root.path()).unwrap().collect();
        assert!(checkpoints.len() >= 12, "{checkpoints:?}");
        for step in 1..12 {
            let (resumed, rest) = run(Some(&format!("epoch={}-step={step}", (step - 1) / 4)));
            assert_eq!(rest, order[step..], "from step {step}");
            assert_eq!(resumed, whole);
        }
    }
}

#[test]
fn evaluation_batches_say_which_loader_they_came_from_and_are_counted_in_each() {
    let mut trainer = trainer(epochs(1));
    let batches = SharedVec::new();
    let (validation, test, predict) = (batches.clone(), batches.clone(), batches.clone());
    trainer
        .add_hook(closure::on_validation_batch_end("validation", move |cx| {
            validation.push((cx.batch.loader.to_owned(), cx.batch.index, cx.batch.is_last));
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_test_batch_start("test", move |cx| {
            test.push((cx.batch.loader.to_owned(), cx.batch.index, cx.batch.is_last));
        }))
        .unwrap();
    trainer
        .add_hook(closure::on_predict_batch_end("predict", move |cx| {
            assert_eq!(cx.prediction.downcast_ref(), Some(&cx.batch.loader_index));
            predict.push((cx.batch.loader.to_owned(), cx.batch.index, cx.batch.is_last));
        }))
        .unwrap();
    let call_log = CallLog::default();
    let (mut lab, mut data) = (Lab::new(Toy::default(), &call_log), LabData::new(several(), &call_log));
    let named = |rows: [(&str, u64, bool); 3]| rows.map(|(name, index, last)| (name.to_owned(), index, last));
    trainer.validate(&mut lab, &mut data).unwrap();
    assert_eq!(batches.take(), named([("val0", 0, true), ("val1", 0, false), ("val1", 1, true)]));
    trainer.test(&mut lab, &mut data).unwrap();
    assert_eq!(batches.take(), named([("test0", 0, false), ("test0", 1, true), ("test1", 0, true)]));
    let (_, predictions) = trainer.predict(&mut lab, &mut data).unwrap();
    assert_eq!(batches.take(), named([("predict0", 0, true), ("predict1", 0, false), ("predict1", 1, true)]));
    assert_eq!(predictions, [vec![0], vec![1, 1]], "by loader");
}

#[test]
fn several_evaluation_loaders_have_a_metric_each_and_their_mean() {
    let report = trainer(epochs(1)).fit(&mut Toy::default(), &mut several()).unwrap();
    let metric = |name: &str| report.metrics[name];
    assert!((metric("val/loss/val0") - metric("val/loss/val1")).abs() > 0.0);
    let mean = f64::midpoint(metric("val/loss/val0"), metric("val/loss/val1"));
    assert!((metric("val/loss") - mean).abs() < 1e-12);

    // The metric of each loader can be monitored.
    for (monitor, refused) in [("val/loss/val1", false), ("val/loss/val2", true)] {
        let mut trainer = trainer(epochs(1));
        trainer.add_hook_type::<EarlyStopping>(EarlyStoppingOptions::new(monitor)).unwrap();
        let fitted = trainer.fit(&mut Toy::default(), &mut several());
        assert_eq!(fitted.is_err(), refused, "{monitor}");
        if let Err(error) = fitted {
            assert!(error.to_string().contains("did you mean `val/loss/val"), "{error}");
        }
    }

    let one =
        trainer(epochs(1)).fit(&mut Toy::default(), &mut ToyData { validate: vec![2], ..several() }).unwrap();
    assert!(!one.metrics.contains_key("val/loss/val0"), "{:?}", one.metrics);
}

#[test]
fn a_limit_holds_for_every_loader() {
    use tenterhook::settings::BatchLimit;
    let settings = Settings {
        limit_train_batches: Some(BatchLimit::Count(2)),
        limit_val_batches: Some(BatchLimit::Fraction(0.5)),
        ..epochs(1)
    };
    let data = ToyData { train: vec![3, 1], validate: vec![2, 4], ..several() };
    let call_log = CallLog::default();
    let mut lab = Lab::new(Toy::default(), &call_log);
    trainer(settings).fit(&mut lab, &mut LabData::new(data, &call_log)).unwrap();
    assert_eq!(call_log.sources("training_step").len(), 2 + 1);
    assert_eq!(call_log.sources("validation_step").len(), 1 + 2);
}
