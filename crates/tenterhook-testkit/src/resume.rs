//! `check_resume`: plays a script without interruption, then killed and resumed at every possible checkpoint.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tenterhook_core::Hook;
use tenterhook_core::runner::HookStates;
use tenterhook_core::{Event, Progress};

use crate::fit_script::ScriptEntry;
use crate::rig::{Rig, through_json};
use crate::simulated_run::SimulatedRun;

/// Checks that a hook behaves the same in a run that is killed and resumed as in a run that is not interrupted.
///
/// The script is played without interruption first. Then, for every event after which a checkpoint can be
/// taken, it is played up to that event and a few events further (the time between the last checkpoint and
/// the kill), and continued from that event with a fresh hook that loads the state. Both runs must then have
/// the same decisions, metrics, notices and console lines at every event, and the same blackboard, states and
/// files after they have [finished](tenterhook_core::Hook::finish).
///
/// `make` makes the rig with a fresh hook; its argument is a directory for the files of the run. `play` plays
/// one entry of the script and may set values before; usually it is `|rig, entry| { rig.play_entry(entry);
/// }`.
///
/// ```
/// use tenterhook_core::{hook, HookResult, Observer, State, StepEnd};
/// use tenterhook_testkit::{check_resume, FitScript, Rig};
///
/// #[derive(Default)]
/// struct Steps(u64);
///
/// #[hook]
/// impl Observer for Steps {
///     fn on_step_end(&mut self, cx: &StepEnd) -> HookResult {
///         self.0 += 1;
///         cx.log("steps", self.0 as f64);
///         Ok(())
///     }
///     fn state_dict(&self) -> HookResult<State> {
///         Ok(State::of(1, &self.0)?)
///     }
///     fn load_state_dict(&mut self, state: &State) -> HookResult {
///         self.0 = state.read(1)?;
///         Ok(())
///     }
/// }
///
/// check_resume(&FitScript::new(2, 3).script(), |_| Rig::new(Steps::default()), |rig, entry| { rig.play_entry(entry); });
/// ```
///
/// # Panics
///
/// If the runs differ. The message names the event of the checkpoint and the first difference.
#[track_caller]
pub fn check_resume<H: Hook>(
    script: &[ScriptEntry],
    make: impl Fn(&Path) -> Rig<H>,
    play: impl Fn(&mut Rig<H>, &ScriptEntry),
) {
    let check = Check { script, make, play };
    let uninterrupted = check.uninterrupted();
    let ends = [Event::TrainBatchEnd, Event::ValidationEnd, Event::TrainEpochEnd];
    let more_follows = |at: usize| script[at + 1..].iter().any(|entry| entry.event == Event::TrainBatchStart);
    let cuts: Vec<_> =
        (0..script.len()).filter(|at| ends.contains(&script[*at].event) && more_follows(*at)).collect();
    assert!(!cuts.is_empty(), "the script has no place for a checkpoint; it needs some training batches");
    for cut in cuts {
        let resumed = check.resumed(cut);
        uninterrupted.compare(&resumed, script, cut);
    }
}

/// Events between the last checkpoint and the kill.
const EVENTS_BEFORE_KILL: usize = 40;

struct Check<'s, M, P> {
    script: &'s [ScriptEntry],
    make: M,
    play: P,
}

/// Everything observable of a run.
struct Observed {
    /// The results of each event.
    events: Vec<String>,
    board: String,
    states: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl<H: Hook, M: Fn(&Path) -> Rig<H>, P: Fn(&mut Rig<H>, &ScriptEntry)> Check<'_, M, P> {
    fn uninterrupted(&self) -> Observed {
        let directory = directory();
        let mut rig = (self.make)(directory.path());
        let events = self.observe(&mut rig, self.script, directory.path());
        Observed::of(rig, events, directory.path())
    }

    fn resumed(&self, cut: usize) -> Observed {
        let directory = directory();
        let mut rig = (self.make)(directory.path());
        self.observe(&mut rig, &self.script[..=cut], directory.path());
        let (states, run) = rig.snapshot();
        let is_end =
            |entry: &&ScriptEntry| [Event::TrainEnd, Event::FitEnd, Event::Teardown].contains(&entry.event);
        for entry in self.script[cut + 1..].iter().take(EVENTS_BEFORE_KILL).take_while(|entry| !is_end(entry))
        {
            (self.play)(&mut rig, entry);
        }
        drop(rig);
        let mut rig = (self.make)(directory.path());
        // The facts about the run come from the resumed run; everything else is restored.
        let facts = std::mem::take(&mut rig.run.shared.run);
        rig.run = run;
        rig.run.shared.run = facts;
        rig.runner.publish(&rig.run.shared);
        let at = |event| ScriptEntry {
            event,
            progress: resume_progress(self.script[cut].progress),
            ..self.script[cut]
        };
        (self.play)(&mut rig, &at(Event::Setup));
        rig.restore(&states);
        (self.play)(&mut rig, &at(Event::FitStart));
        (self.play)(&mut rig, &at(Event::TrainStart));
        let events = self.observe(&mut rig, &self.script[cut + 1..], directory.path());
        Observed::of(rig, events, directory.path())
    }

