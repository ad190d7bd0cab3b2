//! What the steps of `--set` and of an environment variable mean in the tree that is there.

use tenterhook_core::plan::nearest;

use super::hooks_config::{HOOKS_CONFIG, of_table};
use super::schema::{Schema, aliases};
use super::tree::{Kind, Node, USE};
use super::words::free_name;
use crate::problems::Problem;
use crate::registry::Registry;

/// The steps as they stand in the tree: elements by their numbers, keys as they are written there, options by
/// their own names. A variable has no small letters, so for one of those the case does not count.
pub(super) fn located(
    steps: &[String],
    tree: &Node,
    in_any_case: bool,
    registry: &Registry,
) -> Result<Vec<String>, Problem> {
    let mut steps = steps.to_vec();
    let of_hooks = steps[0] == "hooks";
    if of_hooks && steps.len() > 1 && tree.child("hooks").is_none() {
        position(&[], &steps[1], in_any_case, &[])?;
    }
    let mut node = tree;
    for (at, step) in steps.iter_mut().enumerate() {
        match &node.kind {
            Kind::Array(items) => {
                let names = if of_hooks && at == 1 { names(items, registry) } else { Vec::new() };
                *step = position(items, step, in_any_case, &names)?.to_string();
            }
            Kind::Table(entries) if in_any_case && !entries.contains_key(step.as_str()) => {
                let written = entries.keys().find(|key| key.eq_ignore_ascii_case(step));
                if let Some(written) = written {
                    step.clone_from(written);
                }
            }
            Kind::Table(_) | Kind::Leaf(_) => {}
        }
        let Some(child) = node.child(step) else { break };
        node = child;
    }
    by_own_name(&mut steps, tree, registry);
    Ok(steps)
}

/// The element that a step means: by its number, its name, its `use`, or the name that it gives itself. One past
/// the last is a new one.
pub(super) fn position(
    items: &[Node],
    step: &str,
    in_any_case: bool,
    names: &[String],
) -> Result<usize, Problem> {
    let count = items.len();
    if let Ok(index) = step.parse::<usize>() {
        let problem = || {
            Problem::new("", format!("there is no element {index}"))
                .fix(format!("there are {count}, counted from 0"))
        };
        return if index <= count { Ok(index) } else { Err(problem()) };
    }
    let is = |text: &str| text == step || in_any_case && text.eq_ignore_ascii_case(step);
    let by = |key: &str| -> Vec<usize> {
        (0..count).filter(|index| items[*index].text(key).is_some_and(is)).collect()
    };
    let itself = || (0..count).filter(|index| names.get(*index).is_some_and(|name| is(name))).collect();
    let found = [by("name"), by(USE), itself()].into_iter().find(|found: &Vec<usize>| !found.is_empty());
    match found.as_deref() {
        Some([index]) => Ok(*index),
        Some(several) => {
            let numbers: Vec<_> = several.iter().map(ToString::to_string).collect();
            let message = format!("there are several elements named `{step}`");
            Err(Problem::new("", message).fix(format!("say which by its number: {}", numbers.join(", "))))
        }
        None => Err(nobody(items, step)),
    }
}

fn nobody(items: &[Node], step: &str) -> Problem {
    let known: Vec<_> = items.iter().filter_map(|item| item.text("name").or(item.text(USE))).collect();
    let fix = match nearest(step, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there are none".to_owned(),
        None => format!("there are: {}", known.join(", ")),
    };
    Problem::new("", format!("there is no element named `{step}`")).fix(fix)
}

/// The names under which the hooks will be registered, as far as that can be told before they are made.
fn names(items: &[Node], registry: &Registry) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    for item in items {
        let own = || {
            let made = registry.describe(registry.hook_named(item.text(USE)?)?.name).ok()?.made?;
            Some(free_name(&made.registered_as, |name| !taken.iter().any(|taken| taken == name)))
        };
        taken.push(item.text("name").map(str::to_owned).or_else(own).unwrap_or_default());
    }
    taken
}

/// Brings the step that names an option by another of its names to its own.
fn by_own_name(steps: &mut [String], tree: &Node, registry: &Registry) {
    let (hook, at) = match &*steps {
        [hooks, index, _, ..] if hooks == "hooks" => {
            let item = tree.child(hooks).and_then(|hooks| hooks.child(index));
            (item.and_then(|item| item.text(USE)).map(str::to_owned), 2)
        }
        [config, configs, class, _, ..] if config == HOOKS_CONFIG && configs == "hook_configs" => {
            (Some(class.clone()), 3)
        }
        [config, table, _, ..] if config == HOOKS_CONFIG => (of_table(table).map(str::to_owned), 2),
        _ => return,
    };
    let listed = hook.and_then(|hook| registry.hook_named(&hook));
    if let Some(own) = listed.and_then(|listed| own_name(listed.schema, &steps[at])) {
        own.clone_into(&mut steps[at]);
    }
}

/// The own name of an option that is called by another.
fn own_name<'a>(schema: &'a serde_json::Value, name: &str) -> Option<&'a str> {
    let mut keys = Schema::new(schema).keys(None).into_iter();
    keys.find(|(_, own)| aliases(own.json()).any(|alias| alias == name)).map(|(key, _)| key)
}

/// Brings the options of all hooks to their own names, so that every layer means the same key. An option that is
/// set under two names keeps both, which is refused later.
pub(super) fn all_by_own_names(tree: &mut Node, registry: &Registry) {
    let Kind::Table(top) = &mut tree.kind else { return };
    if let Some(Node { kind: Kind::Array(items), .. }) = top.get_mut("hooks") {
        for item in items {
            let hook = item.text(USE).map(str::to_owned);
            rename(item, hook.as_deref(), registry);
        }
    }
    let Some(Node { kind: Kind::Table(config), .. }) = top.get_mut(HOOKS_CONFIG) else { return };
    for (key, node) in config {
        match &mut node.kind {
            Kind::Table(configs) if key == "hook_configs" => {
                for (class, node) in configs {
                    rename(node, Some(class), registry);
                }
            }
            _ => rename(node, of_table(key), registry),
        }
    }
}

fn rename(node: &mut Node, hook: Option<&str>, registry: &Registry) {
    let Some(listed) = hook.and_then(|hook| registry.hook_named(hook)) else { return };
    let Kind::Table(entries) = &mut node.kind else { return };
    for (key, own) in Schema::new(listed.schema).keys(None) {
        let alias = aliases(own.json()).find(|alias| entries.contains_key(*alias));
        if let Some(alias) = alias.filter(|_| !entries.contains_key(key))
            && let Some(value) = entries.remove(alias)
        {
            entries.insert(key.to_owned(), value);
        }
    }
}
