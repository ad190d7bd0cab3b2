//! How the loops deliver an event: to the hooks behind a test whether anybody wants it, to the module
//! by a call that names its place.

/// The state of the run as hooks see it.
macro_rules! moment {
    ($run:expr, $module:expr) => {
        ::tenterhook_core::Moment::new(
            ($run.state.stage, $run.state.phase, $run.state.status),
            $run.state.progress,
            &$run.shared,
            &*$module,
            &$run.values.losses,
        )
    };
}

/// Delivers an event to the hooks, building its context only if a hook wants it, and applies what they decide. Saves
/// that they request wait for the loop, which takes them between the hooks and the module.
macro_rules! emit {
    ($run:expr, $module:expr, $Event:ident { $($field:tt)* }) => {
        emit!($run, $module, All, $Event { $($field)* })
    };
    ($run:expr, $module:expr, $Part:ident, $Event:ident { $($field:tt)* }) => {
        if $run.hooks.wants(::tenterhook_core::Event::$Event) {
            let moment = moment!($run, $module);
            $run.hooks.deliver_to(
                ::tenterhook_core::Part::$Part,
                &::tenterhook_core::context!($Event { moment, $($field)* }),
            )?;
            $run.after_event($module)?;
        }
    };
}

/// Calls a handler of the module, and notes the place in case it fails or panics.
macro_rules! tell {
    ($run:expr, $module:expr, $handler:ident) => {{
        $run.at($crate::loops::Who::Module, stringify!($handler));
        let told = $module.$handler(&mut $crate::cx::Cx::new($run));
        $run.checked(told)?;
        $run.after_module($module)?;
    }};
}

/// Calls a handler of the strategy, and notes the place in case it fails or panics.
macro_rules! tell_strategy {
    ($session:expr, $handler:ident) => {{
        $session.run.at($crate::loops::Who::Strategy, stringify!($handler));
        let told = $session.strategy.$handler(&$session.run.state.progress);
        $session.run.checked(told)?;
    }};
}
