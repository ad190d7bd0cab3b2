//! Update hooks (gradients in, gradients out) and activations.

use tenterhook_core::{Event, Hook, Update};

use crate::rig::Rig;
use tenterhook_core::NamedTensors;

impl<H: Hook> Rig<H> {
    /// Lets the update hook change the gradients that were given, and returns what it left. When it
    /// fails they are as before, and the failure is among [`failures`](Rig::failures).
    ///
    /// ```
    /// use tenterhook_core::{hook, HookSpec, Gradients, HookResult, Update, UpdateHook};
    /// use tenterhook_testkit::Rig;
    ///
    /// struct Halve;
    ///
    /// #[hook]
    /// impl UpdateHook for Halve {
    ///     fn declare(&self, spec: HookSpec) -> HookSpec {
    ///         spec.name("halve")
    ///     }
    ///     fn update(&mut self, gradients: &mut Gradients, _: &Update) -> HookResult {
    ///         gradients.scale(0.5);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut rig = Rig::new(Halve);
    /// let after = rig.gradients([("w", [2.0, -4.0])]).update();
    /// assert_eq!(after.get("w"), Some(&[1.0, -2.0][..]));
    /// ```
    pub fn update(&mut self) -> &NamedTensors {
        let mut gradients = std::mem::take(&mut self.world.update.gradients);
        let run_cx = self.world.run_cx(Event::BeforeOptimizerStep);
        let cx = Update { run_cx, optimizer: self.world.update.optimizer };
        let updated = self.runner.update(&mut gradients, &cx);
        self.world.update.gradients = gradients;
        match updated {
            Ok(()) => self.note_contained(),
            Err(failure) => self.note_abort(failure),
        }
        &self.world.update.gradients
    }
}

impl<H: Hook> Rig<H> {
    /// Shows the hook an activation, if it wants that point.
    ///
    /// ```
    /// use tenterhook_core::{HookResult, hook, Activation, Observer};
    /// use tenterhook_testkit::Rig;
    ///
    /// struct Norms(Vec<f64>);
    ///
    /// #[hook]
    /// impl Observer for Norms {
    ///     fn wants_point(&self, point: &str) -> bool {
    ///         point.ends_with(".mlp")
    ///     }
    ///     fn on_activation(&mut self, cx: &Activation) -> HookResult {
    ///         self.0.push(cx.values.norm());
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut rig = Rig::new(Norms(Vec::new()));
    /// rig.activation("blocks.0.mlp", [3.0, 4.0]).activation("blocks.0.attention", [1.0]);
    /// assert_eq!(rig.hook().0, [5.0]);
    /// ```
    pub fn activation(&mut self, point: &str, values: impl Into<Vec<f32>>) -> &mut Rig<H> {
        self.show(point, NamedTensors::from([(point, values)]))
    }

    /// Shows the hook an activation of any shape.
    pub fn shaped_activation(
        &mut self,
        point: &str,
        shape: impl Into<Vec<usize>>,
        values: impl Into<Vec<f32>>,
    ) -> &mut Rig<H> {
        self.show(point, NamedTensors::default().with(point, shape, values))
    }

    /// Shows an activation of several tensors, as a forward hook sees it.
    pub fn show(&mut self, point: &str, values: NamedTensors) -> &mut Rig<H> {
        self.world.point = (point.to_owned(), values);
        self.on_activation();
        self
    }
}
