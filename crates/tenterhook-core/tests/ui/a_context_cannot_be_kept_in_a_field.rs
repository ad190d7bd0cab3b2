use tenterhook_core::{HookResult, Observer, StepEnd, hook};

struct Kept(&'static StepEnd<'static>);

// An unsound `Send` does not help either.
unsafe impl Send for Kept {}

struct Keeps {
    last: Vec<Kept>,
}

#[hook]
impl Observer for Keeps {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        self.last.push(Kept(cx));
        Ok(())
    }
}

fn main() {}
