//! Observers that bypass the interface are detected and named; all others are reported as neutral.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tenterhook::hooks::{Checkpoint, CheckpointOptions, EarlyStopping, EarlyStoppingOptions};
use tenterhook::neutral::{
    self, ComparedItem, ExclusionReason, Finding, NeutralError, NeutralityReport, RunKind, Verification,
};
use tenterhook::run::Interrupt;
use tenterhook::toy::{Toy, ToyBatch, ToyData};
use tenterhook::{
    Activation, AnyHook, BoxError, Decision, Gradients, HookExt, HookResult, HookSpec, Policy, Registration,
    Settings, StepOutput, Trainer, Update, UpdateHook, closure, hook,
};

use crate::call_log::CallLog;
use crate::lab::{Lab, data, epochs, trainer};

/// The random generator of an engine: global, and seeded before each step, as in `burn-flex`.
#[derive(Clone, Default)]
pub(crate) struct Engine(Arc<AtomicU64>);

impl Engine {
    pub(crate) fn draw(&self) -> f32 {
        let next = |state: u64| {
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
        };
        let state =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| Some(next(state))).unwrap();
        (state >> 40) as f32 / (1 << 24) as f32
    }
}

/// A model that draws from its engine after it has shown an activation.
pub(crate) fn lab(engine: &Engine) -> Lab {
    let engine = engine.clone();
    Lab::new(Toy::new(2), &CallLog::default()).with_step(move |lab, _, cx| {
        engine.0.store(cx.progress().total_batches, Ordering::Relaxed);
        cx.show("weights", |_| tenterhook::ModelView::params(&lab.toy));
        let samples = vec![([engine.draw(), engine.draw()], engine.draw())];
        Ok(StepOutput::Loss(lab.toy.loss(&ToyBatch::of(samples))))
    })
}

pub(crate) type Hooks = fn(&Engine) -> Vec<AnyHook>;

/// A training run with four steps per epoch and these hooks.
pub(crate) fn training(settings: &Settings, hooks: Hooks) -> Result<(Trainer, Lab, ToyData), BoxError> {
    let engine = Engine::default();
    let trainer = trainer(settings.clone()).with_hooks(hooks(&engine))?;
    Ok((trainer, lab(&engine), data(4, 1)))
}

pub(crate) fn tested(steps: u64, hooks: Hooks) -> NeutralityReport {
    neutral::verify(steps, || training(&epochs(10), hooks)).unwrap()
}

pub(crate) fn innocent(name: &'static str) -> AnyHook {
    closure::on_after_backward(name, |cx| cx.log("norm", cx.gradients.norm())).into()
}

/// Draws from the engine's generator at this step.
pub(crate) fn intruder(name: &'static str, engine: &Engine, at: u64) -> AnyHook {
    let engine = engine.clone();
    let draws = move |cx: &Activation<'_>| {
        if cx.step + 1 == at {
            engine.draw();
        }
    };
    closure::on_activation(name, draws).into()
}

pub(crate) fn causes(report: &NeutralityReport) -> Vec<Vec<String>> {
    match &report.finding {
        Finding::Differs { causes, .. } => causes.clone(),
        other => panic!("{other:?}\n{report}"),
    }
}

#[test]
fn observers_that_only_watch_are_neutral() {
    let report = tested(20, |_| {
        let draws = closure::on_before_forward("draws", |cx| cx.log("drawn", cx.rng().uniform()));
        vec![
            innocent("norms"),
            draws.into(),
            closure::on_activation("looks", |cx| assert!(cx.values.norm() >= 0.0)).into(),
        ]
    });
    assert!(report.is_neutral(), "{report}");
    assert_eq!((report.steps, report.runs), (20, 2));
    assert_eq!(report.tested, ["norms", "draws", "looks"]);
    assert_eq!((report.compared.parameters, report.compared.values), (2, 3));
    assert!(report.to_string().starts_with("neutral: 3 observers change nothing in 20 steps"), "{report}");
}

