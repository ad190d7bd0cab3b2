//! The JSON schema and the program agree on keys, types and extreme values.

use serde_json::{Value, json};
use tenterhook::config::{Sources, config_schema};
use tenterhook::registry::Registry;

use super::harness::{TOML, in_toml, seed, time};
use super::mutate::{Rng, bytes};
use super::texts::{CONDITION_WORDS, configs, tasks};
use crate::reader::{answer, with};

const VALIDATE: &str = r#"
import json, sys
from jsonschema import Draft202012Validator
asked = json.load(sys.stdin)
validator = Draft202012Validator(asked["schema"])
print(json.dumps([next((error.message[:300] for error in validator.iter_errors(case)), None) for case in asked["cases"]]))
"#;

/// A change of a valid configuration.
#[derive(Clone, Debug, PartialEq)]
enum Edit {
    /// A key that does not exist.
    UnknownKey,
    /// A value of another type.
    OtherType,
    /// An extreme value of the same type.
    Extreme(String),
}

/// Keys whose schema accepts more than the program. A pattern cannot describe the nested grammar of `when`.
/// JSON does not distinguish 0 from 0.0, but `val_check_interval` does (0.0 means every batch, 0 is refused).
const SCHEMA_IS_WIDER: &[&str] = &["val_check_interval", "when"];

/// A random table within a document.
fn table<'a>(rng: &mut Rng, value: &'a mut Value) -> &'a mut serde_json::Map<String, Value> {
    let within = |value: &Value| match value {
        Value::Object(_) => true,
        Value::Array(items) => !items.is_empty() && items.iter().all(Value::is_object),
        _ => false,
    };
    match value {
        Value::Array(items) => {
            let at = rng.below(items.len());
            table(rng, &mut items[at])
        }
        Value::Object(map) => {
            let inner: Vec<String> =
                map.iter().filter(|(_, value)| within(value)).map(|(key, _)| key.clone()).collect();
            if inner.is_empty() || rng.below(4) == 0 {
                return map;
            }
            let key = rng.pick(&inner).clone();
            table(rng, map.get_mut(&key).expect("it is there"))
        }
        _ => unreachable!("only tables are entered"),
    }
}

fn edited(rng: &mut Rng, config: &Value) -> Option<(Edit, Value)> {
    let mut config = config.clone();
    let mut edit = rng.pick(&[Edit::UnknownKey, Edit::OtherType, Edit::Extreme(String::new())]).clone();
    let map = table(rng, &mut config);
    match &mut edit {
        Edit::UnknownKey => drop(map.insert(format!("zz_{}", rng.below(9)), json!(1))),
        Edit::OtherType => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let key = if keys.is_empty() { return None } else { rng.pick(&keys).clone() };
            // Whether a text is valid does not depend on its type.
            let others = if map[&key].is_string() { 2 } else { 3 };
            let other = [json!({ "zz": 1 }), json!([[[1]]]), json!("zz")][rng.below(others)].clone();
            map.insert(key, other);
        }
        Edit::Extreme(of) => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let key = if keys.is_empty() { return None } else { rng.pick(&keys).clone() };
            let extreme = match &map[&key] {
                Value::String(condition) if key == "when" && rng.below(3) > 0 => {
                    let edited = bytes(rng, condition.as_bytes(), b"not (a - 1 >= 'x')", CONDITION_WORDS);
                    json!(String::from_utf8_lossy(&edited))
                }
                Value::Number(_) if key == "val_check_interval" => {
                    rng.pick(&[json!(0), json!(-1), json!(1.5)]).clone()
                }
                Value::String(_) => json!(["", "x"][rng.below(2)]),
                Value::Number(number) if number.is_f64() => json!(-1.0),
                Value::Number(_) => json!([0, -1, 1_000_000_000_000_000_000_i64][rng.below(3)]),
                _ => return None,
            };
            of.clone_from(&key);
            map.insert(key, extreme);
        }
    }
    Some((edit, config))
}

#[test]
fn the_schema_and_the_program_agree_on_keys_types_and_extreme_values() {
    let Some(python) = with("jsonschema") else { return };
    let (registry, tasks, directory) = (Registry::default(), tasks(), tempfile::tempdir().unwrap());
    let file = directory.path().join("fuzzed.toml");
    let accepts = |config: &Value| {
        let text = toml::to_string(&in_toml(config).expect("it is TOML")).expect("it is written");
        std::fs::write(&file, text).unwrap();
        let resolved = Sources::file(&file).resolve(&tasks, &registry).map_err(|error| error.to_string())?;
        resolved.trainer(&registry).map(|_| ()).map_err(|error| error.to_string())
    };
    let works: Vec<Value> =
        configs().iter().filter_map(|text| (TOML.read)(text)).filter(|it| accepts(it).is_ok()).collect();
    assert!(works.len() > 20, "only {} configurations work", works.len());
    let mut rng = Rng(seed());
    let count = time().map_or(120, |time| 60 * usize::try_from(time.as_secs()).unwrap_or(1));
    let cases: Vec<_> = (0..count)
        .filter_map(|_| {
            let config = rng.pick(&works).clone();
            edited(&mut rng, &config)
        })
        .collect();
    let documents: Vec<_> = works.iter().chain(cases.iter().map(|(_, config)| config)).collect();
    let asked = json!({ "schema": config_schema(&tasks, &registry), "cases": documents }).to_string();
    let verdicts: Vec<Option<String>> =
        serde_json::from_value(answer(&python, VALIDATE, &asked)).expect("its verdicts");
    let edits = works.iter().map(|_| None).chain(cases.iter().map(|(edit, _)| Some(edit)));
    for ((config, refused), edit) in documents.iter().zip(&verdicts).zip(edits) {
        let is_wider = matches!(edit, Some(Edit::Extreme(key)) if SCHEMA_IS_WIDER.contains(&key.as_str()));
        match (accepts(config), refused) {
            (Ok(()), Some(refused)) => panic!("only the schema refuses ({refused}):\n{config:#}"),
            (Err(error), None) if !is_wider => panic!("only the program refuses ({error}):\n{config:#}"),
            _ => {}
        }
    }
    println!("fuzzed schema with {} inputs, seed {}", documents.len(), seed());
}