    fn observe(&self, rig: &mut Rig<H>, script: &[ScriptEntry], directory: &Path) -> Vec<String> {
        drop((rig.metrics().take_changes(), rig.metrics().take_histograms()));
        script.iter().map(|entry| rig.outcome_of(directory, |rig| (self.play)(rig, entry))).collect()
    }
}

impl<H: Hook> Rig<H> {
    /// The state that a checkpoint holds.
    fn snapshot(&mut self) -> (HookStates, SimulatedRun) {
        let states = match self.runner.states(&self.run.at.progress) {
            Ok(states) => through_json(&states, &self.name),
            Err(failure) => panic!("the hook has no state: {failure}"),
        };
        (states, self.run.resumed())
    }

    fn restore(&mut self, states: &HookStates) {
        if let Err(failure) = self.runner.load_states(states, &self.run.at.progress) {
            panic!("the state cannot be restored: {failure}");
        }
    }

    /// The results of an event, with the run directory replaced.
    fn outcome_of(&mut self, directory: &Path, play: impl FnOnce(&mut Rig<H>)) -> String {
        let known = (self.outcomes.deliveries.len(), self.said().len(), self.printed().len());
        play(self);
        let deliveries = &self.outcomes.deliveries[known.0..];
        let logged = self.metrics().take_changes().unwrap_or_default();
        let histograms = self.metrics().take_histograms();
        self.run.log.pending.metrics.extend(logged.clone());
        self.run.log.pending.histograms.extend(histograms.clone());
        let histograms: Vec<_> = histograms.into_iter().collect();
        let (said, printed) = (&self.said()[known.1..].to_vec(), &self.printed()[known.2..].to_vec());
        let (rates, gradients) = (self.learning_rates(), &self.run.update.gradients);
        let outcome = format!(
            "{deliveries:?}\n  logged {logged:?} {histograms:?}\n  said {said:?} {printed:?}\n  learning rates \
             {rates:?}, gradients {gradients:?}"
        );
        outcome.replace(&directory.display().to_string(), "<run>")
    }
}

impl Observed {
    fn of<H: Hook>(mut rig: Rig<H>, events: Vec<String>, directory: &Path) -> Observed {
        let (states, _) = rig.snapshot();
        rig.finish();
        let board = rig.board().to_json();
        drop(rig);
        let mut files = BTreeMap::new();
        collect(directory, directory, &mut files);
        let plain = |text: String| text.replace(&directory.display().to_string(), "<run>");
        Observed { events, board: plain(format!("{board:?}")), states: plain(format!("{states:#?}")), files }
    }

    #[track_caller]
    fn compare(&self, resumed: &Observed, script: &[ScriptEntry], cut: usize) {
        let ScriptEntry { event, progress, .. } = &script[cut];
        let place = format!(
            "resumed from {} of batch {} ({}, step {})",
            event.handler(),
            progress.total_batches,
            tenterhook_core::epoch_label(progress.epoch, None),
            progress.step
        );
        let after = &self.events[cut + 1..];
        for ((expected, resumed), entry) in after.iter().zip(&resumed.events).zip(&script[cut + 1..]) {
            let (handler, batch) = (entry.event.handler(), entry.progress.total_batches);
            assert_same(expected, resumed, &format!("{place}, it differs at {handler} of batch {batch}"));
        }
        assert_same(&self.board, &resumed.board, &format!("{place}, the board differs"));
        assert_same(&self.states, &resumed.states, &format!("{place}, the state at the end differs"));
        let names = |observed: &Observed| observed.files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(resumed), "{place}, other files are left");
        for (name, expected) in &self.files {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let resumed = &resumed.files[name];
            assert_same(&text(expected), &text(resumed), &format!("{place}, the file {name} differs"));
            assert!(expected == resumed, "{place}, the file {name} differs");
        }
    }
}

#[track_caller]
fn assert_same(expected: &str, resumed: &str, difference: &str) {
    assert!(expected == resumed, "{difference}\nuninterrupted: {expected}\nresumed:       {resumed}");
}

/// The progress at which the trainer resumes: after the end of an epoch, the start of the next one.
fn resume_progress(progress: Progress) -> Progress {
    if progress.epochs_done > progress.epoch {
        Progress { epoch: progress.epoch + 1, batches: 0, ..progress }
    } else {
        progress
    }
}

#[track_caller]
fn directory() -> tempfile::TempDir {
    match tempfile::tempdir() {
        Ok(directory) => directory,
        Err(error) => panic!("cannot make a directory for the run: {error}"),
    }
}

/// All files below a directory. In texts, the directory is replaced.
fn collect(root: &Path, directory: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, found);
            continue;
        }
        let bytes = fs::read(&path).unwrap_or_default();
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => text.replace(&root.display().to_string(), "<run>").into_bytes(),
            Err(error) => error.into_bytes(),
        };
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        found.insert(name, bytes);
    }
}
