//! An observer that changes training all the same, and how `verify-neutral` catches it.
//!
//! Both hooks of the configuration below do the same: they look at one unit of a layer, chosen at random, in every
//! step. One draws from its own stream, the other from the engine's generator. The model draws from that
//! generator, too, for its dropout: so it gets other numbers than it would have got, drops other units, and
//! trains to other weights. Nothing fails and no number looks wrong; only a comparison shows it.
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
    /// Where the random numbers come from.
    from: From,
    /// The point to look at; `points` lists them.
    #[serde(default = "before_dropout")]
    point: String,
}

fn before_dropout() -> String {
    "conv2".into()
}

/// Where random numbers come from.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum From {
    /// The hook's own stream, which is nobody else's.
    OwnStream,
    /// The engine's generator, which is everybody's.
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
            // Right: seeded by the run's seed and this hook's name, saved with checkpoints, and no other hook's.
            From::OwnStream => cx.rng().uniform(),
            // Wrong: this moves the generator that the model is about to draw its dropout from. The trainer seeds it
            // before each step, after all hooks have run; but a forward hook runs in the middle of the step.
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

/// `tenter`'s command line with the digits and the hook.
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
        // Exit code 1 says that an observer is not neutral. Here that is what should come out.
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
