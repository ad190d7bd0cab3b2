use tenterhook_core::{HookResult, Observer, TrainEnd, hook};

struct Ends;

#[hook]
impl Observer for Ends {
    fn on_training_end(&mut self, _: &TrainEnd) -> HookResult {
        Ok(())
    }
}

fn main() {}
