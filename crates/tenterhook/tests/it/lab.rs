//! The toy under names that are short in tests: as module, data and strategy it records every call.

use tenterhook::toy::{Toy, ToyData};
use tenterhook::{Settings, Trainer};
pub use tenterhook_testkit::recording::{
    RecordingData as LabData, RecordingModule as Lab, RecordingStrategy as LabStrategy,
};

/// A trainer that keeps its notices to itself.
pub fn trainer(settings: Settings) -> Trainer {
    Trainer::new(settings).unwrap().with_notices(|_| {}).without_introduction()
}

/// So many epochs, and no sanity check. Checkpoints are written at once, so that they are announced at the same
/// moment every time.
pub fn epochs(epochs: i64) -> Settings {
    Settings {
        max_epochs: Some(epochs),
        num_sanity_val_steps: 0,
        background_saves: false,
        ..Settings::default()
    }
}

/// So many training batches in one loader, and so many validation batches in one.
pub fn data(train: u64, validate: u64) -> ToyData {
    let validate = if validate == 0 { Vec::new() } else { vec![validate] };
    ToyData { train: vec![train], validate, ..ToyData::default() }
}

/// All parameters of the toy, to the bit.
pub fn bits(toy: &Toy) -> Vec<u32> {
    toy.param("weight").iter().chain(toy.param("bias")).map(|value| value.to_bits()).collect()
}
