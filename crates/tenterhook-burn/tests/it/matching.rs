//! Loading gradients and matching weights into another module.

use burn::optim::SgdConfig;
use burn::tensor::DType as BurnDType;
use tenterhook::{DType, Module as _, TensorMap};
use tenterhook_burn::{Burn, Optimizer, Optimizers};

use crate::lab::{Bench, Net, Pairs, Slope, sgd, weights};

/// One optimizer for each layer.
fn two(bench: &Bench, seed: u64) -> Burn<Net> {
    let mut module = bench.burn(bench.net_with(0.0, seed)).with_optimizers(|_| {
        let of = |name, layer| Optimizer::new(name, SgdConfig::new().build(), 0.1).only([layer]);
        Ok(Optimizers::one(of("first", "fc1.**")).and(of("second", "fc2.**")))
    });
    module.configure_optimizers(tenterhook::module::Horizon::default()).unwrap();
    module
}

fn backward(module: &mut Burn<Net>, bench: &Bench, samples: &[u32]) {
    let loss = module.loss(&Pairs::new(samples, &bench.device));
    module.backward(&loss.into(), 1.0).unwrap();
}

#[test]
fn an_accumulation_window_resumed_in_another_module_ends_with_the_same_weights() {
    let bench = Bench::new();
    let end = |module: &mut Burn<Net>| {
        backward(module, &bench, &[4, 5]);
        (0..2).for_each(|optimizer| module.optimizer_step(optimizer, false).unwrap());
        weights(module)
    };
    let (mut first, mut second) = (two(&bench, 1), two(&bench, 2));
    backward(&mut first, &bench, &[1, 2, 3]);
    backward(&mut second, &bench, &[6, 7]);
    second.load_weights(&weights(&first)).unwrap();
    let gradients = first.gradients_state().unwrap();
    assert_eq!(gradients.names().collect::<Vec<_>>(), ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"]);
    second.load_gradients(&gradients).unwrap();
    assert_eq!(second.gradients_state().unwrap(), gradients);
    assert_eq!(end(&mut second), end(&mut first));
}

#[test]
fn there_is_no_gradient_where_none_was_saved() {
    let bench = Bench::new();
    let mut module = two(&bench, 1);
    assert!(module.gradients_state().unwrap().is_empty());
    backward(&mut module, &bench, &[1]);
    module.optimizer_zero_grad(1).unwrap();
    let gradients = module.gradients_state().unwrap();
    assert_eq!(gradients.names().collect::<Vec<_>>(), ["fc1.bias", "fc1.weight"]);
    backward(&mut module, &bench, &[2]);
    module.load_gradients(&gradients).unwrap();
    assert_eq!(module.gradients_state().unwrap(), gradients);
    assert_eq!(module.without_gradient(1), ["fc2.weight", "fc2.bias"]);
    module.load_gradients(&TensorMap::default()).unwrap();
    assert_eq!(module.without_gradient(0).len(), 2);
}

#[test]
fn gradients_keep_their_type() {
    let bench = Bench::new();
    let device = bench.device.clone().autodiff();
    let mut slope = Slope::new(&device);
    slope.weight = slope.weight.map(|tensor| tensor.cast(BurnDType::BF16).detach().require_grad());
    let mut slope = bench.burn(slope).with_optimizers(|_| Ok(sgd(1.0).into()));
    slope.configure_optimizers(tenterhook::module::Horizon::default()).unwrap();
    let loss = slope.weight.val().cast(BurnDType::F32).sum();
    slope.backward(&loss.into(), 1.0).unwrap();
    let gradients = slope.gradients_state().unwrap();
    assert_eq!(gradients.get("weight").unwrap().dtype, DType::BF16);
    slope.optimizer_zero_grad(0).unwrap();
    slope.load_gradients(&gradients).unwrap();
    assert_eq!(slope.gradients_state().unwrap(), gradients);
}

#[test]
fn gradients_that_do_not_fit_are_named_and_none_is_loaded() {
    let bench = Bench::new();
    let mut module = two(&bench, 1);
    backward(&mut module, &bench, &[1]);
    let before = module.gradients_state().unwrap();
    let mut wrong = before.clone();
    wrong.insert_f32("fc1.bias", [1], &[0.0]);
    wrong.insert_f32("fc3.bias", [1], &[0.0]);
    let error = module.load_gradients(&wrong).unwrap_err().to_string();
    for part in
        ["`fc3.bias` is no parameter of an optimizer", "`fc1.bias` is F32[1], but its parameter is F32[8]"]
    {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
    assert_eq!(module.gradients_state().unwrap(), before);
}

#[test]
fn matching_weights_are_loaded_and_the_report_lists_all() {
    let bench = Bench::new();
    let mut module = two(&bench, 2);
    let before = weights(&module);
    let mut given = weights(&two(&bench, 1));
    given.remove("fc1.bias");
    given.insert_f32("fc3.weight", [1], &[1.0]);
    given.insert_f32("fc2.bias", [5], &[0.0; 5]);
    let report = module.load_matching(&given).unwrap();
    assert_eq!(report.loaded, ["fc1.weight", "fc2.weight"]);
    assert_eq!(report.missing, ["fc1.bias"]);
    assert_eq!(report.unexpected, ["fc3.weight"]);
    assert_eq!(report.mismatched, ["`fc2.bias` has the shape [5] instead of [2]"]);
    let after = weights(&module);
    for (name, from) in
        [("fc1.weight", &given), ("fc2.weight", &given), ("fc1.bias", &before), ("fc2.bias", &before)]
    {
        assert_eq!(after.get(name).unwrap(), from.get(name).unwrap(), "{name}");
    }
}
