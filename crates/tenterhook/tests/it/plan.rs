//! Plans that cannot work are refused before the first step, with a fix.

use tenterhook::hooks::{
    EarlyStopping, EarlyStoppingOptions, EmaWeights, EmaWeightsOptions, Exec, GradientMonitor,
    GradientMonitorOptions, LrMonitor, LrMonitorOptions, Mode,
};
use tenterhook::settings::{BatchLimit, ValInterval};
use tenterhook::toy::Toy;
use tenterhook::{
    AnyHook, Controller, Decision, HookExt, HookResult, HookSpec, Observer, Origin, Outcome, PlanError,
    Registration, RunError, RunNotice, Settings, StepEnd, TrainEpochEnd, Trainer, closure, hook,
};

use crate::call_log::{CallLog, Recorder};
use crate::lab::{Lab, LabData, data, epochs, trainer};

/// Reads values on the board; [`Writer`] writes them.
struct Reader;

#[hook(reads = ["val/los"], writes = ["best"])]
impl Observer for Reader {
    fn on_train_epoch_end(&mut self, _: &TrainEpochEnd) -> HookResult {
        Ok(())
    }
}

struct Writer;

#[hook(writes = ["best"])]
impl Controller for Writer {
    fn on_step_end(&mut self, _: &StepEnd) -> HookResult<Decision> {
        Ok(Decision::CONTINUE)
    }
}

const REFUSALS: [&str; 3] = [
    "`best` is written by hook `reader` and by hook `writer`; remove one of them, or set its `enabled = false`",
    "hook `reader` reads `val/los`, which nothing writes; did you mean `val/loss`?",
    "hook `writer` fires every 100 steps, but this run has only 8 steps, so it never fires; \
     shorten it or train longer",
];

fn refused(settings: Settings) -> Trainer {
    let mut trainer = trainer(settings);
    trainer.add_hook(Reader).unwrap();
    trainer.add_hook(Writer.every("100 steps").unwrap()).unwrap();
    trainer
}

#[test]
fn all_plan_errors_are_reported_at_once_before_the_first_step() {
    let mut trainer = refused(epochs(2));
    let call_log = CallLog::default();
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    let error = trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap_err();
    let RunError::Failed { failure, later, report } = error else { panic!("{error}") };
    assert_eq!((&failure.origin, failure.place, failure.step), (&Origin::Trainer, "plan", 0));
    let text = failure.to_string();
    assert!(text.starts_with("refused before step 1: "), "{text}");
    for (line, refusal) in text.lines().zip(REFUSALS) {
        assert!(line.ends_with(refusal), "{line}");
    }
    assert_eq!(text.lines().count(), REFUSALS.len());
    assert!(later.is_empty());
    assert!(matches!(report.outcome, Outcome::Failed { .. }));
    assert_eq!(call_log.places("hook:all"), ["setup", "on_fit_start", "on_exception", "teardown"]);
}

#[test]
fn a_lenient_trainer_says_so_and_runs() {
    let report = refused(epochs(2)).lenient().fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    let told: Vec<_> = report
        .notices
        .iter()
        .filter(|notice| matches!(notice, RunNotice::PlanProblem(error) if !error.is_warning()))
        .map(ToString::to_string)
        .collect();
    assert_eq!(told, REFUSALS);
    assert_eq!(report.progress.step, 8);
}

/// Reads a metric and decides nothing.
struct Curious(&'static str);

#[hook]
impl Observer for Curious {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.monitors(self.0)
    }
    fn on_train_epoch_end(&mut self, _: &TrainEpochEnd) -> HookResult {
        Ok(())
    }
}

fn warnings(trainer: &mut Trainer, module: &mut Lab) -> Vec<String> {
    let report = trainer.fit(module, &mut data(4, 1)).unwrap();
    let told = report.notices.iter().filter(|notice| matches!(notice, RunNotice::PlanProblem(_)));
    told.map(ToString::to_string).collect()
}

#[test]
fn an_observer_that_never_fires_is_a_warning() {
    let root = tempfile::tempdir().unwrap();
    let mut trainer = trainer(epochs(2)).with_checkpoints_in(root.path().join("checkpoints"));
    trainer.add_json_logging(100).unwrap();
    trainer.add_console_logging(50).unwrap();
    trainer.add_hook(Curious("train/loss").every("9 epochs").unwrap()).unwrap();
    let mut lab = Lab::new(Toy::default(), &CallLog::default());
    let found = trainer.plan_errors(&mut lab, &mut data(4, 1)).unwrap();
    assert!(found.len() == 3 && found.iter().all(PlanError::is_warning), "{found:?}");
    let too_short = |hook: &str, batches| {
        format!(
            "hook `{hook}` needs {batches} batches by its `log_every_n_batches`, but this run has only 8 batches, so \
             the hook never runs; lower it or train longer"
        )
    };
    let never = "hook `curious` fires every 9 epochs, but this run has only 2 epochs, so it never fires; shorten it or \
                 train longer";
    let mut told = warnings(&mut trainer, &mut lab);
    told.sort();
    assert_eq!(told, [too_short("console_log", 50), never.to_owned(), too_short("json_log", 100)]);
}

