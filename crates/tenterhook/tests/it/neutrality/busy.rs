//! An observer that does everything that observers can do, at events that the test chooses.

use proptest::prelude::*;
use tenterhook::hook::{EventResult, event_result};
use tenterhook::{
    AnyHook, Event, EventRef, Hook, HookResult, HookSpec, Key, Policy, RunContext, closure, for_each_event,
};

use super::Noise;
use super::steering::MINE;

/// The name and the policy of the observer, and its actions by event.
#[derive(Clone, Debug)]
pub struct Deeds {
    name: String,
    policy: Policy,
    /// It declares that it reads the loss.
    reads_loss: bool,
    script: Vec<(Event, Deed)>,
}

impl Deeds {
    pub fn numbered(self, number: usize) -> Deeds {
        Deeds { name: format!("busy{number}"), ..self }
    }
}

#[derive(Clone, Debug)]
enum Deed {
    Draw(usize),
    /// Logs the values that it sees, also under names of other hooks.
    Log(&'static str),
    Read,
    Say,
    Put,
    /// Takes values of other hooks from the board.
    Take,
    Ask(Ask, &'static str),
    Add,
    /// Requests an update hook, which observers may not do.
    Meddle,
    Fail,
    Panic,
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    Enable,
    Disable,
    Remove,
}

/// Hooks that may exist, including some that observers may not change.
const NAMES: [&str; 11] = [
    "busy0",
    "busy1",
    "busy2",
    "busy3",
    "console_log",
    "json_log",
    "gradient_monitor",
    "lr_monitor",
    "noise0",
    "identity",
    "nobody",
];

pub fn any_deeds() -> impl Strategy<Value = Deeds> {
    let ask = prop::sample::select(vec![Ask::Enable, Ask::Disable, Ask::Remove]);
    let deed = prop_oneof![
        3 => (1..4_usize).prop_map(Deed::Draw),
        3 => prop::sample::select(vec!["mine", "train/loss", "val/loss"]).prop_map(Deed::Log),
        3 => Just(Deed::Read),
        1 => Just(Deed::Say),
        1 => Just(Deed::Put),
        1 => Just(Deed::Take),
        2 => (ask, prop::sample::select(NAMES.to_vec())).prop_map(|(ask, name)| Deed::Ask(ask, name)),
        1 => Just(Deed::Add),
        1 => Just(Deed::Meddle),
        1 => Just(Deed::Fail),
        1 => Just(Deed::Panic),
    ];
    let script = prop::collection::vec((prop::sample::select(Event::ALL.to_vec()), deed), 0..24);
    let policy = prop::sample::select(vec![Policy::DISABLE, Policy::WARN]);
    (policy, any::<bool>(), script).prop_map(|(policy, reads_loss, script)| {
        let name = String::new();
        Deeds { name, policy, reads_loss, script }
    })
}

const NOTE: Key<f64> = Key::new("note");

pub struct Busy(Deeds);

impl Busy {
    pub fn new(deeds: Deeds) -> Busy {
        Busy(deeds)
    }

    fn act(&mut self, event: Event, cx: &RunContext<'_>, look: impl Fn() -> f64) -> HookResult {
        for (_, deed) in self.0.script.iter().filter(|(at, _)| *at == event) {
            match deed {
                Deed::Draw(times) => (0..*times).for_each(|_| cx.log("drawn", cx.rng().uniform())),
                Deed::Log(name) => cx.log(name, look() + 1.0),
                Deed::Read => cx.board().put(NOTE, look() + everything(cx)),
                Deed::Say => {
                    cx.say("something");
                    cx.print("something else");
                }
                Deed::Put => cx.board().put(NOTE, cx.board().take(NOTE).unwrap_or_default() + 1.0),
                Deed::Take => cx.log("taken", cx.board().take(MINE).unwrap_or_default()),
                Deed::Ask(Ask::Enable, name) => cx.hooks().enable(name),
                Deed::Ask(Ask::Disable, name) => cx.hooks().disable(name),
                Deed::Ask(Ask::Remove, name) => cx.hooks().remove(name),
                Deed::Add => {
                    let name = format!("added by {} at {event}", self.0.name);
                    cx.hooks().add(closure::on_step_end(name, |cx| cx.log("added", cx.rng().uniform())));
                }
                Deed::Meddle => cx.hooks().add(AnyHook::new(Noise("meddling"))),
                Deed::Fail => return Err("as it was told".into()),
                Deed::Panic => panic!("as it was told"),
            }
        }
        Ok(())
    }
}

/// The sum of all values in the context of every event.
fn everything(cx: &RunContext<'_>) -> f64 {
    let tensors = |tensors: tenterhook::Tensors<'_>| {
        let of = |tensor: tenterhook::Tensor<'_>| tensor.stats().mean + f64::from(tensor.to_vec()[0]);
        tensors.iter().map(of).sum::<f64>()
    };
    let optimizers = cx.optimizers();
    let of_optimizers = (0..optimizers.count()).map(|index| {
        let rates = optimizers.groups(index).iter().map(|group| group.lr).sum::<f64>();
        rates + tensors(tenterhook::Tensors::new(optimizers.state(index)))
    });
    let losses = [cx.latest_loss(), cx.average_loss()].into_iter().flatten().sum::<f64>();
    let metrics = cx.metrics().to_map().values().sum::<f64>();
    let hooks = cx.hooks().list().len() as f64;
    of_optimizers.sum::<f64>() + tensors(cx.params()) + losses + metrics + hooks + cx.elapsed().as_secs_f64()
}

/// The sum of the values that only this event has.
macro_rules! look {
    (BeforeBackward $cx:ident) => {
        $cx.loss.value()
    };
    (AfterBackward $cx:ident) => {
        $cx.loss.value() + $cx.gradients.norm()
    };
    (BeforeOptimizerStep $cx:ident) => {
        $cx.gradients.norm()
    };
    (AfterOptimizerStep $cx:ident) => {
        $cx.gradients.norm()
    };
    (BeforeZeroGrad $cx:ident) => {
        $cx.gradients.norm()
    };
    (GradientClip $cx:ident) => {
        $cx.norm_before.value() + $cx.norm_after.value() + $cx.gradients.norm()
    };
    (StepEnd $cx:ident) => {
        $cx.loss.value() + $cx.grad_norm.value() + $cx.lr + $cx.next_lr
    };
    (TrainBatchStart $cx:ident) => {
        $cx.batch.tensors.norm()
    };
    (TrainBatchEnd $cx:ident) => {
        $cx.loss.as_ref().map_or(0.0, |loss| loss.value())
    };
    (Activation $cx:ident) => {
        $cx.tensor().stats().std + $cx.tensor().histogram(4).counts.len() as f64
    };
    ($Event:ident $cx:ident) => {
        $cx.step as f64
    };
}

macro_rules! busy_hook {
    ($($(#[$doc:meta])* $mode:ident $handler:ident $Event:ident $Phase:ident $sources:tt;)*) => {
        impl Hook for Busy {
            fn spec(&self) -> HookSpec {
                let Deeds { name, policy, reads_loss, script } = &self.0;
                let spec = HookSpec::observer(name).policy(*policy);
                let spec = if *reads_loss { spec.reads("train/loss") } else { spec };
                script.iter().map(|(event, _)| *event).fold(spec, HookSpec::wants)
            }
            fn deliver(&mut self, event: EventRef<'_>) -> EventResult {
                event_result(match event {
                    $(EventRef::$Event(cx) => self.act(Event::$Event, &cx.run_cx, || look!($Event cx)),)*
                    _ => Ok(()),
                })
            }
        }
    };
}

for_each_event!(busy_hook);
