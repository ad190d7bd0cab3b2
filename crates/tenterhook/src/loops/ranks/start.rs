//! The start of a call on several ranks: rank 0 broadcasts run id, directory and seed, and everything else
//! must be equal.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenterhook_core::random::RandomStreams;
use tenterhook_core::{Failure, HookRunner, Stage};

use crate::call::Call;
use crate::config::{ChangeRules, ConfigChange};
use crate::loops::Callee;
use crate::module::Module;
use crate::run::processor;

/// The values that rank 0 broadcasts.
#[derive(Serialize, Deserialize)]
struct Start {
    id: String,
    directory: Option<PathBuf>,
    checkpoints: PathBuf,
    seed: u64,
    /// The checkpoint to resume.
    checkpoint: Option<PathBuf>,
}

/// The values that must be equal on all ranks before any hook is called.
#[derive(Serialize, Deserialize)]
struct Plan {
    call: Stage,
    config: Value,
    hooks: Vec<String>,
    processor: String,
}

/// The values that must be equal when the module is built and the data is known.
#[derive(Serialize, Deserialize)]
struct Built {
    parameters: Vec<String>,
    /// The number of batches of an epoch.
    epoch: String,
}

impl<M: Module> Call<'_, M> {
    /// Call sites `start` and `plan`.
    pub(crate) fn agree_on_start(&mut self) -> Result<(), Failure> {
        self.run.hooks.set_world(self.run.ranks.world);
        if !self.run.ranks.several {
            return Ok(());
        }
        let run = &self.run.shared.run;
        let own = Start {
            id: run.id.clone(),
            directory: run.directory.clone(),
            checkpoints: run.checkpoints.clone(),
            seed: self.options.seed,
            checkpoint: self.resume.options.checkpoint.clone(),
        };
        let start = self.run.collective("start", |ranks| ranks.broadcast("start", &own))?;
        self.adopt(start);
        let plan = Plan {
            call: self.run.state.stage,
            config: without_seed(&self.run.shared.run.config),
            hooks: hook_lines(&self.run.hooks),
            processor: processor(),
        };
        let plans = self.run.collective("plan", |ranks| ranks.gather("plan", &plan))?;
        let rules = self.resume.options.change_rules.clone().unwrap_or_default();
        let mut others = plans.iter().enumerate().skip(1);
        let difference = others.find_map(|(rank, plan)| plans[0].difference(plan, rank, &rules));
        difference.map_or(Ok(()), |difference| self.differs(difference))
    }

    /// Adopts the values of rank 0. Only rank 0 writes to the run directory.
    fn adopt(&mut self, start: Start) {
        let Start { id, directory, checkpoints, seed, checkpoint } = start;
        if self.run.ranks.world.is_main() {
            return;
        }
        let run = &mut self.run.shared.run;
        (run.id, run.directory, run.checkpoints) = (id, directory, checkpoints);
        if std::mem::replace(&mut self.options.seed, seed) != seed {
            self.run.shared.streams.replace(RandomStreams::new(seed));
        }
        self.resume.options.checkpoint = checkpoint;
        self.run.ranks.unused_recording = self.run.journal.recording.take();
        self.run.journal.notices.announces_start = false;
    }

    /// Call site `parameters`. Also refuses modules and hooks that do not support several ranks.
    pub(crate) fn compare_modules(&mut self) -> Result<(), Failure> {
        if !self.run.ranks.several {
            return Ok(());
        }
        if self.run.state.stage == Stage::Fit {
            let refusal = undistributable(&self.run.hooks, &*self.module);
            refusal.map_or(Ok(()), |refusal| self.differs(refusal))?;
        }
        let params = self.module.params();
        let parameters = (0..params.count())
            .map(|index| format!("`{}` of shape {:?}", params.name(index), params.shape(index)))
            .collect();
        let length = self.run.shared.run.epoch_batches;
        let epoch = length.map_or("an unknown number".to_owned(), |length| length.to_string());
        let built = Built { parameters, epoch };
        let all = self.run.collective("parameters", |ranks| ranks.gather("parameters", &built))?;
        let mut others = all.iter().enumerate().skip(1);
        let difference = others.find_map(|(rank, other)| {
            let parameters = list_difference("parameter", &all[0].parameters, &other.parameters, rank);
            parameters.or_else(|| difference("number of batches", &all[0].epoch, &other.epoch, rank))
        });
        difference.map_or(Ok(()), |difference| self.differs(difference))
    }

    fn differs(&mut self, text: String) -> Result<(), Failure> {
        self.run.fail(Callee::Trainer, "ranks", text)
    }
}

