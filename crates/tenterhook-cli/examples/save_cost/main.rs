//! The cost of saving ten million parameters with `AdamW`: how long a plain save on the training thread takes, how long a
//! background save blocks training, and how much it slows training down until it is durable.
//!
//! ```text
//! cargo run --release --example save_cost                 in a temporary directory
//! cargo run --release --example save_cost -- --json       print JSON
//! cargo run --release --example save_cost -- --in DIR     on another disk
//! ```
//!
//! It fails if a background save blocks training for more than 1/20 of a plain save, or if blocking and
//! slowdown together take more than 1/5 of it. `--blocked` checks only the first limit, with one training run of
//! each kind, because the slowdown depends on other load on the machine.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::Serialize;
use tenterhook::data::{Batches, DataLoaders};
use tenterhook::prelude::*;
use tenterhook_burn::burn::{
    self,
    module::Module,
    nn::loss::{MseLoss, Reduction},
    nn::{Linear, LinearConfig},
    optim::AdamWConfig,
    tensor::{Device, Tensor, TensorData, activation::relu},
};
use tenterhook_burn::{Burn, BurnCx, BurnModule, Optimizer, Step};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const INPUTS: usize = 1024;
const HIDDEN: usize = 2304;
const BATCH: usize = 32;
/// Steps before anything is measured, steps between saves, and saves of a training run.
const WARM_UP: u64 = 5;
const INTERVAL: u64 = 20;
const SAVES: u64 = 8;
/// Training runs with and without background saves. They alternate, so other load affects both equally.
const ROUNDS: usize = 3;

/// Limits as fractions of a plain save: blocking alone, and with the slowdown of the following steps.
const MAX_BLOCKED: f64 = 1.0 / 20.0;
const MAX_TOTAL: f64 = 1.0 / 5.0;

/// The events of the current training, with their times.
static EVENTS: Mutex<Vec<(Instant, Event)>> = Mutex::new(Vec::new());

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A batch starts.
    BatchStart,
    /// A save is requested.
    SaveRequested,
    /// Training continues after it.
    Continued,
    /// The save is durable.
    Durable,
}

fn events() -> MutexGuard<'static, Vec<(Instant, Event)>> {
    EVENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(what: Event) {
    events().push((Instant::now(), what));
}

#[derive(Module, Debug)]
struct Mlp {
    first: Linear,
    second: Linear,
    third: Linear,
}

struct Pairs {
    x: Tensor<2>,
}

impl BatchData for Pairs {
    fn size(&self) -> usize {
        self.x.dims()[0]
    }
}

impl BurnModule for Mlp {
    type Batch = Pairs;
    type Prediction = ();

    fn training_step(&mut self, batch: &Pairs, _: &mut BurnCx<'_, Mlp>) -> ModuleResult<Step> {
        let hidden = relu(self.second.forward(relu(self.first.forward(batch.x.clone()))));
        Ok(MseLoss::new().forward(self.third.forward(hidden), batch.x.clone(), Reduction::Mean).into())
    }

    /// Runs after all hooks and saves.
    fn on_train_batch_end(&mut self, _: &mut BurnCx<'_, Mlp>) -> ModuleResult {
        let mut events = events();
        if events.last().is_some_and(|(_, what)| *what == Event::SaveRequested) {
            events.push((Instant::now(), Event::Continued));
        }
        Ok(())
    }
}

