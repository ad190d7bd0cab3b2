//! `on_checkpoint_saved`: called once per checkpoint, with the checkpoint's own step, epoch and metrics.

use std::path::Path;

use tenterhook::hooks::{BEST, Checkpoint, CheckpointOptions};
use tenterhook::run::{RunDirectoryOptions, RunLock};
use tenterhook::toy::Toy;
use tenterhook::{Registration, Trainer, closure};

use crate::call_log::SharedVec;
use crate::lab::{data, epochs, trainer};
use crate::run_directory::{latest, plan};

/// Step, epoch, `val/loss`, and whether the checkpoint may have been announced before.
type Told = (u64, u64, Option<f64>, bool);

fn listening(mut trainer: Trainer, options: CheckpointOptions) -> (Trainer, SharedVec<Told>) {
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    let seen = SharedVec::new();
    let told = seen.clone();
    let listen = closure::on_checkpoint_saved("told", move |cx| {
        told.push((cx.saved_step, cx.saved_epoch, cx.saved_metrics.get("val/loss").copied(), cx.redelivered));
    });
    trainer.add_hook(listen).unwrap();
    (trainer, seen)
}

#[test]
fn a_checkpoint_is_announced_with_the_numbers_of_its_save() {
    let root = tempfile::tempdir().unwrap();
    // The save comes before the validation of the same step, and the announcement after it.
    let at_steps = CheckpointOptions { every_n_train_steps: Some(2), ..CheckpointOptions::default() };
    let (mut trainer, seen) = listening(trainer(epochs(2)).with_checkpoints_in(root.path()), at_steps);
    let losses = SharedVec::new();
    let validated = losses.clone();
    let note = closure::on_validation_end("note", move |cx| validated.push(cx.metrics().get("val/loss")));
    trainer.add_hook(note).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
    let losses = losses.take();
    assert_eq!(seen.take(), [(2, 0, None, false), (4, 1, losses[0], false)]);
    assert_ne!(losses[0], losses[1]);
}

#[test]
fn the_training_loss_of_a_checkpoint_is_that_of_its_step() {
    let root = tempfile::tempdir().unwrap();
    let at_steps = CheckpointOptions { every_n_train_steps: Some(3), ..CheckpointOptions::default() };
    let (mut trainer, _) = listening(trainer(epochs(1)).with_checkpoints_in(root.path()), at_steps);
    let seen = SharedVec::new();
    let (steps, saved) = (seen.clone(), seen.clone());
    let step = closure::on_step_end("step", move |cx| {
        if cx.step == 3 {
            steps.push(cx.loss.value());
        }
    });
    trainer.add_hook(step).unwrap();
    let save = closure::on_checkpoint_saved("loss", move |cx| saved.push(cx.saved_metrics["train/loss"]));
    trainer.add_hook(save).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 0)).unwrap();
    let losses = seen.take();
    assert_eq!(losses[0].to_bits(), losses[1].to_bits());
}

#[test]
fn a_checkpoint_is_announced_with_its_own_score_and_whether_values_are_fresh() {
    let root = tempfile::tempdir().unwrap();
    let monitoring = CheckpointOptions { monitor: Some("val/loss".into()), ..CheckpointOptions::default() };
    let (mut trainer, _) = listening(trainer(epochs(3)).with_checkpoints_in(root.path()), monitoring);
    let at_steps = CheckpointOptions { every_n_train_steps: Some(3), ..CheckpointOptions::default() };
    let steps = Registration { name: Some("steps".into()), ..Registration::default() };
    trainer.register(Checkpoint::new(at_steps).unwrap(), steps).unwrap();
    let seen = SharedVec::new();
    let scores = seen.clone();
    let note = closure::on_checkpoint_saved("scores", move |cx| {
        let (loss, fresh) = (cx.saved_metrics.get("val/loss").copied(), cx.fresh_metric("val/loss"));
        scores.push((cx.saved_step, cx.best_score, loss, fresh));
    });
    trainer.add_hook(note).unwrap();
    trainer.fit(&mut Toy::default(), &mut data(4, 1)).unwrap();
    let mut seen = seen.take();
    seen.retain(|(step, ..)| [4, 6, 8].contains(step));
    for (step, best, loss, fresh) in seen {
        assert!(loss.is_some());
        let own = if step == 6 { None } else { loss };
        assert_eq!((best, fresh), (own, own), "at step {step}");
    }
}

