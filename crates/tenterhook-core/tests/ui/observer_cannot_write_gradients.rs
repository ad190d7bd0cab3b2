use tenterhook_core::{AfterBackward, HookResult, Observer, hook};

struct Meddles;

#[hook]
impl Observer for Meddles {
    fn on_after_backward(&mut self, cx: &AfterBackward) -> HookResult {
        cx.gradients.edit("w", |values| values.fill(0.0));
        Ok(())
    }
}

fn main() {}