#[test]
fn an_evaluation_reports_unmet_needs_of_hooks_before_it_begins() {
    let mut trainer = trainer(epochs(1));
    let options = toml::from_str("command = [\"/no/such/program\"]\non = [\"on_test_end\"]").unwrap();
    trainer.add_hook_type::<Exec>(options).unwrap();
    let report = trainer.test(&mut Lab::new(Toy::default(), &CallLog::default()), &mut data(4, 1)).unwrap();
    let first = report.notices.first().map(ToString::to_string).unwrap_or_default();
    assert!(first.contains("hook `exec` cannot work") && first.contains("/no/such/program"), "{first}");
}

#[test]
fn a_metric_that_a_hook_reads_and_nothing_logs_is_named_after_the_first_validation() {
    let told = |name| {
        let mut trainer = trainer(epochs(3));
        trainer.add_hook(Curious(name)).unwrap();
        // The module does not declare its metrics, so the plan cannot check them.
        warnings(&mut trainer, &mut Lab::new(Toy::default(), &CallLog::default()))
    };
    let expected = "hook `curious` reads `val/los`, which was not logged by the end of the validation in epoch 1/3; \
                    did you mean `val/loss`?";
    assert_eq!(told("val/los"), [expected]);
    assert!(told("f1")[0].ends_with("there are: `val/loss`"), "{:?}", told("f1"));
    assert!(told("val/loss").is_empty() && told("train/loss").is_empty());
}

#[test]
fn a_metric_that_nothing_logs_is_named_after_the_first_of_two_validations_in_an_epoch() {
    use std::sync::{Arc, Mutex};
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = |what: &'static str| {
        let order = order.clone();
        move || order.lock().unwrap().push(what.to_owned())
    };
    let (validated, ended, told) = (noted("validated"), noted("epoch ended"), order.clone());
    let settings =
        Settings { val_check_interval: Some(ValInterval::Batches(BatchLimit::Count(2))), ..epochs(2) };
    let mut trainer = trainer(settings).with_notices(move |notice: &RunNotice| {
        if let RunNotice::PlanProblem(refused) = notice {
            told.lock().unwrap().push(refused.what.clone());
        }
    });
    trainer.add_hook(Curious("val/los")).unwrap();
    // This metric can still be logged at the end of the epoch.
    trainer
        .register(Curious("train/f1"), Registration { name: Some("later".into()), ..Registration::default() })
        .unwrap();
    trainer.add_hook(closure::on_validation_start("validations", move |_| validated())).unwrap();
    trainer.add_hook(closure::on_train_epoch_end("epochs", move |_| ended())).unwrap();
    trainer.fit(&mut Lab::new(Toy::default(), &CallLog::default()), &mut data(4, 1)).unwrap();
    let epoch = ["validated", "validated", "epoch ended"];
    let first = [
        "validated",
        "hook `curious` reads `val/los`, which was not logged by the end of the validation in epoch 1/2",
        "validated",
        "epoch ended",
        "hook `later` reads `train/f1`, which was not logged by the end of epoch 1/2",
    ];
    assert_eq!(*order.lock().unwrap(), [&first[..], &epoch].concat());
}

#[test]
fn plan_errors_are_available_without_running_anything() {
    let mut trainer = refused(epochs(2));
    let call_log = CallLog::default();
    trainer.add_hook(Recorder::new("all", &call_log)).unwrap();
    let mut lab = Lab::new(Toy::default(), &call_log);
    let refusals =
        trainer.plan_errors(&mut Toy::default(), &mut LabData::new(data(4, 1), &call_log)).unwrap();
    assert_eq!(refusals.iter().map(ToString::to_string).collect::<Vec<_>>(), REFUSALS);
    let only_the_data = ["setup", "loaders", "loaders", "teardown"].map(|place| ("data".to_owned(), place));
    assert_eq!(call_log.rows(), only_the_data);
    let refusals = trainer.plan_errors(&mut lab, &mut data(4, 1)).unwrap();
    assert_eq!(refusals.len(), 2, "a module that does not say what it logs is not second-guessed");
}

