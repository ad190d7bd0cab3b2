//! The list of hooks: registration, toggling and removal.

use super::standing::Standing;
use super::{HookRunner, RosterError};
use crate::account::Budget;
use crate::any_hook::AnyHook;
use crate::cadence::Cadence;
use crate::context::{Activation, Context, EventRef};
use crate::event::{Event, Events};
use crate::failure::Policy;
use crate::hook::{Hook, Reply};
use crate::moment::Shared;
use crate::plan::{Entry, Plan, TRAIN_LOSS, Tier};
use crate::roster::{Change, HookInfo, HookKind};
use crate::spec::HookSpec;
use crate::update::Identity;
use crate::world::World;

pub(super) struct Slot {
    pub(super) standing: Standing,
    pub(super) hook: Box<dyn Hook>,
    /// What it declared, under the name and policy that it is registered with.
    pub(super) spec: HookSpec,
    pub(super) removed: bool,
    /// It was removed in this call, and has not finished yet.
    pub(super) leaving: bool,
    /// It was set up in this call, so it is torn down even if it is disabled or removed by then.
    pub(super) set_up: bool,
    /// It was torn down in this call. A teardown that failed half-way is delivered again to the others.
    pub(super) torn_down: bool,
}

pub(super) struct UpdateSlot {
    pub(super) standing: Standing,
    pub(super) hook: Box<dyn Hook>,
    /// What it declared, under the name and policy that it is registered with.
    pub(super) spec: HookSpec,
}

/// How a hook is registered, where that differs from what it says of itself.
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// Another name.
    pub name: Option<String>,
    /// Another policy.
    pub policy: Option<Policy>,
    /// Registered, but receiving nothing until it is enabled.
    pub disabled: bool,
    /// What share of the time of training steps it may take.
    pub budget: Option<Budget>,
    /// Of an update hook: whether it fails when a gradient is not finite after it.
    pub check_finite: Option<bool>,
}

impl HookRunner {
    /// Registers a hook as it describes itself.
    pub fn add(&mut self, hook: impl Into<AnyHook>) -> Result<(), RosterError> {
        self.register(hook, Registration::default())
    }

    /// Registers a hook.
    pub fn register(&mut self, hook: impl Into<AnyHook>, how: Registration) -> Result<(), RosterError> {
        let AnyHook { hook, mut spec } = hook.into();
        spec.name = self.free(how.name.unwrap_or(spec.name))?;
        spec.policy = how.policy.unwrap_or(spec.policy);
        spec.check_finite = how.check_finite.unwrap_or(spec.check_finite);
        let is_update = spec.kind() == HookKind::Update;
        if (spec.changes_gradients || !is_update) && spec.name == Identity.spec().name {
            return Err(RosterError::Reserved(spec.name));
        }
        let (enabled, number) = (!how.disabled, self.registered);
        self.registered += 1;
        self.gone.remove(&spec.name);
        let standing = Standing {
            enabled,
            registered: enabled,
            number,
            budget: how.budget,
            ..Standing::new(spec.name.clone(), spec.policy)
        };
        if is_update {
            self.updates.push(UpdateSlot { standing, hook, spec });
        } else {
            let (removed, leaving, set_up, torn_down) = Default::default();
            self.slots.push(Slot { standing, hook, spec, removed, leaving, set_up, torn_down });
        }
        self.replan();
        Ok(())
    }

    /// Lets a hook receive events again.
    pub fn enable(&mut self, name: &str) -> Result<(), RosterError> {
        self.switch(name, true)
    }

    /// Lets a hook receive no events; it keeps its place and its state.
    pub fn disable(&mut self, name: &str) -> Result<(), RosterError> {
        self.switch(name, false)
    }

