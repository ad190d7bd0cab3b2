//! Hooks of every kind that record their calls and fail at a given place.

use tenterhook::hook::{EventResult, event_result};
use tenterhook::{
    AnyHook, BoxError, Event, EventRef, Gradients, Hook, HookResult, HookSpec, Policy, State, Update,
};

use crate::call_log::CallLog;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Observer,
    Controller,
    Forward,
    Update,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Observer, Kind::Controller, Kind::Forward, Kind::Update];

    /// The places at which a hook of this kind is called.
    pub fn places(self) -> Vec<&'static str> {
        // `on_notice` follows the failures of other hooks, and has separate tests.
        let all = Event::ALL.iter().filter(|event| **event != Event::Notice);
        let events = all.filter(|event| match self {
            Kind::Update => false,
            Kind::Observer => **event != Event::Activation,
            Kind::Controller | Kind::Forward => true,
        });
        let update = (self == Kind::Update).then_some("update");
        let own = update.into_iter().chain(["state_dict", "load_state_dict"]);
        events.map(|event| event.handler()).chain(own).collect()
    }
}

/// The kind and the place of a hook's failure.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub place: &'static str,
    pub panics: bool,
}

/// The common part of all kinds.
pub struct Faulty {
    name: String,
    call_log: CallLog,
    policy: Policy,
    fault: Option<Fault>,
}

impl Faulty {
    pub fn hook(kind: Kind, name: &str, call_log: &CallLog, policy: Policy, fault: Option<Fault>) -> AnyHook {
        let faulty = Faulty { name: name.into(), call_log: call_log.clone(), policy, fault };
        AnyHook::new(Calls { faulty, kind })
    }

    fn called(&self, place: &'static str) -> Result<(), BoxError> {
        self.call_log.note(&format!("hook:{}", self.name), place)?;
        match self.fault.filter(|fault| fault.place == place) {
            None => Ok(()),
            Some(Fault { panics: false, .. }) => Err(message(&self.name, place).into()),
            // A panic without a message on standard error, because there are thousands of them.
            Some(_) => std::panic::resume_unwind(Box::new(message(&self.name, place))),
        }
    }
}

fn message(name: &str, place: &str) -> String {
    format!("{name} goes wrong in {place}")
}

/// Whether an error is this hook's message. Failures while a state is loaded also name the file.
pub fn says(error: &str, name: &str, place: &str) -> bool {
    let rest = error.strip_prefix(&message(name, place));
    rest.is_some_and(|rest| rest.is_empty() || place == "load_state_dict" && rest.ends_with("state.json)"))
}

/// A hook of any kind that records its calls.
struct Calls {
    faulty: Faulty,
    kind: Kind,
}

impl Hook for Calls {
    fn spec(&self) -> HookSpec {
        let name = &self.faulty.name;
        let spec = match self.kind {
            Kind::Update => return HookSpec::update(name).policy(self.faulty.policy),
            Kind::Observer | Kind::Forward => HookSpec::observer(name),
            Kind::Controller => HookSpec::controller(name),
        };
        let all = Event::ALL.iter().copied().filter(|event| *event != Event::Notice);
        let wanted = all.filter(|event| self.kind != Kind::Observer || *event != Event::Activation);
        wanted.fold(spec.policy(self.faulty.policy), HookSpec::wants)
    }
    fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
        event_result(self.faulty.called(event.event().handler()))
    }
    fn update(&mut self, _: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        self.faulty.called("update")
    }
    fn state_dict(&self) -> HookResult<State> {
        self.faulty.called("state_dict")?;
        Ok(State::of(1, &1)?)
    }
    fn load_state_dict(&mut self, _: &State) -> HookResult {
        self.faulty.called("load_state_dict")
    }
}
