//! Early stopping in a real run: its criteria and its messages.

use tenterhook::hooks::{EarlyStopping, EarlyStoppingOptions, Mode};
use tenterhook::toy::Toy;
use tenterhook::{Outcome, Report, RunNotice, Settings};

use crate::call_log::CallLog;
use crate::lab::{Lab, data, epochs, trainer};

/// Ten epochs of four batches with a constant `score`.
fn stuck(settings: Settings, options: EarlyStoppingOptions) -> Report {
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_handler(|place, cx| {
        if place == "on_train_epoch_end" {
            cx.log("score", 1.0);
        }
    });
    let mut trainer = trainer(settings);
    trainer.add_hook(EarlyStopping::new(options).unwrap()).unwrap();
    trainer.fit(&mut lab, &mut data(4, 0)).unwrap()
}

fn options() -> EarlyStoppingOptions {
    EarlyStoppingOptions { patience: 2, mode: Some(Mode::Max), ..EarlyStoppingOptions::new("score") }
}

#[test]
fn it_stops_after_its_patience_and_the_outcome_says_why() {
    let report = stuck(epochs(10), options());
    assert_eq!(report.progress.epochs_done, 3, "the first check, and two without an improvement");
    let reason = "`score` has not improved on 1 in 2 checks".to_owned();
    assert_eq!(report.outcome, Outcome::Stopped { by: "early_stopping".into(), reason });
}

#[test]
fn it_waits_for_the_least_epochs_and_steps() {
    let least_epochs = Settings { min_epochs: Some(5), ..epochs(10) };
    assert_eq!(stuck(least_epochs, options()).progress.epochs_done, 5);
    let least_steps = Settings { min_steps: Some(18), ..epochs(10) };
    assert_eq!(stuck(least_steps, options()).progress.step, 18);
}

#[test]
fn a_missing_optional_metric_is_reported_once() {
    let missing = EarlyStoppingOptions { strict: false, ..EarlyStoppingOptions::new("val/accuracy") };
    let report = stuck(epochs(4), missing);
    assert_eq!(report.progress.epochs_done, 4);
    let said: Vec<_> =
        report.notices.iter().filter(|notice| matches!(notice, RunNotice::Said { .. })).collect();
    assert_eq!(
        said.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "early_stopping: warning: metric `val/accuracy` was not logged; logged metrics: `score`, `train/loss`; it is not checked"
        ]
    );
}

#[test]
fn without_strict_a_metric_that_is_not_logged_is_a_warning() {
    for strict in [true, false] {
        let mut trainer = trainer(epochs(3));
        let options = EarlyStoppingOptions { strict, ..EarlyStoppingOptions::new("val/accuracy") };
        trainer.add_hook(EarlyStopping::new(options).unwrap()).unwrap();
        // The toy declares its metrics.
        let ran = trainer.fit(&mut Toy::default(), &mut data(2, 1));
        if strict {
            let error = ran.unwrap_err().to_string();
            assert!(error.contains("`val/accuracy`, which nothing writes"), "{error}");
        } else {
            let notices = ran.unwrap().notices;
            let told =
                notices.iter().filter(|notice| notice.to_string().contains("warning: metric `val/accuracy`"));
            assert_eq!(told.count(), 1);
        }
    }
}

#[test]
fn a_value_is_checked_once_however_many_epochs_it_stays() {
    let mut lab = Lab::new(Toy::default(), &CallLog::default()).with_handler(|place, cx| {
        if place == "on_validation_epoch_end" {
            cx.log("score", 1.0);
        }
    });
    let mut trainer = trainer(Settings { check_val_every_n_epoch: Some(2), ..epochs(10) });
    let options = EarlyStoppingOptions { check_on_train_epoch_end: Some(true), strict: false, ..options() };
    trainer.add_hook(EarlyStopping::new(options).unwrap()).unwrap();
    let report = trainer.fit(&mut lab, &mut data(2, 1)).unwrap();
    assert_eq!(report.progress.epochs_done, 6, "checked in the epochs 2, 4 and 6, and not in between");
}
