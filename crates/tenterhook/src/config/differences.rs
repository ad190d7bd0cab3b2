//! What differs between the configuration of a checkpoint and that of the run that goes on from it, and whether it
//! does harm: whether the run would go on as one that neither configuration describes.

use std::collections::BTreeMap;

use serde_json::Value;

use super::secrets::MASK;

/// Keys of `[trainer]` that change what is computed. The others say how long it goes on, or what is looked at.
const HARMFUL_SETTINGS: [&str; 8] = [
    "accumulate_grad_batches",
    "deterministic",
    "fast_dev_run",
    "gradient_clip_algorithm",
    "gradient_clip_val",
    "limit_train_batches",
    "overfit_batches",
    "seed",
];

/// How batches are loaded, which changes none of them, and the tables that say so.
const LOADING: [&str; 2] = ["threads", "prefetch"];
const LOADERS: [&str; 2] = ["loader", "data"];

/// One key that is not the same in two configurations.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// The key as people write it, such as `optimizer.lr`; of a hook, `hooks.<name>.patience`.
    pub key: String,
    /// What it was; `None` where it was not set.
    pub old: Option<Value>,
    /// What it is.
    pub new: Option<Value>,
    /// What that does to a run that goes on.
    pub harm: Harm,
}

/// What a difference does to a run that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// Nothing.
    None,
    /// It computes the same, but perhaps not to the bit.
    Bits,
    /// It becomes another run.
    Harmful,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = |value: &Option<Value>| value.as_ref().map_or("unset".to_owned(), ToString::to_string);
        write!(f, "{}: {} -> {}", self.key, value(&self.old), value(&self.new))
    }
}

/// Every key that differs, in order. Both are complete, as
/// [`Resolved::to_json`](super::Resolved::to_json) makes them; where nothing is known of one side, nothing differs.
/// Secrets are not compared.
///
/// ```
/// use serde_json::json;
/// use tenterhook::config::{Harm, differences};
///
/// let old = json!({ "optimizer": { "lr": 0.001 }, "trainer": { "max_epochs": 3 } });
/// let new = json!({ "optimizer": { "lr": 0.01 }, "trainer": { "max_epochs": 5 } });
/// let all = differences(&old, &new);
/// assert_eq!(all[0].to_string(), "optimizer.lr: 0.001 -> 0.01");
/// assert_eq!((all[0].harm, all[1].harm), (Harm::Harmful, Harm::None));
/// ```
#[must_use]
pub fn differences(old: &Value, new: &Value) -> Vec<Difference> {
    if old.is_null() || new.is_null() {
        return Vec::new();
    }
    let (mut old, new) = (flat(old), flat(new));
    let mut pairs: BTreeMap<String, (Option<Value>, Option<Value>)> = BTreeMap::new();
    for (key, new) in new {
        let old = old.remove(&key);
        if new == MASK {
            // What it stands for is written nowhere.
            continue;
        }
        if !old.as_ref().is_some_and(|old| same(old, &new)) {
            pairs.insert(key, (old, Some(new)));
        }
    }
    let gone = old.into_iter().filter(|(_, old)| old != MASK);
    pairs.extend(gone.map(|(key, old)| (key, (Some(old), None))));
    let difference = |(key, (old, new)): (String, _)| Difference { harm: harm(&key), key, old, new };
    pairs.into_iter().map(difference).collect()
}

/// That a run cannot go on with these differences, if there is a harmful one, with all of those and what to do.
#[must_use]
pub fn refusal(differences: &[Difference]) -> Option<String> {
    let harmful = differences.iter().filter(|difference| difference.harm == Harm::Harmful);
    let lines: Vec<_> = harmful.map(|difference| format!("\n  {difference}")).collect();
    (!lines.is_empty()).then(|| {
        format!(
            "the configuration is not that of the checkpoint:{}\ntake the old values back, or accept the new ones \
             with `--force` (`Trainer::accepting_changes`)",
            lines.concat()
        )
    })
}

