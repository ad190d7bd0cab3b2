//! How the loops deliver an event: to the hooks behind a test whether anybody wants it, to the module
//! by a call that names its place.

/// The state of the run as hooks see it.
macro_rules! moment {
    ($run:expr, $module:expr) => {
        ::tenterhook_core::Moment::new(
            ($run.stage, $run.phase, $run.status),
            $run.progress,
            &$run.shared,
            &*$module,
            &$run.losses,
        )
    };
}

/// Delivers an event to the hooks, building its context only if somebody wants it. The checkpoint
/// hook's saves are carried out within its own turn, everybody else's requests after the event.
macro_rules! emit {
    ($run:expr, $module:expr, $Event:ident { $($field:tt)* }) => {
        emit!($run, $module, All, $Event { $($field)* })
    };
    ($run:expr, $module:expr, $Part:ident, $Event:ident { $($field:tt)* }) => {
        if $run.hooks.wants(::tenterhook_core::Event::$Event) {
            let event = ::tenterhook_core::Event::$Event;
            let cursor = $run.hooks.cursor(event, ::tenterhook_core::Part::$Part);
            emit!(@from cursor, $run, $module, $Event { $($field)* });
            $run.after_event($module)?;
        }
    };
    (@from $cursor:expr, $run:expr, $module:expr, $Event:ident { $($field:tt)* }) => {
        let mut cursor = $cursor;
        loop {
            let moment = moment!($run, $module);
            let delivered =
                $run.hooks.deliver(&::tenterhook_core::context!($Event { moment, $($field)* }), &mut cursor)?;
            match delivered {
                ::tenterhook_core::Delivered::Done => break,
                ::tenterhook_core::Delivered::Paused(saves) => {
                    $run.save_within($module, ::tenterhook_core::Event::$Event, &saves)?;
                }
            }
        }
    };
}

/// Delivers the rest of an event that a checkpoint was taken in: first what else was to be saved then, then the
/// hooks behind the one that saved, then what the event's hooks had decided.
macro_rules! emit_rest {
    ($run:expr, $module:expr, $position:expr, $Event:ident { $($field:tt)* }) => {
        if let Some(cursor) = $run.rest_of($module, $position, ::tenterhook_core::Event::$Event)? {
            emit!(@from cursor, $run, $module, $Event { $($field)* });
        }
        $run.after_event($module)?;
        $run.save_asked($module, $position.place)?;
    };
}

/// Calls a handler of the module, and notes the place in case it fails or panics.
macro_rules! tell {
    ($run:expr, $module:expr, $handler:ident) => {{
        $run.at($crate::running::Who::Module, stringify!($handler));
        let told = $module.$handler(&mut $crate::cx::Cx::new($run));
        $run.checked(told)?;
        $run.after_module($module)?;
    }};
}

/// Calls a handler of the strategy, and notes the place in case it fails or panics.
macro_rules! tell_strategy {
    ($session:expr, $handler:ident) => {{
        $session.run.at($crate::running::Who::Strategy, stringify!($handler));
        let told = $session.strategy.$handler(&$session.run.progress);
        $session.run.checked(told)?;
    }};
}
