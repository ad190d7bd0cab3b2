use tenterhook_core::{HookResult, Observer, StepEnd, hook};

struct SavedGradient(&'static StepEnd<'static>);

// Not even a hook that lies about its threads can.
unsafe impl Send for SavedGradient {}

struct Keeps {
    last: Vec<SavedGradient>,
}

#[hook]
impl Observer for Keeps {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        self.last.push(SavedGradient(cx));
        Ok(())
    }
}

fn main() {}
