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

/// Makes a hook of `impl Observer for T`, `impl Controller for T` or `impl UpdateHook for T`.
///
/// The implementation stays as it is written. Beside it the attribute implements `Hook`, which the runner calls: the list
/// of wanted events is read off the handlers that are there, and the name is the type's.
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
/// A handler under `#[cfg(..)]` asks for its event under the same condition.
///
/// # Arguments
///
/// All are optional. What depends on a hook's options is added in `fn declare`.
///
/// | argument | says | when absent |
/// |---|---|---|
/// | `name = ".."` | the hook's name | the type's name in snake case: `EarlyStopping` is `early_stopping` |
/// | `reads = [".."]`, `writes = [".."]` | the metrics and places on the board that it reads and writes | none |
/// | `monitors = ".."` | the metric that it monitors | none |
/// | `on_error = "abort"`, `"warn"` or `"disable"` | what its errors do | `"disable"` for observers, else `"abort"` |
/// | `tier = "user"`, `"built_in"` or `"monitor"` | its place among the hooks; not for update hooks | `"user"` |
/// | `ranks = "all"`, `"main"` or `"local_main"` | on which ranks it runs | `"all"` |
/// | `state = "field"`, `version = 1` | the field that a checkpoint keeps | no state |
///
/// # Methods
///
/// The block of an observer or a controller holds handlers and, where wanted, `declare`, `wants_point`, `wants_activations`,
/// `state_dict`, `load_state_dict`, `check_state_dict`, `finish` and `sent`. Any other method is an error that names the nearest of these;
/// helper methods go in a plain `impl T` block. Associated types, constants and macro calls are errors too.
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
