//! How often gradients and parameters are read.

use std::cell::RefCell;

use tenterhook_core::run_context::{FixedClock, NoModel};
use tenterhook_core::tensor::{OptimizerSource, Scalar, TensorStats};
use tenterhook_core::{
    HookRunner, ModelView, Phase, Progress, RunInfo, RunState, Stage, Status, TensorSource, Tensors,
};

use super::*;

/// Two tensors that record their reads.
#[derive(Default)]
struct Counted(RefCell<Vec<String>>);

impl Counted {
    fn taken(&self) -> Vec<String> {
        self.0.take()
    }
}

impl TensorSource for Counted {
    fn count(&self) -> usize {
        2
    }
    fn name(&self, index: usize) -> &str {
        ["a", "b"][index]
    }
    fn shape(&self, _: usize) -> &[usize] {
        &[1]
    }
    fn read(&self, index: usize) -> Vec<f32> {
        self.0.borrow_mut().push(format!("read {}", self.name(index)));
        vec![1.0]
    }
    fn stats(&self, index: usize) -> TensorStats {
        self.0.borrow_mut().push(format!("stats {}", self.name(index)));
        TensorStats::of(&[1.0])
    }
    fn norm(&self, index: usize) -> f64 {
        self.0.borrow_mut().push(format!("norm {}", self.name(index)));
        1.0
    }
}

impl ModelView for Counted {
    fn params(&self) -> &dyn TensorSource {
        self
    }
    fn optimizers(&self) -> &dyn OptimizerSource {
        &NoModel
    }
}

/// The reads of gradients and parameters in each of two steps. The hook monitors the second one.
fn reads(options: GradientMonitorOptions) -> [(Vec<String>, Vec<String>); 2] {
    let mut runner = HookRunner::default();
    runner.add(hook(GradientMonitorOptions { log_frequency: 2, ..options })).expect("it is the only one");
    let shared = RunState::new(RunInfo::default(), 0, Box::new(FixedClock::default()));
    let (gradients, params) = (Counted::default(), Counted::default());
    [1, 2].map(|step| {
        let run_cx = |step_counted| {
            let step = if step_counted { step } else { step - 1 };
            let progress = Progress { step, step_counted, ..Progress::default() };
            RunContext::new(
                (Stage::Fit, Phase::Train, Status::Training),
                progress,
                &shared,
                &params,
                &NoModel,
            )
        };
        let before = BeforeOptimizerStep::new(run_cx(false), 0, Tensors::new(&gradients));
        let (loss, norm) = (Scalar::new(&1.0), Scalar::new(&1.0));
        let end = StepEnd::new(run_cx(true), loss, norm, 0.1, 0.1);
        runner.deliver(&before).expect("it goes well");
        runner.deliver(&end).expect("it goes well");
        (gradients.taken(), params.taken())
    })
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn values_are_not_read_if_norms_are_enough() {
    let [between, monitored] = reads(GradientMonitorOptions { log_update_ratio: false, ..every_step() });
    assert_eq!(between, (vec![], vec![]));
    assert_eq!(monitored, (texts(&["norm a", "norm b"]), vec![]));
}

#[test]
fn norm_percentiles_and_histogram_come_from_one_reading() {
    let [between, monitored] = reads(GradientMonitorOptions {
        log_histogram: true,
        percentiles: vec![10.0, 50.0, 90.0],
        log_update_ratio: false,
        ..every_step()
    });
    assert_eq!(between, (vec![], vec![]));
    assert_eq!(monitored, (texts(&["read a", "read b"]), vec![]));
}

#[test]
fn the_update_ratio_reads_only_monitored_parameters_before_and_after() {
    let param_filter = vec!["b".to_owned()];
    let [between, monitored] =
        reads(GradientMonitorOptions { param_filter: param_filter.clone(), ..every_step() });
    assert_eq!(between, (vec![], vec![]));
    assert_eq!(monitored, (texts(&["norm a", "norm b"]), texts(&["read b", "read b"])));
    let [_, monitored] = reads(GradientMonitorOptions { param_filter, log_norm: false, ..every_step() });
    assert_eq!(monitored.0, texts(&["norm b"]), "without norms there is no total of all");
}

#[test]
fn unneeded_events_are_not_wanted() {
    let events = |log_clipping, log_update_ratio| {
        let options = GradientMonitorOptions { log_update_ratio, log_clipping, ..every_step() };
        let events = tenterhook_core::AnyHook::new(hook(options)).spec().events;
        [Event::GradientClip, Event::StepEnd].map(|event| events.contains(event))
    };
    assert_eq!(events(true, true), [true, true]);
    assert_eq!(events(false, true), [false, true]);
    assert_eq!(events(true, false), [true, false]);
}
