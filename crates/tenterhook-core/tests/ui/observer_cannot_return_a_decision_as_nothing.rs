use tenterhook_core::{Decision, HookResult, Observer, StepEnd, hook};

struct Stops;

#[hook]
impl Observer for Stops {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult {
        Ok(Decision::stop("enough"))
    }
}

fn main() {}
