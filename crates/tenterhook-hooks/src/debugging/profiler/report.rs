//! The report of a profile: a table for the console and JSON for programs.

use std::collections::BTreeMap;

use serde::Serialize;
use tenterhook_core::printable::{Side, table};

use super::PARTS;
use super::times::{BOUND, Times};
use crate::support::text;

#[derive(Serialize)]
pub(super) struct Report {
    batches: u64,
    skipped: u64,
    /// The relative error of `p50_s` and `p99_s`.
    quantile_error: f64,
    parts: BTreeMap<&'static str, Part>,
}

#[derive(Serialize)]
struct Part {
    count: u64,
    total_s: f64,
    mean_s: f64,
    p50_s: f64,
    p99_s: f64,
    share: f64,
}

impl Report {
    pub(super) fn of(times: &[Times; PARTS.len()], batches: u64, skipped: u64) -> Report {
        let whole: f64 = times.iter().map(|times| times.total.as_secs_f64()).sum();
        let part = |times: &Times| Part {
            count: times.count,
            total_s: times.total.as_secs_f64(),
            mean_s: times.mean(),
            p50_s: times.quantile(0.5),
            p99_s: times.quantile(0.99),
            share: if whole > 0.0 { times.total.as_secs_f64() / whole } else { 0.0 },
        };
        let parts = PARTS.into_iter().zip(times.iter().map(part)).collect();
        Report { batches, skipped, quantile_error: BOUND, parts }
    }

    /// The message if no batch was measured.
    fn no_profile(&self) -> String {
        let skipped = text::plural(self.skipped, "batch");
        match self.skipped {
            0 => "no profile: there was no batch".to_owned(),
            _ => format!("no profile: all {skipped} warmed up; lower `skip_first_batches` or train longer"),
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        if self.batches == 0 {
            return vec![self.no_profile()];
        }
        let mut rows =
            vec![["part", "count", "total", "mean", "p50", "p99", "share"].map(str::to_owned).to_vec()];
        for (name, part) in PARTS.iter().filter_map(|name| self.parts.get_key_value(name)) {
            rows.push(vec![
                (*name).to_owned(),
                text::count(part.count),
                text::short_duration(part.total_s),
                text::short_duration(part.mean_s),
                text::short_duration(part.p50_s),
                text::short_duration(part.p99_s),
                format!("{:.1} %", part.share * 100.0),
            ]);
        }
        let batches = if self.batches == 1 { "batch" } else { "batches" };
        let head = format!(
            "where the time of {} {batches} went (the first {} not counted; p50 and p99 within {:.1} %):",
            text::count(self.batches),
            self.skipped,
            self.quantile_error * 100.0
        );
        let sides = std::array::from_fn::<_, 7, _>(|at| if at == 0 { Side::Left } else { Side::Right });
        std::iter::once(head).chain(table(&rows, &sides)).collect()
    }
}
