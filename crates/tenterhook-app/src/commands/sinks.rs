//! Table of the items that hooks sent to files, programs and servers.

use tenterhook::DeliveryStats;
use tenterhook::run::SinkDeliveries;

use super::costs::count;
use crate::format::{Side, one_line, short_duration, table};

pub(super) const TITLE: &str = "sent by hooks";

/// The table; empty if no hook sent anything.
pub(super) fn lines(sinks: &[SinkDeliveries]) -> Vec<String> {
    let mut rows: Vec<_> =
        sinks.iter().filter(|sink| sink.stats.sent > 0 || sink.stats.failed > 0).map(row).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let head = ["hook", "sent", "delivered", "failed", "dropped", "lost", "training waited", "final flush"];
    rows.insert(0, head.map(str::to_owned).into());
    let mut sides = vec![Side::Right; head.len()];
    sides[0] = Side::Left;
    table(&rows, &sides)
}

fn row(sink: &SinkDeliveries) -> Vec<String> {
    let DeliveryStats { sent, delivered, failed, dropped, lost, waited, flushed } = sink.stats;
    let counts = [sent, delivered, failed, dropped, lost].map(count);
    let times = [waited, flushed].map(|time| short_duration(time.as_secs_f64()));
    [one_line(&sink.hook)].into_iter().chain(counts).chain(times).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_shows_delivered_failed_dropped_and_lost_items() {
        let of = |value| serde_json::from_value::<SinkDeliveries>(value).expect("it reads");
        let csv = of(json!({ "hook": "csv", "sent": 120, "delivered": 120, "flushed_s": 0.0012 }));
        let notify = of(json!({
            "hook": "notify", "sent": 3, "delivered": 1, "failed": 1, "dropped": 1, "lost": 0, "waited_s": 0.0,
            "flushed_s": 10.0,
        }));
        let silent = of(json!({ "hook": "silent" }));
        assert_eq!(lines(std::slice::from_ref(&silent)), Vec::<String>::new());
        assert_eq!(
            lines(&[csv, silent, notify]),
            [
                "hook    sent  delivered  failed  dropped  lost  training waited  final flush",
                "csv      120        120       -        -     -              0 s      1.20 ms",
                "notify     3          1       1        1     -              0 s       10.0 s",
            ]
        );
    }
}
