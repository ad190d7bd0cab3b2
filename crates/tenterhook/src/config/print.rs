//! Prints a complete configuration as TOML, with a comment above each key.

use toml::{Table, Value};

use super::hash::with_defaults;
use super::hook_keys::{HOOK_KEYS, HookKeys};
use super::schema::{Schema, schema_of};
use super::secrets::MASK;
use super::{Config, about};
use crate::settings::Settings;

const WIDTH: usize = 100;

pub(crate) fn to_toml(config: &Config) -> String {
    let mut page = Page::default();
    page.comment(
        "The complete configuration of this run. A key behind a `#` is unset; write a value to set it.",
    );
    page.blank();
    let runs_dir = config.runs_dir.display().to_string();
    for (key, value, about) in [
        ("task", &config.task, about::TASK),
        ("device", &config.device, about::DEVICE),
        ("runs_dir", &runs_dir, about::RUNS_DIR),
    ] {
        if !value.is_empty() {
            page.comment(about);
            page.assign(key, &Value::String(value.clone()));
        }
    }
    if config.hooks.is_empty() {
        page.comment("There are no hooks. A hook is a table that begins with [[hooks]].");
        page.assign("hooks", &Value::Array(Vec::new()));
    }
    let options = rows(&config.options, Some(Schema::new(&config.task_schema)));
    page.leaves(&options);

    let schema = schema_of::<Settings>();
    page.header("[trainer]", Some(about::TRAINER));
    match Table::try_from(&config.trainer) {
        Ok(table) => page.body(&["trainer"], &rows(&table, Some(Schema::new(&schema)))),
        Err(error) => page.comment(&format!("these settings cannot be written in TOML: {error}")),
    }
    page.tables(&[], &options);
    page.hooks(config);
    page.text
}

/// A key with what is printed of it.
struct Row<'a> {
    key: String,
    value: Option<Value>,
    schema: Option<Schema<'a>>,
    /// The allowed words, if there are only a few.
    choices: Vec<&'a str>,
    /// Whether it has a value that is a secret.
    hidden: bool,
}

/// The keys of a table with their values, in declaration order, then the undeclared ones.
fn rows<'a>(table: &Table, schema: Option<Schema<'a>>) -> Vec<Row<'a>> {
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
        let value = table.get(key);
        let kinds = schema.map(|schema| schema.kinds(key)).unwrap_or_default();
        Row {
            key: key.to_owned(),
            value: value.filter(|_| !secret).cloned(),
            schema: Some(own),
            choices: if kinds.is_empty() { own.choices() } else { kinds },
            hidden: secret && value.is_some_and(|value| Some(value) != own.default().as_ref()),
        }
    });
    declared.chain(others).collect()
}

/// Whether a value is printed with its own header.
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

    fn body(&mut self, path: &[&str], all: &[Row<'_>]) {
        self.leaves(all);
        self.tables(path, all);
    }

    /// The keys that are printed on one line.
    fn leaves(&mut self, all: &[Row<'_>]) {
        for row in all.iter().filter(|row| !is_section(row.value.as_ref())) {
            self.about(row);
            if row.hidden {
                self.comment("This is a secret, which is not written here. Set it again, for example in the environment.");
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

    /// The keys that are printed with a header.
    fn tables(&mut self, path: &[&str], all: &[Row<'_>]) {
        for Row { key, value, schema, .. } in all {
            let path = [path, &[key.as_str()]].concat();
            let dotted = path.iter().map(|step| quoted(step)).collect::<Vec<_>>().join(".");
            let about = schema.and_then(Schema::description);
            match value {
                Some(Value::Table(table)) => {
                    self.header(&format!("[{dotted}]"), about);
                    self.body(&path, &rows(table, *schema));
                }
                Some(Value::Array(items)) if is_section(value.as_ref()) => {
                    let of_items = schema.and_then(Schema::items);
                    for (index, table) in items.iter().filter_map(Value::as_table).enumerate() {
                        self.header(&format!("[[{dotted}]]"), about.filter(|_| index == 0));
                        self.body(&path, &rows(table, of_items));
                    }
                }
                _ => {}
            }
        }
    }

    fn hooks(&mut self, config: &Config) {
        let common = schema_of::<HookKeys>();
        for (index, (hook, schema)) in config.hooks.iter().zip(&config.hook_schemas).enumerate() {
            self.header("[[hooks]]", (index == 0).then_some("The hooks, in registration order."));
            let keys = Table::try_from(&hook.common).unwrap_or_default();
            let schema = Schema::new(schema);
            let options = rows(&with_defaults(hook.options.clone(), schema), Some(schema));
            let options = options.into_iter().filter(|row| !HOOK_KEYS.contains(&row.key.as_str()));
            let all: Vec<_> = rows(&keys, Some(Schema::new(&common))).into_iter().chain(options).collect();
            self.body(&["hooks"], &all);
        }
    }
}

fn quoted(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { Value::String(key.to_owned()).to_string() }
}
