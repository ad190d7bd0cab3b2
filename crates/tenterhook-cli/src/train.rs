//! `tenter train`: trains the built-in toy problem under the configured hooks.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use tenterhook::config::Config;
use tenterhook::toy::{Toy, ToyData};
use tenterhook::{Outcome, Report, RunError, Trainer, closure};

use crate::{WRONG_INPUT, print};

/// The run failed, after it had begun.
const FAILED: u8 = 1;

pub(crate) fn run(path: Option<&Path>, json: bool) -> Result<ExitCode, String> {
    let config = match path {
        Some(path) => Config::read(path).map_err(|error| error.to_string())?,
        None => built_in(),
    };
    let mut trainer = config.trainer().map_err(|error| error.to_string())?;
    if !json {
        let progress = closure::on_train_epoch_end("progress", |cx| {
            let metrics = cx.metrics().to_map();
            let shown: Vec<_> = metrics.iter().map(|(name, value)| format!("{name} {value:.6}")).collect();
            print(&format!("epoch {:>3}  step {:>5}  {}", cx.epoch, cx.step, shown.join("  ")));
        });
        trainer.add_hook(progress).map_err(|error| error.to_string())?;
    }
    let mut toy = Toy::default();
    match trainer.fit(&mut toy, &mut ToyData::default()) {
        Ok(report) => {
            summarise(&report, &trainer, &toy, json);
            Ok(ExitCode::SUCCESS)
        }
        Err(RunError::Settings(problems)) => {
            eprintln!("error: {}", problems.join("\n"));
            Ok(ExitCode::from(WRONG_INPUT))
        }
        Err(RunError::Failed { failure, later, report }) => {
            eprintln!("error: {failure}");
            for failure in later {
                eprintln!("also: {failure}");
            }
            // Nothing was trained, so it was wrong from the start.
            let refused = report.progress.total_batches == 0;
            Ok(ExitCode::from(if refused { WRONG_INPUT } else { FAILED }))
        }
    }
}

/// What runs without a configuration.
fn built_in() -> Config {
    let mut config = Config::default();
    config.trainer.max_epochs = Some(30);
    config
}

fn summarise(report: &Report, trainer: &Trainer, toy: &Toy, json: bool) {
    let (weight, bias) = (toy.param("weight"), toy.param("bias"));
    if json {
        let learned = json!({ "weight": weight, "bias": bias });
        let (outcome, steps, metrics) = (&report.outcome, report.progress.step, &report.metrics);
        print(
            &json!({ "outcome": outcome, "steps": steps, "metrics": metrics, "learned": learned })
                .to_string(),
        );
        return;
    }
    print(&match &report.outcome {
        Outcome::Stopped { by, reason } => format!("stopped by `{by}`: {reason}"),
        _ => "completed".to_owned(),
    });
    let (w0, w1, b) = (weight[0], weight[1], bias[0]);
    print(&format!("learned y = {w0:.3}·x0 {w1:+.3}·x1 {b:+.3} (the data: y = 2·x0 -3·x1 +0.5)"));
    if trainer.checkpoints().is_dir() {
        print(&format!("checkpoints are in {}", trainer.checkpoints().display()));
    }
    print("next: tenter plan CONFIG shows who receives which event; tenter trace FILE shows the order");
}
