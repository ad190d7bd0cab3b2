//! A blackboard on which hooks and module share values, by typed key.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::run_context::RunState;
use crate::state::{self, StateError};

/// A value that can be put on the blackboard. Checkpoints save it.
pub trait BlackboardValue: Any + Send + Clone + Serialize + DeserializeOwned {}

impl<T: Any + Send + Clone + Serialize + DeserializeOwned> BlackboardValue for T {}

/// A key of the blackboard: a name and the type of its value.
///
/// ```
/// use tenterhook_core::{Blackboard, Key};
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
    /// Makes a key of this name for values of type `T`.
    #[must_use]
    pub const fn new(name: &'static str) -> Key<T> {
        Key { name, value: PhantomData }
    }

    /// The name, under which hooks declare that they read or write the value.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }
}

trait DynValue: Any + Send {
    fn to_box(&self) -> Box<dyn DynValue>;
    fn to_json(&self) -> Result<Value, StateError>;
    fn as_any(&self) -> &dyn Any;
}

impl<T: BlackboardValue> DynValue for T {
    fn to_box(&self) -> Box<dyn DynValue> {
        Box::new(self.clone())
    }
    fn to_json(&self) -> Result<Value, StateError> {
        state::to_json(self)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

enum Stored {
    Live(Box<dyn DynValue>),
    /// Loaded from a checkpoint. Its type is not known before it is read, so every read converts it.
    Restored(Value),
}

impl Clone for Stored {
    fn clone(&self) -> Stored {
        match self {
            Stored::Live(value) => Stored::Live((**value).to_box()),
            Stored::Restored(json) => Stored::Restored(json.clone()),
        }
    }
}

#[derive(Clone)]
struct Entry {
    value: Stored,
    /// The module, a controller or an update hook put the value, so observers can neither replace nor take
    /// it.
    protected: bool,
}

/// Values that hooks and module share, by typed key.
#[derive(Clone, Default)]
pub struct Blackboard {
    entries: RefCell<BTreeMap<String, Entry>>,
    /// The keys whose value was taken.
    taken_keys: RefCell<BTreeSet<String>>,
    /// The keys for which the warning about a refused `put` has been given.
    warned: RefCell<BTreeSet<String>>,
}

impl Blackboard {
    /// Puts a value, and replaces an earlier one.
    pub fn put<T: BlackboardValue>(&self, key: Key<T>, value: T) {
        self.put_entry(key, value, true);
    }

    fn put_entry<T: BlackboardValue>(&self, key: Key<T>, value: T, protected: bool) {
        let value = Stored::Live(Box::new(value));
        self.entries.borrow_mut().insert(key.name.to_owned(), Entry { value, protected });
        self.taken_keys.borrow_mut().remove(key.name);
    }

    /// The value of a key; `None` if there is none or it is of another type.
    #[must_use]
    pub fn get<T: BlackboardValue>(&self, key: Key<T>) -> Option<T> {
        match &self.entries.borrow().get(key.name)?.value {
            Stored::Live(value) => (**value).as_any().downcast_ref::<T>().cloned(),
            Stored::Restored(json) => serde_json::from_value(json.clone()).ok(),
        }
    }

    /// Whether there is a value under this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.entries.borrow().contains_key(name)
    }

    /// Removes a value and returns it.
    pub fn take<T: BlackboardValue>(&self, key: Key<T>) -> Option<T> {
        let value = self.get(key)?;
        self.entries.borrow_mut().remove(key.name);
        self.taken_keys.borrow_mut().insert(key.name.to_owned());
        Some(value)
    }

    fn is_protected(&self, name: &str) -> bool {
        self.entries.borrow().get(name).is_some_and(|entry| entry.protected)
    }

    /// The keys whose values the module, a controller or an update hook put, which no observer can take. A
    /// checkpoint saves them.
    #[must_use]
    pub fn protected_keys(&self) -> BTreeSet<String> {
        let entries = self.entries.borrow();
        entries.iter().filter(|(_, entry)| entry.protected).map(|(name, _)| name.clone()).collect()
    }

    /// Protects the values of these keys from observers.
    pub fn protect_keys(&self, names: &BTreeSet<String>) {
        for (name, entry) in self.entries.borrow_mut().iter_mut() {
            entry.protected |= names.contains(name);
        }
    }

    /// The keys whose value was taken. A checkpoint saves them.
    #[must_use]
    pub fn taken_keys(&self) -> BTreeSet<String> {
        self.taken_keys.borrow().clone()
    }

    /// All values, for a checkpoint.
    pub fn to_json(&self) -> Result<BTreeMap<String, Value>, StateError> {
        let entries = self.entries.borrow();
        let json = entries.iter().map(|(name, entry)| {
            let value = match &entry.value {
                Stored::Live(value) => (**value).to_json()?,
                Stored::Restored(json) => json.clone(),
            };
            Ok((name.clone(), value))
        });
        json.collect()
    }

    /// Restores the values of a checkpoint, and removes the `taken_keys`. Other values stay,
    /// such as those that a program presets.
    pub fn restore(&self, values: BTreeMap<String, Value>, taken_keys: BTreeSet<String>) {
        let mut entries = self.entries.borrow_mut();
        entries.retain(|name, _| !taken_keys.contains(name));
        let restored = |json| Entry { value: Stored::Restored(json), protected: false };
        entries.extend(values.into_iter().map(|(name, json)| (name, restored(json))));
        *self.taken_keys.borrow_mut() = taken_keys;
    }
}

/// The blackboard as a hook sees it.
#[derive(Clone, Copy)]
pub struct BlackboardView<'a> {
    pub(crate) shared: &'a RunState,
}

