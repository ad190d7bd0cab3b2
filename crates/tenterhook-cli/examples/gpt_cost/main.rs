//! What hooks cost a training of the built-in GPT, as ratios to the same training without them.
//!
//! ```text
//! cargo run --release --example gpt_cost                  instructions, counted by valgrind, held to what is promised
//! cargo run --release --example gpt_cost -- time          times on this machine, as ratios of one run
//! cargo run --release --example gpt_cost -- NAME STEPS    one training and nothing else, to look at with other tools
//! ```

#[path = "../../../tenterhook-core/examples/cost/valgrind.rs"]
mod valgrind;

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use tenterhook::data::{Batches, Loading};
use tenterhook::prelude::*;
use tenterhook::registry::Registry;
use tenterhook_burn::burn::{
    self,
    module::Module,
    optim::AdamWConfig,
    tensor::{Device, Tensor},
};
use tenterhook_burn::{Burn, BurnCx, BurnGradients, BurnModule, MapGradient, Optimizer, Step};
use tenterhook_tasks::text::TextBatch;
use tenterhook_tasks::text::model::{Gpt, GptOptions, cross_entropy};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is measured: its name, against what, and by how much it may be more.
const MEASURED: [(&str, &str, f64); 5] = [
    ("points", "plain", 1.002),
    ("gradient_monitor", "points", 1.03),
    ("activation_stats", "points", 1.15),
    ("update_on_host", "points", 1.05),
    ("update_natively", "points", 1.01),
];

/// The same GPT without points.
#[derive(Module, Debug)]
struct Plain {
    gpt: Gpt,
}

impl BurnModule for Plain {
    type Batch = TextBatch;
    type Prediction = ();

    fn training_step(&mut self, batch: &TextBatch, _: &mut BurnCx<'_, Plain>) -> ModuleResult<Step> {
        let TextBatch::Windows { tokens, targets, .. } = batch else { return Err("no windows".into()) };
        let logits = self.gpt.forward(tokens.clone().autodiff());
        Ok(cross_entropy(logits, targets.clone().autodiff()).into())
    }
}

/// Multiplies every gradient by one, in host memory.
struct OnHost;

#[hook]
impl UpdateHook for OnHost {
    fn update(&mut self, gradients: &mut Gradients, _cx: &Update) -> HookResult {
        gradients.each(|gradient| {
            gradient.edit(|values| values.iter_mut().for_each(|value| *value *= std::hint::black_box(1.0)));
            Ok(())
        })
    }
}

/// Multiplies every gradient by one, where Burn computes.
struct Natively;

impl MapGradient for Natively {
    fn map<const D: usize>(&mut self, _name: &str, gradient: Tensor<D>) -> Tensor<D> {
        gradient * 1.0
    }
}

#[hook]
impl UpdateHook for Natively {
    fn update(&mut self, gradients: &mut Gradients, _cx: &Update) -> HookResult {
        Ok(gradients.map_burn(self)?)
    }
}

