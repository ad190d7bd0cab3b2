use tenterhook_core::{AfterBackward, HookResult, Observer, Tensor, hook};

struct SavedGradient(Tensor<'static>);

// Not even a hook that lies about its threads can.
unsafe impl Send for SavedGradient {}

struct Keeps {
    weights: Vec<SavedGradient>,
}

#[hook]
impl Observer for Keeps {
    fn on_after_backward(&mut self, cx: &AfterBackward) -> HookResult {
        for weight in cx.gradients.iter() {
            self.weights.push(SavedGradient(weight));
        }
        Ok(())
    }
}

fn main() {}
