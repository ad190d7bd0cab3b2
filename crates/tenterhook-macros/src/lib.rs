//! The `#[hook]` attribute of tenterhook: reads off a hook's methods which events it wants.
//!
//! Use it through the `tenterhook` crate, which re-exports it next to the types that its expansion names.

mod args;
mod expand;
mod handlers;
mod krate;
mod naming;

use proc_macro::TokenStream;
use proc_macro_crate::crate_name;

/// Turns `impl Observer for T` or `impl Controller for T` into an implementation of `Hook`, and gives
/// `impl UpdateHook for T` its name and its way into a list of hooks.
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
///
///     // Without a return type: returns `Ok` of the default verdict.
///     fn on_train_end(&mut self, cx: &TrainEnd) {
///         println!("stopped at {}", self.best);
///     }
/// }
/// ```
///
/// An observer's verdict is `()`, a controller's is `Decision`. The events the hook is called for are those
/// whose handlers are written; a handler under `#[cfg(..)]` asks for its event under the same condition.
///
/// # Arguments
///
/// All are optional, and each replaces a method that must then not be written as well.
///
/// | argument | replaces | when absent |
/// |---|---|---|
/// | `name = ".."` | `fn name` | the type's name in snake case: `EarlyStopping` is `early_stopping` |
/// | `reads = [".."]`, `writes = [".."]` | `fn access` | the default of `Hook` |
/// | `monitors = ".."` | `fn access` | the default of `Hook` |
/// | `on_error = "abort"`, `"warn"` or `"disable"` | `fn policy` | the default of `Hook` |
/// | `tier = "user"`, `"built_in"` or `"monitor"` | `fn tier` | the default of `Hook` |
/// | `state = "field"`, `version = 1` | `fn state_dict`, `fn load_state_dict`, `fn check_state_dict` | no state |
///
/// # Methods
///
/// The block holds handlers and, where wanted, `name`, `access`, `tier`, `policy`, `idle`, `wants_point`, `listens`,
/// `state_dict`, `load_state_dict`, `check_state_dict`, `finish` and `sent`. Any other method is an error that names the nearest of these, so that a misspelt handler
/// is not silently never called; helper methods go in a plain `impl T` block. Associated types, constants and
/// macro calls are errors too.
///
/// A handler takes `&mut self` and its context, `cx: &TrainEnd` for `on_train_end`. One that declares no return
/// type cannot fail: its body may use a bare `return;`, and the handler returns `Ok` of the default verdict (of
/// `()` where the event cannot be steered).
///
/// # Update hooks
///
/// `impl UpdateHook for T` keeps its methods. The attribute adds its name and what the arguments say (all but
/// `tier`), an `update` without a return type cannot fail, and `T` becomes an `AnyHook` like every other hook.
///
/// # The calling crate
///
/// It must list `tenterhook` or `tenterhook-core` in its `Cargo.toml`, renamed if it likes. Where both are
/// listed the expansion names `tenterhook`, even if only the development dependencies list it.
#[proc_macro_attribute]
pub fn hook(args: TokenStream, item: TokenStream) -> TokenStream {
    match krate::path(|name| crate_name(name).ok()) {
        Ok(krate) => expand::expand(&krate, args.into(), item.into()).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// Expands to the handlers `#[hook]` knows, as `&[(name, steers)]` in their order.
///
/// For the core crate, which asserts at compile time that its own table is the same.
///
/// ```ignore
/// const HANDLERS: &[(&str, bool)] = handler_table!();
/// ```
#[proc_macro]
pub fn handler_table(input: TokenStream) -> TokenStream {
    expand::handler_table(&input.into()).into()
}
