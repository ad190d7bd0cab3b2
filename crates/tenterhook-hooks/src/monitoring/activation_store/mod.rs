//! Stores activations of selected hook points and batches, in memory or as safetensors files.

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
    Activation, Batch, Cadence, HookResult, HookSpec, Observer, OptionError, Phase, Policy, PredictBatchEnd,
    PredictBatchStart, Progress, RunContext, TestBatchEnd, TestBatchStart, Tier, TrainBatchEnd,
    TrainBatchStart, ValidationBatchEnd, ValidationBatchStart, hook,
};
use tenterhook_files::RelPath;

pub use options::{ActivationStoreOptions, ActivationTarget};
pub use stored::StoredActivation;
use stored::{BatchPosition, StoredBatch};

use crate::support::activation_stage::{self, ActivationStage};
use crate::support::from_options;
use crate::support::output_path;
use crate::support::point_filter::PointFilter;
use crate::support::tensor_file::TensorFile;
use crate::support::text::count;

/// Stores the activations of selected hook points and batches for later analysis.
///
/// - **Fires** at `on_activation` in the stored batches, and at the start and end of the batches of its `stages`; never in
///   a sanity check. At the end of the first stored batch it reports `points` that match nothing.
/// - **Reads** the stored activations. **Writes** with `to = "safetensors"` one file per batch, atomically, at the end of
///   the batch: `activations/train-00000012.safetensors` is the twelfth training batch, counted over all epochs, and
///   `activations/validate-00000040-0-00000003.safetensors` is batch 3 of loader 0 after step 40. Tensors are named by
///   their hook points; if a point occurs again in a batch, the name gets a number: `name#2`. The metadata holds `run`,
///   `phase`, `step`, `epoch`, `batch`, `total_batches`, `loader` and `loader_index` as strings. Values are 32-bit floats,
///   whatever the engine's precision. A file of the same batch from an earlier call is overwritten; one from this hook is
///   kept, and the new one ends in `-v1`. Below an absolute `dir` each run has a directory named by its id. A dry run and
///   an evaluation without a run directory write nothing. With `to = "memory"` the training program reads them from
///   `trainer.hook::<ActivationStore>("activation_store")` by [`stored`](ActivationStore::stored). A checkpoint holds only
///   the counts, so that a resumed run stores the same batches.
/// - **Cost**: a copy of each stored activation, and writing a file. Other batches and points are not read.
/// - **When it fails** it is disabled at once; training continues. It fails before exceeding `max_bytes` (of values in
///   memory, or of files on disk): nothing of that batch is stored, earlier batches are kept.
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
    points: PointFilter,
    /// The current batch, if it is being stored.
    current: Option<StoredBatch>,
    in_memory: Vec<StoredBatch>,
    /// The directory of the files, once one is written.
    directory: Option<PathBuf>,
    state: SavedState,
}

/// State saved in checkpoints: the counts, so that a resumed run stores the same batches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SavedState {
    /// Relative to the directory of the files.
    files: Vec<RelPath>,
    /// The number of files of each name.
    named: BTreeMap<String, u64>,
    batches: u64,
    bytes: u64,
    /// The missing run directory was reported.
    reported: bool,
}

from_options! {
    ActivationStore from ActivationStoreOptions,
    purpose: "stores activations of selected hook points and batches, in memory or as safetensors",
    example: r#"
points = ["**"]
every_n_batches = 5
max_batches = 3
stages = ["train", "validate"]
max_bytes = "1 GB"
"#
}

impl ActivationStore {
    /// Creates the hook, or reports an invalid option.
    pub fn new(options: ActivationStoreOptions) -> Result<ActivationStore, OptionError> {
        Ok(ActivationStore {
            points: options.check()?,
            options,
            current: None,
            in_memory: Vec::new(),
            directory: None,
            state: SavedState::default(),
        })
    }

