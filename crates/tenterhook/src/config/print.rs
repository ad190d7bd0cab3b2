//! Writes a complete configuration, with a comment above every key.

use serde_json::Value as Json;
use toml::{Table, Value};

use super::keys::{HOOK_KEYS, HookKeys};
use super::resolved::Resolved;
use super::schema::{Schema, schema_of};
use super::secrets::MASK;
use crate::settings::Settings;

const WIDTH: usize = 100;

/// The whole of it.
pub(crate) fn page(resolved: &Resolved) -> String {
    let mut page = Page::default();
    page.comment(
        "The complete configuration of this run. A key behind a `#` is unset; write a value to set it.",
    );
    page.blank();
    let runs_dir = resolved.runs_dir.display().to_string();
    for (key, value, about) in [
        ("task", &resolved.task, "What is trained."),
        ("device", &resolved.device, "The device to compute on."),
        ("runs_dir", &runs_dir, "The directory of all runs; each makes one of its own in it."),
    ] {
        if !value.is_empty() {
            page.comment(about);
            page.assign(key, &Value::String(value.clone()));
        }
    }
    if resolved.hooks.is_empty() {
        page.comment("The hooks: none. Each would be a table of its own that begins with [[hooks]].");
        page.assign("hooks", &Value::Array(Vec::new()));
    }
    let options = Rows::of(&resolved.options, Some(Schema::new(&resolved.task_schema)), Fill::Nothing);
    page.leaves(&options);

    let schema = schema_of::<Settings>();
    page.header("[trainer]", Some("The loop itself: how long to train, when to validate, what to log."));
    match Table::try_from(&resolved.trainer) {
        Ok(table) => page.body(&["trainer"], &Rows::of(&table, Some(Schema::new(&schema)), Fill::Nothing)),
        Err(error) => page.comment(&format!("these settings cannot be written in TOML: {error}")),
    }
    page.tables(&[], &options);
    page.hooks(resolved);
    page.text
}

/// Whether a key that is not there gets the default that its schema has.
#[derive(Clone, Copy, PartialEq)]
enum Fill {
    Nothing,
    Defaults,
}

struct Row<'a> {
    key: String,
    value: Option<Value>,
    schema: Option<Schema<'a>>,
    /// The words it can be, where it is one of a few.
    choices: Vec<&'a str>,
    /// It has a value, which is not to be written down.
    hidden: bool,
}

/// The keys of a table in the order in which they are declared, with their values.
struct Rows<'a> {
    rows: Vec<Row<'a>>,
    fill: Fill,
}

