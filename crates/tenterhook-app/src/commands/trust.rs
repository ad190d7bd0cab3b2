//! The trust boundary: a configuration that lies in a run directory, and that the user has not named, may be anybody's.
//!
//! **Invariant.** [`resolve_of_run`] is the only way to such a configuration for commands that act on it (SECURITY.md).

use std::path::Path;

use tenterhook::Effect;
use tenterhook::config::Config;
use tenterhook::run::ownership::confirm;

use super::{RUNS, resolve};
use crate::app::App;
use crate::arguments::{Changes, Trust};
use crate::error::CommandError;

/// The variable that stands for `--trust`, for containers whose home directory is new each time.
const VARIABLE: &str = "TENTER_TRUST";

/// What a command does with the configuration of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Resumes the run, in its own directory.
    Resume,
    /// Evaluates its weights; files of hooks go below the `runs_dir` of the configuration.
    Evaluate,
}

impl Trust {
    fn is_given(self) -> bool {
        self.trust || std::env::var_os(VARIABLE).is_some_and(|value| value == "1")
    }
}

/// The configuration in a run directory, if it is the user's own, has no effects outside of that directory, or the user
/// trusts it.
pub(crate) fn resolve_of_run(
    app: &App,
    config: &Path,
    changes: &Changes,
    trust: Trust,
    act: Act,
) -> Result<Config, CommandError> {
    let resolved = resolve(app, Some(config), changes)?;
    if trust.is_given() {
        return Ok(resolved);
    }
    let effects = effects(app, &resolved, act)?;
    if effects.is_empty() {
        return Ok(resolved);
    }
    let Err(why) = confirm(config) else { return Ok(resolved) };
    let what = format!(
        "{} is not known to be yours ({why}), and has effects outside of its directory:\n  {}",
        config.display(),
        effects.join("\n  ")
    );
    Err(CommandError::new(what).note(format_args!(
        "add `--trust` (or set {VARIABLE}=1) if you trust it, switch hooks off with \
         `--set hooks.NAME.enabled=false`, or name a configuration of your own"
    )))
}

/// The effects of a configuration outside of the run directory, each with the hook that has it.
fn effects(app: &App, resolved: &Config, act: Act) -> Result<Vec<String>, CommandError> {
    let trainer = resolved.bare_trainer(&app.registry)?;
    let declared = trainer.hooks().declared();
    let of_hooks = declared
        .iter()
        .flat_map(|spec| spec.effects.iter().map(|effect| format!("hook `{}` {effect}", spec.name)));
    // A relative one is below the working directory, which is not the run's.
    let elsewhere = act == Act::Evaluate && resolved.runs_dir != Path::new(RUNS);
    let runs = elsewhere.then(|| Effect::Write(resolved.runs_dir.clone()));
    Ok(of_hooks.chain(runs.map(|effect| format!("`runs_dir` {effect}"))).collect())
}