#[test]
fn an_observer_that_draws_from_the_engine_is_named_with_step_and_parameter() {
    let report = tested(20, |engine| vec![intruder("spy", engine, 7)]);
    assert_eq!(causes(&report), [["spy"]]);
    let Finding::Differs { difference, .. } = &report.finding else { panic!("{report}") };
    assert_eq!(difference.step, 7);
    assert_eq!(difference.tensors[0].what, ComparedItem::Parameter { name: "weight".into() });
    assert!(difference.tensors[0].largest.is_some_and(|size| size > 0.0 && size < 1.0), "{difference:?}");
    assert!(difference.losses.is_some_and(|losses| losses.with.to_bits() != losses.without.to_bits()));
    let text = report.to_string();
    assert!(text.starts_with("not neutral: `spy` changes training, first at step 7\n"), "{text}");
    assert!(text.contains("parameter `weight`, by ") && text.contains("; 1 more parameter"), "{text}");
}

#[test]
fn the_non_neutral_observer_is_found_among_neutral_ones() {
    let report =
        tested(10, |engine| vec![innocent("a"), intruder("spy", engine, 3), innocent("b"), innocent("c")]);
    assert_eq!(causes(&report), [["spy"]]);
}

#[test]
fn two_observers_that_change_training_only_together_are_named_together() {
    let report = tested(10, |engine| {
        let (engine, primed) = (engine.clone(), Arc::new(AtomicU64::new(0)));
        let prime = Arc::clone(&primed);
        let one = closure::on_before_forward("one", move |_| prime.store(1, Ordering::Relaxed));
        let two = closure::on_activation("two", move |_| {
            if primed.load(Ordering::Relaxed) == 1 {
                engine.draw();
            }
        });
        vec![innocent("a"), one.into(), innocent("b"), innocent("c"), two.into()]
    });
    assert_eq!(causes(&report), [["one", "two"]]);
    assert!(report.to_string().contains("`one` and `two` together change training"), "{report}");
}

#[test]
fn a_nondeterministic_program_is_not_attributed_to_a_hook() {
    let runs = AtomicU64::new(0);
    let report = neutral::verify(10, || {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        let lab = Lab::new(Toy::default(), &CallLog::default()).with_step(move |lab, batch, cx| {
            // From the third step on, every run is different.
            let odd = if cx.progress().step >= 2 { run as f32 } else { 0.0 };
            let batch = if odd > 0.0 { &ToyBatch::of(vec![([odd, 1.0], 1.0)]) } else { batch };
            Ok(StepOutput::Loss(lab.toy.loss(batch)))
        });
        Ok((trainer(epochs(10)).with_hooks([innocent("a")])?, lab, data(4, 1)))
    });
    let report = report.unwrap();
    assert!(matches!(&report.finding, Finding::NotDeterministic { difference, .. } if difference.step == 3));
    let text = report.to_string();
    assert!(
        text.contains("the run without observers differs when it is repeated, first at step 3"),
        "{text}"
    );
    assert!(text.contains(" the first time, ") && text.contains(" the second time\n"), "{text}");
}

#[test]
fn different_weights_at_the_beginning_are_a_difference_at_step_0() {
    let report = tested(4, |_| vec![innocent("a")]);
    assert!(report.is_neutral());
    let made = AtomicU64::new(0);
    let report = neutral::verify(4, || {
        let lr = 0.1 + made.fetch_add(1, Ordering::Relaxed) as f64 / 8.0;
        let trainer = trainer(epochs(1)).with_hooks([innocent("a")])?;
        Ok((trainer, Toy::default().with_lr(lr), data(4, 0)))
    });
    let report = report.unwrap();
    let Finding::NotDeterministic { difference, .. } = report.finding else { panic!("{report}") };
    assert_eq!(difference.step, 0);
    assert_eq!(
        difference.tensors[0].what,
        ComparedItem::Rates { optimizer: "sgd".into(), group: "all".into() }
    );
}

