//! Everybody who receives an event, in the order that the table of events gives.

pub use tenterhook_core::EventReceiver;
use tenterhook_core::{Event, HookGroup, HookRunner, Tier};

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
    for source in event.receivers() {
        let part = match source {
            EventReceiver::Data => {
                all.push(Receiver { source: "data".into(), why: "data" });
                continue;
            }
            EventReceiver::Module => {
                let before_monitors = event == Event::TrainEpochEnd;
                let why = if before_monitors {
                    "module, before the monitors of what it logs here"
                } else {
                    "module"
                };
                all.push(Receiver { source: "module".into(), why });
                continue;
            }
            EventReceiver::Strategy => {
                all.push(Receiver { source: "strategy".into(), why: "strategy" });
                continue;
            }
            EventReceiver::Hooks(part) => *part,
        };
        let (slots, monitors) = (plan.receivers(event), plan.monitors_from(event));
        let slots = match part {
            HookGroup::All => slots,
            HookGroup::BeforeModule => &slots[..monitors],
            HookGroup::Monitors => &slots[monitors..],
        };
        all.extend(slots.iter().filter_map(|slot| hooks.receiver(*slot)).map(
            |(name, tier): (&str, Tier)| Receiver { source: format!("hook:{name}"), why: tier.reason() },
        ));
    }
    all
}