/// Trains with regular saves; each checkpoint replaces the one before.
fn train(root: &Path, background: bool) -> Result<Vec<(Instant, Event)>, Box<dyn Error>> {
    let device = Device::flex();
    device.seed(0);
    let linear = |from, to| LinearConfig::new(from, to).init(&device);
    let mlp =
        Mlp { first: linear(INPUTS, HIDDEN), second: linear(HIDDEN, HIDDEN), third: linear(HIDDEN, INPUTS) };
    let mut module = Burn::new(mlp, &device)
        .with_optimizers(|_| Ok(Optimizer::new("adamw", AdamWConfig::new().build(), 1e-4).into()));
    let collate = move |samples: Vec<u64>| {
        let number = |sample: &u64, at: usize| ((sample * 31 + at as u64 * 7) % 97) as f32 / 97.0;
        let row = |sample| (0..INPUTS).map(move |at| number(sample, at));
        let numbers: Vec<f32> = samples.iter().flat_map(row).collect();
        Ok(Pairs { x: Tensor::from_data(TensorData::new(numbers, [samples.len(), INPUTS]), &device) })
    };
    let mut data =
        DataLoaders::new().train(Batches::new("train", (0..256).collect::<Vec<u64>>(), collate).size(BATCH));
    let steps = WARM_UP + SAVES * INTERVAL;
    let settings = Settings {
        max_steps: i64::try_from(steps)?,
        log_every_n_steps: 0,
        background_saves: background,
        ..Settings::default()
    };
    let mut trainer = Trainer::new(settings)?.with_checkpoints_in(root);
    let begins = closure::on_train_batch_start("begins", |_| note(Event::BatchStart));
    let save = closure::on_train_batch_end("save", |cx| {
        // In the middle of an interval, with steps without saving on both sides.
        if cx.step < WARM_UP || (cx.step - WARM_UP) % INTERVAL != INTERVAL / 2 {
            return Decision::CONTINUE;
        }
        note(Event::SaveRequested);
        let named = |step: u64| PathBuf::from(format!("step={step}"));
        let replaces = cx.step.checked_sub(INTERVAL).map(named).into_iter().collect();
        let request = SaveRequest { path: Some(named(cx.step)), replaces, ..SaveRequest::default() };
        Decision::CONTINUE.request(Request::Save(request))
    });
    let durable = closure::on_checkpoint_saved("durable", |_| note(Event::Durable));
    trainer.add_hook(begins)?;
    trainer.add_hook(save)?;
    trainer.add_hook(durable)?;
    events().clear();
    trainer.fit(&mut module, &mut data)?;
    Ok(std::mem::take(&mut *events()))
}

/// The times of one kind of training, in milliseconds.
#[derive(Default)]
struct Times {
    saves: Vec<Save>,
}

/// One save, and the steps around it.
#[derive(Default)]
struct Save {
    /// The time that training waited for it.
    blocked: f64,
    /// The steps while it was written, without the time that it blocked training.
    while_saving: Vec<f64>,
    /// The steps without a save around it, because the speed of the machine may vary.
    quiet: Vec<f64>,
}

impl Save {
    /// The slowdown while it was written: the time of these steps, minus that of as many steps without a save.
    fn lost(&self) -> f64 {
        let usual = self.quiet.iter().sum::<f64>() / self.quiet.len() as f64;
        self.while_saving.iter().map(|step| step - usual).sum()
    }
}

impl Times {
    /// Adds a training run. A step lasts until the next one starts.
    fn add(&mut self, events: &[(Instant, Event)]) {
        let milliseconds = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
        let (mut began, mut asked) = (None, None);
        // Whether a save is being written, now and when the step started.
        let (mut saving, mut within) = (false, false);
        let (mut waited, mut steps) = (0.0, 0);
        let mut saves: Vec<Save> = Vec::new();
        let mut quiet = Vec::new();
        for (at, what) in events {
            match what {
                Event::SaveRequested => asked = Some(*at),
                Event::Continued => {
                    waited = asked.take().map_or(0.0, |asked| milliseconds(asked, *at));
                    // Steps between two saves count for both.
                    if let Some(before) = saves.last_mut() {
                        before.quiet.extend_from_slice(&quiet);
                    }
                    let quiet = std::mem::take(&mut quiet);
                    saves.push(Save { blocked: waited, quiet, ..Save::default() });
                    saving = true;
                }
                Event::Durable => saving = false,
                Event::BatchStart => {
                    let lasted = began.replace(*at).map(|began| milliseconds(began, *at) - waited);
                    steps += 1;
                    if let Some(lasted) = lasted.filter(|_| steps > WARM_UP) {
                        match saves.last_mut().filter(|_| within) {
                            Some(save) => save.while_saving.push(lasted),
                            None => quiet.push(lasted),
                        }
                    }
                    (within, waited) = (saving, 0.0);
                }
            }
        }
        if let Some(last) = saves.last_mut() {
            last.quiet.append(&mut quiet);
        }
        self.saves.append(&mut saves);
    }

    /// A value of every save.
    fn of_saves(&self, of: impl Fn(&Save) -> f64) -> Vec<f64> {
        self.saves.iter().map(of).collect()
    }