    /// Removes a hook. In a call it is torn down and finishes with the others, and is dropped then.
    pub fn remove(&mut self, name: &str) -> Result<(), RosterError> {
        let in_call = self.in_call;
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.is_called(name)) {
            (slot.removed, slot.leaving, slot.standing.enabled) = (true, in_call, false);
            if !in_call {
                slot.take_hook();
            }
        } else if let Some(at) = self.updates.iter().position(|slot| slot.standing.name == name) {
            let mut slot = self.updates.remove(at);
            slot.standing.enabled = false;
            let in_steps = self.accounting.in_steps;
            self.departed.push(slot.standing.cost(HookKind::Update, false, in_steps));
            self.leaving.extend(in_call.then_some(slot));
        } else {
            return Err(self.unknown(name));
        }
        self.gone.insert(name.to_owned());
        self.replan();
        Ok(())
    }

    /// All hooks: those that receive events in registration order, then update hooks. Where no update hook is
    /// enabled there is `identity`.
    #[must_use]
    pub fn list(&self) -> Vec<HookInfo> {
        let stands = |slot: &UpdateSlot| slot.standing.enabled || slot.standing.name == Identity.spec().name;
        let identity = (!self.updates.iter().any(stands)).then(|| {
            let spec = Identity.spec();
            Standing::new(spec.name.clone(), spec.policy).info(&spec)
        });
        self.infos().into_iter().flatten().chain(identity).collect()
    }

    /// All registered hooks, by their number; a removed one leaves its number empty.
    fn infos(&self) -> Vec<Option<HookInfo>> {
        let slots = self.slots.iter().map(Slot::info);
        let updates = self.updates.iter().map(|slot| slot.standing.info(&slot.spec));
        slots.chain(updates.map(Some)).collect()
    }

    /// What every enabled hook declares: those that receive events in registration order, then update hooks.
    #[must_use]
    pub fn declared(&self) -> Vec<HookSpec> {
        let live = self.slots.iter().filter(|slot| slot.is_live()).map(|slot| &slot.spec);
        let updates = self.updates.iter().filter(|slot| slot.standing.enabled).map(|slot| &slot.spec);
        live.chain(updates).cloned().collect()
    }

    /// Whether a controller or an update hook judges every loss, which must then be logged at every step.
    #[inline]
    #[must_use]
    pub fn judges_every_loss(&self) -> bool {
        self.judging
    }

    /// Whether an observer reads every loss, which must then be shown to observers at every step, and to nobody
    /// else: a controller must not see other numbers because somebody watches.
    #[inline]
    #[must_use]
    pub fn observes_every_loss(&self) -> bool {
        self.reading
    }

    /// A hook by its name and type; behind wrappers too.
    #[must_use]
    pub fn hook<H: Hook>(&self, name: &str) -> Option<&H> {
        let slots = self.slots.iter().filter(|slot| !slot.removed).map(|slot| (&slot.spec, &slot.hook));
        let mut all = slots.chain(self.updates.iter().map(|slot| (&slot.spec, &slot.hook)));
        let (_, hook) = all.find(|(spec, _)| spec.name == name)?;
        hook.downcast_ref()
    }

    /// The names of all hooks of every kind, in registration order.
    #[must_use]
    pub fn in_order(&self) -> Vec<&str> {
        let mut all: Vec<_> = self.standings().collect();
        all.sort_by_key(|standing| standing.number);
        all.into_iter().map(|standing| standing.name.as_str()).collect()
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The hook in a slot of the plan: its name and tier.
    #[must_use]
    pub fn receiver(&self, slot: usize) -> Option<(&str, Tier)> {
        self.slots.get(slot).map(|slot| (slot.standing.name.as_str(), slot.spec.tier))
    }

    /// The tier of the hook of this name, where it receives events.
    #[must_use]
    pub fn tier(&self, name: &str) -> Option<Tier> {
        self.slots.iter().find(|slot| slot.is_called(name)).map(|slot| slot.spec.tier)
    }

    /// Tells the hooks who is registered. A delivery does so by itself when that has changed.
    pub fn publish(&self, shared: &Shared) {
        shared.roster.set(self.infos());
        self.unpublished.set(false);
    }

    #[inline]
    pub(super) fn publish_changes(&self, shared: &Shared) {
        if self.unpublished.get() {
            self.publish(shared);
        }
    }

    pub(super) fn apply(&mut self, change: Change) -> Result<(), RosterError> {
        match change {
            Change::Enable(name) => self.enable(&name),
            Change::Disable(name) => self.disable(&name),
            Change::Remove(name) => self.remove(&name),
            Change::Add(hook) => {
                let name = hook.name().to_owned();
                self.add(*hook)?;
                if let Some(standing) = self.standing_mut(&name) {
                    standing.added = true;
                }
                self.take_up(&name);
                Ok(())
            }
        }
    }

    fn switch(&mut self, name: &str, on: bool) -> Result<(), RosterError> {
        match self.standing_mut(name) {
            Some(standing) => {
                standing.enabled = on;
                standing.given_up &= !on;
            }
            None => return Err(self.unknown(name)),
        }
        self.replan();
        Ok(())
    }

    /// How the hooks stand that are registered now.
    pub(super) fn standings(&self) -> impl Iterator<Item = &Standing> {
        let slots = self.slots.iter().filter(|slot| !slot.removed).map(|slot| &slot.standing);
        slots.chain(self.updates.iter().map(|slot| &slot.standing))
    }

    pub(super) fn standing_mut(&mut self, name: &str) -> Option<&mut Standing> {
        let slots = self.slots.iter_mut().filter(|slot| !slot.removed).map(|slot| &mut slot.standing);
        let mut all = slots.chain(self.updates.iter_mut().map(|slot| &mut slot.standing));
        all.find(|standing| standing.name == name)
    }

    /// A call begins, until the hooks [finish](HookRunner::finish): who receives events now is torn down at its end,
    /// whatever becomes of it by then.
    pub fn begin_call(&mut self) {
        self.in_call = true;
        for slot in &mut self.slots {
            (slot.set_up, slot.torn_down) = (slot.is_live(), false);
        }
    }

    pub(super) fn replan(&mut self) {
        let entries: Vec<_> =
            self.slots.iter().enumerate().map(|(id, slot)| slot.entry(id, self.world)).collect();
        self.plan = Plan::new(&entries);
        for slot in &mut self.slots {
            let steers = slot.spec.steers();
            slot.standing.wants_losses =
                if steers { slot.judges_every_loss() } else { slot.reads_every_loss() };
        }
        for slot in &mut self.updates {
            slot.standing.wants_losses = slot.judges_every_loss();
        }
        let wanting = |slot: &&Slot| slot.standing.wants_losses;
        let (steering, observing): (Vec<_>, Vec<_>) =
            self.slots.iter().filter(wanting).partition(|slot| slot.spec.steers());
        self.reading = !observing.is_empty();
        self.judging = !steering.is_empty() || self.updates.iter().any(|slot| slot.standing.wants_losses);
        self.norm_read = self.slots.iter().any(Slot::reads_grad_norm);
        self.measuring = self.slots.iter().any(|slot| slot.is_live() && slot.spec.measures_hooks);
        let has_budget = |standing: &Standing| standing.enabled && standing.budget.is_some();
        let budgeted = self.standings().any(has_budget);
        self.budgeted = budgeted;
        self.stale = false;
        self.unpublished.set(true);
    }

    fn free(&self, name: String) -> Result<String, RosterError> {
        if name.trim().is_empty() {
            return Err(RosterError::Nameless);
        }
        let taken = self.infos().iter().flatten().any(|hook| hook.name == name);
        if taken { Err(RosterError::Duplicate(name)) } else { Ok(name) }
    }

    fn unknown(&self, name: &str) -> RosterError {
        let infos = self.infos();
        let known: Vec<_> = infos.iter().flatten().map(|hook| format!("`{}`", hook.name)).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        RosterError::Unknown { name: name.to_owned(), known }
    }
}

