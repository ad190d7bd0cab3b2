use tenterhook_testkit::{NamedTensors, Rig};

use super::*;

fn rig(options: GradientNoiseOptions) -> Rig<GradientNoise> {
    let mut rig = Rig::new(GradientNoise::new(options).unwrap());
    rig.seed(7);
    rig
}

/// The noise added to zero gradients: three values of `fc.weight` and one of `fc.bias`.
fn noise(rig: &mut Rig<GradientNoise>) -> NamedTensors {
    rig.gradients([("fc.weight", vec![0.0; 3]), ("fc.bias", vec![0.0])]).update().clone()
}

/// Mean and standard deviation.
fn spread(values: &[f32]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
    let variance = values.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

#[test]
fn the_noise_is_normal_with_the_given_standard_deviation() {
    let mut rig = rig(GradientNoiseOptions::new(0.5));
    let left = rig.gradients([("w", vec![3.0; 20_001])]).update().get("w").unwrap().to_vec();
    let (mean, std) = spread(&left);
    assert!((mean - 3.0).abs() < 0.02, "{mean}");
    assert!((std - 0.5).abs() < 0.02, "{std}");
    let share = |within: f32| {
        left.iter().filter(|value| (**value - 3.0).abs() < 0.5 * within).count() as f64 / left.len() as f64
    };
    assert!((share(1.0) - 0.683).abs() < 0.015, "{}", share(1.0));
    assert!((share(2.0) - 0.954).abs() < 0.01, "{}", share(2.0));
    // Two adjacent values come from one Box-Muller pair and must be uncorrelated.
    let product = |pair: &[f32]| f64::from(pair[0] - 3.0) * f64::from(pair[1] - 3.0);
    let together = left.chunks_exact(2).map(product).sum::<f64>() / 10_000.0 / 0.25;
    assert!(together.abs() < 0.05, "{together}");
}

#[test]
fn the_noise_decays() {
    let size = |decay, step| {
        let mut rig = rig(GradientNoiseOptions { decay, ..GradientNoiseOptions::new(1.0) });
        noise(rig.step(step)).norm()
    };
    for (decay, step, expected) in
        [(0.0, 99, 1.0), (0.55, 0, 1.0), (0.55, 99, 100.0_f64.powf(-0.275)), (2.0, 3, 0.25)]
    {
        let ratio = size(decay, step) / size(0.0, 0);
        assert!((ratio - expected).abs() < 1e-5, "{decay} {step}: {ratio}");
    }
}

#[test]
fn only_selected_gradients_get_noise_and_draw_numbers() {
    let options = GradientNoiseOptions { params: vec!["**.bias".into()], ..GradientNoiseOptions::new(1.0) };
    let mut some = rig(options.clone());
    let left = noise(&mut some);
    assert_eq!(left.get("fc.weight"), Some(&[0.0; 3][..]));
    let mut alone = rig(options);
    let bias = alone.gradients([("fc.bias", [0.0])]).update();
    assert_eq!(left.get("fc.bias"), bias.get("fc.bias"));
    assert_ne!(bias.get("fc.bias"), Some(&[0.0][..]));
}

#[test]
fn every_step_has_different_noise_and_a_seed_reproduces_it() {
    let (mut one, mut other) = (rig(GradientNoiseOptions::new(1.0)), rig(GradientNoiseOptions::new(1.0)));
    let noises = [noise(&mut one), noise(&mut one)];
    assert_ne!(noises[0], noises[1]);
    assert_eq!([noise(&mut other), noise(&mut other)], noises);
    assert_ne!(noise(other.seed(8)), noises[0]);
}

#[test]
fn zero_noise_draws_and_changes_nothing() {
    let mut rig = rig(GradientNoiseOptions::new(0.0));
    let left = rig.gradients([("w", [-0.0, 1.5])]).update().get("w").unwrap().to_vec();
    assert_eq!(
        left.iter().map(|value| value.to_bits()).collect::<Vec<_>>(),
        [(-0.0_f32), 1.5].map(f32::to_bits)
    );
}

#[test]
fn a_resumed_run_has_the_noise_of_an_uninterrupted_one() {
    let hook = || GradientNoise::new(GradientNoiseOptions::new(1.0)).unwrap();
    let mut whole = rig(GradientNoiseOptions::new(1.0));
    noise(&mut whole);
    let mut resumed = whole.resumed(hook());
    assert_eq!(noise(&mut resumed), noise(&mut whole));
}

struct Draws;

#[hook]
impl UpdateHook for Draws {
    fn update(&mut self, _: &mut Gradients, cx: &Update) -> HookResult {
        cx.rng().uniform();
        Ok(())
    }
}

#[test]
fn another_hook_does_not_affect_the_noise() {
    let mut alone = rig(GradientNoiseOptions::new(1.0));
    let mut together = rig(GradientNoiseOptions::new(1.0));
    together.add_hook(Draws);
    for _ in 0..2 {
        assert_eq!(noise(&mut together), noise(&mut alone));
    }
}

#[test]
fn an_overflow_is_an_error_on_request() {
    for check_finite in [false, true] {
        let mut rig = rig(GradientNoiseOptions { check_finite, ..GradientNoiseOptions::new(1e300) });
        let left = noise(&mut rig);
        assert_eq!(left.norm().is_finite(), check_finite, "put back when it is an error");
        assert_eq!(rig.failures().len(), usize::from(check_finite));
    }
}

#[test]
fn an_invalid_noise_is_refused() {
    for wrong in [-1.0, f64::NAN, f64::INFINITY] {
        let error = GradientNoise::new(GradientNoiseOptions::new(wrong)).unwrap_err().to_string();
        assert!(error.starts_with("`std` is"), "{error}");
        let options = GradientNoiseOptions { decay: wrong, ..GradientNoiseOptions::new(1.0) };
        let error = GradientNoise::new(options).unwrap_err().to_string();
        assert!(error.starts_with("`decay` is"), "{error}");
    }
}
