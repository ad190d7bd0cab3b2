//! The command line: `train`, `validate`, `test`, `predict` and more; `--help` lists them.

mod hook;
mod spiral;

use std::process::ExitCode;

use tenterhook_app::App;

fn main() -> ExitCode {
    // It is not in PATH, so the commands that it suggests begin as they are typed here.
    App::new("{name}")
        .called_by("cargo run --release --")
        .task(spiral::Spiral)
        .hook("worst_batch", hook::WorstBatch::new)
        .run()
}
