//! Saved state, and runs that are killed and resumed with a fresh hook.

use tenterhook_core::{
    Controller, Decision, HookResult, Key, LoadCheckpoint, SaveCheckpoint, State, StepEnd, TrainStart, hook,
};
use tenterhook_testkit::{FitScript, Rig, check_resume};

const DRAWS: Key<u64> = Key::new("draws");

/// Stops at random. It has a sum, a count on the blackboard and an entry in the checkpoint.
#[derive(Default)]
struct Gambler {
    sum: f64,
    entry: Option<String>,
    forgetful: bool,
}

#[hook]
impl Controller for Gambler {
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult<Decision> {
        self.sum += cx.rng().uniform();
        cx.board().put(DRAWS, cx.board().get(DRAWS).unwrap_or(0) + 1);
        cx.log("sum", self.sum);
        Ok(if self.sum > 3.0 { Decision::stop(format!("{}", self.sum)) } else { Decision::CONTINUE })
    }
    fn state_dict(&self) -> HookResult<State> {
        if self.forgetful { Ok(State::empty()) } else { Ok(State::of(1, &self.sum)?) }
    }
    fn load_state_dict(&mut self, state: &State) -> HookResult {
        self.sum = state.read(1)?;
        Ok(())
    }
    fn on_save_checkpoint(&mut self, cx: &SaveCheckpoint) -> HookResult {
        Ok(cx.entries.put("gambler", &format!("{:.1}", self.sum))?)
    }
    fn on_load_checkpoint(&mut self, cx: &LoadCheckpoint) -> HookResult {
        self.entry = cx.entries.read("gambler")?;
        Ok(())
    }
}

#[test]
fn a_resumed_rig_continues_as_the_uninterrupted_one() {
    let script = FitScript::new(2, 6).script();
    let mut rig = Rig::new(Gambler::default());
    rig.seed(5);
    let middle = script.len() / 2;
    rig.play(&script[..middle]);
    let mut resumed = rig.resumed(Gambler::default());
    let before = rig.decisions().len();
    rig.play(&script[middle..]);
    resumed.play(&script[middle..]);
    assert!(!resumed.decisions().is_empty());
    assert_eq!(resumed.decisions(), rig.decisions()[before..]);
    assert_eq!(resumed.hook().sum.to_bits(), rig.hook().sum.to_bits());
    assert_eq!(resumed.board().get(DRAWS), Some(12));
    assert_eq!(resumed.metrics().to_map(), rig.metrics().to_map());
}

#[test]
fn a_hook_that_does_not_save_its_state_differs_after_a_resume() {
    let script = FitScript::new(1, 6).script();
    let mut rig = Rig::new(Gambler { forgetful: true, ..Gambler::default() });
    rig.play(&script[..script.len() / 2]);
    let mut resumed = rig.resumed(Gambler::default());
    rig.play(&script[script.len() / 2..]);
    resumed.play(&script[script.len() / 2..]);
    assert_ne!(resumed.hook().sum.to_bits(), rig.hook().sum.to_bits());
}

#[test]
fn a_state_can_be_saved_and_loaded() {
    let mut rig = Rig::new(Gambler::default());
    rig.load_state_dict(&State::of(1, &2.5).unwrap());
    assert_eq!(rig.hook().sum, 2.5);
    assert_eq!(rig.state_dict(), State::of(1, &2.5).unwrap());
    rig.load_state_dict(&State::of(2, &2.5).unwrap());
    let text = rig.failures()[0].failure.to_string();
    assert!(
        text.ends_with(
            "in load_state_dict (epoch 1, step 0): state has version 2, this program reads version 1"
        ),
        "{text}"
    );
}

#[test]
fn entries_are_kept_in_the_simulated_checkpoint() {
    let mut rig = Rig::new(Gambler { sum: 1.5, ..Gambler::default() });
    rig.on_save_checkpoint();
    assert_eq!(rig.entries().read::<String>("gambler").unwrap().as_deref(), Some("1.5"));
    let mut resumed = rig.resumed(Gambler::default());
    resumed.on_load_checkpoint();
    assert_eq!(resumed.hook().entry.as_deref(), Some("1.5"));
}

#[test]
fn check_resume_reports_where_a_hook_without_state_differs() {
    let check = |forgetful: bool| {
        let make = move |_: &std::path::Path| {
            let mut rig = Rig::new(Gambler { forgetful, ..Gambler::default() });
            rig.seed(5);
            rig
        };
        check_resume(&FitScript::new(2, 3).validate(1).script(), make, |rig, entry| {
            rig.play_entry(entry);
        });
    };
    check(false);
    let panic = std::panic::catch_unwind(|| check(true)).unwrap_err();
    let told = panic.downcast_ref::<String>().unwrap();
    let place =
        "resumed from on_train_batch_end of batch 1 (epoch 1, step 1), it differs at on_step_end of batch 2";
    assert!(told.starts_with(place), "{told}");
}

/// Appends its count to a file at every step. With `cuts` it truncates the file to the saved length on resume.
struct Writer {
    path: std::path::PathBuf,
    cuts: bool,
    length: u64,
}

#[hook]
impl Controller for Writer {
    fn on_train_start(&mut self, _: &TrainStart) -> HookResult<Decision> {
        if self.cuts {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(&self.path)?;
            file.set_len(self.length)?;
        }
        Ok(Decision::CONTINUE)
    }
    fn on_step_end(&mut self, cx: &StepEnd) -> HookResult<Decision> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        let text = format!("{text}{}\n", cx.step);
        std::fs::write(&self.path, &text)?;
        self.length = text.len() as u64;
        Ok(Decision::CONTINUE)
    }
    fn state_dict(&self) -> HookResult<State> {
        Ok(State::of(1, &self.length)?)
    }
    fn load_state_dict(&mut self, state: &State) -> HookResult {
        self.length = state.read(1)?;
        Ok(())
    }
}

#[test]
fn check_resume_detects_a_file_that_is_not_truncated() {
    let check = |cuts: bool| {
        let make = move |directory: &std::path::Path| {
            Rig::new(Writer { path: directory.join("steps.txt"), cuts, length: 0 })
        };
        check_resume(&FitScript::new(1, 4).script(), make, |rig, entry| {
            rig.play_entry(entry);
        });
    };
    check(true);
    let panic = std::panic::catch_unwind(|| check(false)).unwrap_err();
    let told = panic.downcast_ref::<String>().unwrap();
    assert!(told.contains("the state at the end differs") || told.contains("steps.txt differs"), "{told}");
}
