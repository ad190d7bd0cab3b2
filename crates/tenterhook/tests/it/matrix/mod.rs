//! Every event, every kind of hook, an error or a panic, in one hook or in two, under every policy: checks
//! the calls that follow, the outcome, and the records.

mod hooks;
mod rules;
mod written;

use std::path::{Path, PathBuf};

use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::run::{JournalEvent, RunDirectoryOptions, RunStatus};
use tenterhook::toy::Toy;
use tenterhook::{Failure, OnError, Origin, Outcome, Policy, Report, RunError, Settings};

use self::hooks::{Fault, Faulty, Kind, says};
use self::rules::{Case, Expected, Failed, Rows};
use self::written::Written;
use crate::call_log::{CallLog, Recorder};
use crate::lab::{Lab, LabData, LabStrategy, data, trainer};
use crate::run_directory::{latest, plan};

/// The call of the trainer that reaches a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Fit,
    /// A fit that saves checkpoints, which takes longer.
    Saving,
    /// A fit that resumes from a checkpoint.
    Resume,
    /// A fit in which the module fails at the end.
    Failing,
    /// A fit in which another hook is disabled when training starts.
    Disabling,
    Test,
    Predict,
}

impl Call {
    fn to(place: &str) -> Call {
        match place {
            "state_dict" | "on_save_checkpoint" | "on_checkpoint_saved" => Call::Saving,
            "load_state_dict" | "on_load_checkpoint" | "on_checkpoint_loaded" => Call::Resume,
            "on_exception" => Call::Failing,
            "on_hook_disabled" => Call::Disabling,
            place if place.starts_with("on_test_") => Call::Test,
            place if place.starts_with("on_predict_") => Call::Predict,
            _ => Call::Fit,
        }
    }
}

/// The hook that is disabled, and the place.
const FALLS: &str = "falls";
const FALLS_AT: &str = "on_train_start";

const POLICIES: [Policy; 4] = [
    Policy::ABORT,
    Policy::WARN,
    Policy { on_error: OnError::Disable, max_failures: 1 },
    Policy { on_error: OnError::Disable, max_failures: 3 },
];

/// The result of a run.
struct Ran {
    rows: Rows,
    result: Result<Report, RunError>,
}

struct Matrix {
    root: tempfile::TempDir,
    kind: Kind,
    faulty: &'static [&'static str],
    /// The first faulty hook has the policy `warn`.
    warns_first: bool,
}

