//! Copies for undoing an update hook's changes: each changed gradient is copied once, and no other.

use std::cell::RefCell;

use tenterhook_core::tensor::TensorSource;
use tenterhook_core::update::SavedGradient;
use tenterhook_core::{
    ClipRule, Gradients, GradientsMut, HookResult, HookSpec, NamedTensors, Policy, Update, UpdateHook, hook,
};

use crate::bench::{Bench, run_cx};

/// Gradients that record which of them are saved and restored.
struct Noting {
    inner: NamedTensors,
    kept: RefCell<Vec<usize>>,
    put_back: Vec<usize>,
}

impl Noting {
    fn new() -> Noting {
        let inner = [("a", [1.0]), ("b", [2.0]), ("c", [3.0])].into();
        Noting { inner, kept: RefCell::default(), put_back: Vec::new() }
    }
}

impl GradientsMut for Noting {
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
        self.kept.borrow_mut().push(index);
        self.inner.save(index)
    }
    fn restore(&mut self, index: usize, kept: SavedGradient) {
        self.put_back.push(index);
        self.inner.restore(index, kept);
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
    let mut gradients = Noting::new();
    let cx = Update { run_cx: run_cx(&bench.shared, bench.progress), optimizer: 0 };
    bench.runner.update(&mut gradients, &cx).unwrap();
    if !gradients.put_back.is_empty() {
        assert_eq!(gradients.inner, Noting::new().inner);
    }
    (gradients.kept.into_inner(), gradients.put_back)
}

#[test]
fn looking_copies_nothing() {
    let looks: Change = |gradients| {
        assert!(gradients.contains("b") && gradients.view().norm() > 0.0);
        gradients.each(|gradient| {
            assert_eq!(gradient.shape(), [1]);
            assert!(gradient.stats().norm > 0.0 && !gradient.to_vec().is_empty());
            Ok(())
        })
    };
    assert_eq!(copies(looks), (vec![], vec![]));
}

#[test]
fn what_is_touched_is_copied_once_and_nothing_else_is() {
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
