//! Keeps activations of chosen points and batches, in memory or in files that Python reads.

mod options;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenterhook_core::{
    Activation, Batch, Cadence, FromOptions, HookResult, HookSpec, Moment, Observer, OptionError, Phase,
    Policy, PredictBatchEnd, PredictBatchStart, Progress, TestBatchEnd, TestBatchStart, Tier, TrainBatchEnd,
    TrainBatchStart, ValidationBatchEnd, ValidationBatchStart, hook,
};
use tenterhook_files::RelPath;

pub use options::{ActivationStoreOptions, ActivationTarget};
pub use stored::StoredActivation;
use stored::{Place, StoredBatch};

use crate::points::Points;
use crate::stages::{self, ActivationStage};
use crate::support::output_path;
use crate::support::text::count;
use crate::tensor_file::TensorFile;

/// Keeps the activations of chosen points and batches, to be looked at afterwards.
///
/// - **Fires** at `on_activation` in the batches that it keeps, at the start and the end of the batches of its
///   `stages`, never in a sanity check. At the end of the first batch that it
///   keeps it says which of the `points` there are not.
/// - **Reads** the activations that it keeps. **Writes**, with `to = "safetensors"`, one file for each batch when
///   that ends, whole or not at all: `activations/train-00000012.safetensors` is the twelfth batch of training, counted
///   over all epochs, and `activations/validate-00000040-0-00000003.safetensors` the batch 3 of loader 0 after step 40.
///   Tensors have the names of their points, and from the second time on that a batch shows a point a number:
///   `name#2`. The metadata has `run`, `phase`, `step`, `epoch`, `batch`, `total_batches`, `loader` and
///   `loader_index` as texts. Values are 32-bit floats, whatever the engine computes in. A file of the same batch of
///   an earlier call makes way; one that this hook wrote itself stays, and the new one ends in `-v1`. Below a `dir`
///   that begins with "/" each run has a directory of its id. A dry run and an evaluation that has no run directory write nothing. With `to = "memory"` the program that trains finds them in
///   `trainer.hook::<ActivationStore>("activation_store")`, by [`stored`](ActivationStore::stored). A checkpoint
///   keeps none of it but the count, so that a resumed run keeps the batches that it would have kept.
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
    /// Where its files are, once it has written one.
    directory: Option<PathBuf>,
    memory: Memory,
}

/// What a checkpoint keeps: how much there is, so that a resumed run keeps what the untouched one would.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Memory {
    /// Relative to the directory of the files.
    files: Vec<RelPath>,
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
points = ["**"]
every_n_batches = 5
max_batches = 3
stages = ["train", "validate"]
max_bytes = "1 GB"
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
            directory: None,
            memory: Memory::default(),
        })
    }

    /// What is kept in memory, in the order in which it was shown.
    pub fn stored(&self) -> impl Iterator<Item = StoredActivation<'_>> {
        self.in_memory.iter().flat_map(StoredBatch::iter)
    }

    /// The files that were written, in the order of their batches.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let directory = self.directory.as_deref().unwrap_or(Path::new(""));
        self.memory.files.iter().map(|file| file.below(directory)).collect()
    }

    /// How many bytes are kept: of values in memory, or of files.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.memory.bytes
    }

    /// Whether a batch is one to keep.
    fn is_due(&self, moment: &Moment<'_>, batch: &Batch<'_>) -> bool {
        let number = if moment.phase == Phase::Train { moment.total_batches } else { batch.index + 1 };
        let enough = self.options.max_batches.is_some_and(|most| self.memory.batches >= most);
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

    /// Where the files go. What several runs share has a directory for each, so that none overwrites another's.
    fn directory(&self, moment: &Moment<'_>) -> HookResult<Option<PathBuf>> {
        let dir = &self.options.dir;
        let place = output_path::resolve(moment.run, dir)?;
        Ok(place.map(|place| if dir.is_absolute() { place.join(&moment.run.id) } else { place }))
    }

    /// Whether what it keeps can go anywhere; where not, that is said.
    fn has_a_place(&mut self, moment: &Moment<'_>) -> bool {
        let is_file = self.options.to == ActivationTarget::Safetensors;
        // A wrong place is told when the batch is written.
        let nowhere = is_file && matches!(self.directory(moment), Ok(None));
        if nowhere && !std::mem::replace(&mut self.memory.said, true) && !moment.run.fast_dev_run {
            moment.say(
                "this call has no run directory, so no activations are written; set `dir` to a path that begins \
                 with \"/\"",
            );
        }
        !nowhere
    }

    fn end(&mut self, moment: &Moment<'_>) -> HookResult {
        let Some(batch) = self.current.take().filter(|batch| batch.place.is_at(moment)) else {
            return Ok(());
        };
        self.points.say_what_matches_nothing(moment);
        if batch.is_empty() { Ok(()) } else { self.keep(moment, batch) }
    }

    fn room(&self) -> u64 {
        self.options.max_bytes.0.saturating_sub(self.memory.bytes)
    }

    fn keep(&mut self, moment: &Moment<'_>, batch: StoredBatch) -> HookResult {
        if !batch.is_whole {
            return Err(self.no_room(&batch.place, batch.bytes).into());
        }
        match self.options.to {
            ActivationTarget::Memory => {
                self.memory.bytes = self.memory.bytes.saturating_add(batch.bytes);
                self.in_memory.push(batch);
            }
            ActivationTarget::Safetensors => {
                let Some(directory) = self.directory(moment)? else { return Ok(()) };
                let place = batch.place.clone();
                let file = TensorFile::new(&place.metadata(&moment.run.id), batch.into_bytes())?;
                if file.size() > self.room() {
                    return Err(self.no_room(&place, file.size()).into());
                }
                self.write(&directory, &place, &file)?;
                self.memory.bytes = self.memory.bytes.saturating_add(file.size());
            }
        }
        self.memory.batches = self.memory.batches.saturating_add(1);
        if self.options.max_batches == Some(self.memory.batches) {
            moment.say(format!(
                "`max_batches` is {}, and so many are kept; no more will be",
                self.memory.batches
            ));
        }
        Ok(())
    }

    fn write(&mut self, directory: &Path, place: &Place, file: &TensorFile) -> HookResult {
        let name = place.file_name();
        let before = self.memory.named.entry(name.clone()).or_default();
        let version = if *before == 0 { String::new() } else { format!("-v{before}") };
        *before = before.saturating_add(1);
        let name = RelPath::new(format!("{name}{version}.safetensors"))?;
        let path = name.below(directory);
        let written = fs::create_dir_all(directory).and_then(|()| file.write(&path));
        written.map_err(|error| {
            let full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
            let fix = if full { "make room, or choose another `dir`" } else { "choose another `dir`" };
            format!("cannot write {}: {error}; {fix}", path.display())
        })?;
        self.memory.files.push(name);
        self.directory = Some(directory.to_owned());
        Ok(())
    }

    /// Why a batch is not kept.
    fn no_room(&self, place: &Place, needed: u64) -> String {
        let Place { phase, epoch, batch, loader, .. } = place;
        format!(
            "`max_bytes` is {}: batch {batch} of `{loader}` ({phase}, {}) needs {}, with {} stored \
             already; nothing of it is kept. Raise `max_bytes`, or keep less by `points`, `every_n_batches` or \
             `max_batches`",
            bytes(self.options.max_bytes.0),
            tenterhook_core::epoch_label(*epoch, None),
            bytes(needed),
            bytes(self.memory.bytes),
        )
    }
}

