//! Going on in the middle of an epoch, right where a checkpoint was taken.

use tenterhook_core::{Failure, Phase};

use crate::call::Call;
use crate::checkpoint::ResumePoint;
use crate::loops::fit::Training;
use crate::module::Module;

impl<M: Module> Call<'_, M> {
    /// What follows the point in the epoch that a checkpoint was taken at, pending saves first. `true` when the epoch ends
    /// there.
    pub(crate) fn take_up(
        &mut self,
        training: &Training<M::Batch>,
        point: ResumePoint,
    ) -> Result<bool, Failure> {
        match point {
            ResumePoint::EpochStart => {
                event_rest!(self, TrainEpochStart);
                Ok(false)
            }
            ResumePoint::BatchEnd => {
                self.run.state.before_batch = Some(self.run.state.progress);
                self.run.shared.metrics.set_step(self.run.state.progress.current_step());
                event_rest!(self, TrainBatchEnd);
                self.end_batch()?;
                self.after_batch(training)
            }
            ResumePoint::ValidationDue => {
                self.evaluate(Phase::Validate)?;
                self.run.state.phase = Phase::Train;
                self.after_validation()
            }
            ResumePoint::ValidationEnd => {
                self.resume_validation_end()?;
                self.run.state.phase = Phase::Train;
                self.after_validation()
            }
            ResumePoint::TrainStart
            | ResumePoint::BatchDone
            | ResumePoint::EpochEnd
            | ResumePoint::BetweenEpochs
            | ResumePoint::TrainEnd => Ok(false),
        }
    }
}
