//! A typed board on which hooks leave values for each other.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::run_context::Shared;
use crate::state::{self, StateError};

/// A value that may stand on the board: it must survive a checkpoint.
pub trait BlackboardValue: Any + Send + Clone + Serialize + DeserializeOwned {}

impl<T: Any + Send + Clone + Serialize + DeserializeOwned> BlackboardValue for T {}

/// The name and type of a place on the board.
///
/// ```
/// use tenterhook_core::{Board, Key};
/// const BEST: Key<f64> = Key::new("best_accuracy");
/// let board = Blackboard::default();
/// board.put(BEST, 0.95);
/// assert_eq!(board.get(BEST), Some(0.95));
/// ```
pub struct Key<T> {
    name: &'static str,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> Key<T> {
    /// A place of this name for values of type `T`.
    #[must_use]
    pub const fn new(name: &'static str) -> Key<T> {
        Key { name, value: PhantomData }
    }

    /// The name under which hooks declare that they read or write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }
}

trait Stored: Any + Send {
    fn copied(&self) -> Box<dyn Stored>;
    fn to_json(&self) -> Result<Value, StateError>;
    fn as_any(&self) -> &dyn Any;
}

impl<T: BlackboardValue> Stored for T {
    fn copied(&self) -> Box<dyn Stored> {
        Box::new(self.clone())
    }
    fn to_json(&self) -> Result<Value, StateError> {
        state::to_json(self)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Clone for Slot {
    fn clone(&self) -> Slot {
        match self {
            Slot::Live(value) => Slot::Live((**value).copied()),
            Slot::Restored(json) => Slot::Restored(json.clone()),
        }
    }
}

enum Slot {
    Live(Box<dyn Stored>),
    /// Read from a checkpoint; it gets its type when somebody first asks for it.
    Restored(Value),
}

/// Values that hooks leave for each other, by typed key.
#[derive(Clone, Default)]
pub struct Blackboard {
    slots: RefCell<BTreeMap<String, Slot>>,
    /// The places where the module, a controller or an update hook put what is there.
    kept: RefCell<BTreeSet<String>>,
    /// The places whose value was taken away.
    taken: RefCell<BTreeSet<String>>,
    /// The places about which an observer was told that they are not its own.
    told: RefCell<BTreeSet<String>>,
}

impl Blackboard {
    /// Puts a value, replacing the one that stood there.
    pub fn put<T: BlackboardValue>(&self, key: Key<T>, value: T) {
        self.slots.borrow_mut().insert(key.name.to_owned(), Slot::Live(Box::new(value)));
        self.kept.borrow_mut().insert(key.name.to_owned());
        self.taken.borrow_mut().remove(key.name);
    }

    /// The value that stands there; `None` when there is none or it is of another type.
    #[must_use]
    pub fn get<T: BlackboardValue>(&self, key: Key<T>) -> Option<T> {
        match self.slots.borrow().get(key.name)? {
            Slot::Live(value) => (**value).as_any().downcast_ref::<T>().cloned(),
            Slot::Restored(json) => serde_json::from_value(json.clone()).ok(),
        }
    }

    /// Whether a value stands at the place of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.slots.borrow().contains_key(name)
    }

    /// Takes the value away.
    pub fn take<T: BlackboardValue>(&self, key: Key<T>) -> Option<T> {
        let value = self.get(key)?;
        self.slots.borrow_mut().remove(key.name);
        self.kept.borrow_mut().remove(key.name);
        self.taken.borrow_mut().insert(key.name.to_owned());
        Some(value)
    }

    /// The places whose values no observer may take away, because the module, a controller or an update hook put
    /// them there; a checkpoint holds their names.
    #[must_use]
    pub fn kept_from_observers(&self) -> BTreeSet<String> {
        self.kept.borrow().clone()
    }

    /// Keeps observers from taking away what is in these places.
    pub fn keep_from_observers(&self, names: BTreeSet<String>) {
        self.kept.borrow_mut().extend(names);
    }

    /// The places whose value was taken away; a checkpoint holds their names.
    #[must_use]
    pub fn taken(&self) -> BTreeSet<String> {
        self.taken.borrow().clone()
    }

    /// Everything on the board, as a checkpoint holds it.
    pub fn to_json(&self) -> Result<BTreeMap<String, Value>, StateError> {
        let slots = self.slots.borrow();
        let json = slots.iter().map(|(name, slot)| {
            let value = match slot {
                Slot::Live(value) => (**value).to_json()?,
                Slot::Restored(json) => json.clone(),
            };
            Ok((name.clone(), value))
        });
        json.collect()
    }

    /// Restores the values of a checkpoint, and empties the places that were `taken` before it. Other places keep their
    /// values, such as those that a program presets.
    pub fn restore(&self, values: BTreeMap<String, Value>, taken: BTreeSet<String>) {
        let stays = |name: &str| !values.contains_key(name) && !taken.contains(name);
        self.kept.borrow_mut().retain(|name| stays(name));
        let mut slots = self.slots.borrow_mut();
        slots.retain(|name, _| stays(name));
        slots.extend(values.into_iter().map(|(name, json)| (name, Slot::Restored(json))));
        *self.taken.borrow_mut() = taken;
    }
}

/// The board as hooks see it: values are put, read and taken one by one.
#[derive(Clone, Copy)]
pub struct BlackboardView<'a> {
    pub(crate) shared: &'a RunState,
}

