//! `tenter train`: trains, then tests the best weights, and says what came of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;
use tenterhook::config::Resolved;
use tenterhook::hooks::Checkpoint;
use tenterhook::run::{Interrupt, RunDirectoryPlan};
use tenterhook::{Notice, Outcome, Report, Trainer};

use super::{accepted, failed, print, resolve, tell};
use crate::app::App;
use crate::arguments::{Output, Train};
use crate::progress::{Progress, duration, is_followed, metric};
use crate::signals;
use crate::table::{counted, json_number};

pub(crate) fn run(app: &App, arguments: &Train) -> Result<ExitCode, String> {
    let resolved = resolve(app, arguments.config.as_deref(), &arguments.changes)?;
    if arguments.print_config {
        print(resolved.to_toml().trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let mut program = resolved.program(&app.tasks, &app.registry).map_err(|error| error.to_string())?;
    let interrupt = Interrupt::new();
    signals::watch(interrupt.clone()).map_err(|error| format!("cannot watch for signals: {error}"))?;
    let mut trainer = prepared(app, &resolved, arguments.output)?.with_interrupt(interrupt);
    if let Some(code) = accepted(&resolved, &mut *program, &mut trainer)? {
        return Ok(code);
    }
    if !resolved.trainer.fast_dev_run.is_on() {
        let below = RunDirectoryPlan::below(&resolved.runs_dir);
        let command = below.command.iter().map(|argument| resolved.without_secrets(argument)).collect();
        trainer = trainer.with_run_directory(RunDirectoryPlan {
            config: resolved.to_toml(),
            config_hash: Some(resolved.hash()),
            task: Some(resolved.task.clone()),
            device: Some(resolved.device.clone()),
            engine: Some(format!("burn {}", tenterhook_burn::BURN_VERSION)),
            command,
            ..below
        });
    }
    let began = Instant::now();
    let fitted = match program.fit(&mut trainer) {
        Ok(report) => report,
        Err(error) => return Ok(failed(error, &trainer)),
    };
    let seconds = began.elapsed().as_secs_f64();
    let interrupted = matches!(fitted.outcome, Outcome::Interrupted { .. });
    let best = best(&trainer);
    let mut tested = None;
    if !arguments.no_test && !interrupted && !resolved.trainer.fast_dev_run.is_on() {
        if let Some(Best { path, .. }) = &best {
            program.load_weights(path).map_err(|error| error.to_string())?;
        }
        match program.test(&mut trainer) {
            Ok(report) => tested = Some(report),
            Err(error) => return Ok(failed(error, &trainer)),
        }
    }
    let summary = Summary { fitted: &fitted, tested: tested.as_ref(), best: best.as_ref(), seconds };
    summary.print(app, &trainer, arguments.output);
    Ok(match tested.map_or(fitted.outcome, |tested| tested.outcome) {
        Outcome::Interrupted { signal } => ExitCode::from(signals::exit_code(&signal)),
        _ => ExitCode::SUCCESS,
    })
}

/// A trainer of this configuration that shows its progress as asked for.
pub(super) fn prepared(app: &App, resolved: &Resolved, output: Output) -> Result<Trainer, String> {
    let mut trainer = resolved.trainer(&app.registry).map_err(|error| error.to_string())?;
    if output.quiet {
        return Ok(trainer.with_notices(|_| {}));
    }
    let progress = Progress::new();
    let bar = progress.bar();
    trainer.add_hook(progress).map_err(|error| error.to_string())?;
    Ok(trainer.with_notices(move |notice| match &bar {
        // Whoever sent the signal has been answered at once.
        _ if matches!(notice, Notice::Interrupted { .. }) => {}
        Some(bar) => bar.suspend(|| tell(notice)),
        None => tell(notice),
    }))
}

/// The best checkpoint of the first hook that keeps one.
struct Best {
    path: PathBuf,
    score: Option<(String, f64)>,
}

fn best(trainer: &Trainer) -> Option<Best> {
    trainer.list_hooks().iter().find_map(|hook| {
        let checkpoint = trainer.hook::<Checkpoint>(&hook.name)?;
        let (path, score) = checkpoint.best()?;
        let score = checkpoint.monitor().map(str::to_owned).zip(score);
        // A path that the hook was given stays as it is; its own are below the checkpoints' root.
        Some(Best { path: trainer.checkpoints().join(path), score })
    })
}

struct Summary<'a> {
    fitted: &'a Report,
    tested: Option<&'a Report>,
    best: Option<&'a Best>,
    seconds: f64,
}

impl Summary<'_> {
    fn print(&self, app: &App, trainer: &Trainer, output: Output) {
        if output.json {
            print(&self.for_programs(trainer));
        } else if !output.quiet {
            self.for_people(app, trainer);
        }
    }

    fn for_programs(&self, trainer: &Trainer) -> String {
        let Summary { fitted, tested, best, seconds } = self;
        let metrics = tested.map_or(&fitted.metrics, |tested| &tested.metrics);
        let run = trainer.run_info();
        json!({
            "run": run.id,
            "directory": run.directory.as_ref().filter(|directory| directory.is_dir()),
            "outcome": fitted.outcome,
            "epochs": fitted.progress.epochs_done,
            "steps": fitted.progress.step,
            "samples": fitted.progress.samples,
            "tokens": fitted.progress.tokens,
            "seconds": seconds,
            "best": best.map(|best| json!({ "path": best.path, "score": best.score.as_ref().map(|score| score.1) })),
            "metrics": metrics.iter().map(|(name, value)| (name.clone(), json_number(*value))).collect::<serde_json::Map<_, _>>(),
        })
        .to_string()
    }

    fn for_people(&self, app: &App, trainer: &Trainer) {
        let Summary { fitted, tested, best, seconds } = self;
        let progress = fitted.progress;
        let (epochs, steps) = (counted(progress.epochs_done, "epoch"), counted(progress.step, "step"));
        let how = match &fitted.outcome {
            Outcome::Stopped { by, reason } => format!("stopped by `{by}` ({reason})"),
            Outcome::Interrupted { signal } => format!("interrupted by {signal}"),
            _ => "completed".to_owned(),
        };
        print(&format!("\n{how} after {epochs}, {steps}, {}", duration(*seconds)));
        let directory = trainer.run_info().directory.as_ref().filter(|directory| directory.is_dir());
        let place = if directory.is_some() { " in metrics.jsonl" } else { "" };
        let rows = |title: &str, of: &str, report: &Report| {
            for row in rows(title, of, &report.metrics, place) {
                print(&row);
            }
        };
        rows("", "train/", fitted);
        rows("", "val/", fitted);
        if let Some(report) = tested {
            let on = match best {
                Some(Best { score: Some((name, value)), .. }) => {
                    format!("   on the best weights ({name} {})", metric(name, *value))
                }
                Some(_) => "   on the saved weights".to_owned(),
                None => "   on the last weights; no checkpoint hook kept better ones".to_owned(),
            };
            rows(&on, "test/", report);
        }
        let Some(directory) = directory else { return };
        print(&format!("\nthe run is in {}", directory.display()));
        let name = app.name;
        let weights = best.map_or_else(|| directory.with_file_name("latest"), |best| best.path.clone());
        print("what to try next");
        print(&format!("  {name} predict --weights {}", weights.display()));
        print(&format!("  {name} init my.toml    then edit it, and: {name} train my.toml"));
        print(&format!("  {name} trace my.toml   shows the order of events"));
    }
}

