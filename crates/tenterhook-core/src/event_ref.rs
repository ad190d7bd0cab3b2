//! An event with its context, whichever it is.

#[allow(clippy::wildcard_imports)] // forty contexts
use crate::context::*;
use crate::event::Event;
use crate::run_context::{Batch, RunContext};

/// What every event's context is: a moment of the run that can be offered to a hook.
pub trait Context {
    /// The event this is the context of.
    const EVENT: Event;
    /// The moment it happens at.
    fn run_cx(&self) -> &RunContext<'_>;
    /// The batch it is about, if it is about one.
    fn batch(&self) -> Option<&Batch<'_>>;
    /// The event with its context, as hooks of every kind receive it.
    fn event(&self) -> EventRef<'_>;
}

macro_rules! define_event_ref {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {
        /// An event with its context: what is delivered to a hook.
        #[derive(Clone, Copy)]
        #[non_exhaustive]
        pub enum EventRef<'a> {
            $($(#[$doc])* $Event(&'a $Event<'a>),)*
        }

        impl<'a> EventRef<'a> {
            /// Which event it is.
            #[must_use]
            pub fn event(self) -> Event {
                match self {
                    $(EventRef::$Event(_) => Event::$Event,)*
                }
            }

            /// The moment it happens at.
            #[must_use]
            pub fn run_cx(self) -> &'a RunContext<'a> {
                match self {
                    $(EventRef::$Event(cx) => &cx.run_cx,)*
                }
            }

            /// The batch it is about, if it is about one.
            #[must_use]
            pub fn batch(self) -> Option<&'a Batch<'a>> {
                match self {
                    $(EventRef::$Event(cx) => cx.batch_if_any(),)*
                }
            }
        }

        $(
            impl Context for $Event<'_> {
                const EVENT: Event = Event::$Event;
                fn run_cx(&self) -> &RunContext<'_> {
                    &self.run_cx
                }
                fn batch(&self) -> Option<&Batch<'_>> {
                    self.batch_if_any()
                }
                #[inline]
                fn event(&self) -> EventRef<'_> {
                    EventRef::$Event(self)
                }
            }
        )*
    };
}

for_each_event!(define_event_ref);