/// So many bytes, exactly.
fn bytes(number: u64) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} byte{plural}", count(number))
}

#[hook(state = "memory")]
impl Observer for ActivationStore {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        // Where one batch finds no room, the next will not either.
        let spec = spec
            .tier(Tier::BuiltIn)
            .policy(Policy { max_failures: 1, ..Policy::DISABLE })
            .idle(stages::idle(&self.options.stages));
        let ActivationStoreOptions { stages, to, dir, every_n_batches, .. } = &self.options;
        let mut spec = spec;
        if *to == ActivationTarget::Safetensors {
            spec = output_path::declare(spec, "dir", dir);
        }
        if stages.as_slice() == [ActivationStage::Train] {
            spec = spec.needs("every_n_batches", Cadence::Batches(*every_n_batches));
        } else if !stages.contains(&ActivationStage::Train) {
            // In no step of training, so nothing is prepared for it there.
            spec = spec.paced(Cadence::Steps(u64::MAX));
        }
        spec
    }

    fn wants_point(&self, point: &str) -> bool {
        self.points.want(point)
    }

    fn listens(&self, phase: Phase, progress: &Progress) -> bool {
        self.current.as_ref().is_some_and(|batch| batch.place.is_in(phase, progress))
    }

    fn on_activation(&mut self, cx: &Activation) -> HookResult {
        let room = self.room();
        if let Some(batch) = self.current.as_mut().filter(|batch| batch.place.is_at(cx)) {
            for tensor in cx.values.iter() {
                batch.add(cx.point, &tensor, room);
            }
        }
        Ok(())
    }

    fn on_train_batch_start(&mut self, cx: &TrainBatchStart) -> HookResult {
        self.begin(cx, &cx.batch);
        Ok(())
    }

    fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
        self.end(cx)
    }

    fn on_validation_batch_start(&mut self, cx: &ValidationBatchStart) -> HookResult {
        self.begin(cx, &cx.batch);
        Ok(())
    }

    fn on_validation_batch_end(&mut self, cx: &ValidationBatchEnd) -> HookResult {
        self.end(cx)
    }

    fn on_test_batch_start(&mut self, cx: &TestBatchStart) -> HookResult {
        self.begin(cx, &cx.batch);
        Ok(())
    }

    fn on_test_batch_end(&mut self, cx: &TestBatchEnd) -> HookResult {
        self.end(cx)
    }

    fn on_predict_batch_start(&mut self, cx: &PredictBatchStart) -> HookResult {
        self.begin(cx, &cx.batch);
        Ok(())
    }

    fn on_predict_batch_end(&mut self, cx: &PredictBatchEnd) -> HookResult {
        self.end(cx)
    }
}
