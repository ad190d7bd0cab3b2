use tenterhook_core::{HookResult, Observer, StepEnd, hook};

struct Late;

#[hook]
impl Observer for Late {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        cx.log("norm", cx.gradients.norm());
        Ok(())
    }
}

fn main() {}