/// What differs and does no harm, if something does.
#[must_use]
pub fn remark(differences: &[Difference]) -> Option<String> {
    let texts: Vec<_> = differences
        .iter()
        .filter_map(|difference| match difference.harm {
            Harm::Harmful => None,
            Harm::None => Some(difference.to_string()),
            Harm::Bits => Some(format!("{difference} (results may differ in their last bits)")),
        })
        .collect();
    (!texts.is_empty()).then(|| format!("goes on with other settings: {}", texts.join(", ")))
}

fn harm(key: &str) -> Harm {
    let (table, rest) = key.split_once('.').unwrap_or((key, ""));
    let harmless = match table {
        "device" => return Harm::Bits,
        "runs_dir" | "hooks" => true,
        "trainer" => !HARMFUL_SETTINGS.contains(&rest),
        table => LOADERS.contains(&table) && LOADING.contains(&rest),
    };
    if harmless { Harm::None } else { Harm::Harmful }
}

/// `1` and `1.0` are the same number.
#[allow(clippy::float_cmp)] // a difference in the last bit is one
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (a, b) => a == b,
    }
}

/// Dotted keys with their values. What is null or empty is not set.
fn flat(config: &Value) -> BTreeMap<String, Value> {
    let mut keys = BTreeMap::new();
    for (key, value) in config.as_object().into_iter().flatten() {
        match value.as_array() {
            Some(hooks) if key == "hooks" => {
                for (name, hook) in hook_names(hooks).into_iter().zip(hooks) {
                    flatten(&mut keys, &format!("hooks.{name}"), hook);
                }
            }
            _ => flatten(&mut keys, key, value),
        }
    }
    keys
}

fn flatten(keys: &mut BTreeMap<String, Value>, prefix: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Object(table) => {
            table.iter().for_each(|(key, value)| flatten(keys, &format!("{prefix}.{key}"), value));
        }
        Value::Array(list) if list.iter().all(Value::is_object) => {
            let numbered = list.iter().enumerate();
            numbered.for_each(|(index, value)| flatten(keys, &format!("{prefix}.{index}"), value));
        }
        leaf => {
            keys.insert(prefix.to_owned(), leaf.clone());
        }
    }
}

