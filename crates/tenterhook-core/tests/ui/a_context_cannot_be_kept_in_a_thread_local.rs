use std::cell::Cell;

use tenterhook_core::{HookResult, Observer, StepEnd, hook};

thread_local! {
    static LAST: Cell<Option<&'static StepEnd<'static>>> = const { Cell::new(None) };
}

struct Keeps;

#[hook]
impl Observer for Keeps {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        LAST.set(Some(cx));
        Ok(())
    }
}

fn main() {}
