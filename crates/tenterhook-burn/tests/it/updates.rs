//! Update hooks change what the optimizer uses.

use tenterhook::{Gradients, HookResult, Update, UpdateHook, closure};

use crate::lab::{Bench, Numbers, Seen, epochs, numbers, numbers_of, sgd, trainer};

/// Halves the gradients of one parameter, or of all.
struct Halve(Option<&'static str>);

impl UpdateHook for Halve {
    fn name(&self) -> String {
        "halve".into()
    }

    fn update(&mut self, gradients: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        match self.0 {
            None => gradients.scale(0.5),
            Some(name) => gradients.edit(name, |values| values.iter_mut().for_each(|value| *value *= 0.5))?,
        }
        Ok(())
    }
}

fn halved(name: Option<&'static str>) -> (Vec<f64>, (Vec<f32>, Vec<f32>)) {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Ok(sgd(1.0).into()));
    let norms = Seen::new();
    let see = norms.clone();
    let mut trainer = trainer(epochs(1));
    trainer.add_update_hook(Halve(name)).unwrap();
    trainer.add_hook(closure::on_step_end("norm", move |cx| see.push(cx.grad_norm.value()))).unwrap();
    trainer.fit(&mut slope, &mut numbers(&[Numbers([6.0, 0.0], [8.0])])).unwrap();
    (norms.take(), numbers_of(&slope))
}

#[test]
fn halved_gradients_make_half_the_step() {
    assert_eq!(halved(None), (vec![5.0], (vec![-3.0, 0.0], vec![-4.0])));
}

#[test]
fn one_gradient_can_be_changed_by_name() {
    let (norms, moved) = halved(Some("inner.bias"));
    assert_eq!(moved, (vec![-6.0, 0.0], vec![-4.0]));
    assert!((norms[0] - 52.0_f64.sqrt()).abs() < 1e-6, "{norms:?}");
}