/// Resumes the run for one more epoch.
fn resumed(root: &Path) -> Vec<Told> {
    let directory = latest(root);
    let id = Some(directory.file_name().unwrap().to_string_lossy().into_owned());
    let resume = Some(RunLock::acquire(&directory).unwrap());
    let plan = RunDirectoryOptions { id, resume, ..plan(root) };
    let trainer = trainer(epochs(3)).with_run_directory(plan).restoring(directory.join("checkpoints/latest"));
    let (mut trainer, seen) = listening(trainer.accepting_changes(), CheckpointOptions::default());
    trainer.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
    seen.take()
}

#[test]
fn a_completed_run_announces_nothing_again_and_a_killed_one_marks_repeated_announcements() {
    for (killed, expected) in
        [(false, vec![(6, 2, None, false)]), (true, vec![(4, 1, None, true), (6, 2, None, false)])]
    {
        let root = tempfile::tempdir().unwrap();
        let run = trainer(epochs(2)).with_run_directory(plan(root.path()));
        let (mut run, seen) = listening(run, CheckpointOptions::default());
        run.fit(&mut Toy::default(), &mut data(2, 0)).unwrap();
        assert_eq!(seen.take(), [(2, 0, None, false), (4, 1, None, false)]);
        if killed {
            // As after a process that was killed before the end.
            let record = latest(root.path()).join("run.json");
            let text = std::fs::read_to_string(&record).unwrap();
            std::fs::write(record, text.replace("\"completed\"", "\"running\"")).unwrap();
        }
        drop(run);
        assert_eq!(resumed(root.path()), expected);
    }
}

#[test]
fn the_best_checkpoint_is_on_the_board() {
    let root = tempfile::tempdir().unwrap();
    let monitoring = CheckpointOptions { monitor: Some("val/loss".into()), ..CheckpointOptions::default() };
    let (mut run, _) = listening(trainer(epochs(2)).with_checkpoints_in(root.path()), monitoring);
    let seen = SharedVec::new();
    let board = seen.clone();
    run.add_hook(closure::on_train_end("board", move |cx| board.push(cx.board().get(BEST)))).unwrap();
    run.fit(&mut Toy::default(), &mut data(2, 1)).unwrap();
    let best = seen.take().remove(0).unwrap();
    let chosen = run.hook::<Checkpoint>("checkpoint").unwrap().best();
    assert_eq!(chosen, Some((best.path.clone(), Some(best.score))));
    assert_eq!((best.hook.as_str(), best.monitor.as_str()), ("checkpoint", "val/loss"));
}

#[test]
#[cfg(feature = "http")]
fn a_message_about_the_best_checkpoint_needs_a_hook_that_chooses_it() {
    use tenterhook::hooks::{Notify, NotifyOn, NotifyOptions};
    use tenterhook::{FromOptions, RunError};

    let root = tempfile::tempdir().unwrap();
    let notify = NotifyOptions { notify_on: vec![NotifyOn::BestModel], ..NotifyOptions::new("NEVER_SET") };
    let refused = |monitor: Option<&str>| -> Result<(), RunError> {
        let options = CheckpointOptions { monitor: monitor.map(Into::into), ..CheckpointOptions::default() };
        let (mut trainer, _) = listening(trainer(epochs(1)).with_checkpoints_in(root.path()), options);
        trainer.add_hook(Notify::from_options(notify.clone()).unwrap()).unwrap();
        trainer.fit(&mut Toy::default(), &mut data(2, 1)).map(drop)
    };
    let error = refused(None).unwrap_err().to_string();
    let expected = "hook `notify` requires the choice of a best checkpoint, and no hook provides it; set `monitor` \
                    here, or in a checkpoint hook";
    assert!(error.contains(expected), "{error}");
    refused(Some("val/loss")).unwrap();

    let alone = |on: NotifyOn, monitor: Option<&str>| {
        let monitor = monitor.map(Into::into);
        let options = NotifyOptions { notify_on: vec![on], monitor, ..NotifyOptions::new("NEVER_SET") };
        let mut trainer = trainer(epochs(1));
        trainer.add_hook(Notify::from_options(options).unwrap()).unwrap();
        trainer.fit(&mut Toy::default(), &mut data(2, 1)).unwrap_err().to_string()
    };
    let error = alone(NotifyOn::Checkpoint, None);
    assert!(
        error.contains("requires the saving of checkpoints, and no hook provides it; add a hook"),
        "{error}"
    );
    let error = alone(NotifyOn::BestModel, Some("vall/loss"));
    assert!(
        error.contains("hook `notify` reads `vall/loss`, which nothing writes; did you mean `val/loss`?"),
        "{error}"
    );
}
