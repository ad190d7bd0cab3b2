//! Class paths in `[hooks_config]`, written with `::` or with dots, as one quoted key or as nested tables.

use toml::{Table, Value};

/// The path with dots, for comparisons.
pub(super) fn dotted(path: &str) -> String {
    path.replace("::", ".")
}

/// The options of a class, and the path to them.
pub(super) fn options_of(class: &str, configs: &Table) -> Option<(Vec<String>, Table)> {
    let class = dotted(class);
    let tables = || configs.iter().filter_map(|(key, value)| Some((key, value.as_table()?)));
    if let Some((key, table)) = tables().find(|(key, _)| dotted(key) == class) {
        return Some((vec![key.clone()], table.clone()));
    }
    tables().find_map(|(key, inner)| {
        let rest = class.strip_prefix(&dotted(key))?.strip_prefix('.')?;
        let (path, table) = options_of(rest, inner)?;
        Some(([vec![key.clone()], path].concat(), table))
    })
}

/// The paths of all options that belong to no class.
pub(super) fn orphans(configs: &Table, taken: &[Vec<String>]) -> Vec<Vec<String>> {
    below(configs, taken, &[])
}

fn below(table: &Table, taken: &[Vec<String>], parents: &[String]) -> Vec<Vec<String>> {
    let mut orphans = Vec::new();
    for (key, value) in table {
        let path = [parents, std::slice::from_ref(key)].concat();
        if taken.contains(&path) {
            continue;
        }
        let on_the_way = taken.iter().any(|taken| taken.starts_with(&path));
        match value {
            Value::Table(inner) if on_the_way || is_part_of_a_path(key, inner) => {
                orphans.extend(below(inner, taken, &path));
            }
            _ => orphans.push(path),
        }
    }
    orphans
}

/// Whether a key is one part of a path: it has no separators, and only tables below it.
fn is_part_of_a_path(key: &str, inner: &Table) -> bool {
    key == dotted(key) && !key.contains('.') && !inner.is_empty() && inner.values().all(Value::is_table)
}
