//! Whether a hook resumes to the same: a script played whole, and again killed and resumed wherever a checkpoint can be.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tenterhook_core::Hook;
use tenterhook_core::runner::HookStates;
use tenterhook_core::{Event, Progress};

use crate::rig::{Rig, through_json};
use crate::script::Cue;
use crate::world::World;

/// Checks that a hook that was killed and resumed does what one does that was never touched.
///
/// The script is played whole, and then once for every place where a checkpoint can be made: up to there, a little
/// further (what happens between the last checkpoint and the death of a run), and from there again with a fresh hook
/// that was given the state. From then on both must decide, log, say and print the same at every event, leave the
/// same on the board, in their states and in their files, once they have [finished](tenterhook_core::Hook::finish).
///
/// `make` makes the rig with a fresh hook in it; it is given a directory for the files of its run. `play` sends one
/// event of the script, and may say before what the hook finds there; mostly it is
/// `|rig, cue| { rig.cue(cue); }`.
///
/// ```
/// use tenterhook_core::{hook, HookResult, Observer, State, StepEnd};
/// use tenterhook_testkit::{check_resume, Fit, Rig};
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
/// check_resume(&Fit::new(2, 3).script(), |_| Rig::new(Steps::default()), |rig, cue| { rig.cue(cue); });
/// ```
///
/// # Panics
///
/// When they differ; the message says where the run was cut, and where the first difference is.
#[track_caller]
pub fn check_resume<H: Hook>(
    script: &[Cue],
    make: impl Fn(&Path) -> Rig<H>,
    play: impl Fn(&mut Rig<H>, &Cue),
) {
    let check = Check { script, make, play };
    let untouched = check.untouched();
    let ends = [Event::TrainBatchEnd, Event::ValidationEnd, Event::TrainEpochEnd];
    let more_follows = |at: usize| script[at + 1..].iter().any(|cue| cue.event == Event::TrainBatchStart);
    let cuts: Vec<_> =
        (0..script.len()).filter(|at| ends.contains(&script[*at].event) && more_follows(*at)).collect();
    assert!(!cuts.is_empty(), "the script has no place for a checkpoint; it needs some training batches");
    for cut in cuts {
        let resumed = check.resumed(cut);
        untouched.compare(&resumed, script, cut);
    }
}

/// How far a run gets from its last checkpoint to its death, in events.
const FURTHER: usize = 40;

struct Check<'s, M, P> {
    script: &'s [Cue],
    make: M,
    play: P,
}

/// Everything that can be seen of a run.
struct Shown {
    /// What came of each event.
    events: Vec<String>,
    board: String,
    states: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl<H: Hook, M: Fn(&Path) -> Rig<H>, P: Fn(&mut Rig<H>, &Cue)> Check<'_, M, P> {
    fn untouched(&self) -> Shown {
        let directory = directory();
        let mut rig = (self.make)(directory.path());
        let events = self.watched(&mut rig, self.script, directory.path());
        Shown::of(rig, events, directory.path())
    }

    fn resumed(&self, cut: usize) -> Shown {
        let directory = directory();
        let mut rig = (self.make)(directory.path());
        self.watched(&mut rig, &self.script[..=cut], directory.path());
        let (states, world) = rig.snapshot();
        let is_end = |cue: &&Cue| [Event::TrainEnd, Event::FitEnd, Event::Teardown].contains(&cue.event);
        for cue in self.script[cut + 1..].iter().take(FURTHER).take_while(|cue| !is_end(cue)) {
            (self.play)(&mut rig, cue);
        }
        drop(rig);
        let mut rig = (self.make)(directory.path());
        // What is said of the run is of now; the rest is as it was.
        let run = std::mem::take(&mut rig.world.shared.run);
        rig.world = world;
        rig.world.shared.run = run;
        rig.runner.publish(&rig.world.shared);
        let at = |event| Cue { event, progress: next_unseen(self.script[cut].progress), ..self.script[cut] };
        (self.play)(&mut rig, &at(Event::Setup));
        rig.restore(&states);
        (self.play)(&mut rig, &at(Event::FitStart));
        (self.play)(&mut rig, &at(Event::TrainStart));
        let events = self.watched(&mut rig, &self.script[cut + 1..], directory.path());
        Shown::of(rig, events, directory.path())
    }