/// Trains for so many steps, on batches as the task `text` has them.
fn train(name: &str, steps: u32) -> Result<(), Box<dyn Error>> {
    let device = Device::flex();
    device.seed(0);
    let settings = Settings { max_steps: i64::from(steps), log_every_n_steps: 0, ..Settings::default() };
    let mut trainer = Trainer::new(settings)?;
    let registry = Registry::default();
    match name {
        "plain" | "points" => {}
        "gradient_monitor" => {
            // Norms of every parameter, and what it makes of them: no copies of weights, no norms around clipping.
            let options =
                serde_json::json!({ "log_frequency": 1, "log_update_ratio": false, "log_clipping": false });
            trainer.add_hook(registry.hook(name, options)?)?;
        }
        "activation_stats" => {
            trainer.add_hook(registry.hook(name, serde_json::json!({ "log_frequency": 1 }))?)?;
        }
        "update_on_host" => trainer.add_hook(OnHost)?,
        "update_natively" => trainer.add_hook(Natively)?,
        _ => return Err(format!("there is no `{name}` to be measured").into()),
    }
    let options = GptOptions::default();
    let byte = |window: usize, at: usize| u8::try_from((window * 31 + at * at) % 251).unwrap_or_default();
    let windows: Vec<Vec<u8>> =
        (0..64).map(|window| (0..=options.context).map(|at| byte(window, at)).collect()).collect();
    let of = device.clone();
    let collate = move |windows: Vec<Vec<u8>>| Ok(TextBatch::windows(&windows, &of));
    let mut data = Loading::new().train(Batches::new("train", windows, collate).size(8));
    let adam = |_| Ok(Optimizer::new("adamw", AdamWConfig::new().build(), 1e-3).into());
    let gpt = Gpt::new(&options, &device);
    if name == "plain" {
        let mut module = Burn::new(Plain { gpt }, &device).with_optimizers(adam);
        trainer.fit(&mut module, &mut data)?;
    } else {
        let mut module = Burn::new(gpt, &device).with_optimizers(adam);
        trainer.fit(&mut module, &mut data)?;
    }
    Ok(())
}

/// Instructions of one step: a training of one step less one of none, so that what comes before does not count. Both
/// are counted at once, which changes no count.
fn instructions(name: &str) -> Result<f64, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let count = |steps: &str| valgrind::count(&program, &[name.to_owned(), steps.to_owned()]);
    let [none, one] = std::thread::scope(|scope| {
        let counted = |steps| scope.spawn(move || count(steps).map_err(|error| error.to_string()));
        [counted("0"), counted("1")].map(|thread| thread.join().unwrap_or_else(|_| Err("it panicked".into())))
    });
    Ok(one?.checked_sub(none?).ok_or("fewer instructions for more steps")? as f64)
}

/// The best of several times of the same training, in seconds. They take turns, so that what else the machine does
/// falls on all of them.
fn seconds() -> Result<BTreeMap<&'static str, f64>, Box<dyn Error>> {
    let names = || std::iter::once("plain").chain(MEASURED.iter().map(|(name, ..)| *name));
    let mut best: BTreeMap<_, _> = names().map(|name| (name, f64::INFINITY)).collect();
    for _ in 0..7 {
        for (name, best) in &mut best {
            let began = Instant::now();
            train(name, 10)?;
            *best = best.min(began.elapsed().as_secs_f64());
        }
    }
    Ok(best)
}

/// Prints what everything costs by this measure, with its limit where it is held to one; whether all are kept.
fn table(
    unit: &str,
    held: bool,
    measure: impl Fn(&str) -> Result<f64, Box<dyn Error>>,
) -> Result<bool, Box<dyn Error>> {
    let (plain, points) = (measure("plain")?, measure("points")?);
    println!("{:<20}{unit:>18}{:>10}{:>10}  against", "", "ratio", if held { "at most" } else { "" });
    println!("{:<20}{plain:>18.4}", "plain");
    let mut kept = true;
    for (name, against, most) in MEASURED {
        let cost = if name == "points" { points } else { measure(name)? };
        let ratio = cost / if against == "plain" { plain } else { points };
        kept &= ratio <= most;
        let most = if held { format!("{most:.3}") } else { String::new() };
        println!("{name:<20}{cost:>18.4}{ratio:>10.4}{most:>10}  {against}");
    }
    Ok(kept)
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            let version = valgrind::version()?;
            println!("counted by {version}, a training step of the built-in GPT on one thread");
            if !table("instructions", true, instructions)? {
                println!("hooks cost more than is promised");
                return Ok(ExitCode::FAILURE);
            }
        }
        ["time"] => {
            let best = seconds()?;
            table("seconds", false, |name| best.get(name).copied().ok_or_else(|| "it was not timed".into()))?;
        }
        [name, steps] => train(name, steps.parse()?)?,
        _ => return Err("nothing, `time`, or what to train and for how many steps".into()),
    }
    Ok(ExitCode::SUCCESS)
}
