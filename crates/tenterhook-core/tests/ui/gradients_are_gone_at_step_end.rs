use tenterhook_core::{HookResult, Observer, StepEnd, hook};

struct Late;

#[hook]
impl Observer for Late {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        let StepEnd { gradients, .. } = cx;
        Ok(())
    }
}

fn main() {}
