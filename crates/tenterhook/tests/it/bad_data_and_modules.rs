//! Loaders that fail or panic, on any thread, and modules with invalid numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tenterhook::data::{Batches, DataLoaders, Dataset, LoadError, Sample, StreamLoader};
use tenterhook::run::{JournalEvent, Run};
use tenterhook::toy::{Toy, ToyBatch, ToyLoss};
use tenterhook::{
    BoxError, Decision, Failure, Loader, NamedTensors, Origin, Policy, Registration, Request, RunError,
    RunNotice, Settings, Split, StepOutput, Weights, closure,
};

use crate::call_log::{CallLog, Recorder};
use crate::lab::{Lab, LabStrategy, bits, data, epochs, trainer};
use crate::run_directory::{latest, recorded};

fn batch() -> ToyBatch {
    ToyBatch::of(vec![([0.1, 0.2], 0.3)])
}

/// Samples of which the third fails n times.
#[derive(Clone)]
struct Bad {
    times: Arc<AtomicU64>,
    panics: bool,
}

impl Bad {
    fn new(times: u64, panics: bool) -> Bad {
        Bad { times: Arc::new(AtomicU64::new(times)), panics }
    }

    fn go_wrong(&self) -> Result<(), BoxError> {
        let left = self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err() || !self.panics, "a bad sample");
        if left.is_ok() { Err("a bad sample".into()) } else { Ok(()) }
    }
}

impl Dataset for Bad {
    type Item = ();
    fn len(&self) -> usize {
        4
    }
    fn load(&self, sample: Sample) -> Result<(), BoxError> {
        if sample.index == 2 { self.go_wrong() } else { Ok(()) }
    }
}

/// A loader whose errors do not contain its name.
struct Mute(Bad, u64);

impl Loader<ToyBatch> for Mute {
    fn name(&self) -> &'static str {
        "mute"
    }
    fn batches(&self) -> Option<u64> {
        Some(4)
    }
    fn seek(&mut self, _: u64, batch: u64, _: bool) -> Result<(), BoxError> {
        self.1 = batch;
        Ok(())
    }
    fn next(&mut self) -> Result<Option<ToyBatch>, BoxError> {
        self.1 += 1;
        if self.1 == 3 {
            self.0.go_wrong()?;
        }
        Ok((self.1 <= 4).then(batch))
    }
}

/// The failure of a training run on this data, with all calls recorded.
fn failed(mut data: DataLoaders<ToyBatch>, settings: Settings) -> Failure {
    let call_log = CallLog::default();
    let mut trainer = trainer(settings).with_strategy(LabStrategy::new(&call_log));
    trainer.add_hook(Recorder::new("a", &call_log)).unwrap();
    let error = trainer.fit(&mut Lab::new(Toy::default(), &call_log), &mut data).unwrap_err();
    let RunError::Failed { failure, later, report } = error else { panic!("{error}") };
    assert!(later.is_empty(), "{later:?}");
    assert_eq!((failure.origin.clone(), failure.place), (Origin::Data, "next"));
    // Without a known length, one batch is fetched ahead.
    assert!([1, 2].contains(&report.progress.step), "{:?}", report.progress);
    assert_eq!(call_log.sources("on_exception"), ["hook:a", "module", "strategy"]);
    assert_eq!(call_log.sources("teardown"), ["strategy", "hook:a", "module"]);
    failure
}

fn batches(bad: Bad, threads: usize) -> DataLoaders<ToyBatch> {
    DataLoaders::new().train(Batches::new("numbers", bad, |_| Ok(batch())).size(1).threads(threads))
}

fn stream(bad: Bad, prefetch: usize) -> DataLoaders<ToyBatch> {
    let open = move |_| {
        let bad = bad.clone();
        (0..4).map(move |at| if at == 2 { bad.go_wrong() } else { Ok(()) })
    };
    DataLoaders::new().train(StreamLoader::new("numbers", open, |_| Ok(batch())).size(1).prefetch(prefetch))
}

#[test]
fn a_loader_that_fails_or_panics_on_any_thread_fails_the_run_with_its_name() {
    for panics in [false, true] {
        let bad = || Bad::new(1, panics);
        for data in [batches(bad(), 0), batches(bad(), 2), stream(bad(), 0), stream(bad(), 2)] {
            let failure = failed(data, epochs(1));
            let text = failure.to_string();
            assert!(
                text.contains("loader `numbers`, epoch 1, batch 2") && text.contains("a bad sample"),
                "{text}"
            );
            assert!(failure.error.is::<LoadError>(), "{text}");
        }
    }
}

#[test]
fn an_error_without_the_loaders_name_gets_it() {
    for panics in [false, true] {
        let bad = Bad::new(1, panics);
        let data = DataLoaders::new().make(Split::Train, move || Ok(Mute(bad.clone(), 0)));
        let failure = failed(data, epochs(1));
        assert_eq!(
            (failure.panicked, failure.error.to_string().as_str()),
            (panics, "loader `mute`: a bad sample")
        );
    }
}

