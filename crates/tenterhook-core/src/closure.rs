//! Closures as hooks: `closure::on_step_end("print", |cx| println!("{}", cx.step))`.
//!
//! There is one function per event. The closure returns nothing, a [`Decision`], or a [`HookResult`] of
//! either. One that returns a decision makes a controller, any other an observer.

#[allow(clippy::wildcard_imports)] // forty contexts
use crate::context::*;
use crate::event::Event;
use crate::flow::Decision;
use crate::hook::{EventResult, Hook, HookResult, event_result};
use crate::spec::HookSpec;

/// What a handler returns on success: nothing in an observer, a [`Decision`] in a controller.
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

/// What a closure may return.
pub trait ClosureReturn {
    /// The value on success.
    type Value: HandlerValue;
    /// Converts it into a handler's result.
    fn into_result(self) -> HookResult<Self::Value>;
}

impl ClosureReturn for () {
    type Value = ();
    fn into_result(self) -> HookResult {
        Ok(())
    }
}

impl ClosureReturn for Decision {
    type Value = Decision;
    fn into_result(self) -> HookResult<Decision> {
        Ok(self)
    }
}

impl<V: HandlerValue> ClosureReturn for HookResult<V> {
    type Value = V;
    fn into_result(self) -> HookResult<V> {
        self
    }
}

/// A hook made of a closure that handles one event.
pub struct Closure<F> {
    spec: HookSpec,
    deliver: F,
}

impl<F: FnMut(EventRef<'_>) -> EventResult> Closure<F> {
    fn new(spec: HookSpec, deliver: F) -> Closure<F> {
        Closure { spec, deliver }
    }

    /// Declares that the hook reads this metric or blackboard key.
    #[must_use]
    pub fn reads(mut self, name: impl Into<String>) -> Closure<F> {
        self.spec = self.spec.reads(name);
        self
    }

    /// Declares that the hook writes this metric or blackboard key.
    #[must_use]
    pub fn writes(mut self, name: impl Into<String>) -> Closure<F> {
        self.spec = self.spec.writes(name);
        self
    }
}

impl<F: FnMut(EventRef<'_>) -> EventResult + Send + 'static> Hook for Closure<F> {
    fn spec(&self) -> HookSpec {
        self.spec.clone()
    }
    fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
        (self.deliver)(event)
    }
}

macro_rules! closures {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {$(
        closures! { @$mode $(#[$doc])* $handler $Event }
    )*};
    (@steer $(#[$doc:meta])* $handler:ident $Event:ident) => {
        closures! { @returns [ClosureReturn] $(#[$doc])* $handler $Event }
    };
    (@watch $(#[$doc:meta])* $handler:ident $Event:ident) => {
        closures! { @returns [ClosureReturn<Value = ()>] $(#[$doc])* $handler $Event }
    };
    (@returns [$($Return:tt)*] $(#[$doc:meta])* $handler:ident $Event:ident) => {
        $(#[$doc])*
        pub fn $handler<F, R>(
            name: impl Into<String>,
            mut handler: F,
        ) -> Closure<impl FnMut(EventRef<'_>) -> EventResult + Send + 'static>
        where
            F: FnMut(&$Event<'_>) -> R + Send + 'static,
            R: $($Return)* + 'static,
        {
            let spec = R::Value::spec(name.into()).wants(Event::$Event);
            Closure::new(spec, move |event: EventRef<'_>| match event {
                EventRef::$Event(cx) => event_result(handler(cx).into_result()),
                _ => Ok(()),
            })
        }
    };
}

for_each_event!(closures);
