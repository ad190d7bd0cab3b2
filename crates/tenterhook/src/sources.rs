//! Which sources receive an event, and in which order: the published order, as data.

use tenterhook_core::{Event, HookRunner, Part, Tier};

/// Who can receive an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The data module.
    Data,
    /// The hooks, or some of them.
    Hooks(Part),
    /// The module.
    Module,
    /// The strategy.
    Strategy,
}

/// The sources of an event, in order.
#[must_use]
pub fn of(event: Event) -> &'static [Source] {
    use Event as E;
    use Source::{Data, Hooks, Module, Strategy};
    const ALL: Source = Hooks(Part::All);
    match event {
        E::Setup => &[Data, ALL, Module, Strategy],
        E::Teardown => &[Strategy, Data, ALL, Module],
        E::Exception => &[ALL, Module, Data, Strategy],
        E::TrainEpochEnd => &[Hooks(Part::BeforeModule), Module, Hooks(Part::Monitors)],
        E::LoadCheckpoint => &[Module, ALL],
        E::Activation | E::CheckpointSaved | E::CheckpointLoaded | E::Log | E::HookDisabled => &[ALL],
        E::SanityCheckStart
        | E::SanityCheckEnd
        | E::TrainStart
        | E::TrainEnd
        | E::TrainBatchStart
        | E::ValidationStart
        | E::ValidationEpochStart
        | E::ValidationBatchStart
        | E::ValidationBatchEnd
        | E::ValidationEpochEnd
        | E::ValidationEnd
        | E::TestStart
        | E::TestEpochStart
        | E::TestBatchStart
        | E::TestBatchEnd
        | E::TestEpochEnd
        | E::TestEnd
        | E::PredictStart
        | E::PredictEnd => &[ALL, Module, Strategy],
        _ => &[ALL, Module],
    }
}

/// One receiver of an event, and why it stands where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// `data`, `module`, `strategy` or `hook:<name>`.
    pub source: String,
    /// Why here.
    pub why: &'static str,
}

/// Everybody who receives an event, in order.
#[must_use]
pub fn receivers(event: Event, hooks: &HookRunner) -> Vec<Receiver> {
    let plan = hooks.plan();
    let mut all = Vec::new();
    for source in of(event) {
        let part = match source {
            Source::Data => {
                all.push(Receiver { source: "data".into(), why: "data" });
                continue;
            }
            Source::Module => {
                let before_monitors = event == Event::TrainEpochEnd;
                let why = if before_monitors {
                    "module, before the monitors of what it logs here"
                } else {
                    "module"
                };
                all.push(Receiver { source: "module".into(), why });
                continue;
            }
            Source::Strategy => {
                all.push(Receiver { source: "strategy".into(), why: "strategy" });
                continue;
            }
            Source::Hooks(part) => *part,
        };
        let (slots, monitors) = (plan.receivers(event), plan.monitors_from(event));
        let slots = match part {
            Part::All => slots,
            Part::BeforeModule => &slots[..monitors],
            Part::Monitors => &slots[monitors..],
        };
        all.extend(slots.iter().filter_map(|slot| hooks.receiver(*slot)).map(
            |(name, tier): (&str, Tier)| Receiver { source: format!("hook:{name}"), why: tier.reason() },
        ));
    }
    all
}