/// What each hook is called: by its name or what it uses, a second one of a kind with its number.
fn hook_names(hooks: &[Value]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for hook in hooks {
        let of = |key: &str| hook.get(key).and_then(Value::as_str);
        let name = of("name").or_else(|| of("use")).unwrap_or("unnamed");
        let mut numbered = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.to_owned()).chain(&mut numbered).find(|name| !names.contains(name));
        names.extend(free);
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn harms(old: &Value, new: &Value) -> Vec<(String, Harm)> {
        differences(old, new).into_iter().map(|difference| (difference.key, difference.harm)).collect()
    }

    #[test]
    fn what_is_computed_is_harmful_and_how_long_is_not() {
        let old = json!({
            "task": "a", "device": "cpu", "runs_dir": "runs",
            "model": { "hidden": [8, 8] }, "optimizer": { "lr": 0.1 }, "schedulers": [],
            "loader": { "threads": 1, "prefetch": 4, "batch_size": 32 },
            "data": { "path": "x" }, "generate": { "tokens": 3 },
            "trainer": {
                "seed": 0, "max_epochs": null, "accumulate_grad_batches": 1, "limit_train_batches": null,
                "overfit_batches": 0, "gradient_clip_val": null, "gradient_clip_algorithm": null,
                "deterministic": false, "fast_dev_run": 0, "log_every_n_steps": 50,
            },
        });
        let new = json!({
            "task": "b", "device": "cuda", "runs_dir": "elsewhere",
            "model": { "hidden": [8, 9] }, "optimizer": { "lr": 0.2 }, "schedulers": [{ "use": "cosine" }],
            "loader": { "threads": 2, "prefetch": 5, "batch_size": 33 },
            "data": { "path": "y" }, "generate": { "tokens": 4 },
            "trainer": {
                "seed": 1, "max_epochs": 3, "accumulate_grad_batches": 2, "limit_train_batches": 5,
                "overfit_batches": 1, "gradient_clip_val": 1.0, "gradient_clip_algorithm": "norm",
                "deterministic": true, "fast_dev_run": 1, "log_every_n_steps": 10,
            },
        });
        let all = harms(&old, &new);
        let of = |harm: Harm| -> Vec<_> {
            all.iter().filter(|(_, of_it)| *of_it == harm).map(|(key, _)| key.as_str()).collect()
        };
        assert_eq!(
            of(Harm::None),
            [
                "loader.prefetch",
                "loader.threads",
                "runs_dir",
                "trainer.log_every_n_steps",
                "trainer.max_epochs"
            ]
        );
        assert_eq!(of(Harm::Bits), ["device"]);
        assert_eq!(
            of(Harm::Harmful),
            [
                "data.path",
                "generate.tokens",
                "loader.batch_size",
                "model.hidden",
                "optimizer.lr",
                "schedulers.0.use",
                "task",
                "trainer.accumulate_grad_batches",
                "trainer.deterministic",
                "trainer.fast_dev_run",
                "trainer.gradient_clip_algorithm",
                "trainer.gradient_clip_val",
                "trainer.limit_train_batches",
                "trainer.overfit_batches",
                "trainer.seed",
            ]
        );
    }

    #[test]
    fn hooks_go_by_name_whatever_their_order() {
        let old = json!({ "hooks": [
            { "use": "ema" }, { "use": "stop", "patience": 3 }, { "use": "stop", "name": "late", "patience": 9 },
        ] });
        let new = json!({ "hooks": [
            { "use": "stop", "name": "late", "patience": 9 }, { "use": "stop", "patience": 4 }, { "use": "stop" },
        ] });
        let all = differences(&old, &new);
        let texts: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "hooks.ema.use: \"ema\" -> unset",
                "hooks.stop.patience: 3 -> 4",
                "hooks.stop_2.use: unset -> \"stop\"",
            ]
        );
        assert_eq!(refusal(&all), None);
    }

    #[test]
    fn the_same_number_is_no_difference_however_it_is_written() {
        let old = json!({ "a": 1, "b": [1.0, 2], "c": null, "d": {}, "e": "***", "seed": u64::MAX });
        let new = json!({ "a": 1.0, "b": [1, 2.0], "f": "***", "seed": u64::MAX - 1 });
        assert_eq!(harms(&old, &new), [("seed".to_owned(), Harm::Harmful)]);
        assert!(differences(&Value::Null, &new).is_empty());
    }

    #[test]
    fn a_refusal_lists_what_does_harm_and_a_remark_the_rest() {
        let old = json!({ "device": "cpu", "optimizer": { "lr": 0.001 }, "trainer": { "seed": 0, "max_steps": 9 } });
        let new = json!({ "device": "gpu", "optimizer": { "lr": 0.01 }, "trainer": { "seed": 7, "max_steps": 10 } });
        let all = differences(&old, &new);
        let refused = refusal(&all).expect("it is refused");
        assert_eq!(
            refused,
            "the configuration is not that of the checkpoint:\n  optimizer.lr: 0.001 -> 0.01\n  trainer.seed: 0 -> \
             7\ntake the old values back, or accept the new ones with `--force` (`Trainer::accepting_changes`)"
        );
        assert_eq!(
            remark(&all).as_deref(),
            Some(
                "goes on with other settings: device: \"cpu\" -> \"gpu\" (results may differ in their last bits), \
                 trainer.max_steps: 9 -> 10"
            )
        );
        assert_eq!((refusal(&[]), remark(&[])), (None, None));
    }
}
