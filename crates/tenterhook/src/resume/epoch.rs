//! Resuming within an epoch, at the point where the checkpoint was taken.

use tenterhook_core::{Failure, Phase};

use crate::call::Call;
use crate::checkpoint::ResumePoint;
use crate::loops::fit::Training;
use crate::module::Module;

impl<M: Module> Call<'_, M> {
    /// Resumes at this point of the epoch: pending saves first, then the rest of the event and of the batch.
    /// Returns `true` if the epoch ends here.
    pub(crate) fn resume_epoch(
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