#[test]
fn a_run_that_ends_earlier_because_of_an_observer_differs() {
    let make = || {
        // The observer influences a controller by an undeclared path.
        let flag = Arc::new(AtomicU64::new(0));
        let raise = Arc::clone(&flag);
        let raises = closure::on_step_end("raises", move |cx| raise.store(cx.step, Ordering::Relaxed));
        let stops = closure::on_train_batch_start("stops", move |_| {
            let told = flag.load(Ordering::Relaxed) >= 5;
            if told { Decision::stop("it was told to") } else { Decision::CONTINUE }
        });
        // The runs without `raises` lack the value that `reads` reads, and the plan must not refuse them.
        let reads = closure::on_step_end("reads", |_| ()).reads("raised");
        let hooks: [AnyHook; 3] = [reads.into(), raises.writes("raised").into(), stops.into()];
        Ok((trainer(epochs(10)).with_hooks(hooks)?, Toy::default(), data(4, 1)))
    };
    let report = neutral::verify(30, make).unwrap();
    assert_eq!(causes(&report), [["raises"]]);
    let Finding::Differs { difference, .. } = &report.finding else { panic!("{report}") };
    assert_eq!(difference.ended, Some([30, difference.step - 1]), "{difference:?}");
    assert_eq!(report.tested, ["reads", "raises"], "a controller is not tested");
}

#[test]
fn an_observer_that_a_controller_reads_from_is_in_all_runs_and_not_tested() {
    let report = tested(8, |_| {
        let norms = closure::on_after_backward("norms", |cx| cx.log("norm", cx.gradients.norm()));
        let smooth = closure::on_step_end("smooth", |cx| cx.log("smooth", cx.metrics().get("norm").unwrap()));
        let halves = closure::on_train_batch_end("halves", |cx| {
            let high = cx.metrics().get("smooth").expect("it is logged") > 0.1;
            if high { Decision::scale_lr(0.5) } else { Decision::CONTINUE }
        });
        vec![
            norms.writes("norm").into(),
            smooth.reads("norm").writes("smooth").into(),
            halves.reads("smooth").into(),
            innocent("a"),
        ]
    });
    assert!(report.is_neutral(), "{report}");
    assert_eq!(report.tested, ["a"]);
    let spared: Vec<_> = report.excluded.iter().map(|hook| (hook.hook.as_str(), &hook.reason)).collect();
    let read_by =
        |reader: &str, name: &str| ExclusionReason::ReadBy { reader: reader.into(), name: name.into() };
    assert_eq!(spared, [("smooth", &read_by("halves", "smooth")), ("norms", &read_by("smooth", "norm"))]);
}

/// Scales gradients by a metric that an observer has logged.
struct Damps;

#[hook]
impl UpdateHook for Damps {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("damps").reads("norm")
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult {
        let norm = cx.run_cx.metrics().get("norm").ok_or("nobody has logged `norm`")?;
        gradients.scale(if norm > 1.0 { 0.5 } else { 1.0 });
        Ok(())
    }
}

#[test]
fn an_observer_that_an_update_hook_reads_from_is_in_all_runs_and_not_tested() {
    let report = neutral::verify(8, || {
        let norms = closure::on_after_backward("norms", |cx| cx.log("norm", cx.gradients.norm()));
        let hooks: [AnyHook; 2] = [norms.writes("norm").into(), innocent("a")];
        let mut trainer = trainer(epochs(10)).with_hooks(hooks)?;
        trainer.add_hook(Damps)?;
        Ok((trainer, lab(&Engine::default()), data(4, 1)))
    });
    let report = report.unwrap();
    assert!(report.is_neutral(), "{report}");
    assert_eq!(report.tested, ["a"]);
    let why = "`norms`: `damps` reads `norm` from it, so it was in all runs";
    assert_eq!(report.excluded[0].to_string(), why);
}

#[test]
fn disabled_hooks_and_checkpoints_are_in_no_run() {
    let kept = tempfile::tempdir().unwrap();
    let report = neutral::verify(6, || {
        let mut training = training(&epochs(10), |_| vec![innocent("a")])?;
        let off = Registration { disabled: true, ..Registration::default() };
        training.0.register(closure::on_step_end("off", |cx| assert!(cx.step == 0, "it is off")), off)?;
        let options = CheckpointOptions { dirpath: Some(kept.path().into()), ..CheckpointOptions::default() };
        training.0.add_hook(Checkpoint::new(options)?)?;
        training.0.add_hook(EarlyStopping::new(EarlyStoppingOptions::new("val/loss"))?)?;
        Ok(training)
    });
    let report = report.unwrap();
    assert!(report.is_neutral(), "{report}");
    let reasons: Vec<_> = report.excluded.iter().map(|hook| (hook.hook.as_str(), &hook.reason)).collect();
    assert_eq!(
        reasons,
        [("off", &ExclusionReason::Disabled), ("checkpoint", &ExclusionReason::SavesCheckpoints)]
    );
    assert_eq!(std::fs::read_dir(kept.path()).unwrap().count(), 0, "nothing was saved");
}

