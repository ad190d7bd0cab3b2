//! What the macros expand to.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, FnArg, ImplItem, ImplItemFn, Item, ItemImpl, PathArguments, ReturnType, Type, parse_quote};

use crate::args::{Arg, Args};
use crate::handlers::{self, HANDLERS, Handler, OTHER_METHODS};
use crate::naming;

const PLACE: &str =
    "`#[hook]` goes on `impl Observer for ..`, `impl Controller for ..` or `impl UpdateHook for ..`";

/// The expansion of `#[hook(args)] item`, where `krate` is the path of tenterhook in the calling crate.
///
/// With errors, all of them and what is right of the implementation, so that no others follow from its lack.
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

/// The expansion of `handler_table!(input)`.
pub(crate) fn handler_table(input: &TokenStream) -> TokenStream {
    if !input.is_empty() {
        return Error::new_spanned(input, "`handler_table!` takes no arguments").into_compile_error();
    }
    let rows = HANDLERS.iter().map(|Handler { name, steers }| quote!((#name, #steers)));
    quote!(&[#(#rows),*])
}

fn expand_impl(krate: &TokenStream, args: &Args, mut item: ItemImpl, errors: &mut Vec<Error>) -> TokenStream {
    let Some((not, path, _)) = &mut item.trait_ else {
        errors.push(Error::new_spanned(&item.self_ty, format!("this implements no trait; {PLACE}")));
        return item.into_token_stream();
    };
    let last = path.segments.last();
    if not.is_none() && last.is_some_and(|segment| segment.ident.unraw() == "UpdateHook") {
        return expand_update(krate, args, item, errors);
    }
    let verdict = match last.map(|segment| segment.ident.unraw().to_string()).as_deref() {
        _ if not.is_some() => None,
        Some("Observer") => Some(quote!(())),
        Some("Controller") => Some(quote!(#krate::Decision)),
        _ => None,
    };
    let Some(verdict) = verdict else {
        let message = format!("this is no kind of hook; {PLACE}");
        errors.push(Error::new_spanned(path, message));
        return TokenStream::new();
    };
    if let Some(segment) = last
        && !matches!(segment.arguments, PathArguments::None)
    {
        let message = format!("`{}` takes no generic arguments", segment.ident);
        errors.push(Error::new_spanned(&segment.arguments, message));
    }
    let kind = path.clone();
    // Where the trait is written, but from the macro: a missing method is shown there, style lints are not.
    let span = Span::call_site().located_at(path.span());
    let hook = quote_spanned!(span=> #krate::Hook);
    *path = parse_quote!(#hook);

    let observes = kind.segments.last().is_some_and(|segment| segment.ident.unraw() == "Observer");
    let hook = HookImpl { krate, args, ty: last_segment(&item.self_ty), observes };
    hook.fill(&mut item, &verdict, errors);
    // Names the trait as it was written, so that its import counts as used.
    quote! {
        #item
        const _: () = {
            #[allow(dead_code)]
            fn kind<H: #kind>() {}
        };
    }
}

/// An update hook stays one; the attribute gives it a name, what the arguments say, and a place among the others.
fn expand_update(
    krate: &TokenStream,
    args: &Args,
    mut item: ItemImpl,
    errors: &mut Vec<Error>,
) -> TokenStream {
    if let Some(tier) = &args.tier {
        let message = "an update hook has no tier: update hooks run in registration order";
        errors.push(Error::new(tier.key, message));
    }
    let hook = HookImpl { krate, args, ty: last_segment(&item.self_ty), observes: false };
    item.items.retain(|member| {
        let ImplItem::Fn(method) = member else { return true };
        let handler = handlers::find(&method.sig.ident.unraw().to_string());
        errors.extend(handler.map(|handler| {
            let message = format!(
                "an update hook receives no events; put `{}` into an observer or a controller of its own",
                handler.name
            );
            Error::new(method.sig.ident.span(), message)
        }));
        handler.is_none()
    });
    let written = item.items.iter().filter_map(|member| match member {
        ImplItem::Fn(method) => Some(method.sig.ident.unraw().to_string()),
        _ => None,
    });
    let written: Vec<_> = written.collect();
    for member in &mut item.items {
        if let ImplItem::Fn(method) = member
            && method.sig.ident == "update"
        {
            *method = hook.returning(false, method.clone());
        }
    }
    let own = std::mem::take(&mut item.items);
    hook.provide(&mut item, &written, errors);
    item.items.extend(own);
    let (ty, (generics, _, bounds)) = (&item.self_ty, item.generics.split_for_impl());
    let attributes = item.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    quote! {
        #item
        #(#attributes)*
        impl #generics ::std::convert::From<#ty> for #krate::AnyHook #bounds {
            fn from(hook: #ty) -> #krate::AnyHook {
                #krate::AnyHook::update(hook)
            }
        }
    }
}

struct HookImpl<'a> {
    krate: &'a TokenStream,
    args: &'a Args,
    /// The name of the type, if it has one.
    ty: Option<String>,
    /// It is an observer.
    observes: bool,
}

impl HookImpl<'_> {
    /// Checks the items, leaves out the wrong ones and puts before them those that the attribute provides.
    fn fill(&self, item: &mut ItemImpl, verdict: &TokenStream, errors: &mut Vec<Error>) {
        let krate = self.krate;
        let mut written = Vec::new();
        let mut events = Vec::new();
        let mut kept = Vec::new();
        for member in std::mem::take(&mut item.items) {
            match member {
                ImplItem::Fn(method) => {
                    let name = method.sig.ident.unraw().to_string();
                    match self.method(&name, method) {
                        Ok((method, event)) => {
                            events.extend(event);
                            kept.push(ImplItem::Fn(method));
                        }
                        Err(error) => errors.push(error),
                    }
                    written.push(name);
                }
                ImplItem::Const(_) | ImplItem::Type(_) | ImplItem::Macro(_) => {
                    let message = "the implementation of a hook holds methods only";
                    errors.push(Error::new_spanned(member, message));
                }
                // Such as a method without a body: the compiler says what is wrong with it.
                other => kept.push(other),
            }
        }

        item.items = vec![
            parse_quote!(type Verdict = #verdict;),
            parse_quote! {
                #[allow(unused_mut)]
                fn __events(&self) -> #krate::Events {
                    let mut events = #krate::Events::NONE;
                    #(#events)*
                    events
                }
            },
        ];
        self.provide(item, &written, errors);
        item.items.append(&mut kept);
    }

    /// Puts in the methods that the arguments provide; these are written already.
    fn provide(&self, item: &mut ItemImpl, written: &[String], errors: &mut Vec<Error>) {
        let is_written = |name: &str| written.iter().any(|written| written == name);
        let provided = [
            ("name", self.name(is_written("name"), &item.self_ty)),
            ("access", Ok(self.access())),
            ("tier", Ok(self.tier())),
            ("policy", Ok(self.policy())),
            ("state_dict", Ok(self.state_dict())),
            ("load_state_dict", Ok(self.load_state_dict())),
            ("check_state_dict", Ok(self.check_state_dict())),
        ];
        for (method, provided) in provided {
            match provided {
                Ok(Some((key, _))) if is_written(method) => errors.push(twice(method, key)),
                Ok(Some((_, provided))) => item.items.push(provided),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
    }

    /// A written method as it is to be, and the statement that asks for its event if it is a handler.
    fn method(&self, name: &str, method: ImplItemFn) -> syn::Result<(ImplItemFn, Option<TokenStream>)> {
        if OTHER_METHODS.contains(&name) {
            return Ok((method, None));
        }
        let Some(handler) = handlers::find(name) else {
            let ty = self.ty.as_deref().unwrap_or("T");
            return Err(Error::new(method.sig.ident.span(), handlers::complaint(name, ty)));
        };
        let event = handler.event();
        if !method.sig.inputs.iter().any(|input| matches!(input, FnArg::Typed(_))) {
            let message = format!("`{name}` takes its context: `fn {name}(&mut self, cx: &{event})`");
            return Err(Error::new(method.sig.ident.span(), message));
        }
        if self.observes && names_a_decision(&method.sig.output) {
            let ty = self.ty.as_deref().unwrap_or("T");
            let message = format!(
                "an observer decides nothing; to return a `Decision`, write `impl Controller for {ty}`"
            );
            return Err(Error::new_spanned(&method.sig.output, message));
        }
        let krate = self.krate;
        let event = format_ident!("{event}");
        let cfgs = method.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
        let asks = quote!(#(#cfgs)* { events = events.with(#krate::Event::#event); });
        Ok((self.returning(handler.steers, method), Some(asks)))
    }

    /// Makes a handler without a return type return `Ok` of the default.
    fn returning(&self, steers: bool, mut method: ImplItemFn) -> ImplItemFn {
        if !matches!(method.sig.output, ReturnType::Default) {
            return method;
        }
        let krate = self.krate;
        // Not `Self::Verdict`, which is ambiguous on an enum with a variant of that name.
        let verdict = steers.then(|| quote!(<<Self as #krate::Hook>::Verdict>));
        method.sig.output = parse_quote!(-> #krate::HookResult #verdict);
        let body = &method.block;
        method.block = parse_quote!({
            (|| -> () #body)();
            ::std::result::Result::Ok(::std::default::Default::default())
        });
        method.attrs.push(parse_quote!(#[allow(clippy::redundant_closure_call, clippy::unused_unit)]));
        method
    }

    fn name(&self, is_written: bool, ty: &Type) -> syn::Result<Option<Provided>> {
        let (key, name) = match (&self.args.name, &self.ty) {
            (Some(Arg { key, value }), _) => (*key, value.value()),
            (None, _) if is_written => return Ok(None),
            (None, Some(ty)) => (Span::call_site(), naming::snake(ty)),
            (None, None) => {
                let message = "this type has no name to call the hook by; write `#[hook(name = \"..\")]`";
                return Err(Error::new_spanned(ty, message));
            }
        };
        let method = parse_quote! {
            fn name(&self) -> ::std::string::String { ::std::string::String::from(#name) }
        };
        Ok(Some((key, method)))
    }

    fn access(&self) -> Option<Provided> {
        let Args { reads, writes, monitors, .. } = self.args;
        let lists = reads.as_ref().or(writes.as_ref()).map(|list| list.key);
        let key = lists.or(monitors.as_ref().map(|metric| metric.key))?;
        let krate = self.krate;
        let reads = reads.iter().flat_map(|reads| &reads.value);
        let writes = writes.iter().flat_map(|writes| &writes.value);
        let monitors = monitors.iter().map(|metric| &metric.value);
        let method = parse_quote! {
            fn access(&self) -> #krate::Access {
                #krate::Access::none() #(.reads(#reads))* #(.writes(#writes))* #(.monitors(#monitors))*
            }
        };
        Some((key, method))
    }

    fn tier(&self) -> Option<Provided> {
        let Arg { key, value } = self.args.tier.as_ref()?;
        let krate = self.krate;
        Some((*key, parse_quote!(fn tier(&self) -> #krate::Tier { #krate::Tier::#value })))
    }

    fn state_dict(&self) -> Option<Provided> {
        let Arg { key, value } = self.args.state.as_ref()?;
        let (krate, version) = (self.krate, self.version());
        let method = parse_quote! {
            fn state_dict(&self) -> #krate::HookResult<#krate::State> {
                ::std::result::Result::Ok(#krate::State::of(#version, &self.#value)?)
            }
        };
        Some((*key, method))
    }

    fn load_state_dict(&self) -> Option<Provided> {
        let Arg { key, value } = self.args.state.as_ref()?;
        let (krate, version) = (self.krate, self.version());
        let method = parse_quote! {
            fn load_state_dict(&mut self, state: &#krate::State) -> #krate::HookResult {
                self.#value = state.read(#version)?;
                ::std::result::Result::Ok(())
            }
        };
        Some((*key, method))
    }

    fn check_state_dict(&self) -> Option<Provided> {
        let Arg { key, value } = self.args.state.as_ref()?;
        let (krate, version) = (self.krate, self.version());
        let method = parse_quote! {
            fn check_state_dict(&self, state: &#krate::State) -> #krate::HookResult {
                ::std::result::Result::Ok(state.check(#version, &self.#value)?)
            }
        };
        Some((*key, method))
    }

    fn version(&self) -> u32 {
        self.args.version.as_ref().map_or(1, |version| version.value)
    }

    fn policy(&self) -> Option<Provided> {
        let Arg { key, value } = self.args.on_error.as_ref()?;
        let krate = self.krate;
        Some((*key, parse_quote!(fn policy(&self) -> #krate::Policy { #krate::Policy::#value })))
    }
}

/// A method that an argument provides, and where the argument is written.
type Provided = (Span, ImplItem);

fn twice(method: &str, key: Span) -> Error {
    Error::new(key, format!("this is what `fn {method}` below says too; keep one of the two"))
}

/// Whether a return type is written with `Decision` in it.
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
