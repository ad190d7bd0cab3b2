//! `[hooks_config]`: hooks as flags and tables, an alternative to `[[hooks]]`.
//!
//! ```toml
//! [hooks_config]
//! enable_early_stopping_hook = true
//! early_stopping_config = { monitor = "val/loss", patience = 10 }
//! hook_classes = ["my_crate::MyHook"]
//! hook_configs."my_crate::MyHook" = { threshold = 5.0 }
//! ```
//!
//! It is converted to `[[hooks]]` tables, which follow those of the file: first the classes, then the
//! built-ins in the order of [`HooksConfig`]. The tables may also have the keys of
//! [`HookKeys`](super::HookKeys).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use tenterhook_core::plan::nearest;
use toml::{Table, Value};

use super::check::read_all;
use super::class_paths::{self, dotted, options_of};
use super::decode::{ErrorKind, read};
use super::hooks::HookLocation;
use super::messages::TableContext;
use super::schema::{Schema, schema_of};
use super::tree::{Kind, Node, Origin, USE};
use crate::problems::Problem;
use crate::registry::Registry;

/// The key of the table.
pub(crate) const HOOKS_CONFIG: &str = "hooks_config";

/// The keys of `[hooks_config]`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HooksConfig {
    /// User-defined hooks, by their registered paths. They run before the built-in hooks.
    hook_classes: Vec<String>,
    /// Options of the hooks in `hook_classes`, by their paths.
    #[schemars(with = "BTreeMap<String, serde_json::Map<String, serde_json::Value>>")]
    hook_configs: Table,
    /// Enable the `logging` hook.
    enable_logging_hook: Option<bool>,
    /// Enable the `gradient_monitor` hook.
    enable_gradient_monitor: Option<bool>,
    /// Options of the `gradient_monitor` hook.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    gradient_monitor_config: Option<Table>,
    /// Enable the `checkpoint` hook.
    enable_model_checkpoint_hook: Option<bool>,
    /// Options of the `checkpoint` hook.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    model_checkpoint_config: Option<Table>,
    /// Enable the `early_stopping` hook.
    enable_early_stopping_hook: Option<bool>,
    /// Options of the `early_stopping` hook.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    early_stopping_config: Option<Table>,
    /// Enable the `lr_monitor` hook.
    enable_lr_monitor: Option<bool>,
    /// Options of the `lr_monitor` hook.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    lr_monitor_config: Option<Table>,
}

/// A built-in hook with the keys of its flag and its options.
pub(crate) struct BuiltIn {
    pub(crate) hook: &'static str,
    pub(crate) flag: &'static str,
    /// The key of its options; `logging` has no options.
    pub(crate) table: Option<&'static str>,
}

/// The built-ins, in registration order.
pub(crate) const BUILT_INS: [BuiltIn; 5] = [
    BuiltIn { hook: "logging", flag: "enable_logging_hook", table: None },
    BuiltIn {
        hook: "gradient_monitor",
        flag: "enable_gradient_monitor",
        table: Some("gradient_monitor_config"),
    },
    BuiltIn {
        hook: "checkpoint",
        flag: "enable_model_checkpoint_hook",
        table: Some("model_checkpoint_config"),
    },
    BuiltIn {
        hook: "early_stopping",
        flag: "enable_early_stopping_hook",
        table: Some("early_stopping_config"),
    },
    BuiltIn { hook: "lr_monitor", flag: "enable_lr_monitor", table: Some("lr_monitor_config") },
];

/// The keys of a hook's flag and options.
pub(crate) fn flags_of(hook: &str) -> Vec<&'static str> {
    let of_it = BUILT_INS.iter().filter(|built_in| built_in.hook == hook);
    of_it.flat_map(|built_in| std::iter::once(built_in.flag).chain(built_in.table)).collect()
}

/// The hook whose options have this key.
pub(crate) fn of_table(key: &str) -> Option<&'static str> {
    BUILT_INS.iter().find(|built_in| built_in.table == Some(key)).map(|built_in| built_in.hook)
}

/// Whether `[hooks_config]` has this key.
pub(crate) fn has_key(key: &str) -> bool {
    Schema::new(&schema_of::<HooksConfig>()).all_keys().contains(&key)
}

