//! The example of each built-in hook works, and so does each of its options.

use tenterhook::config::Sources;
use tenterhook::registry::Registry;
use tenterhook::task::AnyTask;
use tenterhook::toy::ToyTask;

fn tasks() -> Vec<Box<dyn AnyTask>> {
    vec![Box::new(ToyTask)]
}

/// Trains the toy by this configuration, and returns the first failure.
fn train(text: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("train.toml");
    // A bucket would need the network at the start.
    let uploads = directory.path().join("uploads");
    let text = text.replace("s3://bucket/checkpoints", uploads.to_str().unwrap());
    std::fs::write(&file, format!("{text}\n[trainer]\nmax_epochs = 2\n")).unwrap();
    let (tasks, registry) = (tasks(), Registry::default());
    let resolved = Sources::file(&file).resolve(&tasks, &registry).map_err(|error| error.to_string())?;
    let trainer = resolved.bare_trainer(&registry).map_err(|error| error.to_string())?;
    let mut trainer = trainer.with_checkpoints_in(directory.path().join("checkpoints")).with_notices(|_| {});
    let mut program = resolved.program(&tasks, &registry).map_err(|error| error.to_string())?;
    let report = program.fit(&mut trainer).map_err(|error| error.to_string())?;
    let failed = report.notices.iter().filter(|notice| matches!(notice, tenterhook::RunNotice::Contained(_)));
    // No webhook is set in tests, and the hook must report that.
    let mut failed =
        failed.map(ToString::to_string).filter(|text| !text.contains("`SLACK_WEBHOOK_URL` is not set"));
    failed.next().map_or(Ok(()), Err)
}

#[test]
fn the_example_of_every_hook_trains() {
    for listed in Registry::default().hooks() {
        let described = Registry::default().describe(listed.name).unwrap();
        let example = described.example.unwrap_or_else(|| panic!("{} has no example", listed.name));
        train(&example).unwrap_or_else(|error| panic!("{}: {error}\n{example}", listed.name));
    }
}

#[test]
fn every_listed_default_is_the_actual_one() {
    // Explicit default values are accepted and do not change the hook.
    for listed in Registry::default().hooks() {
        let described = Registry::default().describe(listed.name).unwrap();
        let mut text = described.example.unwrap();
        for option in &described.options {
            let is_set = text.lines().any(|line| line.split('=').next().unwrap_or("").trim() == option.key);
            if let Some(default) = option.default.as_ref().filter(|_| !is_set) {
                let line = format!("\n{} = {default}", option.key);
                text.push_str(&line);
            }
        }
        train(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", listed.name));
    }
}

#[test]
fn an_option_of_the_wrong_type_is_refused_with_its_line() {
    for listed in Registry::default().hooks() {
        let described = Registry::default().describe(listed.name).unwrap();
        for option in &described.options {
            let example = described.example.as_ref().unwrap();
            let is_it = |line: &&str| line.split('=').next().unwrap_or("").trim() != option.key;
            let others: Vec<_> = example.lines().filter(is_it).collect();
            let text = format!("{}\n{} = [[\"nonsense\"]]", others.join("\n"), option.key);
            let error = train(&text).expect_err(&format!("{}.{} takes anything", listed.name, option.key));
            let line = others.len() + 1;
            assert!(
                error.contains(&format!("train.toml:{line}:")),
                "{}.{}: {error}",
                listed.name,
                option.key
            );
        }
    }
}
