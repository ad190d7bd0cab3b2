use tenterhook_core::{HookResult, Observer, StepEnd, hook};

struct Meddles;

#[hook]
impl Observer for Meddles {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        cx.run_cx.progress.step = 0;
        Ok(())
    }
}

fn main() {}
