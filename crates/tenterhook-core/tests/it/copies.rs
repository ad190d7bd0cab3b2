//! Copies for undoing an update hook's changes: each changed gradient is copied once, and no other.

use std::cell::RefCell;

use tenterhook_core::tensor::TensorSource;
use tenterhook_core::update::SavedGradient;
use tenterhook_core::{
    ClipRule, Gradients, GradientsMut, HookResult, HookSpec, NamedTensors, Policy, Update, UpdateHook, hook,
};

use crate::bench::{Bench, run_cx};

/// Gradients that record which of them are saved and restored.
struct RecordingGradients {
    inner: NamedTensors,
    saved: RefCell<Vec<usize>>,
    restored: Vec<usize>,
}

impl RecordingGradients {
    fn new() -> RecordingGradients {
        let inner = [("a", [1.0]), ("b", [2.0]), ("c", [3.0])].into();
        RecordingGradients { inner, saved: RefCell::default(), restored: Vec::new() }
    }
}

impl GradientsMut for RecordingGradients {
    fn view(&self) -> &dyn TensorSource {
        &self.inner
    }
    fn edit(&mut self, index: usize, change: &mut dyn FnMut(&mut [f32])) {
        self.inner.edit(index, change);
    }
    fn replace(&mut self, index: usize, values: &[f32]) {
        self.inner.replace(index, values);
    }
    fn remove(&mut self, index: usize) {
        self.inner.remove(index);
    }
    fn is_present(&self, index: usize) -> bool {
        self.inner.is_present(index)
    }
    fn save(&self, index: usize) -> SavedGradient {
        self.saved.borrow_mut().push(index);
        self.inner.save(index)
    }
    fn restore(&mut self, index: usize, saved: SavedGradient) {
        self.restored.push(index);
        self.inner.restore(index, saved);
    }
}

type Change = fn(&mut Gradients<'_>) -> HookResult;

struct Changes(Change);

#[hook]
impl UpdateHook for Changes {
    fn declare(&self, spec: HookSpec) -> HookSpec {
        spec.name("changes").policy(Policy::WARN)
    }
    fn update(&mut self, gradients: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        (self.0)(gradients)
    }
}

/// The gradients that are saved, and those that are restored, for a hook that makes these changes.
fn copies(change: Change) -> (Vec<usize>, Vec<usize>) {
    let mut bench = Bench::new();
    bench.runner.add(Changes(change)).unwrap();
    let mut gradients = RecordingGradients::new();
    let cx = Update { run_cx: run_cx(&bench.shared, bench.progress), optimizer: 0 };
    bench.runner.update(&mut gradients, &cx).unwrap();
    if !gradients.restored.is_empty() {
        assert_eq!(gradients.inner, RecordingGradients::new().inner);
    }
    (gradients.saved.into_inner(), gradients.restored)
}

#[test]
fn reading_copies_nothing() {
    let reads: Change = |gradients| {
        assert!(gradients.contains("b") && gradients.view().norm() > 0.0);
        gradients.each(|gradient| {
            assert_eq!(gradient.shape(), [1]);
            assert!(gradient.stats().norm > 0.0 && !gradient.to_vec().is_empty());
            Ok(())
        })
    };
    assert_eq!(copies(reads), (vec![], vec![]));
}

#[test]
fn each_changed_gradient_is_copied_once_and_no_other() {
    let edits: Change = |gradients| {
        gradients.edit("b", |values| values.fill(0.5))?;
        gradients.get("b")?.scale(2.0);
        gradients.get("b")?.replace(&[7.0])?;
        gradients.get("b")?.remove();
        Ok(())
    };
    assert_eq!(copies(edits), (vec![1], vec![]));
    let clips: Change = |gradients| {
        gradients.clip(|name| name != "b", ClipRule::Value(1.0))?;
        gradients.get("a")?.scale(0.5);
        Ok(())
    };
    assert_eq!(copies(clips), (vec![0, 2], vec![]));
}

#[test]
fn after_a_failure_only_changed_gradients_are_restored() {
    let fails: Change = |gradients| {
        gradients.get("c")?.remove();
        gradients.edit("a", |values| values.fill(f32::NAN))?;
        Err("after the damage was done".into())
    };
    assert_eq!(copies(fails), (vec![2, 0], vec![0, 2]));
    let panics: Change = |gradients| {
        gradients.edit("b", |values| {
            values.fill(f32::NAN);
            panic!("in the middle of an edit");
        })?;
        Ok(())
    };
    assert_eq!(copies(panics), (vec![1], vec![1]));
}
