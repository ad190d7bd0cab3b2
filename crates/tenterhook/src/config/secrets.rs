//! Secrets: options whose schema has `writeOnly`, set by `#[schemars(extend("writeOnly" = true))]`.
//! They are never written to a file or shown.

use toml::{Table, Value};

use super::schema::Schema;
use super::tree::USE;
use crate::problems::masking;

/// The text shown instead of a secret.
pub(crate) const MASK: &str = "***";

/// The key of an address, whose public part a message may show.
const DESTINATION: &str = "to";

/// Masks the secrets of a table.
pub(crate) fn masked(mut table: Table, schema: Schema<'_>) -> Table {
    each(&mut table, schema, &mut |table, key| {
        table.insert(key.to_owned(), Value::String(MASK.to_owned()));
    });
    table
}

/// Removes the secrets of a table.
pub(crate) fn without(mut table: Table, schema: Schema<'_>) -> Table {
    each(&mut table, schema, &mut |table, key| {
        table.remove(key);
    });
    table
}

/// The secrets of a table, as text.
pub(crate) fn values(mut table: Table, schema: Schema<'_>) -> Vec<String> {
    let mut values = Vec::new();
    each(&mut table, schema, &mut |table, key| values.extend(table.get(key).map(text)));
    values.retain(|text| !text.is_empty());
    values
}

/// The texts of a hook that takes secrets or has a destination `to`. One of them may be a secret under a
/// wrong key.
pub(crate) fn possible_secrets(table: &Table, schema: Schema<'_>) -> Vec<String> {
    let takes_secrets = |(key, own): &(&str, Schema<'_>)| {
        own.is_secret() || masking::may_take_secret(key) || *key == DESTINATION
    };
    if !schema.keys(None).iter().any(takes_secrets) {
        return Vec::new();
    }
    let others = table.iter().filter(|(key, _)| ![USE, "name", DESTINATION].contains(&key.as_str()));
    let texts = others.filter_map(|(_, value)| value.as_str());
    texts.filter(|text| !masking::is_harmless(text)).map(str::to_owned).collect()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Calls `act` for each secret of a table and of the tables in it.
fn each(table: &mut Table, schema: Schema<'_>, act: &mut dyn FnMut(&mut Table, &str)) {
    let keys: Vec<_> = table.keys().cloned().collect();
    for key in keys {
        let Some(own) = schema.step(&key, Some(table)) else { continue };
        if own.is_secret() {
            act(table, &key);
            continue;
        }
        match table.get_mut(&key) {
            Some(Value::Table(inner)) => each(inner, own, act),
            Some(Value::Array(items)) => {
                let of_items = own.items();
                for (item, own) in
                    items.iter_mut().filter_map(Value::as_table_mut).zip(of_items.into_iter().cycle())
                {
                    each(item, own, act);
                }
            }
            _ => {}
        }
    }
}
