use tenterhook_core::{Controller, StepEnd, hook};

struct Silent;

#[hook]
impl Controller for Silent {
    fn on_step_end(&mut self, _: &StepEnd) {}
}

fn main() {}
