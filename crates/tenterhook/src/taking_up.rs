//! Going on in the middle of an epoch, right where a checkpoint was taken.

use tenterhook_core::moment::LossHistory;
use tenterhook_core::{Event, Failure, Phase, Scalar};

use crate::checkpoint::{Place, Position};
use crate::data::Waited;
use crate::feed::Fetched;
use crate::fit::Training;
use crate::module::Module;
use crate::running::Who;
use crate::session::Session;

impl<M: Module> Session<'_, M> {
    /// The rest of what the checkpoint was taken in, and what follows it. `true` when the epoch ends there.
    pub(crate) fn take_up(
        &mut self,
        training: &mut Training<M::Batch>,
        position: &Position,
    ) -> Result<bool, Failure> {
        match position.place {
            Place::EpochStart => {
                emit_rest!(self.run, self.module, position, TrainEpochStart {});
                tell!(&mut self.run, self.module, on_train_epoch_start);
                Ok(false)
            }
            Place::BatchEnd => {
                self.rest_of_batch(training, position)?;
                self.after_batch(training)
            }
            Place::ValidationDue => {
                self.evaluate(Phase::Validate)?;
                self.run.phase = Phase::Train;
                self.after_validation()
            }
            Place::ValidationEnd => {
                self.rest_of_validation(position)?;
                self.run.phase = Phase::Train;
                self.after_validation()
            }
            _ => Ok(false),
        }
    }

    /// The rest of a batch whose `on_train_batch_end` a checkpoint was taken in. The batch itself comes again only
    /// if somebody is left who may look at it.
    fn rest_of_batch(
        &mut self,
        training: &mut Training<M::Batch>,
        position: &Position,
    ) -> Result<(), Failure> {
        self.run.within_batch = true;
        self.run.shared.metrics.set_step(self.run.progress.current_step());
        if let Some(cursor) = self.run.rest_of(self.module, position, Event::TrainBatchEnd)? {
            self.run.at(Who::Data, "next");
            let again = training.feed.begin(self.run.progress.epoch, self.run.batch.index);
            self.run.checked(again)?;
            // Nothing of it has been seen again yet, so whoever wants it to end may as well wait.
            let fetched = training.feed.next(&|| false);
            if let Waited::Batch(Fetched { batch, loader, .. }) = self.run.checked(fetched)? {
                let (run, module) = (&mut self.run, &mut *self.module);
                let name = training.feed.name(loader);
                let loss = run.losses.latest();
                emit!(@from cursor, run, module, TrainBatchEnd {
                    batch: run.view(&batch, name),
                    loss: loss.as_ref().map(|loss| Scalar::new(loss)),
                });
            }
        }
        self.run.after_event(self.module)?;
        self.run.save_asked(self.module, Place::BatchEnd)?;
        self.end_batch()
    }
}
