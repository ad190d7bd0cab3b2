//! Update hooks change the gradients that the optimizer uses.

use burn::tensor::Tensor;
use tenterhook::{ClipRule, Gradients, HookResult, HookSpec, Policy, Update, UpdateHook, closure, hook};
use tenterhook_burn::{BurnGradient, BurnGradients, MapGradient};

use crate::lab::{Bench, Numbers, SharedVec, epochs, numbers, numbers_of, sgd, trainer};

/// Halves the gradients of one parameter, or of all.
struct Halve(Option<&'static str>);

#[hook]
impl UpdateHook for Halve {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("halve")
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
    let norms = SharedVec::new();
    let see = norms.clone();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Halve(name)).unwrap();
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

/// Trains one step on gradients that this hook changes. Returns the parameters or the error.
fn changed(
    change: impl FnMut(&mut Gradients<'_>) -> HookResult + Send + 'static,
) -> Result<(Vec<f32>, Vec<f32>), String> {
    struct Changes<F>(F);
    #[hook]
    impl<F: FnMut(&mut Gradients<'_>) -> HookResult + Send + 'static> UpdateHook for Changes<F> {
        fn update(&mut self, gradients: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
            (self.0)(gradients)
        }
    }
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Ok(sgd(1.0).into()));
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(Changes(change)).unwrap();
    let fitted = trainer.fit(&mut slope, &mut numbers(&[Numbers([6.0, 0.0], [8.0])]));
    fitted.map(|_| numbers_of(&slope)).map_err(|error| error.to_string())
}

#[test]
fn gradients_can_be_replaced_by_burn_tensors() {
    struct Signs;
    impl MapGradient for Signs {
        fn map<const D: usize>(&mut self, name: &str, gradient: Tensor<D>) -> Tensor<D> {
            if name.ends_with("bias") { gradient.sign() * 3.0 } else { gradient.sign() }
        }
    }
    let moved = changed(|gradients| Ok(gradients.map_burn(&mut Signs)?)).unwrap();
    assert_eq!(moved, (vec![-1.0, 0.0], vec![-3.0]));
    let moved = changed(|gradients| {
        let mut bias = gradients.get("inner.bias")?;
        let tensor = bias.to_burn::<1>().ok_or("it has one dimension")?;
        assert!(bias.to_burn::<2>().is_none());
        bias.set_burn(tensor * 0.25)?;
        Ok(())
    });
    assert_eq!(moved.unwrap(), (vec![-6.0, 0.0], vec![-2.0]));
}

#[test]
fn another_shape_or_element_type_is_refused_by_name() {
    let device = Bench::new().device;
    let of = device.clone();
    let wrong =
        changed(move |gradients| Ok(gradients.get("inner.bias")?.set_burn(Tensor::<1>::ones([2], &of))?));
    let expected = "the gradient of `inner.bias` has the shape [1], and cannot become one of [2]";
    assert!(wrong.unwrap_err().contains(expected));
    let wrong = changed(move |gradients| {
        let half = Tensor::<1>::ones([1], (&device, burn::tensor::DType::F64));
        let _ = gradients.get("inner.bias")?.set_burn(half);
        Ok(())
    });
    let expected = "the gradient of `inner.bias` is of F32, and cannot become one of F64";
    assert!(wrong.unwrap_err().contains(expected));
}

#[test]
fn removed_gradients_update_nothing_and_replaced_ones_are_used() {
    let moved = changed(|gradients| {
        gradients.get("inner.bias")?.remove();
        assert!(!gradients.contains("inner.bias"));
        let name = gradients.names().next().ok_or("one is left")?.to_owned();
        gradients.get(&name)?.replace(&[0.5, -2.0])?;
        Ok(())
    });
    assert_eq!(moved.unwrap(), (vec![-0.5, 2.0], vec![0.0]));
}

#[test]
fn a_failing_hook_leaves_the_gradients_unchanged() {
    struct Spoils(u32);
    #[hook]
    impl UpdateHook for Spoils {
        fn declare(&self, spec: HookSpec) -> HookSpec {
            spec.name("spoils").policy(Policy::WARN)
        }
        fn update(&mut self, gradients: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
            gradients.scale(7.0);
            gradients.clip(|_| true, ClipRule::Norm(0.1))?;
            match self.0 {
                0 => gradients.get("inner.bias")?.remove(),
                1 => gradients.edit("inner.bias", |_| panic!("in the middle"))?,
                _ => gradients.get("inner.bias")?.replace(&[f32::NAN])?,
            }
            Err("spoilt".into())
        }
    }
    for way in 0..3 {
        let bench = Bench::new();
        let mut slope = bench.slope().with_optimizers(|_| Ok(sgd(1.0).into()));
        let mut trainer = trainer(epochs(1));
        trainer.add_hook(Spoils(way)).unwrap();
        trainer.fit(&mut slope, &mut numbers(&[Numbers([6.0, 0.0], [8.0])])).unwrap();
        assert_eq!(numbers_of(&slope), (vec![-6.0, 0.0], vec![-8.0]), "{way}");
    }
}