#[test]
fn without_observers_nothing_is_run() {
    let report = tested(6, |_| Vec::new());
    assert_eq!((report.runs, &report.finding), (0, &Finding::NothingToTest));
    assert!(!report.is_neutral());
    assert!(report.to_string().starts_with("nothing was compared"), "{report}");
}

#[test]
fn a_failing_run_is_an_error_and_not_neutral() {
    let failing = |make: fn() -> Result<(Trainer, Lab, ToyData), BoxError>| {
        neutral::verify(6, make).unwrap_err().to_string()
    };
    let of_hook = failing(|| {
        let mut training = training(&epochs(10), |_| vec![innocent("a")])?;
        let strict = closure::on_step_end("strict", |_| HookResult::<()>::Err("it is too much".into()));
        let how = Registration { policy: Some(Policy::ABORT), ..Registration::default() };
        training.0.register(strict, how)?;
        Ok(training)
    });
    assert!(
        of_hook.starts_with("the run with all observers failed: hook `strict` failed in on_step_end"),
        "{of_hook}"
    );
    let of_module = failing(|| {
        let lab =
            Lab::new(Toy::default(), &CallLog::default()).with_step(|_, _, _| Err("no step today".into()));
        Ok((trainer(epochs(1)).with_hooks([innocent("a")])?, lab, data(4, 0)))
    });
    assert!(of_module.starts_with("the run without observers failed: module failed"), "{of_module}");
    let untrained = failing(|| training(&epochs(0), |_| vec![innocent("a")]));
    assert!(untrained.starts_with("nothing is trained"), "{untrained}");
    let unmade = failing(|| Err("there is no data".into()));
    assert_eq!(unmade, "there is no data");
}

#[test]
fn a_hook_that_failed_or_never_fired_was_not_exercised() {
    let report = tested(8, |_| {
        let panics = closure::on_train_start("panics", |cx| assert!(cx.step > 0, "no"));
        let rare = innocent_every("rare", "30 steps");
        let late = closure::on_step_end("late", |_| ()).after("3 epochs").unwrap();
        vec![panics.into(), rare, late.into(), innocent_every("often", "2 steps")]
    });
    let headline =
        "neutral: 1 of 4 observers changes nothing in 8 steps; not exercised: `panics`, `rare`, `late`\n";
    assert!(report.to_string().starts_with(headline), "{report}");
    let why: Vec<_> =
        report.not_exercised.iter().map(|hook| (hook.hook.as_str(), hook.why.as_str())).collect();
    assert_eq!(
        why,
        [
            ("panics", "hook `panics` panicked in on_train_start (epoch 1, step 0): no"),
            ("rare", "it fires every 30 steps, and the run was shorter; 30 steps would do"),
            ("late", "it fires after 3 epochs, and the run was shorter"),
        ]
    );
}

fn innocent_every(name: &'static str, cadence: &str) -> AnyHook {
    closure::on_step_end(name, |_| ()).every(cadence).unwrap().into()
}

#[test]
fn a_training_that_is_shorter_than_requested_is_compared_completely() {
    let report = neutral::verify(1000, || training(&epochs(2), |_| vec![innocent("a")])).unwrap();
    assert!(report.is_neutral(), "{report}");
    assert_eq!(report.steps, 8);
}

