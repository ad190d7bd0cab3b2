//! Types and ranges of a schema in words, for messages and descriptions.

use serde_json::Value;

use super::schema::Schema;

impl Schema<'_> {
    /// The kind of its values, in words: `text`, `whole number, 1 or more`, `list of numbers`, `"min" or
    /// "max"`.
    pub(crate) fn kind_in_words(self) -> String {
        let of_items = || self.json().get("items").map(|items| self.at(items).limits()).unwrap_or_default();
        let limits = Some(self.limits()).filter(|limits| !limits.is_empty()).unwrap_or_else(of_items);
        let comma = if limits.is_empty() { "" } else { ", " };
        format!("{}{comma}{limits}", self.kind())
    }

    /// Its range in words, where it is narrower than its type.
    fn limits(self) -> String {
        let of = |key: &str| self.json().get(key).filter(|limit| limit.is_number());
        let unsigned =
            self.json().get("format").and_then(Value::as_str).is_some_and(|of| of.starts_with("uint"));
        let minimum = of("minimum").filter(|least| !(unsigned && least.as_f64() == Some(0.0)));
        if let (Some(least), Some(most)) = (minimum, of("maximum")) {
            return format!("from {least} to {most}");
        }
        let limits = [
            minimum.map(|least| format!("{least} or more")),
            of("exclusiveMinimum").map(|least| format!("above {least}")),
            of("maximum").map(|most| format!("at most {most}")),
            of("exclusiveMaximum").map(|most| format!("below {most}")),
        ];
        limits.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }

    fn kind(self) -> String {
        let mut kinds: Vec<String> = Vec::new();
        let mut add = |kind: String| {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        };
        for part in self.all() {
            if part.json().get("enum").is_some() || part.json().get("const").is_some() {
                part.own_choices().for_each(|word| add(format!("\"{word}\"")));
                continue;
            }
            for kind in part.own_types() {
                let of_items = || part.items().map(Schema::kind).filter(|of| !of.is_empty());
                match (kind, of_items()) {
                    ("null", _) => {}
                    // Quoted words have no plural.
                    ("array", Some(of)) if of.ends_with('"') => add(format!("list of {of}")),
                    ("array", Some(of)) => add(format!("list of {of}s")),
                    (kind, _) => add(type_name(kind).to_owned()),
                }
            }
        }
        kinds.join(" or ")
    }
}

/// The name of a JSON type in messages.
pub(crate) fn type_name(kind: &str) -> &'static str {
    match kind {
        "boolean" => "true or false",
        "integer" => "whole number",
        "number" => "number",
        "array" => "list",
        "object" => "table",
        _ => "text",
    }
}

/// Whether a kind of value in words takes an article. Quoted words and `true or false` do not.
pub(crate) fn takes_article(kind: &str) -> bool {
    !kind.starts_with('"') && !kind.starts_with("true")
}

/// A kind of value in words, such as `a whole number`.
pub(crate) fn with_article(kind: &str) -> String {
    if takes_article(kind) { format!("a {kind}") } else { kind.to_owned() }
}
