//! A data module keeps state in checkpoints.

use std::path::Path;

use tenterhook::data::{Batches, DataState, Loaders};
use tenterhook::hooks::{Checkpoint, CheckpointOptions};
use tenterhook::toy::{Toy, ToyBatch};
use tenterhook::{BoxError, DataModule, Loader, RunError, Split, State, Trainer, closure};

use crate::call_log::{CallLog, Recorder};
use crate::lab::{Lab, bits, epochs, trainer};

/// A data module whose batches depend on a level, which a hook raises after each epoch.
struct Curriculum {
    level: DataState,
    call_log: CallLog,
    stateful: bool,
}

impl Curriculum {
    fn new(call_log: &CallLog) -> Curriculum {
        Curriculum { level: DataState::new(1, &1_u64).unwrap(), call_log: call_log.clone(), stateful: true }
    }
}

impl DataModule<ToyBatch> for Curriculum {
    fn loaders(&mut self, split: Split) -> Result<Loaders<ToyBatch>, BoxError> {
        if split != Split::Train {
            return Ok(Vec::new());
        }
        let level = self.level.clone();
        let samples: Vec<f32> = (0..8_u8).map(|index| f32::from(index) / 8.0).collect();
        let collate = move |batch: Vec<f32>| {
            let level: u8 = level.get()?;
            let sample = |x: f32| ([x, f32::from(level) - x], x * f32::from(level));
            Ok(ToyBatch::of(batch.into_iter().map(sample).collect()))
        };
        let loader: Box<dyn Loader<ToyBatch>> = Box::new(Batches::new("train", samples, collate).size(2));
        Ok(vec![loader])
    }

    fn state(&self) -> Option<DataState> {
        self.stateful.then(|| self.level.clone())
    }

    fn load_state(&mut self, saved: &State) -> Result<(), BoxError> {
        self.call_log.note("data", "load_state")?;
        Ok(self.level.restore(saved)?)
    }
}

/// A trainer that raises the level and saves after each epoch.
fn raising(root: &Path, data: &Curriculum, call_log: &CallLog, until: i64) -> Trainer {
    let mut trainer = trainer(epochs(until)).with_checkpoints_in(root);
    let level = data.level.clone();
    trainer
        .add_hook(closure::on_train_epoch_end("raise", move |_| {
            level.set(&(level.get::<u64>().unwrap() + 1)).unwrap();
        }))
        .unwrap();
    trainer.add_hook(Recorder::new("all", call_log)).unwrap();
    let options = CheckpointOptions { filename: Some("{epoch}".into()), ..CheckpointOptions::default() };
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    trainer
}

/// Trains until an epoch, from the start or from a checkpoint.
fn trained(root: &Path, until: i64, from: Option<&Path>, call_log: &CallLog) -> (Vec<u32>, u64) {
    let mut data = Curriculum::new(call_log);
    let mut trainer = raising(root, &data, call_log, until);
    if let Some(from) = from {
        trainer = trainer.restoring(from);
    }
    let mut module = Lab::new(Toy::default(), call_log);
    trainer.fit(&mut module, &mut data).unwrap();
    (bits(&module.toy), data.level.get().unwrap())
}

#[test]
fn a_resumed_run_restores_the_state_of_the_data_module_after_the_module_and_before_the_hooks() {
    let root = tempfile::tempdir().unwrap();
    let whole = trained(&root.path().join("whole"), 4, None, &CallLog::default());
    assert_eq!(whole.1, 5);
    let first = root.path().join("first");
    trained(&first, 2, None, &CallLog::default());
    let call_log = CallLog::default();
    let saved = tenterhook::checkpoint::newest_whole(&first, tenterhook::checkpoint::OnUnreadable::Stop)
        .unwrap()
        .path
        .unwrap();
    assert_eq!(trained(&root.path().join("second"), 4, Some(&saved), &call_log), whole);
    let of_loading = ["on_load_checkpoint", "load_weights", "load_state", "load_state_dict"];
    let rows: Vec<_> = call_log.rows().into_iter().filter(|(_, place)| of_loading.contains(place)).collect();
    let rows: Vec<_> = rows.iter().map(|(source, place)| format!("{source} {place}")).collect();
    assert_eq!(
        rows,
        [
            "module on_load_checkpoint",
            "module load_weights",
            "data load_state",
            "hook:all on_load_checkpoint",
            "hook:all load_state_dict",
        ]
    );
}

#[test]
fn a_state_of_the_data_module_on_one_side_of_a_resume_is_refused_unless_that_is_accepted() {
    let root = tempfile::tempdir().unwrap();
    let call_log = CallLog::default();
    trained(root.path(), 1, None, &call_log);
    let saved = tenterhook::checkpoint::newest_whole(root.path(), tenterhook::checkpoint::OnUnreadable::Stop)
        .unwrap()
        .path
        .unwrap();
    let resumed = |accepts: bool| {
        let mut data = Curriculum { stateful: false, ..Curriculum::new(&call_log) };
        let other = tempfile::tempdir().unwrap();
        let mut trainer = raising(other.path(), &data, &call_log, 2).restoring(&saved);
        if accepts {
            trainer = trainer.accepting_changes();
        }
        trainer.fit(&mut Lab::new(Toy::default(), &call_log), &mut data)
    };
    let before = call_log.rows();
    let Err(RunError::Failed { failure, .. }) = resumed(false) else { panic!("it was lost without a word") };
    assert_eq!(call_log.rows(), before, "no hook and no module was called");
    let text = failure.to_string();
    assert!(text.contains("holds a state of the data module") && text.contains("--force"), "{text}");
    resumed(true).unwrap();
}
