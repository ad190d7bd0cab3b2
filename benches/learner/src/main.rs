//! The same training with Burn's `Learner` or with tenterhook's trainer, for `cargo bench -- learner`.
//!
//! ```text
//! learner-bench learner gpt     prints the seconds per step and the peak memory as JSON
//! learner-bench trainer gpt
//! learner-bench trainer gpt 3   runs 3 steps, to count instructions
//! ```
//!
//! Both train on the same batches in memory, without metrics, checkpoints, output, logs and validation.

#[allow(dead_code)]
#[path = "../../../crates/tenterhook-cli/benches/suite/workload.rs"]
mod workload;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::RefCell;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::module::Module;
use burn::tensor::{Device, ExecutionError, Tensor};
use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::MetricDefinition;
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};
use burn::train::{
    InferenceStep, ItemLazy, Learner, LearnerModel, SupervisedTraining, TrainOutput, TrainStep,
};
use tenterhook::Trainer;
use tenterhook_tasks::digits::model::Classifier;
use tenterhook_tasks::text::model::Gpt;
use workload::{BuiltInCnn, BuiltInGpt, Layers, Source, Span, Tiny, Watch, Workload};

/// The allocator of `tenter`, with the current and the peak number of bytes in use.
struct Counting(mimalloc::MiMalloc);

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn allocated(bytes: usize) {
    let in_use = IN_USE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(in_use, Relaxed);
}

// Safety: all calls are forwarded unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        unsafe { self.0.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        unsafe { self.0.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        unsafe { self.0.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        allocated(size);
        IN_USE.fetch_sub(layout.size(), Relaxed);
        unsafe { self.0.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting(mimalloc::MiMalloc);

/// The output of a step: its loss.
struct StepOutput {
    loss: Tensor<1>,
}

impl ItemLazy for StepOutput {
    fn sync(self) -> Result<Self, ExecutionError> {
        self.loss.device().flush()?;
        Ok(StepOutput { loss: self.loss.without_autodiff() })
    }
}

/// A model that implements the traits of the `Learner`.
trait Learned: LearnerModel + TrainStep<Input = <Self::Of as Workload>::Batch> {
    type Of: Workload;
    fn of(model: <Self::Of as Workload>::Model) -> Self;
}

macro_rules! learned {
    ($Name:ident, $Workload:ty, $Model:ty) => {
        #[derive(Module, Debug)]
        struct $Name {
            model: $Model,
        }

        impl Learned for $Name {
            type Of = $Workload;
            fn of(model: $Model) -> Self {
                Self { model }
            }
        }

        impl TrainStep for $Name {
            type Input = <$Workload as Workload>::Batch;
            type Output = StepOutput;
            fn step(&self, batch: Self::Input) -> TrainOutput<StepOutput> {
                let loss = <$Workload>::loss(&self.model, &batch);
                TrainOutput::new(self, loss.backward(), StepOutput { loss })
            }
        }

        impl InferenceStep for $Name {
            type Input = <$Workload as Workload>::Batch;
            type Output = StepOutput;
            fn step(&self, batch: Self::Input) -> StepOutput {
                StepOutput { loss: <$Workload>::loss(&self.model, &batch) }
            }
        }
    };
}

learned!(LearnedTiny, Tiny, Layers);
learned!(LearnedGpt, BuiltInGpt, Gpt);
learned!(LearnedCnn, BuiltInCnn, Classifier);

thread_local! {
    /// Start and end of the training. Thread-local, because the loaders of the `Learner` must be `Sync` and a watch is not.
    static TIMED: RefCell<Option<std::rc::Rc<Watch>>> = const { RefCell::new(None) };
}

/// The data loader for the `Learner`. It is empty without a span.
struct MemoryLoader<B> {
    batches: Arc<Mutex<Vec<B>>>,
    span: Option<Span>,
}

struct MemoryIter<B> {
    source: Source<B>,
    left: u64,
}

impl<B: Clone> Iterator for MemoryIter<B> {
    type Item = Result<B, DatasetError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        Some(Ok(self.source.give()))
    }
}

impl<B: Clone> DataLoaderIterator<B> for MemoryIter<B> {
    fn progress(&self) -> Progress {
        Progress::new(0, usize::MAX, None)
    }
}

