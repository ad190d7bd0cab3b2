//! The hook `nan_guard` in real training.

use std::path::Path;
use std::process::Command;

use tenterhook::data::Loaders;
use tenterhook::hooks::{Checkpoint, CheckpointOptions, NanAction, NanGuard, NanGuardOptions};
use tenterhook::toy::{Toy, ToyBatch, ToyData};
use tenterhook::{
    BoxError, DataModule, Decision, Loader, Outcome, Report, RunError, RunNotice, Settings, Split, TensorMap,
    Trainer, closure,
};

use crate::lab::{bits, data, epochs, trainer};
use crate::run_directory::{latest, recorded};

/// The toy's data, with a NaN in these training batches of every epoch.
struct Poisoned {
    data: ToyData,
    batches: Vec<u64>,
}

fn poisoned(train: u64, batches: &[u64]) -> Poisoned {
    Poisoned { data: data(train, 1), batches: batches.to_vec() }
}

impl DataModule<ToyBatch> for Poisoned {
    fn loaders(&mut self, split: Split) -> Result<Loaders<ToyBatch>, BoxError> {
        let batches = if split == Split::Train { self.batches.clone() } else { Vec::new() };
        let loaders = self.data.loaders(split)?.into_iter();
        let poison =
            |inner| Box::new(Poison { inner, next: 0, batches: batches.clone() }) as Box<dyn Loader<_>>;
        Ok(loaders.map(poison).collect())
    }
}

struct Poison {
    inner: Box<dyn Loader<ToyBatch>>,
    next: u64,
    batches: Vec<u64>,
}

impl Loader<ToyBatch> for Poison {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn batches(&self) -> Option<u64> {
        self.inner.batches()
    }
    fn seek(&mut self, epoch: u64, batch: u64, shuffled: bool) -> Result<(), BoxError> {
        self.next = batch;
        self.inner.seek(epoch, batch, shuffled)
    }
    fn next(&mut self) -> Result<Option<ToyBatch>, BoxError> {
        self.next += 1;
        let batch = self.inner.next()?;
        Ok(batch.map(|batch| {
            let spoiled = || ToyBatch::of(vec![([0.5, 1.0], 2.0), ([1.0, -1.0], f32::NAN)]);
            if self.batches.contains(&(self.next - 1)) { spoiled() } else { batch }
        }))
    }
}

fn guard(options: NanGuardOptions) -> NanGuard {
    NanGuard::new(options).unwrap()
}

fn acting(action: NanAction) -> NanGuardOptions {
    NanGuardOptions { action, dump: false, ..NanGuardOptions::default() }
}

fn said(report: &Report) -> Vec<&str> {
    let said = |notice: &'_ RunNotice| matches!(notice, RunNotice::Said { .. });
    let texts = report.notices.iter().filter(|notice| said(notice));
    texts
        .filter_map(
            |notice| if let RunNotice::Said { text, .. } = notice { Some(text.as_str()) } else { None },
        )
        .collect()
}

