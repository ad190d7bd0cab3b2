use tenterhook_core::{HookResult, Observer, StepEnd, hook};

struct Meddles;

#[hook]
impl Observer for Meddles {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
        for tensor in cx.params().iter() {
            tensor.as_mut_slice().fill(0.0);
        }
        Ok(())
    }
}

fn main() {}
