//! Learning-rate schedules, independent of the engine: a schedule yields a factor, and the engine
//! multiplies every parameter group's own learning rate by it.

use serde_json::Value;
use tenterhook_core::BoxError;

/// Where a schedule stands when it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tick {
    /// How often it has stepped: 0 before training, and 1 after its first step.
    pub count: u64,
    /// How often it will have stepped at the end of training, where that is known.
    pub of: Option<u64>,
    /// The metric it waits for, when it is one on a plateau.
    pub metric: Option<f64>,
}

/// Changes the learning rates of an optimizer over time.
pub trait Scheduler: Send + 'static {
    /// What every learning rate is multiplied by from here on. Asked once with a count of 0 before
    /// training, and then after every step of its own.
    fn factor(&mut self, tick: Tick) -> Result<f64, BoxError>;

    /// What it remembers beyond the count, for a checkpoint.
    fn state(&self) -> Value {
        Value::Null
    }

    /// What it remembered.
    fn load_state(&mut self, _state: &Value) -> Result<(), BoxError> {
        Ok(())
    }
}