#[test]
fn a_monitor_that_can_never_see_its_metric_is_refused() {
    let refusal = |settings: Settings, validate| {
        let mut trainer = trainer(settings);
        trainer.add_hook(EarlyStopping::new(EarlyStoppingOptions::new("val/loss")).unwrap()).unwrap();
        let ran = trainer.fit(&mut Toy::default(), &mut data(4, validate));
        ran.map_err(|error| error.to_string())
    };
    let error = refusal(epochs(2), 0).unwrap_err();
    assert!(error.contains("there is nothing to validate on; give validation data"), "{error}");
    let off = Settings { limit_val_batches: Some(BatchLimit::Count(0)), ..epochs(2) };
    let error = refusal(off, 1).unwrap_err();
    assert!(error.contains("raise `limit_val_batches`"), "{error}");
    let late = Settings { check_val_every_n_epoch: Some(3), ..epochs(2) };
    let error = refusal(late, 1).unwrap_err();
    assert!(
        error.contains("`check_val_every_n_epoch = 3`, but there are only 2 epochs; lower it"),
        "{error}"
    );
    refusal(epochs(2), 1).expect("it sees it every epoch");
}

#[test]
fn a_disabled_hook_is_not_refused() {
    let mut trainer = refused(epochs(2));
    trainer.disable_hook("reader").unwrap();
    trainer.disable_hook("writer").unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
}

#[test]
fn a_dry_run_is_never_too_short() {
    let settings = Settings { fast_dev_run: tenterhook::settings::FastDevRun(1), ..Settings::default() };
    let mut trainer = trainer(settings);
    trainer.add_hook(Writer.every("100 steps").unwrap()).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
}

#[test]
fn invalid_settings_are_refused_by_the_trainer() {
    let settings = Settings { accumulate_grad_batches: 0, max_epochs: Some(-2), ..Settings::default() };
    let Err(RunError::Settings(problems)) = Trainer::new(settings) else { panic!("it works") };
    assert_eq!(problems.len(), 2, "{problems:#?}");
}

#[test]
fn what_a_built_in_logs_by_name_can_be_monitored() {
    let refusals = |monitor: &str| {
        let mut trainer = trainer(epochs(2));
        trainer.add_hook(LrMonitor::new(LrMonitorOptions::default())).unwrap();
        trainer.add_hook(GradientMonitor::new(GradientMonitorOptions::default()).unwrap()).unwrap();
        let options = EarlyStoppingOptions { mode: Some(Mode::Min), ..EarlyStoppingOptions::new(monitor) };
        trainer.add_hook(EarlyStopping::new(options).unwrap()).unwrap();
        let refusals = trainer.plan_errors(&mut Toy::default(), &mut data(4, 1)).unwrap();
        let refusals = refusals.iter().filter(|refusal| !refusal.is_warning());
        refusals.map(ToString::to_string).collect::<Vec<_>>()
    };
    for monitor in ["lr/sgd", "grad_norm/fc1.weight", "update_ratio/bias"] {
        assert_eq!(refusals(monitor), Vec::<String>::new(), "{monitor}");
    }
    assert!(refusals("momentum/sgd")[0].contains("which nothing writes"), "nobody asked for it");
}

#[test]
fn two_hooks_that_write_the_same_file_are_refused_once() {
    let refusals = |make: &dyn Fn() -> AnyHook| {
        let mut trainer = trainer(epochs(2));
        for name in ["one", "two"] {
            let how = Registration { name: Some(name.into()), ..Registration::default() };
            trainer.register(make(), how).unwrap();
        }
        let refusals = trainer.plan_errors(&mut Toy::default(), &mut data(4, 1)).unwrap();
        let refusals = refusals.iter().filter(|refusal| !refusal.is_warning());
        refusals.map(ToString::to_string).collect::<Vec<_>>()
    };
    let by_both = |what: &str| {
        let fix = "remove one of them, or set its `enabled = false`";
        vec![format!("`{what}` is written by hook `one` and by hook `two`; {fix}")]
    };
    let gradients = || GradientMonitor::new(GradientMonitorOptions::default()).unwrap().into();
    assert_eq!(refusals(&gradients), by_both("grad_vanishing"));
    assert_eq!(refusals(&|| LrMonitor::new(LrMonitorOptions::default()).into()), by_both("lr/*/**"));
    let averages = || EmaWeights::new(EmaWeightsOptions::default()).unwrap().into();
    assert_eq!(refusals(&averages), by_both("weights"));
}