#[test]
fn with_finite_values_training_is_bit_identical() {
    let run = |with_guard: bool| {
        let mut trainer = trainer(Settings { accumulate_grad_batches: 2, ..epochs(2) });
        if with_guard {
            trainer
                .add_hook(guard(NanGuardOptions { log_shapes: true, ..NanGuardOptions::default() }))
                .unwrap();
        }
        let mut toy = Toy::new(2);
        let report = trainer.fit(&mut toy, &mut data(5, 2)).unwrap();
        (bits(&toy), report.progress, report.metrics)
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn skip_equals_training_without_the_poisoned_batches() {
    let mut guarded = Toy::default();
    let mut trainer = trainer(epochs(2));
    trainer.add_hook(guard(acting(NanAction::Skip))).unwrap();
    let report = trainer.fit(&mut guarded, &mut poisoned(6, &[2, 3])).unwrap();
    let mut without = Toy::default();
    let mut trainer = crate::lab::trainer(epochs(2));
    let left_out =
        |batch: u64| if batch == 2 || batch == 3 { Decision::skip_batch() } else { Decision::CONTINUE };
    trainer.add_hook(closure::on_train_batch_start("skip", move |cx| left_out(cx.batch.index))).unwrap();
    trainer.fit(&mut without, &mut data(6, 1)).unwrap();
    assert_eq!(bits(&guarded), bits(&without));
    assert_eq!(report.progress.step, 8);
    let said = said(&report);
    assert_eq!(said.len(), 6, "{said:?}");
    assert_eq!(
        said[0],
        "step 3 (epoch 1, batch 2 of `train0`): the loss is NaN; values are not finite in the gradient of \
         `weight` (2 of 2), `bias` (1 of 1); the last good step was 2; the update was skipped"
    );
    assert!(said[1].contains("2 consecutive non-finite steps"), "{}", said[1]);
    assert_eq!(said[2], "step 3 is finite again, after 2 non-finite");
}

#[test]
fn with_accumulation_the_whole_window_is_skipped() {
    let settings = || Settings { accumulate_grad_batches: 2, ..epochs(1) };
    let mut guarded = Toy::default();
    let mut trainer = trainer(settings());
    trainer.add_hook(guard(acting(NanAction::Skip))).unwrap();
    let report = trainer.fit(&mut guarded, &mut poisoned(6, &[2])).unwrap();
    assert_eq!(report.progress.step, 2);
    assert_eq!(said(&report).len(), 2, "{:?}", said(&report));
    assert!(guarded.param("bias")[0].is_finite());
}

#[test]
fn warn_lets_the_value_pass() {
    let mut toy = Toy::default();
    let mut trainer = trainer(epochs(1));
    trainer.add_hook(guard(acting(NanAction::Warn))).unwrap();
    let report = trainer.fit(&mut toy, &mut poisoned(4, &[2])).unwrap();
    assert!(toy.param("bias")[0].is_nan());
    assert_eq!((report.progress.step, said(&report).len()), (4, 2));
    assert!(
        said(&report)[1].contains("activation `linear.product` (4 of 4), `prediction` (4 of 4)"),
        "{:?}",
        said(&report)
    );
}

#[test]
fn stop_ends_training_normally_with_the_reason() {
    let mut toy = Toy::default();
    let mut trainer = trainer(epochs(5));
    trainer.add_hook(guard(acting(NanAction::Stop))).unwrap();
    let report = trainer.fit(&mut toy, &mut poisoned(4, &[2])).unwrap();
    let Outcome::Stopped { by, reason } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert_eq!(by, "nan_guard");
    assert!(reason.starts_with("the loss is NaN; values are not finite in the gradient of"), "{reason}");
    assert_eq!(report.progress.step, 2);
    assert!(report.metrics["val/loss"].is_finite(), "validated with good weights");
}

/// A run that fails in its third batch, with its directory below this one.
fn failed(root: &Path) -> (Trainer, Toy, RunError) {
    let mut trainer = recorded(root, epochs(1));
    trainer.add_hook(guard(NanGuardOptions::default())).unwrap();
    let options = CheckpointOptions { save_on_exception: true, ..CheckpointOptions::default() };
    trainer.add_hook(Checkpoint::new(options).unwrap()).unwrap();
    let mut toy = Toy::default();
    let error = trainer.fit(&mut toy, &mut poisoned(4, &[2])).unwrap_err();
    (trainer, toy, error)
}

#[test]
fn raise_fails_the_run_with_finite_weights_and_a_readable_dump() {
    let root = tempfile::tempdir().unwrap();
    let (_, toy, error) = failed(root.path());
    let text = error.to_string();
    assert!(
        text.contains("hook `nan_guard` failed in on_train_batch_end (epoch 1, step 2): batch 2 of `train0`: the loss is NaN"),
        "{text}"
    );
    let mut good = Toy::default();
    trainer(Settings { max_steps: 2, ..epochs(1) }).fit(&mut good, &mut data(4, 0)).unwrap();
    assert_eq!(bits(&toy), bits(&good));

    let directory = latest(root.path());
    let saved = TensorMap::read(&directory.join("checkpoints/epoch=0-step=2/weights.safetensors")).unwrap();
    assert_eq!(saved.f32("bias", &[1]).unwrap(), good.param("bias"), "the emergency checkpoint is good");
    let dump = directory.join("nan_guard/step_3");
    let batch = TensorMap::read(&dump.join("batch.safetensors")).unwrap();
    assert_eq!(batch.f32("x", &[2, 2]).unwrap(), [0.5, 1.0, 1.0, -1.0]);
    assert!(batch.f32("y", &[2]).unwrap()[1].is_nan());
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(dump.join("report.json")).unwrap()).unwrap();
    assert_eq!((report["batch"].as_u64(), report["last_good_step"].as_u64()), (Some(2), Some(2)));
    assert_eq!(report["activations"][1]["name"], "prediction");
    assert_eq!(report["parameters"][0]["non_finite"], 0);
    assert_eq!(report["gradients"][0]["non_finite"], 2);
    let RunError::Failed { report, .. } = error else { panic!("{error}") };
    assert!(said(&report).iter().any(|text| text.contains("safetensors.numpy.load_file(")));
}

/// A Python with `safetensors` and `numpy`, which CI installs.
pub fn python() -> Option<String> {
    let python = std::env::var("TENTERHOOK_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_it = Command::new(&python).args(["-c", "import safetensors.numpy"]).output();
    if has_it.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert!(std::env::var_os("CI").is_none(), "CI must have a Python with safetensors and numpy");
    eprintln!("SKIPPED: there is no Python with safetensors and numpy (name one in TENTERHOOK_PYTHON)");
    None
}

#[test]
fn the_reported_python_code_loads_the_dump() {
    let Some(python) = python() else { return };
    let root = tempfile::tempdir().unwrap();
    let (_, _, error) = failed(root.path());
    let RunError::Failed { report, .. } = error else { panic!("{error}") };
    let said = said(&report);
    let lines = said.iter().find_map(|text| text.split_once("in Python:\n")).unwrap().1;
    let check = r#"
assert batch["x"].shape == (2, 2) and batch["x"].dtype == "float32", batch["x"]
assert batch["y"][1] != batch["y"][1]
assert report["found"][0] == {"in": "loss", "value": "nan"}, report["found"]
assert float(report["loss"]) != float(report["loss"])
print("read")
"#;
    let output = Command::new(python).args(["-c", &format!("{lines}\n{check}")]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "read\n", "{stderr}");
}