/// The table of a hook, as under `[[hooks]]`.
pub(crate) struct HookDraft {
    pub(crate) location: HookLocation,
    pub(crate) table: Table,
}

/// Converts `[hooks_config]` to hook tables. A flag without a table switches the `existing` hooks of its
/// kind, if there are any.
pub(crate) fn drafts(
    node: &Node,
    existing: &mut [HookDraft],
    registry: &Registry,
    found: &mut Vec<Problem>,
) -> Vec<HookDraft> {
    let schema = schema_of::<HooksConfig>();
    let schema = Schema::new(&schema);
    let (config, errors) = read_all(node.value(), schema, &Table::new(), &read::<HooksConfig>);
    let context = TableContext { key: HOOKS_CONFIG, called: "[hooks_config]".into(), also: &[], schema };
    found.extend(errors.iter().map(|error| match &error.kind {
        ErrorKind::UnknownKey { name, .. } => with_hook_fix(context.problem(error), name, registry),
        _ => context.problem(error),
    }));
    let Some(config) = config else { return Vec::new() };
    let mut drafts = HookDrafts { node, existing, registry, found, all: Vec::new() };
    drafts.classes(&config);
    let tables = [
        (config.enable_logging_hook, None),
        (config.enable_gradient_monitor, config.gradient_monitor_config),
        (config.enable_model_checkpoint_hook, config.model_checkpoint_config),
        (config.enable_early_stopping_hook, config.early_stopping_config),
        (config.enable_lr_monitor, config.lr_monitor_config),
    ];
    for (built_in, (enabled, table)) in BUILT_INS.iter().zip(tables) {
        drafts.built_in(built_in, enabled, table);
    }
    drafts.all
}

/// Adds a fix to an unknown key that names a hook.
fn with_hook_fix(problem: Problem, key: &str, registry: &Registry) -> Problem {
    let (table, flag) = (key.strip_suffix("_config"), key.strip_prefix("enable_"));
    let Some(hook) = table.or(flag.map(|flag| flag.strip_suffix("_hook").unwrap_or(flag))) else {
        return problem;
    };
    let here = BUILT_INS.iter().find(|built_in| built_in.hook == hook);
    let own = here.and_then(|built_in| if table.is_some() { built_in.table } else { Some(built_in.flag) });
    if let Some(own) = own {
        problem.fix(format!("did you mean `{own}`?"))
    } else if registry.hook_named(hook).is_some() {
        problem.fix(format!("write the options of `{hook}` as a [[hooks]] table with use = \"{hook}\""))
    } else {
        problem
    }
}

struct HookDrafts<'a> {
    node: &'a Node,
    existing: &'a mut [HookDraft],
    registry: &'a Registry,
    found: &'a mut Vec<Problem>,
    all: Vec<HookDraft>,
}

