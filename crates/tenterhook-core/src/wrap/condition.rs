//! The gate behind `when = "val/loss < 0.5"`.

use serde_json::{Value, json};

use super::Gate;
use super::gates::PerBatch;
use crate::condition::{ComparedWith, Condition, Operand};
use crate::event::Event;
use crate::plan::{TRAIN_LOSS, nearest};
use crate::progress::Phase;
use crate::run_context::RunContext;
use crate::spec::HookSpec;

/// Passes while a condition holds. It is asked once per training batch and once per validation, at the first
/// event of it that the hook wants, so that who gets the start of something gets its end too; and at every
/// event around them.
///
/// The condition can ask for
///
/// - `epoch` (from 0), `step` (the one that a batch works on, else how many are completed), `batch` (the training batch within its epoch, from 0),
///   `samples`, `tokens`, and `elapsed` in seconds;
/// - `stage` (`fit`, …) and `phase` (`train`, `validate`, …), which are text;
/// - every metric by its name, once it has been logged; `loss` is short for `train/loss`. A controller
///   or an update hook that asks for it makes it be read and logged at every step; for an observer it is the one
///   that was read last.
#[derive(Clone, Debug)]
pub struct Conditioned {
    condition: Condition,
    /// People have been told of a name that is still unknown after an epoch.
    told: bool,
    batch: PerBatch,
    /// What was decided for the validation that is going on.
    validation: Option<bool>,
}

/// What can be asked for besides metrics.
pub(crate) const FIELDS: &[&str] =
    &["epoch", "step", "batch", "samples", "tokens", "elapsed", "loss", "stage", "phase"];

/// The words that `stage` and `phase` can be.
const STAGES: &[&str] = &["fit", "validate", "test", "predict"];
const PHASES: &[&str] = &["sanity_check", "train", "validate", "test", "predict"];

impl Conditioned {
    /// Opens while this holds.
    #[must_use]
    pub fn new(condition: Condition) -> Conditioned {
        Conditioned { condition, told: false, batch: PerBatch::default(), validation: None }
    }

    /// What can never hold in a condition, and what to do about it: a word that `stage` or `phase` never is, or a
    /// text where a number is.
    #[must_use]
    pub fn impossible_comparison(condition: &Condition) -> Option<(String, String)> {
        FIELDS.iter().find_map(|field| {
            let words = match *field {
                "stage" => STAGES,
                "phase" => PHASES,
                _ => &[],
            };
            condition.compared_with(field).into_iter().find_map(|other| match (other, words) {
                (ComparedWith::Text(text), []) if text.trim().parse::<f64>().is_err() => Some((
                    format!("`{field}` is a number and never \"{text}\""),
                    "compare it with a number".into(),
                )),
                (ComparedWith::Text(word) | ComparedWith::Word(word), [_, ..]) if !words.contains(&word) => {
                    Some((format!("`{field}` is never `{word}`"), suggestion(word, words)))
                }
                (ComparedWith::Number, [_, ..]) => {
                    Some((format!("`{field}` is a word and never a number"), suggestion("", words)))
                }
                _ => None,
            })
        })
    }

    /// Says once that a name is still unknown when there has been time to log it: it may be misspelt.
    fn tell(&mut self, run_cx: &RunContext<'_>) {
        if self.told || run_cx.epochs_done == 0 {
            return;
        }
        self.told = true;
        let names = self.condition.names();
        let Some(name) = names.into_iter().find(|name| known(name, run_cx, false).is_none()) else { return };
        let logged = run_cx.metrics().names();
        let near = nearest(name, FIELDS.iter().copied().chain(logged.iter().map(String::as_str)));
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        run_cx.say(format!(
            "`when = \"{}\"` asks for `{name}`, which nobody has logged in the first epoch{near}",
            self.condition
        ));
    }
}

impl Gate for Conditioned {
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
        self.tell(run_cx);
        let Conditioned { condition, batch, validation, .. } = self;
        let within_batch = event.belongs_to_train_batch(run_cx.phase, &run_cx.progress);
        let holds = || condition.holds(&|name| known(name, run_cx, within_batch));
        if within_batch {
            return batch.decide(&run_cx.progress, holds);
        }
        if run_cx.phase != Phase::Validate {
            *validation = None;
            return holds();
        }
        let open = match validation {
            Some(open) if event != Event::ValidationStart => *open,
            _ => holds(),
        };
        *validation = (event != Event::ValidationEnd).then_some(open);
        open
    }

    fn declare(&self, spec: HookSpec) -> HookSpec {
        let fields = FIELDS.iter().filter(|field| !["stage", "phase"].contains(field));
        // A bare word beside a number can only be the name of another one.
        let words =
            fields.flat_map(|field| self.condition.compared_with(field)).filter_map(|other| match other {
                ComparedWith::Word(word) if !FIELDS.contains(&word) => Some(word),
                _ => None,
            });
        let spec = words.fold(spec, |spec, word| spec.reads_option("when", word));
        self.condition.names().into_iter().fold(spec, HookSpec::asks)
    }

    fn state(&self) -> Value {
        json!({ "told": self.told, "batch": self.batch, "validation": self.validation })
    }

    fn load(&mut self, state: &Value) {
        self.told = state["told"].as_bool().unwrap_or(false);
        self.batch = PerBatch::from(state);
        self.validation = state["validation"].as_bool();
    }
}

fn suggestion(word: &str, words: &[&str]) -> String {
    nearest(word, words.iter().copied()).map_or_else(
        || format!("it is one of: {}", words.join(", ")),
        |near| format!("did you mean `{near}`?"),
    )
}

fn known(name: &str, run_cx: &RunContext<'_>, within_batch: bool) -> Option<Operand> {
    let count = |number: u64| Some(Operand::Number(number as f64));
    match name {
        "epoch" => count(run_cx.epoch),
        "step" if within_batch => count(run_cx.progress.current_step()),
        "step" => count(run_cx.step),
        "batch" => count(run_cx.batches.saturating_sub(1)),
        "samples" => count(run_cx.samples),
        "tokens" => count(run_cx.tokens),
        "elapsed" => Some(Operand::Number(run_cx.elapsed().as_secs_f64())),
        "stage" => Some(Operand::Text(run_cx.stage.to_string())),
        "phase" => Some(Operand::Text(run_cx.phase.to_string())),
        "loss" => run_cx
            .metrics()
            .logged("loss")
            .or_else(|| run_cx.metrics().logged(TRAIN_LOSS))
            .map(Operand::Number),
        metric => run_cx.metrics().logged(metric).map(Operand::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_decided_for_a_validation_holds_over_a_resume_at_its_end() {
        let condition = || Conditioned::new("val/loss < 0.5".parse().expect("a condition"));
        for decided in [None, Some(true), Some(false)] {
            let (mut gate, mut fresh) = (condition(), condition());
            gate.validation = decided;
            fresh.load(&gate.state());
            assert_eq!(fresh.validation, decided);
        }
    }
}
