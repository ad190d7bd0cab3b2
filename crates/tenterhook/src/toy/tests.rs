//! The toy without a trainer.

use super::*;

fn batch(x: f32) -> ToyBatch {
    ToyBatch::of(vec![([x, 1.0], 2.0)])
}

fn backward(toy: &mut Toy, x: f32) {
    let loss = toy.loss(&batch(x));
    toy.backward(&loss, 1.0).expect("it adds up");
}

#[test]
fn a_window_continues_in_another_toy_with_gradients_that_hooks_have_changed() {
    for optimizers in [1, 2] {
        let mut first = Toy::new(optimizers);
        backward(&mut first, 3.0);
        first.gradients_mut(0).scale(0, 0.5);
        let saved = first.gradients_state().expect("they are saved");
        assert_eq!(saved.f32("weight", &[2]).expect("it is there"), [-6.0, -2.0]);
        let mut second = Toy::new(optimizers);
        backward(&mut second, 7.0);
        second.load_gradients(&saved).expect("they fit");
        for toy in [&mut first, &mut second] {
            backward(toy, 5.0);
            (0..optimizers).for_each(|optimizer| toy.optimizer_step(optimizer, false).expect("it steps"));
        }
        assert_eq!(first.weights().expect("they are there"), second.weights().expect("they are there"));
    }
}

#[test]
fn a_removed_gradient_is_absent_after_loading() {
    for optimizers in [1, 2] {
        let mut toy = Toy::new(optimizers);
        backward(&mut toy, 3.0);
        toy.gradients_mut(0).remove(0);
        let saved = toy.gradients_state().expect("they are saved");
        assert_eq!(saved.names().collect::<Vec<_>>(), ["bias"]);
        let mut again = Toy::new(optimizers);
        again.load_gradients(&saved).expect("they fit");
        assert!(!again.gradients_mut(0).is_present(0), "{optimizers} optimizers");
        assert_eq!(again.gradients_state().expect("they are saved"), saved);
    }
    let mut strange = TensorMap::default();
    strange.insert_f32("wait", [1], &[1.0]);
    let error = Toy::default().load_gradients(&strange).expect_err("it has no such parameter");
    assert_eq!(error.to_string(), "these gradients are not of the toy: wait");
}

#[test]
fn matching_weights_are_loaded() {
    let mut given = TensorMap::default();
    given.insert_f32("weight", [2], &[1.0, 2.0]);
    given.insert_f32("bias", [2], &[3.0, 4.0]);
    given.insert_f32("slope", [1], &[5.0]);
    let mut toy = Toy::default();
    let report = toy.load_matching(&given).expect("it is no error");
    assert_eq!((toy.param("weight"), toy.param("bias")), (&[1.0, 2.0][..], &[0.0][..]));
    assert_eq!((report.loaded, report.missing), (vec!["weight".to_owned()], vec![]));
    assert_eq!(report.unexpected, ["slope"]);
    assert_eq!(report.mismatched, ["`bias` has the shape [2] instead of [1]"]);
    assert_eq!(toy.load_matching(&TensorMap::default()).expect("nothing fits").missing, ["weight", "bias"]);
}
