//! One rank of a distributed run: hooks that run on other ranks receive nothing here, and changes of the list of hooks wait
//! until all ranks make them.

use super::{HookRunner, RosterError};
use crate::roster::{Change, PendingChange, RosterRequest};
use crate::run_context::{RunContext, RunState};
use crate::spec::Ranks;
use crate::world::World;

/// A requested change of the list of hooks, and the number of the hook that asked for it.
pub type RequestedChange = (Option<usize>, RosterRequest);

impl HookRunner {
    /// Says which rank this is. With several ranks, requested changes of the list of hooks wait for
    /// [`apply_roster_changes_of_all_ranks`](HookRunner::apply_roster_changes_of_all_ranks).
    pub fn set_world(&mut self, world: World) {
        if self.world != world {
            self.world = world;
            self.replan();
        }
    }

    /// The names of the hooks that are disabled, in order of name.
    #[must_use]
    pub fn disabled(&self) -> Vec<String> {
        let disabled = self.slots.iter().filter(|slot| slot.is_present() && !slot.status.enabled);
        let mut names: Vec<_> = disabled.map(|slot| slot.status.name.clone()).collect();
        names.sort();
        names
    }

    /// On which ranks the hook of this name runs.
    #[must_use]
    pub fn ranks_of(&self, name: &str) -> Ranks {
        self.slots.iter().find(|slot| slot.is_called(name)).map_or(Ranks::All, |slot| slot.spec.ranks)
    }

    /// The changes of the list of hooks that were requested on this rank.
    #[must_use]
    pub fn requested(&self, shared: &RunState) -> Vec<RequestedChange> {
        let changes = shared.roster.changes.borrow();
        changes.iter().map(|asked| (asked.by, asked.change.in_words())).collect()
    }

    /// Makes the changes that were requested on any rank, in this order. A hook to be added must have been made on this rank,
    /// too.
    pub fn apply_roster_changes_of_all_ranks(
        &mut self,
        requested: Vec<RequestedChange>,
        run_cx: &RunContext<'_>,
    ) {
        let mut own = run_cx.shared.roster.changes.take();
        let mut made = |name: &str| {
            let adds =
                |asked: &PendingChange| matches!(&asked.change, Change::Add(hook) if hook.name() == name);
            own.iter().position(adds).map(|at| own.remove(at).change)
        };
        for (by, request) in requested {
            let change = match request {
                RosterRequest::Enable(name) => Some(Change::Enable(name)),
                RosterRequest::Disable(name) => Some(Change::Disable(name)),
                RosterRequest::Remove(name) => Some(Change::Remove(name)),
                RosterRequest::Add(name) => {
                    let change = made(&name);
                    if change.is_none() {
                        self.reports.refused.push(RosterError::NotOnAllRanks(name));
                    }
                    change
                }
            };
            if let Some(change) = change {
                run_cx.shared.roster.ask(by, change);
            }
        }
        self.change(run_cx);
    }
}
