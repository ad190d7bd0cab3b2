//! `[hooks_config]`: hooks as flags and tables, beside `[[hooks]]`.
//!
//! ```toml
//! [hooks_config]
//! enable_early_stopping_hook = true
//! early_stopping_config = { monitor = "val/loss", patience = 10 }
//! hook_classes = ["my_crate::MyHook"]
//! hook_configs."my_crate::MyHook" = { threshold = 5.0 }
//! ```
//!
//! It comes to the same tables as `[[hooks]]`, after those: first the classes, then the built-ins in the
//! order in which [`HooksConfig`] has them. The tables also take the keys that every hook has.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use tenterhook_core::plan::nearest;
use toml::{Table, Value};

use super::check::read_all;
use super::class_paths::{self, dotted, options_of};
use super::hooks::Written;
use super::read::{Fault, read};
use super::schema::{Schema, schema_of};
use super::tree::{Kind, Node, Origin, USE};
use super::words::Place;
use crate::problems::Problem;
use crate::registry::Registry;

/// The table's key.
pub(crate) const HOOKS_CONFIG: &str = "hooks_config";

/// The keys of `[hooks_config]`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HooksConfig {
    /// Hooks of your own, by the paths under which they are registered. They run before the built-ins.
    hook_classes: Vec<String>,
    /// The options of those hooks, by the same paths.
    #[schemars(with = "BTreeMap<String, serde_json::Map<String, serde_json::Value>>")]
    hook_configs: Table,
    /// Whether start, epochs and end are logged.
    enable_logging_hook: Option<bool>,
    /// Whether the gradients are watched.
    enable_gradient_monitor: Option<bool>,
    /// How the gradients are watched.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    gradient_monitor_config: Option<Table>,
    /// Whether checkpoints are saved.
    enable_model_checkpoint_hook: Option<bool>,
    /// Which checkpoints are saved, and when.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    model_checkpoint_config: Option<Table>,
    /// Whether training stops when a metric stops improving.
    enable_early_stopping_hook: Option<bool>,
    /// Which metric, and how long it may take.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    early_stopping_config: Option<Table>,
    /// Whether the learning rates are logged.
    enable_lr_monitor: Option<bool>,
    /// What is logged of the optimizers, and how often.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    lr_monitor_config: Option<Table>,
}

/// A built-in hook with its flag and its table.
pub(crate) struct BuiltIn {
    pub(crate) hook: &'static str,
    pub(crate) flag: &'static str,
    /// The key of its options; `logging` has none.
    pub(crate) table: Option<&'static str>,
}

/// The built-ins, in the order in which they are registered.
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

/// The flag of a hook, and the key of its options, where it has them.
pub(crate) fn flags_of(hook: &str) -> Vec<&'static str> {
    let of_it = BUILT_INS.iter().filter(|built_in| built_in.hook == hook);
    of_it.flat_map(|built_in| std::iter::once(built_in.flag).chain(built_in.table)).collect()
}

/// The hook whose options stand under this key.
pub(crate) fn of_table(key: &str) -> Option<&'static str> {
    BUILT_INS.iter().find(|built_in| built_in.table == Some(key)).map(|built_in| built_in.hook)
}

/// Whether `[hooks_config]` has this key.
pub(crate) fn has_key(key: &str) -> bool {
    Schema::new(&schema_of::<HooksConfig>()).all_keys().contains(&key)
}

/// The table of one hook, as if it had been written under `[[hooks]]`.
pub(crate) struct Draft {
    pub(crate) written: Written,
    pub(crate) table: Table,
}

