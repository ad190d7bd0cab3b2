//! Support for distributed runs: hooks of other ranks receive nothing here, and requested changes of the list
//! of hooks wait until all ranks make them.

use super::HookRunner;
use crate::roster::RosterRequest;
use crate::run_context::{RunContext, RunState};
use crate::spec::Ranks;
use crate::world::World;

/// A requested change of the list of hooks, with the number of the hook that requested it.
pub type RequestedChange = (Option<usize>, RosterRequest);

impl HookRunner {
    /// Sets the rank of this process. With several ranks, requested changes of the list of hooks wait for
    /// [`apply_roster_changes_of_all_ranks`](HookRunner::apply_roster_changes_of_all_ranks).
    pub fn set_world(&mut self, world: World) {
        if self.world != world {
            self.world = world;
            self.replan();
        }
    }

    /// The names of the disabled hooks, sorted.
    #[must_use]
    pub fn disabled(&self) -> Vec<String> {
        let disabled = self.slots.iter().filter(|slot| slot.is_present() && !slot.status.enabled);
        let mut names: Vec<_> = disabled.map(|slot| slot.spec.name.clone()).collect();
        names.sort();
        names
    }

    /// The ranks on which the hook of this name runs.
    #[must_use]
    pub fn ranks_of(&self, name: &str) -> Ranks {
        self.find(name).map_or(Ranks::All, |slot| slot.spec.ranks)
    }

    /// The changes of the list of hooks that were requested on this rank.
    #[must_use]
    pub fn requested(&self, shared: &RunState) -> Vec<RequestedChange> {
        let changes = shared.roster.changes.borrow();
        changes.iter().map(|change| (change.by, change.request.clone())).collect()
    }

    /// Makes the changes that were requested on any rank, in this order. A hook to be added must also have
    /// been created on this rank.
    pub fn apply_roster_changes_of_all_ranks(
        &mut self,
        requested: Vec<RequestedChange>,
        run_cx: &RunContext<'_>,
    ) {
        let roster = &run_cx.shared.roster;
        let mut own = roster.changes.take();
        for (by, request) in requested {
            let created = own.iter().position(|own| own.hook.is_some() && own.request == request);
            let hook = created.and_then(|index| own.remove(index).hook);
            roster.ask(by, request, hook);
        }
        self.apply_requested_changes(run_cx);
    }
}
