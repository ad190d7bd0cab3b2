//! Resolves the key paths of `--set` and of environment variables in the tree of the configuration.

use tenterhook_core::plan::nearest;

use super::hooks_config::{HOOKS_CONFIG, of_table};
use super::messages::free_name;
use super::schema::{Schema, aliases};
use super::tree::{Kind, Node, USE};
use crate::problems::Problem;
use crate::registry::Registry;

/// The path with indices instead of the names of elements, keys as written in the tree, and options without
/// aliases. Environment variables have no lower-case letters, so they match `in_any_case`.
pub(super) fn resolve_path(
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
    replace_alias(&mut steps, tree, registry);
    Ok(steps)
}

/// The index of the element that a step names: by index, `name`, `use`, or the hook's default name. One past
/// the last is a new element.
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
    let by_default_name =
        || (0..count).filter(|index| names.get(*index).is_some_and(|name| is(name))).collect();
    let found = [by("name"), by(USE), by_default_name()];
    match found.iter().find(|found| !found.is_empty()).map(Vec::as_slice) {
        Some([index]) => Ok(*index),
        Some(several) => {
            let indices: Vec<_> = several.iter().map(ToString::to_string).collect();
            let problem = Problem::new("", format!("there are several elements named `{step}`"));
            Err(problem.fix(format!("select one by its number: {}", indices.join(", "))))
        }
        None => {
            let known: Vec<_> =
                items.iter().filter_map(|item| item.text("name").or(item.text(USE))).collect();
            let fix = match nearest(step, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if known.is_empty() => "there are none".to_owned(),
                None => format!("there are: {}", known.join(", ")),
            };
            Err(Problem::new("", format!("there is no element named `{step}`")).fix(fix))
        }
    }
}

/// The names under which the hooks will be registered, as far as they are known before the hooks are built.
fn names(items: &[Node], registry: &Registry) -> Vec<String> {
    let mut taken: Vec<String> = Vec::new();
    for item in items {
        let default = || {
            let hook = registry.describe(registry.hook_named(item.text(USE)?)?.name).ok()?.properties?;
            Some(free_name(&hook.registered_as, |name| !taken.iter().any(|taken| taken == name)))
        };
        taken.push(item.text("name").map(str::to_owned).or_else(default).unwrap_or_default());
    }
    taken
}

/// Replaces the alias of an option in a path by its name.
fn replace_alias(steps: &mut [String], tree: &Node, registry: &Registry) {
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
    let Some(entry) = hook.and_then(|hook| registry.hook_named(&hook)) else { return };
    let options = Schema::new(entry.schema).keys(None).into_iter();
    let has_alias = |own: &Schema<'_>| aliases(own.json()).any(|alias| alias == steps[at]);
    let name = options.filter(|(_, own)| has_alias(own)).map(|(name, _)| name.to_owned()).next();
    if let Some(name) = name {
        steps[at] = name;
    }
}

/// Replaces the aliases of all options of hooks, so that all layers use the same keys. An option that is set
/// under two names keeps both, which is an error later.
pub(super) fn rename_aliases(tree: &mut Node, registry: &Registry) {
    let Kind::Table(top) = &mut tree.kind else { return };
    if let Some(Node { kind: Kind::Array(items), .. }) = top.get_mut("hooks") {
        for item in items {
            let hook = item.text(USE).map(str::to_owned);
            rename_in(item, hook.as_deref(), registry);
        }
    }
    let Some(Node { kind: Kind::Table(config), .. }) = top.get_mut(HOOKS_CONFIG) else { return };
    for (key, node) in config {
        match &mut node.kind {
            Kind::Table(configs) if key == "hook_configs" => {
                for (class, node) in configs {
                    rename_in(node, Some(class), registry);
                }
            }
            _ => rename_in(node, of_table(key), registry),
        }
    }
}

fn rename_in(node: &mut Node, hook: Option<&str>, registry: &Registry) {
    let Some(entry) = hook.and_then(|hook| registry.hook_named(hook)) else { return };
    let Kind::Table(entries) = &mut node.kind else { return };
    for (key, own) in Schema::new(entry.schema).keys(None) {
        let alias = aliases(own.json()).find(|alias| entries.contains_key(*alias));
        if let Some(alias) = alias.filter(|_| !entries.contains_key(key))
            && let Some(value) = entries.remove(alias)
        {
            entries.insert(key.to_owned(), value);
        }
    }
}
