//! Converts names between snake case and camel case.

/// Converts `EarlyStopping` to `early_stopping`, `HTTPPing` to `http_ping`.
pub(crate) fn snake(camel: &str) -> String {
    let chars: Vec<char> = camel.chars().collect();
    let mut out = String::with_capacity(camel.len() + 4);
    for (i, &c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| chars.get(i));
        let word_starts = c.is_uppercase()
            && before.is_some_and(|before| {
                // The last capital of a sequence starts the next word: `HTTP|Ping`.
                let run_ends = before.is_uppercase() && chars.get(i + 1).is_some_and(|c| c.is_lowercase());
                before.is_lowercase() || before.is_numeric() || run_ends
            });
        if word_starts {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// Converts `train_batch_end` to `TrainBatchEnd`.
pub(crate) fn camel(snake: &str) -> String {
    let capitalised = |word: &str| {
        let mut chars = word.chars();
        chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect::<String>()
    };
    snake.split('_').map(capitalised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_where_a_capital_follows_a_small_letter_or_digit() {
        assert_eq!(snake("EarlyStopping"), "early_stopping");
        assert_eq!(snake("Top5Accuracy"), "top5_accuracy");
        assert_eq!(snake("Ema"), "ema");
    }

    #[test]
    fn an_acronym_is_one_word() {
        assert_eq!(snake("HTTPPing"), "http_ping");
        assert_eq!(snake("LogToCSV"), "log_to_csv");
        assert_eq!(snake("EMA"), "ema");
        assert_eq!(snake("L2Norm"), "l2_norm");
    }

    #[test]
    fn underscores_are_kept_and_not_doubled() {
        assert_eq!(snake("My_Hook"), "my_hook");
        assert_eq!(snake("already_snake"), "already_snake");
    }

    #[test]
    fn camel_case_capitalises_every_word() {
        assert_eq!(camel("train_batch_end"), "TrainBatchEnd");
        assert_eq!(camel("setup"), "Setup");
    }
}
