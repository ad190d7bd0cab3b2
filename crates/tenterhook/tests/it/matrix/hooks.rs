//! Hooks of every kind that record what they receive, and go wrong where they are told to.

use tenterhook::{
    AnyHook, BoxError, Context, Decision, Event, Events, Gradients, Hook, HookResult, Policy, State, Update,
    UpdateHook, for_each_event,
};

use crate::tape::Tape;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Observer,
    Controller,
    Forward,
    Update,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Observer, Kind::Controller, Kind::Forward, Kind::Update];

    /// Where a hook of this kind is called.
    pub fn places(self) -> Vec<&'static str> {
        let events = Event::ALL.iter().filter(|event| match self {
            Kind::Update => false,
            Kind::Observer => **event != Event::Activation,
            Kind::Controller | Kind::Forward => true,
        });
        let update = (self == Kind::Update).then_some("update");
        let own = update.into_iter().chain(["state_dict", "load_state_dict"]);
        events.map(|event| event.handler()).chain(own).collect()
    }
}

/// How a hook goes wrong, and where.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub place: &'static str,
    pub panics: bool,
}

/// What all kinds have in common.
pub struct Faulty {
    name: String,
    tape: Tape,
    policy: Policy,
    fault: Option<Fault>,
}

impl Faulty {
    pub fn hook(kind: Kind, name: &str, tape: &Tape, policy: Policy, fault: Option<Fault>) -> AnyHook {
        let faulty = Faulty { name: name.into(), tape: tape.clone(), policy, fault };
        match kind {
            Kind::Observer => AnyHook::new(Observes { faulty, forward: false }),
            Kind::Forward => AnyHook::new(Observes { faulty, forward: true }),
            Kind::Controller => AnyHook::new(Controls(faulty)),
            Kind::Update => AnyHook::update(Updates(faulty)),
        }
    }

    fn called(&self, place: &'static str) -> Result<(), BoxError> {
        self.tape.note(&format!("hook:{}", self.name), place)?;
        match self.fault.filter(|fault| fault.place == place) {
            None => Ok(()),
            Some(Fault { panics: false, .. }) => Err(message(&self.name, place).into()),
            // A panic like any other, but for the text that thousands of them would print.
            Some(_) => std::panic::resume_unwind(Box::new(message(&self.name, place))),
        }
    }
}

fn message(name: &str, place: &str) -> String {
    format!("{name} goes wrong in {place}")
}

/// Whether an error is this hook's message. What fails while a state is loaded also names the file.
pub fn says(error: &str, name: &str, place: &str) -> bool {
    let rest = error.strip_prefix(&message(name, place));
    rest.is_some_and(|rest| rest.is_empty() || place == "load_state_dict" && rest.ends_with("state.json)"))
}

struct Observes {
    faulty: Faulty,
    forward: bool,
}

struct Controls(Faulty);

struct Updates(Faulty);

fn place_of<C: Context>(_: &C) -> &'static str {
    C::EVENT.handler()
}

macro_rules! described {
    ($faulty:ident) => {
        fn name(&self) -> String {
            self.$faulty().name.clone()
        }
        fn policy(&self) -> Policy {
            self.$faulty().policy
        }
        fn state_dict(&self) -> HookResult<State> {
            self.$faulty().called("state_dict")?;
            Ok(State::of(1, &1)?)
        }
        fn load_state_dict(&mut self, _: &State) -> HookResult {
            self.$faulty().called("load_state_dict")
        }
    };
}

impl Observes {
    fn faulty(&self) -> &Faulty {
        &self.faulty
    }
}

impl Controls {
    fn faulty(&self) -> &Faulty {
        &self.0
    }
}

impl Updates {
    fn faulty(&self) -> &Faulty {
        &self.0
    }
}

macro_rules! returned {
    (steer) => { HookResult<Decision> };
    (watch) => { HookResult };
}

macro_rules! hooks {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident;)*) => {
        impl Hook for Observes {
            type Verdict = ();
            fn __events(&self) -> Events {
                let all = Events::of(Event::ALL);
                if self.forward { all } else { all.without(Events::of(&[Event::Activation])) }
            }
            described!(faulty);
            $(
                fn $handler(&mut self, cx: &tenterhook::$Event<'_>) -> HookResult {
                    self.faulty.called(place_of(cx))
                }
            )*
        }

        impl Hook for Controls {
            type Verdict = Decision;
            fn __events(&self) -> Events {
                Events::of(Event::ALL)
            }
            described!(faulty);
            $(
                fn $handler(&mut self, cx: &tenterhook::$Event<'_>) -> returned!($mode) {
                    self.0.called(place_of(cx))?;
                    Ok(Default::default())
                }
            )*
        }
    };
}

for_each_event!(hooks);

impl UpdateHook for Updates {
    fn update(&mut self, _: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        self.0.called("update")
    }
    described!(faulty);
}
