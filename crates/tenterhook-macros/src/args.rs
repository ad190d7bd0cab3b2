//! The arguments of `#[hook(..)]`.

use proc_macro2::{Ident, Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, ExprLit, Lit, LitStr, Token};

use crate::handlers;

const KEYS: &[&str] =
    &["name", "reads", "writes", "monitors", "tier", "on_error", "ranks", "state", "version"];
const TIERS: &[(&str, &str)] = &[("user", "User"), ("built_in", "BuiltIn"), ("monitor", "Monitor")];
const POLICIES: &[(&str, &str)] = &[("abort", "ABORT"), ("warn", "WARN"), ("disable", "DISABLE")];

const RANKS: &[(&str, &str)] = &[("all", "All"), ("main", "Main"), ("local_main", "LocalMain")];

/// The arguments of the attribute. Invalid ones are left out.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) name: Option<LitStr>,
    pub(crate) reads: Vec<LitStr>,
    pub(crate) writes: Vec<LitStr>,
    pub(crate) monitors: Option<LitStr>,
    /// A variant of `Tier`.
    pub(crate) tier: Option<Arg<Ident>>,
    /// A constant of `Policy`.
    pub(crate) on_error: Option<Ident>,
    /// A variant of `Ranks`.
    pub(crate) ranks: Option<Ident>,
    /// The field that is saved in checkpoints.
    pub(crate) state: Option<Arg<Ident>>,
    /// The version of the field's schema.
    pub(crate) version: Option<Arg<u32>>,
}

/// The value of an argument, and the position of its key.
pub(crate) struct Arg<T> {
    pub(crate) key: Span,
    pub(crate) value: T,
}

impl Args {
    /// Parses the arguments, and adds errors to `errors`.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Vec<Error>) -> Self {
        let mut args = Self::default();
        let mut seen: Vec<Ident> = Vec::new();
        let all = |input: ParseStream| {
            while !input.is_empty() {
                let key = input.call(Ident::parse_any)?;
                input.parse::<Token![=]>()?;
                let value: Expr = input.parse()?;
                if seen.contains(&key) {
                    errors.push(Error::new(key.span(), format!("`{key}` is given twice")));
                } else if let Err(error) = args.set(&key, value) {
                    errors.push(error);
                }
                seen.push(key);
                if !input.is_empty() {
                    input.parse::<Token![,]>()?;
                }
            }
            Ok(())
        };
        if let Err(error) = all.parse2(tokens) {
            errors.push(error);
        }
        if let (None, Some(version)) = (&args.state, &args.version) {
            errors.push(Error::new(
                version.key,
                "`version` belongs to a `state`; name its field, as in `state = \"memory\"`",
            ));
        }
        args
    }

    fn set(&mut self, key: &Ident, value: Expr) -> syn::Result<()> {
        let span = key.span();
        match key.to_string().as_str() {
            "name" => self.name = Some(filled(string(value)?, "name")?),
            "reads" => self.reads = strings(value)?,
            "writes" => self.writes = strings(value)?,
            "monitors" => self.monitors = Some(filled(string(value)?, "metric")?),
            "tier" => self.tier = Some(Arg { key: span, value: one_of(TIERS, "tier", &string(value)?)? }),
            "on_error" => self.on_error = Some(one_of(POLICIES, "policy", &string(value)?)?),
            "ranks" => self.ranks = Some(one_of(RANKS, "choice of ranks", &string(value)?)?),
            "state" => self.state = Some(Arg { key: span, value: field(&string(value)?)? }),
            "version" => self.version = Some(Arg { key: span, value: whole_number(value)? }),
            unknown => {
                let hint = did_you_mean(unknown, KEYS.iter().copied());
                let message = format!("`{unknown}` is not an argument of `#[hook]`{hint}");
                return Err(Error::new(span, message));
            }
        }
        Ok(())
    }
}

/// The item with this name.
fn one_of(known: &[(&str, &str)], what: &str, given: &LitStr) -> syn::Result<Ident> {
    let value = given.value();
    if let Some((_, item)) = known.iter().find(|(name, _)| *name == value) {
        return Ok(Ident::new(item, Span::call_site()));
    }
    let hint = did_you_mean(&value, known.iter().map(|(name, _)| *name));
    Err(Error::new(given.span(), format!("`{value}` is not a {what}{hint}")))
}

fn did_you_mean<'a>(given: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let all = known.clone().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let nearest = handlers::nearest(given, known);
    nearest.map_or_else(String::new, |(name, _)| format!("; did you mean `{name}`? (one of {all})"))
}

fn filled(string: LitStr, what: &str) -> syn::Result<LitStr> {
    if string.value().trim().is_empty() {
        return Err(Error::new(string.span(), format!("a {what} may not be empty")));
    }
    Ok(string)
}

