//! What hooks cost, in a table for people.

use tenterhook::run::{CostOfCalls, CostOfHook, EngineReads, HookCosts};
use tenterhook::{Budget, OverBudget, Report, RunNotice};

use crate::progress::duration;
use crate::table::{Side, clipped, plain, table};

/// A hook that took less than this part of the step time, did not fail and made nothing be handed over is only named.
const LITTLE: f64 = 0.0005;
/// Names are cut to this, so that the table fits a terminal; those of events may be longer.
const NAME: usize = 20;
const EVENT: usize = 28;
const WIDTH: usize = 98;

/// How much it was in all, in words: of training steps, and at other times. Where nothing was trained, it is of the call.
pub(super) fn title(costs: &HookCosts) -> String {
    let share: f64 = costs.hooks.iter().map(|hook| hook.share).sum();
    let total: f64 = costs.hooks.iter().map(|hook| hook.calls.total_s).sum();
    let besides = match total - share * costs.seconds {
        besides @ 1e-6.. => format!(", and {} besides", fine(besides)),
        _ => String::new(),
    };
    let trained = share == 0.0 || costs.hooks.iter().any(|hook| hook.calls.in_steps_s > 0.0);
    let of = if trained { " of steps" } else { "" };
    format!("what hooks cost: {} of {}{of}{besides}", percent(share), duration(costs.seconds))
}

/// What hooks cost in a call, and which of them took more than they may.
pub(super) fn summary(report: &Report, by_event: bool) -> Vec<String> {
    let lines = lines(&report.hook_costs, by_event);
    if lines.is_empty() {
        return lines;
    }
    let over = report.notices.iter().filter(|notice| matches!(notice, RunNotice::OverBudget(_)));
    let indented = lines.into_iter().chain(over.map(ToString::to_string)).map(|line| format!("  {line}"));
    std::iter::once(title(&report.hook_costs)).chain(indented).collect()
}

/// The table, the costliest hook first, for each of its events where that is wanted; nothing where no hook was called.
pub(super) fn lines(costs: &HookCosts, by_event: bool) -> Vec<String> {
    let mut hooks: Vec<_> = costs.hooks.iter().filter(|hook| has_cost(hook)).collect();
    hooks.sort_by(|a, b| b.calls.total_s.total_cmp(&a.calls.total_s));
    let is_much = |hook: &CostOfHook| by_event || is_much(hook, costs.seconds);
    let (shown, little): (Vec<_>, Vec<_>) = hooks.into_iter().partition(|hook| is_much(hook));
    let mut rows = Vec::new();
    for hook in &shown {
        rows.push(row(&clipped(&plain(&hook.hook), NAME), hook.calls, hook.share));
        if let Some(row) = rows.last_mut() {
            let EngineReads { scalars, tensors, .. } = hook.read;
            row.extend([hook.failures.into(), scalars, tensors].map(count));
        }
        for event in hook.by_event.iter().filter(|_| by_event) {
            rows.push(row(&clipped(&format!("  {}", plain(&event.event)), EVENT), event.calls, event.share));
        }
    }
    if !rows.is_empty() {
        let head = ["hook", "calls", "total", "p50", "p99", "share", "failed", "numbers", "tensors"];
        rows.insert(0, head.map(str::to_owned).into());
    }
    let mut sides = vec![Side::Right; 9];
    sides[0] = Side::Left;
    let mut lines = table(&rows, &sides);
    if shown.iter().any(|hook| hook.calls.estimated) {
        lines.push("~ an estimate: of what happens very often, about one in 16 calls was timed".to_owned());
    }
    if !little.is_empty() {
        let names: Vec<_> = little.iter().map(|hook| plain(&hook.hook)).collect();
        let each = if little.len() == 1 { "" } else { " each" };
        let (others, bound) = (if shown.is_empty() { "" } else { "and " }, percent(LITTLE));
        lines.push(clipped(&format!("{others}less than {bound}{each}: {}", names.join(", ")), WIDTH));
    }
    lines
}

/// A hook that was never called may have cost something all the same: the gate before it was asked.
fn has_cost(hook: &CostOfHook) -> bool {
    let CostOfCalls { calls, total_s, .. } = hook.calls;
    calls > 0 || total_s > 0.0 || hook.failures > 0 || hook.read != EngineReads::default()
}

fn is_much(hook: &CostOfHook, steps: f64) -> bool {
    hook.calls.total_s >= LITTLE * steps || hook.failures > 0 || hook.read != EngineReads::default()
}

fn row(name: &str, calls: CostOfCalls, share: f64) -> Vec<String> {
    let about = if calls.estimated { "~" } else { "" };
    let [p50, p99] = [calls.p50_s, calls.p99_s].map(fine);
    let total = format!("{about}{}", fine(calls.total_s));
    vec![name.to_owned(), calls.calls.to_string(), total, p50, p99, percent(share)]
}

pub(super) fn count(count: u64) -> String {
    if count == 0 { "-".to_owned() } else { count.to_string() }
}

