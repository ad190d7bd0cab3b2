//! The `tenter` program: the built-in tasks behind the command line of [`tenterhook_app::App`].

// Only one place prints, which makes untrusted text harmless.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use tenterhook::toy::ToyTask;
use tenterhook_app::App;
use tenterhook_tasks::digits::Digits;
use tenterhook_tasks::text::Text;

// Burn makes and drops many large tensors in every step; the system's allocator returns their memory
// to the kernel each time and pays for it in page faults.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    App::new("tenter").task(Digits).task(Text).task(ToyTask).run()
}
