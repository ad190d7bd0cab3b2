//! An event with its context.

#[allow(clippy::wildcard_imports)] // forty contexts
use crate::context::*;
use crate::event::Event;
use crate::run_context::{Batch, RunContext};

/// The common interface of all contexts.
pub trait Context {
    /// The event of this context.
    const EVENT: Event;
    /// The state of the run.
    fn run_cx(&self) -> &RunContext<'_>;
    /// The context as it is delivered to a hook.
    fn event(&self) -> EventRef<'_>;
}

macro_rules! define_event_ref {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {
        /// An event with its context, as it is delivered to a hook.
        #[derive(Clone, Copy)]
        #[non_exhaustive]
        pub enum EventRef<'a> {
            $($(#[$doc])* $Event(&'a $Event<'a>),)*
        }

        impl<'a> EventRef<'a> {
            /// The event.
            #[must_use]
            pub fn event(self) -> Event {
                match self {
                    $(EventRef::$Event(_) => Event::$Event,)*
                }
            }

            /// The state of the run.
            #[must_use]
            pub fn run_cx(self) -> &'a RunContext<'a> {
                match self {
                    $(EventRef::$Event(cx) => &cx.run_cx,)*
                }
            }

            /// The batch of the event, if it has one.
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
                #[inline]
                fn event(&self) -> EventRef<'_> {
                    EventRef::$Event(self)
                }
            }
        )*
    };
}

for_each_event!(define_event_ref);
