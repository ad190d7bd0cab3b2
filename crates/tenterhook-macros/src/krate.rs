//! The path of tenterhook in the calling crate.

use proc_macro_crate::FoundCrate;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};

const FACADE: &str = "tenterhook";
const CORE: &str = "tenterhook-core";

/// The path of the crate that the expansion refers to. `lookup` finds a package among the dependencies of the
/// calling crate.
pub(crate) fn path(lookup: impl Fn(&str) -> Option<FoundCrate>) -> syn::Result<TokenStream> {
    let core = lookup(CORE);
    // The core crate may have the facade as a development dependency, but cannot refer to it.
    if core == Some(FoundCrate::Itself) {
        return Ok(quote!(::tenterhook_core));
    }
    match lookup(FACADE).or(core) {
        Some(FoundCrate::Itself) => Ok(quote!(::tenterhook)),
        Some(FoundCrate::Name(name)) => {
            let name = format_ident!("{name}");
            Ok(quote!(::#name))
        }
        None => Err(syn::Error::new(
            Span::call_site(),
            "`#[hook]` needs the `tenterhook` crate: add `tenterhook` to the dependencies in Cargo.toml",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_given(facade: Option<&FoundCrate>, core: Option<&FoundCrate>) -> String {
        match path(|name| if name == FACADE { facade.cloned() } else { core.cloned() }) {
            Ok(path) => path.to_string().replace(' ', ""),
            Err(error) => error.to_string(),
        }
    }

    fn named(name: &str) -> FoundCrate {
        FoundCrate::Name(name.into())
    }

    #[test]
    fn a_dependency_is_named_as_the_caller_renamed_it() {
        assert_eq!(path_given(Some(&named("tenterhook")), None), "::tenterhook");
        assert_eq!(path_given(Some(&named("th")), None), "::th");
        assert_eq!(path_given(None, Some(&named("th_core"))), "::th_core");
    }

    #[test]
    fn the_facade_is_preferred_to_core() {
        assert_eq!(path_given(Some(&named("tenterhook")), Some(&named("tenterhook_core"))), "::tenterhook");
    }

    #[test]
    fn each_crate_names_itself() {
        assert_eq!(path_given(Some(&FoundCrate::Itself), Some(&named("tenterhook_core"))), "::tenterhook");
        assert_eq!(path_given(None, Some(&FoundCrate::Itself)), "::tenterhook_core");
        assert_eq!(path_given(Some(&named("tenterhook")), Some(&FoundCrate::Itself)), "::tenterhook_core");
    }

    #[test]
    fn the_error_for_a_crate_with_neither_names_the_dependency() {
        assert!(path_given(None, None).contains("add `tenterhook` to the dependencies in Cargo.toml"));
    }
}
