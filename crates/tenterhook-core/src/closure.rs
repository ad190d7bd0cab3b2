//! Closures as hooks: `closure::on_step_end("print", |cx| println!("{}", cx.step))`.
//!
//! One function per event. The closure returns nothing, a [`Decision`], or a [`HookResult`] of
//! either; what it returns makes it an observer or a controller.

use std::marker::PhantomData;

#[allow(clippy::wildcard_imports)] // forty contexts
use crate::context::*;
use crate::event::{Event, Events};
use crate::flow::Decision;
use crate::hook::{Hook, HookResult, Verdict};

/// What a closure may return.
pub trait Answer {
    /// The verdict it amounts to.
    type Verdict: Verdict;
    /// The handler's result.
    fn into_result(self) -> HookResult<Self::Verdict>;
}

impl Answer for () {
    type Verdict = ();
    fn into_result(self) -> HookResult {
        Ok(())
    }
}

impl Answer for Decision {
    type Verdict = Decision;
    fn into_result(self) -> HookResult<Decision> {
        Ok(self)
    }
}

impl<V: Verdict> Answer for HookResult<V> {
    type Verdict = V;
    fn into_result(self) -> HookResult<V> {
        self
    }
}

/// A closure that handles one event.
pub struct Closure<E, F, A> {
    name: String,
    handler: F,
    event: PhantomData<fn() -> (E, A)>,
}

/// Markers for the events that closures handle.
pub mod on {
    macro_rules! markers {
        ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident;)*) => {$(
            /// Marks a closure that handles the event of this name.
            pub struct $Event;
        )*};
    }
    for_each_event!(markers);
}

macro_rules! closures {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident;)*) => {$(
        closures! { @$mode $(#[$doc])* $handler $Event }
    )*};
    (@steer $(#[$doc:meta])* $handler:ident $Event:ident) => {
        $(#[$doc])*
        pub fn $handler<F, A>(name: impl Into<String>, handler: F) -> Closure<on::$Event, F, A>
        where
            F: FnMut(&$Event<'_>) -> A + Send + 'static,
            A: Answer + 'static,
        {
            Closure { name: name.into(), handler, event: PhantomData }
        }

        impl<F, A> Hook for Closure<on::$Event, F, A>
        where
            F: FnMut(&$Event<'_>) -> A + Send + 'static,
            A: Answer + 'static,
        {
            type Verdict = A::Verdict;
            fn __events(&self) -> Events {
                Events::NONE.with(Event::$Event)
            }
            fn name(&self) -> String {
                self.name.clone()
            }
            fn $handler(&mut self, cx: &$Event<'_>) -> HookResult<A::Verdict> {
                (self.handler)(cx).into_result()
            }
        }
    };
    (@watch $(#[$doc:meta])* $handler:ident $Event:ident) => {
        $(#[$doc])*
        pub fn $handler<F, A>(name: impl Into<String>, handler: F) -> Closure<on::$Event, F, A>
        where
            F: FnMut(&$Event<'_>) -> A + Send + 'static,
            A: Answer<Verdict = ()> + 'static,
        {
            Closure { name: name.into(), handler, event: PhantomData }
        }

        impl<F, A> Hook for Closure<on::$Event, F, A>
        where
            F: FnMut(&$Event<'_>) -> A + Send + 'static,
            A: Answer<Verdict = ()> + 'static,
        {
            type Verdict = ();
            fn __events(&self) -> Events {
                Events::NONE.with(Event::$Event)
            }
            fn name(&self) -> String {
                self.name.clone()
            }
            fn $handler(&mut self, cx: &$Event<'_>) -> HookResult {
                (self.handler)(cx).into_result()
            }
        }
    };
}

for_each_event!(closures);
