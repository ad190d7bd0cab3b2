//! Hooks that change training depending on the loss and the board.

use proptest::prelude::*;
use tenterhook::wrap::Conditioned;
use tenterhook::{AnyHook, Decision, Key, closure};

use super::Noise;

/// The kind of hook that decides by the loss.
#[derive(Clone, Copy, Debug)]
pub enum Steering {
    None,
    /// An update hook behind a condition.
    Update,
    /// A controller behind a condition.
    Controller,
    /// A controller that reads the loss without declaring it.
    Undeclared,
}

/// A value that a controller keeps on the board.
pub const MINE: Key<f64> = Key::new("mine");

impl Steering {
    pub const ALL: [Steering; 3] = [Steering::Update, Steering::Controller, Steering::Undeclared];

    pub fn hooks(self) -> Option<AnyHook> {
        match self {
            Steering::None => None,
            Steering::Update => {
                Some(AnyHook::new(Noise("gated")).gated(Conditioned::new("loss < 1e9".parse().unwrap())))
            }
            Steering::Controller => {
                let slower = closure::on_step_end("slower", |_| Decision::scale_lr(0.5));
                let gate = Conditioned::new("train/loss < 1e9".parse().unwrap());
                Some(AnyHook::new(slower).gated(gate))
            }
            Steering::Undeclared => Some(AnyHook::new(closure::on_step_end("looking", |cx| {
                let before = cx.board().get(MINE).unwrap_or(1.0);
                cx.board().put(MINE, before * 0.75);
                let known = cx.metrics().to_map().contains_key("train/loss");
                Decision::scale_lr(if known { before } else { 0.5 })
            }))),
        }
    }
}

pub fn any_steering() -> impl Strategy<Value = Steering> {
    prop::sample::select([&[Steering::None][..], &Steering::ALL].concat())
}
