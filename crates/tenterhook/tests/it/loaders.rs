//! Several loaders: where a batch came from, and what becomes of the metrics.

use tenterhook::data::{Loaders, Turns};
use tenterhook::toy::{Toy, ToyBatch, ToyData};
use tenterhook::{BoxError, DataModule, Settings, Split, closure};

use crate::lab::{Lab, LabData, epochs, trainer};
use crate::tape::{Seen, Tape};

fn several() -> ToyData {
    ToyData { train: vec![3, 1], validate: vec![1, 2], test: vec![2, 1], predict: vec![1, 2], sized: true }
}

#[test]
fn train_batches_say_which_loader_they_came_from() {
    for sized in [true, false] {
        let mut trainer = trainer(epochs(2));
        let batches = Seen::new();
        let (start, end) = (batches.clone(), Seen::new());
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

#[test]
fn loaders_can_come_one_after_the_other() {
    struct OneByOne(ToyData);
    impl DataModule<ToyBatch> for OneByOne {
        fn loaders(&mut self, split: Split) -> Result<Loaders<ToyBatch>, BoxError> {
            self.0.loaders(split)
        }
        fn turns(&self) -> Turns {
            Turns::Sequential
        }
    }
    let mut trainer = trainer(epochs(1));
    let batches = Seen::new();
    let seen = batches.clone();
    trainer
        .add_hook(closure::on_train_batch_start("start", move |cx| seen.push(cx.batch.loader_index)))
        .unwrap();
    trainer.fit(&mut Toy::default(), &mut OneByOne(several())).unwrap();
    assert_eq!(batches.take(), [0, 0, 0, 1]);
}

#[test]
fn evaluation_batches_say_which_loader_they_came_from_and_are_counted_in_each() {
    let mut trainer = trainer(epochs(1));
    let batches = Seen::new();
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
    let tape = Tape::default();
    let (mut lab, mut data) = (Lab::new(Toy::default(), &tape), LabData::new(several(), &tape));
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

    let one =
        trainer(epochs(1)).fit(&mut Toy::default(), &mut ToyData { validate: vec![2], ..several() }).unwrap();
    assert!(!one.metrics.contains_key("val/loss/val0"), "{:?}", one.metrics);
}

#[test]
fn a_limit_holds_for_every_loader() {
    use tenterhook::settings::Amount;
    let settings = Settings {
        limit_train_batches: Some(Amount::Count(2)),
        limit_val_batches: Some(Amount::Fraction(0.5)),
        ..epochs(1)
    };
    let data = ToyData { train: vec![3, 1], validate: vec![2, 4], ..several() };
    let tape = Tape::default();
    let mut lab = Lab::new(Toy::default(), &tape);
    trainer(settings).fit(&mut lab, &mut LabData::new(data, &tape)).unwrap();
    assert_eq!(tape.sources("training_step").len(), 2 + 1);
    assert_eq!(tape.sources("validation_step").len(), 1 + 2);
}
