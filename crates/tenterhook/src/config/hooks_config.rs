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
use toml::{Table, Value};

use super::hooks::Written;
use super::problem::Problem;
use super::read::read;
use super::render::Found;
use super::repair::read_repairing;
use super::tree::{Kind, Node, Origin, USE};
use super::words::Place;

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
    hook_configs: BTreeMap<String, Table>,
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

/// The table of one hook, as if it had been written under `[[hooks]]`.
pub(crate) struct Draft {
    pub(crate) written: Written,
    pub(crate) table: Table,
}

/// Reads `[hooks_config]` into the tables it stands for.
pub(crate) fn drafts(node: &Node, found: &mut Vec<Found>) -> Vec<Draft> {
    let (config, misread) = read_repairing(node.value(), &read::<HooksConfig>);
    let place =
        Place { key: HOOKS_CONFIG, called: "[hooks_config]".into(), also: &[], known: &|_| Vec::new() };
    found.extend(misread.iter().map(|misread| place.found(misread)));
    let Some(config) = config else { return Vec::new() };
    let mut drafts = Drafts { node, found, all: Vec::new() };
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

struct Drafts<'a> {
    node: &'a Node,
    found: &'a mut Vec<Found>,
    all: Vec<Draft>,
}

impl Drafts<'_> {
    fn classes(&mut self, config: &HooksConfig) {
        let classes = &config.hook_classes;
        for (index, class) in classes.iter().enumerate() {
            let which = format!("{HOOKS_CONFIG}.hook_classes.{index}");
            if classes[..index].iter().any(|earlier| dotted(earlier) == dotted(class)) {
                let problem = Problem::new(which, format!("`{class}` is in `hook_classes` twice"));
                self.found.push(problem.fix("write the second one as a [[hooks]] table").into());
                continue;
            }
            let (path, mut table) =
                config_of(class, &config.hook_configs).unwrap_or_else(|| (class.clone(), Table::new()));
            let written = Written { key: format!("{HOOKS_CONFIG}.hook_configs.{path}"), which };
            if self.says_which(&written, &table, "the class says which hook it is; take it away") {
                continue;
            }
            table.insert(USE.to_owned(), Value::String(class.clone()));
            self.all.push(Draft { written, table });
        }
        for key in config.hook_configs.keys() {
            let of = |class: &String| {
                dotted(class) == dotted(key) || dotted(class).starts_with(&format!("{}.", dotted(key)))
            };
            if !classes.iter().any(of) {
                let message = format!("`{key}` has options here, but it is not in `hook_classes`");
                let known: Vec<_> = classes.iter().map(String::as_str).collect();
                let near = tenterhook_core::plan::nearest(key, known.into_iter());
                let fix = near.map_or_else(
                    || format!("add it: hook_classes = [\"{key}\"]"),
                    |near| format!("did you mean `{near}`?"),
                );
                let problem = Problem::new(format!("{HOOKS_CONFIG}.hook_configs.{key}"), message).fix(fix);
                self.found.push(Found { at_key: true, ..problem.into() });
            }
        }
    }

    fn built_in(&mut self, built_in: &BuiltIn, enabled: Option<bool>, table: Option<Table>) {
        let BuiltIn { hook, flag, table: key } = built_in;
        let which = format!("{HOOKS_CONFIG}.{flag}");
        let key = key.map_or_else(|| which.clone(), |key| format!("{HOOKS_CONFIG}.{key}"));
        let written = Written { key, which };
        let enabled = match (enabled, &table) {
            (Some(enabled), Some(_)) => enabled,
            (Some(true), None) => true,
            (Some(false) | None, None) => return,
            (None, Some(_)) => {
                // A flag that does not read has been told about.
                if self.node.child(flag).is_none() {
                    let message = format!("there are options for `{hook}`, but `{flag}` is not set");
                    let problem = Problem::new(written.key, message);
                    let fix = format!("set `{flag} = true`, or `false` to keep it switched off");
                    self.found.push(Found { at_key: true, ..problem.fix(fix).into() });
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
                Problem::new(format!("{}.enabled", written.key), format!("`enabled` is `{flag}` here"));
            self.found.push(Found { at_key: true, ..problem.fix(format!("set `{flag}`")).into() });
            return;
        }
        table.insert(USE.to_owned(), Value::String((*hook).to_owned()));
        if !enabled {
            table.insert("enabled".to_owned(), Value::Boolean(false));
        }
        self.all.push(Draft { written, table });
    }

    /// Whether the options name a hook themselves, which is not theirs to say.
    fn says_which(&mut self, written: &Written, table: &Table, fix: &str) -> bool {
        let says = table.contains_key(USE);
        if says {
            let problem = Problem::new(format!("{}.{USE}", written.key), "`use` cannot stand here");
            self.found.push(Found { at_key: true, ..problem.fix(fix).into() });
        }
        says
    }
}

/// A path as it is compared: written with `::` or with dots.
fn dotted(path: &str) -> String {
    path.replace("::", ".")
}

/// The options of a class, and the keys that lead to them. A path with dots that was not quoted is one of
/// tables within tables.
fn config_of(class: &str, configs: &BTreeMap<String, Table>) -> Option<(String, Table)> {
    let whole = configs.iter().find(|(key, _)| dotted(key) == dotted(class));
    if let Some((key, table)) = whole {
        return Some((key.clone(), table.clone()));
    }
    let steps: Vec<_> = class.split('.').collect();
    let (first, rest) = steps.split_first()?;
    let inner = rest.iter().try_fold(configs.get(*first)?, |table, step| table.get(*step)?.as_table());
    Some((class.to_owned(), inner?.clone()))
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
