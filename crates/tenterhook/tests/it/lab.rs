//! Short names for the toy in tests, whose module, data and strategy record every call.

use tenterhook::toy::{Toy, ToyData};
use tenterhook::{Settings, Trainer};
pub use tenterhook_testkit::recording::{
    RecordingData as LabData, RecordingModule as Lab, RecordingStrategy as LabStrategy,
};

/// A trainer that prints no notices.
pub fn trainer(settings: Settings) -> Trainer {
    Trainer::new(settings).unwrap().with_notices(|_| {}).without_run_header()
}

/// Settings with this number of epochs and no sanity check. Checkpoints are written at once, so that their
/// announcement is deterministic.
pub fn epochs(epochs: i64) -> Settings {
    Settings {
        max_epochs: Some(epochs),
        num_sanity_val_steps: 0,
        background_saves: false,
        ..Settings::default()
    }
}

/// One loader with this number of training batches, and one with this number of validation batches.
pub fn data(train: u64, validate: u64) -> ToyData {
    let validate = if validate == 0 { Vec::new() } else { vec![validate] };
    ToyData { train: vec![train], validate, ..ToyData::default() }
}

/// The bits of all parameters of the toy.
pub fn bits(toy: &Toy) -> Vec<u32> {
    toy.param("weight").iter().chain(toy.param("bias")).map(|value| value.to_bits()).collect()
}