/// The metrics of one stage that people follow, with the remark beside the first, and how many others there are.
fn rows(remark: &str, of: &str, metrics: &BTreeMap<String, f64>, place: &str) -> Vec<String> {
    let of_stage = metrics.iter().filter(|(name, _)| name.starts_with(of));
    let (followed, others): (Vec<_>, Vec<_>) = of_stage.partition(|(name, _)| is_followed(name));
    let remarks = std::iter::once(remark).chain(std::iter::repeat(""));
    let row = |((name, value), remark): ((&String, &f64), _)| {
        format!("  {name:<20} {:>10}{remark}", metric(name, *value))
    };
    let mut rows: Vec<_> = followed.into_iter().zip(remarks).map(row).collect();
    if !others.is_empty() {
        rows.push(format!("  and {} more of activations{place}", others.len()));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_shows_what_people_follow_with_its_remark_once_and_counts_the_rest() {
        let names = ["test/accuracy", "test/act_mean/a", "test/act_mean/b", "test/loss", "val/loss"];
        let metrics = names.iter().map(|name| ((*name).to_owned(), 0.5)).collect();
        let shown = rows("   on the last weights", "test/", &metrics, " in metrics.jsonl");
        let expected = [
            "  test/accuracy           50.00 %   on the last weights",
            "  test/loss                0.5000",
            "  and 2 more of activations in metrics.jsonl",
        ];
        assert_eq!(shown, expected);
        assert_eq!(rows("", "val/", &metrics, ""), ["  val/loss                 0.5000"]);
    }
}
