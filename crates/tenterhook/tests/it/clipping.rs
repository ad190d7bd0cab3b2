//! Clipping: its effect, and the norms that `on_gradient_clip` and `on_step_end` report.

use tenterhook::settings::ClipAlgorithm;
use tenterhook::toy::Toy;
use tenterhook::{ClipRule, Settings, Trainer, closure};

use crate::call_log::{CallLog, SharedVec};
use crate::lab::{Lab, bits, data, epochs, trainer};

#[derive(Clone, Debug)]
struct Clip {
    optimizer: usize,
    unclipped: f64,
    before: f64,
    after: f64,
    clipped: bool,
    rule: Option<ClipRule>,
    largest: f32,
}

/// The clipping that a hook sees in every step.
fn watch(trainer: &mut Trainer) -> SharedVec<Clip> {
    let (norms, clips) = (SharedVec::new(), SharedVec::new());
    let (norm, seen) = (norms.clone(), clips.clone());
    trainer
        .add_hook(closure::on_before_optimizer_step("norm", move |cx| norm.push(cx.gradients.norm())))
        .unwrap();
    trainer
        .add_hook(closure::on_gradient_clip("clip", move |cx| {
            assert!(
                (cx.gradients.norm() - cx.norm_after.value()).abs() < 1e-6,
                "as the optimizer will use them"
            );
            let values = cx.gradients.iter().flat_map(|gradient| gradient.to_vec());
            seen.push(Clip {
                optimizer: cx.optimizer,
                unclipped: norms.take()[0],
                before: cx.norm_before.value(),
                after: cx.norm_after.value(),
                clipped: cx.clipped(),
                rule: cx.rule,
                largest: values.fold(0.0, |largest, value| largest.max(value.abs())),
            });
        }))
        .unwrap();
    clips
}

fn clip_at(limit: f64, algorithm: Option<ClipAlgorithm>) -> Settings {
    Settings { gradient_clip_val: Some(limit), gradient_clip_algorithm: algorithm, ..epochs(1) }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

#[test]
fn clipping_by_norm_scales_only_larger_gradients() {
    let mut trainer = trainer(clip_at(1.0, None));
    let clips = watch(&mut trainer);
    trainer.fit(&mut Toy::default(), &mut data(8, 0)).unwrap();
    let clips = clips.take();
    assert_eq!(clips.len(), 8);
    assert!(clips.iter().any(|clip| clip.clipped) && clips.iter().any(|clip| !clip.clipped), "{clips:#?}");
    for clip in clips {
        assert_eq!(clip.rule, Some(ClipRule::Norm(1.0)));
        assert!(close(clip.before, clip.unclipped), "{clip:?}");
        assert!(close(clip.after, clip.before.min(1.0)), "{clip:?}");
        assert_eq!(clip.clipped, clip.before > 1.0, "{clip:?}");
    }
}

#[test]
fn clipping_by_value_bounds_every_value() {
    let mut trainer = trainer(clip_at(0.25, Some(ClipAlgorithm::Value)));
    let clips = watch(&mut trainer);
    trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
    for clip in clips.take() {
        assert_eq!(clip.rule, Some(ClipRule::Value(0.25)));
        assert!(clip.largest <= 0.25 && clip.clipped && clip.after < clip.before, "{clip:?}");
    }
}

#[test]
fn a_hook_that_wants_the_norm_gets_it_without_clipping() {
    let call_log = CallLog::default();
    let mut trainer = trainer(epochs(1));
    let clips = watch(&mut trainer);
    let mut lab = Lab::new(Toy::default(), &call_log);
    trainer.fit(&mut lab, &mut data(3, 0)).unwrap();
    let clips = clips.take();
    assert_eq!(clips.len(), 3);
    for clip in clips {
        assert_eq!(clip.rule, None);
        assert!(close(clip.before, clip.unclipped) && !clip.clipped, "{clip:?}");
        assert_eq!(clip.before.to_bits(), clip.after.to_bits());
    }
    assert!(call_log.sources("clip_gradients").is_empty());
    assert_eq!(call_log.sources("on_gradient_clip").len(), 3, "the module is told too");
}

#[test]
fn without_a_limit_nothing_is_clipped() {
    let fit = |settings| {
        let mut toy = Toy::default();
        trainer(settings).fit(&mut toy, &mut data(4, 0)).unwrap();
        bits(&toy)
    };
    assert_eq!(fit(clip_at(0.0, None)), fit(epochs(1)));
    assert_ne!(fit(clip_at(0.1, None)), fit(epochs(1)));
}

#[test]
fn the_norm_at_step_end_is_that_of_all_optimizers_before_clipping() {
    let mut trainer = trainer(clip_at(0.1, None));
    let clips = watch(&mut trainer);
    let norms = SharedVec::new();
    let seen = norms.clone();
    trainer.add_hook(closure::on_step_end("norm_at_end", move |cx| seen.push(cx.grad_norm.value()))).unwrap();
    trainer.fit(&mut Toy::new(2), &mut data(3, 0)).unwrap();
    let clips = clips.take();
    assert_eq!(clips.iter().map(|clip| clip.optimizer).collect::<Vec<_>>(), [0, 1, 0, 1, 0, 1]);
    let expected: Vec<_> = clips.chunks(2).map(|of| of[0].before.hypot(of[1].before)).collect();
    for (norm, expected) in norms.take().into_iter().zip(expected) {
        assert!(close(norm, expected), "{norm} is not {expected}");
    }
}

#[test]
fn the_norm_at_step_end_needs_no_other_hook() {
    let mut trainer = trainer(epochs(1));
    let norms = SharedVec::new();
    let seen = norms.clone();
    trainer.add_hook(closure::on_step_end("norm", move |cx| seen.push(cx.grad_norm.value()))).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    assert!(norms.take().iter().all(|norm| *norm > 0.0));
}
