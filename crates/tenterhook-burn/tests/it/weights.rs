//! Saving and loading weights in files.

use burn::module::Module;
use burn::tensor::Tensor;
use tenterhook::{Module as _, TensorMap};
use tenterhook_burn::Burn;

use crate::lab::{Bench, Net, Pairs, epochs, sgd, trainer, weights};

fn outputs(module: &Burn<Net>, bench: &Bench) -> Vec<f32> {
    let x: Tensor<2> = Pairs::new(&[1, 2, 3], &bench.device).x;
    module.valid().forward(x).into_data().iter::<f32>().collect()
}

#[test]
fn weights_that_went_through_a_file_give_the_same_outputs_in_a_new_model() {
    let bench = Bench::new();
    let (old, mut new) = (bench.burn(bench.net(1)), bench.burn(bench.net(2)));
    assert_ne!(outputs(&old, &bench), outputs(&new, &bench));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("weights.safetensors");
    weights(&old).write(&file).unwrap();
    new.load_weights(&TensorMap::read(&file).unwrap()).unwrap();
    assert_eq!(weights(&new), weights(&old));
    assert_eq!(outputs(&new, &bench), outputs(&old, &bench));
}

#[test]
fn loaded_weights_are_trained_on() {
    let bench = Bench::new();
    let loaded = weights(&bench.burn(bench.net(1)));
    let mut module = bench.burn(bench.net(2)).with_optimizers(|_| Ok(sgd(0.1).into()));
    module.load_weights(&loaded).unwrap();
    let report = trainer(epochs(1)).fit(&mut module, &mut bench.pairs()).unwrap();
    assert!(report.notices.is_empty(), "{:?}", report.notices);
    for (name, tensor) in weights(&module).iter() {
        assert_ne!(Some(tensor), loaded.get(name).ok(), "`{name}` is not trained");
    }
}

#[test]
fn everything_that_does_not_fit_is_listed_and_nothing_is_loaded() {
    let bench = Bench::new();
    let mut module = bench.burn(bench.net(2));
    let before = weights(&module);
    let mut wrong = weights(&bench.burn(bench.net(1)));
    wrong.remove("fc1.bias");
    wrong.insert_f32("fc3.weight", [1], &[1.0]);
    wrong.insert_f32("fc2.weight", [2, 8], &[0.0; 16]);
    let error = module.load_weights(&wrong).unwrap_err().to_string();
    for part in [
        "`fc1.bias` is missing",
        "`fc3.weight` is not in the model",
        "`fc2.weight` has the shape [2, 8] instead of [8, 2]",
    ] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
    assert!(!error.contains("fc1.weight"), "{error}");
    assert_eq!(weights(&module), before);
}
