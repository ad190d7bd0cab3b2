//! Closures as hooks: `closure::on_step_end("print", |cx| println!("{}", cx.step))`.
//!
//! There is one function per event. The closure returns nothing, a [`Decision`], or a [`HookResult`] of
//! either. One that returns a decision makes a controller, any other an observer.

use std::marker::PhantomData;

#[allow(clippy::wildcard_imports)] // forty contexts
use crate::context::*;
use crate::event::Event;
use crate::flow::Decision;
use crate::hook::{EventResult, Hook, HookResult, event_result};
use crate::spec::HookSpec;

/// The success value of a handler: nothing in an observer, a [`Decision`] in a controller.
pub trait HandlerValue: Into<Decision> + sealed::Sealed {
    /// The spec of a hook of this kind and name.
    #[doc(hidden)]
    fn spec(name: String) -> HookSpec;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for crate::flow::Decision {}
}

impl HandlerValue for () {
    fn spec(name: String) -> HookSpec {
        HookSpec::observer(name)
    }
}

impl HandlerValue for Decision {
    fn spec(name: String) -> HookSpec {
        HookSpec::controller(name)
    }
}

/// A return type of closures.
pub trait ClosureReturn {
    /// The value on success.
    type HandlerValue: HandlerValue;
    /// Converts it into the result of a handler.
    fn into_result(self) -> HookResult<Self::HandlerValue>;
}

impl ClosureReturn for () {
    type HandlerValue = ();
    fn into_result(self) -> HookResult {
        Ok(())
    }
}

impl ClosureReturn for Decision {
    type HandlerValue = Decision;
    fn into_result(self) -> HookResult<Decision> {
        Ok(self)
    }
}

impl<V: HandlerValue> ClosureReturn for HookResult<V> {
    type HandlerValue = V;
    fn into_result(self) -> HookResult<V> {
        self
    }
}

/// A closure that handles one event.
pub struct Closure<E, F, A> {
    spec: HookSpec,
    handler: F,
    event: PhantomData<fn() -> (E, A)>,
}

impl<E, F, A: ClosureReturn> Closure<E, F, A> {
    fn new(name: String, event: Event, handler: F) -> Closure<E, F, A> {
        Closure { spec: A::HandlerValue::spec(name).wants(event), handler, event: PhantomData }
    }

    /// Declares that the hook reads this metric or blackboard key.
    #[must_use]
    pub fn reads(mut self, name: impl Into<String>) -> Closure<E, F, A> {
        self.spec = self.spec.reads(name);
        self
    }

    /// Declares that the hook writes this metric or blackboard key.
    #[must_use]
    pub fn writes(mut self, name: impl Into<String>) -> Closure<E, F, A> {
        self.spec = self.spec.writes(name);
        self
    }
}

/// Markers for the events that closures handle.
pub mod on {
    macro_rules! markers {
        ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {$(
            /// Marks a closure that handles the event of this name.
            pub struct $Event;
        )*};
    }
    for_each_event!(markers);
}

macro_rules! closures {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {$(
        closures! { @$mode $(#[$doc])* $handler $Event }
    )*};
    (@steer $(#[$doc:meta])* $handler:ident $Event:ident) => {
        closures! { @returns [ClosureReturn] $(#[$doc])* $handler $Event }
    };
    (@watch $(#[$doc:meta])* $handler:ident $Event:ident) => {
        closures! { @returns [ClosureReturn<HandlerValue = ()>] $(#[$doc])* $handler $Event }
    };
    (@returns [$($ClosureReturn:tt)*] $(#[$doc:meta])* $handler:ident $Event:ident) => {
        $(#[$doc])*
        pub fn $handler<F, A>(name: impl Into<String>, handler: F) -> Closure<on::$Event, F, A>
        where
            F: FnMut(&$Event<'_>) -> A + Send + 'static,
            A: $($ClosureReturn)* + 'static,
        {
            Closure::new(name.into(), Event::$Event, handler)
        }

        impl<F, A> Hook for Closure<on::$Event, F, A>
        where
            F: FnMut(&$Event<'_>) -> A + Send + 'static,
            A: $($ClosureReturn)* + 'static,
        {
            fn spec(&self) -> HookSpec {
                self.spec.clone()
            }
            fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
                match event {
                    EventRef::$Event(cx) => event_result((self.handler)(cx).into_result()),
                    _ => Ok(()),
                }
            }
        }
    };
}

for_each_event!(closures);
