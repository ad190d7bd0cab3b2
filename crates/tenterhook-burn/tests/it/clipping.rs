//! Gradient clipping, compared with precomputed numbers.

use tenterhook::settings::ClipAlgorithm;
use tenterhook::{Settings, closure};

use crate::lab::{Bench, Numbers, SharedVec, epochs, numbers, numbers_of, sgd, trainer};

/// Gradients with norm 5 over both parameters.
const FIVE: Numbers = Numbers([3.0, 0.0], [-4.0]);

/// The norms before and after clipping and at the end of the step, and the parameters after one step from 0.
fn clipped(limit: Option<f64>, algorithm: ClipAlgorithm) -> ([f64; 3], Vec<f32>) {
    let bench = Bench::new();
    let mut slope = bench.slope().with_optimizers(|_| Ok(sgd(1.0).into()));
    let seen = SharedVec::new();
    let (clip, end) = (seen.clone(), seen.clone());
    let settings =
        Settings { gradient_clip_val: limit, gradient_clip_algorithm: Some(algorithm), ..epochs(1) };
    let mut trainer = trainer(settings);
    let norms = closure::on_gradient_clip("clip", move |cx| {
        clip.push(cx.norm_before.value());
        clip.push(cx.norm_after.value());
    });
    trainer.add_hook(norms).unwrap();
    trainer.add_hook(closure::on_step_end("end", move |cx| end.push(cx.grad_norm.value()))).unwrap();
    trainer.fit(&mut slope, &mut numbers(&[FIVE])).unwrap();
    let (mut all, bias) = numbers_of(&slope);
    all.extend(bias);
    (seen.take().try_into().unwrap(), all)
}

fn close(found: &[f32], expected: &[f32]) {
    let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5);
    assert!(near && found.len() == expected.len(), "{found:?}, not {expected:?}");
}

#[test]
fn gradients_are_not_clipped_by_default() {
    let (norms, moved) = clipped(None, ClipAlgorithm::Norm);
    assert_eq!(norms, [5.0, 5.0, 5.0]);
    assert_eq!(moved, [-3.0, 0.0, 4.0]);
}

#[test]
fn the_norm_over_all_gradients_is_clipped_to_the_limit() {
    let ([before, after, at_end], moved) = clipped(Some(2.0), ClipAlgorithm::Norm);
    assert_eq!((before, at_end), (5.0, 5.0));
    assert!((after - 2.0).abs() < 1e-5, "{after}");
    close(&moved, &[-1.2, 0.0, 1.6]);
}

#[test]
fn a_norm_below_the_limit_changes_no_bit() {
    let (norms, moved) = clipped(Some(5.5), ClipAlgorithm::Norm);
    assert_eq!(norms, [5.0, 5.0, 5.0]);
    assert_eq!(moved, [-3.0, 0.0, 4.0]);
}

#[test]
fn every_value_is_clipped_to_the_limit() {
    let ([before, after, at_end], moved) = clipped(Some(3.5), ClipAlgorithm::Value);
    assert_eq!((before, at_end), (5.0, 5.0));
    assert!((after - (9.0_f64 + 12.25).sqrt()).abs() < 1e-6, "{after}");
    assert_eq!(moved, [-3.0, 0.0, 3.5]);
}