fn field(given: &LitStr) -> syn::Result<Ident> {
    given.parse_with(Ident::parse_any).map_err(|_| {
        let message = format!("`{}` is not the name of a field", given.value());
        Error::new(given.span(), message)
    })
}

fn whole_number(value: Expr) -> syn::Result<u32> {
    match ungrouped(value) {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse(),
        other => Err(Error::new_spanned(other, "expected a whole number, as in `version = 2`")),
    }
}

fn string(value: Expr) -> syn::Result<LitStr> {
    match ungrouped(value) {
        Expr::Lit(ExprLit { lit: Lit::Str(string), .. }) => Ok(string),
        other => Err(Error::new_spanned(other, "expected a string literal")),
    }
}

fn strings(value: Expr) -> syn::Result<Vec<LitStr>> {
    match ungrouped(value) {
        Expr::Array(array) => {
            array.elems.into_iter().map(|element| filled(string(element)?, "key")).collect()
        }
        other => Err(Error::new_spanned(other, "expected a list of string literals, as in `[\"val/loss\"]`")),
    }
}

/// Unwraps a value from the invisible group that a `macro_rules!` macro puts around it.
fn ungrouped(value: Expr) -> Expr {
    match value {
        Expr::Group(group) => ungrouped(*group.expr),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn parse(tokens: TokenStream) -> (Args, Vec<String>) {
        let mut errors = Vec::new();
        let args = Args::parse(tokens, &mut errors);
        (args, errors.iter().map(ToString::to_string).collect())
    }

    fn keys(arg: &[LitStr]) -> Vec<String> {
        arg.iter().map(LitStr::value).collect()
    }

    #[test]
    fn all_arguments_are_optional() {
        let (args, errors) = parse(quote!());
        assert!(errors.is_empty());
        assert!(
            args.name.is_none() && args.reads.is_empty() && args.writes.is_empty() && args.tier.is_none()
        );
    }

    #[test]
    fn all_arguments_are_read_in_any_order() {
        let (args, errors) =
            parse(quote!(tier = "built_in", writes = ["best",], reads = ["a", "b"], name = "stop",));
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(args.name.map(|name| name.value()).as_deref(), Some("stop"));
        assert_eq!(keys(&args.reads), ["a", "b"]);
        assert_eq!(keys(&args.writes), ["best"]);
        assert_eq!(args.tier.map(|arg| arg.value.to_string()).as_deref(), Some("BuiltIn"));
    }

    #[test]
    fn an_unknown_argument_names_the_nearest() {
        let (_, errors) = parse(quote!(read = ["a"]));
        let expected = "`read` is not an argument of `#[hook]`; did you mean `reads`? \
            (one of `name`, `reads`, `writes`, `monitors`, `tier`, `on_error`, `ranks`, \
            `state`, `version`)";
        assert_eq!(errors, [expected]);
    }

    #[test]
    fn an_unknown_tier_names_the_nearest() {
        let (_, errors) = parse(quote!(tier = "builtin"));
        assert_eq!(
            errors,
            ["`builtin` is not a tier; did you mean `built_in`? (one of `user`, `built_in`, `monitor`)"]
        );
    }

    #[test]
    fn every_invalid_argument_is_reported_and_the_valid_ones_are_kept() {
        let (args, errors) = parse(quote!(nmae = "x", reads = "a", tier = 3, writes = ["best"]));
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert_eq!(keys(&args.writes), ["best"]);
    }

    #[test]
    fn empty_names_and_keys_are_refused() {
        assert_eq!(parse(quote!(name = "")).1, ["a name may not be empty"]);
        assert_eq!(parse(quote!(name = " ")).1, ["a name may not be empty"]);
        assert_eq!(parse(quote!(reads = [""])).1, ["a key may not be empty"]);
    }

    #[test]
    fn an_argument_given_twice_is_refused() {
        let (args, errors) = parse(quote!(name = "a", name = "b"));
        assert_eq!(errors, ["`name` is given twice"]);
        assert_eq!(args.name.map(|name| name.value()).as_deref(), Some("a"));
    }

    #[test]
    fn state_is_a_field_and_version_a_number_that_requires_it() {
        let (args, errors) = parse(quote!(state = "memory", version = 3));
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(args.state.map(|arg| arg.value.to_string()).as_deref(), Some("memory"));
        assert_eq!(args.version.map(|arg| arg.value), Some(3));
        assert_eq!(parse(quote!(state = "a b")).1, ["`a b` is not the name of a field"]);
        assert!(parse(quote!(version = 2)).1[0].contains("`state = \"memory\"`"));
        assert!(parse(quote!(state = "m", version = "2")).1[0].contains("whole number"));
    }

    #[test]
    fn a_syntax_error_is_reported_once() {
        assert_eq!(parse(quote!(name "a", reads)).1.len(), 1);
        assert_eq!(parse(quote!(name = "a" reads = [])).1, ["expected `,`"]);
    }
}
