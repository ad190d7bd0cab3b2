//! The command line: `train`, `test`, `predict` and more. `--help` lists all commands.

mod hook;
mod spiral;

use std::process::ExitCode;

use tenterhook_app::App;

fn main() -> ExitCode {
    App::new("{name}")
        // The command that starts this program, for the commands that it suggests.
        .invoked_as("cargo run --release --")
        .task(spiral::Spiral)
        .hook("worst_batch", hook::WorstBatch::new)
        .run()
}
