//! Observers do not change training, even if the engine draws random numbers: a language model with dropout
//! ends with the same bits with and without them.

use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Device, Distribution, Tensor};
use tenterhook::module::OptimizerState;
use tenterhook::registry::Registry;
use tenterhook::run::{MetricsLine, Recorder};
use tenterhook::settings::BatchLimit;
use tenterhook::task::{BuildContext, Task};
use tenterhook::{AnyHook, BoxError, HookExt, Module, RunNotice, Settings, TensorMap, Trainer, closure};
use tenterhook_tasks::LoaderOptions;
use tenterhook_tasks::text::model::GptOptions;
use tenterhook_tasks::text::{Text, TextTaskOptions};

/// Serializes the tests: the device has one random generator for the whole process, and every training step
/// seeds it.
static ALONE: Mutex<()> = Mutex::new(());

/// The result of a run, to the bit.
#[derive(Debug, PartialEq)]
struct Ended {
    weights: TensorMap,
    optimizers: OptimizerState,
    /// Step, name and bits of the metrics that the model and the trainer log.
    losses: Vec<(u64, String, u64)>,
}

#[derive(Clone, Default)]
struct Losses(Arc<Mutex<Vec<(u64, String, u64)>>>);

impl Losses {
    fn take(&self) -> Vec<(u64, String, u64)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Recorder for Losses {
    fn metrics(&mut self, line: &MetricsLine<'_>) -> Result<(), BoxError> {
        let of_training = ["train/loss", "val/loss", "val/perplexity"];
        let logged = line.metrics.iter().filter(|(name, _)| of_training.contains(&name.as_str()));
        let logged = logged.map(|(name, value)| (line.step, name.clone(), value.to_bits()));
        self.0.lock().unwrap().extend(logged);
        Ok(())
    }
}

/// Six steps of a small language model with dropout 0.1, and a validation after every third.
fn train(observers: Vec<AnyHook>) -> Ended {
    let options = TextTaskOptions {
        model: GptOptions { context: 8, layers: 2, heads: 2, width: 16, dropout: 0.1 },
        loader: LoaderOptions { batch_size: 4, threads: 0, ..LoaderOptions::default() },
        ..TextTaskOptions::default()
    };
    let settings = Settings {
        max_epochs: Some(2),
        limit_train_batches: Some(BatchLimit::Count(6)),
        limit_val_batches: Some(BatchLimit::Count(2)),
        accumulate_grad_batches: 2,
        gradient_clip_val: Some(0.5),
        log_every_n_steps: 1,
        seed: 3,
        ..Settings::default()
    };
    let build = BuildContext { device: "cpu", seed: 3, registry: &Registry::default(), allow_large: false };
    let (mut module, mut data) = Text.build(options, &build).unwrap();
    let (root, losses) = (tempfile::tempdir().unwrap(), Losses::default());
    let trainer = Trainer::new(settings)
        .unwrap()
        .with_notices(|_| {})
        .without_run_header()
        .with_recorder(losses.clone());
    let mut trainer = trainer.with_checkpoints_in(root.path().join("checkpoints"));
    for hook in observers {
        trainer.add_hook(hook).unwrap();
    }
    let report = trainer.fit(&mut module, &mut data).unwrap();
    let failed = report.notices.iter().find(|notice| matches!(notice, RunNotice::Contained(_)));
    assert!(failed.is_none(), "{}", failed.unwrap());
    assert_eq!(report.progress.step, 6);
    let (weights, optimizers) = (module.weights().unwrap(), module.optimizer_state().unwrap());
    Ended { weights, optimizers, losses: losses.take() }
}

/// The built-in hooks that cannot change training, at every step, batch and point.
fn built_in() -> Vec<AnyHook> {
    let registry = Registry::default();
    let eager = |name: &str| {
        let listed = registry.hook_named(name).unwrap();
        let mut options: toml::Table = listed.example.unwrap_or_default().parse().unwrap();
        let every = "log_every_n_batches = 1\nlog_every_n_epochs = 1\nlog_frequency = 1\nevery_n_steps = 1\n\
                     frequency = \"step\"\nhistogram_every_n_steps = 1\nparam_filter = [\"**\"]\npoints = [\"**\"]\nskip_first_batches = 0\n\
                     window = 2\n";
        let every: toml::Table = every.parse().unwrap();
        options.extend(every.into_iter().filter(|(key, _)| listed.options().contains(&key.as_str())));
        registry.hook(name, &options).unwrap()
    };
    // Hooks that need servers or processes are tested elsewhere.
    let outside = ["notify", "heartbeat", "upload", "exec"];
    let inside = registry.hooks().filter(|listed| !outside.contains(&listed.name));
    inside.map(|listed| eager(listed.name)).filter(|hook| !hook.kind().steers()).collect()
}

/// Observers that read everything, draw from their own streams, and log.
fn own(points: &Arc<Mutex<Vec<String>>>) -> Vec<AnyHook> {
    let points = points.clone();
    let every_point = closure::on_activation("every_point", move |cx| {
        let (stats, values) = (cx.tensor().stats(), cx.tensor().to_vec());
        assert_eq!(values.len(), cx.tensor().shape().iter().product::<usize>());
        cx.log(&format!("seen/{}", cx.point), stats.std + cx.rng().uniform());
        cx.log_histogram(&format!("seen/{}", cx.point), cx.tensor().histogram(8));
        points.lock().unwrap().push(cx.point.to_owned());
    });
    let gradients = closure::on_after_backward("gradients", |cx| {
        let values: f32 = cx.gradients.iter().flat_map(|gradient| gradient.to_vec()).sum();
        cx.log("sum", f64::from(values) + cx.loss.value());
    });
    let states = closure::on_step_end("states", |cx| {
        let optimizers = cx.optimizers();
        let of = |index| tenterhook::Tensors::new(optimizers.state(index)).norm();
        cx.log("states", (0..optimizers.count()).map(of).sum::<f64>() + cx.params().norm());
    });
    let sampled = closure::on_before_forward("sampled", |cx| cx.log("drawn", cx.rng().uniform()));
    vec![every_point.into(), gradients.into(), states.into(), sampled.sampled(0.5).into()]
}

#[test]
fn observers_do_not_change_the_training_of_a_model_with_dropout() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let alone = train(Vec::new());
    assert!(alone.losses.len() >= 6 && !alone.optimizers.tensors.is_empty());
    assert_eq!(train(Vec::new()), alone, "it is the same every time");

    let points = Arc::default();
    assert_eq!(train(own(&points)), alone);
    let seen = points.lock().unwrap().clone();
    for point in ["blocks.0", "blocks.1", "attn.pattern", "mlp", "logits"] {
        assert!(seen.iter().any(|seen| seen.contains(point)), "{point} among {seen:?}");
    }
    assert_eq!(train(built_in()), alone);
    let together = || built_in().into_iter().chain(own(&points));
    assert_eq!(train(together().collect()), alone);
    let mut backwards: Vec<_> = together().collect();
    backwards.reverse();
    assert_eq!(train(backwards), alone);
}

#[test]
fn drawing_from_the_engines_generator_within_a_step_is_detected() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let alone = train(Vec::new());
    let draw = || drop(Tensor::<1>::random([3], Distribution::Default, &Device::flex()).into_data());
    let intrusive = closure::on_activation("intrusive", move |_| draw());
    let disturbed = train(vec![intrusive.into()]);
    assert_ne!(disturbed.weights, alone.weights);
    assert_ne!(disturbed.losses, alone.losses);
    // Drawing between steps is harmless, because every step sets its own seed.
    let harmless = closure::on_train_batch_end("harmless", move |_| draw());
    assert_eq!(train(vec![harmless.into()]), alone);
}
