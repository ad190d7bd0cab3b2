use tenterhook_core::{Decision, HookResult, Observer, StepEnd, hook};

type Answer = HookResult<Decision>;

struct Stops;

#[hook]
impl Observer for Stops {
    fn on_step_end(&mut self, _: &StepEnd) -> Answer {
        Ok(Decision::stop("enough"))
    }
}

fn main() {}
