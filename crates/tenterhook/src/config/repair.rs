//! Finds everything that does not fit, and not just the first: what is found is noted and taken out, or
//! filled in where something must stand, and the rest is read again until it reads.

use toml::{Table, Value};

use super::read::Misread;
use super::tree::USE;

/// More than anybody writes; whoever gets here has a type that contradicts itself.
const ENOUGH: usize = 500;

/// Reads, and finds all that does not fit. The value is what is left without it, where that reads.
pub(crate) fn read_repairing<T>(
    tree: Value,
    read: &dyn Fn(Value) -> Result<T, Misread>,
) -> (Option<T>, Vec<Misread>) {
    let mut repair = Repair { tree, read, found: Vec::new(), touched: Vec::new() };
    for _ in 0..ENOUGH {
        let error = match read(repair.tree.clone()) {
            Ok(value) => return (Some(value), repair.found),
            Err(error) => error,
        };
        let going_on = match missing_field(&error.message) {
            Some(field) => repair.fill_in(&error, field),
            None => repair.take_out(&error),
        };
        if !going_on {
            break;
        }
    }
    (None, repair.found)
}

struct Repair<'a, T> {
    tree: Value,
    read: &'a dyn Fn(Value) -> Result<T, Misread>,
    found: Vec<Misread>,
    /// What we took out or filled in: nobody's fault but ours.
    touched: Vec<Vec<String>>,
}

impl<T> Repair<'_, T> {
    fn fails(&self, tree: &Value) -> Option<Misread> {
        (self.read)(tree.clone()).err()
    }

    fn note(&mut self, path: &[String], message: &str) {
        if !self.touched.iter().any(|touched| path.starts_with(touched)) {
            self.found.push(Misread { path: path.to_vec(), message: message.to_owned() });
        }
    }

    fn take_out(&mut self, error: &Misread) -> bool {
        let mut path = self.locate(&self.tree, error);
        self.note(&path, &error.message);
        if path.is_empty() {
            return false;
        }
        // The elements of an array keep their numbers, so one of them is replaced rather than removed.
        while path.last().is_some_and(|step| step.parse::<usize>().is_ok())
            && matches!(at(&self.tree, &path[..path.len() - 1]), Some(Value::Array(_)))
        {
            if self.stand_in(&path) {
                self.touched.push(path);
                return true;
            }
            path.pop();
        }
        let removed = remove(&mut self.tree, &path);
        // Which keys are right depends on the kind, so without it nothing more can be said of the table.
        if path.last().is_some_and(|step| step == USE) {
            path.pop();
        }
        self.touched.push(path);
        removed
    }

    fn fill_in(&mut self, error: &Misread, field: &str) -> bool {
        for table in tables(&self.tree, &error.path) {
            let path = [table, vec![field.to_owned()]].concat();
            if at(&self.tree, &path).is_none() && self.stand_in(&path) {
                self.note(&path, &error.message);
                self.touched.push(path);
                return true;
            }
        }
        let path = [error.path.clone(), vec![field.to_owned()]].concat();
        self.note(&path, &error.message);
        false
    }

    /// Puts something there that reads, so that what comes after it can be read too.
    fn stand_in(&mut self, path: &[String]) -> bool {
        let mut candidates = vec![
            Value::String(String::new()),
            Value::Integer(1),
            Value::Float(1.0),
            Value::Boolean(false),
            Value::Array(Vec::new()),
            Value::Table(Table::new()),
        ];
        let mut next = 0;
        while let Some(candidate) = candidates.get(next).cloned() {
            let mut tree = self.tree.clone();
            if !put(&mut tree, path, candidate) {
                return false;
            }
            let error = self.fails(&tree);
            if error.as_ref().is_none_or(|error| !self.is_about(&tree, error, path)) {
                self.tree = tree;
                return true;
            }
            if next == 0 {
                // One of a few words: the message lists them.
                let words = error.iter().flat_map(|error| expected(&error.message));
                candidates.extend(words.map(|word| Value::String(word.to_owned())).collect::<Vec<_>>());
            }
            next += 1;
        }
        false
    }

    fn is_about(&self, tree: &Value, error: &Misread, path: &[String]) -> bool {
        if let Some(field) = missing_field(&error.message) {
            return error.path.starts_with(path) || path.last().is_some_and(|last| last == field);
        }
        self.locate(tree, error).starts_with(path)
    }

    /// Where exactly the error is. Serde loses the way in tagged and flattened types; then the culprit is
    /// what must go for the error to change.
    fn locate(&self, tree: &Value, error: &Misread) -> Vec<String> {
        let (mut tree, mut path) = (tree.clone(), error.path.clone());
        'deeper: loop {
            for child in children(&tree, &path) {
                let mut further = path.clone();
                further.push(child);
                let before = tree.clone();
                remove(&mut tree, &further);
                if self.fails(&tree).as_ref() != Some(error) {
                    (tree, path) = (before, further);
                    continue 'deeper;
                }
            }
            return path;
        }
    }
}

/// The field that an error misses.
pub(crate) fn missing_field(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// The names after `expected` in an error of serde's.
pub(crate) fn expected(message: &str) -> Vec<&str> {
    let Some((_, list)) = message.split_once(", expected ") else { return Vec::new() };
    list.split('`').skip(1).step_by(2).collect()
}

/// The steps below a node; `use` comes last, because everything else depends on it.
fn children(tree: &Value, path: &[String]) -> Vec<String> {
    match at(tree, path) {
        Some(Value::Table(table)) => {
            let others = table.keys().filter(|key| *key != USE);
            others.chain(table.keys().filter(|key| *key == USE)).cloned().collect()
        }
        Some(Value::Array(items)) => (0..items.len()).rev().map(|index| index.to_string()).collect(),
        _ => Vec::new(),
    }
}

/// The paths of this table and of all tables below it.
fn tables(tree: &Value, path: &[String]) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    if matches!(at(tree, path), Some(Value::Table(_))) {
        all.push(path.to_vec());
    }
    for child in children(tree, path) {
        all.extend(tables(tree, &[path, &[child]].concat()));
    }
    all
}

fn at<'a>(tree: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(tree, |node, step| match node {
        Value::Table(table) => table.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

fn at_mut<'a>(tree: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(tree, |node, step| match node {
        Value::Table(table) => table.get_mut(step),
        Value::Array(items) => items.get_mut(step.parse::<usize>().ok()?),
        _ => None,
    })
}

fn remove(tree: &mut Value, path: &[String]) -> bool {
    let Some((last, parents)) = path.split_last() else { return false };
    match at_mut(tree, parents) {
        Some(Value::Table(table)) => table.remove(last).is_some(),
        Some(Value::Array(items)) => {
            let index = last.parse::<usize>().ok().filter(|index| *index < items.len());
            index.map(|index| items.remove(index)).is_some()
        }
        _ => false,
    }
}

fn put(tree: &mut Value, path: &[String], value: Value) -> bool {
    let Some((last, parents)) = path.split_last() else { return false };
    match at_mut(tree, parents) {
        Some(Value::Table(table)) => {
            table.insert(last.clone(), value);
            true
        }
        Some(Value::Array(items)) => {
            let slot = last.parse::<usize>().ok().and_then(|index| items.get_mut(index));
            slot.map(|slot| *slot = value).is_some()
        }
        _ => false,
    }
}
