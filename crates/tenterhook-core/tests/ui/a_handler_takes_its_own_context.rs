use tenterhook_core::{HookResult, Observer, StepEnd, hook};

struct Mixed;

#[hook]
impl Observer for Mixed {
    fn on_train_end(&mut self, _: &StepEnd) -> HookResult {
        Ok(())
    }
}

fn main() {}
