//! Hooks that can be built from the options of a configuration.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::any_hook::AnyHook;
use crate::update::Identity;

/// A hook that can be built from the options of a configuration.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use tenterhook_core::{HookResult, hook, FromOptions, Observer, OptionError, TrainStart};
///
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct GreetOptions {
///     /// Number of greetings.
///     times: u32,
/// }
///
/// struct Greet(u32);
///
/// #[hook]
/// impl Observer for Greet {
///     fn on_train_start(&mut self, cx: &TrainStart) -> HookResult {
///         (0..self.0).for_each(|_| cx.say("hello"));
///         Ok(())
///     }
/// }
///
/// impl FromOptions for Greet {
///     type Options = GreetOptions;
///     const PURPOSE: &str = "says hello";
///     const EXAMPLE: &str = "times = 2";
///
///     fn from_options(options: GreetOptions) -> Result<Greet, OptionError> {
///         if options.times == 0 {
///             return Err(OptionError::new("times", "`times` must be 1 or more"));
///         }
///         Ok(Greet(options.times))
///     }
/// }
/// ```
pub trait FromOptions: Into<AnyHook> {
    /// The hook's options. Users read the doc comments of the fields; `#[serde(deny_unknown_fields)]` detects
    /// misspelt options.
    type Options: Serialize + DeserializeOwned + JsonSchema;

    /// The purpose of the hook, in one line that begins with a verb.
    const PURPOSE: &str;

    /// An example of valid options, in TOML.
    const EXAMPLE: &str;

    /// Builds the hook, or returns an error that names the invalid option.
    fn from_options(options: Self::Options) -> Result<Self, OptionError>;
}

/// The error for options that a hook refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}{}{}", if fix.is_some() { "; " } else { "" }, fix.as_deref().unwrap_or_default())]
#[non_exhaustive]
pub struct OptionError {
    /// The options concerned. A message points to the first of them that is set.
    pub keys: Vec<String>,
    /// The problem.
    pub what: String,
    /// The fix, if there is one.
    pub fix: Option<String>,
}

impl OptionError {
    /// Makes an error about one option.
    pub fn new(key: impl Into<String>, what: impl Into<String>) -> OptionError {
        OptionError { keys: vec![key.into()], ..OptionError::of_all(what) }
    }

    /// Makes an error about the options as a whole.
    pub fn of_all(what: impl Into<String>) -> OptionError {
        OptionError { keys: Vec::new(), what: what.into(), fix: None }
    }

    /// Adds another option.
    #[must_use]
    pub fn and(mut self, key: impl Into<String>) -> OptionError {
        self.keys.push(key.into());
        self
    }

    /// Adds a fix.
    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> OptionError {
        OptionError { fix: Some(fix.into()), ..self }
    }
}

/// The options of [`Identity`], which has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentityOptions {}

impl FromOptions for Identity {
    type Options = IdentityOptions;
    const PURPOSE: &str =
        "leaves gradients unchanged, at no cost; listed when no other update hook is enabled";
    const EXAMPLE: &str = "";

    fn from_options(_: IdentityOptions) -> Result<Identity, OptionError> {
        Ok(Identity)
    }
}
