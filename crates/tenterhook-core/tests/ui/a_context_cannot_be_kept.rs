use tenterhook_core::{HookResult, Observer, StepEnd, hook};

struct Keeps {
    last: Option<&'static StepEnd<'static>>,
}

#[hook]
impl Observer for Keeps {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        self.last = Some(cx);
        Ok(())
    }
}

fn main() {}