impl Matrix {
    fn new(kind: Kind, faulty: &'static [&'static str]) -> Matrix {
        let matrix = Matrix { root: tempfile::tempdir().unwrap(), kind, faulty, warns_first: false };
        // The checkpoint for resumes: a run with the same hooks for half of the epochs.
        matrix.run(Call::Saving, 1, (Policy::ABORT, None), matrix.root.path());
        matrix
    }

    fn hooks(&self) -> Vec<&'static str> {
        ["before"].into_iter().chain(self.faulty.iter().copied()).chain(["after"]).collect()
    }

    /// The hooks that receive events.
    fn receivers(&self) -> Vec<&'static str> {
        if self.kind == Kind::Update { vec!["before", "after"] } else { self.hooks() }
    }

    fn run(&self, call: Call, epochs: i64, (policy, fault): (Policy, Option<Fault>), root: &Path) -> Ran {
        let call_log = CallLog::default();
        let settings = Settings { max_epochs: Some(epochs), background_saves: false, ..Settings::default() };
        let mut trainer = trainer(settings).with_strategy(LabStrategy::new(&call_log));
        trainer = trainer.with_run_directory(RunDirectoryOptions { for_evaluations: true, ..plan(root) });
        if call == Call::Resume {
            trainer = trainer.restoring(self.checkpoint());
        }
        trainer.add_hook(Recorder::new("before", &call_log)).unwrap();
        for (at, name) in self.faulty.iter().enumerate() {
            let policy = if self.warns_first && at == 0 { Policy::WARN } else { policy };
            trainer.add_hook(Faulty::hook(self.kind, name, &call_log, policy, fault)).unwrap();
        }
        trainer.add_hook(Recorder::new("after", &call_log)).unwrap();
        if matches!(call, Call::Saving | Call::Resume) {
            trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
        }
        if call == Call::Disabling {
            let policy = Policy { on_error: OnError::Disable, max_failures: 1 };
            let fault = Fault { place: FALLS_AT, panics: false };
            trainer
                .add_hook(Faulty::hook(Kind::Observer, FALLS, &CallLog::default(), policy, Some(fault)))
                .unwrap();
        }
        if call == Call::Failing {
            call_log.fails_at("module", "on_train_end");
        }
        let (mut lab, mut data) = (Lab::new(Toy::default(), &call_log), LabData::new(data(2, 1), &call_log));
        let result = match call {
            Call::Fit | Call::Saving | Call::Resume | Call::Failing | Call::Disabling => {
                trainer.fit(&mut lab, &mut data)
            }
            Call::Test => trainer.test(&mut lab, &mut data),
            Call::Predict => trainer.predict(&mut lab, &mut data).map(|(report, _)| report),
        };
        Ran { rows: call_log.rows(), result }
    }

    fn checkpoint(&self) -> PathBuf {
        let checkpoints = latest(self.root.path()).join("checkpoints");
        checkpoints.join(std::fs::read_link(checkpoints.join("latest")).unwrap())
    }

    fn check(&self, call: Call, undisturbed: &Rows, fault: Fault, policy: Policy) {
        let receivers = self.receivers();
        let case = Case {
            undisturbed,
            faulty: self.faulty,
            fault,
            on_error: policy.on_error,
            max_failures: policy.max_failures as usize,
            hooks: &receivers,
            warns_first: self.warns_first,
        };
        let expected = case.expected();
        let root = tempfile::tempdir().unwrap();
        let ran = self.run(call, 2, (policy, Some(fault)), root.path());
        let case = format!("{call:?}, {:?} {:?}, {fault:?}, {policy:?}", self.kind, self.faulty);
        assert_eq!(ran.rows, expected.rows, "{case}");
        self.check_result(&case, call, &expected, fault, ran.result);
        self.check_files(&case, call, &expected, fault, Written::below(root.path()));
    }

    /// Checks the outcome of the call and its report.
    fn check_result(
        &self,
        case: &str,
        call: Call,
        expected: &Expected,
        fault: Fault,
        result: Result<Report, RunError>,
    ) {
        let is_hook = |failure: &Failure, hook: &str| {
            assert_eq!(failure.origin, Origin::Hook(hook.to_owned()), "{case}");
            assert_eq!((failure.place, failure.panicked), (fault.place, fault.panics), "{case}");
            assert!(says(&failure.error.to_string(), hook, fault.place), "{case}: {}", failure.error);
        };
        let report = match result {
            Ok(report) => {
                assert!(expected.aborts.is_none() && call != Call::Failing, "{case}");
                assert_eq!(report.outcome, Outcome::Completed, "{case}");
                report
            }
            Err(RunError::Failed { failure, later, report }) => {
                match expected.aborts {
                    Some(hook) => is_hook(&failure, hook),
                    None => assert_eq!((&failure.origin, call), (&Origin::Module, Call::Failing), "{case}"),
                }
                assert_eq!(later.len(), expected.later.len(), "{case}: {later:?}");
                later.iter().zip(&expected.later).for_each(|(failure, hook)| is_hook(failure, hook));
                assert_eq!(report.outcome, Outcome::Failed { error: failure.to_string() }, "{case}");
                *report
            }
            Err(other) => panic!("{case}: {other}"),
        };
        for hook in self.faulty {
            let of_hook = |failed: &&Failed| failed.hook == *hook;
            let contained: Vec<_> = expected.contained.iter().filter(of_hook).collect();
            let aborted = expected.aborts.iter().filter(|by| *by == hook).count();
            let later = expected.later.iter().filter(|by| *by == hook).count();
            let kinds: Vec<_> =
                report.failures.kinds.iter().filter(|kind| kind.by == format!("hook `{hook}`")).collect();
            let counted = kinds.iter().map(|kind| (kind.count, kind.disabled, kind.aborted, kind.afterwards));
            let count = (contained.len() + aborted + later) as u64;
            let disabled = contained.iter().any(|failed| failed.disabled);
            let afterwards = later > 0 || !contained.is_empty() && call == Call::Failing;
            let one = (count > 0).then_some((count, disabled, aborted > 0, afterwards));
            assert_eq!(counted.collect::<Vec<_>>(), one.into_iter().collect::<Vec<_>>(), "{case}");
            for kind in kinds {
                assert_eq!((kind.at.as_str(), kind.panicked), (fault.place, fault.panics), "{case}");
                assert!(says(&kind.error, hook, fault.place), "{case}: {}", kind.error);
            }
        }
    }

    fn check_all(&self, policies: &[Policy]) {
        let calls = [
            Call::Fit,
            Call::Saving,
            Call::Resume,
            Call::Failing,
            Call::Disabling,
            Call::Test,
            Call::Predict,
        ];
        let mut checked = Vec::new();
        for call in calls {
            let root = tempfile::tempdir().unwrap();
            let undisturbed = self.run(call, 2, (Policy::ABORT, None), root.path()).rows;
            for place in self.kind.places().into_iter().filter(|place| Call::to(place) == call) {
                for policy in policies {
                    for panics in [false, true] {
                        self.check(call, &undisturbed, Fault { place, panics }, *policy);
                    }
                }
                checked.push(place);
            }
        }
        assert_eq!(checked.len(), self.kind.places().len(), "every place was come to");
    }

    /// Checks the records: all failures in order, disabled hooks, and the outcome.
    fn check_files(
        &self,
        case: &str,
        call: Call,
        expected: &Expected,
        fault: Fault,
        written: Option<Written>,
    ) {
        let evaluates = matches!(call, Call::Test | Call::Predict);
        let began = evaluates || expected.rows.iter().any(|(_, place)| *place == "on_train_start");
        // An evaluation is recorded once it has its loaders, right before its first event.
        let began = began && (!evaluates || expected.rows.iter().any(|(_, place)| place.ends_with("_start")));
        assert_eq!(written.is_some(), began, "{case}");
        let Some(written) = written else { return };
        let failed = expected.aborts.is_some() || call == Call::Failing;
        assert_eq!(
            matches!(written.status, RunStatus::Failed { .. }),
            failed,
            "{case}: {:?}",
            written.status
        );
        assert!(failed || written.status == RunStatus::Completed, "{case}: {:?}", written.status);
        assert!(written.ends, "{case}");
        assert_eq!(written.counted, written.failures.len() as u64, "{case}");
        for hook in self.faulty {
            let of_hook = |failed: &&Failed| failed.hook == *hook;
            let disabled = expected.contained.iter().filter(of_hook).any(|failed| failed.disabled);
            let info = written.hooks.iter().find(|info| info.name == *hook);
            assert_eq!(info.map(|info| info.enabled), Some(!disabled), "{case}");
        }
        let line = |hook: &str, then| (format!("hook `{hook}`"), fault.place, then);
        let module = (call == Call::Failing).then(|| ("module".to_owned(), "on_train_end", "aborted"));
        let falls = (call == Call::Disabling).then(|| (format!("hook `{FALLS}`"), FALLS_AT, "disabled"));
        let contained = expected.contained.iter();
        let contained = contained.map(|one| {
            let then = match (one.disabled, call == Call::Failing) {
                (false, false) => "",
                (true, false) => "disabled",
                (false, true) => "afterwards",
                (true, true) => "disabled afterwards",
            };
            line(one.hook, then)
        });
        let later = expected.later.iter().map(|hook| line(hook, "afterwards"));
        let aborted = expected.aborts.map(|hook| line(hook, "aborted"));
        let all: Vec<_> =
            module.into_iter().chain(falls).chain(contained).chain(aborted).chain(later).collect();
        let lines = written.failures.iter().map(|what| match what {
            JournalEvent::Failure { by, at, panicked, disabled, aborted, afterwards, .. } => {
                let own = by == "module" || *by == format!("hook `{FALLS}`");
                assert_eq!(*panicked, fault.panics && !own, "{case}");
                let then = [(*disabled, "disabled"), (*aborted, "aborted"), (*afterwards, "afterwards")];
                let then: Vec<_> = then.into_iter().filter(|(so, _)| *so).map(|(_, word)| word).collect();
                (by.clone(), at.clone(), then.join(" "))
            }
            other => panic!("{case}: {other:?}"),
        });
        let all: Vec<_> =
            all.into_iter().map(|(by, at, then)| (by, at.to_owned(), then.to_owned())).collect();
        assert_eq!(lines.collect::<Vec<_>>(), all, "{case}");
    }
}

