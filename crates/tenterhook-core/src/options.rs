//! Hooks that are made from options, such as a configuration holds.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::any_hook::AnyHook;
use crate::update::Identity;

/// A hook of any kind that is made from options, so that a configuration can name it.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use tenterhook_core::{HookResult, hook, FromOptions, Observer, OptionError, TrainStart};
///
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct GreetOptions {
///     /// How often.
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
///             return Err(OptionError::new("`times` must be 1 or more"));
///         }
///         Ok(Greet(options.times))
///     }
/// }
/// ```
pub trait FromOptions: Into<AnyHook> {
    /// Its options. Doc comments are what users read; `#[serde(deny_unknown_fields)]` finds their slips.
    type Options: Serialize + DeserializeOwned + JsonSchema;

    /// What it is for, in one line that begins with a verb.
    const PURPOSE: &str;

    /// Options that work, in TOML.
    const EXAMPLE: &str;

    /// Makes it, or says what is wrong with the options; a key that it names in backticks is where people
    /// are pointed to.
    fn from_options(options: Self::Options) -> Result<Self, OptionError>;
}

/// Why a hook refuses its options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(String);

impl OptionError {
    /// For this reason, which names the key in backticks and says what to write.
    pub fn new(reason: impl Into<String>) -> OptionError {
        OptionError(reason.into())
    }
}

/// The options of [`Identity`]: it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentityOptions {}

impl FromOptions for Identity {
    type Options = IdentityOptions;
    const PURPOSE: &str =
        "leaves gradients as they are, at no cost: what is there when no other update hook is";
    const EXAMPLE: &str = "";

    fn from_options(_: IdentityOptions) -> Result<Identity, OptionError> {
        Ok(Identity)
    }
}
