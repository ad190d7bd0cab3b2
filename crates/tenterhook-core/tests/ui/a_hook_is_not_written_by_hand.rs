use tenterhook_core::{Hook, HookResult, StepEnd};

struct ByHand;

impl Hook for ByHand {
    type Verdict = ();

    fn name(&self) -> String {
        "by_hand".into()
    }

    fn on_step_end(&mut self, _: &StepEnd) -> HookResult {
        Ok(())
    }
}

fn main() {}
