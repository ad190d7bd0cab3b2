//! An observer that changes training by mistake, and how `verify-neutral` finds it.
//!
//! Both hooks of the configuration below log one random unit of a layer in every step. One draws random
//! numbers from its own stream, the other from the engine's generator. The dropout of the model uses that
//! generator too, so it drops other units, and training ends with other weights. Nothing fails and no number
//! looks wrong; only a comparison detects it.
//!
//! ```text
//! cargo run -p tenterhook-cli --example intruder
//! cargo run -p tenterhook-cli --example intruder -- verify-neutral my.toml --steps 100
//! ```

use std::process::ExitCode;

use schemars::JsonSchema;
use serde::Deserialize;
use tenterhook::prelude::*;
use tenterhook_app::App;
use tenterhook_burn::burn::tensor::{Device, Distribution, Tensor};
use tenterhook_burn::device;
use tenterhook_tasks::digits::Digits;

const CONFIG: &str = r#"
task = "digits"

[[hooks]]
use = "peek"
name = "careful"
from = "own_stream"

[[hooks]]
use = "peek"
name = "intruder"
from = "engine"
"#;

/// `use = "peek"`: logs one value of an activation, chosen at random.
struct Peek {
    from: From,
    point: String,
    device: Device,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PeekOptions {
    /// The source of the random numbers.
    from: From,
    /// The hook point to observe; `points` lists them.
    #[serde(default = "before_dropout")]
    point: String,
}

fn before_dropout() -> String {
    "conv2".into()
}

/// A source of random numbers.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum From {
    /// The hook's own stream.
    OwnStream,
    /// The engine's generator, which the model shares.
    Engine,
}

impl Peek {
    fn new(options: PeekOptions) -> Result<Peek, String> {
        let device = device("cpu").map_err(|error| error.to_string())?;
        Ok(Peek { from: options.from, point: options.point, device })
    }

    /// A number from 0 to 1.
    fn draw(&self, cx: &Activation) -> f64 {
        match self.from {
            // Right: this hook's own stream, seeded by the run's seed and its name, and saved in checkpoints.
            From::OwnStream => cx.rng().uniform(),
            // Wrong: this advances the generator that the model uses for its dropout. The trainer reseeds it before each step,
            // but a forward hook runs during the step.
            From::Engine => {
                Tensor::<1>::random([1], Distribution::Uniform(0.0, 1.0), &self.device).into_scalar()
            }
        }
    }
}

#[hook]
impl Observer for Peek {
    fn wants_point(&self, point: &str) -> bool {
        point == self.point
    }

    fn on_activation(&mut self, cx: &Activation) -> HookResult {
        let Some(activation) = cx.values.iter().next() else { return Ok(()) };
        let values = activation.to_vec();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let chosen = (self.draw(cx) * values.len() as f64) as usize;
        if let Some(value) = values.get(chosen) {
            cx.log(&format!("{}/value", &*cx.hook_name()), f64::from(*value));
        }
        Ok(())
    }
}

/// The command line of `tenter` with the task `digits` and the hook.
pub fn app() -> App {
    App::new("intruder").task(Digits).hook("peek", Peek::new)
}

fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        return app().run();
    }
    let caught = || -> std::io::Result<ExitCode> {
        let directory = tempfile::tempdir()?;
        let config = directory.path().join("intruder.toml");
        std::fs::write(&config, CONFIG)?;
        Ok(app().run_with(["intruder", "verify-neutral", &config.to_string_lossy(), "--steps", "10"]))
    };
    match caught() {
        // Exit code 1 means that an observer is not neutral, which is expected here.
        Ok(code) if code == ExitCode::from(1) => {
            println!("\nCaught, as it should be. With `from = \"own_stream\"` the same hook is neutral.");
            ExitCode::SUCCESS
        }
        Ok(_) => {
            eprintln!("error: the intruder was not caught");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: no place for the configuration: {error}");
            ExitCode::FAILURE
        }
    }
}
