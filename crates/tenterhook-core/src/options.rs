//! Hooks that are made from options, such as a configuration holds.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::erased::AnyHook;
use crate::update::Identity;

/// A hook of any kind that is made from options, so that a configuration can name it.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use tenterhook_core::{hook, FromOptions, Observer, OptionError, TrainStart};
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
///     fn on_train_start(&mut self, cx: &TrainStart) {
///         (0..self.0).for_each(|_| cx.say("hello"));
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
    /// Its options. Doc comments are what users read; `#[serde(deny_unknown_fields)]` finds their slips.
    type Options: Serialize + DeserializeOwned + JsonSchema;

    /// What it is for, in one line that begins with a verb.
    const PURPOSE: &str;

    /// Options that work, in TOML.
    const EXAMPLE: &str;

    /// Makes it, or says which option is wrong.
    fn from_options(options: Self::Options) -> Result<Self, OptionError>;
}

/// Why a hook refuses its options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}{}{}", if fix.is_some() { "; " } else { "" }, fix.as_deref().unwrap_or_default())]
#[non_exhaustive]
pub struct OptionError {
    /// The options it is about. A message points to the first of them that is set.
    pub keys: Vec<String>,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl OptionError {
    /// This is wrong with the option of this key.
    pub fn new(key: impl Into<String>, what: impl Into<String>) -> OptionError {
        OptionError { keys: vec![key.into()], ..OptionError::of_all(what) }
    }

    /// This is wrong with the options, and with none of them in particular.
    pub fn of_all(what: impl Into<String>) -> OptionError {
        OptionError { keys: Vec::new(), what: what.into(), fix: None }
    }

    /// The same, about another option as well.
    #[must_use]
    pub fn and(mut self, key: impl Into<String>) -> OptionError {
        self.keys.push(key.into());
        self
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn fix(self, fix: impl Into<String>) -> OptionError {
        OptionError { fix: Some(fix.into()), ..self }
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