impl HookDrafts<'_> {
    fn classes(&mut self, config: &HooksConfig) {
        let (classes, configs) = (&config.hook_classes, &config.hook_configs);
        let mut taken = Vec::new();
        for (index, class) in classes.iter().enumerate() {
            if class.is_empty() {
                // It could not be decoded, which is reported already.
                continue;
            }
            let name_key = format!("{HOOKS_CONFIG}.hook_classes.{index}");
            if classes[..index].iter().any(|earlier| dotted(earlier) == dotted(class)) {
                let problem = Problem::new(name_key, format!("`{class}` is in `hook_classes` twice"));
                self.found.push(problem.fix("write the second one as a [[hooks]] table"));
                continue;
            }
            let (path, mut table) =
                options_of(class, configs).unwrap_or_else(|| (vec![class.clone()], Table::new()));
            let location =
                HookLocation { key: format!("{HOOKS_CONFIG}.hook_configs.{}", path.join(".")), name_key };
            taken.push(path);
            if self.has_use(&location, &table, "the class names the hook; remove `use`") {
                continue;
            }
            table.insert(USE.to_owned(), Value::String(class.clone()));
            self.all.push(HookDraft { location, table });
        }
        for orphan in class_paths::orphans(configs, &taken) {
            self.found.push(orphan_problem(&orphan, classes));
        }
    }

    fn built_in(&mut self, built_in: &BuiltIn, enabled: Option<bool>, table: Option<Table>) {
        let BuiltIn { hook, flag, table: key } = built_in;
        let name_key = format!("{HOOKS_CONFIG}.{flag}");
        let key = key.map_or_else(|| name_key.clone(), |key| format!("{HOOKS_CONFIG}.{key}"));
        let location = HookLocation { key, name_key };
        let enabled = match (enabled, &table) {
            (Some(enabled), Some(_)) => enabled,
            (Some(enabled), None) => {
                if self.switch_existing(hook, enabled) || !(enabled || self.works_without_options(hook)) {
                    return;
                }
                enabled
            }
            (None, None) => return,
            (None, Some(_)) => {
                // A flag that cannot be decoded is reported already.
                if self.node.child(flag).is_none() {
                    let message = format!("there are options for `{hook}`, but `{flag}` is not set");
                    let fix = format!("set `{flag} = true`, or `false` to keep it switched off");
                    self.found.push(Problem::of_key(location.key, message).fix(fix));
                }
                return;
            }
        };
        let mut table = table.unwrap_or_default();
        if self.has_use(&location, &table, &format!("`{flag}` names the hook; remove `use`")) {
            return;
        }
        if table.contains_key("enabled") {
            let problem =
                Problem::of_key(format!("{}.enabled", location.key), format!("`enabled` is `{flag}` here"));
            self.found.push(problem.fix(format!("set `{flag}`")));
            return;
        }
        table.insert(USE.to_owned(), Value::String((*hook).to_owned()));
        if !enabled {
            table.insert("enabled".to_owned(), Value::Boolean(false));
        }
        self.all.push(HookDraft { location, table });
    }

    /// Enables or disables the existing hooks with this `use`, and returns whether there are any.
    fn switch_existing(&mut self, hook: &str, enabled: bool) -> bool {
        let mut any = false;
        for draft in self.existing.iter_mut() {
            if draft.table.get(USE).and_then(Value::as_str) == Some(hook) {
                draft.table.insert("enabled".to_owned(), Value::Boolean(enabled));
                any = true;
            }
        }
        any
    }

    /// Whether a hook can be built without options, so that it can be registered as disabled.
    fn works_without_options(&self, hook: &str) -> bool {
        self.registry.hook(hook, Table::new()).is_ok()
    }

    /// Whether the options have the key `use`, which is an error.
    fn has_use(&mut self, location: &HookLocation, table: &Table, fix: &str) -> bool {
        let says = table.contains_key(USE);
        if says {
            let problem = Problem::of_key(format!("{}.{USE}", location.key), "`use` is not allowed here");
            self.found.push(problem.fix(fix));
        }
        says
    }
}

/// The problem of options without a class.
fn orphan_problem(path: &[String], classes: &[String]) -> Problem {
    let key = path.join(".");
    let class = path.join("::");
    let message = format!("`{class}` has options here, but it is not in `hook_classes`");
    let near = nearest(&class, classes.iter().map(String::as_str));
    let fix = near.map_or_else(
        || format!("add it: hook_classes = [\"{class}\"]"),
        |near| format!("did you mean `{near}`?"),
    );
    Problem::of_key(format!("{HOOKS_CONFIG}.hook_configs.{key}"), message).fix(fix)
}

/// Adds an empty table to the tree for a hook without one, so that problems of missing options are shown
/// where the hook is named.
pub(crate) fn add_missing_table(tree: &mut Node, location: &HookLocation) {
    let origin = match tree.origin_of(&location.name_key) {
        (origin, true) => origin.clone(),
        (_, false) => Origin::Default,
    };
    let Kind::Table(top) = &mut tree.kind else { return };
    let Some(Node { kind: Kind::Table(entries), .. }) = top.get_mut(HOOKS_CONFIG) else { return };
    let key = location.key.strip_prefix(HOOKS_CONFIG).unwrap_or_default().trim_start_matches('.');
    let empty = || Node::empty_table(origin.clone());
    let Some(class) = key.strip_prefix("hook_configs.") else {
        entries.entry(key.to_owned()).or_insert_with(empty);
        return;
    };
    let configs = entries.entry("hook_configs".to_owned()).or_insert_with(empty);
    if configs.lookup(class).is_none()
        && let Kind::Table(configs) = &mut configs.kind
    {
        configs.insert(class.to_owned(), empty());
    }
}