fn hook_lines(hooks: &HookRunner) -> Vec<String> {
    let lines = hooks.list().into_iter().map(|hook| {
        let state = if hook.enabled { "" } else { ", disabled" };
        format!("`{}` ({}, {}{state})", hook.name, hook.kind, hook.ranks)
    });
    lines.collect()
}

/// Why this module or one of the hooks does not work on several ranks.
fn undistributable(hooks: &HookRunner, module: &impl Module) -> Option<String> {
    let partial = hooks.declared();
    let partial = partial.iter().find(|spec| spec.changes_gradients && !spec.ranks.is_all());
    let refusal = if !module.saves_gradients() {
        "this module cannot be trained on several ranks; implement `saves_gradients`, `gradients_state` and \
         `load_gradients`"
            .to_owned()
    } else if !module.automatic_optimization() {
        "manual optimization does not work on several ranks; return the loss from `training_step`".to_owned()
    } else if let Some(spec) = partial {
        format!("update hook `{}` must run on all ranks, and is declared for {}", spec.name, spec.ranks)
    } else {
        return None;
    };
    Some(refusal)
}

impl Plan {
    /// The first difference from rank 0, with both values.
    fn difference(&self, other: &Plan, rank: usize, rules: &ChangeRules) -> Option<String> {
        if self.call != other.call {
            return Some(format!("rank 0 calls `{:?}`, and rank {rank} calls `{:?}`", self.call, other.call));
        }
        let differences = rules.changes(&self.config, &other.config);
        // Each process has its own device, and rank 0 determines the run directory.
        let mut differences = differences.into_iter().filter(|it| !matches!(&*it.key, "device" | "runs_dir"));
        if let Some(ConfigChange { key, old, new, .. }) = differences.next() {
            let [main, other] =
                [old, new].map(|value| value.map_or("unset".to_owned(), |value| value.to_string()));
            return difference(&format!("`{key}`"), &main, &other, rank);
        }
        list_difference("hook", &self.hooks, &other.hooks, rank)
            .or_else(|| difference("processor", &self.processor, &other.processor, rank))
    }
}

/// The difference of a value from that of rank 0.
fn difference(what: &str, main: &str, other: &str, rank: usize) -> Option<String> {
    (main != other).then(|| format!("{what} is {main} on rank 0, and {other} on rank {rank}"))
}

/// The first difference of a list from that of rank 0.
fn list_difference(what: &str, main: &[String], other: &[String], rank: usize) -> Option<String> {
    let at = (0..main.len().max(other.len())).find(|at| main.get(*at) != other.get(*at))?;
    let [main, other] = [main, other].map(|list| list.get(at).map_or("none", String::as_str));
    difference(&format!("{what} {}", at + 1), main, other, rank)
}

/// The configuration without the seed, which rank 0 broadcasts.
fn without_seed(config: &Value) -> Value {
    let mut config = config.clone();
    if let Some(trainer) = config.get_mut("trainer").and_then(Value::as_object_mut) {
        trainer.remove("seed");
    }
    config
}

#[cfg(test)]
mod tests {
    use super::list_difference;

    #[test]
    fn the_first_difference_of_two_lists_is_named_with_both_values() {
        let list = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let main = list(&["`weight` of shape [2]", "`bias` of shape [1]"]);
        assert_eq!(list_difference("parameter", &main, &main, 1), None);
        let other = list(&["`weight` of shape [2]", "`bias` of shape [3]"]);
        assert_eq!(
            list_difference("parameter", &main, &other, 3).as_deref(),
            Some("parameter 2 is `bias` of shape [1] on rank 0, and `bias` of shape [3] on rank 3")
        );
        assert_eq!(
            list_difference("parameter", &main, &main[..1], 1).as_deref(),
            Some("parameter 2 is `bias` of shape [1] on rank 0, and none on rank 1")
        );
    }
}