    /// The activations stored in memory, in order of occurrence.
    pub fn stored(&self) -> impl Iterator<Item = StoredActivation<'_>> {
        self.in_memory.iter().flat_map(StoredBatch::iter)
    }

    /// The written files, in the order of their batches.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let directory = self.directory.as_deref().unwrap_or(Path::new(""));
        self.state.files.iter().map(|file| file.below(directory)).collect()
    }

    /// The number of stored bytes: of values in memory, or of files.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.state.bytes
    }

    /// Whether a batch is to be stored.
    fn is_due(&self, run_cx: &RunContext<'_>, batch: &Batch<'_>) -> bool {
        let number = if run_cx.phase == Phase::Train { run_cx.total_batches } else { batch.index + 1 };
        let enough = self.options.max_batches.is_some_and(|most| self.state.batches >= most);
        ActivationStage::of(run_cx.phase, &self.options.stages).is_some()
            && number.is_multiple_of(self.options.every_n_batches)
            && !enough
    }

    fn begin(&mut self, run_cx: &RunContext<'_>, batch: &Batch<'_>) {
        self.current = None;
        if self.is_due(run_cx, batch) && self.has_target(run_cx) {
            self.current = Some(StoredBatch::new(BatchPosition::of(run_cx, batch)));
        }
    }

    /// The directory of the files. Runs that share an absolute `dir` have a directory each.
    fn directory(&self, run_cx: &RunContext<'_>) -> HookResult<Option<PathBuf>> {
        let dir = &self.options.dir;
        let place = output_path::resolve(run_cx.run, dir)?;
        Ok(place.map(|place| if dir.is_absolute() { place.join(&run_cx.run.id) } else { place }))
    }

    /// Whether there is a directory to write to; if not, reports it.
    fn has_target(&mut self, run_cx: &RunContext<'_>) -> bool {
        let is_file = self.options.to == ActivationTarget::Safetensors;
        // An invalid directory is an error when the batch is written.
        let nowhere = is_file && matches!(self.directory(run_cx), Ok(None));
        if nowhere && !std::mem::replace(&mut self.state.reported, true) && !run_cx.run.fast_dev_run {
            run_cx.say(
                "this call has no run directory, so no activations are written; set `dir` to a path that begins \
                 with \"/\"",
            );
        }
        !nowhere
    }

    fn end(&mut self, run_cx: &RunContext<'_>) -> HookResult {
        let Some(batch) = self.current.take().filter(|batch| batch.position.is_at(run_cx)) else {
            return Ok(());
        };
        self.points.report_unmatched(run_cx);
        if batch.is_empty() { Ok(()) } else { self.store(run_cx, batch) }
    }

    fn room(&self) -> u64 {
        self.options.max_bytes.0.saturating_sub(self.state.bytes)
    }

    fn store(&mut self, run_cx: &RunContext<'_>, batch: StoredBatch) -> HookResult {
        if !batch.is_complete {
            return Err(self.no_room(&batch.position, batch.bytes).into());
        }
        match self.options.to {
            ActivationTarget::Memory => {
                self.state.bytes = self.state.bytes.saturating_add(batch.bytes);
                self.in_memory.push(batch);
            }
            ActivationTarget::Safetensors => {
                let Some(directory) = self.directory(run_cx)? else { return Ok(()) };
                let position = batch.position.clone();
                let file = TensorFile::new(&position.metadata(&run_cx.run.id), batch.into_bytes())?;
                if file.size() > self.room() {
                    return Err(self.no_room(&position, file.size()).into());
                }
                self.write(&directory, &position, &file)?;
                self.state.bytes = self.state.bytes.saturating_add(file.size());
            }
        }
        self.state.batches = self.state.batches.saturating_add(1);
        if self.options.max_batches == Some(self.state.batches) {
            run_cx.say(format!("`max_batches` is {}; no further batches are stored", self.state.batches));
        }
        Ok(())
    }

    fn write(&mut self, directory: &Path, position: &BatchPosition, file: &TensorFile) -> HookResult {
        let name = position.file_name();
        let before = self.state.named.entry(name.clone()).or_default();
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
        self.state.files.push(name);
        self.directory = Some(directory.to_owned());
        Ok(())
    }

    /// The error for a batch that exceeds `max_bytes`.
    fn no_room(&self, position: &BatchPosition, needed: u64) -> String {
        let BatchPosition { phase, epoch, batch, loader, .. } = position;
        format!(
            "`max_bytes` is {}: batch {batch} of `{loader}` ({phase}, {}) needs {}, with {} stored \
             already; nothing of it is stored. Raise `max_bytes`, or store less by `points`, `every_n_batches` or \
             `max_batches`",
            bytes(self.options.max_bytes.0),
            tenterhook_core::epoch_label(*epoch, None),
            bytes(needed),
            bytes(self.state.bytes),
        )
    }
}

/// An exact number of bytes.
fn bytes(number: u64) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} byte{plural}", count(number))
}

#[hook(state = "state", version = 2)]
impl Observer for ActivationStore {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        // If one batch exceeds the limit, the next does too.
        let spec = spec
            .tier(Tier::BuiltIn)
            .policy(Policy { max_failures: 1, ..Policy::DISABLE })
            .without_events(activation_stage::unused_events(&self.options.stages));
        let ActivationStoreOptions { stages, to, dir, every_n_batches, .. } = &self.options;
        let mut spec = spec;
        if *to == ActivationTarget::Safetensors {
            spec = output_path::declare(spec, "dir", dir);
        }
        if stages.as_slice() == [ActivationStage::Train] {
            spec = spec.min_run_length("every_n_batches", Cadence::Batches(*every_n_batches));
        } else if !stages.contains(&ActivationStage::Train) {
            // Disables the hook in training, so that no activations are prepared there.
            spec = spec.throttle(Cadence::Steps(u64::MAX));
        }
        spec
    }

    fn wants_point(&self, point: &str) -> bool {
        self.points.matches(point)
    }

    fn wants_activations(&self, phase: Phase, progress: &Progress) -> bool {
        self.current.as_ref().is_some_and(|batch| batch.position.is_in(phase, progress))
    }

    fn on_activation(&mut self, cx: &Activation) -> HookResult {
        let room = self.room();
        if let Some(batch) = self.current.as_mut().filter(|batch| batch.position.is_at(cx)) {
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
