//! The runs of a verification do not touch the user's files, and have the same clock.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenterhook::hooks::{ActivationStore, ActivationStoreOptions, Jsonl, JsonlOptions};
use tenterhook::hooks::{Profiler, ProfilerOptions, Timer, TimerOptions};
use tenterhook::neutral;
use tenterhook::{Clock, FromOptions, Settings, TimeSpan, closure};

use crate::lab::{data, epochs, trainer};
use crate::verify_neutral::{Engine, innocent, lab, training};

#[test]
fn files_that_hooks_keep_elsewhere_are_not_touched() {
    let root = tempfile::tempdir().unwrap();
    let kept = root.path().join("log.jsonl");
    fs::write(&kept, "of an earlier run\n").unwrap();
    let report = neutral::verify(6, || {
        let mut training = training(&epochs(10), |_| Vec::new())?;
        let trainer = &mut training.0;
        let path = kept.clone();
        trainer.add_hook_type::<Jsonl>(JsonlOptions { path, log_every_n_batches: 2 })?;
        let filename = Some(root.path().join("profile.json"));
        trainer.add_hook_type::<Profiler>(ProfilerOptions { filename, ..ProfilerOptions::default() })?;
        let options = serde_json::json!({ "points": ["*"], "to": "safetensors", "dir": root.path().join("activations") });
        let options: ActivationStoreOptions = serde_json::from_value(options)?;
        trainer.add_hook(ActivationStore::from_options(options)?)?;
        // This hook checks that the others write, and where.
        trainer.add_hook(closure::teardown("sees", |cx| {
            let below = cx.run.file(std::path::Path::new("/")).unwrap();
            let mut found = Vec::new();
            let mut left = vec![below];
            while let Some(directory) = left.pop() {
                for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()) {
                    left.extend(entry.path().is_dir().then(|| entry.path()));
                    found.push(entry.file_name().into_string().unwrap());
                }
            }
            for file in ["log.jsonl", "profile.json", "activations"] {
                assert!(found.contains(&file.to_owned()), "{file} is not among {found:?}");
            }
        }))?;
        Ok(training)
    });
    let report = report.unwrap();
    assert!(report.is_neutral(), "{report}");
    assert!(report.not_exercised.is_empty(), "{report}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "of an earlier run\n");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "nothing else is there");
}

#[test]
fn a_limit_of_time_does_not_end_a_rehearsal() {
    let settings = Settings { max_time: Some(TimeSpan(Duration::from_nanos(1))), ..Settings::default() };
    let report = neutral::verify(20, || training(&settings, |_| vec![innocent("a")])).unwrap();
    assert_eq!((report.is_neutral(), report.steps), (true, 20), "{report}");
}

/// A clock that advances one second per read.
#[derive(Default)]
struct Looks(AtomicU64);

impl Clock for Looks {
    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

#[test]
fn a_time_based_controller_decides_at_the_same_step_in_all_runs() {
    let report = neutral::verify(20, || {
        let slow = closure::on_step_end("slow", |cx| {
            (0..10).for_each(|_| assert!(cx.elapsed() < Duration::MAX));
        });
        let mut trainer = trainer(epochs(10)).with_hooks([slow])?.with_clock(Looks::default());
        let duration = Some(TimeSpan::from_secs(7));
        trainer.add_hook_type::<Timer>(TimerOptions { duration, ..TimerOptions::default() })?;
        Ok((trainer, lab(&Engine::default()), data(4, 1)))
    });
    let report = report.unwrap();
    assert!(report.is_neutral(), "{report}");
    assert_eq!(report.steps, 7, "a second for every batch");
}
