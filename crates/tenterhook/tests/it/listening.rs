//! Names and values of activations are computed only when a forward hook receives them.

use std::fmt::{Display, Formatter};

use tenterhook::hooks::{
    ActivationStage, ActivationStats, ActivationStatsOptions, ActivationStore, ActivationStoreOptions,
    ActivationTarget, NanGuard, NanGuardOptions,
};
use tenterhook::tensor::TensorSource;
use tenterhook::toy::Toy;
use tenterhook::{
    AnyHook, HookExt, ModelView, NamedTensors, Origin, RunError, StepOutput, TensorStats, closure,
};

use crate::call_log::{CallLog, SharedVec};
use crate::lab::{Lab, data, epochs, trainer};
use crate::points::{Points, shows};

/// A name that must not be built.
struct Never;

impl Display for Never {
    fn fmt(&self, _: &mut Formatter<'_>) -> std::fmt::Result {
        panic!("the name was built for nobody")
    }
}

fn never<S>(_: &str) -> S {
    panic!("the values were made for nobody")
}

#[test]
fn without_a_receiver_neither_names_nor_values_are_made() {
    let step = |lab: &mut Lab, batch: &_, cx: &mut tenterhook::Cx<'_, Lab>| {
        assert!(!cx.wants_activations());
        cx.show(Never, never::<NamedTensors>);
        cx.scope(Never, |cx| cx.show("inside", never::<NamedTensors>));
        Ok(StepOutput::Loss(lab.toy.loss(batch)))
    };
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(closure::on_step_end("another kind", |_| ())).unwrap();
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_step(step);
    trainer.fit(&mut lab, &mut data(2, 0)).unwrap();

    trainer.add_hook(Points::named("**")).unwrap();
    trainer.disable_hook("points").unwrap();
    trainer.fit(&mut lab, &mut data(2, 0)).unwrap();

    trainer.enable_hook("points").unwrap();
    let RunError::Failed { failure, .. } = trainer.fit(&mut lab, &mut data(2, 0)).unwrap_err() else {
        panic!("it cannot begin")
    };
    assert_eq!((failure.origin, failure.panicked), (Origin::Module, true), "now somebody listens");
}

#[test]
fn values_of_an_activation_that_no_hook_selects_are_not_made() {
    let mut trainer = trainer(epochs(1));
    let hook = Points::named("chosen");
    let names = hook.names.clone();
    trainer.add_hook(hook).unwrap();
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_step(|lab, batch, cx| {
        cx.show("other", never::<NamedTensors>);
        shows(lab, "chosen", cx);
        cx.scope("chosen", |cx| cx.show("inside", never::<NamedTensors>));
        Ok(StepOutput::Loss(lab.toy.loss(batch)))
    });
    trainer.fit(&mut lab, &mut data(2, 0)).unwrap();
    assert_eq!(names.take(), ["chosen", "chosen"]);
}

/// Values that record how often statistics of them are computed.
struct Counted(NamedTensors, SharedVec<()>);

impl TensorSource for Counted {
    fn count(&self) -> usize {
        self.0.count()
    }
    fn name(&self, index: usize) -> &str {
        self.0.name(index)
    }
    fn shape(&self, index: usize) -> &[usize] {
        self.0.shape(index)
    }
    fn read(&self, index: usize) -> Vec<f32> {
        self.0.read(index)
    }
    fn stats(&self, index: usize) -> TensorStats {
        self.1.push(());
        self.0.stats(index)
    }
}

#[test]
fn hooks_at_one_point_share_its_values_and_their_statistics() {
    let (made, summed, norms) = (SharedVec::new(), SharedVec::new(), SharedVec::new());
    let mut trainer = trainer(epochs(1));
    for name in ["first", "second", "third"] {
        let norms = norms.clone();
        let hook = closure::on_activation(name, move |cx| norms.push(cx.tensor().stats().norm.to_bits()));
        trainer.add_hook(hook).unwrap();
    }
    let (making, sum) = (made.clone(), summed.clone());
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_step(move |lab, batch, cx| {
        cx.show("point", |name| {
            making.push(());
            Counted(NamedTensors::from([(name, vec![3.0, 4.0])]), sum.clone())
        });
        Ok(StepOutput::Loss(lab.toy.loss(batch)))
    });
    trainer.fit(&mut lab, &mut data(1, 0)).unwrap();
    assert_eq!(norms.take(), [5.0_f64.to_bits(); 3]);
    assert_eq!((made.take().len(), summed.take().len()), (1, 1));
}