/// A budget as it is written.
pub(super) fn budget(budget: &Budget) -> String {
    let also = if budget.over == OverBudget::Disable { ", over_budget = \"disable\"" } else { "" };
    // Per cent that were divided by 100 come back with an error in their last digits.
    format!("budget = \"{}%\"{also}", (budget.share * 1e10).round() / 1e8)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// A time of any size in the unit that fits, with three digits that count.
pub(super) fn fine(seconds: f64) -> String {
    let (number, unit) = match seconds {
        10.0.. => return duration(seconds),
        1.0.. => (seconds, "s"),
        1e-3.. => (seconds * 1e3, "ms"),
        1e-6.. => (seconds * 1e6, "µs"),
        _ => return format!("{:.0} ns", seconds * 1e9),
    };
    let digits = if number >= 100.0 { 0 } else { 1 + usize::from(number < 10.0) };
    format!("{number:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn costs() -> HookCosts {
        let idle = json!({ "hook": "idle", "calls": 9, "total_s": 1e-6, "p50_s": 1e-7, "p99_s": 1e-7 });
        let slow = json!({
            "hook": "slow", "calls": 1000, "total_s": 1.5, "in_steps_s": 1.5, "p50_s": 0.0014, "p99_s": 0.0021, "share": 0.075,
            "estimated": true, "failures": 2, "read": { "scalars": 100, "tensors": 1 },
            "by_event": [{ "event": "on_step_end", "calls": 1000, "total_s": 1.9, "in_steps_s": 1.5, "p50_s": 0.0014,
                "p99_s": 0.0021, "share": 0.075 }],
        });
        let never = json!({ "hook": "never" });
        let steers = json!({ "hook": "steers", "calls": 1, "total_s": 4.2e-5, "p50_s": 4.2e-5, "p99_s": 4.2e-5,
            "share": 4.2e-6, "read": { "scalars": 1 } });
        let late =
            json!({ "hook": "late", "calls": 2, "total_s": 12.0, "p50_s": 6.0, "p99_s": 6.0, "share": 0.3 });
        serde_json::from_value(json!({ "seconds": 20.0, "hooks": [idle, slow, never, steers, late] }))
            .expect("costs")
    }

    #[test]
    fn the_costliest_hook_comes_first_and_those_that_cost_nothing_are_only_named() {
        assert_eq!(title(&costs()), "what hooks cost: 37.50 % of 20 s of steps, and 6.00 s besides");
        let mut untrained = costs();
        untrained.hooks.retain(|hook| hook.calls.in_steps_s == 0.0);
        untrained.hooks.iter_mut().for_each(|hook| hook.share = hook.calls.total_s / 20.0);
        assert_eq!(title(&untrained), "what hooks cost: 60.00 % of 20 s");
        assert_eq!(
            lines(&costs(), false),
            [
                "hook    calls    total      p50      p99    share  failed  numbers  tensors",
                "late        2     12 s   6.00 s   6.00 s  30.00 %       -        -        -",
                "slow     1000  ~1.50 s  1.40 ms  2.10 ms   7.50 %       2      100        1",
                "steers      1  42.0 µs  42.0 µs  42.0 µs   0.00 %       -        1        -",
                "~ an estimate: of what happens very often, about one in 16 calls was timed",
                "and less than 0.05 %: idle",
            ]
        );
    }

    #[test]
    fn a_profile_has_a_row_for_every_event_and_every_hook_that_was_called() {
        let profile = lines(&costs(), true);
        let slow = profile.iter().position(|line| line.starts_with("slow")).expect("a row");
        assert!(
            profile[slow + 1].starts_with("  on_step_end") && profile[slow + 1].ends_with("7.50 %"),
            "{profile:#?}"
        );
        assert!(profile.iter().any(|line| line.starts_with("idle")), "{profile:#?}");
        assert!(!profile.iter().any(|line| line.contains("never")), "{profile:#?}");
    }

    #[test]
    fn a_hook_whose_gate_never_opened_is_shown_with_what_the_gate_took() {
        let gated = json!({ "hook": "gated", "total_s": 2.0, "in_steps_s": 2.0, "share": 0.1 });
        let costs = json!({ "seconds": 20.0, "hooks": [gated, { "hook": "never" }] });
        let shown = lines(&serde_json::from_value(costs).expect("costs"), false);
        assert!(
            shown.iter().any(|line| line.starts_with("gated ") && line.contains("10.00 %")),
            "{shown:#?}"
        );
        assert!(!shown.iter().any(|line| line.contains("never")), "{shown:#?}");
    }

    #[test]
    fn a_table_fits_a_terminal_whatever_hooks_are_called() {
        let mut costs = costs();
        for hook in &mut costs.hooks {
            hook.hook = hook.hook.repeat(40);
            (hook.share, hook.read.scalars, hook.read.tensors) = (0.2, 100_000, 10_000);
            (hook.calls.calls, hook.calls.total_s, hook.calls.estimated) = (100_000, 1.234, true);
        }
        let shown = lines(&costs, false);
        assert!(shown.iter().all(|line| line.chars().count() <= WIDTH), "{shown:#?}");
        assert!(lines(&HookCosts::default(), true).is_empty());
    }
}
