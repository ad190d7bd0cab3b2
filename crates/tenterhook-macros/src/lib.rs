//! The `#[hook]` attribute of tenterhook, which derives the events that a hook wants from its handlers.
//!
//! Use it through the `tenterhook` crate, which re-exports it together with the types that its expansion
//! refers to.

mod args;
mod expand;
mod handlers;
mod krate;
mod naming;

use proc_macro::TokenStream;
use proc_macro_crate::crate_name;

/// Makes a hook of `impl Observer for T`, `impl Controller for T` or `impl UpdateHook for T`.
///
/// The attribute leaves the implementation unchanged and adds one of `Hook`, the trait that the runner calls.
/// The hook wants the events whose handlers are implemented, and is named after its type.
///
/// ```ignore
/// #[hook]
/// impl Observer for LossPrinter {
///     fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult {
///         println!("{} {:?}", cx.batch.index, cx.loss.as_ref().map(Scalar::value));
///         Ok(())
///     }
/// }
///
/// #[hook(name = "stop", reads = ["val/loss"], writes = ["best"], tier = "monitor")]
/// impl Controller for EarlyStopping {
///     fn on_validation_end(&mut self, cx: &ValidationEnd) -> HookResult<Decision> {
///         self.decide(cx)
///     }
/// }
/// ```
///
/// A handler with `#[cfg(..)]` makes the hook want its event under the same condition.
///
/// # Arguments
///
/// All arguments are optional. Declarations that depend on the hook's options belong in `fn declare`.
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `name = ".."` | the hook's name | the type's name in snake case: `EarlyStopping` is `early_stopping` |
/// | `reads = [".."]`, `writes = [".."]` | metrics and blackboard keys that the hook reads and writes | none |
/// | `monitors = ".."` | the metric that the hook monitors | none |
/// | `on_error = "abort"`, `"warn"` or `"disable"` | what an error of the hook does to the run | `"disable"` for observers, otherwise `"abort"` |
/// | `tier = "user"`, `"built_in"` or `"monitor"` | the hook's place in the order of hooks; not for update hooks | `"user"` |
/// | `ranks = "all"`, `"main"` or `"local_main"` | ranks on which the hook runs | `"all"` |
/// | `state = "field"`, `version = 1` | field that is saved in checkpoints, and the version of its schema | no state |
///
/// # Methods
///
/// The block of an observer or a controller contains handlers and, optionally, `declare`, `wants_point`,
/// `wants_activations`, `state_dict`, `load_state_dict`, `check_state_dict`, `finish` and `delivery_stats`.
/// Any other method is an error with a suggestion; helper methods belong in a plain `impl T` block.
/// Associated types, constants and macro calls are also errors.
///
/// # The calling crate
///
/// The calling crate must depend on `tenterhook` or `tenterhook-core`, possibly under another name. If it
/// depends on both, the expansion refers to `tenterhook`, even if that is a development dependency.
#[proc_macro_attribute]
pub fn hook(args: TokenStream, item: TokenStream) -> TokenStream {
    match krate::path(|name| crate_name(name).ok()) {
        Ok(krate) => expand::expand(&krate, args.into(), item.into()).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// Expands to the handlers that `#[hook]` knows, in order, as `&[(name, steers)]`.
///
/// Used by the core crate, which compares it with its table of events at compile time.
///
/// ```ignore
/// const HANDLERS: &[(&str, bool)] = handler_table!();
/// ```
#[proc_macro]
pub fn handler_table(input: TokenStream) -> TokenStream {
    expand::handler_table(&input.into()).into()
}