    /// The steps of all saves.
    fn steps(&self, of: impl Fn(&Save) -> &Vec<f64>) -> Vec<f64> {
        self.saves.iter().flat_map(|save| of(save).iter().copied()).collect()
    }
}

fn quantile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // an index into a short list
    let at = ((sorted.len().saturating_sub(1)) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// All times in milliseconds; medians over saves.
#[derive(Serialize)]
struct Measured {
    parameters: usize,
    saves: usize,
    /// How long a plain save blocks training.
    plain_blocked: f64,
    /// How long a background save blocks training.
    background_blocked: f64,
    /// The slowdown of the following steps until it is durable.
    background_lost: f64,
    blocked_share: f64,
    in_all_share: f64,
    step_p50: f64,
    step_p99: f64,
    steps_while_saving: usize,
    step_while_saving_p50: f64,
    step_while_saving_p99: f64,
}

fn measure(root: &Path, rounds: usize) -> Result<Measured, Box<dyn Error>> {
    let (mut plain, mut background) = (Times::default(), Times::default());
    for round in 0..rounds {
        plain.add(&train(&root.join(format!("plain{round}")), false)?);
        background.add(&train(&root.join(format!("background{round}")), true)?);
    }
    let blocked = |times: &Times| quantile(&times.of_saves(|save| save.blocked), 0.5);
    let (plain_blocked, background_blocked) = (blocked(&plain), blocked(&background));
    let in_all = background.of_saves(|save| save.blocked + save.lost());
    let (quiet, saving) = (background.steps(|save| &save.quiet), background.steps(|save| &save.while_saving));
    Ok(Measured {
        parameters: INPUTS * HIDDEN * 2 + HIDDEN * HIDDEN + 2 * HIDDEN + INPUTS,
        saves: background.saves.len(),
        plain_blocked,
        background_blocked,
        background_lost: quantile(&background.of_saves(Save::lost), 0.5),
        blocked_share: background_blocked / plain_blocked,
        in_all_share: quantile(&in_all, 0.5) / plain_blocked,
        step_p50: quantile(&quiet, 0.5),
        step_p99: quantile(&quiet, 0.99),
        steps_while_saving: saving.len(),
        step_while_saving_p50: quantile(&saving, 0.5),
        step_while_saving_p99: quantile(&saving, 0.99),
    })
}

fn print(measured: &Measured) {
    let Measured { parameters, saves, plain_blocked, background_blocked, background_lost, .. } = measured;
    let limit = |share: f64, limit: f64| {
        let verdict = if share <= limit { "holds" } else { "DOES NOT HOLD" };
        format!("{share:>8.3} of a plain save, at most {limit:.2}: {verdict}")
    };
    println!("{parameters} parameters with AdamW, {saves} saves of each kind, medians in milliseconds");
    println!("a plain save blocks training       {plain_blocked:>8.2}");
    println!(
        "a background save blocks it        {background_blocked:>8.2}  {}",
        limit(measured.blocked_share, MAX_BLOCKED)
    );
    println!("the following steps lose           {background_lost:>8.2}");
    println!(
        "both together                      {:>8.2}  {}",
        measured.in_all_share * plain_blocked,
        limit(measured.in_all_share, MAX_TOTAL)
    );
    println!("a step without a save, p50, p99    {:>8.2} {:>8.2}", measured.step_p50, measured.step_p99);
    println!(
        "a step while saving, p50, p99      {:>8.2} {:>8.2}  of {} steps",
        measured.step_while_saving_p50, measured.step_while_saving_p99, measured.steps_while_saving
    );
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let (mut json, mut blocked_alone, mut within) = (false, false, std::env::temp_dir());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--blocked" => blocked_alone = true,
            "--in" => within = arguments.next().ok_or("`--in` needs a directory")?.into(),
            other => {
                return Err(
                    format!("`{other}` is unknown; there are `--json`, `--blocked` and `--in DIR`").into()
                );
            }
        }
    }
    let root = tempfile::tempdir_in(within)?;
    let measured = measure(root.path(), if blocked_alone { 1 } else { ROUNDS })?;
    if json {
        println!("{}", serde_json::to_string_pretty(&measured)?);
    } else {
        print(&measured);
    }
    let holds =
        measured.blocked_share <= MAX_BLOCKED && (blocked_alone || measured.in_all_share <= MAX_TOTAL);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