/// A name that records when it is built.
struct Built<'a, T>(&'a SharedVec<T>, T);

impl<T: Clone> Display for Built<'_, T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        self.0.push(self.1.clone());
        formatter.write_str("point")
    }
}

/// The training steps in which the name of a point was built for a hook, and the number of validation
/// batches.
fn named(hook: impl Into<AnyHook>) -> (Vec<u64>, usize) {
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(hook).unwrap();
    let (built, validated) = (SharedVec::new(), SharedVec::new());
    let (building, validate) = (built.clone(), validated.clone());
    let lab = Lab::new(Toy::default(), &CallLog::default()).with_step(move |lab, batch, cx| {
        let step = cx.progress().current_step();
        cx.show(Built(&building, step), |_| lab.toy.params());
        Ok(StepOutput::Loss(lab.toy.loss(batch)))
    });
    let mut lab = lab.with_handler(move |place, cx| {
        if place == "validation_step" {
            cx.show(Built(&validate, ()), |name| NamedTensors::from([(name, vec![0.0])]));
        }
    });
    trainer.fit(&mut lab, &mut data(7, 2)).unwrap();
    (built.take(), validated.take().len())
}

#[test]
fn activations_are_computed_only_in_the_steps_of_a_hooks_cadence() {
    assert_eq!(named(Points::named("**")), ((1..=7).collect(), 2));
    assert_eq!(named(Points::named("**").every("3 steps").unwrap()), (vec![3, 6], 2));
}

#[test]
fn with_manual_optimization_receivers_are_determined_after_each_step() {
    let mut trainer = trainer(epochs(1));
    let hook = Points::named("**");
    let names = hook.names.clone();
    trainer.add_hook(hook.every("2 steps").unwrap()).unwrap();
    let mut lab = Lab::new(Toy::new(2), &CallLog::default()).manual().with_step(|lab, batch, cx| {
        for optimizer in 0..2 {
            let step = cx.progress().current_step();
            shows(lab, format_args!("step{step}"), cx);
            let loss = lab.toy.loss(batch);
            cx.zero_grad(lab, optimizer)?;
            cx.backward(lab, &loss)?;
            cx.optimizer_step(lab, optimizer)?;
        }
        Ok(StepOutput::NoLoss)
    });
    trainer.fit(&mut lab, &mut data(2, 0)).unwrap();
    assert_eq!(names.take(), ["step2", "step4"]);
}

#[test]
fn in_stages_and_steps_that_no_hook_looks_at_not_even_a_name_is_built() {
    let stats = |stages: &[ActivationStage], log_frequency| {
        let stages = stages.to_vec();
        ActivationStats::new(ActivationStatsOptions { stages, log_frequency, ..Default::default() }).unwrap()
    };
    let store = |every_n_batches, max_batches| {
        let to = ActivationTarget::Memory;
        let of = ActivationStoreOptions::new(["**"]);
        ActivationStore::new(ActivationStoreOptions { every_n_batches, max_batches, to, ..of }).unwrap()
    };
    let (train, validate) = (ActivationStage::Train, ActivationStage::Validate);
    assert_eq!(named(stats(&[train], 3)), (vec![3, 6], 0));
    assert_eq!(named(stats(&[validate], 3)), (vec![], 2));
    assert_eq!(named(stats(&[validate, train], 7)), (vec![7], 2));
    assert_eq!(named(store(2, None)), (vec![2, 4, 6], 0));
    assert_eq!(named(store(2, Some(1))), (vec![2], 0));
    assert_eq!(named(NanGuard::new(NanGuardOptions::default()).unwrap()), ((1..=7).collect(), 0));
}
