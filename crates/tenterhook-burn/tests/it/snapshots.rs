//! Snapshots keep the state at the time they were taken.

use burn::optim::AdamWConfig;
use tenterhook::module::{OptimizerState, SnapshotData, SnapshotParts};
use tenterhook::tensors::Buffers;
use tenterhook::{Module as _, TensorMap};
use tenterhook_burn::{Burn, Optimizer};

use crate::lab::{Bench, Net, Numbers, epochs, numbers, trainer};

const ALL: SnapshotParts = SnapshotParts { weights: true, optimizers: true, gradients: true };

fn module(bench: &Bench) -> Burn<Net> {
    bench
        .burn(bench.net(1))
        .with_optimizers(|_| Ok(Optimizer::new("adamw", AdamWConfig::new().build(), 0.01).into()))
}

/// A copy of all parts.
fn copied(module: &Burn<Net>) -> SnapshotData {
    SnapshotData {
        weights: module.weights().unwrap(),
        optimizers: module.optimizer_state().unwrap(),
        gradients: module.gradients_state().unwrap(),
    }
}

fn train(module: &mut Burn<Net>, bench: &Bench) {
    trainer(epochs(1)).fit(module, &mut bench.pairs()).unwrap();
}

/// One backward pass.
fn backward(module: &mut Burn<Net>, bench: &Bench) {
    let loss = module.loss(&crate::lab::Pairs::new(&[1, 2, 3], &bench.device));
    module.backward(&loss.into(), 1.0).unwrap();
}

#[test]
fn a_snapshot_read_after_more_training_holds_the_state_before_it() {
    let bench = Bench::new();
    let mut module = module(&bench);
    train(&mut module, &bench);
    backward(&mut module, &bench);
    let then = copied(&module);
    assert_eq!((then.weights.len(), then.optimizers.tensors.len(), then.gradients.len()), (4, 8, 4));
    let (snapshot, second) = (module.snapshot(ALL).unwrap(), module.snapshot(ALL).unwrap());
    for _ in 0..3 {
        backward(&mut module, &bench);
        module.optimizer_step(0, false).unwrap();
    }
    let read = std::thread::spawn(|| snapshot.read(&Buffers::default()).map_err(|error| error.to_string()));
    assert!(read.join().unwrap().unwrap() == then, "on another thread");
    assert!(
        second.read(&Buffers::default()).unwrap() == then,
        "and again after the first snapshot was dropped"
    );
    let now = copied(&module);
    for (name, tensor) in now.weights.iter().chain(now.optimizers.tensors.iter()) {
        let before = then.weights.get(name).or_else(|_| then.optimizers.tensors.get(name)).unwrap();
        assert_ne!(tensor, before, "`{name}` has not been trained");
    }
}

#[test]
fn a_snapshot_holds_only_the_wanted_parts() {
    let bench = Bench::new();
    let mut module = module(&bench);
    train(&mut module, &bench);
    backward(&mut module, &bench);
    let then = copied(&module);
    for (weights, optimizers, gradients) in
        [(true, false, false), (false, true, false), (false, false, true), (false, false, false)]
    {
        let read = module
            .snapshot(SnapshotParts { weights, optimizers, gradients })
            .unwrap()
            .read(&Buffers::default())
            .unwrap();
        assert_eq!(read.weights, if weights { then.weights.clone() } else { TensorMap::default() });
        let expected = if optimizers { then.optimizers.clone() } else { OptimizerState::default() };
        assert_eq!(read.optimizers, expected);
        assert_eq!(read.gradients, if gradients { then.gradients.clone() } else { TensorMap::default() });
    }
}

#[test]
fn saving_a_module_that_lost_its_model_is_an_error() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Ok(Optimizer::new("bad", bad::Bad, 1.0).into()));
    let batch = [Numbers([1.0; 2], [1.0])];
    let error = trainer(epochs(1)).fit(&mut slope, &mut numbers(&batch)).unwrap_err().to_string();
    assert!(error.contains("optimizer_step"), "{error}");
    let said = [
        slope.weights().err(),
        slope.optimizer_state().err(),
        slope.snapshot(SnapshotParts::default()).err(),
        slope.load_weights(&TensorMap::default()).err(),
    ];
    for error in said {
        let error = error.expect("it is an error").to_string();
        assert!(error.contains("the model was lost"), "{error}");
    }
}

/// An optimizer that panics.
mod bad {
    use burn::optim::{LearningRate, Optimizer};
    use burn::tensor::{Device, Tensor};

    #[derive(Clone)]
    pub struct Bad;

    impl Optimizer for Bad {
        type State<const D: usize> = ();

        fn step<const D: usize>(
            &self,
            _: LearningRate,
            _: Tensor<D>,
            _: Tensor<D>,
            _: Option<()>,
        ) -> (Tensor<D>, Option<()>) {
            panic!("this one cannot step")
        }

        fn to_device<const D: usize>((): (), _: &Device) {}
    }
}
