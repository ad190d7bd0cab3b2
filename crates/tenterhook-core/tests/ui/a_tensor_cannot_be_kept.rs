use tenterhook_core::{AfterBackward, HookResult, Observer, Tensor, hook};

struct Keeps {
    weight: Option<Tensor<'static>>,
}

#[hook]
impl Observer for Keeps {
    fn on_after_backward(&mut self, cx: &AfterBackward) -> HookResult {
        self.weight = cx.gradients.by_name("w");
        Ok(())
    }
}

fn main() {}