impl<'a> BlackboardView<'a> {
    /// Puts a value, and replaces an earlier one. An observer cannot replace a value of the module, a
    /// controller or an update hook, since such values steer training: the attempt is ignored with one
    /// warning.
    pub fn put<T: BlackboardValue>(self, key: Key<T>, value: T) {
        let name = key.name;
        if !self.is_refused(name) {
            self.board().put_entry(key, value, !self.shared.is_observing());
        } else if self.board().warned.borrow_mut().insert(name.to_owned()) {
            self.shared.say(format!(
                "`{name}` on the blackboard belongs to the module, a controller or an update hook, so the value of this observer is ignored"
            ));
        }
    }

    /// The value of a key; `None` if there is none or it is of another type.
    #[must_use]
    pub fn get<T: BlackboardValue>(self, key: Key<T>) -> Option<T> {
        self.board().get(key)
    }

    /// Removes a value and returns it. `None` for an observer if the module, a controller or an update hook
    /// put the value; it can [`get`](BlackboardView::get) it.
    #[must_use]
    pub fn take<T: BlackboardValue>(self, key: Key<T>) -> Option<T> {
        if self.is_refused(key.name) { None } else { self.board().take(key) }
    }

    fn board(self) -> &'a Blackboard {
        &self.shared.board
    }

    /// Whether the current hook is an observer and the value is protected from observers.
    fn is_refused(self, name: &str) -> bool {
        self.shared.is_observing() && self.board().is_protected(name)
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
    fn an_observer_takes_and_replaces_only_values_of_observers() {
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
        assert_eq!(by(controller).get(BEST), Some(0.5), "an observer does not replace it");
        assert_eq!(run.messages.borrow().len(), 1, "with one warning");
        let resumed = shared();
        resumed.board.restore(run.board.to_json().expect("it serialises"), run.board.taken_keys());
        resumed.board.protect_keys(&run.board.protected_keys());
        assert_eq!(BlackboardView { shared: &resumed }.take(BEST), None, "also not after a resume");
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
        copy.restore(board.to_json().expect("it serialises"), board.taken_keys());
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
            board.restore(from.to_json().expect("it serialises"), from.taken_keys());
            board.protect_keys(&from.protected_keys());
            (board.get(BEST), board.get(NAMES), board.protected_keys().len())
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
