//! Fuzzed configurations, conditions, patterns and templates.

use std::path::Path;

use tenterhook::condition::{Condition, Operand};
use tenterhook::config::{ConfigError, Sources};
use tenterhook::hooks::{Checkpoint, CheckpointOptions, Notify, NotifyOptions, Secret};
use tenterhook::registry::Registry;
use tenterhook::task::AnyTask;
use tenterhook::toy::{Toy, ToyData, ToyTask};
use tenterhook::{FromOptions, Pattern, Settings, Trainer};
use tenterhook_tasks::digits::Digits;
use tenterhook_tasks::text::Text;

use super::harness::{Fuzz, TOML, no_panic};

pub(super) fn tasks() -> Vec<Box<dyn AnyTask>> {
    vec![Box::new(ToyTask), Box::new(Digits), Box::new(Text)]
}

/// Valid configurations: each task, each built-in hook, all hooks together, and all keys written out.
pub(super) fn configs() -> Vec<Vec<u8>> {
    let registry = Registry::default();
    let examples = registry.hooks().filter_map(|hook| {
        let example = hook.example?;
        Some(format!("[[hooks]]\nuse = \"{}\"\nname = \"a_{}\"\n{example}\n", hook.name, hook.name))
    });
    let hooks = examples.collect::<Vec<_>>();
    let mut all: Vec<_> =
        tasks().iter().map(|task| format!("task = \"{}\"\n{}", task.name(), task.defaults())).collect();
    let gates =
        "every = \"2 steps\"\nafter = \"1 epoch\"\nwhen = \"val/loss < 0.5 and step > 3\"\nsampled = 0.5\n";
    all.extend(hooks.iter().map(|hook| format!("task = \"toy\"\n{hook}{gates}")));
    all.push(format!("task = \"toy\"\n{}", hooks.concat()));
    all.push(
        "task = \"toy\"\n[hooks_config]\nenable_gradient_monitor = true\nhook_classes = [\"console\"]\n"
            .into(),
    );
    // Printed configurations have every key.
    let directory = tempfile::tempdir().unwrap();
    let printed = all.iter().take(tasks().len()).map(|config| {
        let file = directory.path().join("config.toml");
        std::fs::write(&file, config).unwrap();
        Sources::file(&file).resolve(&tasks(), &registry).unwrap().to_toml()
    });
    let printed: Vec<_> = printed.collect();
    all.extend(printed);
    all.into_iter().map(String::into_bytes).collect()
}

/// Checks that an error has a place and a message.
fn is_helpful(error: &ConfigError, file: &Path) -> Result<(), String> {
    let text = error.to_string();
    let empty = error.problems().iter().any(|problem| problem.message.trim().is_empty());
    if error.problems().is_empty() || empty {
        return Err(format!("an error without a problem: {text}"));
    }
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if text.contains(name) { Ok(()) } else { Err(format!("an error without a place: {text}")) }
}

#[test]
fn a_fuzzed_configuration_is_planned_or_refused_with_place_and_problem() {
    let (directory, registry, tasks) = (tempfile::tempdir().unwrap(), Registry::default(), tasks());
    let file = directory.path().join("fuzzed.toml");
    let fuzz = Fuzz {
        name: "config",
        corpus: configs(),
        words: &["[trainer]", "[[hooks]]", "use = "],
        format: Some(TOML),
        inputs: 120,
    };
    fuzz.run(|input| {
        std::fs::write(&file, input).unwrap();
        let resolved = match Sources::file(&file).resolve(&tasks, &registry) {
            Err(error) => return is_helpful(&error, &file),
            Ok(resolved) => resolved,
        };
        let printed = resolved.to_toml();
        if printed.parse::<toml::Table>().is_err() {
            return Err(format!("it prints no TOML:\n{printed}"));
        }
        let trainer = resolved.trainer(&registry);
        match (trainer, resolved.program(&tasks, &registry)) {
            (Ok(trainer), Ok(mut program)) => {
                let mut trainer = trainer.with_notices(|_| {});
                match program.plan_errors(&mut trainer) {
                    Err(error) => no_panic(Err(error)),
                    Ok(_) => Ok(()),
                }
            }
            (Err(error), _) | (_, Err(error)) => is_helpful(&error, &file),
        }
    });
}

/// Words of conditions.
pub(super) const CONDITION_WORDS: &[&str] =
    &["and", "or", "not", "<", ">=", "==", "(", ")", "%", "-", "nan", "inf", "val/loss", "\"a\""];

