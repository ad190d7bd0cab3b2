//! The expansions of the macros.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::ext::IdentExt;
use syn::{
    Attribute, Error, FnArg, ImplItem, ImplItemFn, Item, ItemImpl, Path, PathArguments, ReturnType, Type,
    parse_quote,
};

use crate::args::{Arg, Args};
use crate::handlers::{self, HANDLERS, Handler, OTHER_METHODS};
use crate::naming;

const PLACE: &str =
    "`#[hook]` goes on `impl Observer for ..`, `impl Controller for ..` or `impl UpdateHook for ..`";

/// Expands `#[hook(args)] item`. `krate` is the path of tenterhook in the calling crate.
///
/// If there are errors, the expansion contains all of them and the valid part of the implementation, which
/// avoids follow-up errors.
pub(crate) fn expand(krate: &TokenStream, args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Vec::new();
    let args = Args::parse(args, &mut errors);
    let expansion = match syn::parse2(item.clone()) {
        Ok(Item::Impl(item)) => expand_impl(krate, &args, item, &mut errors),
        Ok(_) => {
            errors.push(Error::new(Span::call_site(), PLACE));
            item
        }
        Err(error) => {
            errors.push(error);
            item
        }
    };
    let errors = errors.into_iter().reduce(|mut all, error| {
        all.combine(error);
        all
    });
    let errors = errors.map(Error::into_compile_error);
    quote!(#errors #expansion)
}

/// Expands `handler_table!(input)`.
pub(crate) fn handler_table(input: &TokenStream) -> TokenStream {
    if !input.is_empty() {
        return Error::new_spanned(input, "`handler_table!` takes no arguments").into_compile_error();
    }
    let rows = HANDLERS.iter().map(|Handler { name, steers }| quote!((#name, #steers)));
    quote!(&[#(#rows),*])
}

/// The kinds of hooks that the attribute supports.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Observer,
    Controller,
    Update,
}

impl Kind {
    fn of(name: &str) -> Option<Kind> {
        match name {
            "Observer" => Some(Kind::Observer),
            "Controller" => Some(Kind::Controller),
            "UpdateHook" => Some(Kind::Update),
            _ => None,
        }
    }

    /// The constructor of `HookSpec` for this kind.
    fn constructor(self) -> &'static str {
        match self {
            Kind::Observer => "observer",
            Kind::Controller => "controller",
            Kind::Update => "update",
        }
    }

    /// The return type of a handler, and the expression that returns its default value.
    fn returns(self, handler: &Handler) -> (&'static str, &'static str) {
        if self == Kind::Controller && handler.steers {
            ("HookResult<Decision>", "Ok(Decision::CONTINUE)")
        } else {
            ("HookResult", "Ok(())")
        }
    }
}

/// Expands to the implementation without its invalid members, and to an implementation of `Hook`.
fn expand_impl(krate: &TokenStream, args: &Args, mut item: ItemImpl, errors: &mut Vec<Error>) -> TokenStream {
    let Some((not, path, _)) = &item.trait_ else {
        errors.push(Error::new_spanned(&item.self_ty, format!("this implements no trait; {PLACE}")));
        return item.into_token_stream();
    };
    let last = path.segments.last();
    let kind = last.and_then(|segment| Kind::of(&segment.ident.unraw().to_string()));
    let Some(kind) = kind.filter(|_| not.is_none()) else {
        errors.push(Error::new_spanned(path, format!("this is not a kind of hook; {PLACE}")));
        return TokenStream::new();
    };
    if let Some(segment) = last
        && !matches!(segment.arguments, PathArguments::None)
    {
        let message = format!("`{}` takes no generic arguments", segment.ident);
        errors.push(Error::new_spanned(&segment.arguments, message));
    }
    if let (Kind::Update, Some(tier)) = (kind, &args.tier) {
        let message = "an update hook has no tier: update hooks run in registration order";
        errors.push(Error::new(tier.key, message));
    }
    let path = path.clone();
    let hook = HookImpl { krate, args, path, ty: last_segment(&item.self_ty), kind };
    let methods = hook.fill(&mut item, errors);
    let (ty, (generics, _, bounds)) = (&item.self_ty, item.generics.split_for_impl());
    let attributes = item.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    quote! {
        #item
        #(#attributes)*
        impl #generics #krate::Hook for #ty #bounds {
            #methods
        }
    }
}

struct HookImpl<'a> {
    krate: &'a TokenStream,
    args: &'a Args,
    /// The path of the trait.
    path: Path,
    /// The name of the type, if it has one.
    ty: Option<String>,
    kind: Kind,
}

/// A method of the implementation with its `cfg` attributes.
struct Written {
    name: String,
    cfgs: Vec<Attribute>,
}

impl HookImpl<'_> {
    /// Removes invalid members from the implementation, adds those that the attribute generates, and returns
    /// the methods of `Hook`.
    fn fill(&self, item: &mut ItemImpl, errors: &mut Vec<Error>) -> TokenStream {
        let mut written = Vec::new();
        item.items.retain(|member| match member {
            ImplItem::Fn(method) => {
                let name = method.sig.ident.unraw().to_string();
                let checked = self.check(&name, method);
                let is_right = checked.is_ok();
                errors.extend(checked.err());
                let cfgs = method.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
                written.push((Written { name, cfgs: cfgs.cloned().collect() }, is_right));
                is_right
            }
            ImplItem::Const(_) | ImplItem::Type(_) | ImplItem::Macro(_) => {
                let message = "the implementation of a hook holds methods only";
                errors.push(Error::new_spanned(member, message));
                false
            }
            // The compiler reports other members, such as a method without a body.
            _ => true,
        });
        for (name, key, method) in self.state() {
            if written.iter().any(|(written, _)| written.name == name) {
                let message = format!("`fn {name}` below does the same; keep one of the two");
                errors.push(Error::new(key, message));
                continue;
            }
            item.items.push(method);
            written.push((Written { name: name.to_owned(), cfgs: Vec::new() }, true));
        }
        let written: Vec<_> =
            written.into_iter().filter(|(_, is_right)| *is_right).map(|(it, _)| it).collect();
        let spec = self.spec(&item.self_ty, &written).unwrap_or_else(|error| {
            errors.push(error);
            TokenStream::new()
        });
        let (deliver, forwards) = (self.deliver(&written), self.forwards(&written));
        quote!(#spec #deliver #forwards)
    }

    /// Checks a method.
    fn check(&self, name: &str, method: &ImplItemFn) -> syn::Result<()> {
        let (ident, ty) = (&method.sig.ident, self.ty.as_deref().unwrap_or("T"));
        let wrong = |message: String| Err(Error::new(ident.span(), message));
        let handler = handlers::find(name);
        if self.kind == Kind::Update {
            return handler.map_or(Ok(()), |handler| {
                let advice = "into an observer or a controller of its own";
                wrong(format!("an update hook receives no events; put `{}` {advice}", handler.name))
            });
        }
        if OTHER_METHODS.contains(&name) {
            return Ok(());
        }
        let Some(handler) = handler else { return wrong(handlers::complaint(name, ty)) };
        if !method.sig.inputs.iter().any(|input| matches!(input, FnArg::Typed(_))) {
            let event = handler.event();
            return wrong(format!("`{name}` takes its context: `fn {name}(&mut self, cx: &{event})`"));
        }
        let output = &method.sig.output;
        if self.kind == Kind::Observer && names_a_decision(output) {
            let advice = format!("to return a `Decision`, write `impl Controller for {ty}`");
            return Err(Error::new_spanned(output, format!("an observer decides nothing; {advice}")));
        }
        if matches!(output, ReturnType::Default) {
            let (returned, end) = self.kind.returns(handler);
            return wrong(format!(
                "`{name}` returns `{returned}`: write `-> {returned}`, and `{end}` at its end"
            ));
        }
        Ok(())
    }

    /// Generates `Hook::spec` from the arguments and the handlers, followed by the hook's own `declare`.
    fn spec(&self, ty: &Type, written: &[Written]) -> syn::Result<TokenStream> {
        let (krate, path) = (self.krate, &self.path);
        let Args { name, reads, writes, monitors, tier, on_error, ranks, .. } = self.args;
        let name = match (name, &self.ty) {
            (Some(name), _) => name.value(),
            (None, Some(ty)) => naming::snake(ty),
            (None, None) => {
                let message =
                    "the hook's name cannot be derived from this type; write `#[hook(name = \"..\")]`";
                return Err(Error::new_spanned(ty, message));
            }
        };
        let constructor = format_ident!("{}", self.kind.constructor());
        let (monitors, policy, ranks) = (monitors.iter(), on_error.iter(), ranks.iter());
        let tier = tier.iter().map(|tier| &tier.value);
        let wants = handled(written).map(
            |(Written { cfgs, .. }, event)| quote!(#(#cfgs)* let spec = spec.wants(#krate::Event::#event);),
        );
        Ok(quote! {
            fn spec(&self) -> #krate::HookSpec {
                let spec = #krate::HookSpec::#constructor(#name)
                    #(.reads(#reads))* #(.writes(#writes))* #(.monitors(#monitors))*
                    #(.tier(#krate::Tier::#tier))* #(.policy(#krate::Policy::#policy))*
                    #(.ranks(#krate::Ranks::#ranks))*;
                #(#wants)*
                <Self as #path>::declare(self, spec)
            }
        })
    }

    /// Generates `Hook::deliver`, which calls the handler of the event.
    fn deliver(&self, written: &[Written]) -> TokenStream {
        let (krate, path) = (self.krate, &self.path);
        let arms: Vec<_> = handled(written)
            .map(|(Written { name, cfgs }, event)| {
                let handler = format_ident!("{name}");
                quote! {
                    #(#cfgs)*
                    #krate::EventRef::#event(cx) => #krate::hook::event_result(<Self as #path>::#handler(self, cx)),
                }
            })
            .collect();
        if arms.is_empty() {
            return TokenStream::new();
        }
        quote! {
            #[inline]
            fn deliver(&mut self, event: #krate::EventRef<'_>) -> #krate::hook::EventResult {
                match event {
                    #(#arms)*
                    _ => ::std::result::Result::Ok(()),
                }
            }
        }
    }

    /// Generates the other methods of `Hook` that the hook implements.
    fn forwards(&self, written: &[Written]) -> TokenStream {
        let (krate, path) = (self.krate, &self.path);
        let forward = |Written { name, cfgs }: &Written| {
            let (signature, arguments) = match name.as_str() {
                "update" => (
                    quote!((&mut self, gradients: &mut #krate::Gradients<'_>, cx: &#krate::Update<'_>) -> #krate::HookResult),
                    quote!(gradients, cx),
                ),
                "wants_point" => (quote!((&self, point: &str) -> bool), quote!(point)),
                "wants_activations" => (
                    quote!((&self, phase: #krate::Phase, progress: &#krate::Progress) -> bool),
                    quote!(phase, progress),
                ),
                "state_dict" => (quote!((&self) -> #krate::HookResult<#krate::State>), quote!()),
                "load_state_dict" => {
                    (quote!((&mut self, state: &#krate::State) -> #krate::HookResult), quote!(state))
                }
                "check_state_dict" => {
                    (quote!((&self, state: &#krate::State) -> #krate::HookResult), quote!(state))
                }
                "finish" => (quote!((&mut self) -> #krate::HookResult), quote!()),
                "delivery_stats" => {
                    (quote!((&self) -> ::std::option::Option<#krate::DeliveryStats>), quote!())
                }
                _ => return None,
            };
            let method = format_ident!("{name}");
            Some(quote!(#(#cfgs)* fn #method #signature { <Self as #path>::#method(self, #arguments) }))
        };
        written.iter().filter_map(forward).collect()
    }

    /// Generates the methods that save a field in checkpoints, each with its name and the position of the
    /// argument.
    fn state(&self) -> Vec<(&'static str, Span, ImplItem)> {
        let Some(Arg { key, value }) = &self.args.state else { return Vec::new() };
        let krate = self.krate;
        let version = self.args.version.as_ref().map_or(1, |version| version.value);
        let save = parse_quote! {
            fn state_dict(&self) -> #krate::HookResult<#krate::State> {
                ::std::result::Result::Ok(#krate::State::of(#version, &self.#value)?)
            }
        };
        let load = parse_quote! {
            fn load_state_dict(&mut self, state: &#krate::State) -> #krate::HookResult {
                self.#value = state.read(#version)?;
                ::std::result::Result::Ok(())
            }
        };
        let check = parse_quote! {
            fn check_state_dict(&self, state: &#krate::State) -> #krate::HookResult {
                ::std::result::Result::Ok(state.check(#version, &self.#value)?)
            }
        };
        vec![("state_dict", *key, save), ("load_state_dict", *key, load), ("check_state_dict", *key, check)]
    }
}

/// The handlers among the methods, each with its event.
fn handled(written: &[Written]) -> impl Iterator<Item = (&Written, Ident)> {
    written.iter().filter_map(|it| Some((it, format_ident!("{}", handlers::find(&it.name)?.event()))))
}

/// Whether a return type contains `Decision`.
fn names_a_decision(output: &ReturnType) -> bool {
    fn is_in(tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => ident == "Decision",
            TokenTree::Group(group) => is_in(group.stream()),
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        })
    }
    is_in(output.to_token_stream())
}

fn last_segment(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.unraw().to_string()),
        Type::Reference(reference) => last_segment(&reference.elem),
        Type::Group(group) => last_segment(&group.elem),
        Type::Paren(paren) => last_segment(&paren.elem),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