impl<B: Clone + Send + 'static> DataLoader<B> for MemoryLoader<B> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<B> + 'a> {
        let span = self.span.unwrap_or(Span::of(0));
        let batches = self.batches.lock().map(|batches| batches.clone()).unwrap_or_default();
        let (source, watch) = Source::new(batches, span);
        let left = if self.span.is_some() { span.steps } else { 0 };
        if self.span.is_some() {
            TIMED.replace(Some(watch));
        }
        Box::new(MemoryIter { source, left })
    }
    fn num_items(&self) -> usize {
        self.span.map_or(0, |span| usize::try_from(span.steps).unwrap_or(usize::MAX))
    }
    fn to_device(&self, _: &Device) -> Arc<dyn DataLoader<B>> {
        Arc::new(MemoryLoader { batches: self.batches.clone(), span: self.span })
    }
    fn slice(&self, _: usize, _: usize) -> Arc<dyn DataLoader<B>> {
        Arc::new(MemoryLoader { batches: self.batches.clone(), span: self.span })
    }
}

/// A renderer without output.
struct Silent;

impl MetricsRendererTraining for Silent {
    fn update_train(&mut self, _: MetricState) {}
    fn update_valid(&mut self, _: MetricState) {}
}
impl MetricsRendererEvaluation for Silent {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}
}
impl TrainingProgressLogger for Silent {
    fn start(&mut self, _: usize, _: usize, _: Option<usize>, _: Option<&str>) {}
    fn update_epoch(&mut self, _: usize) {}
    fn start_split(&mut self, _: &str, _: usize) {}
    fn update_split(&mut self, _: usize) {}
    fn end_split(&mut self) {}
    fn end(&mut self) {}
    fn log_event_training(&mut self, _: String) {}
}
impl EvaluationProgressLogger for Silent {
    fn start_global_progress(&mut self, _: usize) {}
    fn start_test(&mut self, _: &str, _: usize) {}
    fn update_test_progress(&mut self, _: usize) {}
    fn end_test(&mut self) {}
    fn end_global_progress(&mut self) {}
    fn log_event_evaluation(&mut self, _: String) {}
}
impl MetricsRenderer for Silent {
    fn manual_close(&mut self) {}
    fn register_metric(&mut self, _: MetricDefinition) {}
}

/// Trains with the `Learner` and returns the seconds per step.
fn learn<L>(span: Span) -> Result<f64, Box<dyn Error>>
where
    L: Learned + InferenceStep<Input = <<L as Learned>::Of as Workload>::Batch>,
    <L::Of as Workload>::Batch: Send,
{
    let device = Device::flex();
    device.seed(0);
    let files = tempfile::tempdir()?;
    let model = L::of(L::Of::model(&device.clone().autodiff()));
    let batches = Arc::new(Mutex::new(L::Of::batches(&device)));
    let loader = |span| Arc::new(MemoryLoader { batches: batches.clone(), span });
    let training = SupervisedTraining::<L>::new(files.path(), loader(Some(span)), loader(None))
        .renderer(Box::new(Silent))
        .with_application_logger(None)
        .num_epochs(1);
    let learned = training.launch(Learner::new(model, L::Of::burns_optimizer(), L::Of::LR));
    if let Some(error) = learned.error {
        return Err(error.to_string().into());
    }
    let watch = TIMED.take().ok_or("it did not train on this thread")?;
    Ok(watch.seconds_per_step(span))
}

fn train<W: Workload>(span: Span) -> Result<f64, Box<dyn Error>> {
    workload::trained::<W>(span, &mut Trainer::new(workload::settings(span))?.without_introduction())
}

/// The peak resident memory of this process, in kibibytes.
fn resident_kib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    Ok(peak.ok_or("/proc/self/status has no VmHWM")?.parse()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let mut words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (mut tiny, mut cnn, mut gpt) = (Span::timed(5000, 500), Span::timed(200, 20), Span::timed(20, 4));
    if words.len() == 3 {
        let steps = Span::of(words.remove(2).parse()?);
        (tiny, cnn, gpt) = (steps, steps, steps);
    }
    let seconds_per_step = match words[..] {
        ["learner", "tiny"] => learn::<LearnedTiny>(tiny)?,
        ["learner", "cnn"] => learn::<LearnedCnn>(cnn)?,
        ["learner", "gpt"] => learn::<LearnedGpt>(gpt)?,
        ["trainer", "tiny"] => train::<Tiny>(tiny)?,
        ["trainer", "cnn"] => train::<BuiltInCnn>(cnn)?,
        ["trainer", "gpt"] => train::<BuiltInGpt>(gpt)?,
        _ => return Err("`learner` or `trainer`, and `tiny`, `cnn` or `gpt`".into()),
    };
    println!(
        "{}",
        serde_json::json!({
            "seconds_per_step": seconds_per_step, "resident_kib": resident_kib()?, "in_use_kib": PEAK.load(Relaxed) / 1024,
        })
    );
    Ok(())
}
