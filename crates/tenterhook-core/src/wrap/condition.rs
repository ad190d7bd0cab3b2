//! The gate behind `when = "val/loss < 0.5"`.

use serde_json::{Value, json};

use super::Gate;
use super::gates::BatchDecision;
use crate::condition::{ComparedWith, Condition, Operand};
use crate::event::Event;
use crate::plan::{TRAIN_LOSS, nearest};
use crate::progress::Phase;
use crate::run_context::RunContext;
use crate::spec::HookSpec;

/// Passes events while a condition holds.
///
/// The condition is evaluated once per training batch and once per validation, at the first of its events
/// that the hook wants, so a hook that receives the start of a batch receives its end too. Outside of batches
/// and validations it is evaluated at every event.
///
/// These names are available:
///
/// - `epoch` (from 0), `step` (the current step within a batch, else the number of completed steps), `batch` (the index of
///   the training batch within its epoch), `samples`, `tokens`, and `elapsed` in seconds;
/// - `stage` (`fit`, …) and `phase` (`train`, `validate`, …), which are text;
/// - every metric by its name, once it has been logged; `loss` is short for `train/loss`. For a controller or
///   an update hook the loss is read and logged at every step; for an observer it is the last logged one.
#[derive(Clone, Debug)]
pub struct Conditioned {
    condition: Condition,
    /// The warning about a name that was not logged in the first epoch has been given.
    warned: bool,
    batch: BatchDecision,
    /// The decision for the current validation.
    validation: Option<bool>,
}

/// The names that a condition can use besides metrics.
pub(crate) const FIELDS: &[&str] =
    &["epoch", "step", "batch", "samples", "tokens", "elapsed", "loss", "stage", "phase"];

/// The values of `stage` and `phase`.
const STAGES: &[&str] = &["fit", "validate", "test", "predict"];
const PHASES: &[&str] = &["sanity_check", "train", "validate", "test", "predict"];

impl Conditioned {
    /// Opens while this condition holds.
    #[must_use]
    pub fn new(condition: Condition) -> Conditioned {
        Conditioned { condition, warned: false, batch: BatchDecision::default(), validation: None }
    }

    /// A comparison in the condition that can never be true, and its fix: `stage` or `phase` compared with an
    /// unknown value, or a number with a text.
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

    /// Warns once about a name that was not logged in the first epoch: it may be misspelt.
    fn warn_of_unknown_name(&mut self, run_cx: &RunContext<'_>) {
        if self.warned || run_cx.epochs_done == 0 {
            return;
        }
        self.warned = true;
        let names = self.condition.names();
        let Some(name) = names.into_iter().find(|name| known(name, run_cx, false).is_none()) else { return };
        let logged = run_cx.metrics().names();
        let near = nearest(name, FIELDS.iter().copied().chain(logged.iter().map(String::as_str)));
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        run_cx.say(format!(
            "`when = \"{}\"` reads `{name}`, which was not logged in the first epoch{near}",
            self.condition
        ));
    }
}

impl Gate for Conditioned {
    fn open(&mut self, event: Event, run_cx: &RunContext<'_>) -> bool {
        self.warn_of_unknown_name(run_cx);
        let Conditioned { condition, batch, validation, .. } = self;
        let within_batch = event.belongs_to_train_batch(run_cx.phase, &run_cx.progress);
        let holds = || condition.holds(&|name| known(name, run_cx, within_batch));
        if within_batch {
            return batch.decide(run_cx, holds);
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
        // A bare word that is compared with a number can only be the name of another number.
        let words =
            fields.flat_map(|field| self.condition.compared_with(field)).filter_map(|other| match other {
                ComparedWith::Word(word) if !FIELDS.contains(&word) => Some(word),
                _ => None,
            });
        let spec = words.fold(spec, |spec, word| spec.reads_option("when", word));
        self.condition.names().into_iter().fold(spec, HookSpec::gated_by)
    }

    fn state(&self) -> Value {
        json!({ "warned": self.warned, "batch": self.batch, "validation": self.validation })
    }

    fn load(&mut self, state: &Value) {
        self.warned = state["warned"].as_bool().unwrap_or(false);
        self.batch = BatchDecision::from(state);
        self.validation = state["validation"].as_bool();
    }
}

fn suggestion(word: &str, words: &[&str]) -> String {
    nearest(word, words.iter().copied()).map_or_else(
        || format!("it is one of: {}", words.join(", ")),
        |near| format!("did you mean `{near}`?"),
    )
}

/// The current value of a name.
fn known(name: &str, run_cx: &RunContext<'_>, within_batch: bool) -> Option<Operand> {
    let count = |number: u64| Some(Operand::Number(number as f64));
    match name {
        "epoch" => count(run_cx.epoch),
        "step" if within_batch => count(run_cx.current_step()),
        "step" => count(run_cx.step),
        "batch" => count(run_cx.batches.saturating_sub(1)),
        "samples" => count(run_cx.samples),
        "tokens" => count(run_cx.tokens),
        "elapsed" => Some(Operand::Number(run_cx.elapsed().as_secs_f64())),
        "stage" => Some(Operand::Text(run_cx.stage.to_string())),
        "phase" => Some(Operand::Text(run_cx.phase.to_string())),
        metric => {
            let metrics = run_cx.metrics();
            let logged = metrics.logged(metric);
            let loss = || metrics.logged(TRAIN_LOSS).filter(|_| metric == "loss");
            logged.or_else(loss).map(Operand::Number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decision_for_a_validation_survives_a_resume_at_its_end() {
        let condition = || Conditioned::new("val/loss < 0.5".parse().expect("a condition"));
        for decided in [None, Some(true), Some(false)] {
            let (mut gate, mut fresh) = (condition(), condition());
            gate.validation = decided;
            fresh.load(&gate.state());
            assert_eq!(fresh.validation, decided);
        }
    }
}
