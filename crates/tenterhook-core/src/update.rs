//! Update hooks: they receive the gradients by parameter name after `on_before_optimizer_step` and
//! before clipping, and what they leave is what the optimizer uses.

use std::collections::BTreeMap;

use crate::failure::Policy;
use crate::hook::HookResult;
use crate::moment::Moment;
use crate::state::State;
use crate::tensor::TensorSource;

/// The gradients of one optimizer as an engine lets them be changed.
pub trait GradientsMut {
    /// What they are now.
    fn view(&self) -> &dyn TensorSource;
    /// Lets the values of one be changed in place, or in one copy where the engine cannot.
    fn edit(&mut self, index: usize, change: &mut dyn FnMut(&mut [f32]));
}

/// A hook that changes gradients. It must be registered as such; nothing else can.
pub trait UpdateHook: Send + 'static {
    /// Its name, unique among the hooks of a run.
    fn name(&self) -> String;
    /// What its errors do to the run.
    fn policy(&self) -> Policy {
        Policy::ABORT
    }
    /// Changes what it wants to change. On an error or a panic all its changes are undone.
    fn update(&mut self, gradients: &mut Gradients<'_>, cx: &Update<'_>) -> HookResult;
    /// Its own state, for a checkpoint.
    fn state_dict(&self) -> HookResult<State> {
        Ok(State::empty())
    }
    /// Its own state, from a checkpoint.
    fn load_state_dict(&mut self, _state: &State) -> HookResult {
        Ok(())
    }
}

/// Where an update hook stands: the moment, and the optimizer that is about to step.
pub struct Update<'a> {
    /// The state of the run; it shows no parameters, since the module is being changed.
    pub moment: Moment<'a>,
    /// Which optimizer is about to step.
    pub optimizer: usize,
}

impl<'a> std::ops::Deref for Update<'a> {
    type Target = Moment<'a>;
    fn deref(&self) -> &Moment<'a> {
        &self.moment
    }
}

/// The gradients as one update hook sees them: changeable by name, with an undo.
pub struct Gradients<'a> {
    engine: &'a mut dyn GradientsMut,
    /// What the touched ones were before.
    before: BTreeMap<usize, Vec<f32>>,
}

impl<'a> Gradients<'a> {
    /// The gradients, before anybody touched them.
    pub fn new(engine: &'a mut dyn GradientsMut) -> Gradients<'a> {
        Gradients { engine, before: BTreeMap::new() }
    }

    /// The names of the parameters they belong to.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let view = self.engine.view();
        (0..view.count()).map(|index| view.name(index).to_owned()).collect()
    }

    /// The values of one.
    #[must_use]
    pub fn read(&self, name: &str) -> Option<Vec<f32>> {
        Some(self.engine.view().read(self.index(name)?))
    }

    /// Changes one in place; `false` when there is none of this name.
    pub fn edit(&mut self, name: &str, mut change: impl FnMut(&mut [f32])) -> bool {
        let Some(index) = self.index(name) else { return false };
        let before = &mut self.before;
        self.engine.edit(index, &mut |values| {
            before.entry(index).or_insert_with(|| values.to_vec());
            change(values);
        });
        true
    }

    /// Multiplies all of them.
    pub fn scale(&mut self, factor: f32) {
        for name in self.names() {
            self.edit(&name, |values| values.iter_mut().for_each(|value| *value *= factor));
        }
    }

    /// Puts back everything that was touched.
    pub fn undo(&mut self) {
        for (index, before) in std::mem::take(&mut self.before) {
            self.engine.edit(index, &mut |values| values.copy_from_slice(&before));
        }
    }

    fn index(&self, name: &str) -> Option<usize> {
        let view = self.engine.view();
        (0..view.count()).find(|index| view.name(*index) == name)
    }
}

/// The update hook that changes nothing: what runs when nobody registered another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity;

impl UpdateHook for Identity {
    fn name(&self) -> String {
        "identity".into()
    }
    fn update(&mut self, _: &mut Gradients<'_>, _: &Update<'_>) -> HookResult {
        Ok(())
    }
}
