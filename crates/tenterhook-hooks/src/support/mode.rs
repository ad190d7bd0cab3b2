//! Which direction of a metric is better.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::OptionError;

/// Which direction of a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Lower is better.
    Min,
    /// Higher is better.
    Max,
}

/// Words of metrics whose lower values are better.
const LOWER: &str = "loss losses error errors err eer perplexity ppl bpc bpb mse rmse msle rmsle mae mape smape \
    nll bce crossentropy kl kld brier ece wer cer fid lpips";

/// Words of metrics whose higher values are better.
const HIGHER: &str = "acc accuracy f1 fbeta auc auroc auprc ap map precision recall sensitivity specificity iou \
    miou jaccard dice bleu rouge rougel meteor chrf cider ndcg mrr r2 mcc kappa psnr ssim reward";

/// Words that may reverse a metric's direction: `neg_mse`, `accuracy_drop`.
const AMBIGUOUS: &str = "neg negative minus inv inverse drop decrease increase reduction improvement gain change \
    delta diff gap ratio";

impl Mode {
    /// Whether the first value is strictly better than the second.
    #[must_use]
    pub fn is_better(self, value: f64, than: f64) -> bool {
        match self {
            Mode::Min => value < than,
            Mode::Max => value > than,
        }
    }

    /// Infers the direction from a metric's name; `None` if it is ambiguous. The last part of the name with a known word
    /// decides: `val/loss`, `val/f1_macro`, `top5_accuracy`, `val/loss/english`.
    ///
    /// ```
    /// use tenterhook_hooks::Mode;
    ///
    /// assert_eq!(Mode::of_metric("val/loss"), Some(Mode::Min));
    /// assert_eq!(Mode::of_metric("top5_accuracy"), Some(Mode::Max));
    /// assert_eq!(Mode::of_metric("score"), None);
    /// ```
    #[must_use]
    pub fn of_metric(name: &str) -> Option<Mode> {
        name.rsplit('/').find_map(|part| of_part(part).transpose())?.ok()
    }

    /// The option `mode`, or else the direction inferred from the metric's name; an error if that is ambiguous.
    pub fn resolve(set: Option<Mode>, monitor: &str) -> Result<Mode, OptionError> {
        set.or_else(|| Mode::of_metric(monitor)).ok_or_else(|| {
            let meant = corrected(monitor).map(|name| format!("did you mean `{name}`? If not, "));
            OptionError::new("mode", format!("`mode` must be set for the `monitor` \"{monitor}\": its name does not tell whether lower or \
                 higher values are better")).and("monitor").fix(format!("{}write `mode = \"min\"` or `mode = \"max\"`", meant.unwrap_or_default()))
        })
    }
}

/// The words of a name contradict each other.
struct Contradiction;

/// The direction inferred from one part of a name.
fn of_part(part: &str) -> Result<Option<Mode>, Contradiction> {
    let mut direction = None;
    let mut before = String::new();
    for word in part.split(|c: char| !c.is_alphanumeric()).flat_map(words) {
        if contains(AMBIGUOUS, &word) {
            return Err(Contradiction);
        }
        // Higher policy entropy may be better; cross entropy is a loss.
        let says = if word == "entropy" && before == "cross" { Some(Mode::Min) } else { known(&word) };
        if says.is_some() && direction.is_some() && says != direction {
            return Err(Contradiction);
        }
        direction = direction.or(says);
        before = word;
    }
    Ok(direction)
}

/// A word in lower case, split at capitals (`valLoss`) unless it is a known word (`mAP`, `IoU`).
fn words(word: &str) -> Vec<String> {
    let whole = word.to_lowercase();
    if known(&whole).is_some() {
        return vec![whole];
    }
    let mut words = vec![String::new()];
    let mut after_small = false;
    for letter in word.chars() {
        if after_small && letter.is_uppercase() {
            words.push(String::new());
        }
        after_small = letter.is_lowercase();
        if let Some(last) = words.last_mut() {
            last.extend(letter.to_lowercase());
        }
    }
    words
}

/// The direction of a word, also with a trailing number: `map50`, `ndcg10`.
fn known(word: &str) -> Option<Mode> {
    let bare = word.trim_end_matches(|c: char| c.is_ascii_digit());
    [word, bare].into_iter().find_map(|word| {
        let lower = contains(LOWER, word).then_some(Mode::Min);
        lower.or_else(|| contains(HIGHER, word).then_some(Mode::Max))
    })
}

/// The name with a misspelt word corrected: `val/loss` for `val/los`.
fn corrected(name: &str) -> Option<String> {
    // Short words are similar to too many others.
    let all = || LOWER.split(' ').chain(HIGHER.split(' ')).filter(|known| known.len() > 3);
    name.split(|c: char| !c.is_alphanumeric()).find_map(|word| {
        let known = all().find(|known| strsim::osa_distance(word, known) == 1)?;
        Some(name.replacen(word, known, 1))
    })
}

fn contains(list: &str, word: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direction_is_inferred_from_a_clear_name() {
        for name in [
            "loss",
            "val/loss",
            "val_loss",
            "loss/val",
            "val/loss/english",
            "train/loss_epoch",
            "valLoss",
            "val/perplexity",
            "rmse",
            "nll",
            "wer",
            "val/cross_entropy",
            "val-mse",
            "error_rate",
        ] {
            assert_eq!(Mode::of_metric(name), Some(Mode::Min), "{name}");
        }
        for name in [
            "acc",
            "val/accuracy",
            "top5_accuracy",
            "acc@1",
            "val/f1_macro",
            "macro-f1",
            "AUC",
            "mAP50",
            "mIoU",
            "val.ndcg@10",
            "r2",
            "valAccuracy",
            "rouge2",
        ] {
            assert_eq!(Mode::of_metric(name), Some(Mode::Max), "{name}");
        }
    }

    #[test]
    fn no_direction_is_inferred_from_an_ambiguous_name() {
        for name in [
            "score",
            "m",
            "",
            "val/entropy",
            "neg_mse",
            "accuracy_drop",
            "loss_accuracy",
            "accuracy/neg_loss",
            "lossy",
            "grad_norm/total",
        ] {
            assert_eq!(Mode::of_metric(name), None, "{name}");
        }
    }

    #[test]
    fn the_option_overrides_the_name_and_an_ambiguous_name_is_an_error_with_the_fix() {
        assert_eq!(Mode::resolve(Some(Mode::Max), "loss"), Ok(Mode::Max));
        assert_eq!(Mode::resolve(None, "loss"), Ok(Mode::Min));
        let error = Mode::resolve(None, "score").expect_err("in doubt").to_string();
        assert!(error.contains("`mode` must be set for the `monitor` \"score\""), "{error}");
        assert!(error.contains("are better; write `mode = \"min\"` or `mode = \"max\"`"), "{error}");
    }

    #[test]
    fn the_error_corrects_a_misspelt_name() {
        for (name, meant) in [("val/los", "val/loss"), ("acuracy", "accuracy"), ("val_recal", "val_recall")] {
            let error = Mode::resolve(None, name).expect_err("in doubt").to_string();
            assert!(error.contains(&format!("did you mean `{meant}`?")), "{error}");
        }
        let score = Mode::resolve(None, "score").expect_err("in doubt").to_string();
        assert!(!score.contains("did you mean"), "{score}");
    }
}
