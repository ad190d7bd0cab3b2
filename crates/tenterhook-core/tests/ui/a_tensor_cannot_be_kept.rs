use tenterhook_core::{AfterBackward, HookResult, Observer, Tensor, hook};

struct Kept(Tensor<'static>);

// An unsound `Send` does not help either.
unsafe impl Send for Kept {}

struct Keeps {
    weights: Vec<Kept>,
}

#[hook]
impl Observer for Keeps {
    fn on_after_backward(&mut self, cx: &AfterBackward) -> HookResult {
        for weight in cx.gradients.iter() {
            self.weights.push(Kept(weight));
        }
        Ok(())
    }
}

fn main() {}
