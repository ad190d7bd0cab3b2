//! Keeps activations of chosen points and batches, in memory or in files that Python reads.

mod options;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tenterhook_core::{
    Access, Activation, Batch, Cadence, Events, FromOptions, HookResult, Moment, Observer, OptionError,
    Phase, Policy, PredictBatchEnd, PredictBatchStart, TestBatchEnd, TestBatchStart, Tier, TrainBatchEnd,
    TrainBatchStart, ValidationBatchEnd, ValidationBatchStart, hook,
};

pub use options::{ActivationStoreOptions, ActivationTarget};
pub use stored::StoredActivation;
use stored::{Place, StoredBatch};

use crate::own_file;
use crate::points::Points;
use crate::stages::{self, ActivationStage};
use crate::tensor_file::TensorFile;
use crate::text::count;

/// Keeps the activations of chosen points and batches, to be looked at afterwards.
///
/// - **Fires** at `on_activation` in the batches that it keeps, at the start and the end of the batches of its
///   `stages`, never in a sanity check. After the first batch it says which of the `points` there are not.
/// - **Reads** the activations that it keeps. **Writes**, with `to = "safetensors"`, one file for each batch when
///   that ends, whole or not at all: `activations/train-00000012.safetensors` is the twelfth batch of training, counted
///   over all epochs, and `activations/validate-00000040-0-00000003.safetensors` the batch 3 of loader 0 after step 40.
///   Tensors have the names of their points, and from the second time on that a batch shows a point a number:
///   `name#2`. The metadata has `run`, `phase`, `step`, `epoch`, `batch`, `total_batches`, `loader` and
///   `loader_index` as texts. Values are 32-bit floats, whatever the engine computes in. A file of the same batch of
///   an earlier call makes way; one that this hook wrote itself stays, and the new one ends in `-v1`. A dry run and
///   an evaluation that has no run directory write nothing. With `to = "memory"` the program that trains finds them in
///   `trainer.hook::<ActivationStore>("activation_store")`, by [`stored`](ActivationStore::stored). A checkpoint keeps
///   none of it, and a resumed run counts anew.
/// - **Cost**: a copy of each activation that it keeps, and the writing of a file. In the other batches and at the other
///   points nothing is read.
/// - **When it fails** it is disabled at once, and training goes on. It fails before it would keep more than `max_bytes`
///   (of values in memory, of whole files on the disk): nothing of that batch is kept, and what was kept before stays.
///
/// ```toml
/// [[hooks]]
/// use = "activation_store"
/// points = ["blocks.*.mlp"]
/// every_n_batches = 1
/// stages = ["train"]
/// to = "safetensors"
/// dir = "activations"
/// max_bytes = "256 MiB"
/// ```
#[derive(Clone, Debug)]
pub struct ActivationStore {
    options: ActivationStoreOptions,
    points: Points,
    /// The batch at hand, if it is one to keep.
    current: Option<StoredBatch>,
    in_memory: Vec<StoredBatch>,
    files: Vec<PathBuf>,
    /// How many files there are of each name.
    named: BTreeMap<String, u64>,
    batches: u64,
    bytes: u64,
    /// It was said that there is no place for files.
    said: bool,
}

impl FromOptions for ActivationStore {
    type Options = ActivationStoreOptions;
    const PURPOSE: &str = "keeps activations of chosen points and batches, in memory or as safetensors";
    const EXAMPLE: &str = r#"
points = ["prediction"]
every_n_batches = 5
max_batches = 3
stages = ["train", "validate"]
max_bytes = "64 MB"
"#;

    fn from_options(options: ActivationStoreOptions) -> Result<ActivationStore, OptionError> {
        ActivationStore::new(options)
    }
}

impl ActivationStore {
    /// With these options, which are checked.
    pub fn new(options: ActivationStoreOptions) -> Result<ActivationStore, OptionError> {
        Ok(ActivationStore {
            points: options.check()?,
            options,
            current: None,
            in_memory: Vec::new(),
            files: Vec::new(),
            named: BTreeMap::new(),
            batches: 0,
            bytes: 0,
            said: false,
        })
    }