    fn watched(&self, rig: &mut Rig<H>, script: &[Cue], directory: &Path) -> Vec<String> {
        drop((rig.metrics().take_changes(), rig.metrics().take_histograms()));
        script.iter().map(|cue| rig.outcome_of(directory, |rig| (self.play)(rig, cue))).collect()
    }
}

impl<H: Hook> Rig<H> {
    /// What a checkpoint keeps of it.
    fn snapshot(&mut self) -> (HookStates, World) {
        let states = match self.runner.states(&self.world.at.progress) {
            Ok(states) => through_json(&states, &self.name),
            Err(failure) => panic!("no state can be had: {failure}"),
        };
        (states, self.world.resumed())
    }

    fn restore(&mut self, states: &HookStates) {
        if let Err(failure) = self.runner.load_states(states, &self.world.at.progress) {
            panic!("the state cannot be given back: {failure}");
        }
    }

    /// What came of an event, in words that do not name the directory.
    fn outcome_of(&mut self, directory: &Path, play: impl FnOnce(&mut Rig<H>)) -> String {
        let known = (self.findings.replies.len(), self.said().len(), self.printed().len());
        play(self);
        let replies = &self.findings.replies[known.0..];
        let logged = self.metrics().take_changes().unwrap_or_default();
        let histograms = self.metrics().take_histograms();
        self.world.log.since.0.extend(logged.clone());
        self.world.log.since.1.extend(histograms.clone());
        let histograms: Vec<_> = histograms.into_iter().collect();
        let (said, printed) = (&self.said()[known.1..].to_vec(), &self.printed()[known.2..].to_vec());
        let (rates, gradients) = (self.learning_rates(), &self.world.update.gradients);
        let outcome = format!(
            "{replies:?}\n  logged {logged:?} {histograms:?}\n  said {said:?} {printed:?}\n  learning rates \
             {rates:?}, gradients {gradients:?}"
        );
        outcome.replace(&directory.display().to_string(), "<run>")
    }
}

impl Shown {
    fn of<H: Hook>(mut rig: Rig<H>, events: Vec<String>, directory: &Path) -> Shown {
        let (states, _) = rig.snapshot();
        rig.finish();
        let board = rig.board().to_json();
        drop(rig);
        let mut files = BTreeMap::new();
        collect(directory, directory, &mut files);
        let plain = |text: String| text.replace(&directory.display().to_string(), "<run>");
        Shown { events, board: plain(format!("{board:?}")), states: plain(format!("{states:#?}")), files }
    }

    #[track_caller]
    fn compare(&self, resumed: &Shown, script: &[Cue], cut: usize) {
        let Cue { event, progress, .. } = &script[cut];
        let place = format!(
            "resumed from {} of batch {} ({}, step {})",
            event.handler(),
            progress.total_batches,
            tenterhook_core::epoch_label(progress.epoch, None),
            progress.step
        );
        let after = &self.events[cut + 1..];
        for ((untouched, resumed), cue) in after.iter().zip(&resumed.events).zip(&script[cut + 1..]) {
            assert!(
                untouched == resumed,
                "{place}, it differs at {} of batch {}\nuntouched: {untouched}\nresumed:   {resumed}",
                cue.event.handler(),
                cue.progress.total_batches
            );
        }
        assert_eq!(self.board, resumed.board, "{place}, the board differs");
        assert!(
            self.states == resumed.states,
            "{place}, the state at the end differs\nuntouched: {}\nresumed:   {}",
            self.states,
            resumed.states
        );
        let names = |shown: &Shown| shown.files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(resumed), "{place}, other files are left");
        for (name, untouched) in &self.files {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let resumed = &resumed.files[name];
            assert!(
                untouched == resumed,
                "{place}, the file {name} differs\nuntouched: {}\nresumed:   {}",
                text(untouched),
                text(resumed)
            );
        }
    }
}

/// As the trainer goes on: behind the end of an epoch with the next one.
fn next_unseen(progress: Progress) -> Progress {
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
        Err(error) => panic!("no directory for the files of the run: {error}"),
    }
}

/// All files below a directory. Texts do not name it.
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
