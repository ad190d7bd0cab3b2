//! Controllers that disagree: the stronger decision wins, and both are recorded. Also a run with a thousand
//! hooks.

use serde_json::{Value, json};
use tenterhook::toy::Toy;
use tenterhook::{Decision, Flow, Outcome, closure};

use crate::call_log::{CallLog, Recorder};
use crate::lab::{data, epochs};
use crate::run_directory::{latest, recorded};

/// From the weakest to the strongest.
fn flows() -> [(Flow, Value); 5] {
    [
        (Flow::Continue, Value::Null),
        (Flow::SkipUpdate, json!({ "flow": "skip_update" })),
        (Flow::SkipBatch, json!({ "flow": "skip_batch" })),
        (Flow::EndEpoch, json!({ "flow": "end_epoch" })),
        (Flow::Stop { reason: "enough".into() }, json!({ "flow": "stop", "reason": "enough" })),
    ]
}

/// The outcome, the number of steps, and the journal entries of two epochs in which two controllers decide
/// this at the third batch of the first epoch.
fn both(first: &Flow, second: &Flow) -> ((Outcome, u64), Vec<Value>) {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = recorded(root.path(), epochs(2));
    for (name, flow) in [("first", first), ("second", second)] {
        let flow = flow.clone();
        let says = closure::on_train_batch_start(name, move |cx| {
            let now = (cx.epoch, cx.batch.index) == (0, 2);
            if now { Decision::CONTINUE.and(flow.clone()) } else { Decision::CONTINUE }
        });
        trainer.add_hook(says).unwrap();
    }
    let report = trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
    let text = std::fs::read_to_string(latest(root.path()).join("events.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let decisions = lines.filter(|line| line["event"] == "decision");
    let decided = decisions.map(|line| json!([line["by"], line["decided"][0]])).collect();
    ((report.outcome, report.progress.step), decided)
}

#[test]
fn the_stronger_of_two_decisions_wins_in_any_order_and_both_are_recorded() {
    let flows = flows();
    let alone: Vec<_> = flows.iter().map(|(flow, _)| both(flow, &Flow::Continue).0).collect();
    let steps: Vec<_> = alone.iter().map(|(_, steps)| *steps).collect();
    assert_eq!(steps, [8, 7, 7, 6, 3], "each has its own effect");
    for (a, (first, first_line)) in flows.iter().enumerate() {
        for (b, (second, second_line)) in flows.iter().enumerate() {
            let ((outcome, steps), lines) = both(first, second);
            let (ends, skips) = (a.max(b) == 4, [a, b].iter().any(|flow| [1, 2, 3].contains(flow)));
            // A stop lets the batch complete, unless the other controller skips it.
            let expected = if ends { 3 - u64::from(skips) } else { alone[a.max(b)].1 };
            assert_eq!(steps, expected, "{first:?} and {second:?}");
            assert_eq!(matches!(outcome, Outcome::Stopped { .. }), ends, "{first:?} and {second:?}");
            let said = [("first", first_line), ("second", second_line)];
            let said = said.iter().filter(|(_, line)| !line.is_null()).map(|(by, line)| json!([by, line]));
            assert_eq!(lines, said.collect::<Vec<_>>(), "{first:?} and {second:?}");
        }
    }
}

#[test]
fn a_thousand_hooks_receive_everything_in_their_order_while_every_tenth_leaves() {
    let call_log = CallLog::default();
    let mut trainer = recorded(tempfile::tempdir().unwrap().path(), epochs(1));
    for number in 0..1000 {
        let (note, name) = (call_log.clone(), format!("hook:{number}"));
        let leaves = number % 10 == 0;
        let hook = closure::on_step_end(number.to_string(), move |cx| {
            let _ = note.note(&name, "on_step_end");
            if leaves && cx.step == 2 {
                match number % 20 {
                    0 => cx.hooks().remove(&number.to_string()),
                    // The next hook, which has not received this event yet.
                    _ => cx.hooks().disable(&(number + 1).to_string()),
                }
            }
        });
        trainer.add_hook(hook).unwrap();
    }
    trainer.add_hook(Recorder::new("last", &call_log)).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(3, 0)).unwrap();
    let rows: Vec<_> = call_log.sources("on_step_end");
    let numbers = |without: &dyn Fn(u32) -> bool| {
        let stay = (0..1000).filter(|number| !without(*number)).map(|number| format!("hook:{number}"));
        stay.chain(["hook:last".to_owned()]).collect::<Vec<_>>()
    };
    let everybody = numbers(&|_| false);
    let gone = numbers(&|number| number % 20 == 0 || number % 20 == 11);
    assert_eq!(rows, [everybody.clone(), everybody, gone].concat());
}
