use std::path::Path;

use tenterhook_core::Hook as _;
use tenterhook_core::{Progress, RunInfo};
use tenterhook_testkit::{FitScript, Rig};

use super::*;

fn profiler(options: ProfilerOptions) -> Profiler {
    Profiler::new(options).expect("the options fit")
}

fn all_batches() -> ProfilerOptions {
    ProfilerOptions { skip_first_batches: 0, ..ProfilerOptions::default() }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A batch of 100 ms, of which 5 ms belong to no part.
fn batch(rig: &mut Rig<Profiler>, number: u64, steps: bool) {
    let start = ms(100 * (number - 1));
    let progress = Progress { batches: number, total_batches: number, ..Progress::default() };
    rig.progress(progress)
        .data_wait(ms(10))
        .forward_time(ms(40))
        .backward_time(ms(30))
        .optimizer_time(ms(15));
    rig.elapsed(start + ms(10)).on_train_batch_start();
    rig.elapsed(start + ms(50)).on_after_forward();
    rig.elapsed(start + ms(80)).on_after_backward();
    if steps {
        rig.elapsed(start + ms(95)).on_after_optimizer_step();
    }
    rig.elapsed(start + ms(100)).on_train_batch_end();
}

fn total(rig: &Rig<Profiler>, part: usize) -> (u64, Duration) {
    let times = &rig.hook().state.times[part];
    (times.count, times.total)
}

#[test]
fn every_part_of_a_batch_is_counted_and_the_rest_is_other() {
    let mut rig = Rig::new(profiler(all_batches()));
    rig.on_train_start();
    rig.on_train_epoch_start();
    batch(&mut rig, 1, false);
    batch(&mut rig, 2, true);
    for (part, expected) in [
        (WAIT, (2, ms(20))),
        (FORWARD, (2, ms(80))),
        (BACKWARD, (2, ms(60))),
        (OPTIMIZER, (1, ms(15))),
        (HOOKS, (2, ms(0))),
        (OTHER, (2, ms(25))),
    ] {
        assert_eq!(total(&rig, part), expected, "{}", PARTS[part]);
    }
    rig.on_train_epoch_end();
    assert_eq!(rig.metrics().get("profile/forward_s"), Some(0.08));
    assert_eq!(rig.metrics().get("profile/other_s"), Some(0.025));
    rig.on_train_epoch_start();
    rig.on_train_epoch_end();
    assert_eq!(rig.metrics().get("profile/forward_s"), Some(0.0), "of this epoch alone");
}

#[test]
fn manual_backward_is_not_counted_twice() {
    let mut rig = Rig::new(profiler(all_batches()));
    rig.on_train_start();
    rig.backward_time(ms(30)).on_after_backward();
    rig.optimizer_time(ms(10)).on_after_optimizer_step();
    rig.forward_time(ms(100)).on_after_forward();
    rig.elapsed(ms(100)).on_train_batch_end();
    let totals = [FORWARD, BACKWARD, OPTIMIZER, OTHER].map(|part| total(&rig, part).1);
    assert_eq!(totals, [60, 30, 10, 0].map(ms));
}

#[test]
fn a_validation_belongs_to_no_batch() {
    let mut rig = Rig::new(profiler(all_batches()));
    rig.on_train_start();
    rig.elapsed(ms(100)).on_train_batch_end();
    rig.on_validation_start();
    rig.elapsed(ms(5100)).on_validation_end();
    rig.elapsed(ms(5200)).on_train_batch_end();
    assert_eq!(total(&rig, OTHER), (2, ms(200)));
}

#[test]
fn the_first_batches_warm_up_also_after_a_resume() {
    let script = FitScript::new(1, 9).script();
    let mut rig = Rig::new(profiler(ProfilerOptions::default()));
    rig.play(&script);
    assert_eq!(total(&rig, OTHER).0, 6);
    assert!(rig.printed()[0].contains("6 batches went (the first 3 not counted"), "{:?}", rig.printed());

    let until = script.iter().position(|entry| entry.progress.batches == 6).expect("there are nine");
    let mut rig = Rig::new(profiler(ProfilerOptions::default()));
    rig.play(&script[..until]);
    let mut resumed = rig.resumed(profiler(ProfilerOptions::default()));
    resumed.on_train_start();
    resumed.play(&script[until..]);
    let state = resumed.hook().state.clone();
    assert_eq!((state.batches, state.skipped), (3, 6), "two before, one after");
}

#[test]
fn the_table_is_printed_by_default() {
    let mut rig = Rig::new(profiler(all_batches()));
    rig.on_train_start();
    batch(&mut rig, 1, true);
    rig.on_train_end();
    assert_eq!(
        rig.printed(),
        [
            "where the time of 1 batch went (the first 0 not counted; p50 and p99 within 1.1 %):",
            "part       count    total     mean      p50      p99   share",
            "data_wait      1  10.0 ms  10.0 ms  10.0 ms  10.0 ms  10.0 %",
            "forward        1  40.0 ms  40.0 ms  40.0 ms  40.0 ms  40.0 %",
            "backward       1  30.0 ms  30.0 ms  30.0 ms  30.0 ms  30.0 %",
            "optimizer      1  15.0 ms  15.0 ms  15.0 ms  15.0 ms  15.0 %",
            "hooks          1      0 s      0 s      0 s      0 s   0.0 %",
            "other          1  5.00 ms  5.00 ms  5.00 ms  5.00 ms   5.0 %",
        ]
    );
    let mut quiet = Rig::new(profiler(ProfilerOptions { print: false, ..all_batches() }));
    quiet.on_train_end();
    assert!(quiet.printed().is_empty());
}

#[test]
fn the_file_holds_the_profile_and_a_dry_run_leaves_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = ProfilerOptions { filename: Some("profile.json".into()), ..all_batches() };
    let run =
        |fast_dev_run| RunInfo { directory: Some(dir.path().to_owned()), fast_dev_run, ..RunInfo::default() };
    let path = dir.path().join("profile.json");
    let mut rig = Rig::new(profiler(options.clone()));
    rig.run(run(true)).on_train_end();
    assert!(!path.exists());
    rig.run(run(false)).on_train_start();
    batch(&mut rig, 1, true);
    rig.on_train_end();
    let text = std::fs::read_to_string(&path).expect("it was written");
    let profile: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(profile["batches"], 1);
    assert_eq!(profile["parts"]["forward"]["total_s"], 0.04);
    let share = profile["parts"]["forward"]["share"].as_f64().expect("a number");
    assert!((share - 0.4).abs() < 1e-9, "{share}");

    let below_a_file = RunInfo { checkpoints: path.join("below/checkpoints"), ..RunInfo::default() };
    let mut rig = Rig::new(profiler(options));
    let reply = rig.run(below_a_file).on_train_end().clone();
    assert!(reply.failure.expect("it fails").contains("choose another `filename`"));
}

