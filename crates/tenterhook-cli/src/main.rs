//! The `tenter` program: the built-in tasks behind the command line of [`tenterhook_app::App`].

// Only the app prints, in one place that escapes untrusted text.
#![warn(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use tenterhook::toy::ToyTask;
use tenterhook_app::App;
use tenterhook_tasks::digits::Digits;
use tenterhook_tasks::text::Text;

// Burn allocates and frees many large tensors in every step; the system allocator returns their memory to the
// kernel each time, which causes page faults.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    App::new("tenter").task(Digits).task(Text).task(ToyTask).run()
}