impl UpdateSlot {
    /// Whether it is called.
    pub(super) fn is_live(&self) -> bool {
        self.standing.enabled && self.spec.changes_gradients
    }

    /// It is called within every batch, so whoever reads, monitors or asks for the loss judges each.
    fn judges_every_loss(&self) -> bool {
        let spec = &self.spec;
        let mut read = spec.reads.iter().chain(&spec.monitors);
        self.is_live() && (read.any(|name| name == TRAIN_LOSS) || asks_for_the_loss(spec))
    }
}

impl Slot {
    pub(super) fn is_live(&self) -> bool {
        self.standing.enabled && !self.removed
    }

    /// Delivers an event to the hook; an activation only if the hook looks at it.
    #[inline]
    pub(super) fn offer<C: Context>(&mut self, cx: &C) -> Reply {
        let event = cx.event();
        if let EventRef::Activation(Activation { moment, point, .. }) = event
            && !(self.hook.listens(moment.phase, &moment.progress) && self.hook.wants_point(point))
        {
            moment.shared.hold_back();
            return Ok(());
        }
        self.hook.deliver(event)
    }

    /// Whether it receives this no more, though the plan says so still.
    pub(super) fn is_out(&self, event: Event) -> bool {
        self.standing.given_up && !(self.set_up && event == Event::Teardown)
    }

