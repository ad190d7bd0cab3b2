//! The trust boundary: the configuration in a run directory may come from another person.
//!
//! **Invariant.** Commands that act on such a configuration load it with [`load_run_config`] only (SECURITY.md).

use std::path::Path;

use tenterhook::Effect;
use tenterhook::config::Config;
use tenterhook::run::ownership::confirm;

use super::{RUNS, load_config};
use crate::app::App;
use crate::arguments::{Overrides, Trust};
use crate::error::CommandError;

/// Environment variable with the effect of `--trust`, for containers with a new home directory each time.
const VARIABLE: &str = "TENTER_TRUST";

/// The action of a command on the configuration of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Resume the run in its own directory.
    Resume,
    /// Evaluate its weights; files of hooks go below the `runs_dir` of the configuration.
    Evaluate,
}

impl Trust {
    fn is_given(self) -> bool {
        self.trust || std::env::var_os(VARIABLE).is_some_and(|value| value == "1")
    }
}

/// The configuration in a run directory. It is refused if it has effects outside of the directory, is not the user's
/// own, and the user does not trust it.
pub(crate) fn load_run_config(
    app: &App,
    config: &Path,
    overrides: &Overrides,
    trust: Trust,
    action: Action,
) -> Result<Config, CommandError> {
    let resolved = load_config(app, Some(config), overrides)?;
    if trust.is_given() {
        return Ok(resolved);
    }
    let effects = effects(app, &resolved, action)?;
    if effects.is_empty() {
        return Ok(resolved);
    }
    let Err(why) = confirm(config) else { return Ok(resolved) };
    let what = format!(
        "{} may not be yours ({why}), and has effects outside of its directory:\n  {}",
        config.display(),
        effects.join("\n  ")
    );
    Err(CommandError::new(what).note(format_args!(
        "add `--trust` (or set {VARIABLE}=1) if you trust it, disable hooks with \
         `--set hooks.NAME.enabled=false`, or use a configuration of your own"
    )))
}

/// The effects of a configuration outside of the run directory, with the hooks that cause them.
fn effects(app: &App, resolved: &Config, action: Action) -> Result<Vec<String>, CommandError> {
    let trainer = resolved.bare_trainer(&app.registry)?;
    let declared = trainer.hooks().declared();
    let hook_effects = declared
        .iter()
        .flat_map(|spec| spec.effects.iter().map(|effect| format!("hook `{}` {effect}", spec.name)));
    // A relative directory is below the working directory, not below the run.
    let writes_elsewhere = action == Action::Evaluate && resolved.runs_dir != Path::new(RUNS);
    let runs_dir = writes_elsewhere.then(|| Effect::Write(resolved.runs_dir.clone()));
    Ok(hook_effects.chain(runs_dir.map(|effect| format!("`runs_dir` {effect}"))).collect())
}
