//! The command line: `train`, `validate`, `test`, `predict` and more; `--help` lists them.

mod hook;
mod spiral;

use std::process::ExitCode;

use tenterhook_cli::App;

fn main() -> ExitCode {
    App::new("{name}").task(spiral::Spiral).hook("worst_batch", hook::WorstBatch::new).run()
}
