//! The end of a call: hooks wait for what they handed to worker threads, and say what became of it.

use super::HookRunner;
use super::standing::attempt;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::sent::Sent;

impl HookRunner {
    /// Lets every hook finish, disabled ones too, whatever fails on the way. The failures that would have aborted are
    /// returned; the others are contained.
    pub fn finish(&mut self, progress: &Progress) -> Vec<Failure> {
        let (mut failures, mut disabled) = (Vec::new(), false);
        for slot in self.slots.iter_mut().filter(|slot| !slot.removed) {
            let Err(mishap) = attempt(|| slot.hook.0.finish()) else { continue };
            let position = (progress.epoch, progress.step);
            match slot.standing.judge(mishap, "finish", position, &mut self.contained) {
                Ok(false) => {}
                Ok(true) => {
                    self.changed.push(slot.standing.give_up());
                    disabled = true;
                }
                Err(failure) => failures.push(failure),
            }
            self.unpublished.set(true);
        }
        if disabled {
            self.replan();
        }
        failures
    }

    /// What became of what hooks handed to worker threads, by the hook's name, in registration order.
    #[must_use]
    pub fn sent(&self) -> Vec<(String, Sent)> {
        let present = self.slots.iter().filter(|slot| !slot.removed);
        present.filter_map(|slot| Some((slot.standing.name.clone(), slot.hook.0.sent()?))).collect()
    }
}