    /// Whether the event is a teardown that the hook has received already. For any other event this is a constant.
    #[inline]
    pub(super) fn had_its_teardown(&mut self, event: Event) -> bool {
        event == Event::Teardown && std::mem::replace(&mut self.torn_down, true)
    }

    /// The hook itself. Slots are numbered, and numbers in use must not move, so something else takes its place.
    pub(super) fn take_hook(&mut self) -> Box<dyn Hook> {
        std::mem::replace(&mut self.hook, Box::new(Identity))
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.standing.name == name && !self.removed
    }

    /// It declares that it reads the loss, or monitors it from batch to batch. Who monitors it from
    /// epoch to epoch is content with the epoch's mean.
    fn reads_every_loss(&self) -> bool {
        let (spec, mut events) = (&self.spec, self.spec.events.iter());
        let reads = spec.reads.iter().any(|name| name == TRAIN_LOSS);
        let monitors = spec.monitors.as_deref() == Some(TRAIN_LOSS)
            && !spec.every.iter().any(|cadence| matches!(cadence, Cadence::Epochs(_)))
            && events.any(Event::is_within_train_batch);
        self.is_live() && (reads || monitors)
    }

    /// It may ask for the norm of the gradients when a step has ended.
    fn reads_grad_norm(&self) -> bool {
        self.is_live() && self.spec.events.contains(Event::StepEnd) && !self.spec.leaves_grad_norm
    }

    /// It also judges the loss when its condition asks for it.
    fn judges_every_loss(&self) -> bool {
        self.reads_every_loss() || (self.is_live() && asks_for_the_loss(&self.spec))
    }

    fn entry(&self, slot: usize, world: World) -> Entry {
        let wanted = self.spec.events;
        let events = match wanted {
            _ if !self.spec.ranks.include(world) => Events::NONE,
            wanted if self.is_live() => wanted,
            wanted if self.set_up && wanted.contains(Event::Teardown) => Events::NONE.with(Event::Teardown),
            _ => Events::NONE,
        };
        let spec = &self.spec;
        let steps = |cadence: &Cadence| match cadence {
            Cadence::Steps(n) => Some(*n),
            _ => None,
        };
        let every_n_steps = spec.every.iter().chain(&spec.paced).find_map(steps).unwrap_or(1);
        Entry { slot, tier: spec.tier, events, every_n_steps }
    }

    fn info(&self) -> Option<HookInfo> {
        (!self.removed).then(|| self.standing.info(&self.spec))
    }
}

/// Whether a condition asks for the loss, by its name or in short.
fn asks_for_the_loss(spec: &HookSpec) -> bool {
    spec.asks.iter().any(|name| name == TRAIN_LOSS || name == "loss")
}

impl Standing {
    fn info(&self, spec: &HookSpec) -> HookInfo {
        let Standing { name, policy, enabled, failures, budget, .. } = self;
        HookInfo {
            name: name.clone(),
            kind: spec.kind(),
            tier: spec.tier,
            ranks: spec.ranks,
            enabled: *enabled,
            on_error: policy.on_error,
            failures: *failures,
            budget: *budget,
        }
    }
}