#[test]
fn a_fuzzed_condition_means_the_same_after_printing_and_parsing() {
    let corpus = [
        "val/loss < 0.5 and epoch % 5 == 0",
        "not (a - 1 >= 'x' or b != nan)",
        "1 + 2 * -3 < inf && x == \"y\"",
    ];
    let corpus = corpus.map(|text| text.as_bytes().to_vec()).to_vec();
    Fuzz { name: "condition", corpus, words: CONDITION_WORDS, format: None, inputs: 5_000 }.run(|input| {
        let text = String::from_utf8_lossy(input);
        let Ok(condition) = text.parse::<Condition>() else { return Ok(()) };
        let known = |name: &str| match name.len() % 3 {
            0 => None,
            1 => Some(Operand::Number(0.5)),
            _ => Some(Operand::Text("a".into())),
        };
        let written = condition.to_string();
        let again: Condition =
            written.parse().map_err(|error| format!("{written} does not read: {error}"))?;
        let same = again.to_string() == written && again.holds(&known) == condition.holds(&known);
        if same { Ok(()) } else { Err(format!("{written} means something else when it is read again")) }
    });
}

#[test]
fn a_fuzzed_pattern_matches_quickly() {
    let corpus = ["blocks.*.mlp", "**.bias", "**.**.**.**.x", "*a*a*a*b", "a.b.c"];
    let corpus = corpus.map(|text| text.as_bytes().to_vec()).to_vec();
    let names = [
        ["a"; 60].join("."),
        "a".repeat(500),
        "blocks.3.mlp.bias".to_owned(),
        String::new(),
        "..".to_owned(),
    ];
    Fuzz { name: "pattern", corpus, words: &["*", "**", ".", "**."], format: None, inputs: 5_000 }.run(
        |input| {
            let text = String::from_utf8_lossy(input);
            let Ok(pattern) = text.parse::<Pattern>() else { return Ok(()) };
            for name in &names {
                let _ = pattern.matches(name);
            }
            let itself = text.chars().all(|sign| sign != '*');
            if !itself || pattern.matches(&text) {
                Ok(())
            } else {
                Err("a name does not match itself".into())
            }
        },
    );
}

#[test]
fn a_fuzzed_template_stays_below_the_checkpoint_directory() {
    let corpus = [
        "{epoch}-{step}",
        "epoch_{epoch}_loss_{val/loss:.2f}",
        "{val/loss:>9.3e}/{step:04d}",
        "a{{b}}",
        "{run}: {outcome} ({reason}), {epoch_label}, {val/loss:.4}, {best}",
    ];
    let corpus = corpus.map(|text| text.as_bytes().to_vec()).to_vec();
    let words =
        ["{epoch}", "{step", ":.2f}", ":>9", ":.999999999f}", "/", "..", "{", "}", "{{", "train/loss"];
    Fuzz { name: "template", corpus, words: &words, format: None, inputs: 100 }.run(|input| {
        let text = String::from_utf8_lossy(input).into_owned();
        let mut message = NotifyOptions::new("X");
        (message.retries, message.templates.training_end) = (0, Some(text.clone()));
        let notify = Notify::from_options(message);
        let options = CheckpointOptions { filename: Some(text), ..CheckpointOptions::default() };
        let checkpoint = Checkpoint::new(options);
        if notify.is_err() && checkpoint.is_err() {
            return Ok(());
        }
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        let settings = Settings { max_epochs: Some(1), num_sanity_val_steps: 0, ..Settings::default() };
        let mut trainer = Trainer::new(settings).unwrap().with_notices(|_| {}).with_checkpoints_in(&root);
        if let Ok(hook) = checkpoint {
            trainer.add_hook(hook).unwrap();
        }
        if let Ok(hook) = notify {
            // No server listens at this address, but the message is formatted.
            trainer.add_hook(hook.with_address(Secret::new("http://127.0.0.1:1/"))).unwrap();
        }
        let mut data = ToyData { train: vec![1], validate: vec![1], ..ToyData::default() };
        no_panic(trainer.fit(&mut Toy::default(), &mut data))?;
        let outside =
            std::fs::read_dir(directory.path()).unwrap().flatten().find(|entry| entry.path() != root);
        outside.map_or(Ok(()), |entry| Err(format!("{} is outside of its directory", entry.path().display())))
    });
}
