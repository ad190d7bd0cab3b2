use tenterhook_core::{AnyHook, HookResult, Observer, StepEnd};

struct Plain;

impl Observer for Plain {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult {
        Ok(())
    }
}

fn main() {
    let _ = AnyHook::new(Plain);
}