#[test]
fn in_debug_a_panic_on_a_loading_thread_has_a_backtrace() {
    for data in [batches(Bad::new(1, true), 2), stream(Bad::new(1, true), 2)] {
        let failure = failed(data, Settings { debug: true, ..epochs(1) });
        let trace = failure.trace.expect("it is kept").to_string();
        assert!(trace.contains("go_wrong"), "{trace}");
    }
}

#[test]
fn a_loader_that_fails_once_trains_on_a_retry_and_one_that_always_fails_does_not() {
    for (times, trains) in [(1, true), (u64::MAX, false)] {
        let mut data = batches(Bad::new(times, false), 2);
        let mut trainer = trainer(epochs(1));
        trainer.fit(&mut Toy::default(), &mut data).unwrap_err();
        let again = trainer.fit(&mut Toy::default(), &mut data);
        assert_eq!(again.is_ok(), trains, "{:?}", again.err());
    }
}

/// A toy that returns this loss from this step on.
fn from_step(step: u64, loss: f64) -> Lab {
    Lab::new(Toy::default(), &CallLog::default()).with_step(move |lab, batch, cx| {
        let good = lab.toy.loss(batch);
        Ok(StepOutput::Loss(if cx.progress().step >= step { ToyLoss::from(loss) } else { good }))
    })
}

fn not_finite(notices: &[RunNotice]) -> Vec<String> {
    let told = notices.iter().filter(|notice| matches!(notice, RunNotice::NotFinite { .. }));
    told.map(ToString::to_string).collect()
}

#[test]
fn a_loss_that_is_not_finite_is_reported_once_and_training_continues() {
    for (loss, word) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let root = tempfile::tempdir().unwrap();
        let mut trainer = recorded(root.path(), Settings { log_every_n_steps: 2, ..epochs(2) });
        let report = trainer.fit(&mut from_step(3, loss), &mut data(6, 0)).unwrap();
        let told = not_finite(&report.notices);
        assert_eq!((told.len(), report.progress.step), (1, 12), "{told:?}");
        assert!(told[0].contains(&format!("the loss is {word} at step 4")) && told[0].contains("nan_guard"));
        let happened = Run::read(latest(root.path())).unwrap().event_log().unwrap();
        let lines = happened.entries.iter().filter_map(|entry| match entry.what {
            JournalEvent::NotFinite { loss } => Some((entry.step, loss)),
            _ => None,
        });
        let [(4, written)] = lines.collect::<Vec<_>>()[..] else { panic!("{happened:?}") };
        assert!(written.to_bits() == loss.to_bits() || written.is_nan() && loss.is_nan(), "{written}");
    }
}

#[test]
fn a_loss_that_no_hook_reads_is_reported_at_the_end_of_the_epoch() {
    let mut trainer = trainer(Settings { log_every_n_steps: 0, ..epochs(1) });
    let report = trainer.fit(&mut from_step(1, f64::NAN), &mut data(6, 0)).unwrap();
    assert_eq!(not_finite(&report.notices).len(), 1);
    let report = trainer.fit(&mut Toy::default(), &mut data(6, 0)).unwrap();
    assert_eq!(not_finite(&report.notices), Vec::<String>::new());
}

#[test]
fn weights_of_the_wrong_shape_are_a_failure_of_the_hook_that_gives_them() {
    let swap = || {
        closure::on_step_end("swap", |_| {
            let weights = NamedTensors::from([("weight", vec![0.0; 3]), ("bias", vec![0.0])]);
            Decision::CONTINUE.request(Request::SwapWeights(Weights(Arc::new(weights))))
        })
    };
    let of = |policy: Option<Policy>| {
        let (mut toy, how) = (Toy::default(), Registration { policy, ..Registration::default() });
        let mut trainer = trainer(epochs(1));
        trainer.register(swap(), how).unwrap();
        (trainer.fit(&mut toy, &mut data(2, 0)), bits(&toy))
    };
    let (Err(RunError::Failed { failure, .. }), _) = of(None) else { panic!("a controller aborts") };
    assert_eq!((&failure.origin, failure.place), (&Origin::Hook("swap".into()), "on_step_end"), "{failure}");
    assert!(failure.to_string().contains("weight"), "{failure}");
    let (fitted, weights) = of(Some(Policy::WARN));
    assert_eq!(fitted.unwrap().failures.kinds[0].count, 2, "each time");
    let mut undisturbed = Toy::default();
    trainer(epochs(1)).fit(&mut undisturbed, &mut data(2, 0)).unwrap();
    assert_eq!(weights, bits(&undisturbed), "the module keeps its own weights");
}
