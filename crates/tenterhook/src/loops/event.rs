//! How an event goes out: to the hooks, whose decisions are applied and whose saves are taken, then to the module and the
//! strategy, in the order of the table of events (`tenterhook_core::event`).

/// The state of the run as hooks see it.
macro_rules! run_cx {
    ($run:expr, $module:expr) => {
        ::tenterhook_core::RunContext::new(
            ($run.state.stage, $run.state.phase, $run.state.status),
            $run.state.progress,
            &$run.shared,
            &*$module,
            &$run.values.losses,
        )
    };
}

/// Delivers an event to the hooks alone, building its context only if a hook wants it, and applies what they decide.
macro_rules! emit {
    ($run:expr, $module:expr, $Event:ident $fields:tt) => {
        emit!($run, $module, All, $Event $fields)
    };
    ($run:expr, $module:expr, $Part:ident, $Event:ident { $($field:tt)* }) => {
        if $run.hooks.wants(::tenterhook_core::Event::$Event) {
            let run_cx = run_cx!($run, $module);
            $run.hooks.deliver_to(
                ::tenterhook_core::HookGroup::$Part,
                &::tenterhook_core::context!($Event { run_cx, $($field)* }),
            )?;
            $run.after_event($module)?;
        }
    };
}

/// Calls a handler of the module, and notes the place in case it fails or panics.
macro_rules! call_module {
    ($run:expr, $module:expr, $handler:ident) => {{
        $run.at($crate::loops::Who::Module, stringify!($handler));
        let called = $module.$handler(&mut $crate::cx::Cx::new($run.as_mut()));
        $run.checked(called)?;
        $run.after_module($module)?;
    }};
}

/// Calls a handler of the strategy, and notes the place in case it fails or panics.
macro_rules! call_strategy {
    ($run:expr, $handler:ident) => {{
        $run.at($crate::loops::Who::Strategy, stringify!($handler));
        let progress = $run.state.progress;
        let called = $run.ranks.strategy.$handler(&progress);
        $run.checked(called)?;
    }};
}

/// Goes through the receivers of an event, as the table lists them.
macro_rules! deliver {
    ($parts:tt $handler:ident $Event:ident [hooks] $fields:tt) => {
        deliver!(@hooks $parts All $Event $fields);
    };
    ($parts:tt $handler:ident $Event:ident [others module monitors] $fields:tt) => {
        deliver!(@hooks $parts BeforeModule $Event $fields);
        deliver!(@module $parts $handler);
        deliver!(@hooks $parts Monitors $Event $fields);
        deliver_rest!($parts $handler $Event [others module monitors]);
    };
    ($parts:tt $handler:ident $Event:ident $sources:tt $fields:tt) => {
        deliver!(@hooks $parts All $Event $fields);
        deliver_rest!($parts $handler $Event $sources);
    };
    (@hooks [$run:expr, $module:expr] $Part:ident $Event:ident $fields:tt) => {
        emit!($run, $module, $Part, $Event $fields);
    };
    (@module [$run:expr, $module:expr] $handler:ident) => {
        call_module!($run, $module, $handler);
    };
    (@strategy [$run:expr, $module:expr] $handler:ident) => {
        call_strategy!($run, $handler);
    };
    (@saves [$run:expr, $module:expr] $Event:ident) => {
        if let Some(point) = const { $crate::resume::ResumePoint::at(::tenterhook_core::Event::$Event) } {
            $run.agree($module, "decisions")?;
            $run.save_requested($module, point)?;
        }
    };
}

/// What follows when all hooks have received an event: the saves that they requested, then module and strategy. A list of
/// receivers without a rule here is delivered by hand: set-up, teardown, failure, and what belongs to a checkpoint.
macro_rules! deliver_rest {
    ($parts:tt $handler:ident $Event:ident [hooks module]) => {
        deliver!(@saves $parts $Event);
        deliver!(@module $parts $handler);
    };
    ($parts:tt $handler:ident $Event:ident [hooks module strategy]) => {
        deliver!(@saves $parts $Event);
        deliver!(@module $parts $handler);
        deliver!(@strategy $parts $handler);
    };
    ($parts:tt $handler:ident $Event:ident [others module monitors]) => {
        deliver!(@saves $parts $Event);
    };
}

/// Writes `event!` and `event_rest!` from the table of events, with a rule for each of them.
macro_rules! define_event_macros {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {
        define_event_macros! { @with ($) $($handler $Event $sources;)* }
    };
    (@with ($d:tt) $($handler:ident $Event:ident $sources:tt;)*) => {
        /// Delivers an event to all who receive it: `event!(self, TrainStart { .. })` in a `Call`,
        /// `event!(run, module, StepEnd { .. })` in a `Loop`.
        macro_rules! event {
            $(
                ($d call:expr, $Event $d fields:tt) => {
                    deliver!([$d call.run, $d call.module] $handler $Event $sources $d fields)
                };
                ($d run:expr, $d module:expr, $Event $d fields:tt) => {
                    deliver!([$d run, $d module] $handler $Event $sources $d fields)
                };
            )*
        }

        /// Delivers the rest of an event that all hooks had received when the checkpoint was taken.
        macro_rules! event_rest {
            $(
                ($d call:expr, $Event) => {
                    deliver_rest!([$d call.run, $d call.module] $handler $Event $sources)
                };
            )*
        }
    };
}

::tenterhook_core::for_each_event!(define_event_macros);
