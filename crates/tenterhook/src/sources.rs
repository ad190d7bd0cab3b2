//! The receivers of an event, in the order of the table of events.

pub use tenterhook_core::Source;
use tenterhook_core::{Event, HookRunner, Part};

/// A receiver of an event, and the reason for its place in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// `data`, `module`, `strategy` or `hook:<name>`.
    pub source: String,
    /// The reason.
    pub why: &'static str,
}

/// The receivers of an event, in order.
#[must_use]
pub fn receivers(event: Event, hooks: &HookRunner) -> Vec<Receiver> {
    let plan = hooks.plan();
    let (slots, monitors) = (plan.receivers(event), plan.monitors_from(event));
    let mut all = Vec::new();
    for source in event.sources() {
        let mut push = |source: &str, why| all.push(Receiver { source: source.to_owned(), why });
        match source {
            Source::Data => push("data", "data"),
            Source::Module if event == Event::TrainEpochEnd => {
                push("module", "module, before the monitors of what it logs here");
            }
            Source::Module => push("module", "module"),
            Source::Strategy => push("strategy", "strategy"),
            Source::Hooks(part) => {
                let slots = match part {
                    Part::All => slots,
                    Part::BeforeModule => &slots[..monitors],
                    Part::Monitors => &slots[monitors..],
                };
                for (name, tier) in slots.iter().filter_map(|slot| hooks.receiver(*slot)) {
                    push(&format!("hook:{name}"), tier.reason());
                }
            }
        }
    }
    all
}
