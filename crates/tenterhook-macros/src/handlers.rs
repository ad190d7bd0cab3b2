//! The handlers of hooks, and suggestions for misspelt names.

use crate::naming;

/// A handler: a method of a hook that is called at an event.
pub(crate) struct Handler {
    pub(crate) name: &'static str,
    /// Whether a controller can decide at the event.
    pub(crate) steers: bool,
}

impl Handler {
    /// The name of the event and of its context: `TrainEnd` for `on_train_end`.
    pub(crate) fn event(&self) -> String {
        naming::camel(self.name.strip_prefix("on_").unwrap_or(self.name))
    }
}

const fn steers(name: &'static str) -> Handler {
    Handler { name, steers: true }
}

const fn watches(name: &'static str) -> Handler {
    Handler { name, steers: false }
}

/// All handlers, in the order of `Event`.
pub(crate) const HANDLERS: &[Handler] = &[
    steers("setup"),
    watches("teardown"),
    steers("on_fit_start"),
    watches("on_fit_end"),
    steers("on_sanity_check_start"),
    steers("on_sanity_check_end"),
    steers("on_train_start"),
    steers("on_train_end"),
    steers("on_train_epoch_start"),
    steers("on_train_epoch_end"),
    steers("on_train_batch_start"),
    steers("on_train_batch_end"),
    steers("on_before_forward"),
    steers("on_after_forward"),
    steers("on_before_zero_grad"),
    steers("on_before_backward"),
    steers("on_after_backward"),
    steers("on_before_optimizer_step"),
    steers("on_gradient_clip"),
    steers("on_after_optimizer_step"),
    steers("on_step_end"),
    watches("on_activation"),
    steers("on_validation_start"),
    steers("on_validation_epoch_start"),
    steers("on_validation_batch_start"),
    steers("on_validation_batch_end"),
    steers("on_validation_epoch_end"),
    steers("on_validation_end"),
    watches("on_test_start"),
    watches("on_test_epoch_start"),
    watches("on_test_batch_start"),
    watches("on_test_batch_end"),
    watches("on_test_epoch_end"),
    watches("on_test_end"),
    watches("on_predict_start"),
    watches("on_predict_epoch_start"),
    watches("on_predict_batch_start"),
    watches("on_predict_batch_end"),
    watches("on_predict_epoch_end"),
    watches("on_predict_end"),
    watches("on_save_checkpoint"),
    watches("on_load_checkpoint"),
    watches("on_checkpoint_saved"),
    watches("on_checkpoint_loaded"),
    watches("on_log"),
    watches("on_hook_disabled"),
    watches("on_notice"),
    steers("on_exception"),
];

/// The methods of a hook that are not handlers.
pub(crate) const OTHER_METHODS: &[&str] = &[
    "declare",
    "wants_point",
    "wants_activations",
    "state_dict",
    "load_state_dict",
    "check_state_dict",
    "finish",
    "delivery_stats",
];

/// Names of methods in other frameworks, and their names here.
const FOREIGN: &[(&str, &str)] = &[
    ("on_train_begin", "on_train_start"),
    ("on_training_start", "on_train_start"),
    ("on_training_end", "on_train_end"),
    ("on_epoch_start", "on_train_epoch_start"),
    ("on_epoch_begin", "on_train_epoch_start"),
    ("on_epoch_end", "on_train_epoch_end"),
    ("on_batch_start", "on_train_batch_start"),
    ("on_batch_begin", "on_train_batch_start"),
    ("on_train_batch_begin", "on_train_batch_start"),
    ("on_batch_end", "on_train_batch_end"),
    ("on_step_begin", "on_train_batch_start"),
    ("on_step_start", "on_train_batch_start"),
    ("on_eval_start", "on_validation_start"),
    ("on_eval_end", "on_validation_end"),
    ("on_evaluate", "on_validation_end"),
    ("on_eval_batch_start", "on_validation_batch_start"),
    ("on_eval_batch_end", "on_validation_batch_end"),
    ("on_checkpoint_save", "on_checkpoint_saved"),
    ("on_save", "on_checkpoint_saved"),
    ("on_checkpoint_load", "on_checkpoint_loaded"),
    ("on_load", "on_checkpoint_loaded"),
    ("on_optimizer_step", "on_after_optimizer_step"),
    ("on_pre_optimizer_step", "on_before_optimizer_step"),
    ("on_grad_computed", "on_after_backward"),
    ("on_error", "on_exception"),
    ("on_keyboard_interrupt", "on_exception"),
    ("on_init_end", "setup"),
    ("name", "declare"),
    ("tier", "declare"),
    ("policy", "declare"),
    ("access", "declare"),
    ("state", "state_dict"),
    ("load_state", "load_state_dict"),
    ("before_fit", "on_fit_start"),
    ("after_fit", "on_fit_end"),
    ("before_epoch", "on_train_epoch_start"),
    ("after_epoch", "on_train_epoch_end"),
    ("before_batch", "on_train_batch_start"),
    ("after_batch", "on_train_batch_end"),
    ("before_validate", "on_validation_start"),
    ("after_validate", "on_validation_end"),
    ("after_pred", "on_after_forward"),
    ("after_loss", "on_before_backward"),
    ("before_step", "on_before_optimizer_step"),
    ("after_step", "on_after_optimizer_step"),
];

/// Words in the names of other frameworks, and the words used here.
const WORDS: &[(&str, &str)] = &[
    ("begin", "start"),
    ("finish", "end"),
    ("training", "train"),
    ("val", "validation"),
    ("valid", "validation"),
    ("eval", "validation"),
    ("evaluation", "validation"),
    ("testing", "test"),
    ("prediction", "predict"),
    ("pre", "before"),
    ("post", "after"),
    ("opt", "optimizer"),
    ("ckpt", "checkpoint"),
];

