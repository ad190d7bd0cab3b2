use tenterhook_core::{Observer, hook};

struct Ends;

#[hook]
impl Observer for Ends {
    fn on_training_end(&mut self, _: &tenterhook_core::TrainEnd) {}
}

fn main() {}