#[test]
fn a_filename_must_name_a_file() {
    for filename in ["", "../profile.json", "/", "run.json"] {
        let options = ProfilerOptions { filename: Some(Path::new(filename).into()), ..all_batches() };
        let error = Profiler::new(options).expect_err(filename).to_string();
        assert!(error.starts_with("`filename` ") && error.contains("\"profile.json\""), "{error}");
    }
}

#[test]
fn without_batches_there_is_a_line_instead_of_a_table() {
    let mut rig = Rig::new(profiler(ProfilerOptions::default()));
    rig.play(&FitScript::new(1, 2).script());
    let lines = ["no profile: all 2 batches warmed up; lower `skip_first_batches` or train longer"];
    assert_eq!(rig.printed(), lines);
    let mut rig = Rig::new(profiler(all_batches()));
    rig.on_train_start();
    rig.on_train_end();
    assert_eq!(rig.printed(), ["no profile: there was no batch"]);
}

#[test]
fn the_file_is_claimed_and_the_needed_run_length_declared() {
    let of = |skip_first_batches| profiler(ProfilerOptions { skip_first_batches, ..all_batches() }).spec();
    assert_eq!(of(3).min_run_length, [("skip_first_batches", Cadence::Batches(4))], "the default, too");
    assert_eq!(of(10).min_run_length, [("skip_first_batches", Cadence::Batches(11))]);
    let file = ProfilerOptions { filename: Some("./p.json".into()), ..all_batches() };
    assert_eq!(profiler(file).spec().claims[0].what, "p.json");
}
