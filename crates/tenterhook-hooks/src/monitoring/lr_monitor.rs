//! Logs learning rates per optimizer and parameter group.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenterhook_core::tensor::OptimizerSource;
use tenterhook_core::{
    BeforeOptimizerStep, Event, FromOptions, HookResult, HookSpec, Observer, OptionError, ParamGroup,
    RunContext, Tier, TrainEpochStart, TrainStart, hook,
};

use crate::support::options;

/// How often learning rates are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LrFrequency {
    /// At every optimizer step: the rate that the update uses.
    #[default]
    Step,
    /// At the start of every epoch.
    Epoch,
}

options! {
    /// The options of [`LrMonitor`].
    pub struct LrMonitorOptions {
        /// When to log: at every optimizer `step`, or at the start of every `epoch`.
        pub frequency: LrFrequency = LrFrequency::Step,
        /// Also log the momentum of optimizers that have one.
        pub log_momentum: bool = false,
        /// Also log the weight decay of optimizers that have one.
        pub log_weight_decay: bool = false,
    }
}

/// Logs the learning rate of every optimizer and parameter group.
///
/// - **Fires** at `on_before_optimizer_step` for the optimizer that steps, or at `on_train_epoch_start` for all
///   optimizers; at `on_train_start` it reports requested values that no optimizer has.
/// - **Reads** the optimizers' parameter groups; **writes** `lr/<optimizer>`, or `lr/<optimizer>/<group>` if an optimizer
///   has several groups, and likewise `momentum/…` and `weight_decay/…`. Equal names are numbered: `lr/sgd`, `lr/sgd_2`.
///   A new rate that another hook requests at the same event is logged the next time.
/// - **Cost**: a copy of the groups' settings per optimizer and step, or per epoch.
/// - **When it fails** it is disabled after three failures; training continues.
///
/// ```toml
/// [[hooks]]
/// use = "lr_monitor"
/// frequency = "step"
/// log_momentum = false
/// log_weight_decay = false
/// ```
#[derive(Clone, Debug, Default)]
pub struct LrMonitor {
    options: LrMonitorOptions,
    /// Metric names by optimizer and group, made on first use.
    names: Vec<Vec<Names>>,
}

/// The metric names of one parameter group.
#[derive(Clone, Debug)]
struct Names {
    lr: String,
    momentum: String,
    weight_decay: String,
}

impl FromOptions for LrMonitor {
    type Options = LrMonitorOptions;
    const PURPOSE: &str = "logs learning rates per optimizer and parameter group";
    const EXAMPLE: &str = r#"
frequency = "epoch"
log_momentum = true
log_weight_decay = true
"#;

    fn from_options(options: LrMonitorOptions) -> Result<LrMonitor, OptionError> {
        Ok(LrMonitor::new(options))
    }
}

impl LrMonitor {
    /// Creates the hook.
    #[must_use]
    pub fn new(options: LrMonitorOptions) -> LrMonitor {
        LrMonitor { options, names: Vec::new() }
    }

    fn log(&mut self, run_cx: &RunContext<'_>, optimizer: usize) {
        let optimizers = run_cx.optimizers();
        let groups = optimizers.groups(optimizer);
        if self.names.get(optimizer).is_none_or(|names| names.len() != groups.len()) {
            self.names = names(optimizers);
        }
        let Some(names) = self.names.get(optimizer) else { return };
        for (group, names) in groups.iter().zip(names) {
            run_cx.log(&names.lr, group.lr);
            if let Some(momentum) = group.momentum.filter(|_| self.options.log_momentum) {
                run_cx.log(&names.momentum, momentum);
            }
            if let Some(weight_decay) = group.weight_decay.filter(|_| self.options.log_weight_decay) {
                run_cx.log(&names.weight_decay, weight_decay);
            }
        }
    }
}

#[hook]
impl Observer for LrMonitor {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        let by_step = self.options.frequency == LrFrequency::Step;
        let spec = spec
            .tier(Tier::BuiltIn)
            .wants_if(Event::BeforeOptimizerStep, by_step)
            .wants_if(Event::TrainEpochStart, !by_step);
        let momentum = self.options.log_momentum.then_some("momentum/*/**");
        let weight_decay = self.options.log_weight_decay.then_some("weight_decay/*/**");
        ["lr/*/**"].into_iter().chain(momentum).chain(weight_decay).fold(spec, HookSpec::writes)
    }

    fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
        let optimizers = cx.optimizers();
        let groups: Vec<_> = (0..optimizers.count()).flat_map(|index| optimizers.groups(index)).collect();
        let lacking = |has: fn(&ParamGroup) -> Option<f64>| groups.iter().all(|group| has(group).is_none());
        if self.options.log_momentum && lacking(|group| group.momentum) {
            cx.say("`log_momentum`: no optimizer has a momentum, so none is logged");
        }
        if self.options.log_weight_decay && lacking(|group| group.weight_decay) {
            cx.say("`log_weight_decay`: no optimizer has a weight decay, so none is logged");
        }
        Ok(())
    }

    fn on_train_epoch_start(&mut self, cx: &TrainEpochStart) -> HookResult {
        (0..cx.optimizers().count()).for_each(|optimizer| self.log(cx, optimizer));
        Ok(())
    }

    fn on_before_optimizer_step(&mut self, cx: &BeforeOptimizerStep) -> HookResult {
        self.log(cx, cx.optimizer);
        Ok(())
    }
}

/// Metric names, made unique where optimizers or groups have the same name.
fn names(optimizers: &dyn OptimizerSource) -> Vec<Vec<Names>> {
    let (mut of_optimizers, mut of_groups) = (BTreeSet::new(), BTreeSet::new());
    let names = (0..optimizers.count()).map(|index| {
        let optimizer = unique(optimizers.name(index), &mut of_optimizers);
        let groups = optimizers.groups(index);
        let of_group = |group: &ParamGroup| {
            let name =
                if groups.len() == 1 { optimizer.clone() } else { format!("{optimizer}/{}", group.name) };
            let name = unique(&name, &mut of_groups);
            let [lr, momentum, weight_decay] =
                ["lr", "momentum", "weight_decay"].map(|what| format!("{what}/{name}"));
            Names { lr, momentum, weight_decay }
        };
        groups.iter().map(of_group).collect()
    });
    names.collect()
}

/// The name, or else the name with the first number that makes it unique.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests;
