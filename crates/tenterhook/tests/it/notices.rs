//! Notices have several readers: the replacement of the terminal, others, `events.jsonl`, and hooks.

use std::sync::{Arc, Mutex};

use tenterhook::toy::{Toy, ToyLoss};
use tenterhook::{
    Decision, HookResult, Notice, Observer, Policy, RunNotice, StepOutput, Trainer, closure, hook,
};

use crate::call_log::CallLog;
use crate::lab::{Lab, data, epochs, trainer};

type Texts = Arc<Mutex<Vec<String>>>;

/// Keeps the notices that it receives, and emits a message on each.
struct Reader(Texts);

#[hook]
impl Observer for Reader {
    fn on_notice(&mut self, cx: &Notice) -> HookResult {
        let (kind, told) = (cx.kind, if cx.shown { "told" } else { "noted" });
        assert_eq!(cx.entry["event"], kind);
        self.0.lock().unwrap().push(format!("{kind} {told}: {}", cx.text));
        cx.say("read");
        Ok(())
    }
}

fn with_reader(texts: &Texts) -> Trainer {
    let mut trainer = trainer(epochs(1)).with_notices(|_| {}).without_run_header();
    trainer.add_hook(Reader(texts.clone())).unwrap();
    trainer
}

#[test]
fn a_hook_receives_all_notices_once_and_in_order() {
    let texts = Texts::default();
    let mut trainer = with_reader(&texts);
    trainer.add_hook(closure::on_train_start("says", |cx| cx.say("hello"))).unwrap();
    let fails = closure::on_train_batch_end("fails", |cx| -> HookResult {
        if cx.step == 1 { Err("broken".into()) } else { Ok(()) }
    });
    let how = tenterhook::Registration { policy: Some(Policy::WARN), ..Default::default() };
    trainer.register(fails, how).unwrap();
    let decides = |cx: &tenterhook::TrainBatchEnd<'_>| {
        if cx.step == 2 { Decision::scale_lr(0.5) } else { Decision::CONTINUE }
    };
    trainer.add_hook(closure::on_train_batch_end("decides", decides)).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    let texts = texts.lock().unwrap();
    let begins: Vec<_> = texts.iter().map(|text| text.split(": ").next().unwrap()).collect();
    assert_eq!(begins, ["said told", "failure told", "decision noted"], "{texts:?}");
    assert!(texts[0].ends_with("says: hello") && texts[1].contains("broken"), "{texts:?}");
}

#[test]
fn a_hook_that_receives_nothing_else_still_receives_notices() {
    let texts = Texts::default();
    let mut trainer = with_reader(&texts);
    let mut module = Lab::new(Toy::default(), &CallLog::default())
        .with_step(|_, _, _| Ok(StepOutput::Loss(ToyLoss::from(f64::NAN))));
    trainer.fit(&mut module, &mut data(3, 0)).unwrap();
    let texts = texts.lock().unwrap();
    assert!(texts.iter().any(|text| text.starts_with("not_finite told: the loss is NaN")), "{texts:?}");
}

#[test]
fn a_failure_in_on_notice_follows_the_policy() {
    for (policy, ends) in [(Policy::WARN, false), (Policy::DISABLE, false), (Policy::ABORT, true)] {
        let mut trainer = trainer(epochs(1)).with_notices(|_| {}).without_run_header();
        let fails = closure::on_notice("fails", |_| -> HookResult { Err("broken".into()) });
        let how = tenterhook::Registration { policy: Some(policy), ..Default::default() };
        trainer.register(fails, how).unwrap();
        trainer.add_hook(closure::on_train_batch_end("says", |cx| cx.say("hello"))).unwrap();
        let ran = trainer.fit(&mut Toy::default(), &mut data(3, 0));
        assert_eq!(ran.is_err(), ends, "{policy:?}");
        let told =
            |report: &tenterhook::Report| report.failures.kinds.iter().map(|kind| kind.count).sum::<u64>();
        match ran {
            Ok(report) => assert_eq!(told(&report), 3, "one for each notice, and none for its own failures"),
            Err(error) => assert!(error.to_string().contains("hook `fails` failed in on_notice"), "{error}"),
        }
    }
}

#[test]
fn a_further_reader_has_what_the_first_one_has() {
    let (first, second) = (Texts::default(), Texts::default());
    let keep = |texts: &Texts| {
        let texts = texts.clone();
        move |notice: &RunNotice| texts.lock().unwrap().push(notice.to_string())
    };
    let mut trainer =
        trainer(epochs(1)).with_notices(keep(&first)).with_notice_reader(keep(&second)).without_run_header();
    trainer.add_hook(closure::on_train_start("says", |cx| cx.say("hello"))).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    assert_eq!(*first.lock().unwrap(), ["says: hello"]);
    assert_eq!(*first.lock().unwrap(), *second.lock().unwrap());
}
