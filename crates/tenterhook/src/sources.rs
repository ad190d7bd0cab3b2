//! The receivers of an event, in the order of the table of events.

pub use tenterhook_core::EventReceiver;
use tenterhook_core::{Event, HookGroup, HookRunner};

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
    for source in event.receivers() {
        let mut push = |source: &str, why| all.push(Receiver { source: source.to_owned(), why });
        match source {
            EventReceiver::Data => push("data", "data"),
            EventReceiver::Module if event == Event::TrainEpochEnd => {
                push("module", "module, before the monitors of what it logs here");
            }
            EventReceiver::Module => push("module", "module"),
            EventReceiver::Strategy => push("strategy", "strategy"),
            EventReceiver::Hooks(part) => {
                let slots = match part {
                    HookGroup::All => slots,
                    HookGroup::BeforeModule => &slots[..monitors],
                    HookGroup::Monitors => &slots[monitors..],
                };
                for (name, tier) in slots.iter().filter_map(|slot| hooks.receiver(*slot)) {
                    push(&format!("hook:{name}"), tier.reason());
                }
            }
        }
    }
    all
}