#[test]
fn a_resumed_training_is_tested_from_the_checkpoint_on() {
    let root = tempfile::tempdir().unwrap();
    let mut first = trainer(epochs(1)).with_checkpoints_in(root.path()).with_hooks([innocent("a")]).unwrap();
    first.add_checkpointing(1).unwrap();
    let engine = Engine::default();
    first.fit(&mut lab(&engine), &mut data(4, 1)).unwrap();
    let saved = std::fs::read_dir(root.path()).unwrap().next().unwrap().unwrap().path();
    let resumed = |hooks: Hooks| {
        let make = || {
            let (trainer, lab, data) = training(&epochs(10), hooks)?;
            Ok((trainer.restoring(&saved), lab, data))
        };
        neutral::verify(6, make).unwrap()
    };
    let report = resumed(|_| vec![innocent("a"), innocent("b")]);
    assert_eq!((report.is_neutral(), report.steps), (true, 6), "{report}");
    let report = resumed(|engine| vec![innocent("a"), intruder("spy", engine, 7)]);
    let Finding::Differs { difference, causes } = &report.finding else { panic!("{report}") };
    assert_eq!((difference.step, &causes[0][0]), (7, &"spy".to_owned()), "the run's own count");
}

#[test]
fn files_that_hooks_write_are_removed_afterwards() {
    let seen: Arc<Mutex<Vec<PathBuf>>> = Arc::default();
    let writing = Arc::clone(&seen);
    let report = neutral::verify(5, || {
        let seen = Arc::clone(&writing);
        let writes = closure::on_train_start("writes", move |cx| {
            let directory = cx.run.directory.clone().expect("there is a run directory");
            std::fs::write(directory.join("notes.txt"), "hello").unwrap();
            seen.lock().unwrap().push(directory);
        });
        Ok((trainer(epochs(2)).with_hooks([writes])?, Toy::default(), data(4, 1)))
    });
    assert!(report.unwrap().is_neutral());
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    assert!(seen.iter().all(|directory| !directory.exists() && !directory.parent().unwrap().exists()));
}

#[test]
fn progress_is_reported_for_every_step_and_run() {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let telling = Arc::clone(&told);
    let verification = Verification::of(3).on_progress(move |tick| {
        if tick.ended || tick.step == 0 {
            let end = if tick.ended { "ended" } else { "begins" };
            telling
                .lock()
                .unwrap()
                .push(format!("{} {end} {}, {}/{}", tick.run, tick.kind, tick.step, tick.steps));
        }
    });
    verification.run(|| training(&epochs(10), |engine| vec![intruder("spy", engine, 2)])).unwrap();
    assert_eq!(
        *told.lock().unwrap(),
        [
            "1 begins without observers, 0/3",
            "1 ended without observers, 3/3",
            "2 begins with all observers, 0/3",
            "2 ended with all observers, 2/3",
            "3 begins without observers, once more, 0/2",
            "3 ended without observers, once more, 2/2",
            "4 begins with all observers, once more, 0/2",
            "4 ended with all observers, once more, 2/2",
        ]
    );
    assert_eq!(RunKind::Only(vec!["a".into()]).to_string(), "with `a` alone");
}

#[test]
fn it_can_be_interrupted() {
    let interrupt = Interrupt::new();
    let (asked, last) = (interrupt.clone(), Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&last);
    let verification = Verification::of(30).with_interrupt(interrupt).on_progress(move |tick| {
        seen.store(tick.step, Ordering::Relaxed);
        if tick.step == 4 {
            asked.request("SIGINT");
        }
    });
    let error = verification.run(|| training(&epochs(10), |_| vec![innocent("a")])).unwrap_err();
    assert!(matches!(&error, NeutralError::Interrupted { signal } if signal == "SIGINT"), "{error}");
    assert_eq!(last.load(Ordering::Relaxed), 4, "no further step begins");
}

#[test]
fn reads_are_detected_through_patterns_and_conditions() {
    let norms = HookSpec::observer("x").writes("grad_norm/*");
    assert_eq!(
        HookSpec::observer("x").gated_by("grad_norm/total").reads_from(&norms),
        Some("grad_norm/total")
    );
    assert_eq!(HookSpec::observer("x").monitors("grad_norm/w").reads_from(&norms), Some("grad_norm/w"));
    assert_eq!(HookSpec::observer("x").reads("val/loss").reads_from(&norms), None);
}
