//! How often activations are read.

use std::cell::RefCell;
use std::ops::Range;

use tenterhook_core::run_context::{FixedClock, NoModel};
use tenterhook_core::{HookRunner, Observer, RunState, Stage, Status, TensorSource};

use super::*;

/// An activation that records its reads.
struct Counted {
    shape: Vec<usize>,
    values: Vec<f32>,
    reads: RefCell<Vec<&'static str>>,
}

impl Counted {
    fn new(shape: &[usize], values: &[f32]) -> Counted {
        Counted { shape: shape.into(), values: values.into(), reads: RefCell::default() }
    }
}

impl TensorSource for Counted {
    fn count(&self) -> usize {
        1
    }
    fn name(&self, _: usize) -> &'static str {
        "x"
    }
    fn shape(&self, _: usize) -> &[usize] {
        &self.shape
    }
    fn read(&self, _: usize) -> Vec<f32> {
        self.reads.borrow_mut().push("read");
        self.values.clone()
    }
    fn stats(&self, _: usize) -> TensorStats {
        self.reads.borrow_mut().push("stats");
        TensorStats::of(&self.values)
    }
    fn slice(&self, _: usize, ranges: &[Range<usize>]) -> Vec<f32> {
        self.reads.borrow_mut().push("slice");
        let rows = self.values.len() / self.shape[0];
        self.values[ranges[0].start * rows..ranges[0].end * rows].to_vec()
    }
}

/// Another hook that reads the statistics.
struct Other;

#[hook]
impl Observer for Other {
    fn on_activation(&mut self, cx: &Activation) -> HookResult {
        let _ = cx.values.first().stats();
        Ok(())
    }
}

/// Delivers `x` in the first step and returns how it was read.
fn reads(options: ActivationStatsOptions, phase: Phase, x: &Counted) -> Vec<&'static str> {
    let mut runner = HookRunner::default();
    runner.add(hook(options)).expect("it is the first");
    runner.add(Other).expect("it is another");
    let shared = RunState::new(RunInfo::default(), 0, Box::new(FixedClock::default()));
    let standing = (Stage::Fit, phase, Status::Training);
    runner.deliver_activation(
        "x",
        x,
        RunContext::new(standing, Progress::default(), &shared, &NoModel, &NoModel),
    );
    x.reads.take()
}

#[test]
fn all_hooks_share_the_statistics_and_values_are_read_only_if_units_may_be_dead() {
    let of = |values: &[f32]| reads(every_step(), Phase::Train, &Counted::new(&[2, 2], values));
    assert_eq!(of(&[1.0, 2.0, 3.0, 0.0]), ["stats"], "one zero is not enough for a unit");
    assert_eq!(of(&[1.0, 2.0, 0.0, 0.0]), ["stats", "slice"], "the first sample shows that all live");
    assert_eq!(of(&[1.0, 0.0, 1.0, 0.0]), ["stats", "slice", "read"]);
    let one_sample = Counted::new(&[1, 2], &[0.0, 1.0]);
    assert_eq!(reads(every_step(), Phase::Train, &one_sample), ["stats", "read"]);
}

#[test]
fn a_histogram_and_dead_units_use_one_reading() {
    let options = ActivationStatsOptions { histogram_bins: 3, ..every_step() };
    let x = Counted::new(&[2, 2], &[1.0, 0.0, 1.0, 0.0]);
    assert_eq!(reads(options, Phase::Train, &x), ["stats", "read"], "the other hook comes first");
}

#[test]
fn other_points_are_not_read() {
    let x = Counted::new(&[2, 2], &[0.0; 4]);
    for (options, phase) in [
        (ActivationStatsOptions { log_frequency: 2, ..every_step() }, Phase::Train),
        (at(&["y"]), Phase::Train),
        (every_step(), Phase::Validate),
        (every_step(), Phase::SanityCheck),
    ] {
        assert_eq!(reads(options, phase, &x), ["stats"], "the other hook's");
    }
}

#[test]
fn nothing_is_prepared_in_other_steps_and_stages() {
    let listens = |stages: &[ActivationStage], step: u64| {
        let mut runner = HookRunner::default();
        let options = ActivationStatsOptions { log_frequency: 5, stages: stages.into(), ..every_step() };
        runner.add(hook(options)).expect("it is the only one");
        runner.wants_activations(Phase::Train, &Progress { step: step - 1, ..Progress::default() })
    };
    let (train, test) = (ActivationStage::Train, ActivationStage::Test);
    assert!(listens(&[train], 5) && !listens(&[train], 4));
    assert!(!listens(&[test], 5) && listens(&[test, train], 10));
}
