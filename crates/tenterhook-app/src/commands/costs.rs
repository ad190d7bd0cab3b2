//! Table of hook costs.

use std::cmp::Reverse;

use tenterhook::run::{CostOfHook, HookCosts};
use tenterhook::{Budget, Cost, OverBudget, ReadCounts, Report, RunNotice};

use crate::format::{Side, duration, one_line, short_duration, table, truncated};

/// A hook below this share of the step time has no row, unless it failed or read values from the engine.
const MIN_SHARE: f64 = 0.0005;
/// Maximum width of hook names, event names and lines.
const MAX_NAME: usize = 20;
const MAX_EVENT: usize = 28;
const MAX_LINE: usize = 98;

/// The total cost: its share of step time, and the time outside of steps. Without training, its share of the call.
pub(super) fn title(costs: &HookCosts) -> String {
    let share: f64 = costs.hooks.iter().map(|hook| hook.share).sum();
    let total: f64 = costs.hooks.iter().map(|hook| hook.calls.total.as_secs_f64()).sum();
    let outside = match total - share * costs.seconds {
        outside @ 1e-6.. => format!(", plus {} outside of steps", short_duration(outside)),
        _ => String::new(),
    };
    let trained = share == 0.0 || costs.hooks.iter().any(|hook| !hook.calls.in_steps.is_zero());
    let time = if trained { " of step time" } else { "" };
    format!("hook costs: {} of {}{time}{outside}", percent(share), duration(costs.seconds))
}

/// The costs of hooks in a call, and the hooks that exceeded their budget.
pub(super) fn summary(report: &Report, by_event: bool) -> Vec<String> {
    let lines = lines(&report.hook_costs, by_event);
    if lines.is_empty() {
        return lines;
    }
    let over = report.notices.iter().filter(|notice| matches!(notice, RunNotice::OverBudget(_)));
    let indented = lines.into_iter().chain(over.map(ToString::to_string)).map(|line| format!("  {line}"));
    std::iter::once(title(&report.hook_costs)).chain(indented).collect()
}

/// The table, most expensive hook first, optionally with a row per event. Empty if no hook was called.
pub(super) fn lines(costs: &HookCosts, by_event: bool) -> Vec<String> {
    let mut hooks: Vec<_> = costs.hooks.iter().filter(|hook| has_cost(hook)).collect();
    hooks.sort_by_key(|hook| Reverse(hook.calls.total));
    let has_row = |hook: &&CostOfHook| by_event || has_row(hook, costs.seconds);
    let (shown, others): (Vec<_>, Vec<_>) = hooks.into_iter().partition(has_row);
    let mut rows = Vec::new();
    for hook in &shown {
        rows.push(row(&truncated(&one_line(&hook.hook), MAX_NAME), hook.calls, hook.share));
        if let Some(row) = rows.last_mut() {
            let ReadCounts { scalars, tensors } = hook.read;
            row.extend([hook.failures.into(), scalars, tensors].map(count));
        }
        for event in hook.by_event.iter().filter(|_| by_event) {
            rows.push(row(
                &truncated(&format!("  {}", one_line(&event.event)), MAX_EVENT),
                event.calls,
                event.share,
            ));
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
        lines.push("~ estimated: of very frequent events, about one call in 16 is timed".to_owned());
    }
    if !others.is_empty() {
        let names: Vec<_> = others.iter().map(|hook| one_line(&hook.hook)).collect();
        let each = if others.len() == 1 { "" } else { " each" };
        let line = format!("less than {}{each}: {}", percent(MIN_SHARE), names.join(", "));
        lines.push(truncated(&line, MAX_LINE));
    }
    lines
}

/// Whether a hook cost anything. A hook that was never called may have a `when` condition that was evaluated.
fn has_cost(hook: &CostOfHook) -> bool {
    let Cost { calls, total, .. } = hook.calls;
    calls > 0 || !total.is_zero() || hook.failures > 0 || hook.read != ReadCounts::default()
}

fn has_row(hook: &CostOfHook, step_seconds: f64) -> bool {
    hook.calls.total.as_secs_f64() >= MIN_SHARE * step_seconds
        || hook.failures > 0
        || hook.read != ReadCounts::default()
}

fn row(name: &str, calls: Cost, share: f64) -> Vec<String> {
    let estimated = if calls.estimated { "~" } else { "" };
    let [total, p50, p99] =
        [calls.total, calls.p50, calls.p99].map(|time| short_duration(time.as_secs_f64()));
    let total = format!("{estimated}{total}");
    vec![name.to_owned(), calls.calls.to_string(), total, p50, p99, percent(share)]
}

/// A count, or `-` if it is 0.
pub(super) fn count(count: u64) -> String {
    if count == 0 { "-".to_owned() } else { count.to_string() }
}

/// A budget as in the configuration.
pub(super) fn budget(budget: &Budget) -> String {
    let over = if budget.over == OverBudget::Disable { ", over_budget = \"disable\"" } else { "" };
    // Rounded, because the share is a percentage divided by 100.
    format!("budget = \"{}%\"{over}", (budget.share * 1e10).round() / 1e8)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
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
    fn the_most_expensive_hook_comes_first_and_cheap_ones_are_only_named() {
        assert_eq!(title(&costs()), "hook costs: 37.50 % of 20 s of step time, plus 6.00 s outside of steps");
        let mut untrained = costs();
        untrained.hooks.retain(|hook| hook.calls.in_steps.is_zero());
        untrained.hooks.iter_mut().for_each(|hook| hook.share = hook.calls.total.as_secs_f64() / 20.0);
        assert_eq!(title(&untrained), "hook costs: 60.00 % of 20 s");
        assert_eq!(
            lines(&costs(), false),
            [
                "hook    calls    total      p50      p99    share  failed  numbers  tensors",
                "late        2   12.0 s   6.00 s   6.00 s  30.00 %       -        -        -",
                "slow     1000  ~1.50 s  1.40 ms  2.10 ms   7.50 %       2      100        1",
                "steers      1  42.0 µs  42.0 µs  42.0 µs   0.00 %       -        1        -",
                "~ estimated: of very frequent events, about one call in 16 is timed",
                "less than 0.05 %: idle",
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
    fn a_hook_that_was_never_called_is_shown_with_the_cost_of_its_condition() {
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
    fn a_table_fits_a_terminal_even_with_long_hook_names() {
        let mut costs = costs();
        for hook in &mut costs.hooks {
            hook.hook = hook.hook.repeat(40);
            (hook.share, hook.read.scalars, hook.read.tensors) = (0.2, 100_000, 10_000);
            (hook.calls.calls, hook.calls.total, hook.calls.estimated) =
                (100_000, std::time::Duration::from_millis(1234), true);
        }
        let shown = lines(&costs, false);
        assert!(shown.iter().all(|line| line.chars().count() <= MAX_LINE), "{shown:#?}");
        assert!(lines(&HookCosts::default(), true).is_empty());
    }
}