impl<'a> Rows<'a> {
    fn of(table: &Table, schema: Option<Schema<'a>>, fill: Fill) -> Rows<'a> {
        let declared = schema.map(|schema| schema.keys(Some(table))).unwrap_or_default();
        let others = table.iter().filter(|(key, _)| declared.iter().all(|(known, _)| known != key));
        let values = schema.and_then(Schema::values);
        let others: Vec<_> = others
            .map(|(key, value)| Row {
                key: key.clone(),
                value: Some(value.clone()),
                schema: values,
                choices: Vec::new(),
                hidden: false,
            })
            .collect();
        let declared = declared.into_iter().map(|(key, own)| {
            let secret = own.is_secret();
            let default = || own.default().filter(|_| fill == Fill::Defaults);
            let kinds = schema.map(|schema| schema.kinds(key)).unwrap_or_default();
            Row {
                key: key.to_owned(),
                value: table.get(key).cloned().or_else(default).filter(|_| !secret),
                schema: Some(own),
                choices: if kinds.is_empty() { own.choices() } else { kinds },
                hidden: secret && table.get(key).is_some_and(|value| Some(value) != own.default().as_ref()),
            }
        });
        Rows { rows: declared.chain(others).collect(), fill }
    }
}

/// Whether it gets a header of its own.
fn is_section(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Table(_)) => true,
        Some(Value::Array(items)) => !items.is_empty() && items.iter().all(Value::is_table),
        _ => false,
    }
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn blank(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    fn comment(&mut self, text: &str) {
        for paragraph in text.split("\n\n") {
            let mut line = "#".to_owned();
            for word in paragraph.split_whitespace() {
                if line.chars().count() + 1 + word.chars().count() > WIDTH {
                    self.line(&line);
                    line.truncate(1);
                }
                line.push(' ');
                line.push_str(word);
            }
            self.line(&line);
        }
    }

    fn assign(&mut self, key: &str, value: &Value) {
        self.line(&format!("{} = {value}", quoted(key)));
    }

    fn header(&mut self, header: &str, about: Option<&str>) {
        self.blank();
        if let Some(about) = about {
            self.comment(about);
        }
        self.line(header);
    }

    fn body(&mut self, path: &[&str], rows: &Rows<'_>) {
        self.leaves(rows);
        self.tables(path, rows);
    }

    /// What stands on one line.
    fn leaves(&mut self, rows: &Rows<'_>) {
        for row in rows.rows.iter().filter(|row| !is_section(row.value.as_ref())) {
            self.about(row);
            if row.hidden {
                self.comment("It is a secret, and so it is not written down. Set it again, in the environment for example.");
                self.line(&format!("# {} = \"{MASK}\"", quoted(&row.key)));
            } else if let Some(value) = &row.value {
                self.assign(&row.key, value);
            } else {
                let example = row.schema.and_then(Schema::example);
                let example = example.map(|value| value.to_string()).unwrap_or_default();
                self.line(&format!("# {} = {example}", quoted(&row.key)));
            }
        }
    }

    fn about(&mut self, row: &Row<'_>) {
        let mut about = row.schema.and_then(Schema::description).unwrap_or_default().to_owned();
        let choices: Vec<_> = row.choices.iter().map(|word| format!("`{word}`")).collect();
        if choices.len() > 1 && choices.iter().any(|choice| !about.contains(choice.as_str())) {
            about = format!("{about} One of {}.", choices.join(", "));
        }
        if !about.trim().is_empty() {
            self.comment(about.trim());
        }
    }

    /// What has a header of its own.
    fn tables(&mut self, path: &[&str], rows: &Rows<'_>) {
        for Row { key, value, schema, .. } in &rows.rows {
            let path = [path, &[key.as_str()]].concat();
            let dotted = path.iter().map(|step| quoted(step)).collect::<Vec<_>>().join(".");
            let about = schema.and_then(Schema::description);
            match value {
                Some(Value::Table(table)) => {
                    self.header(&format!("[{dotted}]"), about);
                    self.body(&path, &Rows::of(table, *schema, rows.fill));
                }
                Some(Value::Array(items)) if is_section(value.as_ref()) => {
                    let of_items = schema.and_then(Schema::items);
                    for (index, table) in items.iter().filter_map(Value::as_table).enumerate() {
                        self.header(&format!("[[{dotted}]]"), about.filter(|_| index == 0));
                        self.body(&path, &Rows::of(table, of_items, rows.fill));
                    }
                }
                _ => {}
            }
        }
    }

    fn hooks(&mut self, resolved: &Resolved) {
        let common = schema_of::<HookKeys>();
        for (index, hook) in resolved.hooks.iter().enumerate() {
            let about = "The hooks, in the order in which they are registered.";
            self.header("[[hooks]]", (index == 0).then_some(about));
            let mut rows = match Table::try_from(&hook.common) {
                Ok(table) => Rows::of(&table, Some(Schema::new(&common)), Fill::Defaults),
                Err(_) => Rows { rows: Vec::new(), fill: Fill::Defaults },
            };
            let schema = resolved.hook_schemas.get(index).filter(|schema| **schema != Json::Null);
            let own = Rows::of(&hook.options, schema.map(Schema::new), Fill::Defaults);
            rows.rows.extend(own.rows.into_iter().filter(|row| !HOOK_KEYS.contains(&row.key.as_str())));
            self.body(&["hooks"], &rows);
        }
    }
}

fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { Value::String(key.to_owned()).to_string() }
}