impl<'a> BlackboardView<'a> {
    /// Puts a value, replacing the one that stood there. What an observer puts does not replace what the module, a
    /// controller or an update hook put: they decide by it. That is said once.
    pub fn put<T: BlackboardValue>(self, key: Key<T>, value: T) {
        if self.keeps(key.name) {
            if self.board().told.borrow_mut().insert(key.name.to_owned()) {
                let name = key.name;
                self.shared.say(format!(
                    "`{name}` on the board is the module's, a controller's or an update hook's, so what this observer puts there is left out"
                ));
            }
            return;
        }
        self.board().put(key, value);
        if self.shared.observing() {
            self.board().kept.borrow_mut().remove(key.name);
        }
    }

    /// The value that stands there; `None` when there is none or it is of another type.
    #[must_use]
    pub fn get<T: BlackboardValue>(self, key: Key<T>) -> Option<T> {
        self.board().get(key)
    }

    /// Takes the value away. For an observer there is nothing to take where the module, a controller or an update
    /// hook put the value: it would be gone for whoever decides by it. An observer can [`get`](BlackboardView::get) it.
    #[must_use]
    pub fn take<T: BlackboardValue>(self, key: Key<T>) -> Option<T> {
        if self.keeps(key.name) { None } else { self.board().take(key) }
    }

    fn board(self) -> &'a Blackboard {
        &self.shared.board
    }

    /// Whether an observer looks at what is not its own.
    fn keeps(self, name: &str) -> bool {
        self.shared.observing() && self.board().kept.borrow().contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEST: Key<f64> = Key::new("best");
    const NAMES: Key<Vec<String>> = Key::new("names");

    #[test]
    fn a_value_is_read_back_by_its_key_and_type_only() {
        let board = Blackboard::default();
        board.put(BEST, 0.25);
        assert_eq!(board.get(BEST), Some(0.25));
        assert_eq!(board.get(Key::<String>::new("best")), None);
        assert_eq!(board.get(NAMES), None);
        assert_eq!(board.take(BEST), Some(0.25));
        assert_eq!(board.get(BEST), None);
    }

    #[test]
    fn an_observer_takes_away_and_replaces_only_what_observers_left() {
        let shared = || {
            let clock = Box::new(crate::run_context::FixedClock::default());
            let shared = RunState::new(crate::RunInfo::default(), 0, clock);
            let info = |name: &str, kind| crate::HookInfo {
                name: name.into(),
                kind,
                tier: crate::Tier::User,
                ranks: crate::Ranks::All,
                enabled: true,
                on_error: crate::OnError::Abort,
                failures: 0,
                budget: None,
            };
            let hooks =
                [info("watches", crate::HookKind::Observer), info("steers", crate::HookKind::Controller)];
            shared.roster.set(hooks.map(Some).into());
            shared
        };
        let (observer, controller) = (0, 1);
        let run = shared();
        let by = |hook| {
            run.current.hook.set(hook);
            BlackboardView { shared: &run }
        };
        by(controller).put(BEST, 0.5);
        assert_eq!((by(observer).take(BEST), by(observer).get(BEST)), (None, Some(0.5)));
        for _ in 0..2 {
            by(observer).put(BEST, 0.1);
        }
        assert_eq!(by(controller).get(BEST), Some(0.5), "nor replaces it");
        assert_eq!(run.messages.borrow().len(), 1, "which is said once");
        let resumed = shared();
        resumed.board.restore(run.board.to_json().expect("it serialises"), run.board.taken());
        resumed.board.keep_from_observers(run.board.kept_from_observers());
        assert_eq!(BlackboardView { shared: &resumed }.take(BEST), None, "nor after a resume");
        assert_eq!(by(controller).take(BEST), Some(0.5));
        by(observer).put(BEST, 0.25);
        assert_eq!(by(observer).take(BEST), Some(0.25));
    }

    #[test]
    fn the_board_survives_a_checkpoint() {
        let board = Blackboard::default();
        board.put(BEST, 0.1 + 0.2);
        board.put(NAMES, vec!["a".to_owned()]);
        let copy = Blackboard::default();
        copy.restore(board.to_json().expect("it serialises"), board.taken());
        assert_eq!(copy.get(BEST), Some(0.1 + 0.2));
        assert_eq!(copy.to_json().expect("it serialises"), board.to_json().expect("it serialises"));
    }

    #[test]
    fn a_preset_value_survives_a_restore_unless_the_checkpoint_has_another_or_it_was_taken() {
        let preset = || {
            let board = Blackboard::default();
            board.put(BEST, 0.5);
            board.put(NAMES, vec!["a".to_owned()]);
            board
        };
        let restored = |from: &Blackboard| {
            let board = preset();
            board.restore(from.to_json().expect("it serialises"), from.taken());
            board.keep_from_observers(from.kept_from_observers());
            (board.get(BEST), board.get(NAMES), board.kept_from_observers().len())
        };
        let all = Some(vec!["a".to_owned()]);
        let empty = Blackboard::default();
        assert_eq!(restored(&empty), (Some(0.5), all.clone(), 2), "the checkpoint has none of them");
        let run = preset();
        run.put(BEST, 0.75);
        assert_eq!(restored(&run), (Some(0.75), all, 2), "the checkpoint has another value");
        run.take(NAMES);
        assert_eq!(restored(&run), (Some(0.75), None, 1), "it was taken before the checkpoint");
    }
}
