//! Parameter groups and several optimizers, by the names of parameters.

use burn::optim::SgdConfig;
use burn::optim::decay::WeightDecayConfig;
use tenterhook::{ParamGroup, closure};
use tenterhook_burn::{Burn, Group, Optimizer, Optimizers};

use crate::lab::{Bench, Numbers, SharedVec, Slope, epochs, numbers, numbers_of, sgd, trainer};

const ONES: Numbers = Numbers([1.0, 1.0], [1.0]);
const ZEROS: Numbers = Numbers([0.0, 0.0], [0.0]);

/// One step from these parameters.
fn step(
    bench: &Bench,
    from: ([f32; 2], [f32; 1]),
    batch: Numbers,
    optimizers: fn() -> Optimizers,
) -> (Vec<f32>, Vec<f32>) {
    let slope = Slope::at(from.0, from.1, &bench.device);
    let mut slope = bench.burn(slope).with_optimizers(move |_| Ok(optimizers()));
    trainer(epochs(1)).fit(&mut slope, &mut numbers(&[batch])).unwrap();
    numbers_of(&slope)
}

/// The error of these optimizers.
fn refused(optimizers: fn() -> Optimizers) -> String {
    let bench = Bench::new();
    let mut slope: Burn<Slope> = bench.slope().with_optimizers(move |_| Ok(optimizers()));
    trainer(epochs(1)).fit(&mut slope, &mut numbers(&[ONES])).unwrap_err().to_string()
}

#[test]
fn a_group_has_a_learning_rate_of_its_own() {
    let bench = Bench::new();
    let moved = step(&bench, ([0.0, 0.0], [0.0]), ONES, || {
        sgd(1.0).group(Group::new("biases", ["**.bias"]).lr(0.25)).into()
    });
    assert_eq!(moved, (vec![-1.0, -1.0], vec![-0.25]));
}

#[test]
fn a_group_has_a_weight_decay_of_its_own() {
    let bench = Bench::new();
    let moved = step(&bench, ([2.0, 4.0], [8.0]), ZEROS, || {
        let decayed = SgdConfig::new().with_weight_decay(Some(WeightDecayConfig::new(0.5)));
        let biases = Group::new("biases", ["**.bias"]).with(SgdConfig::new().build());
        Optimizer::new("sgd", decayed.build(), 0.5).group(biases).into()
    });
    assert_eq!(moved, (vec![1.5, 3.0], vec![8.0]));
}

#[test]
fn a_parameter_belongs_to_the_first_group_that_matches_it() {
    let bench = Bench::new();
    let moved = step(&bench, ([0.0, 0.0], [0.0]), ONES, || {
        sgd(1.0).group(Group::new("one", ["inner.*"]).lr(0.5)).group(Group::new("all", ["**"]).lr(2.0)).into()
    });
    assert_eq!(moved, (vec![-2.0, -2.0], vec![-0.5]));
}

#[test]
fn hooks_see_the_groups_with_their_learning_rates() {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| {
        let biases = Group::new("biases", ["**.bias"]).lr(0.25).hyperparameters(None, Some(0.0));
        Ok(sgd(1.0).hyperparameters(Some(0.9), Some(0.5)).group(biases).into())
    });
    let seen = SharedVec::new();
    let see = seen.clone();
    let mut trainer = trainer(epochs(1));
    let groups = closure::on_train_start("see", move |cx| {
        see.push((cx.optimizers().name(0).to_owned(), cx.optimizers().groups(0)));
    });
    trainer.add_hook(groups).unwrap();
    trainer.fit(&mut slope, &mut numbers(&[ONES])).unwrap();
    let group = |name: &str, lr, weight_decay| ParamGroup {
        name: name.into(),
        lr,
        momentum: Some(0.9),
        weight_decay: Some(weight_decay),
    };
    assert_eq!(seen.take(), [("sgd".into(), vec![group("rest", 1.0, 0.5), group("biases", 0.25, 0.0)])]);
}

#[test]
fn two_optimizers_update_disjoint_parameters() {
    let bench = Bench::new();
    let both = step(&bench, ([0.0, 0.0], [0.0]), ONES, || {
        Optimizers::one(sgd(1.0).only(["weight"])).and(sgd(0.5).only(["inner.**"]))
    });
    assert_eq!(both, (vec![-1.0, -1.0], vec![-0.5]));
    let one = step(&bench, ([0.0, 0.0], [0.0]), ONES, || sgd(1.0).only(["inner.**"]).into());
    assert_eq!(one, (vec![0.0, 0.0], vec![-1.0]));
}

#[test]
fn a_pattern_that_matches_nothing_is_an_error_that_names_it() {
    let of_group = refused(|| sgd(1.0).group(Group::new("norms", ["**.gamma"])).into());
    for part in ["configure_optimizers", "group `norms`", "`**.gamma`", "weight, inner.bias"] {
        assert!(of_group.contains(part), "`{part}` is not in: {of_group}");
    }
    let of_optimizer = refused(|| sgd(1.0).only(["bias"]).into());
    assert!(of_optimizer.contains("optimizer `sgd`") && of_optimizer.contains("`bias`"), "{of_optimizer}");
}

#[test]
fn a_parameter_of_two_optimizers_is_an_error_that_names_all_three() {
    let error = refused(|| {
        let other = Optimizer::new("other", SgdConfig::new().build(), 1.0);
        Optimizers::one(sgd(1.0).only(["weight"])).and(other)
    });
    for part in ["`weight`", "`sgd`", "`other`", "`only`"] {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}
