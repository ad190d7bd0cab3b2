use tenterhook_core::{Controller, Decision, HookResult, TestEnd, hook};

struct TooLate;

#[hook]
impl Controller for TooLate {
    fn on_test_end(&mut self, _: &TestEnd) -> HookResult<Decision> {
        Ok(Decision::stop("too late"))
    }
}

fn main() {}
