//! Sets of observers: built-in ones with options that make them work in every step, and busy ones, with and
//! without gates, in any order.

use proptest::prelude::*;
use tenterhook::registry::Registry;
use tenterhook::wrap::{After, Conditioned, Every, Once, Sampled};
use tenterhook::{AnyHook, Cadence};

use super::busy::{Busy, Deeds, any_deeds};

/// The description of an observer, which is built for every run.
#[derive(Clone, Debug)]
pub struct Member {
    what: What,
    gate: Option<Gate>,
}

#[derive(Clone, Debug)]
enum What {
    BuiltIn(String),
    Busy(Deeds),
}

#[derive(Clone, Copy, Debug)]
enum Gate {
    Every(Cadence),
    After(Cadence),
    Once,
    Sampled(f64),
    When(&'static str),
}

impl Member {
    pub fn built_in(name: String) -> Member {
        Member { what: What::BuiltIn(name), gate: None }
    }

    pub fn hook(&self) -> AnyHook {
        let hook = match &self.what {
            What::BuiltIn(name) => eager(name),
            What::Busy(deeds) => AnyHook::new(Busy::new(deeds.clone())),
        };
        match self.gate {
            None => hook,
            Some(Gate::Every(cadence)) => hook.gated(Every::new(cadence)),
            Some(Gate::After(start)) => hook.gated(After::new(start)),
            Some(Gate::Once) => hook.gated(Once::default()),
            Some(Gate::Sampled(share)) => hook.gated(Sampled::new(share)),
            Some(Gate::When(text)) => hook.gated(Conditioned::new(text.parse().unwrap())),
        }
    }
}

/// The built-in hook with the options of its example, but at every step, batch and point.
fn eager(name: &str) -> AnyHook {
    let registry = Registry::default();
    let listed = registry.hook_named(name).unwrap();
    let mut options: toml::Table = listed.example.unwrap_or_default().parse().unwrap();
    if name == "upload" {
        // A bucket would need the network at the start.
        options.insert("to".into(), concat!(env!("CARGO_TARGET_TMPDIR"), "/uploads").into());
    }
    let every = "log_every_n_batches = 1\nlog_every_n_epochs = 1\nlog_frequency = 1\nevery_n_steps = 1\n\
                 frequency = \"step\"\nparam_filter = [\"**\"]\npoints = [\"**\"]\nskip_first_batches = 0\n\
                 window = 2\n";
    let every: toml::Table = every.parse().unwrap();
    options.extend(every.into_iter().filter(|(key, _)| listed.options().contains(&key.as_str())));
    registry.hook(name, &options).unwrap_or_else(|error| panic!("{error}"))
}

/// The names of the built-in observers.
pub fn built_in_observers() -> Vec<String> {
    let registry = Registry::default();
    let names = registry.hooks().map(|listed| listed.name.to_owned());
    names.filter(|name| !eager(name).kind().steers()).collect()
}

fn any_gate() -> impl Strategy<Value = Gate> {
    let cadences = vec![Cadence::Steps(1), Cadence::Steps(2), Cadence::Batches(3), Cadence::Epochs(1)];
    let cadence = || prop::sample::select(cadences.clone());
    prop_oneof![
        cadence().prop_map(Gate::Every),
        cadence().prop_map(Gate::After),
        Just(Gate::Once),
        prop::sample::select(vec![0.1, 0.5, 1.0]).prop_map(Gate::Sampled),
        prop::sample::select(vec!["step % 2 == 0", "val/loss < 1.0", "loss < 1e9", "phase == \"train\""])
            .prop_map(Gate::When),
    ]
}

/// Some built-in observers and some busy ones, gated or not, in any order.
pub fn any_set() -> impl Strategy<Value = Vec<Member>> {
    let built_in = built_in_observers();
    let count = built_in.len();
    let built_in = prop::sample::subsequence(built_in, 0..=count);
    let busy = prop::collection::vec(any_deeds(), 0..=4);
    let members = (built_in, busy).prop_map(|(built_in, busy)| {
        let busy = busy.into_iter().enumerate().map(|(number, deeds)| What::Busy(deeds.numbered(number)));
        built_in.into_iter().map(What::BuiltIn).chain(busy).collect::<Vec<_>>()
    });
    members.prop_shuffle().prop_flat_map(|members| {
        let gates = prop::collection::vec(prop::option::weighted(0.4, any_gate()), members.len());
        gates.prop_map(move |gates| {
            members.iter().cloned().zip(gates).map(|(what, gate)| Member { what, gate }).collect()
        })
    })
}