#[test]
fn a_failure_of_one_hook_of_any_kind_in_any_event_does_what_its_policy_says() {
    for kind in Kind::ALL {
        Matrix::new(kind, &["x"]).check_all(&POLICIES);
    }
}

#[test]
fn failures_of_two_hooks_in_the_same_event_follow_their_own_policies() {
    for kind in Kind::ALL {
        Matrix::new(kind, &["x", "y"]).check_all(&POLICIES);
    }
}

#[test]
fn a_failure_that_is_contained_in_the_event_that_ends_the_run_comes_before_its_end() {
    for kind in Kind::ALL {
        let matrix = Matrix { warns_first: true, ..Matrix::new(kind, &["x", "y"]) };
        matrix.check_all(&[Policy::ABORT]);
    }
}

#[test]
fn by_default_a_failing_controller_aborts_and_a_failing_observer_is_disabled() {
    use tenterhook::hooks::{Scale, ScaleOptions};
    use tenterhook::{Decision, closure};
    let mut trainer = trainer(Settings::default());
    trainer.add_hook(closure::on_step_end("observer", |_| ())).unwrap();
    trainer.add_hook(closure::on_activation("forward", |_| ())).unwrap();
    trainer.add_hook(closure::on_step_end("controller", |_| Decision::CONTINUE)).unwrap();
    trainer.add_hook(Checkpoint::new(CheckpointOptions::default()).unwrap()).unwrap();
    trainer.add_hook(Scale::new(ScaleOptions::new(0.5)).unwrap()).unwrap();
    let policies: Vec<_> = trainer.list_hooks().iter().map(|hook| hook.on_error).collect();
    let expected = [OnError::Disable, OnError::Disable, OnError::Abort, OnError::Abort, OnError::Abort];
    assert_eq!(policies, expected);
}
