//! Expansions and errors of `#[hook]` for valid and invalid implementations.

use super::*;

/// The expansion without white space. It must parse as valid Rust.
fn expanded(args: TokenStream, item: TokenStream) -> String {
    let tokens = expand(&quote!(::th), args, item);
    let parsed = syn::parse2::<syn::File>(tokens.clone());
    assert!(parsed.is_ok(), "{tokens}");
    squeezed(&tokens)
}

fn squeezed(tokens: &TokenStream) -> String {
    tokens.to_string().split_whitespace().collect()
}

#[track_caller]
fn assert_holds(expansion: &str, tokens: &TokenStream) {
    let wanted = squeezed(tokens);
    assert!(expansion.contains(&wanted), "no {wanted}\nin {expansion}");
}

/// The messages of the errors, in order.
fn errors(args: TokenStream, item: TokenStream) -> Vec<String> {
    let file = syn::parse2::<syn::File>(expand(&quote!(::th), args, item));
    let items = file.map(|file| file.items).unwrap_or_default();
    let message = |item: &Item| match item {
        Item::Macro(call) => call.mac.parse_body::<syn::LitStr>().ok().map(|message| message.value()),
        _ => None,
    };
    items.iter().filter_map(message).collect()
}

fn observer(methods: &TokenStream) -> TokenStream {
    quote!(impl Observer for LossPrinter { #methods })
}

#[test]
fn an_observer_is_left_unchanged_and_becomes_a_hook_with_its_events_and_name() {
    let handler = quote! {
        /// Prints.
        fn on_train_batch_end(&mut self, cx: &TrainBatchEnd) -> HookResult { Ok(()) }
    };
    let expected = quote! {
        impl Observer for LossPrinter {
            #handler
        }
        impl ::th::Hook for LossPrinter {
            fn spec(&self) -> ::th::HookSpec {
                let spec = ::th::HookSpec::observer("loss_printer");
                let spec = spec.wants(::th::Event::TrainBatchEnd);
                <Self as Observer>::declare(self, spec)
            }
            #[inline]
            fn deliver(&mut self, event: ::th::EventRef<'_>) -> ::th::hook::EventResult {
                match event {
                    ::th::EventRef::TrainBatchEnd(cx) => ::th::hook::event_result(
                        <Self as Observer>::on_train_batch_end(self, cx)
                    ),
                    _ => ::std::result::Result::Ok(()),
                }
            }
        }
    };
    let expanded = expanded(quote!(), observer(&handler));
    assert_eq!(expanded, squeezed(&expected));
}

#[test]
fn a_controller_decides() {
    let expansion = expanded(quote!(), quote!(impl tenterhook::Controller for stop::EarlyStopping {}));
    assert_holds(&expansion, &quote!(impl tenterhook::Controller for stop::EarlyStopping {}));
    assert_holds(&expansion, &quote!(impl ::th::Hook for stop::EarlyStopping));
    assert_holds(&expansion, &quote!(::th::HookSpec::controller("early_stopping");));
    assert_holds(&expansion, &quote!(<Self as tenterhook::Controller>::declare(self, spec)));
}

#[test]
fn generics_bounds_and_attributes_are_kept() {
    let item = quote! {
        #[cfg(unix)]
        impl<'a, T: Send, const N: usize> Observer for HTTPPing<'a, T, N> where T: Clone {
            #[inline]
            fn state_dict(&self) -> State { State::new() }
        }
    };
    let expansion = expanded(quote!(), item);
    assert_holds(
        &expansion,
        &quote! {
            #[cfg(unix)]
            impl<'a, T: Send, const N: usize> ::th::Hook for HTTPPing<'a, T, N> where T: Clone
        },
    );
    let forwarded = quote!(<Self as Observer>::state_dict(self,));
    assert_holds(&expansion, &forwarded);
    assert_holds(&expansion, &quote! { #[inline] fn state_dict(&self) -> State { State::new() } });
    assert_holds(&expansion, &quote!("http_ping"));
}

#[test]
fn arguments_become_part_of_the_spec() {
    let args = quote!(name = "stop", reads = ["val/loss", "lr"], writes = ["best"], tier = "monitor");
    let expansion = expanded(args, quote!(impl Controller for X {}));
    assert_holds(
        &expansion,
        &quote! {
            let spec = ::th::HookSpec::controller("stop")
                .reads("val/loss").reads("lr").writes("best").tier(::th::Tier::Monitor);
        },
    );
    let args = quote!(on_error = "warn", monitors = "val/loss", ranks = "local_main");
    let expansion = expanded(args, observer(&quote!()));
    assert_holds(
        &expansion,
        &quote!(.monitors("val/loss").policy(::th::Policy::WARN).ranks(::th::Ranks::LocalMain);),
    );
}

#[test]
fn a_state_argument_generates_the_state_methods() {
    let expansion = expanded(quote!(state = "memory", version = 2), quote!(impl Controller for X {}));
    assert_holds(&expansion, &quote!(::th::State::of(2u32, &self.memory)));
    assert_holds(&expansion, &quote!(self.memory = state.read(2u32)?;));
    let written = observer(&quote! { fn state_dict(&self) -> HookResult<State> { Ok(State::empty()) } });
    let said = errors(quote!(state = "memory"), written);
    assert_eq!(said, ["`fn state_dict` below does the same; keep one of the two"]);
}

#[test]
fn an_event_is_wanted_and_delivered_under_the_condition_of_its_handler() {
    let methods = quote! {
        fn on_train_end(&mut self, cx: &TrainEnd) -> HookResult { Ok(()) }
        #[allow(dead_code)]
        #[cfg(feature = "loud")]
        fn setup(&mut self, cx: &Setup) -> HookResult { Ok(()) }
    };
    let expansion = expanded(quote!(), observer(&methods));
    assert_holds(
        &expansion,
        &quote! {
            let spec = spec.wants(::th::Event::TrainEnd);
            #[cfg(feature = "loud")]
            let spec = spec.wants(::th::Event::Setup);
        },
    );
    assert_holds(
        &expansion,
        &quote!(
            #[cfg(feature = "loud")]
            ::th::EventRef::Setup(cx)
        ),
    );
}

#[test]
fn the_error_for_a_missing_return_type_names_it() {
    let item = observer(&quote! { fn on_step_end(&mut self, cx: &StepEnd) { self.step(); } });
    assert_eq!(
        errors(quote!(), item),
        ["`on_step_end` returns `HookResult`: write `-> HookResult`, and `Ok(())` at its end"]
    );
    let controller = |method| errors(quote!(), quote!(impl Controller for X { #method }));
    assert_eq!(
        controller(quote!(
            fn on_step_end(&mut self, cx: &StepEnd) {}
        )),
        ["`on_step_end` returns `HookResult<Decision>`: write `-> HookResult<Decision>`, and \
            `Ok(Decision::CONTINUE)` at its end"]
    );
    let watching = controller(quote!(
        fn on_fit_end(&mut self, cx: &FitEnd) {}
    ));
    assert!(watching[0].contains("returns `HookResult`:"), "{watching:?}");
}

#[test]
fn a_misspelt_handler_names_the_nearest() {
    let item = observer(&quote! { fn on_training_end(&mut self, cx: &TrainEnd) {} });
    assert_eq!(
        errors(quote!(), item),
        ["`on_training_end` is not a handler of a hook; did you mean `on_train_end`?"]
    );
}

#[test]
fn the_error_for_a_helper_method_suggests_a_block_of_its_own() {
    let item = observer(&quote! { fn is_better(&self) -> bool { true } });
    let [error] = errors(quote!(), item).try_into().unwrap_or_default();
    assert!(error.ends_with("belong in a plain `impl LossPrinter` block"), "{error}");
}

#[test]
fn the_error_for_a_missing_context_names_it() {
    let item = observer(&quote! { fn on_train_end(&mut self) {} });
    assert_eq!(
        errors(quote!(), item),
        ["`on_train_end` takes its context: `fn on_train_end(&mut self, cx: &TrainEnd)`"]
    );
}

#[test]
fn all_errors_are_reported_together_with_the_valid_part() {
    let methods = quote! {
        type State = ();
        const N: usize = 3;
        handlers!();
        fn on_training_end(&mut self, cx: &TrainEnd) {}
        fn on_test_end(&mut self) {}
        fn setup(&mut self, cx: &Setup) -> HookResult { Ok(()) }
    };
    let args = quote!(nmae = "x", tier = "monitor");
    assert_eq!(errors(args.clone(), observer(&methods)).len(), 6);
    let expansion = expanded(args, observer(&methods));
    assert_holds(&expansion, &quote!(fn setup));
    assert_holds(&expansion, &quote!(.tier(::th::Tier::Monitor)));
    for wrong in ["typeState", "constN", "handlers!", "fnon_training_end", "fnon_test_end(&mutself){"] {
        assert!(!expansion.contains(wrong), "{wrong}");
    }
}

#[test]
fn a_hook_declares_in_one_method() {
    let methods = quote! {
        fn tier(&self) -> Tier { Tier::User }
    };
    let found = errors(quote!(), observer(&methods));
    assert_eq!(found, ["`tier` is not a handler of a hook; did you mean `declare`?"]);
}

#[test]
fn an_empty_name_is_refused_and_replaced_by_the_types() {
    assert_eq!(errors(quote!(name = ""), observer(&quote!())), ["a name may not be empty"]);
    assert_holds(&expanded(quote!(name = ""), observer(&quote!())), &quote!("loss_printer"));
}

#[test]
fn a_type_without_a_name_requires_a_name_argument() {
    let item = quote!(impl Observer for (A, B) {});
    assert_eq!(errors(quote!(), item.clone()).len(), 1);
    assert!(errors(quote!(name = "pair"), item).is_empty());
    assert_holds(&expanded(quote!(), quote!(impl Observer for &mut Ema {})), &quote!("ema"));
}

#[test]
fn other_traits_are_refused_and_left_out() {
    for item in [quote!(impl Hook for X {}), quote!(impl !Observer for X {})] {
        let [error] = errors(quote!(), item.clone()).try_into().unwrap_or_default();
        assert!(error.starts_with("this is not a kind of hook"), "{error}");
        assert!(!expanded(quote!(), item).contains("forX"));
    }
}

#[test]
fn generic_arguments_of_the_trait_are_refused() {
    assert_eq!(
        errors(quote!(), quote!(impl Observer<f32> for X {})),
        ["`Observer` takes no generic arguments"]
    );
}

#[test]
fn other_items_are_refused_and_left_unchanged() {
    let inherent = quote!(impl X { fn helper() {} });
    for item in [inherent, quote! { struct X; }] {
        let [error] = errors(quote!(), item.clone()).try_into().unwrap_or_default();
        assert!(error.ends_with(PLACE), "{error}");
        assert!(expanded(quote!(), item.clone()).ends_with(&squeezed(&item)));
    }
}

#[test]
fn the_table_lists_names_and_whether_they_steer() {
    let table = squeezed(&handler_table(&quote!()));
    assert!(table.starts_with("&[(\"setup\",true),(\"teardown\",false),"), "{table}");
    assert!(table.ends_with(",(\"on_exception\",true)]"), "{table}");
    assert!(squeezed(&handler_table(&quote!(x))).contains("compile_error"));
}

#[test]
fn an_update_hook_is_expanded_like_other_hooks() {
    let item = quote! {
        impl<T: Send> UpdateHook for Halve<T> where T: Copy {
            fn update(&mut self, gradients: &mut Gradients, cx: &Update) -> HookResult { Ok(()) }
        }
    };
    let expansion = expanded(quote!(on_error = "warn", state = "memory"), item);
    assert_holds(&expansion, &quote!(impl<T: Send> UpdateHook for Halve<T> where T: Copy));
    assert_holds(&expansion, &quote!(impl<T: Send> ::th::Hook for Halve<T> where T: Copy));
    assert_holds(&expansion, &quote!(::th::HookSpec::update("halve").policy(::th::Policy::WARN);));
    assert_holds(&expansion, &quote!(<Self as UpdateHook>::update(self, gradients, cx)));
    assert_holds(&expansion, &quote!(<Self as UpdateHook>::state_dict(self,)));
    let found = errors(quote!(tier = "user"), quote!(impl UpdateHook for Halve {}));
    assert_eq!(found, ["an update hook has no tier: update hooks run in registration order"]);
}

#[test]
fn the_errors_for_a_deciding_observer_and_an_update_hook_with_a_handler_contain_a_fix() {
    let decides = observer(&quote!(
        fn on_step_end(&mut self, cx: &StepEnd) -> HookResult<Decision> {
            Ok(Decision::CONTINUE)
        }
    ));
    assert_eq!(
        errors(quote!(), decides),
        ["an observer decides nothing; to return a `Decision`, write `impl Controller for LossPrinter`"]
    );
    let handles = quote!(
        impl UpdateHook for Halve {
            fn update(&mut self, gradients: &mut Gradients, cx: &Update) {}
            fn on_step_end(&mut self, cx: &StepEnd) {}
        }
    );
    assert_eq!(
        errors(quote!(), handles),
        ["an update hook receives no events; put `on_step_end` into an observer or a controller of its own"]
    );
}