    /// What is kept in memory, in the order in which it was shown.
    pub fn stored(&self) -> impl Iterator<Item = StoredActivation<'_>> {
        self.in_memory.iter().flat_map(StoredBatch::iter)
    }

    /// The files that were written, in the order of their batches.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// How many bytes are kept: of values in memory, or of files.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a batch is one to keep.
    fn is_due(&self, moment: &Moment<'_>, batch: &Batch<'_>) -> bool {
        let number = if moment.phase == Phase::Train { moment.total_batches } else { batch.index + 1 };
        let enough = self.options.max_batches.is_some_and(|most| self.batches >= most);
        ActivationStage::of(moment.phase, &self.options.stages).is_some()
            && number.is_multiple_of(self.options.every_n_batches)
            && !enough
    }

    fn begin(&mut self, moment: &Moment<'_>, batch: &Batch<'_>) {
        self.current = None;
        if self.is_due(moment, batch) && self.has_a_place(moment) {
            self.current = Some(StoredBatch::new(Place::of(moment, batch)));
        }
    }

    /// Whether what it keeps can go anywhere; where not, that is said.
    fn has_a_place(&mut self, moment: &Moment<'_>) -> bool {
        let nowhere = self.options.to == ActivationTarget::Safetensors
            && own_file::place(moment.run, &self.options.dir).is_none();
        if nowhere && !std::mem::replace(&mut self.said, true) && !moment.run.fast_dev_run {
            moment.say(
                "this call has no run directory, so no activations are written; set `dir` to a path that begins \
                 with \"/\"",
            );
        }
        !nowhere
    }

    fn end(&mut self, moment: &Moment<'_>) -> HookResult {
        if ActivationStage::of(moment.phase, &self.options.stages).is_some() {
            self.points.say_what_matches_nothing(moment);
        }
        match self.current.take() {
            Some(batch) if batch.place.is_at(moment) && !batch.is_empty() => self.keep(moment, batch),
            _ => Ok(()),
        }
    }

    fn room(&self) -> u64 {
        self.options.max_bytes.0.saturating_sub(self.bytes)
    }

    fn keep(&mut self, moment: &Moment<'_>, batch: StoredBatch) -> HookResult {
        if !batch.is_whole {
            return Err(self.no_room(&batch.place, batch.bytes).into());
        }
        match self.options.to {
            ActivationTarget::Memory => {
                self.bytes += batch.bytes;
                self.in_memory.push(batch);
            }
            ActivationTarget::Safetensors => {
                let Some(directory) = own_file::place(moment.run, &self.options.dir) else { return Ok(()) };
                let place = batch.place.clone();
                let file = TensorFile::new(&place.metadata(&moment.run.id), batch.into_bytes())?;
                if file.size() > self.room() {
                    return Err(self.no_room(&place, file.size()).into());
                }
                self.write(&directory, &place, &file)?;
                self.bytes += file.size();
            }
        }
        self.batches += 1;
        if self.options.max_batches == Some(self.batches) {
            moment.say(format!("`max_batches` is {}, and so many are kept; no more will be", self.batches));
        }
        Ok(())
    }

    fn write(&mut self, directory: &Path, place: &Place, file: &TensorFile) -> HookResult {
        let name = place.file_name();
        let before = self.named.entry(name.clone()).or_default();
        let version = if *before == 0 { String::new() } else { format!("-v{before}") };
        *before += 1;
        let path = directory.join(format!("{name}{version}.safetensors"));
        let written = fs::create_dir_all(directory).and_then(|()| file.write_whole(&path));
        written.map_err(|error| {
            format!("cannot write {}: {error}; make room, or choose another `dir`", path.display())
        })?;
        self.files.push(path);
        Ok(())
    }

    /// Why a batch is not kept.
    fn no_room(&self, place: &Place, needed: u64) -> String {
        let Place { phase, epoch, batch, loader, .. } = place;
        format!(
            "`max_bytes` is {}: batch {batch} of `{loader}` ({phase}, epoch {epoch}) needs {}, and {} are stored \
             already; nothing of it is kept. Raise `max_bytes`, or keep less by `points`, `every_n_batches` or \
             `max_batches`",
            bytes(self.options.max_bytes.0),
            bytes(needed),
            bytes(self.bytes),
        )
    }
}

/// So many bytes, exactly.
fn bytes(number: u64) -> String {
    format!("{} bytes", count(number))
}

#[hook]
impl Observer for ActivationStore {
    fn access(&self) -> Access {
        let ActivationStoreOptions { stages, to, dir, .. } = &self.options;
        let mut access = Access::none();
        if *to == ActivationTarget::Safetensors {
            let directory = own_file::plain(dir);
            access = access.claims(directory.to_string_lossy(), "give one of them another `dir`");
        }
        if !stages.contains(&ActivationStage::Train) {
            // In no step of training, so nothing is prepared for it there.
            access = access.paced(Cadence::Steps(u64::MAX));
        }
        access
    }

    fn idle(&self) -> Events {
        stages::idle(&self.options.stages)
    }

    fn tier(&self) -> Tier {
        Tier::BuiltIn
    }

    fn policy(&self) -> Policy {
        // Where one batch finds no room, the next will not either.
        Policy { max_failures: 1, ..Policy::DISABLE }
    }

    fn wants_point(&self, point: &str) -> bool {
        // The point is asked about in any case, so that it is known.
        self.points.want(point) && self.current.is_some()
    }

    fn selects_point(&self, point: &str) -> bool {
        self.points.want(point)
    }

    fn on_activation(&mut self, cx: &Activation) {
        let room = self.room();
        if let Some(batch) = self.current.as_mut().filter(|batch| batch.place.is_at(cx)) {
            batch.add(cx.point, &cx.tensor(), room);
        }
    }

    fn on_train_batch_start(&mut self, cx: &TrainBatchStart) {
        self.begin(cx, &cx.batch);
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        self.end(cx)
    }

    fn on_validation_batch_start(&mut self, cx: &ValidationBatchStart) {
        self.begin(cx, &cx.batch);
    }

    fn on_validation_batch_end(&mut self, cx: &ValidationBatchEnd) -> HookResult {
        self.end(cx)
    }

    fn on_test_batch_start(&mut self, cx: &TestBatchStart) {
        self.begin(cx, &cx.batch);
    }

    fn on_test_batch_end(&mut self, cx: &TestBatchEnd) -> HookResult {
        self.end(cx)
    }

    fn on_predict_batch_start(&mut self, cx: &PredictBatchStart) {
        self.begin(cx, &cx.batch);
    }

    fn on_predict_batch_end(&mut self, cx: &PredictBatchEnd) -> HookResult {
        self.end(cx)
    }
}