/// Reads `[hooks_config]` into the tables it stands for. A flag without a table is about the hooks of its kind
/// that stand already, where there are some.
pub(crate) fn drafts(
    node: &Node,
    standing: &mut [Draft],
    registry: &Registry,
    found: &mut Vec<Problem>,
) -> Vec<Draft> {
    let schema = schema_of::<HooksConfig>();
    let schema = Schema::new(&schema);
    let (config, misfits) = read_all(node.value(), schema, &Table::new(), &read::<HooksConfig>);
    let place = Place { key: HOOKS_CONFIG, called: "[hooks_config]".into(), also: &[], schema };
    found.extend(misfits.iter().map(|misfit| match &misfit.fault {
        Fault::UnknownKey { name, .. } => written_elsewhere(place.problem(misfit), name, registry),
        _ => place.problem(misfit),
    }));
    let Some(config) = config else { return Vec::new() };
    let mut drafts = Drafts { node, standing, registry, found, all: Vec::new() };
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

/// An unknown key that speaks of a hook: how that hook is written.
fn written_elsewhere(problem: Problem, key: &str, registry: &Registry) -> Problem {
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

struct Drafts<'a> {
    node: &'a Node,
    standing: &'a mut [Draft],
    registry: &'a Registry,
    found: &'a mut Vec<Problem>,
    all: Vec<Draft>,
}

impl Drafts<'_> {
    fn classes(&mut self, config: &HooksConfig) {
        let (classes, configs) = (&config.hook_classes, &config.hook_configs);
        let mut taken = Vec::new();
        for (index, class) in classes.iter().enumerate() {
            if class.is_empty() {
                // It did not read, which has been told.
                continue;
            }
            let which = format!("{HOOKS_CONFIG}.hook_classes.{index}");
            if classes[..index].iter().any(|earlier| dotted(earlier) == dotted(class)) {
                let problem = Problem::new(which, format!("`{class}` is in `hook_classes` twice"));
                self.found.push(problem.fix("write the second one as a [[hooks]] table"));
                continue;
            }
            let (path, mut table) =
                options_of(class, configs).unwrap_or_else(|| (vec![class.clone()], Table::new()));
            let written = Written { key: format!("{HOOKS_CONFIG}.hook_configs.{}", path.join(".")), which };
            taken.push(path);
            if self.says_which(&written, &table, "the class says which hook it is; take it away") {
                continue;
            }
            table.insert(USE.to_owned(), Value::String(class.clone()));
            self.all.push(Draft { written, table });
        }
        for orphan in class_paths::orphans(configs, &taken) {
            self.found.push(nobodys(&orphan, classes));
        }
    }

    fn built_in(&mut self, built_in: &BuiltIn, enabled: Option<bool>, table: Option<Table>) {
        let BuiltIn { hook, flag, table: key } = built_in;
        let which = format!("{HOOKS_CONFIG}.{flag}");
        let key = key.map_or_else(|| which.clone(), |key| format!("{HOOKS_CONFIG}.{key}"));
        let written = Written { key, which };
        let enabled = match (enabled, &table) {
            (Some(enabled), Some(_)) => enabled,
            (Some(enabled), None) => {
                if self.switched(hook, enabled) || !(enabled || self.needs_nothing(hook)) {
                    return;
                }
                enabled
            }
            (None, None) => return,
            (None, Some(_)) => {
                // A flag that does not read has been told about.
                if self.node.child(flag).is_none() {
                    let message = format!("there are options for `{hook}`, but `{flag}` is not set");
                    let fix = format!("set `{flag} = true`, or `false` to keep it switched off");
                    self.found.push(Problem::of_key(written.key, message).fix(fix));
                }
                return;
            }
        };
        let mut table = table.unwrap_or_default();
        if self.says_which(&written, &table, &format!("`{flag}` says which hook it is; take it away")) {
            return;
        }
        if table.contains_key("enabled") {
            let problem =
                Problem::of_key(format!("{}.enabled", written.key), format!("`enabled` is `{flag}` here"));
            self.found.push(problem.fix(format!("set `{flag}`")));
            return;
        }
        table.insert(USE.to_owned(), Value::String((*hook).to_owned()));
        if !enabled {
            table.insert("enabled".to_owned(), Value::Boolean(false));
        }
        self.all.push(Draft { written, table });
    }

    /// Switches the hooks of this kind that stand already; whether there are any.
    fn switched(&mut self, hook: &str, enabled: bool) -> bool {
        let mut any = false;
        for draft in self.standing.iter_mut() {
            if draft.table.get(USE).and_then(Value::as_str) == Some(hook) {
                draft.table.insert("enabled".to_owned(), Value::Boolean(enabled));
                any = true;
            }
        }
        any
    }

    /// Whether a hook can be made without options, so that it can be listed as switched off.
    fn needs_nothing(&self, hook: &str) -> bool {
        self.registry.hook(hook, Table::new()).is_ok()
    }

    /// Whether the options name a hook themselves, which is not theirs to say.
    fn says_which(&mut self, written: &Written, table: &Table, fix: &str) -> bool {
        let says = table.contains_key(USE);
        if says {
            let problem = Problem::of_key(format!("{}.{USE}", written.key), "`use` cannot stand here");
            self.found.push(problem.fix(fix));
        }
        says
    }
}

/// Options for which there is no class.
fn nobodys(path: &[String], classes: &[String]) -> Problem {
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

/// Gives hooks that have no table of their own one in the tree, so that what is missing in it is shown where
/// the hook is named.
pub(crate) fn stand_in(tree: &mut Node, written: &Written) {
    let origin = match tree.origin_of(&written.which) {
        (origin, true) => origin.clone(),
        (_, false) => Origin::Default,
    };
    let Kind::Table(top) = &mut tree.kind else { return };
    let Some(Node { kind: Kind::Table(entries), .. }) = top.get_mut(HOOKS_CONFIG) else { return };
    let key = written.key.strip_prefix(HOOKS_CONFIG).unwrap_or_default().trim_start_matches('.');
    let empty = || Node::empty_table(origin.clone());
    let Some(class) = key.strip_prefix("hook_configs.") else {
        entries.entry(key.to_owned()).or_insert_with(empty);
        return;
    };
    let configs = entries.entry("hook_configs".to_owned()).or_insert_with(empty);
    if configs.follow(class).is_none()
        && let Kind::Table(configs) = &mut configs.kind
    {
        configs.insert(class.to_owned(), empty());
    }
}