/// The handler of this name.
pub(crate) fn find(name: &str) -> Option<&'static Handler> {
    HANDLERS.iter().find(|handler| handler.name == name)
}

/// The error for the method `name` in the hook `ty`, if hooks have no such method.
pub(crate) fn complaint(name: &str, ty: &str) -> String {
    let advice = match suggestion(name) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if name.starts_with("on_") => "see `Event` for all handlers".into(),
        None => format!("helper methods belong in a plain `impl {ty}` block"),
    };
    format!("`{name}` is not a handler of a hook; {advice}")
}

/// The method that the user most likely meant by `name`.
pub(crate) fn suggestion(name: &str) -> Option<&'static str> {
    let reworded = reword(name);
    let mut spellings = vec![name.to_owned(), reworded.clone()];
    if let Some(bare) = name.strip_prefix("on_") {
        spellings.push(bare.into());
    } else if name.contains('_') {
        // Single words are excluded: `log` and `save` are usually helpers, not misspelt `on_log` and
        // `on_save`.
        spellings.extend([format!("on_{name}"), format!("on_{reworded}")]);
    }
    let translated = |name: &String| {
        let foreign = FOREIGN.iter().find(|(theirs, _)| theirs == name).map(|(_, ours)| *ours);
        foreign.or_else(|| methods().find(|method| method == name))
    };
    spellings.iter().find_map(translated).or_else(|| nearest_within_a_third(&reworded))
}

/// The known name with the smallest edit distance from `name`, and the distance.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<(&'a str, usize)> {
    known.map(|known| (known, strsim::damerau_levenshtein(name, known))).min_by_key(|(_, edits)| *edits)
}

fn nearest_within_a_third(name: &str) -> Option<&'static str> {
    let (method, edits) = nearest(name, methods())?;
    (edits * 3 <= name.len().max(method.len())).then_some(method)
}

fn methods() -> impl Iterator<Item = &'static str> {
    HANDLERS.iter().map(|handler| handler.name).chain(OTHER_METHODS.iter().copied())
}

fn reword(name: &str) -> String {
    if !name.contains('_') {
        return name.to_owned();
    }
    let ours = |word| WORDS.iter().find(|(theirs, _)| *theirs == word).map_or(word, |(_, ours)| *ours);
    name.split('_').map(ours).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_its_handler_in_camel_case_without_on() {
        let event = |name| find(name).map(Handler::event);
        assert_eq!(event("on_train_batch_end").as_deref(), Some("TrainBatchEnd"));
        assert_eq!(event("setup").as_deref(), Some("Setup"));
        assert_eq!(event("on_training_end"), None);
    }

    #[test]
    fn no_method_is_listed_twice() {
        let mut names: Vec<_> = methods().collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), HANDLERS.len() + OTHER_METHODS.len());
    }

    #[test]
    fn foreign_names_map_to_methods_and_are_no_methods() {
        for (theirs, ours) in FOREIGN {
            assert!(methods().any(|method| method == *ours), "{theirs} leads to {ours}, which is no method");
            assert!(methods().all(|method| method != *theirs), "{theirs} is a method");
            assert_eq!(suggestion(theirs), Some(*ours));
        }
    }

    #[test]
    fn no_word_of_a_method_counts_as_foreign() {
        for method in methods() {
            assert_eq!(reword(method), method);
        }
    }

    #[test]
    fn words_of_other_frameworks_are_translated() {
        assert_eq!(suggestion("on_val_epoch_end"), Some("on_validation_epoch_end"));
        assert_eq!(suggestion("on_test_batch_begin"), Some("on_test_batch_start"));
        assert_eq!(suggestion("on_epoch_finish"), Some("on_train_epoch_end"));
        assert_eq!(suggestion("on_post_backward"), Some("on_after_backward"));
        assert_eq!(suggestion("on_val_epoch_ends"), Some("on_validation_epoch_end"));
    }

    #[test]
    fn a_missing_or_superfluous_on_prefix_is_corrected() {
        assert_eq!(suggestion("fit_start"), Some("on_fit_start"));
        assert_eq!(suggestion("eval_end"), Some("on_validation_end"));
        assert_eq!(suggestion("epoch_end"), Some("on_train_epoch_end"));
        assert_eq!(suggestion("on_setup"), Some("setup"));
        assert_eq!(suggestion("on_state_dict"), Some("state_dict"));
    }

    #[test]
    fn every_handler_is_suggested_for_a_typo() {
        for method in methods() {
            let (head, tail) = method.split_at(method.len() - 2);
            let swapped = format!("{head}{}", tail.chars().rev().collect::<String>());
            assert_eq!(suggestion(&swapped), Some(method), "{swapped}");
        }
    }

    #[test]
    fn names_unlike_any_method_get_no_suggestion() {
        for name in ["on_quantum_leap", "log", "save", "step", "reset", "format_line", "is_better", "new"] {
            assert_eq!(suggestion(name), None, "{name}");
        }
    }

    #[test]
    fn the_error_for_an_unknown_method_contains_a_fix() {
        assert_eq!(
            complaint("on_training_end", "Stop"),
            "`on_training_end` is not a handler of a hook; did you mean `on_train_end`?"
        );
        assert_eq!(
            complaint("on_quantum_leap", "Stop"),
            "`on_quantum_leap` is not a handler of a hook; see `Event` for all handlers"
        );
        assert_eq!(
            complaint("is_better", "Stop"),
            "`is_better` is not a handler of a hook; helper methods belong in a plain `impl Stop` block"
        );
    }
}
